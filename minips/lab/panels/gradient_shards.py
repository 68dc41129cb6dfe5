"""Split a gradient: the average of the gradients of equal shards is the gradient of all rows."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from minips import datasets
from minips.lab.charts import LINE, Chart, Drawing, Scale
from minips.lab.panels.base import Panel
from minips.problems import LinearRegression
from minips.stage import Array, Value, option


@dataclass(frozen=True)
class Sharing(Value):
    """The numbers of rows and workers, and how unequal the shards are."""

    workers: int = option(4, "workers, each with a shard of the rows", minimum=1, maximum=12, step=1)
    rows: int = option(96, "training rows", minimum=24, maximum=353, step=1)
    times: int = option(1, "rows of the first shard, for each row of another", minimum=1, maximum=12, step=1)

    def shards(self) -> list[Array]:
        """The row numbers of each worker."""
        ends = self.rows * np.cumsum([self.times] + [1] * (self.workers - 1)) / (self.times + self.workers - 1)
        if self.times == 1:
            return np.array_split(np.arange(self.rows), self.workers)
        return np.split(np.arange(self.rows), np.rint(ends[:-1]).astype(int))


class Gradients(NamedTuple):
    """Gradients of the same parameters, in float64."""

    sizes: list[int]
    """Rows of each shard."""
    shards: Array
    """Each worker's gradient, shape (workers, d)."""
    full: Array
    """The gradient of all rows, shape (d,)."""

    @property
    def apart(self) -> float:
        """The largest difference between the plain average of the shards and the full gradient."""
        return float(np.abs(self.shards.mean(axis=0) - self.full).max())


class GradientShards(Panel[Sharing, Gradients]):
    """Divides diabetes rows among workers: draws bars of the shards' gradients, their average, and the full gradient.

    >>> panel = GradientShards(workers=3)
    >>> panel.find(Sharing(workers=3, rows=96)).apart < 1e-12
    True
    """

    title = "Gradients of shards"
    asks = Sharing
    repeats = True

    def find(self, asked: Sharing) -> Gradients:
        data = datasets.diabetes(dtype="float64")
        problem = LinearRegression(data.X[: asked.rows], data.y[: asked.rows])
        params = problem.init(np.random.default_rng(0))
        parts = asked.shards()
        shards = np.stack([problem.gradient(params, rows)["w"] for rows in parts])
        return Gradients([*map(len, parts)], shards, problem.gradient(params)["w"])

    def chart(self, found: Gradients, width: float) -> Drawing:
        d, bars = len(found.full), [*found.shards, found.shards.mean(axis=0)]
        every = np.concatenate([*bars, [0.0]])
        margin = 0.04 * np.ptp(every)
        names = [f"w{j}" for j in range(d)]
        y = Scale("gradient", every.min() - margin, every.max() + margin)
        chart = Chart(width, 280, Scale("parameter", -0.5, d - 0.5, places=names), y)
        wide = 0.84 / len(bars)
        for i, heights in enumerate(bars):
            last = i == len(bars) - 1
            label = "average of the shards" if last else "a worker's shard" if i == 0 else ""
            left = np.arange(d) - 0.42 + i * wide
            chart.areas((left, left + 0.9 * wide), (0, heights), "b" if last else "dim", label)
        for j, height in enumerate(found.full):
            chart.line([j - 0.46, j + 0.46], [height] * 2, LINE, "" if j else "all the rows", 2.5)
        return chart.drawing()

    def words(self, found: Gradients) -> str:
        sizes = sorted(set(found.sizes))
        if len(sizes) == 1:
            end = "equals the gradient of all the rows" if found.apart < 1e-9 else "differs from it"
            return f"{len(found.sizes)} shards of {sizes[0]} rows each: their average {end}."
        return (
            f"{len(found.sizes)} shards of {sizes[0]} to {sizes[-1]} rows: the plain average differs from the full "
            f"gradient by up to {found.apart:.2g}. Shards of equal size make it exact."
        )
