"""The command line: ``minips demo | train | stages | bench | doctor | lab | check``.

Results go to standard output, progress and errors to standard error. Ctrl-C ends any of them cleanly, with exit code
130, and SIGTERM with 143.
"""

import argparse
import dataclasses
import importlib.util
import io
import json
import os
import platform
import re
import signal
import sys
import threading
import typing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from minips import __version__
from minips.core.codec import Codec
from minips.core.config import Config
from minips.problems import LinearRegression, Problem, SoftmaxRegression
from minips.stage import Stage, Value, default_of, kinds, missing, names, parse_stage, read_fields, reason, stage_class

_DATA = ("digits", "breast_cancer", "diabetes", "synthetic")
_CODEC = ("quantizer", "memory", "serializer", "compressor")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows ASCII alone shows a ? for an α
    parser = _parser()
    options, rest = parser.parse_known_args(arguments)
    options.rest = rest
    if rest and options.command is not lab:
        parser.error(f"unknown: {' '.join(rest)}")
    try:
        with _sigterm_raised():
            return int(options.command(options) or 0)
    except Terminated:
        print("Stopped by SIGTERM; everything that was started has ended.", file=sys.stderr)
        return 143
    except KeyboardInterrupt:
        print("Stopped by Ctrl-C; everything that was started has ended.", file=sys.stderr)
        return 130
    except (ValueError, OSError, ModuleNotFoundError, RuntimeError, TypeError) as error:
        print(f"minips: {reason(error)}", file=sys.stderr)
        return 1


class Terminated(KeyboardInterrupt):
    """The process was told to end (SIGTERM): all that a Ctrl-C ends has to end."""


@contextmanager
def _sigterm_raised() -> Iterator[None]:
    """Raise `Terminated` in the main thread where a SIGTERM comes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(number: int, frame: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _check_folders(*files: str | None) -> None:
    """OSError where a file that is to be written has no folder; asked before the work that it takes, not after."""
    for file in filter(None, files):
        if not os.path.isdir(os.path.dirname(file) or "."):
            raise OSError(f"There is no folder {os.path.dirname(file)} for {file}. Make it, or choose another.")


def demo(options: argparse.Namespace) -> None:
    """Seven short runs and the table that they make."""
    from minips import demo as runs

    _check_folders(options.json)
    rows: list[runs.Row] = []
    try:
        runs.demo(Console(stderr=True), rows.append)
    finally:
        if options.json:
            Path(options.json).write_text(json.dumps([row.to_dict() for row in rows], indent=1))
        if rows:
            Console().print(runs.table(rows))
    Console().print(runs.verdict(rows))


def train(options: argparse.Namespace) -> None:
    """Train once, as the options say."""
    from minips.engines.train import train as run_it

    _check_folders(options.json, options.trace)
    config = _config(options)
    problem = _problem(options)
    with _named("engine"):
        engine = parse_stage("engine", options.engine)
    run = run_it(problem, config, engine=engine, progress=bool(sys.stderr and sys.stderr.isatty()))
    print(run.summary())
    if options.json:
        Path(options.json).write_text(json.dumps(run.to_dict(), indent=1))
    if options.trace:
        run.trace.to_chrome(options.trace)


def stages(options: argparse.Namespace) -> None:
    """The catalogue: every stage of every kind, its fields, and which extra is missing."""
    console = Console()
    for kind in kinds():
        if options.kind and kind != options.kind:
            continue
        listing = Table(title=kind, title_justify="left", show_edge=False)
        for heading in ("name", "class", "fields", "what it does"):
            listing.add_column(heading, overflow="fold")
        for name in names(kind):
            cls: Any = stage_class(kind, name)
            fields = ", ".join(f"{field.name}={default_of(field)!r}" for field in dataclasses.fields(cls))
            absent = f' [needs: pip install "minips\\[{cls.extra}]"]' if missing(cls) else ""
            listing.add_row(name, cls.__name__, fields, (cls.__doc__ or "").strip().split("\n")[0] + absent)
        console.print(listing, "")


def bench(options: argparse.Namespace) -> None:
    """What the parts cost here, beside references of the same run."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from minips.bench import base

    _check_folders(options.json, options.plot)
    if options.plot:
        from minips.lab import plots  # now, since to measure takes its time
    if warning := base.busy():
        print(warning, file=sys.stderr)
    module = importlib.import_module(f"minips.bench.{options.what}")
    given = {name: getattr(options, name) for name in options.takes if getattr(options, name) is not None}
    rows: list[Any] = []
    columns = (
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    try:
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=1.0)

            def watch(text: str, share: float) -> None:
                bar.update(task, description=text, completed=share)

            for row in module.measure(**given, watch=watch):
                rows.append(row)
    finally:
        if rows:
            Console().print(module.table(rows))
        if options.json:
            Path(options.json).write_text(json.dumps([base.plain(row) for row in rows], indent=1))
    if options.plot:
        chart = module.chart(rows)
        plots.save(plots.contenders(chart.series, label=chart.label), options.plot)


