"""The exercises of "Match a schedule to a network"."""

import math
import sys
from dataclasses import replace
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import asks, case, distance, is_own, keeps, number, refuse_if, unaided
from minips.stage import Array
from minips.testing import check_exchange


@asks(
    "network.1",
    "Write down the order in which the ring visits the workers: all of one rack, then all of the next one. Which rank "
    "is at which place of it?",
    "The ring's schedule for a place is right as it is, except for two fields: the neighbours are places there, and "
    "have to become ranks.",
    "sorted(range(workers), key=self.racks.__getitem__) is such an order, and its method index returns the place of a "
    "rank. hop._replace(to=..., source=...) changes the neighbours of a hop.",
)
def rack_ring(exchange: Any, rng: np.random.Generator) -> str:
    """Write a ring that visits one rack after another, for any string of racks."""
    is_own(exchange, ps.AllReduce, "RackRing()")
    refuse_if(not hasattr(exchange, "racks"), "Your class has no field racks.")
    drawn = ["".join(map(str, rng.integers(0, racks, n))) for n, racks in ((4, 2), (7, 3), (9, 2), (12, 4), (16, 2))]
    for racks in ("01010101", "0", "10", "0110", "0011", "1100", "210210", *drawn):
        with case(f"With racks={racks!r}"):
            _crosses_least(replace(exchange, racks=racks), racks)
    with case(f"With racks={exchange.racks!r}"):
        keeps(check_exchange, replace(exchange, racks="0101"), workers=(4,))
    racks = "".join(map(str, rng.permutation([0, 0, 1, 1, 1])))
    problem = ps.LinearRegression(*ps.datasets.diabetes())
    mine, ring = (
        ps.train(problem, ps.Config(exchange=one, workers=5, steps=3), engine=ps.Threads()).params
        for one in (replace(exchange, racks=racks), ps.RingAllReduce())
    )
    far = distance(mine, ring)
    refuse_if(not far <= 1e-4, f"five workers trained with it, and ended {far:.3g} from where a ring ends.")
    return "It adds up, and crosses from rack to rack once in each hop, for 12 strings of racks. Five workers trained."


def _crosses_least(exchange: ps.AllReduce, racks: str) -> None:
    workers = len(racks)
    pieces = exchange.pieces(workers)
    schedules = [exchange.schedule(rank, workers) for rank in range(workers)]
    again = [exchange.schedule(rank, workers) for rank in reversed(range(workers))]
    refuse_if(again[::-1] != schedules, "the second time it is asked, schedule gives other hops. Keep no state.")
    lengths = {len(hops) for hops in schedules}
    refuse_if(len(lengths) > 1, f"the ranks have {sorted(lengths)} hops; all need the same number.")
    own: Array = np.random.default_rng(0).normal(size=(workers, pieces))
    values, sums = own.copy(), own.sum(axis=0)
    left, sent = dict.fromkeys(racks, 0), [0] * workers
    for turn, hops in enumerate(zip(*schedules, strict=True)):
        with case(f"(hop {turn})"):
            values = _turn(values, hops)
        for rank, hop in enumerate(hops):
            sent[rank] += len(hop.sends)
            if hop.to is not None and racks[hop.to] != racks[rank]:
                left[racks[rank]] += len(hop.sends)
    wrong = [rank for rank in range(workers) if not np.allclose(values[rank], sums, rtol=0, atol=1e-9)]
    refuse_if(wrong, f"rank {wrong[:1]} does not end with the sum.")
    most = 2 * (workers - 1)
    refuse_if(max(sent) * workers > most * pieces, f"a rank sends {max(sent) / pieces:.2f} S; a ring {most / workers}.")
    rack = max(left, key=left.__getitem__)
    refuse_if(
        left[rack] * workers > most * pieces,
        f"{left[rack] / pieces:.2f} S leave rack {rack}. With one message a hop it would be {most / workers:.2f} S.",
    )


def _turn(values: Array, hops: "tuple[ps.Hop, ...]") -> Array:
    """Return the values after all ranks' next hop."""
    after, ranks = values.copy(), range(len(hops))
    for rank, hop in enumerate(hops):
        for other in (hop.to, hop.source):
            refuse_if(other is not None and other not in ranks, f"rank {rank} has the neighbour {other!r}.")
        if hop.to is not None:
            deaf = hops[hop.to].source != rank
            refuse_if(deaf, f"rank {rank} sends to {hop.to}, which does not receive from it.")
        if hop.source is not None:
            other_hop = hops[hop.source]
            refuse_if(other_hop.to != rank, f"rank {rank} waits for {hop.source}, which does not send to it.")
            differs = (other_hop.sends, other_hop.adds) != (hop.receives, hop.adds)
            refuse_if(differs, f"rank {hop.source} sends {other_hop.sends}; rank {rank} expects {hop.receives}.")
            at = list(hop.receives)
            after[rank, at] = values[hop.source, at] + (values[rank, at] if hop.adds else 0)
    return after


