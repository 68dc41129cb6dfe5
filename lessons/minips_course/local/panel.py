"""Local steps: how many between two exchanges, the outer rate, and the rows of each worker, as controls."""

import warnings
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import minips as ps
from minips.lab.charts import LINE, PENS, Chart, Drawing, Scale
from minips.lab.panels import Panel
from minips.stage import Value, option

STEPS, INNER_RATE, LOOKS, BEST_OF_1 = 480, 0.3, 24, 2.0
"""A worker's gradient steps, its inner learning rate, the least number of steps between two evaluations, and the best
outer rate if workers exchange after each step."""
SHARDS = {"shuffled": ps.Shuffled(), "sorted by digit": ps.ByLabel()}


@dataclass(frozen=True)
class Asked(Value):
    """The number of local steps, the outer rate, and how the rows are divided."""

    steps: int = option(30, "gradient steps of each worker between two exchanges", choices=(1, 8, 30, 120))
    outer: float = option(0.1, "the server's learning rate", minimum=0.1, maximum=6, step=0.1)
    shards: str = option(
        "shuffled", "whether all workers' rows are alike, or each has only some digits", choices=SHARDS
    )


class Curve(NamedTuple):
    """The held-out loss of a run."""

    steps: list[int]
    """The gradient steps after which it was evaluated."""
    losses: list[float]
    megabytes: float
    """What the four workers sent."""
    warned: bool
    """Whether minips warned about the outer rate."""


class Found(NamedTuple):
    """The run that was asked for, and one that exchanges after each step, at its best outer rate."""

    asked: Asked
    run: Curve
    each: Curve


@cache
def curve(steps: int, outer: float, shards: str) -> Curve:
    """Train on the digits with four workers."""
    local = ps.LocalSteps(steps, ps.SGD(INNER_RATE))
    config = ps.Config(steps=STEPS, local=local, optimizer=ps.SGD(outer), shards=SHARDS[shards], transport=ps.InProc())
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        problem = ps.SoftmaxRegression(*ps.datasets.digits())
        run = ps.train(problem, config, engine=ps.Simulated(), every=-(-LOOKS // steps) * steps, progress=False)
    at, losses = zip(*((step, loss) for _, step, _, loss in run.evaluations if loss is not None), strict=True)
    return Curve([*at], [*losses], run.bytes_sent / 1e6, bool(warned))


class SeldomExchanges(Panel[Asked, Found]):
    """Draws the held-out loss of a run with local steps, beside that of a run that exchanges after each step.

    >>> found = SeldomExchanges().find(Asked(steps=120, outer=1.0))
    >>> found.run.steps, round(found.each.megabytes / found.run.megabytes)
    ([120, 240, 360, 480], 118)
    """

    title = "Steps between exchanges"
    asks = Asked
    labels = {"steps": "local steps", "outer": "outer rate"}
    repeats = True

    def find(self, asked: Asked) -> Found:
        return Found(asked, curve(asked.steps, asked.outer, asked.shards), curve(1, BEST_OF_1, asked.shards))

    def chart(self, found: Found, width: float) -> Drawing:
        x = Scale("gradient steps of each worker", 0, STEPS)
        chart = Chart(width, 280, x, Scale("held-out loss", 0.08, 3, log=True))
        best = f"an exchange after each step, best outer rate, {BEST_OF_1:g}"
        chart.line(found.each.steps, found.each.losses, LINE._replace(dash="2 3"), best)
        asked = found.asked
        label = f"after {asked.steps} steps, outer rate {asked.outer:g}, {asked.shards}"
        chart.line(found.run.steps, found.run.losses, PENS[0], label)
        if asked.steps > LOOKS:
            chart.marks([*zip(found.run.steps, found.run.losses, strict=True)], PENS[0])
        return chart.drawing()

    def words(self, found: Found) -> str:
        asked, run = found.asked, found.run
        warning = " minips warns about this outer rate." if run.warned else ""
        return (
            f"{STEPS // asked.steps} exchanges, outer rate {asked.outer:g}, rows {asked.shards}: {run.megabytes:.2f} MB"
            f" sent, {run.megabytes / found.each.megabytes:.1%} of the bytes with an exchange after each step. "
            f"Held-out loss {run.losses[-1]:.3f}, with an exchange after each step, at its best outer rate, "
            f"{found.each.losses[-1]:.3f}.{warning}"
        )
