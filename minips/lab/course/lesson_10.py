"""Lesson 10: do without a server."""

import math
from typing import Any

import numpy as np

import minips as ps
from minips.cost import ring_allreduce_s, tree_allreduce_s
from minips.lab.course.exercises import Refused, asks, case, conforms, distance, number, refuse_if
from minips.lab.course.questions import Option, question, sentence
from minips.stage import Array

question(
    "10.1",
    "Four workers. How long does a step by ring take, compared with one server?",
    Option("clearly less", lambda TODO: False, "TODO"),
    Option("about the same", lambda TODO: False, "TODO"),
    Option(
        "clearly more",
        lambda TODO: False,
        "One server's link carries the gradients of all four workers, and four answers. In the ring each link"
        " carries 1.5 gradients each way, and all links work at the same time. Here the bytes take much "
        "longer than the ring's six latencies.",
    ),
    expected="clearly more",
    otherwise="TODO",
    telling=[],
)

question(
    "10.2",
    "Four workers, a small gradient, a long way to travel. Which way is the slowest now?",
    Option("one server", lambda TODO: False, "TODO"),
    Option("the tree", lambda TODO: False, "TODO"),
    Option(
        "the ring",
        lambda TODO: False,
        "The ring has six hops, one after the other, and each of them costs a latency. Tree and "
        "halving-doubling have four, a server has two. With few bytes only the latencies count.",
    ),
    expected="the ring",
    otherwise="TODO",
    telling=[],
)

question(
    "10.3",
    "The cable between the racks has a fifth of a link's bandwidth. How much slower is the zigzag ring?",
    Option("not at all: the same hops, the same bytes", lambda TODO: False, "TODO"),
    Option("about 2 times", lambda TODO: False, "TODO"),
    Option(
        "about 4 times",
        lambda TODO: False,
        "In order, one message crosses the thin cable each way in every hop. In zigzag four messages cross it"
        " each way, and share it. Every hop waits for its slowest message.",
    ),
    expected="about 4 times",
    otherwise="TODO",
    telling=[],
)

sentence("10.1", "By the formulas, from fast to slow: {order}.")

sentence(
    "10.2",
    "Of one server's time a step takes: ring {ring:.0%}, halving-doubling {halving:.0%}, tree {tree:.0%},"
    " four servers {four:.0%}.",
    expect="ring < 0.7 and halving < 0.7 and ring < 0.7 * tree",
    timed=True,
)

sentence(
    "10.3",
    "One server: with both directions busy the formula gives {share:.0%} of the one with two phases. "
    "Measured: {measured:.0%}.",
    expect="measured > 0.9 * share",
    timed=True,
)

sentence(
    "10.4",
    "Four servers: measured {four:+.0%} against the formula. Ring: {ring:+.0%}.",
    expect="four > -0.1 and ring > -0.1",
    timed=True,
)

sentence(
    "10.5",
    "With 8 workers one server takes {phases:.1f} times as long as the ring, {overlapped:.1f} times with "
    "pushes and pulls at the same time.",
    expect="9 < phases < 9.3 and 5 < overlapped < 5.3",
)

sentence(
    "10.6",
    "Of one server's time a step takes: tree {tree:.0%}, halving-doubling {halving:.0%}, ring {ring:.0%}.",
    expect="ring > 1.8",
    timed=True,
)

sentence(
    "10.7",
    "With 64 workers the ring has {latency:.1f} times the tree's latency, and its bytes take {size:.0%} "
    "of the tree's time. So it is the reverse: a ring has a high latency, and uses the bandwidth well.",
    expect="latency > 10 and size < 0.2",
)

sentence("10.8", "{kilobytes:.0f} kB: fastest {fastest}, slowest {slowest}.")

sentence(
    "10.9",
    "At {right} of {count} sizes the way that the formulas choose is within 3 % of the fastest simulated one.",
    expect="right == count",
)

