"""``python -m benchmarks engines``: the same run in processes of this machine and in actors of a local Ray.

Two workers and a server under BSP train softmax regression on the digits, and a network of a million parameters. The
step loop lasts from go to the last update; start-up is the rest of the run, without the start of Ray, which has a row
of its own. All contenders end at the same parameters, to the bit, which is checked. A note that other programs were
at work counts Ray's own processes, including the actors.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
from rich.table import Table

from benchmarks import base
from benchmarks.base import Chart
from minips import datasets
from minips.core.config import Config
from minips.engines import Engine, Processes
from minips.engines.on_ray import Ray, connected
from minips.lab.measure import turns
from minips.lab.measure.pairs import lacking
from minips.lab.measure.turns import Spread, Watch
from minips.problems import MLP, Problem, SoftmaxRegression
from minips.results.run import Run
from minips.stage import missing
from minips.stages.optimizers import SGD
from minips.training.train import train

ROUNDS = 9
REFERENCE = "processes"


@dataclass(frozen=True)
class Row:
    """One engine on one problem."""

    group: str
    contender: str
    loop_s: Spread | None = None
    loop_over_processes: Spread | None = None
    startup_s: Spread | None = None
    skipped: str = ""


def measure(rounds: int = ROUNDS, watch: Watch = lambda text, share: None) -> Iterator[Row]:
    """A row for each engine and problem, problem by problem."""
    jobs: list[tuple[str, Problem, Config]] = [
        ("digits", SoftmaxRegression(*datasets.digits()), Config(workers=2, steps=2_000)),
        (
            "1,012,510 parameters",
            MLP(*datasets.digits(), hidden=13_500),
            Config(workers=2, steps=60, optimizer=SGD(lr=0.001)),
        ),
    ]
    engines: dict[str, Engine] = {REFERENCE: Processes()}
    absent = missing(Ray)
    with ExitStack() as stack:
        if not absent:
            watch("Ray starts", 0.0)
            began = time.monotonic()
            stack.enter_context(connected("local", 3, 1.0))
            took = time.monotonic() - began
            yield Row("Ray itself", "ray", startup_s=Spread(took, took, took))
            engines |= {"ray, plain": Ray(tls=False), "ray, TLS": Ray()}
        for number, (name, problem, config) in enumerate(jobs):
            tell = base.part(watch, number, len(jobs), name)
            yield from _rows(name, problem, config, engines, rounds, tell)
            if absent:
                yield Row(name, "ray", skipped=lacking(absent, "ray"))


def _rows(
    group: str, problem: Problem, config: Config, engines: dict[str, Engine], rounds: int, watch: Watch
) -> Iterator[Row]:
    loops: dict[str, dict[int, float]] = {name: {} for name in engines}
    startups: dict[str, list[float]] = {name: [] for name in engines}
    first: Run | None = None
    for turn, name in turns.rota(dict.fromkeys(engines, rounds), rounds, watch):
        began = time.monotonic()
        run = train(problem, config, engine=engines[name])
        loops[name][turn] = run.seconds
        startups[name].append(time.monotonic() - began - run.seconds)
        first = first or run
        for tensor, x in run.params.items():
            if not np.array_equal(x, first.params[tensor]):
                raise RuntimeError(f"{name} did not end at the same parameters: {tensor} differs.")
    for name in engines:
        loop_s = Spread.of(loops[name].values())
        yield Row(group, name, loop_s, turns.over(loops, name, REFERENCE), Spread.of(startups[name]))


def table(rows: Sequence[Row]) -> Table:
    """The rows for the terminal."""

    def cells(row: Row) -> list[str]:
        over = base.ratio(row.loop_over_processes, quartiles=True)
        loop = base.duration(row.loop_s) if row.loop_s or row.skipped else "–"
        return [row.contender, loop, over, base.duration(row.startup_s)]

    return base.table("the same run, by engine", ["step loop", "over processes", "start-up"], rows, cells, "group")


def chart(rows: Sequence[Row]) -> Chart:
    """Each engine's step loop."""
    return Chart(base.series([row for row in rows if row.loop_s], "loop_s"), "step loop (s)")
