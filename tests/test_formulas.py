"""Closed forms against arithmetic, against draws, and against what they say of each other."""

import doctest
import heapq
import itertools
import math
from functools import partial

import numpy as np
import pages
import pytest

from minips import cost

BYTES = 1_000_000.0


@pytest.mark.parametrize("workers", [2, 4, 8, 16, 64])
def test_latency_and_bandwidth_terms(workers):
    for formula, messages, copies in (
        (cost.ring_allreduce_s, 2 * (workers - 1), 2 * (workers - 1) / workers),
        (cost.tree_allreduce_s, 2 * math.log2(workers), 2 * math.log2(workers)),
        (cost.halving_doubling_s, 2 * math.log2(workers), 2 * (workers - 1) / workers),
        (cost.two_shot_allreduce_s, 2, 2 * (workers - 1) / workers),
        (cost.parameter_server_s, 2, 2 * workers),
        (cost.parameter_server_step_s, 2, workers + 1),
        (partial(cost.parameter_server_step_s, full_duplex=False), 2, 2 * workers),
    ):
        assert formula(workers, 0, BYTES, latency=1.0) == pytest.approx(messages)
        assert formula(workers, BYTES, BYTES) == pytest.approx(copies)


def test_the_lectures_figures_are_those_of_the_formulas():
    page = "\n".join(pages.blocks("docs/cost.md", "pycon"))
    example = doctest.DocTestParser().get_doctest(page, {}, "lecture", "docs/cost.md", 0)
    assert doctest.DocTestRunner().run(example) == (0, 10)


def test_servers_share_the_load_and_one_worker_needs_no_ring():
    assert cost.parameter_server_s(8, BYTES, BYTES, servers=4) == cost.parameter_server_s(8, BYTES, BYTES) / 4
    assert cost.parameter_server_s(2, BYTES, BYTES, servers=4) == 2  # the workers' own links are the narrow ones
    assert cost.ring_allreduce_s(1, BYTES, BYTES, 1.0) == cost.two_shot_allreduce_s(1, BYTES, BYTES, 1.0) == 0
    assert cost.parameter_server_step_s(1, BYTES, BYTES) == cost.parameter_server_s(1, BYTES, BYTES)


@pytest.mark.parametrize(("pushed", "pulled"), [(1.0, 1.0), (0.1, 1.0), (1.0, 0.3)])
@pytest.mark.parametrize("latency", [0.0, 0.4, 5.0])
@pytest.mark.parametrize("full_duplex", [True, False])
def test_a_step_is_what_first_come_first_served_links_make_of_it(pushed, pulled, latency, full_duplex):
    workers, ready, ends = 4, [0.0] * 4, []
    out = into = 0.0
    for _ in range(50):
        for at in sorted(ready):
            into = max(into, at + latency) + pushed
        ends.append(into)
        out = max(out, into) if full_duplex else into
        for worker in range(workers):
            out += pulled
            ready[worker] = out + latency
        into = into if full_duplex else out
    step = cost.parameter_server_step_s(workers, pushed, 1.0, latency, pulled_nbytes=pulled, full_duplex=full_duplex)
    assert (ends[-1] - ends[9]) / 40 == pytest.approx(step)


