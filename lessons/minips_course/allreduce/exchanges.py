"""Schedules as rounds, carried out and timed; and two exchanges, a tree in pieces and a line of workers."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

import minips as ps
from minips.cost.traffic import FixedGradients
from minips.stage import Array, option
from minips_course import gone

__getattr__ = gone(__name__)

Message = tuple[int, int, range, bool]
"""The rank that sends, the rank that receives, the pieces, and whether the receiver adds them or replaces its own."""


def rounds(exchange: ps.AllReduce, workers: int) -> list[list[Message]]:
    """Return the rounds of an exchange: its ranks' hops, side by side, without rounds that have no message."""
    ranks = [exchange.schedule(rank, workers) for rank in range(workers)]
    found = [
        [(rank, hop.to, hop.sends, hop.adds) for rank, hop in enumerate(hops) if hop.to is not None]
        for hops in zip(*ranks, strict=True)
    ]
    return [messages for messages in found if messages]


def carry_out(rounds: Sequence[Sequence[Message]], gradients: Sequence[Array], pieces: int) -> list[Array]:
    """Return each rank's array at the end."""
    held = [np.array_split(gradient, pieces) for gradient in gradients]
    for messages in rounds:
        sent = [(to, i, held[rank][i], adds) for rank, to, some, adds in messages for i in some]
        for to, i, came, adds in sent:
            held[to][i] = held[to][i] + came if adds else came
    return [np.concatenate(mine) for mine in held]


def sums(exchanges: Mapping[str, ps.AllReduce], workers: int = 4) -> dict[str, int]:
    """Return how many of the ranks' arrays at the end are the sum of all gradients."""
    gradients = list(np.random.default_rng(0).integers(0, 10, size=(workers, 8)))
    plans = [(rounds(exchange, workers), exchange.pieces(workers)) for exchange in exchanges.values()]
    ends = [end for plan, pieces in plans for end in carry_out(plan, gradients, pieces)]
    return {"right": sum(np.array_equal(end, sum(gradients)) for end in ends), "of": len(ends)}


def agreement(
    count: Callable[[ps.AllReduce, int], tuple[int, float]], exchanges: Mapping[str, ps.AllReduce]
) -> dict[str, int]:
    """Return in how many cases the rounds and bytes that are counted are those of the formulas of `minips.cost`."""
    formulas = {
        "ring": ps.cost.ring_allreduce_s,
        "tree": ps.cost.tree_allreduce_s,
        "halving": ps.cost.halving_doubling_s,
    }
    pairs = [
        (count(exchange, n), (formulas[name](n, 0, 1, latency=1), formulas[name](n, 1, 1)))
        for name, exchange in exchanges.items()
        for n in (2, 4, 8, 16, 64)
    ]
    return {"same": sum(np.allclose(*pair) for pair in pairs), "of": len(pairs)}


class Rounds(ps.AllReduce):
    """An all-reduce that is written as rounds. A rank may send one message a round, and receive one."""

    def pieces(self, workers: int) -> int:
        return workers

    @abstractmethod
    def rounds(self, workers: int) -> list[list[Message]]:
        """Return the rounds. In the first half of them all messages add, in the second half all replace."""

    def schedule(self, rank: int, workers: int) -> list[ps.Hop]:
        if not 0 <= rank < workers:
            raise ValueError(f"Of {workers} workers the ranks are 0 to {workers - 1}; got rank {rank}.")
        return [self._hop(rank, workers, messages) for messages in (self.rounds(workers) if workers > 1 else [])]

    def _hop(self, rank: int, workers: int, messages: Sequence[Message]) -> ps.Hop:
        hop = ps.Hop(adds=all(adds for _, _, _, adds in messages))
        for source, to, some, _ in messages:
            if not (0 <= source < workers and 0 <= to < workers):
                raise ValueError(f"A message from rank {source} to rank {to}, but there are {workers} workers.")
            if source == rank:
                hop = hop._replace(to=to, sends=range(some.start, some.stop))
            if to == rank:
                hop = hop._replace(source=source, receives=range(some.start, some.stop))
        return hop


FAR, THIN = ps.Link(bandwidth_bps=1e9, latency_s=20e-3), ps.Link(bandwidth_bps=8e6, latency_s=0)
"""Two links: over the first one the latency of a small message is nearly all of its time, the second one has none."""


def measure(exchange: ps.AllReduce, workers: int) -> tuple[float, float]:
    """Return the time of an exchange over `FAR`, in latencies, and over `THIN`, in transfers of a gradient (S/B)."""
    nbytes = 100_000
    transfer_s = 8 * nbytes / THIN.bandwidth_bps
    latencies = _exchange_s(exchange, workers, 4000, FAR) / FAR.latency_s
    return latencies, _exchange_s(exchange, workers, nbytes, THIN) / transfer_s


