"""Closed forms in SI units: bytes, seconds, bytes per second. Each names its assumptions and its source.

First the exchanges: n workers sum or average S bytes each, and each worker gets the result. The formulas assume n
equal workers, a full-duplex link of ``bytes_per_s`` for each node, ``latency`` seconds for each message, switches that
store nothing, no other traffic, and no time for arithmetic. A gradient quantized to b bits per value has
``nbytes * b / 32`` bytes plus scales, indices and headers: `minips.cost.message_nbytes` counts them all.

The next formulas describe waiting for the slowest. A worker's compute time is a random variable, drawn anew for each
step, and independent of the other workers' times. Communication takes no time. The two ``exponential`` formulas assume
exponential times; the others assume no particular distribution.
"""

from collections.abc import Callable, Sequence
from math import ceil, inf, log2, pi, sin, sqrt

import numpy as np
from numpy.typing import ArrayLike


def ring_allreduce_s(workers: int, nbytes: float, bytes_per_s: float, latency: float = 0.0) -> float:
    """Ring: n − 1 steps of reduce-scatter and n − 1 of all-gather, S/n bytes each: ``2(n−1)α + 2(n−1)/n · S/B``.

    The bandwidth term is close to the minimum possible; the latency term grows with n. Source: Patarasuk and Yuan 2009,
    "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations".
    """
    _check(workers, nbytes, bytes_per_s, latency)
    return 2 * (workers - 1) * latency + 2 * (workers - 1) / workers * nbytes / bytes_per_s


def tree_allreduce_s(workers: int, nbytes: float, bytes_per_s: float, latency: float = 0.0) -> float:
    """Binomial tree: reduce everything to one root, then broadcast: ``2⌈log₂n⌉(α + S/B)``.

    Only a few messages follow one another, but each carries the whole gradient. Source: Thakur, Rabenseifner and Gropp
    2005, "Optimization of Collective Communication Operations in MPICH".
    """
    _check(workers, nbytes, bytes_per_s, latency)
    return 2 * ceil(log2(workers)) * (latency + nbytes / bytes_per_s)


def halving_doubling_s(workers: int, nbytes: float, bytes_per_s: float, latency: float = 0.0) -> float:
    """Recursive halving, then doubling, for n a power of two: ``2log₂n·α + 2(n−1)/n · S/B``.

    The ring's bandwidth term with the tree's latency. Source: Rabenseifner 2004; Thakur, Rabenseifner and Gropp 2005.
    """
    _check(workers, nbytes, bytes_per_s, latency)
    if workers & (workers - 1):
        raise ValueError(f"Recursive halving-doubling needs a number of workers that is a power of two; got {workers}.")
    return 2 * log2(workers) * latency + 2 * (workers - 1) / workers * nbytes / bytes_per_s


def two_shot_allreduce_s(workers: int, nbytes: float, bytes_per_s: float, latency: float = 0.0) -> float:
    """Direct reduce-scatter and all-gather, each with all messages in parallel: ``2α + 2(n−1)/n · S/B``; 0 for one
    worker.

    It has the ring's bandwidth term and the latency of two messages; it is longer if messages wait in switches. Source:
    Wang et al. 2023, "ZeRO++: Extremely Efficient Collective Communication for Giant Model Training", and arithmetic:
    rank r sends its k-th message to rank r + k, so no two messages reach one receiver at the same time.

    >>> [round(formula(8, 80_000, 12.5e6, 1e-3), 4) for formula in (ring_allreduce_s, two_shot_allreduce_s)]
    [0.0252, 0.0132]
    """
    _check(workers, nbytes, bytes_per_s, latency)
    return 2 * latency * (workers > 1) + 2 * (workers - 1) / workers * nbytes / bytes_per_s


def parameter_server_s(
    workers: int, nbytes: float, bytes_per_s: float, latency: float = 0.0, servers: int = 1
) -> float:
    """A push by every worker, then a pull by every worker: ``2(α + max(n/s, 1)·S/B)``.

    All workers share each server's link: a star, not an all-reduce, so the bandwidth term grows with n. With fewer
    workers than servers, the workers' own links are the bottleneck. The formula assumes that the workers begin with
    different servers (if all begin with the same one, the last server waits: ``2(α + (n+s−1)S/(sB))``), and phases: no
    worker pulls before all have pushed, and none pushes before all have pulled. With phases it does not matter whether
    the links are full duplex. Links that messages share fairly, as in `Simulated`, lead to phases. Links that carry one
    message after another do not: see `parameter_server_step_s`. Source: Li et al. 2014, "Scaling Distributed Machine
    Learning with the Parameter Server", and arithmetic.

    >>> round(parameter_server_s(4, 80_000, 12.5e6, latency=1e-3), 4)
    0.0532
    """
    _check(workers, nbytes, bytes_per_s, latency, servers)
    return 2 * (latency + max(workers / servers, 1) * nbytes / bytes_per_s)


