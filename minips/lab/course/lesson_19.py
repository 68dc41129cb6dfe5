"""Lesson 19: do without a server."""

import math
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np

import minips as ps
from minips.cost import ring_allreduce_s, tree_allreduce_s
from minips.lab.course.exercises import Refused, asks, case, conforms, distance, number, refuse_if
from minips.lab.course.questions import Expected, Option, card, estimate, sentence, timed_question, timed_sentence
from minips.stage import Array

timed_question(
    "19.1",
    "Four workers. How long does a step by ring take, compared with one server?",
    Expected(
        "clearly less",
        lambda share: share < 0.8,
        "One server's link carries the gradients of all four workers, and four answers. In the ring each link "
        "carries 1.5 gradients each way, and all links work at the same time. Here the bytes take much longer than the "
        "ring's six latencies.",
    ),
    Option(
        "about the same",
        lambda share: 0.8 <= share <= 1.25,
        "What the ring saves in bytes, it lost in its six hops: each costs a latency, and time of the processor.",
    ),
    Option(
        "clearly more",
        lambda share: share > 1.25,
        "The ring's six hops wait for each other. A hop took so long by itself that the fewer bytes did not count.",
    ),
    otherwise="One of the two runs gave no time of a step.",
)

timed_question(
    "19.2",
    "Four workers, a small gradient, a long way to travel. Which way is the slowest now?",
    Option(
        "the way over a server",
        lambda server, tree, ring: server > max(tree, ring),
        "Its two messages came later than four or six of the workers' own: the server was busy with something else.",
    ),
    Option(
        "the way up and down the tree",
        lambda server, tree, ring: tree > max(server, ring),
        "Each of its four hops carries the full gradient: the bytes counted more than the latencies.",
    ),
    Expected(
        "the way round the ring",
        lambda server, tree, ring: ring > max(server, tree),
        "The ring has six hops, one after the other, and each of them costs a latency. Tree and halving-doubling have "
        "four, a server has two. With few bytes only the latencies count.",
    ),
    otherwise="Two of the ways took the same time, or one gave no time.",
)

estimate(
    "19.3",
    "The cable between the racks has a fifth of a link's bandwidth. The zigzag ring has the same hops and the same "
    "bytes as the ring in order. How many times as long does it take?",
    "times as long",
    expected=(3.5, 5),
    because="In order, one message crosses the thin cable each way in every hop. In zigzag four messages cross it each "
    "way, and share it: each takes four times as long.",
    otherwise="By the rule of fair shares it would be about 4: in zigzag four messages cross the thin cable each way "
    "in every hop, in order one.",
)

sentence("19.1", "By the formulas, from fast to slow: {order}.")

timed_sentence(
    "19.2",
    "Of one server's time a step takes: ring {ring:.0%} (the middle half of its steps: {low:.0%} to {high:.0%}), "
    "halving-doubling {halving:.0%}, tree {tree:.0%}, four servers {four:.0%}. (Medians of {count} steps.)",
    expect="ring < 0.7 and halving < 0.7 and ring < 0.7 * tree",
)

timed_sentence(
    "19.3",
    "One server: the least time, with both directions busy, is {share:.0%} of the formula with two phases. "
    "Measured: {measured:.0%}.",
    expect="0.9 * share < measured < 0.95",
)

timed_sentence(
    "19.4",
    "Four servers: measured {four[1]:+.0%} against the formula (the middle half of {count} steps: {four[0]:+.0%} to "
    "{four[2]:+.0%}). Ring: {ring[1]:+.0%} ({ring[0]:+.0%} to {ring[2]:+.0%}).",
    expect="four[1] > -0.1 and ring[1] > -0.1",
)

sentence(
    "19.5",
    "With 8 workers one server takes {phases:.1f} times as long as the ring in two phases, and {overlapped:.1f} times "
    "at the least, with pushes and pulls at the same time.",
    expect="9 < phases < 9.3 and 5 < overlapped < 5.3",
)

timed_sentence(
    "19.6",
    "Of one server's time a step takes: tree {tree:.0%}, halving-doubling {halving:.0%}, ring {ring:.0%} (the middle "
    "half of its steps: {low:.0%} to {high:.0%}). (Medians of {count} steps.)",
    expect="ring > 1.8",
)

sentence(
    "19.7",
    "With 64 workers the ring has {latency:.1f} times the latency of our tree, which sends everything at each hop. The "
    "ring's bytes take {size:.0%} of that tree's time.",
    expect="latency > 10 and size < 0.2",
)