class Listed:
    """An exchange whose schedules are listed."""

    def __init__(self, schedules: "list[list[ps.Hop]]", pieces: int) -> None:
        self._schedules, self._pieces = schedules, pieces

    def pieces(self, workers: int) -> int:
        """Return the number of pieces."""
        return self._pieces

    def schedule(self, rank: int, workers: int) -> "list[ps.Hop]":
        """Return a rank's hops."""
        return list(self._schedules[rank])


@asks(
    "network.2",
    "A hop is over when its slowest link is done. Which links can be the slowest: a worker's own, and which other?",
    "For each hop count, for each rack, the pieces of all its workers that go to the other rack: they share the cable. "
    "The two directions do not share it.",
    "In a loop over zip(*schedules): the longest of the ranks' own messages over bytes_per_s, or the larger of the two "
    "sums that leave a rack over cable_bytes_per_s. Add up the larger of both times.",
)
def racks_s(function: Any, rng: np.random.Generator) -> str:
    """Write the seconds of any schedule over two racks with a cable between them."""
    refuse_if(not callable(function), f"Expected the function racks_s, got {function!r}.")
    for trial in range(60):
        exchange, racks, name = _drawn(rng, trial)
        nbytes, rate = float(10 ** rng.uniform(3, 8)), float(10 ** rng.uniform(5, 9))
        cable = rate * float(10 ** rng.uniform(-1.5, 1.2))
        wanted = _seconds(exchange, racks, nbytes, rate, cable)
        told = f"{name}, racks {racks}, {nbytes:.4g} bytes, links of {rate:.4g} bytes/s, a cable of {cable:.4g}"
        with case(f"{told}:"):
            got = number(unaided(function, exchange, racks, nbytes, rate, cable, helpers=sys.modules[__name__]))
            refuse_if(not math.isclose(got, wanted, rel_tol=1e-6), f"it returned {got:.6g} s, expected {wanted:.6g}.")
    return "Right for 60 schedules: rings, trees, halving-doubling and drawn ones, over thin cables and thick ones."


def _seconds(exchange: Listed, racks: str, nbytes: float, rate: float, cable: float) -> float:
    workers, seconds = len(racks), 0.0
    for hops in zip(*(exchange.schedule(rank, workers) for rank in range(workers)), strict=True):
        left = {"0": 0, "1": 0}
        for rank, hop in enumerate(hops):
            if hop.to is not None and racks[hop.to] != racks[rank]:
                left[racks[rank]] += len(hop.sends)
        seconds += max(max(len(hop.sends) for hop in hops) / rate, max(left.values()) / cable)
    return seconds * nbytes / exchange.pieces(workers)


def _drawn(rng: np.random.Generator, trial: int) -> tuple[Listed, str, str]:
    """Return a schedule, the racks of its ranks, and its name."""
    kinds = (ps.RingAllReduce(), ps.TreeAllReduce(), ps.HalvingDoubling(), None)
    kind = kinds[trial % len(kinds)]
    workers = int(2 ** rng.integers(1, 5)) if kind == kinds[2] else int(rng.integers(2, 14))
    racks = "".join(map(str, rng.integers(0, 2, workers)))
    if kind is not None:
        schedules = [kind.schedule(rank, workers) for rank in range(workers)]
        return Listed(schedules, kind.pieces(workers)), racks, type(kind).__name__
    pieces = int(rng.integers(1, 9))
    drawn: list[list[ps.Hop]] = [[] for _ in range(workers)]
    for _ in range(int(rng.integers(1, 6))):
        turn = [ps.Hop() for _ in range(workers)]
        to = rng.permutation(workers)
        for rank, other in enumerate(map(int, to)):
            if rank != other and rng.random() < 0.6:
                some = range(int(rng.integers(0, pieces)), pieces)
                turn[rank] = turn[rank]._replace(to=other, sends=some)
                turn[other] = turn[other]._replace(source=rank, receives=some)
        for rank, hop in enumerate(turn):
            drawn[rank].append(hop)
    return Listed(drawn, pieces), racks, "a drawn schedule"
