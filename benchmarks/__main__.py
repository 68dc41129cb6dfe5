"""``python -m benchmarks``: a command for each table, from a checkout of minips."""

import argparse
import importlib
import sys
from collections.abc import Callable
from typing import Any

from benchmarks import base
from minips import cli
from minips.cost.noise import NoiseMeter
from minips.training.progress import showing


def run(options: argparse.Namespace) -> None:
    """Measure one table and print it; write and draw it if the options ask for that."""
    cli.check_files(options.json, options.plot)
    if options.plot:
        from minips.lab.face import plots  # before the long measuring

        with cli.wrong_values():
            plots.check_ending(options.plot)
    if warning := base.busy():
        print(warning, file=sys.stderr)
    module = importlib.import_module(f"benchmarks.{options.what}")
    given = {name: getattr(options, name) for name in options.takes if getattr(options, name) is not None}
    rows: list[Any] = []
    noise = NoiseMeter()
    try:
        with showing(True, console=cli.Terminal(stderr=True)) as show:
            for row in module.measure(**given, watch=show):
                rows.append(row)
    finally:
        if rows:
            cli.Terminal(file=cli.text_stream(options)).print(module.table(rows))
        if note := noise.disturbance().note:
            print(note, file=sys.stderr)
        cli.write_json(options.json, [base.to_plain(row) for row in rows])
    if options.plot:
        chart = module.chart(rows)
        plots.save(plots.contenders(chart.series, label=chart.label), options.plot)


def count(text: str) -> int:
    """``text`` as a whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number, from 1 on; got {text!r}")
    return int(text)


OPTIONS: dict[str, tuple[Callable[[str], Any], str]] = {
    "values": (count, "float32 values of a gradient"),
    "features": (count, "random Fourier features; 10 parameters each"),
    "transport": (str, "minips' transport"),
    "transports": (str, "only these transports"),
    "references": (str, "only these references"),
    "contenders": (str, "only these"),
    "steps": (count, "clocks of both workers"),
    "small": (count, "bytes of the frame for the latency"),
    "large": (count, "bytes of the frame for the throughput"),
    "engine": (str, "processes, or hosts (a network of real hosts)"),
    "parts": (str, "only these: flows, buffers, racks"),
    "rounds": (count, "the most turns of each contender"),
}
TABLES = {
    "pushpull values+ transports* references* rounds": "a push and pull over each transport, and over references",
    "train features+ transport contenders+ steps rounds": "the same training run on minips, pipes, torch RPC and Ray, "
    "and gradients alone",
    "transports transports* references* small large rounds": "a frame over each transport, without minips: "
    "latency and throughput",
    "codecs values rounds": "bits, times and steps of every quantizer",
    "engines rounds": "the same run in processes and in actors on Ray",
    "cost features rounds engine": "seconds per step, predicted and measured, behind links and on the bare loopback, "
    "or on hosts",
    "hosts parts* rounds": "a network of real hosts: TCP flows, buffers that overflow, a ring over two racks",
    "local rounds": "seconds per gradient step with local steps, predicted and measured, behind a link",
    "rows rounds": "rows of a table beside a dense tensor, and the busiest of four servers",
    "stalls transports* rounds": "calls of a good client beside 20 stalled peers, over those without them",
    "tune features": "the tuner's ranking of 30 configs, and their measured times, behind two links",
}
"""Each table's name and options, the parameters of its ``measure``; ``+`` and ``*`` are argparse's."""


def parser() -> argparse.ArgumentParser:
    """A command for each of the `TABLES`."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="minips and its parts on this machine, beside other systems.",
        epilog="Exit status: 0 done, 1 failed, 2 a wrong option or value, 130 and 143 interrupted (SIGINT, SIGTERM), "
        "141 a closed pipe.",
    )
    parser.set_defaults(command=run, parser=parser)
    cli.add_load(parser)
    commands = parser.add_subparsers(dest="what", required=True, metavar="table")
    for table, words in TABLES.items():
        name, *takes = table.split()
        one = commands.add_parser(name, help=words, description=f"{words[0].upper()}{words[1:]}.")
        one.set_defaults(takes=[option.rstrip("+*") for option in takes], parser=one)
        for option in takes:
            kind, text = OPTIONS[option.rstrip("+*")]
            several, metavar = option[-1] if option[-1] in "+*" else None, "N" if kind is count else "NAME"
            one.add_argument(f"--{option.rstrip('+*')}", type=kind, nargs=several, metavar=metavar, help=text)
        one.add_argument("--json", metavar="FILE", help="write the rows as JSON; - is standard output")
        one.add_argument("--plot", metavar="FILE.png", help="draw the table")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command line. Returns the exit status."""
    return cli.main(arguments, parser())


if __name__ == "__main__":
    raise SystemExit(main())
