"""Waiting for the slowest: order statistics of compute times, and how fast one may learn from old parameters.

A worker's compute time is a random variable, drawn anew in each step and independently of the other workers'.
Communication is free here. Nothing assumes a shape of distribution but the two that say exponential.
"""

from collections.abc import Sequence
from math import pi, sin

import numpy as np
from numpy.typing import ArrayLike


def synchronous_round_s(times: Sequence[ArrayLike], backup: int = 0) -> float:
    """The mean seconds of a BSP round that goes on with all but ``backup`` workers: E of the (n−b)-th smallest time.

    ``times`` holds for each worker the seconds that its steps may take, all equally likely: one number for a worker
    that is always as fast, or measured samples. All workers begin each round together; a worker that came too late has
    dropped what it did. Exact for the distributions of the samples: ``Σ t·(P(T ≤ t) − P(T < t))``, with the number of
    workers that are done at t being a sum of independent coin flips. Source: David and Nagaraja 2003, "Order
    Statistics", chapter 5; for backups Chen et al. 2016, "Revisiting Distributed Synchronous SGD".

    >>> synchronous_round_s([0.01, 0.01, 0.01, 0.05]), synchronous_round_s([0.01, 0.01, 0.01, 0.05], backup=1)
    (0.05, 0.01)
    >>> round(synchronous_round_s([[1, 2]] * 2), 3)  # 2 unless both take 1
    1.75
    """
    samples = _samples(times)
    _check_backup(len(samples), backup)
    moments = np.unique(np.concatenate(samples))
    done = np.array([np.searchsorted(x, moments, side="right") / len(x) for x in samples])  # P(worker done at t)
    count = np.zeros((len(samples) + 1, len(moments)))  # P(so many are done at t), one worker after the other
    count[0] = 1
    for p in done:
        count[1:] = count[1:] * (1 - p) + count[:-1] * p
        count[0] *= 1 - p
    over = count[len(samples) - backup :].sum(axis=0)
    return float(moments @ np.diff(over, prepend=0.0))


def asynchronous_update_s(times: Sequence[ArrayLike]) -> float:
    """The mean seconds between two updates when no worker waits: ``1 / Σ 1/E[Tᵢ]``, for ``times`` as for a round.

    Each worker's gradients are a renewal process of rate 1/E[Tᵢ]; over a long run the rates add up.
    Source: Ross 2014, "Introduction to Probability Models", section 7.3.

    >>> asynchronous_update_s([0.01, 0.01, 0.01, 0.05])
    0.003125
    """
    means = [float(x.mean()) for x in _samples(times)]
    return 0.0 if min(means) == 0 else 1 / sum(1 / mean for mean in means)


def exponential_round_s(mean: float, workers: int, backup: int = 0) -> float:
    """`synchronous_round_s` for exponential times of one mean: ``(H_n − H_b) · mean``, H_k = 1 + 1/2 + … + 1/k.

    Between the k-th worker's end and the next one's, n − k are at work, and the first of them takes mean/(n−k).
    Source: Rényi 1953, "On the Theory of Order Statistics".

    >>> round(exponential_round_s(1.0, workers=8), 4), round(exponential_round_s(1.0, workers=8, backup=2), 4)
    (2.7179, 1.2179)
    """
    _check_mean(mean, workers)
    _check_backup(workers, backup)
    return mean * sum(1 / k for k in range(backup + 1, workers + 1))


def exponential_update_s(mean: float, workers: int) -> float:
    """`asynchronous_update_s` for times of one mean, exponential or not: ``mean / n``.

    >>> exponential_update_s(0.08, workers=8)
    0.01
    """
    _check_mean(mean, workers)
    return mean / workers


def asynchronous_lr_limit(staleness: int, curvature: float) -> float:
    """The learning rate below which descent with gradients τ versions old is stable: ``2 sin(π / (2(2τ+1))) / λ``.

    On a quadratic of largest curvature λ, with a constant delay: ``w ← w − ηλ·w[τ versions ago]`` has all its roots
    within the unit circle exactly then. τ = 0 gives gradient descent's 2/λ; for large τ it is nearly π/((2τ+1)λ).
    Source: Levin and May 1976, "A note on difference-delay equations"; Yang et al. 2021, "PipeMare", lemma 1.

    >>> [round(asynchronous_lr_limit(staleness, curvature=1.0), 3) for staleness in range(4)]
    [2.0, 1.0, 0.618, 0.445]
    """
    if staleness < 0 or curvature <= 0:
        raise ValueError(f"The staleness is at least 0 and the curvature above 0; got {staleness} and {curvature}.")
    return 2 * sin(pi / (2 * (2 * staleness + 1))) / curvature


def _samples(times: Sequence[ArrayLike]) -> "list[np.ndarray[tuple[int], np.dtype[np.float64]]]":
    samples = [np.sort(np.asarray(x, float).reshape(-1)) for x in times]
    if not samples or any(len(x) == 0 or not np.isfinite(x).all() or x[0] < 0 for x in samples):
        raise ValueError("Expected the compute times of at least one worker, each a number of seconds or several.")
    return samples


def _check_mean(mean: float, workers: int) -> None:
    if mean < 0 or workers < 1:
        raise ValueError(f"Expected a mean of at least 0 s and at least one worker; got {mean} s and {workers}.")


def _check_backup(workers: int, backup: int) -> None:
    if not 0 <= backup < workers:
        raise ValueError(f"A round of {workers} workers can do without 0 to {workers - 1} of them; got {backup}.")