def _exchange_s(exchange: ps.AllReduce, workers: int, nbytes: int, link: ps.Link) -> float:
    """Return the median seconds of four exchanges among threads, each with its own emulated link."""
    config = ps.Config(workers=workers, steps=5, exchange=exchange, link=link)
    run = ps.train(only_exchange(nbytes, workers), config, engine=ps.Threads())
    return float(np.median(np.diff([seconds for seconds, _, _ in run.losses])))


def sent(push: ps.Codec, workers: int = 4, nbytes: int = 40_000, steps: int = 4) -> float:
    """Return the bytes that a worker of a ring sends in a step, in sizes of a gradient."""
    config = ps.Config(workers=workers, steps=steps, exchange=ps.RingAllReduce(), transport=ps.InProc(), push=push)
    run = ps.train(only_exchange(nbytes, workers), config, engine=ps.Threads())
    return run.bytes_sent / (workers * steps * nbytes)


@dataclass(frozen=True)
class TreeInPieces(ps.AllReduce):
    """Sends pieces, one after another, up a tree in which each node has two children, and down again.

    The children of rank r are 2r + 1 and 2r + 2. In even hops, a node receives a piece from its first child, and in
    odd hops from its second. Source: Sanders, Speck and Träff 2009, "Two-tree algorithms for full bandwidth
    broadcast, reduction and scan", section 2.
    """

    name = "treeinpieces"
    chunks: int = option(16, "the pieces that follow each other", minimum=1, maximum=64, step=1)

    def pieces(self, workers: int) -> int:
        return self.chunks

    def schedule(self, rank: int, workers: int) -> list[ps.Hop]:
        levels = _levels(workers)
        up = [ps.Hop()] * (2 * (levels + self.chunks - 1) if levels else 0)

        def turn(child: int, piece: int) -> int:
            """Return the hop in which a child sends a piece up: even for a first child, odd for a second."""
            return 2 * (levels - _levels(child + 1) + piece) + (child + 1) % 2

        for piece in range(self.chunks):
            one = range(piece, piece + 1)
            if rank > 0:
                at = turn(rank, piece)
                up[at] = up[at]._replace(to=(rank - 1) // 2, sends=one)
            for child in (2 * rank + 1, 2 * rank + 2):
                if child < workers:
                    at = turn(child, piece)
                    up[at] = up[at]._replace(source=child, receives=one)
        down = [ps.Hop(hop.source, hop.receives, hop.to, hop.sends, adds=False) for hop in reversed(up)]
        return up + down


def _levels(workers: int) -> int:
    """Return the number of levels below the root of a tree with two children at each node."""
    return workers.bit_length() - 1


class DownTheLine(ps.AllReduce):
    """Workers in a line. Pieces are summed on their way from rank 0 to the last rank, and then travel back.

    A subclass defines the number of pieces, the number of turns of one way, and each place's pieces in each turn.
    """

    @abstractmethod
    def turns(self, workers: int) -> int:
        """Return the number of turns from one end to the other."""

    @abstractmethod
    def turn(self, place: int, t: int) -> tuple[int | None, int | None]:
        """Return the pieces that this place receives and sends in turn t; None or an impossible number means none."""

    def schedule(self, rank: int, workers: int) -> list[ps.Hop]:
        last = workers - 1
        there = self._way(rank, rank - 1, rank + 1, workers, adds=True)
        return there + self._way(last - rank, rank + 1, rank - 1, workers, adds=False)

    def _way(self, place: int, before: int, after: int, workers: int, *, adds: bool) -> list[ps.Hop]:
        known = range(self.pieces(workers))
        hops = []
        for t in range(self.turns(workers) if workers > 1 else 0):
            comes, goes = self.turn(place, t)
            hop = ps.Hop(adds=adds)
            if place > 0 and comes is not None and comes in known:
                hop = hop._replace(source=before, receives=range(comes, comes + 1))
            if place < workers - 1 and goes is not None and goes in known:
                hop = hop._replace(to=after, sends=range(goes, goes + 1))
            hops.append(hop)
        return hops


def only_exchange(nbytes: int, workers: int = 8) -> ps.Problem:
    """Return a problem whose gradients take no time, so that a run consists only of exchanges."""
    nothing = {"w": np.zeros(nbytes // 4, np.float32)}
    return FixedGradients(nothing, nothing, rows=workers)
