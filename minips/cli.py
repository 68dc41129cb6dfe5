"""The command line: ``minips demo``, ``train``, ``serve``, ``work``, ``status``, ``stages``, ``doctor``, ``lab``,
``check``, ``grade``, ``play`` and ``race``.

Results go to standard output; progress and errors go to standard error. Ctrl-C and SIGTERM end every command cleanly:
`train` and `serve` first save the run so far, and `serve` tells its workers that the run is over.
"""

import argparse
import dataclasses
import importlib.util
import io
import json
import os
import platform
import re
import reprlib
import secrets
import signal
import sys
import textwrap
import traceback
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from difflib import get_close_matches
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from rich.console import Console

from minips import __version__, files, seeds
from minips.core.codec import Codec
from minips.core.config import Config
from minips.core.membership import REJOIN_S, SILENCE_S
from minips.drivers.starting import START_S, StartWait
from minips.engines.supervisor import handling
from minips.literals import read_fields
from minips.problems import LinearRegression, Problem, SoftmaxRegression
from minips.results.checkpoints import Checkpoint
from minips.results.origin import origin_of
from minips.results.run import Progress, Run, check_resumable
from minips.stage import NoStageError, Stage, Value, build, kinds, missing, names, stage_class
from minips.words import default_of, groups_of, join_names, message_of

if TYPE_CHECKING:
    from minips.lab.course.courses import Course

_DATA = ("digits", "breast_cancer", "diabetes", "synthetic")


class WrongValueError(ValueError):
    """Raised if an option has an impossible value."""


@contextmanager
def wrong_values(option: str = "") -> Iterator[None]:
    """Treat errors of a block or function as a wrong value of ``option``; other errors count as failures."""
    try:
        yield
    except (ValueError, TypeError, OSError, MemoryError) as error:
        raise WrongValueError((f"--{option}: " if option else "").replace("_", "-") + message_of(error)) from error


def main(arguments: Sequence[str] | None = None, parser: argparse.ArgumentParser | None = None) -> int:
    """Run a command of minips, or of another ``parser`` that sets ``command``, and return its exit status."""
    prog = parser.prog if parser else "minips"
    try:
        try:
            return _run(parser, prog, arguments)
        finally:
            with _file_errors("Standard output cannot be written", "Choose another file."):
                for stream in filter(None, (sys.stdout, sys.stderr)):
                    stream.flush()
    except OSError as error:  # from a stream
        closed = isinstance(error, BrokenPipeError)
        if not closed:
            _say(f"{prog}: {error}", file=sys.stderr)
        null = os.open(os.devnull, os.O_WRONLY)
        for stream in filter(None, (sys.stdout, sys.stderr)):
            os.dup2(null, stream.fileno())  # Python flushes the stream at exit, and would report an error
        return 141 if closed else 1


def _run(parser: argparse.ArgumentParser | None, prog: str, arguments: Sequence[str] | None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # an ASCII terminal shows a ? for an α
    try:
        parser = parser or _parser()
        options, rest = parser.parse_known_args(_load(arguments))
        options.rest = rest
        if rest and options.command is not lab:
            known = [name.strip("-") for name in options.parser._option_string_actions]
            meant = get_close_matches(rest[0].strip("-").partition("=")[0], known, 1)
            options.parser.error(f"unknown: {' '.join(rest)}" + (f". Did you mean --{meant[0]}?" if meant else ""))
        if options.command is None:
            options.parser.error("Expected a command, such as minips demo.")
        with handling(_terminate, signal.SIGTERM):
            return int(options.command(options) or 0)
    except KeyboardInterrupt as end:
        what, status = ("SIGTERM", 143) if isinstance(end, Terminated) else ("Ctrl-C", 130)
        _say(f"Stopped by {what}; everything that was started has ended.", file=sys.stderr)
        return status
    except BrokenPipeError:
        raise
    except (ValueError, OSError, ImportError, RuntimeError, TypeError, MemoryError) as error:
        _say(f"{prog}: {message_of(error)}", file=sys.stderr)
        return 2 if isinstance(error, WrongValueError) else 1


class Terminal(Console):
    """Rich's console, except that `main` handles a closed pipe."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def _say(text: object, file: TextIO | None = None) -> None:
    """Print a text. A line wider than the terminal is folded at spaces, and goes on below its second column, if it has
    columns. In a pipe or a file, lines stay whole.
    """
    file = file or sys.stdout
    width = _width(file)
    for line in str(text).splitlines():
        column = re.match(r" *\S+(?: \S+)*  +", line)
        indent = column.end() if column and column.end() < width / 2 else 4
        folded = textwrap.wrap(
            line, width, subsequent_indent=indent * " ", break_long_words=False, break_on_hyphens=False
        )
        print("\n".join(folded), file=file)


def _width(file: TextIO) -> int:
    """Return the columns of a terminal. A pipe or a file has no edge, unless COLUMNS gives standard output one: an
    error stays a line of its own, which programs can read.
    """
    try:
        columns = os.get_terminal_size(file.fileno()).columns
    except (OSError, ValueError, AttributeError):
        columns = 0
    chosen = os.environ.get("COLUMNS", "")
    if chosen.isdecimal() and (columns or file is sys.stdout):
        return max(int(chosen), 10)
    return columns or sys.maxsize


class Parser(argparse.ArgumentParser):
    """A parser whose error is folded at the terminal's width, as its help is."""

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        if message:
            _say(message, file=sys.stderr)
        super().exit(status)


@wrong_values()
def _load(arguments: Sequence[str] | None) -> list[str]:
    """Import each file given by ``--load FILE.py``, which registers stages, and return the other arguments."""
    early = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    early.add_argument("--load", action="append", default=[])
    given, rest = early.parse_known_args(arguments)
    for file in given.load:
        _file_module("--load", file, "defines stages")
    return rest


def _file_module(option: str, file: str, what: str) -> ModuleType:
    """Import a Python file, as `_module` does. OSError if it is none, ValueError if another module has its name."""
    path = Path(file).resolve()
    if path.suffix != ".py" or not path.is_file():
        raise OSError(f"{option} takes an existing Python file that {what}, FILE.py; got {file}.")
    module = _module(path.stem, path.parent)
    if module.__file__ != str(path):
        raise ValueError(f"{option} {file}: there is another module named {path.stem}. Choose another name.")
    return module


def _module(name: str, folder: Path) -> ModuleType:
    """Import a module from this folder under its own name, so that a run's processes can import it too."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    with _user_code(f"The module {name} cannot be imported", folder):
        return importlib.import_module(name)


@contextmanager
def _user_code(what: str, folder: Path) -> Iterator[None]:
    """Turn an error in a user's code into a sentence: ``what`` is wrong, why, and on which line of a file there."""
    try:
        yield
    except Exception as error:
        at = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).parent == folder]
        line = f" ({Path(at[-1].filename).name}, line {at[-1].lineno})" if at else ""
        raise ValueError(f"{what}: {type(error).__name__}: {message_of(error)}{line}") from error