sentence("19.8", "{kilobytes:.0f} kB: fastest {fastest}, slowest {slowest}.")

sentence(
    "19.9",
    "In virtual time the way that the formulas choose is within 3 % of the fastest one at {right} of {count} sizes.",
    expect="right == count",
)

sentence(
    "19.10",
    "From 4 to 64 workers a step takes longer by these factors. One server: {one:.1f} in two phases, {one_least:.1f} "
    "at the least. Four servers: {four:.1f} and {four_least:.1f}. Ring: {ring:.1f}. Tree that sends everything: "
    "{tree:.1f}. Tree in pieces: {pieces:.1f}. Halving-doubling: {halving:.1f}. As many servers as workers: {n:.1f}.",
    expect="one > 15 and one_least > 10 and four_least > 5 and pieces < 1.6 < tree and halving < 1.6 and n == 1",
)

sentence(
    "19.11",
    "{way}: twenty tensors alone take {times:.1f} times as long as one buffer, in virtual time.",
    expect="times > 1",
)

sentence(
    "19.12",
    "Accuracy with 32 bits: {accuracy:.1%} in the mean of {count} seeds. With 16 bits it is higher by {points:.1f} ± "
    "{points_half:.1f} percentage points (paired by seed; 95 % interval; one image is {image:.1f} points), and the "
    "training loss differs by {loss:.3%} at most. Bytes: {share:.0%}, for headers do not shrink.",
    expect="abs(points) + points_half < 2 and loss < 0.01 and share < 0.7",
)

sentence(
    "19.13",
    "The largest error with fp16 is {half:.3%} of the mean, the smallest with 4 bits {four:.1%}.",
    expect="half < 0.01 < four",
)

sentence("19.14", "Zigzag takes {times:.1f} times as long, in virtual time.", expect="3 < times < 5")

timed_sentence(
    "19.15",
    "Beside one pull of the neighbour's our pull takes {virtual[0]:.2f} times as long in virtual time and "
    "{emulated[0]:.2f} times as long over the emulated link (the middle half of {count} pulls: {low[0]:.2f} to "
    "{high[0]:.2f}). Beside two: {virtual[1]:.2f} and {emulated[1]:.2f} times ({low[1]:.2f} to {high[1]:.2f}). So both "
    "share by pulls, and not by neighbours.",
    expect="1.8 < virtual[0] < 2.1 and 2.6 < virtual[1] < 3.1 and 1.3 < emulated[0] < 2.4 < emulated[1] < 5",
)

sentence("19.16", "{way}: in virtual time {ratio:.2f} of what its formula says.", expect="0.9 < ratio < 1.1")

sentence(
    "19.17",
    "For {same} of the {count} ways the real run sent exactly as many bytes as the simulated one.",
    expect="same == count",
)

sentence(
    "19.18",
    "The {replicas} replicas have {digests} SHA-256 among them. The parameters of ring and server differ by at most "
    "{far:.0e} of the largest one.",
    expect="replicas == 4 and digests == 1 and far < 1e-4",
)

timed_sentence(
    "19.19",
    "Eight workers, 80 kB: the tree in pieces takes {share:.0%} of the time of the tree that sends everything at each "
    "hop (median of {count} steps; the middle half: {low:.0%} to {high:.0%}).",
    expect="low < 0.95 and share < 1.5",
)

sentence(
    "19.20",
    "64 workers, the bytes alone: ring {ring:.2f} S/B, tree that sends everything {tree:.0f} S/B, tree in pieces "
    "{pieces:.2f} S/B.",
    expect="ring < 2 and 4 < pieces < 6 and tree == 12",
)

sentence(
    "19.21",
    "With latencies and 200 kB: ring {ring:.2f} s, tree that sends everything {tree:.2f} s, tree in pieces "
    "{pieces:.2f} s (in virtual time {virtual:.2f} s).",
    expect="pieces < ring < tree and virtual < ring and abs(virtual / pieces - 1) < 0.1",
)

timed_sentence(
    "19.22",
    "Measured at 80 kB, medians of {count} steps, from fast to slow: {order}. One server takes {share:.0%} of the time "
    "of two phases; the least would be {least:.0%}.",
    expect="0.9 * least < share < 1",
)

sentence(
    "19.23",
    "Ring and tree cost the same at {kilobytes:.1f} kB. In virtual time the {below} is faster at half of that size, "
    "the {above} at twice that size.",
    expect="below == 'tree' and above == 'ring'",
)

