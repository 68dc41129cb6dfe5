"""One exchange of gradients: S bytes of each of n workers, summed or averaged, and the result with each of them again.

All assume n equal workers, one full-duplex link of ``bandwidth`` bytes per second for each node, ``latency`` seconds
for each message, bytes that pass through and are stored nowhere on the way, nothing else on the network and no time for
arithmetic. A gradient that is quantized to b bits a value has ``nbytes * b / 32`` bytes, and whatever its scales,
indices and headers take: `minips.cost.message_nbytes` counts those of a codec.

A lecture's own figures, with what went wrong in them. It takes 8 nodes, "10 Gbit/s", and "32 MB":

>>> bandwidth = 10 * 2**30 / 8  # a gigabit is 10⁹ bits, and this says 2³⁰: 7 % more
>>> round(ring_allreduce_s(8, 32 * 2**20, bandwidth), 5)  # what 32 MiB take
0.04375

Its code takes bits, and is given ``1024 * 1024 * 32``. That is 4 MiB, and 0.0055 seconds are an eighth of the above:

>>> lecture = 1024 * 1024 * 32 / 8
>>> [round(ring_allreduce_s(8, lecture * bits / 32, bandwidth), 4) for bits in (32, 16, 8)]
[0.0055, 0.0027, 0.0014]

It adds a latency of one millisecond once. A ring of 8 pays it for each of its 14 messages, one after the other:

>>> round(ring_allreduce_s(8, lecture, bandwidth) + 1e-3, 4), round(ring_allreduce_s(8, lecture, bandwidth, 1e-3), 4)
(0.0065, 0.0195)

It says of the ring that its latency is low and its use of the bandwidth poor. It is the reverse:

>>> ring_allreduce_s(64, 0, bandwidth, 1e-3) / tree_allreduce_s(64, 0, bandwidth, 1e-3)
10.5
>>> round(ring_allreduce_s(64, lecture, bandwidth) / tree_allreduce_s(64, lecture, bandwidth), 3)
0.164

And it uses this formula for a parameter server, whose link carries n gradients each way:

>>> round(parameter_server_s(8, lecture, bandwidth) / ring_allreduce_s(8, lecture, bandwidth), 1)
9.1
"""

from collections.abc import Sequence
from math import ceil, log2


def ring_allreduce_s(workers: int, nbytes: float, bandwidth: float, latency: float = 0.0) -> float:
    """Ring: n − 1 steps of reduce-scatter and n − 1 of all-gather, S/n bytes each: ``2(n−1)α + 2(n−1)/n · S/B``.

    The bandwidth term is nearly the least possible, the latency term grows with n.
    Source: Patarasuk and Yuan 2009, "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations".
    """
    check(workers, nbytes, bandwidth, latency)
    return 2 * (workers - 1) * latency + 2 * (workers - 1) / workers * nbytes / bandwidth


def tree_allreduce_s(workers: int, nbytes: float, bandwidth: float, latency: float = 0.0) -> float:
    """Binomial tree, all of it reduced to one root and broadcast again: ``2⌈log₂n⌉(α + S/B)``.

    Few messages one after the other, but each carries everything.
    Source: Thakur, Rabenseifner and Gropp 2005, "Optimization of Collective Communication Operations in MPICH".
    """
    check(workers, nbytes, bandwidth, latency)
    return 2 * ceil(log2(workers)) * (latency + nbytes / bandwidth)


def halving_doubling_s(workers: int, nbytes: float, bandwidth: float, latency: float = 0.0) -> float:
    """Recursive halving, then doubling, for n a power of two: ``2log₂n·α + 2(n−1)/n · S/B``.

    The ring's bandwidth at the tree's latency. Source: Rabenseifner 2004; Thakur, Rabenseifner and Gropp 2005.
    """
    check(workers, nbytes, bandwidth, latency)
    if workers & (workers - 1):
        raise ValueError(f"Recursive halving-doubling wants a power of two of workers, got {workers}.")
    return 2 * log2(workers) * latency + 2 * (workers - 1) / workers * nbytes / bandwidth


