"""Training with noisy gradients: workers, rows, accumulation and the learning rate as sliders."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from minips import datasets
from minips.lab.charts import LINE, PENS, Chart, Drawing, Scale
from minips.lab.panels import Panel
from minips.problems import LinearRegression
from minips.stage import Array, Value, option
from minips_course.batch import noise

BATCHES = 80
"""The batches at which each worker looks."""
LOWEST, HIGHEST = 0.2, 5.0
"""The axis of the losses."""


@dataclass(frozen=True)
class Steps(Value):
    """The rows of a step, and its length."""

    workers: int = option(4, "workers, each with a batch of its own", minimum=1, maximum=8, step=1)
    batch_size: int = option(8, "rows in a batch", minimum=1, maximum=32, step=1)
    accumulate: int = option(4, "batches averaged before a push", minimum=1, maximum=8, step=1)
    lr: float = option(0.04, "learning rate", minimum=0.01, maximum=0.8, step=0.01)


class Ways(NamedTuple):
    """Two ways to train with the same rows: a push for each batch, and one for several."""

    asked: Steps
    each: Array
    """The loss before training and after each step, shape (steps + 1, seeds)."""
    several: Array
    variance: float
    """That of a gradient of one row."""


class NoisySteps(Panel[Steps, Ways]):
    """Draws the loss of 20 seeds against the batches, with a push for each batch and with one for several.

    >>> found = NoisySteps().find(Steps(workers=1, batch_size=1, accumulate=4, lr=0.2))
    >>> found.each.shape, found.several.shape
    ((81, 20), (21, 20))
    """

    title = "Noisy steps"
    asks = Steps
    labels = {"batch_size": "rows in a batch", "lr": "learning rate"}
    repeats = True

    def find(self, asked: Steps) -> Ways:
        problem = LinearRegression(*datasets.diabetes(dtype="float64"))
        rows = asked.workers * asked.batch_size
        each, several = (
            noise.losses(problem, asked.lr, many * rows, BATCHES // many) for many in (1, asked.accumulate)
        )
        gradients = noise.of_each_row(problem, problem.init(np.random.default_rng(0)))
        return Ways(asked, each, several, float(gradients.var(axis=0).sum()))

    def chart(self, found: Ways, width: float) -> Drawing:
        chart = Chart(
            width,
            280,
            Scale("batches of each worker", 0, BATCHES),
            Scale("loss of all rows", LOWEST, HIGHEST, log=True),
        )
        names = ("a push for each batch", f"a push for {found.asked.accumulate} batches")
        for losses, many, pen, name in zip(found[1:3], (1, found.asked.accumulate), PENS, names, strict=False):
            at = many * np.arange(len(losses))
            chart.areas((at[:-1], at[1:]), (losses[1:].min(axis=1), losses[1:].max(axis=1)), pen.ink, pale=True)
            chart.line(at, np.median(losses, axis=1), pen, f"{name}: median, and all 20 seeds")
        chart.line([0, BATCHES], [found.each[0, 0]] * 2, LINE._replace(dash="2 3"), "where training begins", 1.5)
        return chart.drawing()

    def words(self, found: Ways) -> str:
        asked, start = found.asked, found.each[0, 0]
        rows = asked.workers * asked.batch_size
        told = [
            f"{BATCHES // many} pushes of {many * rows} rows, with a variance of about "
            f"{found.variance / rows / many:.2g}: {(losses[-1] < start).sum()} of 20 seeds end well, "
            f"at a median loss of {np.median(losses[-1]):.3g}"
            for many, losses in zip((1, asked.accumulate), found[1:3], strict=True)
        ]
        return f"At a learning rate of {asked.lr:g}: {'; '.join(told)}."