@contextmanager
def _file_errors(what: str, advice: str) -> Iterator[None]:
    """Turn an error about a file or an unknown stage in it into a sentence: ``what`` is wrong, why, and ``advice``."""
    try:
        yield
    except NoStageError as error:
        words = f"It names a stage that is not registered here. {error} Load the file that defines it: --load FILE.py"
        raise ValueError(f"{what}. {words}") from None
    except OSError as error:
        if error.strerror is None or isinstance(error, BrokenPipeError):  # already a sentence, or an error for `main`
            raise
        raise OSError(f"{what}: {error.strerror.lower()}. {advice}") from None


class Terminated(KeyboardInterrupt):
    """Raised when the process receives SIGTERM, which must end everything that Ctrl-C ends."""


def _terminate(number: int, frame: object) -> None:
    raise Terminated


def _is_seen() -> bool:
    """True if somebody sees the progress: if standard error is a terminal."""
    return bool(sys.stderr and sys.stderr.isatty())


@wrong_values()
def check_files(*paths: str | None) -> None:
    """Raise OSError if a file cannot be written, as far as this can be known before the work begins."""
    for path in filter(None, paths):
        if path != "-":
            files.check(path)


def _write(file: str | None, write: Callable[[str], object]) -> None:
    """Call ``write`` with the file, if one is given."""
    if file:
        with _file_errors(f"{file} cannot be written", "Choose another file."):
            write(file)


def write_json(file: str | None, value: object) -> None:
    """Write a value as JSON to a file; ``-`` is standard output."""
    text = json.dumps(value, indent=1) if file else ""
    _write(file, lambda name: print(text) if name == "-" else files.write(name, text))


def text_stream(options: argparse.Namespace) -> TextIO:
    """The stream for text: standard error if a file is written to standard output, else standard output."""
    given = (getattr(options, name, None) for name in ("save", "json", "trace"))
    occupied = options.json == "-" or any(map(files.is_stdout, filter(None, given)))
    return sys.stderr if occupied else sys.stdout


def demo(options: argparse.Namespace) -> None:
    """Seven short runs, and a table of them."""
    from minips import demo as runs

    check_files(options.json)
    rows: list[runs.Row] = []
    shown = Terminal(file=text_stream(options))
    try:
        for row in runs.demo(Terminal(stderr=True)):
            rows.append(row)
    finally:
        if rows:
            shown.print(runs.table(rows))
        write_json(options.json, [row.to_dict() for row in rows])
    shown.print(runs.verdict(rows))


def train(options: argparse.Namespace) -> int:
    """Train once. Write a stage as name or name:field=value,field=value."""
    from minips.core.limits import check_run
    from minips.engines.evaluation import evaluation
    from minips.training.train import engine_for
    from minips.training.train import train as run_it

    check_files(options.save, options.json, options.trace)
    before, kept = _run_to_resume(options), _checkpoint(options)
    goes_on = Path(options.resume) if options.resume and Path(options.resume).is_dir() else None
    with wrong_values():
        given = before.config if before else Checkpoint(str(goes_on)).config() if goes_on else None
    config, problem = _config(options, given), _problem(options)
    with wrong_values("engine"):
        engine = engine_for(options.engine, [config])
    with wrong_values():
        evaluation(options.every, (), problem, 0.0, config.local)
        start = check_run(config, problem.init(seeds.init(config.seed)), problem.tables)
        if before:
            check_resumable(before, config.for_rows(problem.rows), origin_of(problem, start))
    watched = {"every": options.every, "on_eval": _print_evaluation} if options.every else {}
    try:
        resume = goes_on or before
        run = run_it(problem, config, engine=engine, progress=_is_seen(), resume=resume, checkpoint=kept, **watched)
    except BaseException as error:
        if kept := getattr(error, "run", None):
            _end(kept, options)
        raise
    return _end(run, options)


def _print_evaluation(now: Any) -> None:
    held_out = "" if now.validation_loss is None else f", validation loss {now.validation_loss:.4f}"
    print(f"Step {now.step}: training loss {now.loss:.4f}{held_out}", file=sys.stderr)


