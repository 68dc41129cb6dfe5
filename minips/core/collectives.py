"""All-reduces: around a ring, up and down a tree, by halves, and in two shots. `AllReduce` is their contract."""

from dataclasses import dataclass

from minips.core.exchange import AllReduce, Hop
from minips.stage import register


@register
@dataclass(frozen=True)
class RingAllReduce(AllReduce):
    """Around a ring: n − 1 hops add up pieces, then n − 1 hops pass on the sums, S/n bytes each. All links stay busy.

    Each rank sends ``2(n−1)/n · S`` bytes in all, nearly the minimum. Rank r owns piece r + 1 (mod n).
    Source: Patarasuk and Yuan 2009, "Bandwidth Optimal All-reduce Algorithms for Clusters of Workstations".

    >>> RingAllReduce().schedule(rank=0, workers=2)[0]
    Hop(to=1, sends=range(0, 1), source=1, receives=range(1, 2), adds=True)
    """

    name = "ring"

    def schedule(self, rank: int, workers: int) -> list[Hop]:
        _check(rank, workers)
        after, before = (rank + 1) % workers, (rank - 1) % workers
        return [
            Hop(after, _one(rank + first - turn, workers), before, _one(rank + first - turn - 1, workers), not first)
            for first in (0, 1)
            for turn in range(workers - 1)
        ]


@register
@dataclass(frozen=True)
class TreeAllReduce(AllReduce):
    """Up a binomial tree to rank 0, and down again, in ``2⌈log₂n⌉`` rounds. Each message contains all values.

    Each rank other than 0 sends S bytes up, and every rank sends S bytes down to each of its children.
    Source: Thakur, Rabenseifner and Gropp 2005, "Optimization of Collective Communication Operations in MPICH".

    >>> TreeAllReduce().schedule(rank=1, workers=2)[0]
    Hop(to=0, sends=range(0, 1), source=None, receives=range(0, 0), adds=True)
    """

    name = "tree"

    def pieces(self, workers: int) -> int:
        return 1

    def schedule(self, rank: int, workers: int) -> list[Hop]:
        _check(rank, workers)
        up, everything = [], range(1)
        for distance in (2**level for level in range((workers - 1).bit_length())):
            if rank % (2 * distance) == distance:
                up.append(Hop(to=rank - distance, sends=everything))
            elif rank % (2 * distance) == 0 and rank + distance < workers:
                up.append(Hop(source=rank + distance, receives=everything))
            else:
                up.append(Hop())
        return _and_back(up)


@register
@dataclass(frozen=True)
class HalvingDoubling(AllReduce):
    """Recursive halving, then doubling: ``2log₂n`` hops with partners n/2, n/4, … 1 ranks away; n is a power of two.

    Partners swap halves of their remaining pieces: first S/2 bytes, then half as much each time; afterwards the hops
    run in reverse. A rank sends ``2(n−1)/n · S`` bytes: a ring's bandwidth with a tree's latency. Rank r owns piece r.
    Source: Rabenseifner 2004, "Optimization of Collective Reduction Operations"; Thakur, Rabenseifner and Gropp 2005.

    >>> [(hop.to, hop.sends) for hop in HalvingDoubling().schedule(rank=0, workers=4)]
    [(2, range(2, 4)), (1, range(1, 2)), (1, range(0, 1)), (2, range(0, 2))]
    """

    name = "halvingdoubling"

    def schedule(self, rank: int, workers: int) -> list[Hop]:
        _check(rank, workers)
        if workers & (workers - 1):
            raise ValueError(
                f"Recursive halving-doubling needs a number of workers that is a power of two; got {workers}. "
                "Take another number, or a ring or a tree."
            )
        halving = []
        for distance in (2**level for level in reversed(range(workers.bit_length() - 1))):
            partner = rank ^ distance
            mine, theirs = (
                range(owner // distance * distance, (owner // distance + 1) * distance) for owner in (rank, partner)
            )
            halving.append(Hop(partner, theirs, partner, mine))
        return _and_back(halving)


@register
@dataclass(frozen=True)
class TwoShot(AllReduce):
    """Direct reduce-scatter and all-gather: ranks send each piece, S/n bytes, to its owner, which sends the sum to all.

    A rank sends ``2(n−1)/n · S`` bytes, as in a ring, but all messages of a half leave together: two latencies, not
    2(n−1). A lossy codec adds an error to each gradient, except the owner's, and to the sum. With `Uniform` and
    independent gradients a ring's error is ``√(n(n+1)/2 / (2n−1))`` times as large. Sums are in rank order; with the
    exact codec they have the bits of `PS`, except for half floats. Rank r owns piece r.
    Source: `two_shot_all_reduce_` of PyTorch's symmetric memory; with quantizers, Wang et al. 2023, "ZeRO++", qgZ.

    >>> [(hop.to, hop.sends) for hop in TwoShot().schedule(rank=0, workers=3)]
    [(1, range(1, 2)), (2, range(2, 3)), (1, range(0, 1)), (2, range(0, 1))]
    """

    name = "twoshot"
    direct = True

    def schedule(self, rank: int, workers: int) -> list[Hop]:
        _check(rank, workers)
        far = [((rank + away) % workers, (rank - away) % workers) for away in range(1, workers)]
        mine = _one(rank, workers)
        return [
            *(Hop(to, _one(to, workers), source, mine) for to, source in far),
            *(Hop(to, mine, source, _one(source, workers), adds=False) for to, source in far),
        ]


def _and_back(hops: list[Hop]) -> list[Hop]:
    """These hops, then their mirror images, which send each piece back as a complete sum."""
    return [*hops, *(Hop(hop.source, hop.receives, hop.to, hop.sends, adds=False) for hop in reversed(hops))]


def _one(piece: int, pieces: int) -> range:
    """The range of one piece, counted modulo ``pieces``."""
    return range(piece % pieces, piece % pieces + 1)


def _check(rank: int, workers: int) -> None:
    if not 0 <= rank < workers:
        raise ValueError(f"Of {workers} workers the ranks are 0 to {workers - 1}; got rank {rank}.")