def parameter_server_step_s(
    workers: int,
    nbytes: float,
    bytes_per_s: float,
    latency: float = 0.0,
    servers: int = 1,
    *,
    pulled_nbytes: float | None = None,
    full_duplex: bool = True,
) -> float:
    """The least communication time of one of many BSP steps, in seconds. Add a worker's compute time.

    Each worker pushes S bytes and pulls P (None: P = S) over full-duplex links: ``2α + max(nS/s + P, S + nP/s) / B``. A
    gradient that takes t seconds adds t to each step, since it delays every worker's next push equally.

    A server answers the workers one after another, and the first worker with all its answers pushes again while others
    still pull. No order can do better. After the first server begins to answer, no worker has all its answers, and
    can push, before P/B; then that server receives nS/s. After the last worker has all its answers, its pushes take
    S/B, and a server that waits for their end sends nP/s. Links that carry one message after another reach this bound:
    always with one server; with several, in some order of sending and answering (for S = P, if all workers send to the
    servers in the same order, as `minips.connect` does). A half-duplex link carries both directions one after the
    other, so only latency is hidden: the same formula, but at least ``max(n/s, 1)·(S+P)/B``.
    Source: arithmetic, and a simulation of the orders in the tests.

    >>> [round(parameter_server_step_s(4, 80_000, 12.5e6, 1e-3, full_duplex=duplex), 4) for duplex in (True, False)]
    [0.034, 0.0512]
    """
    pulled = nbytes if pulled_nbytes is None else pulled_nbytes
    _check(workers, min(nbytes, pulled), bytes_per_s, latency, servers)
    share = workers / servers
    step = 2 * latency + max(share * nbytes + pulled, nbytes + share * pulled) / bytes_per_s
    return step if full_duplex else max(step, max(share, 1) * (nbytes + pulled) / bytes_per_s)


def pipelined_s(stages: Sequence[float], chunks: int = 1, fixed: float = 0.0) -> float:
    """Seconds for a gradient to pass ``stages`` in k successive chunks. A stage's seconds are for the whole gradient.

    A chunk takes a k-th of a stage's time plus ``fixed`` seconds: ``Σtᵢ/k + (k−1)·max(tᵢ)/k + (m+k−1)·fixed`` for m
    stages. The formula assumes that the stages work in parallel, each on one chunk at a time. Source: the arithmetic of
    an assembly line. Forwarding a message along a chain of n nodes is such a line: m = n − 1 links of S/B seconds,
    ``fixed`` = α.

    Encode 8 ms, send 10 ms, decode 6 ms: in one piece, and in eight chunks.

    >>> round(pipelined_s([8e-3, 10e-3, 6e-3]), 5), round(pipelined_s([8e-3, 10e-3, 6e-3], chunks=8), 5)
    (0.024, 0.01175)
    """
    if chunks < 1:
        raise ValueError(f"There must be at least one chunk, got {chunks}.")
    if not stages or min(stages) < 0 or fixed < 0:
        raise ValueError(f"Expected at least one stage and no negative seconds; got {list(stages)} and {fixed}.")
    return (sum(stages) + (chunks - 1) * max(stages)) / chunks + (len(stages) + chunks - 1) * fixed