def doctor(options: argparse.Namespace) -> int:
    """Is this machine ready? Versions, cores, a started process, a port, the extras."""
    from minips.cost import calibrate

    print(f"minips {__version__}, Python {platform.python_version()}, {platform.platform()}")
    print(f"cores: {os.cpu_count()}")
    healthy = True
    try:
        fixed_s = calibrate(Config()).transfer.fixed_s
        print(f"processes and ports: work; a small push and pull over TCP travels for {fixed_s * 1e6:.0f} µs")
    except (RuntimeError, OSError) as error:
        healthy = False
        print(f"processes and ports: do not work: {reason(error)}")
    for extra, packages in _packages().items():
        absent = [package for package in packages if not _installed(package)]
        what = f"extra {extra}" if extra else "core"
        print(f"{what}: " + ", ".join(f"{package} {_installed(package) or 'missing'}" for package in packages))
        if absent:
            print(f'    pip install "minips[{extra}]"')
    return 0 if healthy else 1


def _packages() -> dict[str, list[str]]:
    """The packages that each extra installs, as the installed metadata says; the core ones under no name."""
    packages: dict[str, list[str]] = {}
    for line in requires("minips") or []:
        package, extra = re.match(r"[\w.-]+", line), re.search(r"extra == ['\"](\w+)", line)
        if package and package[0] != "minips":
            packages.setdefault(extra[1] if extra else "", []).append(package[0])
    return packages


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def lab(options: argparse.Namespace) -> None:
    """Copy the lessons to a folder of yours and open them in JupyterLab. What you have changed there is kept."""
    from minips.lab import jupyter, lessons, state

    if options.reset:
        state.reset()
        print(f"Forgotten: {state.state_file()} is gone, and your progress begins anew.")
        return
    if importlib.util.find_spec("jupyterlab") is None:
        raise ModuleNotFoundError('JupyterLab is not installed. Install it with: pip install "minips[lab]"')
    rest = jupyter.checked(options.rest)
    folder = Path(options.folder)
    if folder.exists() and not folder.is_dir():
        raise OSError(f"{folder} is a file. Name a folder for your copies of the lessons.")
    try:
        copied = lessons.copy_to(folder, outputs=options.outputs)
    except OSError as error:
        words = (error.strerror or str(error)).lower()
        raise OSError(f"Copies in the folder {folder} cannot be made: {words}. Name another folder.") from None
    print(f"The lessons are in {folder.resolve()}.", file=sys.stderr)
    for what, names_of_files in (
        ("New", copied.new),
        ("Renewed, since you had not changed them", copied.renewed),
        ("Kept as you left them; rename one to get a fresh copy", copied.kept),
    ):
        if names_of_files:
            print(f"{what}: {', '.join(names_of_files)}", file=sys.stderr)
    jupyter.start(folder, lessons.lessons()[0].path.name, options.port, rest)


def check(options: argparse.Namespace) -> int:
    """Grade an exercise of a notebook: run its cells up to the check in a fresh kernel. Exit code 0 where it is done,
    else 1.
    """
    from minips.lab.grading import grade

    verdict = grade(options.exercise, Path(options.notebook))
    print(verdict)
    return 0 if verdict else 1


