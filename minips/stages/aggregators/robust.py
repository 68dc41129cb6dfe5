"""Aggregators that tolerate some bad workers, old gradients, or shards of unequal size."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from minips.stage import Array, Tensors, option, register
from minips.stages.aggregators.base import Aggregator, Contribution, Mean, as_gradient, average, by_name


@register
@dataclass(frozen=True)
class Median(Aggregator):
    """The median of each coordinate. It lies among the good values as long as fewer than half of the workers are bad.

    Source: Yin et al. 2018, "Byzantine-Robust Distributed Learning", definition 1.
    """

    name = "median"
    elementwise = True

    def combine(self, contributions: Sequence[Contribution]) -> Tensors:
        return by_name(lambda pieces: np.asarray(np.median(pieces, axis=0)), contributions)


@register
@dataclass(frozen=True)
class TrimmedMean(Aggregator):
    """The mean of each coordinate without its ``trim`` largest and its ``trim`` smallest values.

    It tolerates up to ``trim`` bad workers out of n > 2·trim. Each coordinate is trimmed independently.
    Source: Yin et al. 2018, "Byzantine-Robust Distributed Learning", definition 2.
    """

    name = "trimmedmean"
    elementwise = True
    trim: int = option(1, "values left out at each end", minimum=0, step=1)

    @property
    def least(self) -> int:
        return 2 * self.trim + 1

    def combine(self, contributions: Sequence[Contribution]) -> Tensors:
        require_min(self, contributions)

        def trimmed(pieces: list[Array]) -> Array:
            ordered = np.sort(pieces, axis=0)[self.trim : len(pieces) - self.trim]
            return np.asarray(ordered.mean(axis=0))

        return by_name(trimmed, contributions)


@register
@dataclass(frozen=True)
class Krum(Aggregator):
    """The gradient with the lowest score, or (multi-Krum) the mean of the ``select`` gradients with the lowest scores.

    A gradient's score is the sum of its squared distances to the nearest n − bad − 2 others, over all tensors. Each
    server scores only its pieces. Krum tolerates ``bad`` bad workers if n ≥ 2·bad + 3 and select ≤ n − bad − 2.
    Sources: Blanchard et al. 2017, "Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent", section 4;
    for ``select``, El Mhamdi et al. 2018, "The Hidden Vulnerability of Distributed Learning in Byzantium".
    """

    name = "krum"
    bad: int = option(1, "bad workers that it must tolerate", minimum=0, step=1)
    select: int = option(1, "gradients averaged: 1 is Krum, more is multi-Krum", minimum=1, step=1)

    @property
    def least(self) -> int:
        return max(2 * self.bad + 3, self.select + self.bad + 2)

    def combine(self, contributions: Sequence[Contribution]) -> Tensors:
        require_min(self, contributions)
        n, gradients = len(contributions), [_arrays(one) for one in contributions]
        distances = np.zeros((n, n))
        for a, b in combinations(range(n), 2):
            distances[a, b] = distances[b, a] = _squared_distance(gradients[a], gradients[b])
        others = np.sort(distances, axis=1)[:, 1 : n - self.bad - 1]  # column 0 is the distance to itself
        chosen = np.sort(np.argsort(others.sum(axis=1), kind="stable")[: self.select])
        return Mean().combine([contributions[index] for index in chosen])


@register
@dataclass(frozen=True)
class StalenessWeighted(Aggregator):
    """The mean of gradients weighted down by their age: ``Σ gᵢ / (1 + τᵢ)^power / n``.

    τᵢ is the number of versions since the one that gᵢ was computed from. Under BSP it is 0, and the result is the mean.
    Source: Zhang et al. 2016, "Staleness-aware Async-SGD for Distributed Deep Learning", section 2.2 (which
    divides the learning rate by the staleness; here it is divided by 1 more, so that a fresh gradient counts in full).
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


@register
@dataclass(frozen=True)
class WeightedMean(Aggregator):
    """The mean of gradients weighted by rows: ``Σ nₖ·gₖ / Σ nₖ``, where nₖ is the number of rows in a worker's shard.

    The result is the mean over all rows, even if shards differ in size. For equal shards it equals `Mean` to the bit.
    With backup workers, the sums include only the pushes that came in time. Requires BSP with servers.
    Source: McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data", eq. 1.
    """

    name = "weightedmean"
    elementwise = tables = weighs = True

    def combine(self, contributions: Sequence[Contribution]) -> Tensors:
        mean = sum(one.rows for one in contributions) / len(contributions)
        shares = [one.rows / mean for one in contributions]

        def weighted(pieces: list[Array]) -> Array:
            return average([np.asarray(g * share, g.dtype) for g, share in zip(pieces, shares, strict=True)])

        return by_name(weighted, contributions)


@register
@dataclass(frozen=True)
class MajorityVote(Aggregator):
    """The majority sign of each coordinate of the gradients: −1, 0 (a tie) or 1. Meant for the Sign quantizer.

    Each value moves by the learning rate, whatever the gradients' size, so choose a rate near 0.001 rather than 0.1.
    Each worker has one vote, so the sign is right as long as fewer than half of the workers are bad.
    Source: Bernstein et al. 2019, "signSGD with Majority Vote Is Communication Efficient and Fault Tolerant", alg. 1.
    """

    name = "majorityvote"
    elementwise = True

    def combine(self, contributions: Sequence[Contribution]) -> Tensors:
        def vote(pieces: list[Array]) -> Array:
            balance = np.sign(pieces).sum(axis=0, dtype=np.int32)
            return np.asarray(np.sign(balance))

        return by_name(vote, contributions)


def require_min(aggregator: Aggregator, contributions: Sequence[Contribution]) -> None:
    """Raise ValueError for fewer contributions than the aggregator's guarantee requires."""
    if len(contributions) < aggregator.least:
        raise ValueError(
            f"{aggregator!r} needs at least {aggregator.least} contributions at once, got {len(contributions)}. "
            "Use more workers under BSP, or an aggregator that needs fewer."
        )


def _arrays(contribution: Contribution) -> Tensors:
    return {name: as_gradient(name, g) for name, g in contribution.gradients.items()}


def _squared_distance(a: Tensors, b: Tensors) -> float:
    """``|a − b|²`` over all names. It is infinity if it overflows, which a bad worker's gradient can cause."""
    total = 0.0
    with np.errstate(over="ignore"):
        for name, x in a.items():
            difference = np.subtract(x, b[name], dtype=np.float64).reshape(-1)
            total += float(np.dot(difference, difference))
    return total
