"""Two exchanges, a tree in pieces and a line of workers; and the time of pulls while a neighbour pulls from the same
server.
"""

import threading
import time
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

import minips as ps
from minips.cost.traffic import FixedGradients
from minips.stage import Tensors, option


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


def tree_in_pieces_s(workers: int, nbytes: float, bytes_per_s: float, latency: float = 0.0, chunks: int = 16) -> float:
    """Return the seconds of `TreeInPieces`: ``2Lα + 2(L+k−1)/k · 2S/B`` for L levels, k pieces, 2 children a node.

    Each node receives the pieces of its two children, and the levels work at the same time.
    """
    levels, children = _levels(workers), min(2, workers - 1)
    if not levels:
        return 0.0
    return 2 * (levels * latency + ps.cost.pipelined_s([children * nbytes / bytes_per_s] * levels, chunks))


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


def pulls_s(params: Tensors, link: ps.Link, under_way: int, times: int = 9) -> list[float]:
    """Return the seconds of our pulls over this link, while a neighbour always has ``under_way`` pulls open."""
    config, enough = ps.Config(workers=2, consistency=ps.ASP(), link=link), threading.Event()
    with (
        ps.Server(params, config).serve() as server,
        ps.connect(server.address, config, worker=0, token=server.token) as mine,
        ps.connect(server.address, config, worker=1, token=server.token) as other,
    ):

        def neighbour() -> None:
            pulls = [other.pull() for _ in range(under_way)]
            while pulls:
                pulls.pop(0).result(timeout=60)
                if not enough.is_set():
                    pulls.append(other.pull())

        thread = threading.Thread(target=neighbour)
        thread.start()
        try:
            took = []
            for _ in range(times):
                began = time.monotonic()
                mine.pull().result(timeout=60)
                took.append(time.monotonic() - began)
            return took
        finally:
            enough.set()
            thread.join(timeout=60)