def synchronous_round_s(times: Sequence[ArrayLike], backup: int = 0) -> float:
    """The mean seconds of a BSP round that waits for all but ``backup`` workers: E of the (n−b)-th smallest time.

    ``times`` holds, for each worker, the equally likely seconds of a step: one number for a worker of constant speed,
    or measured samples. All workers begin each round together; a late worker abandons its gradient. The result is exact
    for the samples' distributions: ``Σ t·(P(T ≤ t) − P(T < t))``, where the number of workers done at t is a sum of
    independent coin flips. Source: David and Nagaraja 2003, "Order Statistics", chapter 5; for backups Chen et al.
    2016, "Revisiting Distributed Synchronous SGD".

    >>> synchronous_round_s([0.01, 0.01, 0.01, 0.05]), synchronous_round_s([0.01, 0.01, 0.01, 0.05], backup=1)
    (0.05, 0.01)
    >>> round(synchronous_round_s([[1, 2]] * 2), 3)  # 2 unless both take 1
    1.75
    """
    samples = _samples(times)
    _check_backup(len(samples), backup)
    moments = np.unique(np.concatenate(samples))
    done = np.array([np.searchsorted(x, moments, side="right") / len(x) for x in samples])  # P(worker done at t)
    count = np.zeros((len(samples) + 1, len(moments)))  # P(this many done at t); the loop adds one worker after another
    count[0] = 1
    for p in done:
        count[1:] = count[1:] * (1 - p) + count[:-1] * p
        count[0] *= 1 - p
    over = count[len(samples) - backup :].sum(axis=0)
    return float(moments @ np.diff(over, prepend=0.0))


def asynchronous_update_s(times: Sequence[ArrayLike]) -> float:
    """The mean seconds between updates if no worker waits: ``1 / Σ 1/E[Tᵢ]``. `synchronous_round_s` explains ``times``.

    Each worker's gradients are a renewal process of rate 1/E[Tᵢ]; in a long run the rates add up.
    Source: Ross 2014, "Introduction to Probability Models", section 7.3.

    >>> asynchronous_update_s([0.01, 0.01, 0.01, 0.05])
    0.003125
    """
    means = [float(x.mean()) for x in _samples(times)]
    return 0.0 if min(means) == 0 else 1 / sum(1 / mean for mean in means)


def exponential_round_s(mean: float, workers: int, backup: int = 0) -> float:
    """`synchronous_round_s` for exponential times with one mean: ``(H_n − H_b) · mean``, H_k = 1 + 1/2 + … + 1/k.

    Between the k-th worker's end and the next one's, n − k workers compute, and the first of them takes mean/(n−k).
    Source: Rényi 1953, "On the Theory of Order Statistics".

    >>> round(exponential_round_s(1.0, workers=8), 4), round(exponential_round_s(1.0, workers=8, backup=2), 4)
    (2.7179, 1.2179)
    """
    _check_mean(mean, workers)
    _check_backup(workers, backup)
    return mean * sum(1 / k for k in range(backup + 1, workers + 1))


def exponential_update_s(mean: float, workers: int) -> float:
    """`asynchronous_update_s` for times with one mean, exponential or not: ``mean / n``.

    >>> exponential_update_s(0.08, workers=8)
    0.01
    """
    _check_mean(mean, workers)
    return mean / workers


def asynchronous_lr_limit(staleness: int, curvature: float) -> float:
    """The learning rate below which descent with gradients τ versions old is stable: ``2 sin(π / (2(2τ+1))) / λ``.

    The loss is a quadratic of largest curvature λ, and the delay is constant. Only below this rate are all roots of
    ``w ← w − ηλ·w[τ versions ago]`` within the unit circle. τ = 0 gives gradient descent's 2/λ; a large τ gives
    nearly π/((2τ+1)λ).
    Source: Levin and May 1976, "A note on difference-delay equations"; Yang et al. 2021, "PipeMare", lemma 1.

    >>> [round(asynchronous_lr_limit(staleness, curvature=1.0), 3) for staleness in range(4)]
    [2.0, 1.0, 0.618, 0.445]
    """
    if staleness < 0 or curvature <= 0:
        raise ValueError(f"The staleness is at least 0 and the curvature above 0; got {staleness} and {curvature}.")
    return 2 * sin(pi / (2 * (2 * staleness + 1))) / curvature