sentence(
    "10.10",
    "From 4 to 64 workers a step takes longer by these factors: one server {one:.1f}, four servers "
    "{four:.1f}, ring {ring:.1f}, halving-doubling {halving:.1f}, as many servers as workers {n:.1f}.",
    expect="one > 15 and halving < 1.6 and n == 1",
)

sentence(
    "10.11",
    "{way}: twenty tensors alone take {times:.1f} times as long as one buffer, in virtual time.",
    expect="times > 1",
)

sentence(
    "10.12",
    "Accuracy with 32 bits: {accuracy:.1%} in the mean of {count} seeds. With 16 bits it differs by "
    "{points:.1f} percentage points at most, in any of them. (One image more or less is {image:.1f} "
    "points.) Bytes: {share:.0%}, for headers do not shrink.",
    expect="points < 2 and share < 0.7",
)

sentence(
    "10.13",
    "The largest error with fp16 is {half:.3%} of the mean, the smallest with 4 bits {four:.1%}.",
    expect="half < 0.01 < four",
)

sentence("10.14", "Zigzag takes {times:.1f} times as long, in virtual time.", expect="3 < times < 5")

sentence(
    "10.15",
    "Beside the neighbour a pull takes {virtual:.2f} times as long in virtual time, {emulated:.2f} times "
    "as long over the emulated link. By fair shares it would be 2.",
    expect="1.8 < virtual < 2.1 and 1.3 < emulated < 3",
    timed=True,
)


@asks(
    "10.1",
    "Write both formulas with a for the messages and b for the copies: a·α + b·S/B. Set them equal.",
    "S = αB (a₁ − a₂) / (b₂ − b₁). The tree has a₂ = b₂ = 2⌈log₂n⌉.",
    "⌈log₂n⌉ is (workers - 1).bit_length(). The ring's messages and copies stand in the table above; put all "
    "four into S.",
)
def crossover(function: Any, rng: np.random.Generator) -> str:
    """Derive crossover, of workers, bandwidth and latency: the bytes at which ring and tree cost the same."""
    refuse_if(not callable(function), f"Expected the function crossover, got {function!r}.")
    for workers in (4, 8, 2, 3, 5, *map(int, rng.integers(6, 300, size=20))):
        bandwidth, latency = float(10 ** rng.uniform(5, 10)), float(10 ** rng.uniform(-6, -1))
        with case(f"crossover(workers={workers}, bandwidth={bandwidth:.3g}, latency={latency:.2g})"):
            size = number(function(workers, bandwidth, latency))
            refuse_if(not 0 <= size < math.inf, f"is {size}, which is no number of bytes.")
            ring, tree = (cost(workers, size, bandwidth, latency) for cost in (ring_allreduce_s, tree_allreduce_s))
            if workers < 4:
                refuse_if(size > 1e-9, f"is {size:.4g}, but the ring is at least as fast for every size: 0.")
            elif not math.isclose(ring, tree, rel_tol=1e-6):
                took = f"the ring takes {ring:.4g} s and the tree {tree:.4g} s"
                raise Refused(f"is {size:.4g} bytes. For so many {took}.")
    return "Ring and tree cost the same there, for 25 numbers of workers, odd ones included."


@asks(
    "10.2",
    "With k pieces, rank r receives piece p in turn r − 1 + p of the way up, and passes it on in turn r + p.",
    "The way up has n − 1 + k − 1 turns: in turn t rank r sends piece t − r, if there is such a piece.",
    "The way down is the same from the other end: the distance from the last rank takes the place of the rank.",
)
def line(exchange: Any, rng: np.random.Generator) -> str:
    """Cut the values into pieces that follow each other down the line."""
    closed = "A ring closes the line: here the last worker is no neighbour of the first"
    refuse_if(isinstance(exchange, ps.RingAllReduce), closed)
    conforms(exchange, ps.AllReduce, "Line()")
    for workers in (1, 2, 3, 4, *map(int, rng.integers(5, 10, size=3))):
        with case(f"With {workers} workers"):
            _adds_up(exchange, workers, rng)
    workers = int(rng.integers(3, 6))
    problem = ps.LinearRegression(*ps.datasets.diabetes())
    mine, ring = (
        ps.train(problem, ps.Config(exchange=one, workers=workers, steps=15), engine=ps.Threads()).params
        for one in (exchange, ps.RingAllReduce())
    )
    far = distance(mine, ring)
    refuse_if(not far <= 1e-4, f"{workers} workers trained with it, and ended {far:.3g} from where a ring ends.")
    return f"It adds up, only neighbours talk, and no link idles for long. {workers} workers trained with it."


