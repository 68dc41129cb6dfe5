"""An aggregator for gradients of different ages."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minips.stage import Array, Tensors, option, register
from minips.stages.aggregators.base import Aggregator, Contribution, by_name


@register
@dataclass(frozen=True)
class StalenessWeighted(Aggregator):
    """The mean of gradients that count the less the older they are: ``Σ gᵢ / (1 + τᵢ)^power / n``.

    τᵢ is the number of versions since the one that gᵢ was computed from; under BSP it is 0 and this is the mean.
    Source: Zhang et al. 2016, "Staleness-aware Async-SGD for Distributed Deep Learning", section 2.2 (the learning rate
    divided by the staleness; 1 is added, so that a fresh gradient counts in full).
    """

    name = "stalenessweighted"
    elementwise = True
    power: float = option(1.0, "how fast old gradients fade", minimum=0, step=0.25)

    def combine(self, contributions: Sequence[Contribution]) -> Tensors:
        weights = [(1 + max(one.staleness, 0)) ** -self.power / len(contributions) for one in contributions]

        def weighted(pieces: list[Array]) -> Array:
            total = np.zeros_like(pieces[0])
            for weight, piece in zip(weights, pieces, strict=True):
                total += piece * piece.dtype.type(weight)
            return total

        return by_name(weighted, contributions)
