"""The contract of an aggregator, and the mean."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from minips.halves import as_dtype, widen
from minips.intake import as_array
from minips.stage import Array, Stage, Tensors, register


class Contribution(NamedTuple):
    """One push: a worker's gradients, its clock, the version of the parameters that it read, and its training loss."""

    worker: int
    clock: int
    version: int
    gradients: Tensors
    loss: float = float("nan")
    staleness: int = 0
    """Versions between its reading and its being combined (SSP's bound counts clocks); the shard counts them."""
    rows: float = 1.0
    """The rows of the worker's shard, where the aggregator weighs."""


class Aggregator(Stage):
    """The contract. Contributions come in worker order, never in order of arrival, so that a run repeats to the bit.

    They are not changed. Of several servers each combines its own pieces: an elementwise aggregator gives the same.
    """

    kind: ClassVar[str] = "aggregator"
    elementwise: ClassVar[bool] = False
    """True where each coordinate is combined by itself, so that large tensors may come in pieces."""
    weighs: ClassVar[bool] = False
    """True where it needs the contributions' ``rows``: the workers then tell them, and BSP with servers is a must."""
    tables: ClassVar[bool] = False
    """True for an elementwise one of tables too: of rows that some workers alone have touched, others give zeros."""

    @property
    def least(self) -> int:
        """The fewest contributions that this aggregator can combine, and keep its promise."""
        return 1

    @abstractmethod
    def combine(self, contributions: Sequence[Contribution]) -> Tensors:
        """One gradient for each name, of the contributions' shape and dtype; it may be an array of theirs."""


@register
@dataclass(frozen=True)
class Mean(Aggregator):
    """The average, ``(g₁ + … + gₙ) / n``, in worker order, half floats in float32. One bad worker moves it anywhere."""

    name = "mean"
    elementwise = tables = True

    def combine(self, contributions: Sequence[Contribution]) -> Tensors:
        if len(contributions) == 1:
            return contributions[0].gradients
        return by_name(average, contributions)


def average(pieces: list[Array]) -> Array:
    """The mean of at least one array, added up in their order."""
    if len(pieces) == 1:
        return pieces[0]
    total = np.asarray(pieces[0] + pieces[1])
    for piece in pieces[2:]:
        total += piece
    total /= len(pieces)
    return total


def as_gradient(name: str, g: Array) -> Array:
    """The gradient of this name as an array. ValueError for a masked one."""
    return g if type(g) is np.ndarray else as_array(g, f"The gradient of {name!r}")


def by_name(combine: Callable[[list[Array]], Array], contributions: Sequence[Contribution]) -> Tensors:
    """``combine`` applied to each name's arrays, one from each contribution, half floats in float32. ValueError for
    masked arrays.
    """
    combined = {}
    for name, first in contributions[0].gradients.items():
        pieces = [widen(as_gradient(name, one.gradients[name])) for one in contributions]
        combined[name] = np.asarray(as_dtype(combine(pieces), first.dtype))
    return combined