@contextmanager
def _named(option: str) -> Iterator[None]:
    """Put the option's name before the sentence that says what is wrong with its value."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"--{option.replace('_', '-')}: {error}") from None


def _config(options: argparse.Namespace) -> Config:
    """The config of the file, with what the options say instead."""
    start = Config.from_dict(json.loads(Path(options.config).read_text())) if options.config else Config()
    hints = typing.get_type_hints(Config)
    changes: dict[str, Any] = {}
    for side, prefix in (("push", ""), ("pull", "pull_")):
        built = {}
        for kind in _CODEC:
            if (text := getattr(options, prefix + kind)) is not None:
                with _named(prefix + kind):
                    built[kind] = parse_stage(kind, text)
        if built:
            changes[side] = dataclasses.replace(getattr(start, side), **built)
    for field in dataclasses.fields(Config):
        text = None if field.name in ("push", "pull") else getattr(options, field.name)
        if text is not None:
            with _named(field.name):
                changes[field.name] = _value(hints[field.name], text)
    return dataclasses.replace(start, **changes)


def _value(hint: Any, text: str) -> Any:
    """An option's text as the type of its field."""
    kinds_of_value = typing.get_args(hint) or (hint,)
    if text.lower() == "none" and type(None) in kinds_of_value:
        return None
    for kind in kinds_of_value:
        if isinstance(kind, type) and issubclass(kind, Stage):
            return parse_stage(kind.kind, text)
        if isinstance(kind, type) and issubclass(kind, Value):
            return kind.from_dict(read_fields(text))
        if kind is bool:
            if text.lower() not in ("true", "false"):
                raise ValueError(f"Expected true or false, got {text!r}.")
            return text.lower() == "true"
        if kind in (int, float):
            try:
                return kind(text)
            except ValueError:
                raise ValueError(f"Expected a number, got {text!r}.") from None
    return text


def _problem(options: argparse.Namespace) -> Problem:
    from minips import datasets

    data = datasets.synthetic(classes=3) if options.data == "synthetic" else getattr(datasets, options.data)()
    if options.features:
        data = datasets.fourier(data, options.features)
    return LinearRegression(*data) if data.y.dtype.kind == "f" else SoftmaxRegression(*data)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="minips", description="A small parameter server to learn from, and to use.")
    parser.add_argument("--version", action="version", version=f"minips {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")

    one = commands.add_parser("demo", help="train digits seven ways and compare", description=demo.__doc__)
    one.add_argument("--json", metavar="FILE", help="write the rows as JSON")
    one.set_defaults(command=demo)

    one = commands.add_parser(
        "train",
        help="train once",
        description="Train once, as the options say. A stage is given as name or name:field=value,field=value.",
    )
    one.add_argument("--data", choices=_DATA, default="digits", help="what to train on")
    one.add_argument("--features", type=int, default=0, metavar="N", help="lift the data to N random Fourier features")
    one.add_argument("--engine", default="processes", help=f"where workers run: {', '.join(names('engine'))}")
    one.add_argument("--config", metavar="FILE", help="a config as JSON to start from")
    one.add_argument("--json", metavar="FILE", help="write the run as JSON")
    one.add_argument("--trace", metavar="FILE", help="write the spans for Perfetto")
    _add_config(one)
    one.set_defaults(command=train)

    one = commands.add_parser("stages", help="list what can be swapped", description=stages.__doc__)
    one.add_argument("kind", nargs="?", choices=kinds(), help="only this kind")
    one.set_defaults(command=stages)

    one = commands.add_parser("bench", help="measure the parts", description=bench.__doc__)
    _add_tables(one)
    one.set_defaults(command=bench)

    one = commands.add_parser("doctor", help="is this machine ready?", description=doctor.__doc__)
    one.set_defaults(command=doctor)

    one = commands.add_parser(
        "lab",
        help="open the lessons in JupyterLab",
        description=f"{lab.__doc__} Other options are JupyterLab's, as --option=value.",
    )
    one.add_argument("folder", nargs="?", default="minips-lessons", help="where your copies are (default %(default)s)")
    one.add_argument("--port", type=int, help="JupyterLab's (default: the first free one from 8888 on)")
    one.add_argument("--outputs", action="store_true", help="copies with all outputs, which tell the answers")
    one.add_argument("--reset", action="store_true", help="forget which exercises and predictions are done, and stop")
    one.set_defaults(command=lab)

    one = commands.add_parser("check", help="grade an exercise of a notebook", description=check.__doc__)
    one.add_argument("exercise", metavar="EXERCISE", help="its number, such as 5.2")
    one.add_argument("notebook", metavar="FILE.ipynb", help="your copy of the lesson")
    one.set_defaults(command=check)
    return parser


