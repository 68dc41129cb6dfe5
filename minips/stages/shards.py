"""Shards: which training rows are whose.

The rows are shared out once, before the first step, into index arrays by worker. The contract is `Shards`.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from minips.stage import Array, Stage, register

__all__ = ["ByLabel", "Contiguous", "Shards", "Shuffled"]


class Shards(Stage):
    """The contract. `Config.epochs` counts on shards that are near-equal in rows; `WeightedMean` does without that."""

    kind: ClassVar[str] = "shards"

    @abstractmethod
    def split(self, y: Array, workers: int, rng: np.random.Generator) -> Sequence[Array]:
        """The row numbers of each worker. Each row is one worker's, and none is left without while there are rows.

        ``y`` holds the problem's targets, one for each row; it is not changed. All draws are ``rng``'s.
        """


@register
@dataclass(frozen=True)
class Contiguous(Shards):
    """The rows in their order, cut into near-equal pieces, the larger ones first.

    >>> Contiguous().split(np.zeros(5), workers=2, rng=np.random.default_rng(0))
    [array([0, 1, 2]), array([3, 4])]
    """

    name = "contiguous"

    def split(self, y: Array, workers: int, rng: np.random.Generator) -> Sequence[Array]:
        return np.array_split(np.arange(len(y)), workers)


@register
@dataclass(frozen=True)
class Shuffled(Shards):
    """The rows in an order that is drawn, cut into near-equal pieces: each worker's are like all the others'."""

    name = "shuffled"

    def split(self, y: Array, workers: int, rng: np.random.Generator) -> Sequence[Array]:
        return np.array_split(rng.permutation(len(y)), workers)


@register
@dataclass(frozen=True)
class ByLabel(Shards):
    """The rows sorted by ``y``, cut into near-equal pieces: each worker has few classes, or a range of the values.

    Of several columns the first one sorts, and rows of one label keep their order. Source: McMahan et al. 2017,
    "Communication-Efficient Learning of Deep Networks from Decentralized Data", section 3 (two such pieces each).
    """

    name = "bylabel"

    def split(self, y: Array, workers: int, rng: np.random.Generator) -> Sequence[Array]:
        return np.array_split(np.argsort(y.reshape(len(y), -1)[:, 0], kind="stable"), workers)
