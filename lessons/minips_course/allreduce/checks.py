"""The exercises of "Do without a server"."""

import math
from typing import Any

import numpy as np

import minips as ps
from minips.cost import ring_allreduce_s, tree_allreduce_s
from minips.lab.course.exercises import Refused, asks, case, distance, is_own, keeps, number, refuse_if, unaided
from minips.stage import Array
from minips.testing import check_exchange


@asks(
    "allreduce.1",
    "Write both formulas as a·α + b·S/B: a counts messages, and b counts copies of S. Set them equal.",
    "Bring the terms with α to one side, those with S to the other, and solve for S. For the tree, a equals b.",
    "⌈log₂n⌉ is (workers - 1).bit_length(). The table above has the messages and copies of both ways; put all "
    "four numbers into your formula for S.",
)
def crossover(function: Any, rng: np.random.Generator) -> str:
    """Derive crossover: the size at which ring and tree take equally long, from workers, bandwidth and latency."""
    refuse_if(not callable(function), f"Expected the function crossover, got {function!r}.")
    powers = [2**k + one for k in range(2, 17) for one in (0, 1)]
    for workers in (8, 2, 3, *powers, *(int(10 ** rng.uniform(0.8, 5)) for _ in range(20))):
        bandwidth, latency = float(10 ** rng.uniform(3, 12)), float(10 ** rng.uniform(-8, 1))
        with case(f"crossover(workers={workers}, bandwidth={bandwidth:.3g}, latency={latency:.2g})"):
            size = number(unaided(function, workers, bandwidth, latency))
            refuse_if(not 0 <= size < math.inf, f"is {size}, which is not a number of bytes.")
            ring, tree = (cost(workers, size, bandwidth, latency) for cost in (ring_allreduce_s, tree_allreduce_s))
            if workers < 4:
                refuse_if(size > 1e-9, f"is {size:.4g}, but the ring is at least as fast for every size: 0.")
            elif not math.isclose(ring, tree, rel_tol=1e-6):
                took = f"the ring takes {ring:.4g} s and the tree {tree:.4g} s"
                raise Refused(f"is {size:.4g} bytes. For that many {took}.")
    return "At your sizes ring and tree take equally long, for 53 numbers of workers, including odd ones."


@asks(
    "allreduce.2",
    "Draw a table with a row for each place and a column for each turn. Each field has the piece that is sent on.",
    "Place 0 sends piece t in turn t; each next place sends it a turn later. When does the last piece reach the end?",
    "Each of the three methods is one line. The last piece starts n − 1 turns after the first one. Numbers that no "
    "piece has need no special case.",
)
def line(exchange: Any, rng: np.random.Generator) -> str:
    """Cut the values into pieces that travel down the line one after another."""
    closed = "A ring closes the line, but here the last worker is not a neighbour of the first."
    refuse_if(isinstance(exchange, ps.RingAllReduce), closed)
    is_own(exchange, ps.AllReduce, "Line()")
    for workers in (1, 2, 3, 4, int(rng.integers(5, 10)), int(rng.integers(34, 60))):
        with case(f"With {workers} workers"):
            _adds_up(exchange, workers, rng)
    keeps(check_exchange, exchange, workers=(2, 3))
    workers = int(rng.integers(3, 6))
    problem = ps.LinearRegression(*ps.datasets.diabetes())
    mine, ring = (
        ps.train(problem, ps.Config(exchange=one, workers=workers, steps=4), engine=ps.Threads()).params
        for one in (exchange, ps.RingAllReduce())
    )
    far = distance(mine, ring)
    refuse_if(not far <= 1e-4, f"{workers} workers trained with it, and ended {far:.3g} from where a ring ends.")
    return f"It adds up, only neighbours talk, and no link idles for long. {workers} workers trained with it."


def _adds_up(exchange: ps.AllReduce, workers: int, rng: np.random.Generator) -> None:
    pieces = exchange.pieces(workers)
    refuse_if(not isinstance(pieces, int) or pieces < 1, f"pieces({workers}) is {pieces!r}; expected 1 or more.")
    schedules = [exchange.schedule(rank, workers) for rank in range(workers)]
    again = [exchange.schedule(rank, workers) for rank in reversed(range(workers))]
    refuse_if(again[::-1] != schedules, "the second time it is asked, schedule gives other hops. Keep no state.")
    lengths = {len(hops) for hops in schedules}
    refuse_if(len(lengths) > 1, f"the ranks have {sorted(lengths)} hops; all need the same number.")
    own: Array = rng.normal(size=(workers, pieces))
    values, sums, turns = own.copy(), own.sum(axis=0), 0.0
    for turn, hops in enumerate(zip(*schedules, strict=True)):
        with case(f"(hop {turn})"):
            values = _turn(values, hops)
        turns += max(len(hop.sends) for hop in hops) / pieces
    for rank, ends in enumerate(values):
        near = np.allclose(ends, sums, rtol=0, atol=1e-9)
        shown = f"{ends[:8].round(3).tolist()}; the sums of the pieces are {sums[:8].round(3).tolist()}"
        refuse_if(not near, f"rank {rank} ends with {shown}.")
    time = f"it takes the time of {turns:.2f} whole gradients, hop by hop"
    refuse_if(turns > 4.05, f"{time}. In pieces it can do with 4 or less.")


def _turn(values: Array, hops: "tuple[ps.Hop, ...]") -> Array:
    """Return the values after all ranks' next hop."""
    after = values.copy()
    for rank, hop in enumerate(hops):
        if hop.to is not None:
            refuse_if(abs(hop.to - rank) != 1, f"rank {rank} sends to {hop.to}, which is not a neighbour.")
            deaf = hops[hop.to].source != rank
            refuse_if(deaf, f"rank {rank} sends to {hop.to}, which does not receive from it.")
        if hop.source is not None:
            other = hops[hop.source]
            refuse_if(other.to != rank, f"rank {rank} waits for {hop.source}, which does not send to it.")
            sent = f"rank {hop.source} sends {other.sends} with adds={other.adds}"
            differs = (other.sends, other.adds) != (hop.receives, hop.adds)
            refuse_if(differs, f"{sent}; rank {rank} expects {hop.receives} with adds={hop.adds}.")
            at = list(hop.receives)
            after[rank, at] = values[hop.source, at] + (values[rank, at] if hop.adds else 0)
    return after
