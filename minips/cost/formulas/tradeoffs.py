"""Where one way becomes better than another: sizes, bandwidths, numbers of chunks."""

from collections.abc import Callable, Sequence
from math import inf, sqrt

from minips.cost.formulas.exchange import check


def crossover_nbytes(
    first: Callable[..., float], second: Callable[..., float], workers: int, bandwidth: float, latency: float
) -> float | None:
    """The bytes at which two exchanges cost the same; the one of lower latency is the faster below.

    ``first`` and ``second`` are formulas of (workers, nbytes, bandwidth, latency) that grow linearly with the bytes, as
    all of `minips.cost.formulas.exchange` do: ``a₁α + b₁S/B = a₂α + b₂S/B`` at ``S = αB (a₁ − a₂) / (b₂ − b₁)``. None
    where there is no such size above 0: one of them is at least as good for every size.

    >>> from functools import partial
    >>> from minips.cost import halving_doubling_s, parameter_server_s, ring_allreduce_s, tree_allreduce_s
    >>> round(crossover_nbytes(ring_allreduce_s, tree_allreduce_s, 8, bandwidth=12.5e6, latency=1e-3))
    23529
    >>> two = partial(parameter_server_s, servers=2)
    >>> round(crossover_nbytes(ring_allreduce_s, two, 8, bandwidth=12.5e6, latency=1e-3))
    24000
    >>> crossover_nbytes(ring_allreduce_s, halving_doubling_s, 8, bandwidth=12.5e6, latency=1e-3) is None
    True
    """
    check(workers, 0, bandwidth, latency)
    fixed = [formula(workers, 0, bandwidth, latency) for formula in (first, second)]
    slopes = [formula(workers, bandwidth, bandwidth, 0.0) / bandwidth for formula in (first, second)]
    if abs(slopes[0] - slopes[1]) <= 1e-12 * max(slopes):
        return None
    size = (fixed[1] - fixed[0]) / (slopes[0] - slopes[1])
    return size if size > 0 else None


def break_even_bandwidth(
    nbytes: float, encoded_nbytes: float, encode_s: float, decode_s: float, copies: float = 1
) -> float:
    """The bandwidth, in bytes per second, below which a codec pays: ``copies · (S − S') / (encode + decode)``.

    S bytes become S' and cross the narrow link ``copies`` times one after the other: 1 between two nodes, n on the link
    of a server that n workers push to. ``encode_s`` and ``decode_s`` are the seconds on the way from the first worker's
    gradient to the last one's update that would not be spent without the codec. 0 where the codec never pays, infinity
    where it always does. Source: the question of Agarwal et al. 2022, "On the Utility of Gradient Compression in
    Distributed Training Systems", as arithmetic.

    >>> break_even_bandwidth(nbytes=4e6, encoded_nbytes=1e6, encode_s=0.02, decode_s=0.01)
    100000000.0
    """
    check(1, min(nbytes, encoded_nbytes), 1.0, min(encode_s, decode_s))
    saved, spent = copies * (nbytes - encoded_nbytes), encode_s + decode_s
    if saved <= 0:
        return 0.0
    return saved / spent if spent > 0 else inf


def best_chunks(stages: Sequence[float], fixed: float) -> float:
    """How many chunks make `pipelined_s` least: ``√((Σtᵢ − max tᵢ) / fixed)``, and at least 1; a real number.

    >>> from minips.cost import pipelined_s
    >>> best = best_chunks([8e-3, 10e-3, 6e-3], fixed=1e-4)
    >>> round(best, 1), min(range(1, 99), key=lambda k: pipelined_s([8e-3, 10e-3, 6e-3], k, 1e-4))
    (11.8, 12)
    """
    if fixed <= 0:
        raise ValueError(f"Chunks that cost nothing by themselves cannot be too many; got {fixed} s for each.")
    return max(1.0, sqrt((sum(stages) - max(stages)) / fixed))