def parameter_server_s(workers: int, nbytes: float, bandwidth: float, latency: float = 0.0, servers: int = 1) -> float:
    """A push of every worker and then a pull of every worker: ``2(α + max(n/s, 1)·S/B)``.

    All the workers share each server's link, so this is a star, and no all-reduce: its bandwidth term grows with n.
    With fewer workers than servers the workers' own links are the narrow ones. It assumes that the workers begin with
    different servers (where all begin with the same one, the last hears later: ``2(α + (n+s−1)S/(sB))``), and phases:
    no worker pulls before all have pushed, and none pushes before all have pulled. With phases it does not matter
    whether the links are full duplex. Fair shares of the links make phases, as in `Simulated`; links that let messages
    through one after the other do not: see `parameter_server_step_s`.
    Source: Li et al. 2014, "Scaling Distributed Machine Learning with the Parameter Server", and arithmetic.

    >>> round(parameter_server_s(4, 80_000, 12.5e6, latency=1e-3), 4)
    0.0532
    """
    check(workers, nbytes, bandwidth, latency)
    _check_servers(servers)
    return 2 * (latency + max(workers / servers, 1) * nbytes / bandwidth)


def parameter_server_step_s(
    workers: int,
    nbytes: float,
    bandwidth: float,
    latency: float = 0.0,
    servers: int = 1,
    *,
    pulled_nbytes: float | None = None,
    full_duplex: bool = True,
) -> float:
    """The least time of one of many BSP steps without any computing: S bytes pushed and P pulled (None: P = S) by each
    worker, over full-duplex links: ``2α + max(nS/s + P, S + nP/s) / B``.

    A server answers the workers one after the other, and the first to have all its answers pushes again while the
    others still pull. No order can do better. From when the first server answers, no worker has all its answers, and
    can push, before P/B; then that server takes in nS/s. From when the last worker has all its answers, its pushes take
    S/B, and a server that waits for their end sends nP/s. Links that let messages through one after the other reach it:
    with one server always, with several in one order of sending and answering or another (where S = P, when all workers
    send to the servers in the same order, which `minips.connect` does). Over half-duplex links each node's link carries
    both ways one after the other, and what is hidden is latency: the same, but at least ``max(n/s, 1)·(S+P)/B``.
    Source: arithmetic, and a simulation of the orders in the tests.

    >>> [round(parameter_server_step_s(4, 80_000, 12.5e6, 1e-3, full_duplex=duplex), 4) for duplex in (True, False)]
    [0.034, 0.0512]
    """
    pulled = nbytes if pulled_nbytes is None else pulled_nbytes
    check(workers, min(nbytes, pulled), bandwidth, latency)
    _check_servers(servers)
    share = workers / servers
    step = 2 * latency + max(share * nbytes + pulled, nbytes + share * pulled) / bandwidth
    return step if full_duplex else max(step, max(share, 1) * (nbytes + pulled) / bandwidth)


def pipelined_s(stages: Sequence[float], chunks: int = 1, fixed: float = 0.0) -> float:
    """``stages`` that one gradient passes, in seconds for all of it, when it is cut into k chunks that follow each
    other.

    Each chunk costs each stage a k-th, and ``fixed`` seconds besides: ``Σtᵢ/k + (k−1)·max(tᵢ)/k + (m+k−1)·fixed`` for m
    stages. It assumes that the stages work side by side, each on one chunk at a time.
    Source: the arithmetic of an assembly line. A message passed on along a chain of n nodes is one: m = n − 1 links of
    S/B seconds, ``fixed`` = α.

    Encode 8 ms, send 10 ms, decode 6 ms: as one, and in eight chunks.

    >>> round(pipelined_s([8e-3, 10e-3, 6e-3]), 5), round(pipelined_s([8e-3, 10e-3, 6e-3], chunks=8), 5)
    (0.024, 0.01175)
    """
    if chunks < 1:
        raise ValueError(f"There must be at least one chunk, got {chunks}.")
    if not stages or min(stages) < 0 or fixed < 0:
        raise ValueError(f"Expected at least one stage, and seconds of at least 0; got {list(stages)} and {fixed}.")
    return (sum(stages) + (chunks - 1) * max(stages)) / chunks + (len(stages) + chunks - 1) * fixed


def check(workers: int, nbytes: float, bandwidth: float, latency: float) -> None:
    """ValueError where these are not sizes of an exchange."""
    if workers < 1:
        raise ValueError(f"There must be at least one worker, got {workers}.")
    if nbytes < 0 or latency < 0 or bandwidth <= 0:
        raise ValueError(
            "Sizes and latencies are at least 0 and bandwidths above 0; "
            f"got {nbytes} bytes, {latency} s and {bandwidth} bytes per second."
        )


def _check_servers(servers: int) -> None:
    if servers < 1:
        raise ValueError(f"There must be at least one server, got {servers}.")
