"""Closed forms for one exchange of gradients, in SI units: bytes, seconds, bytes per second.

All assume n equal workers, one full-duplex link of ``bandwidth`` bytes per second for each node, ``latency`` seconds
for each message, nothing else on the network and no time for arithmetic. A gradient that is quantized to b bits a value
has ``nbytes * b / 32`` bytes, and whatever its scales, indices and headers take.
"""

from math import ceil, log2


def ring_allreduce_s(workers: int, nbytes: float, bandwidth: float, latency: float = 0.0) -> float:
    """Ring: n − 1 steps of reduce-scatter and n − 1 of all-gather, S/n bytes each: ``2(n−1)α + 2(n−1)/n · S/B``.

    The bandwidth term is nearly the least possible, the latency term grows with n.
    Source: Patarasuk and Yuan 2009, "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations".

    A 32 MiB gradient, 8 nodes, a link of 10 · 2³⁰ bit/s:

    >>> ring_allreduce_s(8, 32 * 2**20, 10 * 2**30 / 8)
    0.04375

    Code that takes the size in bits, and is given ``1024 * 1024 * 32`` for "32 MB", computes this for 4 MiB instead:

    >>> round(ring_allreduce_s(8, 1024 * 1024 * 32 / 8, 10 * 2**30 / 8), 4)
    0.0055
    """
    _check(workers, nbytes, bandwidth, latency)
    return 2 * (workers - 1) * latency + 2 * (workers - 1) / workers * nbytes / bandwidth


def tree_allreduce_s(workers: int, nbytes: float, bandwidth: float, latency: float = 0.0) -> float:
    """Binomial tree, all of it reduced to one root and broadcast again: ``2⌈log₂n⌉(α + S/B)``.

    Few messages one after the other, but each carries everything.
    Source: Thakur, Rabenseifner and Gropp 2005, "Optimization of Collective Communication Operations in MPICH".
    """
    _check(workers, nbytes, bandwidth, latency)
    return 2 * ceil(log2(workers)) * (latency + nbytes / bandwidth)


def halving_doubling_s(workers: int, nbytes: float, bandwidth: float, latency: float = 0.0) -> float:
    """Recursive halving, then doubling, for n a power of two: ``2log₂n·α + 2(n−1)/n · S/B``.

    The ring's bandwidth at the tree's latency. Source: Rabenseifner 2004; Thakur, Rabenseifner and Gropp 2005.
    """
    _check(workers, nbytes, bandwidth, latency)
    if workers & (workers - 1):
        raise ValueError(f"Recursive halving-doubling wants a power of two of workers, got {workers}.")
    return 2 * log2(workers) * latency + 2 * (workers - 1) / workers * nbytes / bandwidth


def parameter_server_s(workers: int, nbytes: float, bandwidth: float, latency: float = 0.0, servers: int = 1) -> float:
    """A push of every worker and then a pull of every worker, through the servers' links: ``2(α + nS/(sB))``.

    All the workers share each server's link, so this is a star, and no all-reduce: its bandwidth term grows with n. It
    assumes n ≥ s, so that the servers' links are the narrow ones, and phases: nobody pulls before all have pushed, and
    nobody pushes before all have pulled. In a run over full-duplex links the first worker pushes again while the others
    still pull, and with no time for computing a step takes ``2α + (n+1)S/(sB)`` instead.
    Source: Li et al. 2014, "Scaling Distributed Machine Learning with the Parameter Server", and arithmetic.

    >>> round(parameter_server_s(4, 80_000, 12.5e6, latency=1e-3), 4)
    0.0532
    """
    _check(workers, nbytes, bandwidth, latency)
    if servers < 1:
        raise ValueError(f"There must be at least one server, got {servers}.")
    return 2 * (latency + workers * nbytes / (servers * bandwidth))


def _check(workers: int, nbytes: float, bandwidth: float, latency: float) -> None:
    if workers < 1:
        raise ValueError(f"There must be at least one worker, got {workers}.")
    if nbytes < 0 or latency < 0 or bandwidth <= 0:
        raise ValueError(
            "Sizes and latencies are at least 0 and bandwidths above 0; "
            f"got {nbytes} bytes, {latency} s and {bandwidth} bytes per second."
        )