def _add_tables(parser: argparse.ArgumentParser) -> None:
    """A command for each table of the bench; its own options are what the table's ``measure`` takes."""
    transports = ("transports", str, "*", "only these transports")
    references = ("references", str, "*", "only these of what the transports are held against")
    rounds = ("rounds", int, None, "how often each takes its turn, at most")
    tables: dict[str, tuple[str, tuple[tuple[str, type, str | None, str], ...]]] = {
        "pushpull": (
            "a push and pull over each transport, and what it is held against",
            (("values", int, "+", "float32 values in a gradient"), transports, references, rounds),
        ),
        "train": (
            "the same training run on minips, pipes, torch RPC and Ray, and gradients alone",
            (
                ("features", int, "+", "random Fourier features; 10 parameters each"),
                ("transport", str, None, "minips' transport"),
                ("contenders", str, "+", "only these"),
                ("steps", int, None, "clocks of both workers"),
                rounds,
            ),
        ),
        "transports": (
            "a frame over each transport alone: latency and throughput",
            (
                transports,
                references,
                ("small", int, None, "bytes of the frame for the latency"),
                ("large", int, None, "bytes of the frame for the throughput"),
                rounds,
            ),
        ),
        "codecs": (
            "bits, times and steps of every quantizer",
            (("values", int, None, "float32 values in the array"), rounds),
        ),
        "cost": (
            "seconds per step, predicted and measured, behind links and on the bare loopback",
            (("features", int, None, "random Fourier features; 10 parameters each"), rounds),
        ),
        "tune": (
            "the tuner's ranking of 24 configs, and what they take, behind two links",
            (("features", int, None, "random Fourier features; 10 parameters each"),),
        ),
    }
    commands = parser.add_subparsers(dest="what", required=True, metavar="table")
    for name, (words, takes) in tables.items():
        one = commands.add_parser(name, help=words, description=f"{words[0].upper()}{words[1:]}.")
        for option, kind, count, text in takes:
            metavar = "N" if kind is int else "NAME"
            one.add_argument(f"--{option}", type=kind, nargs=count, metavar=metavar, help=text)
        one.add_argument("--json", metavar="FILE", help="write the rows as JSON")
        one.add_argument("--plot", metavar="FILE.png", help="draw the table")
        one.set_defaults(takes=[option for option, *_ in takes])


def _add_config(parser: argparse.ArgumentParser) -> None:
    """An option for each field of Config; the codecs' stages have one each."""
    group = parser.add_argument_group("config")
    for side, prefix in (("from worker to server", ""), ("from server to worker", "pull_")):
        for field in dataclasses.fields(Codec):
            flag = "--" + (prefix + field.name).replace("_", "-")
            text = f"{field.metadata['help']}, {side}: {', '.join(names(field.name))}"
            group.add_argument(flag, dest=prefix + field.name, metavar="STAGE", help=text)
    for field in dataclasses.fields(Config):
        if field.name not in ("push", "pull"):
            known = f": {', '.join(names(field.name))}" if field.name in kinds() else ""
            unit = f", in {field.metadata['unit']}" if field.metadata["unit"] else ""
            text = f"{field.metadata['help']}{unit}{known} (default {default_of(field)!r})"
            group.add_argument(
                "--" + field.name.replace("_", "-"), dest=field.name, metavar="VALUE", help=text.replace("%", "%%")
            )


if __name__ == "__main__":
    sys.exit(main())
