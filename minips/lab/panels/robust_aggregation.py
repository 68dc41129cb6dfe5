"""Robust aggregation: shows a few honest gradients, a few lies, and their aggregate."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from minips.lab.panels.base import Panel, side_by_side
from minips.lab.plots import LOOKS, legend_above
from minips.stage import Array, Value, option
from minips.stages.aggregators import Aggregator, Contribution, Mean, Median

TRUE = np.array([2.0, 1.0])
"""The centre of the honest gradients, which have a standard deviation of 1 in each coordinate."""
STRONGEST = 20.0


@dataclass(frozen=True)
class Round(Value):
    """The gradients of one round, and the aggregator that combines them."""

    aggregator: Aggregator = option(Median(), "one gradient from many")
    workers: int = option(5, "workers, each with one gradient", minimum=1, maximum=15, step=1)
    liars: int = option(1, "workers among them that push a false gradient", minimum=0, maximum=14, step=1)
    lie: str = option("far away", "the false gradient", choices=("far away", "scattered", "uphill", "lazy"))
    strength: float = option(8.0, "length of a lie", minimum=0, maximum=STRONGEST, step=0.5)
    draw: int = option(0, "another draw of the honest gradients", minimum=0, maximum=99, step=1)


class Landed(NamedTuple):
    """The gradients of one round, and their aggregate."""

    honest: Array
    """Shape (workers − liars, 2)."""
    lies: Array
    """Shape (liars, 2)."""
    combined: Array
    """The aggregate of both, shape (2,)."""
    strengths: Array
    off: Array
    """For each strength, the aggregate's distance from the honest workers' mean."""
    mean_off: Array
    """For each strength, the plain mean's distance from the honest workers' mean."""
    asked: Round


class RobustAggregation(Panel[Round, Landed]):
    """Shows gradients of two numbers, some of which are lies, their aggregate, and how far stronger lies shift it.

    >>> panel = RobustAggregation()
    >>> landed = panel.find(Round(liars=0))
    >>> panel.distance(landed.honest, landed.combined) < 2
    True
    """

    title = "Round"
    asks = Round
    heights = (3.8, 6.2)

    def find(self, asked: Round) -> Landed:
        if asked.liars >= asked.workers:
            raise ValueError(f"Of {asked.workers} workers at least one must be honest; got {asked.liars} liars.")
        honest = TRUE + np.random.default_rng(asked.draw).normal(size=(asked.workers - asked.liars, 2))
        lies = make_lies(asked, honest)
        strengths = np.linspace(0, STRONGEST, 41)
        stronger = [make_lies(replace(asked, strength=float(strength)), honest) for strength in strengths]
        off, mean_off = (
            np.array([self.distance(honest, combine(one, honest, some)) for some in stronger])
            for one in (asked.aggregator, Mean())
        )
        return Landed(honest, lies, combine(asked.aggregator, honest, lies), strengths, off, mean_off, asked)

    @staticmethod
    def distance(honest: Array, combined: Array) -> float:
        """Return the distance from the mean of the honest gradients."""
        return float(np.linalg.norm(combined - honest.mean(axis=0)))

    def draw(self, found: Landed, figure: Figure) -> None:
        left, right = side_by_side(figure)
        good, bad = LOOKS[0], LOOKS[1]
        left.plot(*found.honest.T, good.marker, color=good.colour, alpha=0.6, label="honest")
        left.plot(*found.lies.T, "X", color=bad.colour, ms=8, label="a lie")
        left.plot(*found.honest.mean(axis=0), "+", color="black", ms=14, mew=2, label="honest mean")
        left.plot(*found.combined, "*", mfc="none", ms=16, mec=LOOKS[2].colour, mew=1.6, label="combined")
        left.plot(0, 0, ".", color="dimgrey", ms=4)
        left.set(xlabel="first coordinate", ylabel="second coordinate")
        left.margins(0.12)
        left.grid(alpha=0.3)
        right.plot(found.strengths, found.mean_off, color=bad.colour, linestyle=bad.dash, label="mean")
        if found.asked.aggregator != Mean():
            right.plot(found.strengths, found.off, color=LOOKS[2].colour, label=found.asked.aggregator.name)
        right.axvline(found.asked.strength, color="dimgrey", lw=0.8)
        right.set(xlabel="length of a lie", ylabel="distance from the honest mean", xlim=(0, STRONGEST), ylim=(0, None))
        right.grid(alpha=0.3)
        for ax in (left, right):
            legend_above(ax, 2)

    def words(self, found: Landed) -> str:
        asked, off = found.asked, self.distance(found.honest, found.combined)
        mean_off = self.distance(found.honest, combine(Mean(), found.honest, found.lies))
        lies = {0: "none of them a lie", 1: "one of them a lie"}.get(asked.liars, f"{asked.liars} of them lies")
        return (
            f"{asked.aggregator!r} of {asked.workers} gradients, {lies}: {off:.2f} from the honest workers' mean; "
            f"the plain mean is {mean_off:.2f} from it. A step against what was combined leads "
            f"{'downhill' if found.combined @ TRUE > 0 else 'uphill'}."
        )


def make_lies(asked: Round, honest: Array) -> Array:
    """Return the false gradients, shape (liars, 2)."""
    middle, rng = honest.mean(axis=0), np.random.default_rng([asked.draw, 1])
    if asked.lie == "lazy":
        return np.zeros((asked.liars, 2))
    if asked.lie == "uphill":
        return np.tile(-asked.strength * TRUE / np.linalg.norm(TRUE), (asked.liars, 1))
    if asked.lie == "scattered":
        angles = rng.uniform(0, 2 * np.pi, asked.liars)
        return np.asarray(middle + asked.strength * np.stack([np.cos(angles), np.sin(angles)], axis=1))
    return np.tile(middle + asked.strength * np.array([0.6, -0.8]), (asked.liars, 1))


def combine(aggregator: Aggregator, honest: Array, lies: Array) -> Array:
    """Return the aggregate of these gradients, shape (2,). The last workers are faulty."""
    pushed = [Contribution(worker, 0, 0, {"w": g}) for worker, g in enumerate(np.concatenate([honest, lies]))]
    return aggregator.combine(pushed)["w"]
