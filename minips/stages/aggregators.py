"""Aggregators: one gradient from the gradients of several workers.

The contract is `Aggregator`. Under BSP an aggregator sees a whole round at once; under SSP and ASP each push comes
alone. It never changes what it is given.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from minips.stage import Array, Stage, Tensors, register


@dataclass(frozen=True, eq=False)
class Contribution:
    """One push: a worker's gradients, its clock, the version of the parameters that it read, and its training loss."""

    worker: int
    clock: int
    version: int
    gradients: Tensors
    loss: float = float("nan")


class Aggregator(Stage):
    """The contract. Contributions come in worker order, never in order of arrival, so that a run repeats to the bit.

    With several servers each one combines its own pieces: an elementwise aggregator gives the same result for any
    number of them.
    """

    kind: ClassVar[str] = "aggregator"

    @abstractmethod
    def combine(self, contributions: Sequence[Contribution]) -> Tensors:
        """One gradient for each name; a new array, of the shape and the dtype of the contributions'."""


@register
@dataclass(frozen=True)
class Mean(Aggregator):
    """The average, ``(g₁ + … + gₙ) / n``, added in worker order. One bad worker can move it anywhere."""

    name = "mean"

    def combine(self, contributions: Sequence[Contribution]) -> Tensors:
        def mean(pieces: list[Array]) -> Array:
            total = pieces[0].copy()
            for piece in pieces[1:]:
                total += piece
            total /= len(pieces)
            return total

        return by_name(mean, contributions)


@register
@dataclass(frozen=True)
class Median(Aggregator):
    """The median of each coordinate: it stays among the good values while fewer than half of the workers are bad.

    Source: Yin et al. 2018, "Byzantine-Robust Distributed Learning", definition 1.
    """

    name = "median"

    def combine(self, contributions: Sequence[Contribution]) -> Tensors:
        return by_name(lambda pieces: np.asarray(np.median(pieces, axis=0), pieces[0].dtype), contributions)


def by_name(combine: Callable[[list[Array]], Array], contributions: Sequence[Contribution]) -> Tensors:
    """``combine`` applied to each name's arrays, one from each contribution."""
    return {name: combine([one.gradients[name] for one in contributions]) for name in contributions[0].gradients}
