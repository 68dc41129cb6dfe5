"""Split a gradient: the average of the gradients of equal shards is the gradient of all rows."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from minips import datasets
from minips.lab.panels.base import Panel
from minips.lab.plots import LOOKS, legend_above
from minips.lab.style import NARROW_IN
from minips.problems import LinearRegression
from minips.stage import Array, Value, option


@dataclass(frozen=True)
class Sharing(Value):
    """The numbers of rows and workers."""

    workers: int = option(4, "workers, each with a shard of the rows", minimum=1, maximum=12, step=1)
    rows: int = option(96, "training rows", minimum=12, maximum=353, step=1)


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

    title = "Shards"
    asks = Sharing

    def find(self, asked: Sharing) -> Gradients:
        data = datasets.diabetes(dtype="float64")
        problem = LinearRegression(data.X[: asked.rows], data.y[: asked.rows])
        params = problem.init(np.random.default_rng(0))
        parts = [problem.shard(worker, asked.workers) for worker in range(asked.workers)]
        shards = np.stack([part.gradient(params)["w"] for part in parts])
        return Gradients([part.rows for part in parts], shards, problem.gradient(params)["w"])

    def draw(self, found: Gradients, figure: Figure) -> None:
        ax = figure.add_subplot()
        d, bars = len(found.full), [*found.shards, found.shards.mean(axis=0)]
        width = 0.84 / len(bars)
        for i, heights in enumerate(bars):
            look = LOOKS[1] if i == len(bars) - 1 else LOOKS[5]._replace(hatch="")
            label = {0: "a worker's shard", len(bars) - 1: "average of the shards"}.get(i)
            at = np.arange(d) + (i - (len(bars) - 1) / 2) * width
            ax.bar(at, heights, width, lw=0.3, label=label, **look.area)
        for j, height in enumerate(found.full):
            ax.hlines(height, j - 0.48, j + 0.48, color="black", lw=1.5, label="" if j else "all the rows")
        ax.axhline(0, color="dimgrey", lw=0.5)
        wide = figure.get_figwidth() > NARROW_IN
        ax.set_xticks(range(d), [f"w{j}" if wide else str(j) for j in range(d)])
        ax.set(xlabel="parameter", ylabel="gradient")
        legend_above(ax, 3 if wide else 2)

    def words(self, found: Gradients) -> str:
        sizes = sorted(set(found.sizes))
        if len(sizes) == 1:
            end = "equals the gradient of all the rows" if found.apart < 1e-9 else "is off the full gradient"
            return f"{len(found.sizes)} shards of {sizes[0]} rows each: their average {end}."
        return (
            f"{len(found.sizes)} shards of {sizes[0]} or {sizes[-1]} rows: the plain average misses the full gradient "
            f"by up to {found.apart:.2g}. Shards of equal size make it exact."
        )