@wrong_values()
def _checkpoint(options: argparse.Namespace) -> Checkpoint | None:
    """The checkpoint in the options; None without a folder."""
    if not options.checkpoint:
        return None
    return Checkpoint(options.checkpoint, every=options.checkpoint_every, sync=options.sync)


def _run_to_resume(options: argparse.Namespace) -> Run | None:
    """The run to resume; None if the options name none, or a checkpoint's folder, in which the run goes on."""
    if options.resume and Path(options.resume).is_dir():
        return None
    with wrong_values(), _file_errors(f"{options.resume} cannot be read", "Name a file that --save wrote."):
        return Run.load(options.resume) if options.resume else None


def _end(run: Run, options: argparse.Namespace) -> int:
    """Write a run to the options' files (first --save, the complete one), print it, and return its exit status."""
    try:
        _write(options.save, run.save)
        write_json(options.json, run.to_dict())
        _write(options.trace, run.trace.to_chrome)
    finally:
        _say(run.summary(), file=text_stream(options))
    updates = run.config.workers * run.config.clocks
    early = run.updates + run.missing < updates and not run.diverged
    if run.missing:
        _say(f"Workers that had left did not make {run.missing} of {updates} updates.", file=sys.stderr)
    if early:
        _say(f"The run was stopped after {run.updates} of {updates} updates.", file=sys.stderr)
    if options.save:
        on = f"; --resume {options.save} continues it" if early else ""
        _say(f"The run is saved in {options.save}{on}.", file=sys.stderr)
    return 3 if run.diverged else 1 if run.stopped else 0


def race(options: argparse.Namespace) -> int:
    """Race an entry in virtual time: the seconds, and the bytes, to 90 % of the held-out digits. See docs/race.md."""
    from minips.racing import TRACKS, judge

    check_files(options.json)
    track = TRACKS[options.track]
    with wrong_values(), _file_errors(f"{options.entry} cannot be read", "Name an entry, such as entry.py."):
        text = Path(options.entry).read_text()
    shown = text_stream(options)
    _say(f"{track.name}: {track.about}", file=shown)
    try:
        verdict = judge(track, text, Path(options.entry).name, options.salt)
    except (ValueError, TypeError, RuntimeError, OSError) as error:
        _say(f"No place: {message_of(error)}", file=sys.stderr)
        return 1
    write_json(options.json, verdict.to_dict())
    _say(verdict, file=shown)
    return 0 if verdict.placed else 1


def serve(options: argparse.Namespace) -> int:
    """Serve a problem's parameters to workers started by hand, until the run is over. Several servers use consecutive
    ports, in this process; with --index, only that server runs here, so that each can have its own machine.
    """
    from minips.training import byhand
    from minips.training.progress import Wait, showing

    check_files(options.save, options.json, options.trace)
    before, kept = _run_to_resume(options), _checkpoint(options)
    start = (kept.find_config() if kept else None) or (before.config if before else None)
    config, problem = _config(options, start), _problem(options)

    def read(progress: Progress) -> Wait:
        loss = f" · loss {progress.losses[-1][2]:.4f}" if progress.losses else ""
        phase = f"{served.servers[0].connected} of {config.workers} workers"
        updates = f"{progress.applied} of {progress.updates} updates{loss}"
        return Wait(phase, progress.applied / progress.updates, updates)

    with ExitStack() as stack:
        with wrong_values():
            _check_reach(config.transport)
            transport = _tls(config.transport, certificate=options.certificate, key=options.key)
            config = dataclasses.replace(config, transport=transport)
            token = _token(options.token_file, fresh=True)
            how = {name: getattr(options, name) for name in ("plaintext", "rejoin_s", "start_timeout_s")}
            how |= {"resume": before, "checkpoint": kept}
            serving = byhand.serving(problem, config, options.bind, token, options.index, **how)
            served = stack.enter_context(serving)
        where = ",".join(server.address for server in served.servers)
        what = f"--problem {options.problem}" if options.problem else f"--data {options.data}"
        what += f" --features {options.features}" if options.features else ""
        what += " --plaintext" if options.plaintext else ""
        what += " --authority FILE.pem" if getattr(config.transport, "certificate", "") else ""
        count = "one worker. Start it" if config.workers == 1 else f"{config.workers} workers. Start each"
        what += f" --connect {where}" + (f" --token-file {options.token_file}" if options.token_file else "")
        for _, event in served.servers[0].events if kept else ():
            print(f"minips: {event}.", file=sys.stderr)
        print(f"Serving {count} with\n    minips work {what}", file=sys.stderr)
        try:
            with showing(_is_seen(), read, console=Terminal(stderr=True)) as watch:
                served.wait(watch)
        finally:
            exit_status = _end(served.end(), options)
    return exit_status


def work(options: argparse.Namespace) -> int:
    """Work for servers started by hand, until the run is over. The config comes from the servers."""
    from minips.training import byhand

    check_files(options.session)
    with wrong_values():
        StartWait("This worker", options.start_timeout_s)
    addresses, transport = _reach(options, options.connect)
    problem, token = _problem(options), _token(options.token_file)

    def met(client: Any) -> None:
        _say(f"Worker {client.worker} of {client.config.workers} is connected to {options.connect}.", file=sys.stderr)

    how = {"token": token, "transport": transport, "session": options.session}
    how |= {"own_rows": options.own_rows, "start_timeout_s": options.start_timeout_s}
    result = byhand.work(problem, addresses, rank=options.rank, met=met, **how)
    traffic = f"{result.bytes_sent / 1e6:.3f} MB sent, {result.bytes_received / 1e6:.3f} received"
    _say(f"Worker {result.worker}: the run is over, after {result.pushes} pushes; {traffic}.")
    if result.diverged:
        _say(f"minips: The run has diverged. {result.diverged}", file=sys.stderr)
    return 3 if result.diverged else 0


