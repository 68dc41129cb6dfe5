"""Shards: the assignment of training rows to workers.

The rows are assigned once, before the first step, as an index array for each worker. The contract is `Shards`.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from minips.stage import Array, Stage, register

__all__ = ["ByLabel", "Contiguous", "Shards", "Shuffled"]


class Shards(Stage):
    """The contract. `Config.epochs` assumes that shards have nearly equal size; `WeightedMean` does not."""

    kind: ClassVar[str] = "shards"

    @abstractmethod
    def split(self, y: Array, workers: int, rng: np.random.Generator) -> Sequence[Array]:
        """Return each worker's row numbers. Each row belongs to one worker. With enough rows, every worker has a row.

        ``y`` holds the problem's targets, one for each row; do not change it. Take all random draws from ``rng``.
        """


@register
@dataclass(frozen=True)
class Contiguous(Shards):
    """The rows in their given order, cut into pieces of nearly equal size, with the larger pieces first.

    >>> Contiguous().split(np.zeros(5), workers=2, rng=np.random.default_rng(0))
    [array([0, 1, 2]), array([3, 4])]
    """

    name = "contiguous"

    def split(self, y: Array, workers: int, rng: np.random.Generator) -> Sequence[Array]:
        return np.array_split(np.arange(len(y)), workers)


@register
@dataclass(frozen=True)
class Shuffled(Shards):
    """The rows in random order, cut into pieces of nearly equal size: all workers' rows are alike."""

    name = "shuffled"

    def split(self, y: Array, workers: int, rng: np.random.Generator) -> Sequence[Array]:
        return np.array_split(rng.permutation(len(y)), workers)


@register
@dataclass(frozen=True)
class ByLabel(Shards):
    """The rows sorted by ``y``, cut into nearly equal pieces: each worker has few classes, or a range of the values.

    If ``y`` has several columns, rows are sorted by the first. Rows with equal labels keep their order. Source: McMahan
    et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data", sec. 3 (two pieces each).
    """

    name = "bylabel"

    def split(self, y: Array, workers: int, rng: np.random.Generator) -> Sequence[Array]:
        return np.array_split(np.argsort(y.reshape(len(y), -1)[:, 0], kind="stable"), workers)