def fifo_step_s(workers, servers, pushed, pulled, latency, full_duplex, sends, answers, steps=40):
    """Seconds of a step where every node's link lets one message through after the other, and carries 1 byte a second.

    ``sends`` gives the order in which a worker sends to the servers, ``answers`` that in which a server answers.
    """
    everybody = [(kind, i) for kind, count in (("worker", workers), ("server", servers)) for i in range(count)]
    into = dict.fromkeys(everybody, 0.0)
    out = dict(into) if full_duplex else into
    here = {node: [] for node in everybody}
    rounds = [[] for _ in range(servers)]
    events, number = [], itertools.count()

    def send(now, source, target, nbytes):
        begins = max(out[source], now)
        out[source] = begins + nbytes
        heapq.heappush(events, (begins + latency, next(number), source, target, nbytes))

    def push(now, worker):
        for server in sends(worker, servers):
            send(now, ("worker", worker), ("server", server), pushed / servers)

    for worker in range(workers):
        push(0.0, worker)
    while min(map(len, rounds)) < steps:
        now, _, source, target, nbytes = heapq.heappop(events)
        if nbytes:  # its first byte is here
            into[target] = max(into[target], now) + nbytes
            heapq.heappush(events, (into[target], next(number), source, target, 0.0))
            continue
        here[target].append(source[1])
        kind, index = target
        if kind == "worker" and len(here[target]) == servers:
            here[target] = []
            push(now, index)
        elif kind == "server" and len(here[target]) == workers:
            came, here[target] = here[target], []
            rounds[index].append(now)
            for worker in answers(index, came):
                send(now, target, ("worker", worker), pulled / servers)
    ends = [max(ended) for ended in zip(*rounds, strict=False)]
    return (ends[steps - 1] - ends[steps // 2 - 1]) / (steps - steps // 2)


def rotated(by, those):
    by %= len(those)
    return [*those[by:], *those[:by]]


SENDS = {
    "all begin with the same one": lambda worker, servers: range(servers),
    "each with the next": lambda worker, servers: rotated(worker, range(servers)),
    "backwards": lambda worker, servers: range(servers)[::-1],
}
ANSWERS = {
    "by rank": lambda server, came: sorted(came),
    "as they came": lambda server, came: came,
    "each from the next on": lambda server, came: rotated(server, sorted(came)),
    "each from the next quarter on": lambda server, came: rotated(server * len(came) // 4, sorted(came)),
}


@pytest.mark.parametrize("full_duplex", [True, False], ids=["full duplex", "half duplex"])
@pytest.mark.parametrize(("pushed", "pulled"), [(1.0, 1.0), (1.0, 0.25), (0.25, 1.0)])
@pytest.mark.parametrize(
    ("workers", "servers"), [(1, 1), (4, 1), (1, 2), (2, 2), (3, 2), (4, 2), (4, 4), (8, 4), (3, 5)]
)
def test_no_order_of_sending_and_answering_beats_the_step_and_one_reaches_it(
    workers, servers, pushed, pulled, full_duplex
):
    for latency in (0.0, 0.4):
        step = cost.parameter_server_step_s(
            workers, pushed, 1.0, latency, servers, pulled_nbytes=pulled, full_duplex=full_duplex
        )
        took = {
            (send, answer): fifo_step_s(
                workers, servers, pushed, pulled, latency, full_duplex, SENDS[send], ANSWERS[answer]
            )
            for send, answer in itertools.product(SENDS, ANSWERS)
        }
        assert min(took.values()) == pytest.approx(step), min(took, key=took.__getitem__)


def test_chunks_fill_the_pipe_and_too_many_cost_more_than_they_save():
    stages = [1.0, 3.0, 2.0]
    assert cost.pipelined_s(stages) == 6.0
    assert cost.pipelined_s(stages, chunks=10**6) == pytest.approx(3.0, rel=1e-5)
    best = cost.best_chunks(stages, fixed=0.05)
    times = {chunks: cost.pipelined_s(stages, chunks, fixed=0.05) for chunks in range(1, 100)}
    assert abs(min(times, key=times.__getitem__) - best) < 1
    assert cost.best_chunks([1.0], fixed=0.1) == 1.0


@pytest.mark.parametrize("backup", [0, 1, 3])
def test_a_round_waits_for_the_order_statistic_that_draws_show(backup):
    rng = np.random.default_rng(0)
    samples = [rng.exponential(size=50), rng.uniform(1, 2, size=30), np.array([0.7]), rng.normal(3, 0.1, size=40)]
    draws = np.sort([rng.choice(x, 200_000) for x in samples], axis=0)[len(samples) - 1 - backup]
    error = draws.std() / math.sqrt(draws.size)
    assert cost.synchronous_round_s(samples, backup) == pytest.approx(draws.mean(), abs=5 * error)


def test_exponential_times_have_harmonic_rounds():
    samples = np.random.default_rng(0).exponential(size=20_000)
    samples /= samples.mean()
    for backup in (0, 2):
        closed = cost.exponential_round_s(1.0, 8, backup)
        assert cost.synchronous_round_s([samples] * 8, backup) == pytest.approx(closed, rel=0.02)
    assert cost.exponential_round_s(2.0, 8) == pytest.approx(2 * sum(1 / k for k in range(1, 9)))
    assert cost.asynchronous_update_s([samples] * 8) == pytest.approx(cost.exponential_update_s(1.0, 8))
    assert cost.asynchronous_update_s([0.0, 1.0]) == 0.0


@pytest.mark.parametrize("staleness", range(6))
def test_old_gradients_diverge_just_above_the_limit_and_not_below(staleness):
    def distance(rate):
        w = [1.0] * (staleness + 1)
        for _ in range(20_000):
            w.append(w[-1] - rate * 3.0 * w[-1 - staleness])
            if abs(w[-1]) > 1e6:
                break
        return max(map(abs, w[-200:]))

    limit = cost.asynchronous_lr_limit(staleness, curvature=3.0)
    assert distance(0.99 * limit) < 1e-3
    assert distance(1.01 * limit) > 1e3


def test_two_exchanges_cost_the_same_at_their_crossover_and_only_there():
    link = {"bytes_per_s": 1e7, "latency": 1e-3}
    size = cost.crossover_nbytes(cost.ring_allreduce_s, cost.tree_allreduce_s, 8, **link)
    ring = partial(cost.ring_allreduce_s, 8, **link)
    tree = partial(cost.tree_allreduce_s, 8, **link)
    assert ring(size) == pytest.approx(tree(size))
    assert tree(size / 2) < ring(size / 2)
    assert ring(2 * size) < tree(2 * size)
    # Halving-doubling is never worse than either, and nothing differs for one worker.
    assert cost.crossover_nbytes(cost.halving_doubling_s, cost.tree_allreduce_s, 8, **link) is None
    assert cost.crossover_nbytes(cost.halving_doubling_s, cost.ring_allreduce_s, 8, **link) is None
    assert cost.crossover_nbytes(cost.ring_allreduce_s, cost.tree_allreduce_s, 1, **link) is None


def test_at_the_break_even_bandwidth_a_codec_saves_what_it_costs():
    bandwidth = cost.break_even_bandwidth(8e6, 2e6, encode_s=0.03, decode_s=0.02, copies=4)
    assert 4 * 8e6 / bandwidth == pytest.approx(4 * 2e6 / bandwidth + 0.05)
    assert cost.break_even_bandwidth(8e6, 9e6, 0.1, 0.1) == 0.0
    assert cost.break_even_bandwidth(8e6, 2e6, 0.0, 0.0) == math.inf


def test_impossible_sizes_are_refused_with_a_sentence():
    with pytest.raises(ValueError, match="power of two"):
        cost.halving_doubling_s(6, 1.0, 1.0)
    with pytest.raises(ValueError, match="at least one worker"):
        cost.ring_allreduce_s(0, 1.0, 1.0)
    with pytest.raises(ValueError, match="bandwidths above 0"):
        cost.tree_allreduce_s(2, 1.0, 0.0)
    with pytest.raises(ValueError, match="at least one server"):
        cost.parameter_server_s(2, 1.0, 1.0, servers=0)
    with pytest.raises(ValueError, match="at least one chunk"):
        cost.pipelined_s([1.0], chunks=0)
    with pytest.raises(ValueError, match="at least one stage"):
        cost.pipelined_s([])
    with pytest.raises(ValueError, match="cost nothing"):
        cost.best_chunks([1.0], fixed=0.0)
    for stages in ([], [-1, 2, -5]):
        with pytest.raises(ValueError, match="Expected at least one stage and no negative seconds"):
            cost.best_chunks(stages, fixed=1.0)
    with pytest.raises(ValueError, match="can have 0 to 2 backup workers"):
        cost.exponential_round_s(1.0, 3, backup=3)
    with pytest.raises(ValueError, match="compute times"):
        cost.synchronous_round_s([[], [1.0]])
    with pytest.raises(ValueError, match="at least one worker"):
        cost.exponential_update_s(1.0, 0)
    with pytest.raises(ValueError, match="curvature above 0"):
        cost.asynchronous_lr_limit(0, 0.0)