def status(options: argparse.Namespace) -> None:
    """Show a server's progress, its connected workers, and which of them wait for others. Rates cover one second."""
    from minips.drivers.connecting import status as ask_status

    addresses, transport = _reach(options, options.address)
    token = _token(options.token_file)
    for address in addresses:
        _say(ask_status(address, token, transport=transport, over_s=1.0))


@wrong_values()
def _reach(options: argparse.Namespace, text: str) -> tuple[list[str], Any]:
    """The addresses in this text, and a transport that can reach them."""
    from minips.drivers.connecting import transport_of

    addresses = text.split(",")
    transport = _tls(transport_of(addresses[0]), authority=options.authority)
    _check_reach(transport)
    for address in addresses:
        transport.plain(address, "authority", options.plaintext)
    return addresses, transport


def _check_reach(transport: Any) -> None:
    """Raise ValueError if a transport works only within one process."""
    if transport.reach == "process":
        raise ValueError(
            f"{transport!r} does not reach beyond one process, but servers and workers by hand are separate processes."
        )


def _tls(transport: Any, **named: str | None) -> Any:
    """The transport with the given TLS files. Raises ValueError if it does not support TLS."""
    named = {name: file for name, file in named.items() if file}
    if named and not hasattr(transport, "certificate"):
        raise ValueError(
            f"--certificate, --key and --authority are for TLS, which tcp speaks and {transport!r} does not."
        )
    return dataclasses.replace(transport, **named)


@wrong_values()
def _token(file: str | None, fresh: bool = False) -> str:
    """The token in a file or in ``MINIPS_TOKEN``. If ``fresh``, a missing file is written, for its owner only."""
    if file is None:
        if token := os.environ.get("MINIPS_TOKEN", "").strip():
            return token
        raise ValueError("There is no token. Name a file with --token-file, or set the variable MINIPS_TOKEN.")
    path = Path(file)
    if fresh and not path.exists():
        check_files(file)
        with suppress(FileExistsError):  # if another server has just written the file, both use its token
            files.write(file, secrets.token_hex(16) + "\n", 0o600, fresh=True)
            _say(f"A fresh token is in {file}, which only you can read. Workers need a copy of it.", file=sys.stderr)
    with _file_errors(f"The token file {file} cannot be read", "minips serve writes it if it is missing."):
        mode, data = path.stat().st_mode, path.read_bytes()
    token = data.decode(errors="replace").strip()
    if os.name == "posix" and mode & 0o077:
        _say(f"Users other than its owner can read the token file {file}. Use: chmod 600 {file}", file=sys.stderr)
    if not token:
        raise ValueError(f"The token file {file} is empty. Delete it: minips serve then writes a fresh one.")
    if "\N{REPLACEMENT CHARACTER}" in token:
        raise ValueError(f"The token file {file} is not text in UTF-8. Delete it, or name another.")
    return token


def _describe(kind: str, name: str) -> dict[str, Any]:
    """Describe the stage with this name: class, fields and defaults, first line of help, extra, missing modules."""
    cls: Any = stage_class(kind, name)
    fields = {field.name: default_of(field) for field in dataclasses.fields(cls)}
    of = {"kind": kind, "name": name, "class": cls.__name__, "fields": fields}
    return {**of, "help": (cls.__doc__ or "").strip().split("\n")[0], "extra": cls.extra, "missing": missing(cls)}


def stages(options: argparse.Namespace) -> None:
    """List every stage of every kind, with its fields and any missing extra."""
    rows = [_describe(kind, name) for kind in ([options.kind] if options.kind else kinds()) for name in names(kind)]
    if options.json:
        return print(json.dumps(rows, indent=1, default=lambda value: value.to_dict()))
    for row in rows:
        fields = ", ".join(f"{name}={default!r}" for name, default in row["fields"].items())
        absent = f' [needs: pip install "minips[{row["extra"]}]"]' if row["missing"] else ""
        _say(f"{row['kind']:12} {row['name']:19} {row['class']}({fields}): {row['help']}{absent}")


def doctor(options: argparse.Namespace) -> int:
    """Check whether this machine is ready: versions, cores, processes, ports, extras, engines."""
    from minips.cost import calibrate
    from minips.training.progress import Wait, showing

    _say(f"minips {__version__}, Python {platform.python_version()}, {platform.platform()}")
    _say(f"cores: {os.cpu_count()}")
    lacking: list[str] = []
    try:
        with showing(_is_seen(), first=Wait("checking processes and ports")):
            fixed_s = calibrate(Config()).transfer.fixed_s
        _say(f"processes and ports: work; a small push and pull over TCP travels for {fixed_s * 1e6:.0f} µs")
    except (RuntimeError, OSError) as error:
        lacking.append("working processes and ports")
        _say(f"processes and ports: do not work: {message_of(error)}")
    extras: list[str] = []
    for extra, packages in _packages().items():
        if extra in ("docs", "test"):  # for work on minips itself
            continue
        if absent := [package for package in packages if not _version_of(package)]:
            (extras if extra else lacking).extend([extra] if extra else absent)
        versions = ", ".join(f"{package} {_version_of(package) or 'missing'}" for package in packages)
        _say(f"{f'extra {extra}' if extra else 'core'}: {versions}")
    _say(f"engine hosts: {_hosts()}")
    _say(f"engine ray: {_ray()}")
    if extras:
        _say(f'extras in part: pip install "minips[{",".join(extras)}]"')
    _say(f"Not ready: {', '.join(lacking)} missing." if lacking else "Ready.")
    return 1 if lacking else 0


