"""What the shard decides, as far as `test_state_machine` does not see it: stages, arrays, grants and refusals."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minips import ASP, BSP, SGD, SSP, Adagrad, Adam, Contribution, Mean, Median, Shard, TrimmedMean
from minips.core.partition import cut, join, partition

START = {"w": np.array([1.0, -2.0, 3.0], "f4"), "b": np.array(0.5, "f4")}


def make(consistency, workers=3, *, lr=1.0, params=START, **options):
    chosen = {"aggregator": Mean(), "optimizer": SGD(lr=lr), **options}
    return Shard(params, workers=workers, consistency=consistency, **chosen)


def gradients(worker, clock, params=START, dtype="f4"):
    """Values of very different sizes, so that the order of a sum shows in its last bits."""
    rng = np.random.default_rng([worker, clock])
    return {
        name: np.asarray(rng.normal(size=x.shape) * 10.0 ** rng.integers(-3, 4), dtype) for name, x in params.items()
    }


def push(shard, worker, clock=None, grads=None, *, version=None, loss=0.0):
    clock = shard.clocks[worker] if clock is None else clock
    grads = gradients(worker, clock) if grads is None else grads
    return shard.push(Contribution(worker, clock, shard.version if version is None else version, grads, loss))


def constant(value, params=START):
    return {name: np.full(x.shape, value, x.dtype) for name, x in params.items()}


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], strict=True)


def state_of(shard):
    return (
        shard.version,
        shard.rounds,
        shard.applied,
        shard.late,
        list(shard.clocks),
        set(shard.live),
        dict(shard.staleness),
    )


def drive_rounds(shard, schedule, rounds):
    """Push from workers in the order of the schedule, then in turn; each waits where it has to."""
    for worker in itertools.chain(schedule, itertools.cycle(range(shard.workers))):
        if shard.rounds == rounds:
            return shard.params
        if shard.clocks[worker] < rounds and shard.may_push(shard.clocks[worker]):
            push(shard, worker)
    raise AssertionError("unreachable")


# Rounds


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 3), max_size=24))
def test_bsp_gives_the_same_bits_for_every_order_of_arrival(schedule):
    in_turn = drive_rounds(make(BSP(), 4), [], 4)
    assert_same(drive_rounds(make(BSP(), 4), schedule, 4), in_turn)


@given(st.permutations(range(4)))
@settings(deadline=None, max_examples=24)
def test_a_round_is_one_aggregate_in_worker_order(order):
    shard = make(BSP(), 4)
    outcomes = [push(shard, worker) for worker in order]
    assert outcomes == ["held", "held", "held", "applied"]
    expected = Mean().combine([Contribution(worker, 0, 0, gradients(worker, 0)) for worker in range(4)])
    assert_same(shard.params, {name: START[name] - np.float32(1.0) * expected[name] for name in START})
    assert (shard.version, shard.rounds, shard.applied) == (1, 1, 4)


def test_a_push_of_the_next_round_waits_for_this_one():
    shard = make(BSP())
    push(shard, 0)
    assert not shard.may_push(1)
    with pytest.raises(ValueError, match="round 0 is not complete"):
        push(shard, 0)
    push(shard, 1)
    push(shard, 2)
    assert shard.may_push(1)


def test_more_backup_workers_than_workers_are_refused():
    with pytest.raises(ValueError, match="more than 3 workers"):
        make(BSP(backup=3))


# Stale synchronous and asynchronous


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 3), st.lists(st.integers(0, 3), max_size=80))
def test_ssp_grants_exactly_the_pulls_within_its_bound(staleness, schedule):
    shard = make(SSP(staleness=staleness), 4)
    clocks, reading = [0] * 4, [False] * 4
    for worker in schedule:
        if reading[worker]:  # it has read, so it pushes
            assert push(shard, worker, clocks[worker]) == "applied"
            clocks[worker] += 1
            reading[worker] = False
        else:
            within = clocks[worker] - min(clocks) <= staleness
            assert shard.may_pull(worker) == within
            if within:
                shard.pull(worker)
                reading[worker] = True
    assert all(grant.clock - grant.slowest <= staleness for grant in shard.grants)
    assert shard.clocks == clocks


@pytest.mark.parametrize("consistency", [SSP(staleness=1), ASP()])
@given(order=st.permutations(range(5)))
@settings(deadline=None, max_examples=10)
def test_one_clock_of_all_moves_the_parameters_as_far_as_one_round(consistency, order):
    start = {"w": np.array([1.0, -2.0, 3.0])}
    fixed = {worker: {"w": np.random.default_rng(worker).normal(size=3)} for worker in range(5)}
    rounds, arrivals = make(BSP(), 5, params=start, lr=0.3), make(consistency, 5, params=start, lr=0.3)
    for worker in order:
        for shard in (rounds, arrivals):
            push(shard, worker, grads={"w": fixed[worker]["w"].copy()})
    np.testing.assert_allclose(arrivals.params["w"], rounds.params["w"], rtol=1e-12)


# Exactly once


@pytest.mark.parametrize("consistency", [BSP(), BSP(backup=1), SSP(), ASP()], ids=repr)
def test_a_retry_is_a_duplicate_and_is_not_applied_again(consistency):
    once, again = make(consistency), make(consistency)
    for worker in (0, 1, 2):
        first = push(once, worker, 0)
        assert push(again, worker, 0) == first
        assert not again.is_new(worker, 0)
        assert push(again, worker, 0) == ("late" if first == "late" else "duplicate")
    assert_same(once.params, again.params)
    assert (again.duplicates, again.applied, again.rounds) == (3, once.applied, once.rounds)


# The end of a run


@pytest.mark.parametrize("consistency", [BSP(), BSP(backup=1), SSP(staleness=0), ASP()], ids=repr)
def test_after_the_end_all_may_pull_and_pushes_are_over(consistency):
    shard = make(consistency, updates=2)
    push(shard, 0)
    push(shard, 1)
    if isinstance(consistency, BSP) and not consistency.backup:
        push(shard, 2)
    last = shard.params
    for clock in range(shard.clocks[0], shard.clocks[0] + 3):  # one that another server keeps busy pushes on
        assert shard.may_push(clock)
        assert push(shard, 0, clock) == "over"
        assert all(shard.may_pull(worker) for worker in range(3))
    assert_same(shard.pull(0), last)


def test_pulls_after_the_end_are_not_grants():
    shard = make(BSP(), 1, updates=1)
    shard.pull(0)
    push(shard, 0)
    shard.pull(0)
    assert shard.grants == [(0, 0, 0)]


# Leaving and joining


def test_unknown_workers_are_refused():
    shard = make(BSP())
    for worker in (-1, 3, "1", None, 1.0):
        with pytest.raises(ValueError, match="workers 0 to 2"):
            shard.validate_worker(worker)


# Refusals


WRONG = {
    "NaN": ({**constant(1), "w": np.array([1, np.nan, 2], "f4")}, "NaN or infinity"),
    "infinity": ({**constant(1), "b": np.array(-np.inf, "f4")}, "NaN or infinity"),
    "shape": ({**constant(1), "w": np.ones(4, "f4")}, "shape"),
    "dtype": ({**constant(1), "w": np.ones(3, "f8")}, "float32"),
    "missing": ({"w": np.ones(3, "f4")}, "Expected gradients of w, b"),
    "unknown": ({**constant(1), "c": np.ones(3, "f4")}, "Expected gradients of w, b"),
}


@pytest.mark.parametrize("consistency", [BSP(), SSP(), ASP()], ids=repr)
@pytest.mark.parametrize(("grads", "words"), WRONG.values(), ids=list(WRONG))
def test_what_does_not_fit_is_refused_and_nothing_is_changed(consistency, grads, words):
    shard = make(consistency)
    push(shard, 0)
    before, params = state_of(shard), shard.params
    with pytest.raises(ValueError, match=words):
        push(shard, 1, grads=grads)
    assert state_of(shard) == before
    assert_same(shard.params, params)
    assert push(shard, 1) in ("held", "applied")


# What is lent, and what is recorded


@pytest.mark.parametrize("optimizer", [SGD(momentum=0.9), Adagrad(), Adam()], ids=repr)
def test_lent_parameters_are_never_changed_by_later_updates(optimizer):
    shard = make(ASP(), optimizer=optimizer)
    lent, copies = [], []
    for step in range(4):
        lent.append(shard.pull(step % 3))
        copies.append({name: x.copy() for name, x in lent[-1].items()})
        push(shard, 0)
    for one, copy in zip(lent, copies, strict=True):
        assert_same(one, copy)


def test_the_given_parameters_are_copied():
    mine = {"w": np.zeros(2)}
    shard = make(ASP(), params=mine)
    push(shard, 0, grads={"w": np.ones(2)})
    np.testing.assert_array_equal(mine["w"], 0)


@pytest.mark.parametrize("aggregator", [Mean(), Median()], ids=repr)
@pytest.mark.parametrize("optimizer", [SGD(momentum=0.9, nesterov=True, weight_decay=0.1), Adagrad(), Adam()], ids=repr)
@pytest.mark.parametrize("servers", [2, 3, 11])
def test_any_number_of_servers_gives_the_same_bits(aggregator, optimizer, servers):
    params = {"W": np.linspace(-1, 1, 12, dtype="f4").reshape(3, 4), "b": np.zeros((), "f4"), "d": np.ones(5, "f8")}

    def grads(worker, clock):
        return {name: x.astype(params[name].dtype) for name, x in gradients(worker, clock, params).items()}

    whole = make(BSP(), params=params, aggregator=aggregator, optimizer=optimizer)
    layouts = partition(params, servers)
    parts = [make(BSP(), params=cut(params, each), aggregator=aggregator, optimizer=optimizer) for each in layouts]
    for clock in range(3):
        for worker in (1, 2, 0):
            push(whole, worker, clock, grads(worker, clock))
            for shard, layout in zip(parts, layouts, strict=True):
                push(shard, worker, clock, cut(grads(worker, clock), layout))
    joined = join([shard.params for shard in parts], layouts)
    assert_same({name: joined[name] for name in params}, whole.params)


def test_a_round_that_the_aggregator_cannot_do_with_the_rest_says_so_and_changes_nothing():
    shard = make(BSP(), 3, aggregator=TrimmedMean(trim=1))
    push(shard, 0)
    push(shard, 1)
    shard.leave(2)
    assert "2 workers are left, and TrimmedMean(trim=1) needs 3 contributions at once" in shard.stuck
    assert (shard.version, shard.applied) == (0, 0)
    assert not shard.may_pull(0)


LARGE = {"b": np.zeros(7), "w": np.ones((3, 40_000)), "c": np.array(0.5), "v": np.zeros(50_000, "f4"), "e": np.zeros(0)}


def in_one_piece(cls):
    """The same stage, but not known to work on each value by itself."""
    return type(cls.__name__, (cls,), {"elementwise": False})


@pytest.mark.parametrize("optimizer", [SGD, Adagrad, Adam])
@pytest.mark.parametrize("aggregator", [Mean, Median])
def test_large_tensors_in_stretches_come_to_the_same_bits(optimizer, aggregator, monkeypatch):
    monkeypatch.setattr("minips.core.parameters.BLOCK", 2**13)
    options = {"momentum": 0.9} if optimizer is SGD else {}
    whole = make(BSP(), params=LARGE, aggregator=in_one_piece(aggregator)(), optimizer=optimizer(lr=0.1, **options))
    pieces = make(BSP(), params=LARGE, aggregator=aggregator(), optimizer=optimizer(lr=0.1, **options))
    assert len(pieces.parameters._blocks) > 4 > len(whole.parameters._blocks) == 1
    for clock in range(3):
        for worker in range(3):
            grads = {name: g.astype(LARGE[name].dtype) for name, g in gradients(worker, clock, LARGE).items()}
            push(whole, worker, clock, grads)
            push(pieces, worker, clock, grads)
    assert_same(whole.params, pieces.params)


def test_two_sets_of_arrays_take_turns_unless_somebody_holds_one():
    shard = make(ASP(), params=LARGE)
    first = shard.parameters.arrays["w"]
    push(shard, 0, grads=constant(1.0, LARGE))
    second = shard.parameters.arrays["w"]
    push(shard, 1, grads=constant(1.0, LARGE))
    assert shard.parameters.arrays["w"] is first
    held = shard.pull(0)["w"][1, 5:10]  # a part is enough
    before = held.copy()
    push(shard, 0, clock=1, grads=constant(1.0, LARGE))
    assert shard.parameters.arrays["w"] is second
    push(shard, 1, clock=1, grads=constant(1.0, LARGE))
    np.testing.assert_array_equal(held, before)
    third = shard.parameters.arrays["w"]
    assert third is not first
    del held
    push(shard, 0, clock=2, grads=constant(1.0, LARGE))
    assert shard.parameters.arrays["w"] is second


@pytest.mark.parametrize(
    ("optimizer", "clocks", "ratio"),
    [
        (SGD(lr=0.1), 1, 1.0),
        (SGD(lr=0.1), 20, 1.0),
        (SGD(lr=1e-3, momentum=0.9), 2000, 1.0),
        (SGD(lr=1e-3, momentum=0.9, nesterov=True), 2000, 1.0),
        (Adam(lr=1e-3), 200, 4.0),
        (Adagrad(lr=1e-2), 2000, 2.0),
    ],
    ids=repr,
)
def test_a_clock_of_all_workers_moves_as_far_as_a_round_or_as_the_docstring_says(optimizer, clocks, ratio):
    def moved(consistency):
        params = {"w": np.zeros(3)}
        shard = make(consistency, workers=4, params=params, optimizer=optimizer)
        for _ in range(clocks):
            for worker in range(4):
                push(shard, worker, grads={"w": np.array([1.0, -2.0, 0.5])})
        return shard.params["w"]

    np.testing.assert_allclose(moved(SSP(staleness=0)) / moved(BSP()), ratio, rtol=0.02)


def test_weight_decay_is_applied_once_for_each_push():
    params, nothing = {"w": np.ones(1)}, {"w": np.zeros(1)}
    bsp, ssp = (
        make(rule, workers=4, params=params, optimizer=SGD(lr=0.1, weight_decay=0.5))
        for rule in (BSP(), SSP(staleness=0))
    )
    for worker in range(4):
        push(bsp, worker, grads=nothing)
        push(ssp, worker, grads=nothing)
    np.testing.assert_allclose(bsp.params["w"], 0.95)
    np.testing.assert_allclose(ssp.params["w"], 0.95**4)


def test_what_was_pulled_cannot_be_written_to():
    with pytest.raises(ValueError, match="read-only"):
        make(BSP()).pull(0)["w"][0] = 1.0


@pytest.mark.parametrize("consistency", [BSP(), ASP()], ids=repr)
@pytest.mark.parametrize("params", [START, LARGE], ids=["small", "in stretches"])
def test_an_update_past_all_numbers_is_not_applied_and_ends_the_run(consistency, params):
    shard = make(consistency, workers=2, params=params, lr=1e30, updates=100)
    push(shard, 0, grads=constant(0.0, params))
    push(shard, 1, grads=constant(0.0, params))
    before = {name: x.copy() for name, x in shard.params.items()}
    huge = constant(0.0, params)
    huge["w"].reshape(-1)[-1] = np.finfo(huge["w"].dtype).max / 4  # in the last stretch
    outcomes = [push(shard, worker, clock=1, grads=huge) for worker in (0, 1)]
    assert outcomes[-1] == "over"
    assert "applied" not in outcomes
    assert shard.diverged.startswith("Update")
    assert "'w' NaN or infinite" in shard.diverged
    assert shard.done
    assert (shard.applied, shard.version) == (2, {"bsp": 1, "asp": 2}[consistency.name])
    assert_same(shard.params, before)
    assert shard.may_pull(0)


def test_parameters_that_are_not_finite_are_refused():
    with pytest.raises(ValueError, match="The parameter 'w' holds NaN or infinity"):
        make(BSP(), params={"w": np.array([1, np.inf])})


def test_a_worker_that_leaves_a_failed_run_brings_no_update_about():
    class Raises(Mean):
        def combine(self, contributions):
            if len(contributions) == 2:
                raise ArithmeticError("not these two")
            return super().combine(contributions)

    shard = make(BSP(), workers=2, aggregator=Raises())
    assert push(shard, 0) == "held"
    with pytest.raises(RuntimeError, match="not these two"):
        push(shard, 1)
    shard.leave(1)
    assert shard.version == 0
    assert_same(shard.params, START)


def test_pauses_are_counted_in_rounds_also_where_a_worker_is_lost_between_two_servers():
    shards = [make(BSP(), every=6), make(BSP(), every=6)]
    for shard, workers in zip(shards, ((0, 1, 2), (0, 1)), strict=True):
        for worker in workers:
            push(shard, worker)
        shard.leave(2)
    for _ in range(5):
        for shard in shards:
            assert not shard.paused
            push(shard, 0), push(shard, 1)
            assert shard.paused
            shard.go_on()
            push(shard, 0), push(shard, 1)
