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
    """The number of versions since the worker read the parameters, counted by the shard. SSP's bound counts clocks."""
    rows: float = 1.0
    """The number of rows in the worker's shard, if the aggregator ``weighs``."""


class Aggregator(Stage):
    """The contract. Contributions are in worker order, not in order of arrival, so that a run repeats to the bit.

    Do not change them. Each server combines its own pieces; if ``elementwise``, one server would get the same result.
    """

    kind: ClassVar[str] = "aggregator"
    elementwise: ClassVar[bool] = False
    """True if each coordinate is combined independently, so that large tensors may be cut into pieces."""
    weighs: ClassVar[bool] = False
    """True if the aggregator uses the contributions' ``rows``. Workers then report them. Requires BSP with servers."""
    tables: ClassVar[bool] = False
    """True if the aggregator is elementwise and also combines tables. A worker contributes zeros for untouched rows."""

    @property
    def least(self) -> int:
        """The smallest number of contributions for which this aggregator's guarantee holds."""
        return 1

    @abstractmethod
    def combine(self, contributions: Sequence[Contribution]) -> Tensors:
        """Return a gradient for each name, of the contributions' shape and dtype; it may be one of their arrays."""


@register
@dataclass(frozen=True)
class Mean(Aggregator):
    """The average, ``(g₁ + … + gₙ) / n``, in worker order, in at least float32. One bad worker can move it anywhere."""

    name = "mean"
    elementwise = tables = True

    def combine(self, contributions: Sequence[Contribution]) -> Tensors:
        if len(contributions) == 1:
            return contributions[0].gradients
        return by_name(average, contributions)


def average(pieces: list[Array]) -> Array:
    """The mean of one or more arrays, added in their order."""
    if len(pieces) == 1:
        return pieces[0]
    total = np.asarray(pieces[0] + pieces[1])
    for piece in pieces[2:]:
        total += piece
    total /= len(pieces)
    return total


def as_gradient(name: str, g: Array) -> Array:
    """The gradient with this name as an array. Raises ValueError for a masked array."""
    return g if type(g) is np.ndarray else as_array(g, f"The gradient of {name!r}")


def by_name(combine: Callable[[list[Array]], Array], contributions: Sequence[Contribution]) -> Tensors:
    """Apply ``combine`` to each name's arrays, one from each contribution, with half floats as float32. Raises
    ValueError for masked arrays.
    """
    combined = {}
    for name, first in contributions[0].gradients.items():
        pieces = [widen(as_gradient(name, one.gradients[name])) for one in contributions]
        combined[name] = np.asarray(as_dtype(combine(pieces), first.dtype))
    return combined
