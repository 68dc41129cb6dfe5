"""An aggregator that weighs contributions by the rows of their workers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minips.stage import Array, Tensors, register
from minips.stages.aggregators.base import Aggregator, Contribution, by_name


@register
@dataclass(frozen=True)
class WeightedMean(Aggregator):
    """The average in which a worker counts as much as it has rows: ``Σ nₖ·gₖ / Σ nₖ``, nₖ the rows of its shard.

    So the mean of shards of unequal size is that of all their rows; of shards of equal size it is `Mean`, to the bit.
    The sums are over the contributions of the round, which with backup workers are not all. Half floats are added in
    float32. It takes BSP with servers: elsewhere a contribution comes alone. Source: McMahan et al. 2017,
    "Communication-Efficient Learning of Deep Networks from Decentralized Data", equation 1 and algorithm 1.
    """

    name = "weightedmean"
    elementwise = True
    weighs = True

    def combine(self, contributions: Sequence[Contribution]) -> Tensors:
        mean = sum(one.rows for one in contributions) / len(contributions)
        weights = [one.rows / mean for one in contributions]

        def weighted(pieces: list[Array]) -> Array:
            dtype = np.result_type(pieces[0], np.float32)
            total, *others = (np.multiply(x, weight, dtype=dtype) for x, weight in zip(pieces, weights, strict=True))
            for other in others:
                total += other
            total /= len(pieces)
            return np.asarray(total, pieces[0].dtype)

        return by_name(weighted, contributions)