sentence(
    "19.24",
    "Half of the gradient's values are larger than {size:.0e}. In fp16 {now:.0%} of them become 0. Were they a hundred "
    "times smaller, {less:.1%} would; ten thousand times smaller, {small:.0%}; a million times smaller, {tiny:.0%}.",
    expect="now == 0 and less < 0.05 and 0.1 < small < tiny",
)

sentence(
    "19.25",
    "{label}: from 2 to 32 workers the error grows by these factors (mean of {count} seeds, 95 % interval): ring "
    "{ring:.1f} ± {ring_half:.1f}, tree {tree:.1f} ± {tree_half:.1f}, halving-doubling {halving:.1f} ± "
    "{halving_half:.1f}.",
    expect="ring - ring_half > 1 and halving + halving_half < ring - ring_half",
)

sentence(
    "19.26",
    "Halving-doubling with 4 bits, from 2 to 32 workers: with a range for each piece the error grows by a factor of "
    "{plain:.2f} ± {plain_half:.2f}, with a range for each 8 values by {factor:.2f} ± {factor_half:.2f} ({count} "
    "seeds, 95 % interval). That supports the narrower ranges as the cause.",
    expect="plain + plain_half < 0.8 and abs(factor - 1) < 0.15",
)

sentence(
    "19.27",
    "Fastest here: {fastest}. Halving-doubling takes {halving:.1f} times as long as the ring.",
    expect="fastest == 'ring' and halving > 2",
)

card(
    "19.28",
    "n = {n}: each worker sent {sent:.3f} S per step, the bound is {bound:.3f} S.",
    expect="1 <= sent / bound < 1.06",
)

sentence(
    "19.29",
    "Your exchange trained {replicas} worker processes, which ended with {digests} SHA-256 among them. It is listed: "
    "{listed}.",
    expect="replicas == 4 and digests == 1 and listed",
)

sentence("19.30", "Over the zigzag network a ring in your order takes {share:.0%} of the zigzag ring's time.")


@asks(
    "19.1",
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
    "19.2",
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
    "19.3",
    "If there are workers on both sides of a cable, the ring must cross it there and back, at least once. How could it "
    "cross it twice?",
    "Stand at a switch. Finish all that hangs on one of its cables before you go down the next one.",
    "That order is called depth-first, and networkx knows it. It visits switches as well: leave them out.",
)
def ring_order(function: Any, rng: np.random.Generator) -> str:
    """Order the ring so that no cable carries more than one message each way."""
    refuse_if(not callable(function), f"Expected the function ring_order, got {function!r}.")
    for more in range(40):
        graph = _cables(rng, 1 + more // 5, 2 + more // 2)
        cables = ", ".join(f"{one} – {other}" for one, other in graph.edges)
        with case(f"With the cables {cables or '(none)'}:"):
            order = list(function(graph.copy()))
            workers = sorted(node for node in graph if node.startswith("worker"))
            each_once = len(order) == len(workers) and {*order} == {*workers}
            refuse_if(not each_once, f"the order is {order}; each worker must be in it once.")
            most, (one, other) = _fullest(graph, order)
            carries = f"the cable from {one} to {other} carries {most} messages at a time; one would do"
            refuse_if(most > 1, f"the order is {order}, and {carries}.")
    return "No cable carries more than one message each way, in 40 random networks."


def _cables(rng: np.random.Generator, switch_count: int, worker_count: int) -> Any:
    """A random tree of switches, and workers on it, in an order and with names that say nothing."""
    import networkx as nx

    switches = [f"switch {i}" for i in rng.permutation(switch_count)]
    workers = [f"worker {i}" for i in rng.permutation(worker_count)]
    cables = [(switch, switches[int(rng.integers(i))]) for i, switch in enumerate(switches) if i]
    cables += [(worker, switches[int(rng.integers(len(switches)))]) for worker in workers]
    graph = nx.Graph()
    graph.add_nodes_from(rng.permutation([*switches, *workers]).tolist())
    graph.add_edges_from(cables[i] for i in rng.permutation(len(cables)))
    return graph


def _fullest(graph: Any, order: list[Any]) -> tuple[int, tuple[Any, Any]]:
    """The number of messages of the ring that cross the fullest cable in one direction, and that cable's ends."""
    import networkx as nx

    crossed = Counter[tuple[Any, Any]]()
    for one, other in zip(order, order[1:] + order[:1], strict=True):
        crossed.update(pairwise(nx.shortest_path(graph, one, other)))
    return max(((count, cable) for cable, count in crossed.items()), default=(0, ("", "")))