def _hosts() -> str:
    """A sentence that says whether this machine can run the engine `Hosts`."""
    if absent := missing(stage_class("engine", "hosts")):
        return f'{", ".join(absent)} missing; pip install "minips[hosts]" gives runs a real network on this machine'
    from minips.engines.hosts import lacking

    return lacking() or "works: each server and worker can be its own host on this machine"


def _ray() -> str:
    """A sentence that describes the state of Ray on this machine."""
    from minips.engines.on_ray import found_cluster

    if absent := missing(stage_class("engine", "ray")):
        return f'{", ".join(absent)} missing; pip install "minips[ray]" lets a run use several machines'
    address, answers = found_cluster()
    if not address:
        return "no cluster found; a run starts one on this machine, or joins ray:address=HOST:PORT"
    return f"the cluster at {address} {'answers' if answers else 'does not answer'}"


def _packages() -> dict[str, list[str]]:
    """Maps each extra to the packages that it installs on this Python, read from minips' metadata; "" is the core."""
    packages: dict[str, list[str]] = {}
    for line in requires("minips") or []:
        package, extra = re.match(r"[\w.-]+", line), re.search(r"extra == ['\"](\w+)", line)
        limit = re.search(r"python_version *(<|>=) *['\"](\d+)\.(\d+)", line)
        wanted = not limit or (sys.version_info[:2] < (int(limit[2]), int(limit[3]))) == (limit[1] == "<")
        if package and package[0] != "minips" and wanted:
            packages.setdefault(extra[1] if extra else "", []).append(package[0])
    return packages


def _version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


@wrong_values()
def lab(options: argparse.Namespace) -> None:
    """Copy the lessons to your folder and open them in JupyterLab. Your changes there are kept. Other options,
    such as --no-browser, --allow-root (required if you are root) or --option=value, are passed to JupyterLab.
    """
    from minips.lab.course import courses, jupyter, release, start

    named = courses.named(options.course) if options.course else None
    if options.for_class is not None:
        return _release(options, named or courses.chosen())
    if options.reset:
        return _reset(options.yes, named)
    if importlib.util.find_spec("jupyterlab") is None:
        raise ModuleNotFoundError('JupyterLab is not installed. Install it with: pip install "minips[lab]"')
    rest = jupyter.checked(options.rest)
    course = named or courses.chosen()
    folder = Path(options.folder or f"{course.name}-lessons")
    address = jupyter.running(folder)
    with _file_errors(f"The lessons cannot be copied to the folder {folder}", "Name another folder."):
        copied = release.copy_lessons(folder, course, outputs=options.outputs)
        if not address and not start.write(folder, course):
            copied.kept.append(start.NAME)
    _say(f"The lessons are in {folder.resolve()}.", file=sys.stderr)
    groups = (
        "New",
        "Updated, as you had not changed them",
        "Kept with your changes; rename one to get a fresh copy",
        "Kept from an earlier edition, with your changes",
    )
    for what, names_of in zip(groups, copied, strict=True):
        if names_of:
            _say(f"{what}: {', '.join(names_of)}", file=sys.stderr)
    if address:
        return jupyter.open_again(address, rest)
    jupyter.start(folder, start.page(folder, course), options.port, rest)


def _release(options: argparse.Namespace, course: "Course") -> None:
    """Write the course's copies for a class, and print where they are. ValueError for options of JupyterLab's."""
    from minips.lab.course.release import KINDS, release

    others = {"FOLDER": options.folder, "--port": options.port, "--outputs": options.outputs}
    others |= {"--reset": options.reset, "--yes": options.yes, **dict.fromkeys(options.rest, True)}
    if wrong := [name for name, value in others.items() if value is not None and value is not False]:
        raise ValueError(f"--class writes folders, and opens none; leave out {join_names(wrong)}.")
    folder = Path(options.for_class)
    with _file_errors(f"The class' folders cannot be written to {folder}", "Name another folder."):
        copied = release(folder, course)
    _say(f"The lessons of {course.title!r} are in {folder.resolve()}:")
    for name, kind in KINDS.items():
        _say(f"  {name:10}  {kind.about}")
    for name, (_, renewed, kept, earlier) in copied.items():
        if renewed:
            _say(f"Updated in {name}, as you had not changed them: {', '.join(renewed)}")
        if kept or earlier:
            _say(f"Kept in {name} with your changes; rename one to get a fresh copy: {', '.join(kept + earlier)}")