def _adds_up(exchange: ps.AllReduce, workers: int, rng: np.random.Generator) -> None:
    pieces = exchange.pieces(workers)
    refuse_if(not isinstance(pieces, int) or pieces < 1, f"pieces({workers}) is {pieces!r}; expected 1 or more.")
    schedules = [exchange.schedule(rank, workers) for rank in range(workers)]
    lengths = {len(hops) for hops in schedules}
    refuse_if(len(lengths) > 1, f"the ranks have {sorted(lengths)} hops; all need as many.")
    own: Array = rng.integers(1, 1000, size=(workers, pieces)).astype(float)
    values, sums, turns = own.copy(), own.sum(axis=0), 0.0
    for turn, hops in enumerate(zip(*schedules, strict=True)):
        with case(f"(hop {turn})"):
            values = _turn(values, hops)
        turns += max(len(hop.sends) for hop in hops) / pieces
    for rank, ends in enumerate(values.astype(int).tolist()):
        right = np.array_equal(values[rank], sums)
        refuse_if(not right, f"rank {rank} ends with {ends}; the sums of the pieces are {sums.astype(int).tolist()}.")
    time = f"it takes the time of {turns:.2f} whole gradients, hop by hop"
    refuse_if(workers > 2 and turns > 4.05, f"{time}. In pieces it can do with 4 or less.")


def _turn(values: Array, hops: "tuple[ps.Hop, ...]") -> Array:
    """All ranks' next hop at once."""
    after = values.copy()
    for rank, hop in enumerate(hops):
        if hop.to is not None:
            refuse_if(abs(hop.to - rank) != 1, f"rank {rank} sends to {hop.to}, which is no neighbour.")
            deaf = hops[hop.to].source != rank
            refuse_if(deaf, f"rank {rank} sends to {hop.to}, which does not listen to it.")
        if hop.source is not None:
            other = hops[hop.source]
            refuse_if(other.to != rank, f"rank {rank} waits for {hop.source}, which does not send to it.")
            sent = f"rank {hop.source} sends {other.sends} with adds={other.adds}"
            differs = (other.sends, other.adds) != (hop.receives, hop.adds)
            refuse_if(differs, f"{sent}; rank {rank} expects {hop.receives} with adds={hop.adds}.")
            at = list(hop.receives)
            after[rank, at] = values[hop.source, at] + (values[rank, at] if hop.adds else 0)
    return after


@asks(
    "10.3",
    "Workers of one rack should stand next to each other in the ring.",
    "sorted takes a key: the rack of a worker.",
    "One sorted over the numbers of the workers, by a key that looks up the rack.",
)
def ring_order(function: Any, rng: np.random.Generator) -> str:
    """Order the ring so that it crosses between the racks as seldom as can be."""
    refuse_if(not callable(function), f"Expected the function ring_order, got {function!r}.")
    for _ in range(40):
        racks = rng.integers(0, int(rng.integers(1, 5)), size=int(rng.integers(1, 13))).tolist()
        least = len(set(racks)) if len(set(racks)) > 1 else 0
        with case(f"For racks={racks}"):
            order = [int(worker) for worker in function(list(racks))]
            each_once = sorted(order) == list(range(len(racks)))
            refuse_if(not each_once, f"the order is {order}; each worker must be in it once.")
            crossings = sum(racks[one] != racks[other] for one, other in zip(order, order[1:] + order[:1], strict=True))
            between = f"which crosses between racks {crossings} times; {least} would do"
            refuse_if(crossings > least, f"the order is {order}, {between}.")
    return "As few crossings as there can be, for 40 random rooms."