def crossover_nbytes(
    first: Callable[..., float], second: Callable[..., float], workers: int, bytes_per_s: float, latency: float
) -> float | None:
    """The bytes at which two exchanges cost the same. With fewer bytes, the exchange with less latency is faster.

    ``first`` and ``second`` are formulas of (workers, nbytes, bytes_per_s, latency) that grow linearly with the bytes,
    as all exchanges here do: ``a₁α + b₁S/B = a₂α + b₂S/B`` at ``S = αB (a₁ − a₂) / (b₂ − b₁)``. Returns None if the
    costs are equal at no size above 0: then one exchange is at least as good for every size.

    >>> from functools import partial
    >>> round(crossover_nbytes(ring_allreduce_s, tree_allreduce_s, 8, bytes_per_s=12.5e6, latency=1e-3))
    23529
    >>> two = partial(parameter_server_s, servers=2)
    >>> round(crossover_nbytes(ring_allreduce_s, two, 8, bytes_per_s=12.5e6, latency=1e-3))
    24000
    >>> crossover_nbytes(ring_allreduce_s, halving_doubling_s, 8, bytes_per_s=12.5e6, latency=1e-3) is None
    True
    """
    _check(workers, 0, bytes_per_s, latency)
    fixed = [formula(workers, 0, bytes_per_s, latency) for formula in (first, second)]
    slopes = [formula(workers, bytes_per_s, bytes_per_s, 0.0) / bytes_per_s for formula in (first, second)]
    if abs(slopes[0] - slopes[1]) <= 1e-12 * max(slopes):
        return None
    size = (fixed[1] - fixed[0]) / (slopes[0] - slopes[1])
    return size if size > 0 else None


def break_even_bandwidth(
    nbytes: float, encoded_nbytes: float, encode_s: float, decode_s: float, copies: float = 1
) -> float:
    """The bandwidth, in bytes per second, below which a codec pays: ``copies · (S − S') / (encode + decode)``.

    S bytes become S' and cross the bottleneck link ``copies`` times, one after another: once between two nodes, n times
    on a server's link with n workers. ``encode_s`` and ``decode_s`` are the seconds that the codec adds between the
    first worker's gradient and the update with the last one's. 0 if the codec never pays, infinity if it always does.
    Source: the question of Agarwal et al. 2022, "On the Utility of Gradient Compression in Distributed Training
    Systems", as arithmetic.

    >>> break_even_bandwidth(nbytes=4e6, encoded_nbytes=1e6, encode_s=0.02, decode_s=0.01)
    100000000.0
    """
    _check(1, min(nbytes, encoded_nbytes), 1.0, min(encode_s, decode_s))
    saved, spent = copies * (nbytes - encoded_nbytes), encode_s + decode_s
    if saved <= 0:
        return 0.0
    return saved / spent if spent > 0 else inf


def best_chunks(stages: Sequence[float], fixed: float) -> float:
    """The number of chunks that minimizes `pipelined_s`: ``√((Σtᵢ − max tᵢ) / fixed)``, at least 1; a real number.

    >>> best = best_chunks([8e-3, 10e-3, 6e-3], fixed=1e-4)
    >>> round(best, 1), min(range(1, 99), key=lambda k: pipelined_s([8e-3, 10e-3, 6e-3], k, 1e-4))
    (11.8, 12)
    """
    pipelined_s(stages, fixed=fixed)  # checks the arguments
    if fixed == 0:
        raise ValueError(f"If chunks cost nothing, more of them are always better; got fixed={fixed} s for each.")
    return max(1.0, sqrt((sum(stages) - max(stages)) / fixed))


def _check(workers: int, nbytes: float, bytes_per_s: float, latency: float, servers: int = 1) -> None:
    """Raise ValueError for impossible sizes of an exchange."""
    if workers < 1:
        raise ValueError(f"There must be at least one worker, got {workers}.")
    if servers < 1:
        raise ValueError(f"There must be at least one server, got {servers}.")
    if nbytes < 0 or latency < 0 or bytes_per_s <= 0:
        raise ValueError(
            "Sizes and latencies must be at least 0, and bandwidths above 0; "
            f"got {nbytes} bytes, {latency} s and {bytes_per_s} bytes per second."
        )


def _samples(times: Sequence[ArrayLike]) -> "list[np.ndarray[tuple[int], np.dtype[np.float64]]]":
    samples = [np.sort(np.asarray(x, float).reshape(-1)) for x in times]
    if not samples or any(len(x) == 0 or not np.isfinite(x).all() or x[0] < 0 for x in samples):
        raise ValueError("Expected at least one worker, with one or more finite, non-negative compute times for each.")
    return samples


def _check_mean(mean: float, workers: int) -> None:
    if mean < 0 or workers < 1:
        raise ValueError(f"Expected a mean of at least 0 s and at least one worker; got {mean} s and {workers}.")


def _check_backup(workers: int, backup: int) -> None:
    if not 0 <= backup < workers:
        raise ValueError(f"A round of {workers} workers can have 0 to {workers - 1} backup workers; got {backup}.")