def _reset(sure: bool, course: "Course | None") -> None:
    """Reset the learner's progress in all courses or in this course. Ask first, unless ``sure`` is True."""
    from minips.lab.course import state

    file = state.state_file()
    what = f"progress in the course {course.name!r}" if course else "progress"
    if not file.is_file():
        return _say(f"Nothing to forget: {file} does not exist.")
    if not sure:
        if not (sys.stdin and sys.stdin.isatty()):
            raise ValueError(f"--reset forgets your {what} in {file}, but cannot ask you here. Add --yes to do it.")
        print(f"Forget your {what} in {file}? A copy is kept. [y/N] ", end="", flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            return print("Nothing was forgotten.")
    with _file_errors(f"{file} cannot be renamed", "Make its folder writable."):
        _say(f"Your {what} begins anew. Your old notes are kept in {state.reset(course)}.")


def check(options: argparse.Namespace) -> int:
    """Grade an exercise in one or more notebooks: run each notebook's cells up to the check in a fresh kernel. No
    progress is recorded. Exit status: 0 if all are done, 1 if one is not, 2 if one cannot be graded.
    """
    importlib.import_module("minips.lab.face")  # if a package is missing, this error says what to install
    return max(_grade_one(options.exercise, file, len(options.notebook) > 1) for file in options.notebook)


def _grade_one(exercise: str, file: str, named: bool) -> int:
    """Grade one notebook, print the verdict (after the file's name if ``named``), and return the exit status."""
    from minips.lab.course.grading import grade

    try:
        with wrong_values(), _file_errors(f"{file} cannot be read", "Name your copy of the lesson."):
            verdict = grade(exercise, Path(file))
    except (ValueError, RuntimeError) as error:
        _say(f"minips: {message_of(error)}", file=sys.stderr)
        return 2 if isinstance(error, WrongValueError) else 1
    _say(f"{file}: {verdict}" if named else verdict)
    return 0 if verdict else 1


def grade(options: argparse.Namespace) -> None:
    """Grade the exercises of a class: DIR has a folder for each student, with the notebooks in it. Each answer runs in
    a sandbox, on inputs that nobody has seen; your own progress stays as it is. Type an interrupted command
    again, and it goes on where it was. Exit status: 0 if all is graded, 1 if the sandbox does not start, 2 if DIR has
    no students or cannot be read.
    """
    importlib.import_module("minips.lab.face")  # if a package is missing, this error says what to install
    from minips.lab.course import courses, marks
    from minips.training.progress import Wait, showing

    csv = Path(options.csv)
    json_file = Path(options.json or csv.with_suffix(".json"))
    check_files(options.csv, str(json_file))
    with wrong_values():
        if json_file.resolve() == csv.resolve():
            raise ValueError(f"The table and the JSON cannot both be in {csv}. Name another file with --json.")
        course = courses.named(options.course) if options.course else courses.chosen()
        class_ = marks.read_class(Path(options.folder), course)
    ledger = marks.Ledger(json_file, options.seed)
    _say(f"The seed is {ledger.seed}.", file=sys.stderr)

    def read(count: int, total: int, last: str) -> Wait:
        return Wait("grading", count / max(total, 1), f"{count} of {total} marks" + (f" · {last}" if last else ""))

    with showing(_is_seen(), read, console=Terminal(stderr=True), first=Wait("reading the notebooks")) as report:
        graded = marks.grade(class_, ledger, report)
    files.write(csv, graded.csv())
    for words in graded.lacking:
        _say(f"Not promised here: {words}", file=sys.stderr)
    _say(f"{graded.summary()} The table is in {csv}, all reasons are in {json_file}.")


def play(options: argparse.Namespace) -> None:
    """Play a puzzle with your function, and print its score. Without FILE, print the task; without NAME, all names."""
    from minips.lab.puzzles import PUZZLES, puzzle

    if not options.name:
        for one in PUZZLES.values():
            _say(f"{one.name:10}{one.title}; par {one.par:g} {one.unit}, best known {one.best:g}")
        return
    with wrong_values():
        chosen = puzzle(options.name)
    if not options.file:
        print(chosen.page)
        return
    with wrong_values():
        module = _file_module("play", options.file, f"defines {chosen.function}")
        function = getattr(module, chosen.function, None)
        if not callable(function):
            raise ValueError(f"{options.file} defines no {chosen.function}. See: minips play {chosen.name}")
    with _user_code(f"{chosen.function} does not solve {chosen.name}", Path(options.file).resolve().parent):
        played = chosen.play(function)
    _say(f"{played.verdict} {played.words}\n")
    print(played.text())


@wrong_values()
def _config(options: argparse.Namespace, start: Config | None = None) -> Config:
    """The config in the --config file, or else ``start``, changed by the options."""
    start = start or Config()
    if options.config:
        with wrong_values("config"), _file_errors(f"{options.config} cannot be read", "Name a config as JSON."):
            try:
                fields = json.loads(Path(options.config).read_text(encoding="utf-8"))
            except ValueError as error:
                raise ValueError(f"{options.config} is not JSON: {error}.") from None
            start = Config.from_dict(fields)
    codecs = {side: _given_fields(options, Codec, prefix) for side, prefix in (("push", ""), ("pull", "pull_"))}
    changes = {side: dataclasses.replace(getattr(start, side), **given) for side, given in codecs.items() if given}
    return dataclasses.replace(start, **changes, **_given_fields(options, Config))


def _given_fields(options: argparse.Namespace, kind: type[Value], prefix: str = "") -> dict[str, Any]:
    """Maps each field of this kind of value to its option's value, for the options that were given."""
    given = {}
    for field, hint in typing.get_type_hints(kind).items():
        if (text := getattr(options, prefix + field, None)) is not None:
            with wrong_values(prefix + field):
                given[field] = _value(hint, text)
    return given


def _value(hint: Any, text: str) -> Any:
    """An option's text, converted to the type of its field."""
    kind, *others = typing.get_args(hint) or (hint,)
    if text.lower() == "none" and type(None) in others:
        return None
    if issubclass(kind, Stage):
        return build(kind.kind, text)
    if issubclass(kind, Value):
        return kind.from_dict(read_fields(text))
    try:
        return {"true": True, "false": False}[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        wanted = {bool: "true or false", int: "a whole number"}.get(kind, "a number")
        raise ValueError(f"Expected {wanted}, got {text!r}.") from None


@wrong_values()
def _problem(options: argparse.Namespace) -> Problem:
    from minips import datasets

    if options.problem:
        module, _, function = options.problem.partition(":")
        make = getattr(_module(module, Path.cwd()), function, None)
        if not callable(make):
            raise ValueError(f"--problem takes MODULE:FUNCTION; {options.problem} is not a function of {module}.")
        with _user_code(f"{options.problem}, called without arguments, failed", Path.cwd()):
            problem = make()
        if not isinstance(problem, Problem):
            raise TypeError(f"{options.problem} returned {reprlib.repr(problem)}, which is not a ps.Problem.")
        return problem

    data = datasets.synthetic(classes=3) if options.data == "synthetic" else getattr(datasets, options.data)()
    if options.features:
        data = datasets.fourier(data, options.features)
    return LinearRegression(*data) if data.y.dtype.kind == "f" else SoftmaxRegression(*data)


_OPTIONS: dict[str, dict[str, Any]] = {
    "--data": {"choices": _DATA, "default": "digits", "help": "the data to train on"},
    "--problem": {"metavar": "MODULE:FUNCTION", "help": "your function that returns a ps.Problem"},
    "--features": {"type": int, "default": 0, "metavar": "N", "help": "lift the data to N random Fourier features"},
    "--resume": {"metavar": "FILE.npz", "help": "resume a saved run, with its config; --steps is the total"},
    "--save": {"metavar": "FILE.npz", "help": "write the run, even if stopped, so that --resume can continue it"},
    "--json": {"metavar": "FILE", "help": "write the results as JSON; - is standard output"},
    "--trace": {"metavar": "FILE", "help": "write the spans for Perfetto; serve writes the servers' only"},
    "--checkpoint": {"metavar": "DIR", "help": "keep the run in this folder, so that it goes on after a crash"},
    "--checkpoint-every": {
        **{"type": int, "default": 50, "metavar": "N"},
        "help": "clocks of all the workers between two snapshots (default %(default)s)",
    },
    "--sync": {
        "action": "store_true",
        "help": "with --checkpoint: acknowledge a push only once it is on the disk, so that it survives a power loss",
    },
    "--authority": {"metavar": "FILE.pem", "help": "use TLS, and trust servers that this authority has signed"},
    "--token-file": {"metavar": "FILE", "help": "the secret that all parties of a run share (default: MINIPS_TOKEN)"},
    "--start-timeout-s": {
        **{"type": float, "default": START_S, "metavar": "S"},
        "help": "the longest wait for missing servers or workers at the start; inf: no limit (default %(default)g)",
    },
    "--plaintext": {"action": "store_true", "help": "allow connections with other machines without TLS"},
}
"""The options that several commands share."""
_PROBLEM, _FILES = ("--data", "--problem", "--features"), ("--resume", "--save", "--json", "--trace")
_KEPT = ("--checkpoint", "--checkpoint-every", "--sync")


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="minips",
        description="A parameter server to learn from, and to use.",
        epilog="Exit status: 0 done, 1 failed, 2 a wrong option or value, 3 diverged, 130 and 143 interrupted (SIGINT, "
        "SIGTERM), 141 a closed pipe.",
    )
    parser.set_defaults(command=None, parser=parser)
    add_load(parser)
    parser.add_argument("--version", action="version", version=f"minips {__version__}")
    commands = parser.add_subparsers(metavar="command")

    def add(command: Callable[..., int | None], help: str, *options: str, **more: Any) -> argparse.ArgumentParser:
        one = commands.add_parser(command.__name__, help=help, description=command.__doc__, **more)
        one.set_defaults(command=command, parser=one)
        for option in options:
            one.add_argument(option, **_OPTIONS[option])
        return one

    add(demo, "train on digits in seven ways and compare", "--json")
    one = add(train, "train once", *_PROBLEM, *_FILES, *_KEPT)
    engines = f"where workers run: {', '.join(names('engine'))}, ray:address=HOST:PORT"
    one.add_argument("--engine", default="processes", help=engines)
    every = "compute the losses after every N steps, too, and keep them with --save and --json"
    one.add_argument("--every", type=int, metavar="N", help=every)
    _add_config(one)
    of_network = ("--token-file", "--plaintext")
    by_hand = (*of_network, "--start-timeout-s")
    one = add(race, "race a config to 90 %% of the digits", "--json")
    one.add_argument("track", choices=("office", "racks", "home"), help="the network and its stragglers")
    one.add_argument("entry", metavar="entry.py", help="a file with a Config named config, and stages of your own")
    one.add_argument("--salt", default="", help="a word that gives other seeds")
    one = add(serve, "serve parameters to workers started by hand", *_PROBLEM, *_FILES, *_KEPT, *by_hand)
    one.add_argument("--bind", metavar="ADDRESS", help="such as tcp://127.0.0.1:7071 (default: a free port)")
    one.add_argument("--index", type=int, metavar="I", help="serve only the server with this number, out of several")
    rejoin = "seconds until a worker whose connection broke loses its number to others"
    default = f"(default {REJOIN_S}, with --checkpoint {SILENCE_S:g})"
    one.add_argument("--rejoin-s", type=float, metavar="S", help=f"{rejoin} {default}")
    one.add_argument("--certificate", metavar="FILE.pem", help="use TLS with this certificate")
    one.add_argument("--key", metavar="FILE.pem", help="the key of the certificate")
    _add_config(one)
    one = add(work, "work for servers started by hand", *_PROBLEM, "--authority", *by_hand)
    one.add_argument("--connect", metavar="ADDRESS,…", required=True, help="all the servers' addresses, in their order")
    one.add_argument("--rank", type=_rank, metavar="N", help="this worker's number, or auto: the first free one")
    one.add_argument("--own-rows", action="store_true", help="use all rows as this worker's own shard")
    one.add_argument("--session", metavar="FILE", help="keeps this worker's number for it after a crash")
    one = add(status, "show a server's progress and workers", "--authority", *of_network)
    one.add_argument("address", metavar="ADDRESS,…", help="a server's address, or several")
    one = add(stages, "list the stages that can be swapped")
    one.add_argument("kind", nargs="?", choices=kinds(), help="only this kind")
    one.add_argument("--json", action="store_true", help="print JSON, with everything known about each stage")
    add(doctor, "check whether this machine is ready")
    one = add(lab, "open the lessons in JupyterLab")
    one.add_argument("folder", nargs="?", help="folder for your copies (default minips-lessons, or COURSE-lessons)")
    one.add_argument("--course", metavar="NAME", help="of another course that is installed (default minips' own)")
    one.add_argument("--port", type=int, help="JupyterLab's port (default: the first free one from 8888 on)")
    classes = "write student, instructor and challenge copies for a class into folders in DIR, and stop"
    one.add_argument("--class", dest="for_class", metavar="DIR", help=classes)
    one.add_argument("--outputs", action="store_true", help="also copy the outputs, which reveal the answers")
    one.add_argument("--reset", action="store_true", help="forget your progress, after you confirm, and stop")
    one.add_argument("--yes", action="store_true", help="do not ask before --reset")
    one = add(check, "grade an exercise in a notebook")
    one.add_argument("exercise", metavar="EXERCISE", help="its key, such as wait.2")
    one.add_argument("notebook", metavar="FILE.ipynb", nargs="+", help="one or more copies of the lesson")
    one = add(grade, "grade the exercises of a class")
    one.add_argument("folder", metavar="DIR", help="has a folder for each student, with the notebooks in it")
    one.add_argument("--csv", metavar="FILE.csv", required=True, help="write the table of marks")
    one.add_argument("--json", metavar="FILE", help="write all reasons (default: beside the table, ending in .json)")
    one.add_argument("--seed", type=_seed, metavar="N", help="the seed of the inputs (default: draw one, and say it)")
    one.add_argument("--course", metavar="NAME", help="of another course that is installed (default minips' own)")
    one = add(play, "play a puzzle, and see your score beside par")
    one.add_argument("name", metavar="NAME", nargs="?", help="the puzzle's name (default: list all)")
    one.add_argument("file", metavar="FILE.py", nargs="?", help="defines your function (default: print the task)")
    return parser


def add_load(parser: argparse.ArgumentParser) -> None:
    """Add ``--load``, an option that `main` accepts with any parser."""
    parser.add_argument("--load", metavar="FILE.py", help="a file that registers stages of your own; may be repeated")


def _seed(text: str) -> int:
    """Convert ``--seed`` to a whole number from 0 on."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 on; got {text!r}")
    return int(text)


def _rank(text: str) -> int | None:
    """Convert ``--rank`` to a worker's number, or to None for auto."""
    if text != "auto" and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a worker's number, from 0 on, or auto; got {text!r}")
    return None if text == "auto" else int(text)


def _add_config(parser: argparse.ArgumentParser) -> None:
    """Add an option for each field of Config, by group, and one for each stage of its codecs."""
    parser.add_argument("--config", metavar="FILE", help="a config as JSON to start from")
    about: str | None = (
        "A STAGE is a name or name:field=value,field=value, and one within it a name or name(field=value,field=value): "
        "sgd:lr=0.3,schedule=cosine(steps=20). minips stages lists names and fields."
    )
    for title, fields in groups_of(Config).items():
        group = parser.add_argument_group(title.lower(), about)
        about = None  # which is said once
        for name in fields:
            if name == "push":
                _add_fields(group, Codec, groups_of(Codec)["Fields"], "", ", from worker to server")
            elif name == "pull":
                _add_fields(group, Codec, groups_of(Codec)["Fields"], "pull_", ", from server to worker")
            else:
                _add_fields(group, Config, [name])


def _add_fields(group: Any, of: type[Value], named: Sequence[str], prefix: str = "", words: str = "") -> None:
    """Add an option for each ``named`` field of a value."""
    hints = typing.get_type_hints(of)
    fields: dict[str, Any] = {field.name: field for field in dataclasses.fields(of)}  # type: ignore[arg-type]
    for name in named:
        field, kind = fields[name], (typing.get_args(hints[name]) or (hints[name],))[0]
        text, metavar = f"{field.metadata['help']}{words}", "true|false" if kind is bool else "VALUE"
        if field.metadata["unit"]:
            text += f", in {field.metadata['unit']}"
        if issubclass(kind, Stage):
            text, metavar = f"{text}: {', '.join(names(kind.kind))}", "STAGE"
        elif issubclass(kind, Value):
            inner = (f"{one.name}={default_of(one)!r}, {one.metadata['help']}" for one in dataclasses.fields(kind))
            text, metavar = f"{text}. Fields: {'; '.join(inner)}", "FIELD=VALUE,…"
        text = f"{text} (default {default_of(field)!r})".replace("%", "%%")
        group.add_argument(f"--{prefix}{name}".replace("_", "-"), dest=prefix + name, metavar=metavar, help=text)
