"""Training from end to end: on threads and on processes, over every transport, in good days and bad."""

import dataclasses
import io
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import types

import misfits
import multiprocess
import numpy as np
import pytest

import minips as ps
from minips.cost.predict import against_measured
from minips.engines import local
from minips.engines.supervisor import Supervisor
from minips.engines.worker import batch, compute
from minips.stage import missing
from minips.words import message_of

ROWS = misfits.rows()
SINGLE = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=150, features=7, classes=3))
DOUBLE = ps.LinearRegression(*ROWS)
BASE = ps.Config(transport="inproc", workers=2, steps=8, batch_size=None, optimizer=ps.SGD(lr=0.1), timeout_s=20.0)
THREADS, PROCESSES = ps.Threads(), ps.Processes()
TCP = dataclasses.replace(BASE, transport="tcp")


def descend(problem, config, *, delay=0):
    """Plain gradient descent on all rows, from parameters that are ``delay`` steps old."""
    history = [problem.init(np.random.default_rng(config.seed))]
    for step in range(config.steps):
        gradients = problem.gradient(history[max(step - delay, 0)])
        history.append({name: x - config.optimizer.lr * gradients[name] for name, x in history[-1].items()})
    return history[-1]


def assert_same(one, other):
    assert list(one) == list(other)
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], strict=True)


def assert_close(one, other):
    assert list(one) == list(other)
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-10, strict=True)


def assert_nothing_is_left():
    assert multiprocess.active_children() == []
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("minips")] == []


# The same to the bit


EXACT = ps.Config(transport="inproc", workers=3, steps=4, batch_size=8, optimizer=ps.Adam(lr=0.05), timeout_s=20.0)


@pytest.fixture(scope="module")
def reference():
    return ps.train(SINGLE, EXACT, engine=THREADS)


@pytest.mark.parametrize("servers", [1, 2, 4])
@pytest.mark.parametrize("transport", ["inproc", "pipe", "tcp"])
def test_bsp_is_the_same_to_the_bit_on_threads(reference, transport, servers):
    run = ps.train(SINGLE, dataclasses.replace(EXACT, transport=transport, servers=servers), engine=THREADS)
    assert_same(run.params, reference.params)
    assert [row[1:] for row in run.losses] == [row[1:] for row in reference.losses]


@pytest.mark.parametrize(("transport", "servers"), [("pipe", 1), ("tcp", 1), ("tcp", 2), ("pipe", 4)])
def test_bsp_is_the_same_to_the_bit_on_processes(reference, transport, servers):
    run = ps.train(SINGLE, dataclasses.replace(EXACT, transport=transport, servers=servers), engine=PROCESSES)
    assert_same(run.params, reference.params)
    assert [row[1:] for row in run.losses] == [row[1:] for row in reference.losses]
    assert_nothing_is_left()


@pytest.mark.parametrize(
    "transport", [c.name for c in (ps.Zmq, ps.Http, ps.Grpc, ps.Thrift, ps.Pyro) if not missing(c)]
)
def test_bsp_is_the_same_to_the_bit_over_every_library(reference, transport):
    run = ps.train(SINGLE, dataclasses.replace(EXACT, transport=transport, servers=2), engine=PROCESSES)
    assert_same(run.params, reference.params)
    assert_nothing_is_left()


def test_a_random_quantizer_repeats_with_its_seed():
    config = dataclasses.replace(EXACT, push=ps.Codec(quantizer="uniform"), servers=2)
    runs = [ps.train(SINGLE, dataclasses.replace(config, seed=seed), engine=THREADS) for seed in (1, 1, 2)]
    assert_same(runs[0].params, runs[1].params)
    assert not np.array_equal(runs[0].params["W"], runs[2].params["W"])


# Equal to what a single machine computes


@pytest.mark.parametrize("workers", [1, 3, 4])
@pytest.mark.parametrize("servers", [1, 2])
def test_bsp_with_equal_shards_is_full_batch_descent(workers, servers):
    config = dataclasses.replace(BASE, workers=workers, servers=servers, steps=12)
    run = ps.train(DOUBLE, config, engine=THREADS)
    assert_close(run.params, descend(DOUBLE, config))
    assert run.losses[0][2] == pytest.approx(DOUBLE.loss(DOUBLE.init(None)))
    assert (run.updates, run.late, run.staleness) == (12 * workers, 0, {0: 12 * workers})


def test_overlap_computes_from_parameters_that_are_one_step_older():
    config = dataclasses.replace(BASE, overlap=True)
    run = ps.train(DOUBLE, config, engine=THREADS)
    assert_close(run.params, descend(DOUBLE, config, delay=1))
    assert run.staleness == {0: 2, 1: 14}


def test_accumulate_averages_batches_before_a_push():
    config = dataclasses.replace(BASE, accumulate=3, batch_size=5)
    params = DOUBLE.init(None)
    loss, gradients = compute(DOUBLE, config, params, worker=1, clock=4)
    batches = [batch(DOUBLE, config, 1, 4, turn) for turn in range(3)]
    assert len({tuple(rows) for rows in batches}) == 3
    assert loss == pytest.approx(np.mean([DOUBLE.loss(params, rows) for rows in batches]))
    for name in params:
        expected = np.mean([DOUBLE.gradient(params, rows)[name] for rows in batches], axis=0)
        np.testing.assert_allclose(gradients[name], expected, rtol=1e-12)
    whole = dataclasses.replace(BASE, accumulate=3)
    assert_close(ps.train(DOUBLE, whole, engine=THREADS).params, descend(DOUBLE, whole))


def test_batches_follow_from_seed_worker_and_clock():
    config = dataclasses.replace(BASE, batch_size=10)
    drawn = {key: tuple(batch(DOUBLE, config, *key, 0)) for key in [(0, 0), (0, 1), (1, 0)]}
    assert len(set(drawn.values())) == 3
    assert all(len(set(rows)) == 10 for rows in drawn.values())
    assert drawn[0, 1] == tuple(batch(DOUBLE, config, 0, 1, 0))
    assert batch(DOUBLE, dataclasses.replace(config, batch_size=48), 0, 0, 0) is None


# Consistency


@pytest.mark.parametrize("consistency", [ps.SSP(staleness=0), ps.SSP(staleness=2), ps.ASP()], ids=repr)
@pytest.mark.parametrize("servers", [1, 3])
def test_asynchronous_runs_end_at_workers_times_steps_and_converge(consistency, servers):
    config = dataclasses.replace(BASE, workers=4, steps=40, servers=servers, consistency=consistency)
    run = ps.train(DOUBLE, config, engine=THREADS)
    assert run.updates == 160
    assert sum(run.staleness.values()) == 160
    assert [step for _, step, _ in run.losses] == list(range(1, 41))
    assert DOUBLE.loss(run.params) < 0.1 * run.losses[0][2]


def test_ssp_grants_pulls_within_its_bound_only():
    delays = ps.Delays(seconds=0.002, slow={1: 8.0})
    config = dataclasses.replace(BASE, workers=3, steps=12, consistency=ps.SSP(staleness=2), delays=delays)
    run = ps.train(DOUBLE, config, engine=THREADS)
    ahead = [grant.clock - grant.slowest for grant in run.grants]
    assert max(ahead) in (1, 2)
    assert {grant.worker for grant in run.grants} == {0, 1, 2}


@pytest.mark.parametrize("servers", [1, 2])
def test_backup_workers_let_a_run_go_on_without_the_slowest(servers):
    delays = ps.Delays(seconds=0.002, slow={2: 10.0})
    config = dataclasses.replace(BASE, workers=3, servers=servers, consistency=ps.BSP(backup=1), delays=delays)
    run = ps.train(DOUBLE, config, engine=THREADS)
    assert run.updates == 24
    assert set(run.staleness) == {0}
    assert DOUBLE.loss(run.params) < run.losses[0][2]


def test_delays_are_honoured():
    delays = ps.Delays(seconds=0.02, slow={1: 2.0})
    run = ps.train(DOUBLE, dataclasses.replace(BASE, steps=4, delays=delays), engine=THREADS)
    for worker, least in ((0, 0.02), (1, 0.04)):
        spans = [span for span in run.trace if (span.name, span.who) == ("compute", f"worker {worker}")]
        assert len(spans) == 4
        assert min(span.seconds for span in spans) >= least
    assert run.seconds >= 4 * 0.04


def test_a_link_is_honoured():
    link = ps.Link(bandwidth_bps=1e5, latency_s=0.01)
    config = dataclasses.replace(TCP, steps=3, link=link)
    run = ps.train(DOUBLE, config, engine=THREADS)
    assert run.seconds >= 3 * 2 * link.seconds(sum(x.nbytes for x in run.params.values()))
    assert_close(run.params, descend(DOUBLE, config))


def test_sparse_pushes_with_error_feedback_save_bytes_and_reach_the_accuracy():
    problem = ps.SoftmaxRegression(*ps.datasets.fourier(ps.datasets.digits(), 1000))
    exact = ps.Config(
        transport="inproc",
        workers=2,
        steps=80,
        batch_size=64,
        optimizer=ps.SGD(lr=5.0),
        link=ps.Link(bandwidth_bps=400e6),
    )
    sparse = dataclasses.replace(exact, push=ps.Codec(quantizer=ps.TopK(fraction=0.02), memory=ps.ErrorFeedback()))
    whole, few = (ps.train(problem, config, engine=THREADS) for config in (exact, sparse))
    assert few.bytes_sent <= 0.05 * whole.bytes_sent
    assert whole.accuracy > 0.9
    assert few.accuracy >= whole.accuracy - 0.02


# What a run tells


@pytest.fixture(scope="module")
def run():
    return ps.train(SINGLE, dataclasses.replace(EXACT, transport="tcp", servers=2), engine=PROCESSES)


def test_a_run_tells_where_the_time_went(run):
    assert {span.who for span in run.trace} == {"server 0", "server 1", "worker 0", "worker 1", "worker 2"}
    assert set(run.trace.seconds()) >= {"compute", "quantize", "transfer", "wait", "aggregate", "apply"}
    assert run.seconds > 0
    assert run.seconds_per_step == pytest.approx(run.seconds / 4)
    assert all(0 <= seconds <= run.seconds for seconds, _, _ in run.losses)


def test_a_run_tells_its_validation(run):
    held_out = SINGLE.held_out()
    assert run.validation_loss == held_out.loss(run.params)
    assert run.accuracy == held_out.accuracy(run.params)
    assert ps.train(DOUBLE, BASE, engine=THREADS).validation_loss is None


def test_a_run_counts_its_bytes(run):
    parameters = sum(x.nbytes for x in run.params.values())
    assert 12 * parameters < run.bytes_sent < 12 * (parameters + 1000)
    assert 15 * parameters < run.bytes_received < 16 * (parameters + 1000)


def test_a_run_prints_and_goes_to_json(run):
    assert json.loads(json.dumps(run.to_dict()))["updates"] == 12
    assert ps.Config.from_dict(run.to_dict()["config"]) == run.config
    assert [line.split("  ")[0] for line in run.summary().splitlines()][:2] == ["consistency", "workers, servers"]
    assert f"{run.accuracy:.3f}" in run.summary()
    assert run._repr_html_().count("<tr>") == len(run.rows())
    assert repr(run).startswith("<Run of 12 updates in")


def test_a_summary_in_html_is_escaped(run):
    odd = dataclasses.replace(run, events=[(0.0, "<script>")])
    assert "<script>" not in odd._repr_html_()
    assert "<script>" in odd.summary()


def test_progress_is_told_a_few_times():
    heard = []
    delays = ps.Delays(seconds=0.02)
    run = ps.train(DOUBLE, dataclasses.replace(BASE, steps=20, delays=delays), engine=THREADS, progress=heard.append)
    assert [each.applied for each in heard] == sorted(each.applied for each in heard)
    assert heard[-1].applied == heard[-1].updates == 40
    assert len(heard) > 1
    assert [row[1:] for row in heard[-1].losses] == [row[1:] for row in run.losses]


def test_a_progress_function_that_raises_ends_the_run():
    def tell(progress):
        raise LookupError("no screen")

    with pytest.raises(LookupError, match="no screen"):
        ps.train(DOUBLE, dataclasses.replace(TCP, steps=100_000), engine=PROCESSES, progress=tell)
    assert_nothing_is_left()


def test_a_progress_bar_leaves_nothing_behind(capfd):
    ps.train(DOUBLE, BASE, engine=THREADS, progress=True)
    assert "Traceback" not in "".join(capfd.readouterr())


def test_an_engine_may_be_a_name():
    assert_same(ps.train(DOUBLE, BASE, engine="threads").params, ps.train(DOUBLE, BASE, engine=THREADS).params)
    with pytest.raises(ValueError, match=r"Did you mean threads\?"):
        ps.train(DOUBLE, BASE, engine="thread")


# An early end


@pytest.mark.parametrize("engine", [THREADS, PROCESSES], ids=repr)
def test_an_event_ends_a_run_early(engine):
    stop = threading.Event()
    config = dataclasses.replace(TCP, steps=100_000, delays=ps.Delays(seconds=0.002))
    run = ps.train(DOUBLE, config, engine=engine, stop=stop, progress=lambda told: told.applied and stop.set())
    assert run.stopped
    assert 0 < run.updates < 200_000
    assert run.bytes_sent > 0
    assert "(stopped)" in run.summary()
    assert_nothing_is_left()


@pytest.mark.parametrize("consistency", ["bsp", "ssp", "asp"])
def test_a_function_ends_a_run_early(consistency):
    config = dataclasses.replace(BASE, steps=100_000, delays=ps.Delays(seconds=0.002), consistency=consistency)
    asked = iter([False] * 5)
    run = ps.train(DOUBLE, config, engine=THREADS, stop=lambda: next(asked, True))
    assert run.stopped
    assert run.events == []


@pytest.mark.parametrize("engine", [THREADS, PROCESSES], ids=repr)
def test_a_run_that_is_stopped_before_it_begins_has_its_first_parameters(engine):
    run = ps.train(DOUBLE, TCP, engine=engine, stop=lambda: True)
    assert (run.stopped, run.updates, run.events) == (True, 0, [])
    assert_same(run.params, DOUBLE.init(None))
    assert_nothing_is_left()


def test_a_run_that_ends_by_itself_was_not_stopped():
    assert not ps.train(DOUBLE, BASE, engine=THREADS, stop=threading.Event()).stopped


# Bad days


@pytest.mark.parametrize("engine", [THREADS, PROCESSES], ids=repr)
@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (misfits.Raises(), r"worker 1 failed: ArithmeticError: the dog ate my rows"),
        (misfits.Diverges(at=1), r"worker 1 failed: NonFiniteError: The gradient of 'w' holds NaN"),
        (misfits.WrongShape(), r"worker 1 failed: ValueError: The gradient of 'w' must be float64 of shape \(4,\)"),
    ],
    ids=["raises", "nan from the start", "wrong shape"],
)
def test_a_worker_that_fails_is_one_clear_error(engine, problem, words):
    with pytest.raises(RuntimeError, match=words) as caught:
        ps.train(problem, TCP, engine=engine)
    assert "loss_and_gradient" in caught.value.__notes__[0] or "in check_gradients" in caught.value.__notes__[0]
    assert_nothing_is_left()


def test_the_reason_is_told_before_the_goodbye(monkeypatch):
    """Which completes the round without the worker: the others go on and may come to their end at once."""
    leave = ps.Client.close

    def leave_and_take_long(client):
        leave(client)
        if client.worker == 1:
            time.sleep(1.0)

    monkeypatch.setattr(ps.Client, "close", leave_and_take_long)
    with pytest.raises(RuntimeError, match="the dog ate my rows"):
        ps.train(misfits.Raises(), TCP, engine=THREADS)


# Runs that diverge

SIMULATED = ps.Simulated()
CORES = [THREADS, PROCESSES, SIMULATED]


@pytest.mark.parametrize("engine", CORES, ids=repr)
def test_a_run_whose_gradient_is_no_number_any_more_ends_with_the_parameters_before_it(engine):
    run = ps.train(misfits.Diverges(), TCP, engine=engine)
    assert run.diverged.startswith("At step 2 of worker 1: The gradient of 'w' holds NaN or infinity")
    assert "Lower the learning rate" in run.diverged
    assert (run.updates, run.stopped, run.events) == (4, False, [])
    assert_same(run.params, ps.train(misfits.Diverges(), dataclasses.replace(TCP, steps=2), engine=SIMULATED).params)
    assert run.rows()[0] == ("diverged", run.diverged)
    assert run.to_dict()["diverged"] == run.diverged
    assert_nothing_is_left()


def test_a_first_gradient_of_parameters_that_others_moved_is_no_fault_of_the_data(monkeypatch):
    begin = ps.Client.begin

    def begin_late(client, session, **more):
        if client.worker == 1:
            time.sleep(0.3)
        return begin(client, session, **more)

    monkeypatch.setattr(ps.Client, "begin", begin_late)
    config = dataclasses.replace(TCP, consistency="asp", steps=1000, delays=ps.Delays(0.01))
    run = ps.train(misfits.DivergesOnceMoved(), config, engine=THREADS)
    assert run.diverged.startswith("At step 0 of worker 1: The training loss is nan")
    assert 0 < run.updates < 1000


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("consistency", ["bsp", "ssp", "asp"])
@pytest.mark.parametrize("engine", CORES, ids=repr)
def test_a_learning_rate_that_is_far_too_high_ends_the_run_and_not_in_nan(engine, consistency, servers):
    X, y = misfits.rows()
    problem = ps.LinearRegression(X.astype("f4"), y, X.astype("f4"), y)
    config = dataclasses.replace(
        BASE, consistency=consistency, servers=servers, steps=400, optimizer=ps.SGD(lr=1e5), transport="inproc"
    )
    if engine == PROCESSES:
        config = dataclasses.replace(config, transport="pipe")
    run = ps.train(problem, config, engine=engine)
    assert run.diverged
    assert not run.stopped
    assert run.updates < 400 * config.workers
    assert all(np.isfinite(x).all() for x in run.params.values())
    assert_nothing_is_left()


@pytest.mark.parametrize("problem", [ps.SoftmaxRegression, ps.MLP])
def test_a_learning_rate_of_1e30_is_a_divergence_and_no_accuracy_alone(problem):
    config = dataclasses.replace(BASE, steps=20, optimizer=ps.SGD(lr=1e30))
    run = ps.train(problem(*ps.datasets.digits()), config, engine=THREADS)
    assert "Lower the learning rate" in run.diverged
    assert all(np.isfinite(x).all() for x in run.params.values())
    assert "diverged" in run.summary()
    assert "diverged" in repr(run)
    assert "diverged" in run._repr_html_()


def test_a_run_that_does_not_diverge_does_not_say_so():
    run = ps.train(DOUBLE, BASE, engine=THREADS)
    assert run.diverged is None
    assert "diverged" not in run.summary()


@pytest.mark.parametrize("consistency", ["bsp", "ssp"])
def test_a_run_goes_on_without_a_worker_that_is_killed(consistency):
    run = ps.train(misfits.Kills(), dataclasses.replace(TCP, consistency=consistency), engine=PROCESSES)
    assert (run.updates, run.missing) == ((10, 6) if consistency == "bsp" else (16, 0))
    texts = [text for _, text in run.events]
    assert "worker 1 ended before its work was done: its process was killed by SIGKILL." in texts
    assert "server 0: worker 1 is gone: its connection closed without a goodbye" in texts
    assert "event" in run.summary()
    assert_nothing_is_left()


def test_a_run_whose_aggregator_cannot_do_with_the_workers_that_are_left_says_so():
    config = dataclasses.replace(TCP, workers=3, aggregator=ps.TrimmedMean(trim=1))
    with pytest.raises(
        RuntimeError, match=r"worker \d failed: RuntimeError: 2 workers are left, and TrimmedMean\(trim=1\)"
    ):
        ps.train(misfits.Kills(workers=3), config, engine=PROCESSES)
    assert_nothing_is_left()


def test_a_run_without_workers_is_over():
    with pytest.raises(RuntimeError, match=r"worker \d ended before its work was done: its exit code was 3"):
        ps.train(misfits.Exits(culprits=(0, 1)), TCP, engine=PROCESSES)
    assert_nothing_is_left()


def test_a_run_without_its_server_is_over():
    config = dataclasses.replace(TCP, optimizer=misfits.KillsItsServer())
    with pytest.raises(RuntimeError, match=r"server 0 ended before its work was done.*SIGKILL|ConnectionError"):
        ps.train(DOUBLE, config, engine=PROCESSES)
    assert_nothing_is_left()


FARTHER = "grpc, http, pipe, pyro, shm, tcp, thrift, zmq"
THEIRS = (
    r"^Processes\(\) cannot use InProc\(\), which does not reach beyond one process\. "
    rf"Use one of the transports {FARTHER}; or engine='threads', which takes every transport\.$"
)
ASKED = {
    "train": lambda config: ps.train(DOUBLE, config),
    "train, by name": lambda config: ps.train(DOUBLE, config, engine="processes"),
    "resume": lambda config: ps.train(
        DOUBLE, config, engine=PROCESSES, resume=ps.train(DOUBLE, BASE, engine="threads")
    ),
    "sweep": lambda config: list(ps.sweep(DOUBLE, [TCP, config], engine=PROCESSES)),
    "sensitivity": lambda config: ps.sensitivity(DOUBLE, config, engine=PROCESSES),
    "map": lambda config: ps.cost.codec_map({"exact": ps.Codec()}, [9], [1e7], start=config, samples=1),
    "against_measured": lambda config: against_measured(DOUBLE, config),
}


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_an_engine_refuses_a_transport_that_does_not_reach_before_anything_starts(ask, monkeypatch):
    config = dataclasses.replace(BASE, steps=2 * BASE.steps)
    monkeypatch.setattr(ps.Processes, "start", lambda *names: pytest.fail("a process was to start"))
    with pytest.raises(ValueError, match=THEIRS):
        ask(config)


def test_an_engine_asks_how_far_a_transport_of_ones_own_reaches(registry):
    @ps.register
    @dataclasses.dataclass(frozen=True)
    class Near(ps.InProc):
        name = "near"

    @ps.register
    @dataclasses.dataclass(frozen=True)
    class Rack(ps.Processes):
        name = "rack"
        apart = "network"

    with pytest.raises(
        ValueError, match=r"Processes\(\) cannot use .*Near\(\), which does not reach beyond one process"
    ):
        ps.train(DOUBLE, dataclasses.replace(BASE, transport=Near()))
    assert ps.train(DOUBLE, dataclasses.replace(BASE, transport=Near()), engine="threads").updates
    with pytest.raises(
        ValueError,
        match=r"Rack\(\) cannot use Pipe\(\), which does not reach beyond one machine\. Use .* grpc, http, pyro",
    ):
        ps.train(DOUBLE, dataclasses.replace(BASE, transport="pipe"), engine="rack")


@pytest.mark.parametrize(
    "problem", [None, 42, ROWS, list(ROWS), ROWS[0], ps.LinearRegression], ids=lambda p: type(p).__name__
)
def test_what_is_no_problem_is_refused_in_a_sentence(problem):
    with pytest.raises(TypeError, match=r"train takes a problem.*ps\.SoftmaxRegression\(X, y\).*Got") as refused:
        ps.train(problem)
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize("stop", [5, "now"])
def test_what_cannot_stop_a_run_is_refused_in_a_sentence(stop):
    with pytest.raises(TypeError, match=r"stop takes a threading\.Event, or a function.*got"):
        ps.train(SINGLE, BASE, engine=THREADS, stop=stop)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ps.train(SINGLE, {"steps": 3}), "train takes a Config, such as"),
        (lambda: list(ps.sweep(SINGLE, [ps.Codec()])), "sweep takes a Config for each run, also for run 1"),
        (lambda: ps.train(SINGLE, BASE, progress=1), "progress takes True, False, or a function"),
        (lambda: ps.train(SINGLE, BASE, engine=THREADS, every=1, on_eval=5), "on_eval takes functions"),
    ],
)
def test_what_is_no_plan_of_a_run_is_refused_in_a_sentence(call, words):
    with pytest.raises(TypeError, match=words):
        call()


def test_a_sweep_takes_a_single_config_too():
    (run,) = ps.sweep(SINGLE, dataclasses.replace(BASE, steps=2), engine=THREADS)
    assert run.config.steps == 2


def test_batches_are_added_up_also_where_a_problem_uses_its_arrays_again():
    rows, config = ps.datasets.diabetes(), ps.Config(workers=2, steps=5, accumulate=3, batch_size=20)
    one, other = (ps.train(kind(*rows), config, engine="simulated") for kind in (ps.LinearRegression, misfits.Reuses))
    for name, p in one.params.items():
        np.testing.assert_array_equal(p, other.params[name])


@pytest.mark.parametrize("exchange", [ps.PS(), ps.RingAllReduce()], ids=lambda exchange: exchange.name)
def test_the_parameters_may_take_their_time_to_come_home(exchange, monkeypatch):
    monkeypatch.setattr(local, "FAREWELL_S", 0.0)
    run = ps.train(SINGLE, dataclasses.replace(BASE, exchange=exchange), engine=THREADS)
    assert run.updates == run.config.workers * run.config.steps


def test_all_children_together_have_one_farewell():
    given = []

    class Lingers:
        pipe = types.SimpleNamespace(poll=lambda: False)

        def __init__(self, who):
            self.who = who

        def send(self, word, value=None):
            pass

        def end(self, timeout):
            given.append(timeout)
            time.sleep(timeout)
            return "it took all of its time"

    with Supervisor(lambda *names: [*map(Lingers, names)]) as supervisor:
        supervisor.start("a", "b", "c", "d")
        supervisor.farewell_s = 0.1
    assert len(given) == 4
    assert sum(given) <= 0.1


def test_a_stopped_round_that_can_no_longer_be_completed_loses_no_workers_report():
    slow = ps.Delays(seconds=0.01, slow={4: 40.0})
    config = ps.Config(workers=5, steps=500, aggregator="krum", delays=slow)
    seen = []
    run = ps.train(
        ps.SoftmaxRegression(*ps.datasets.digits()),
        config,
        engine=THREADS,
        progress=lambda now: seen.append(time.monotonic()) if now.applied else None,
        stop=lambda: bool(seen) and time.monotonic() > seen[0] + 0.2,
    )
    assert run.stopped
    assert all(run.state["workers"])


def test_more_workers_than_rows_are_refused_before_anything_starts():
    with pytest.raises(ValueError, match="use fewer workers"):
        ps.train(DOUBLE, dataclasses.replace(TCP, workers=49), engine=PROCESSES)


class Nested(ps.LinearRegression):
    """A problem that trains another one in other processes."""

    def loss_and_gradient(self, params, rows=None):
        ps.train(ps.LinearRegression(self.X, self.y), ps.Config(workers=1, steps=1))
        return super().loss_and_gradient(params, rows)


def test_processes_within_a_worker_process_are_refused_in_a_sentence():
    with pytest.raises(RuntimeError, match=r"worker \d failed: RuntimeError: Processes cannot run within a daemonic"):
        ps.train(Nested(*ROWS), dataclasses.replace(TCP, steps=2), engine=PROCESSES)
    assert_nothing_is_left()


def test_a_working_directory_that_is_gone_is_a_sentence(tmp_path):
    code = """
        import os, sys, minips as ps
        os.rmdir(os.getcwd())
        problem, config = ps.SoftmaxRegression(*ps.datasets.synthetic(classes=3)), ps.Config(workers=2, steps=2)
        print(ps.train(problem, config, engine="threads").updates)
        try:
            ps.train(problem, config)
        except OSError as error:
            print(error)
    """
    gone, here = tmp_path / "gone", os.path.dirname(os.path.dirname(ps.__file__))
    gone.mkdir()
    # A file: in a folder that is gone, Python 3.13.0 itself fails at imports where sys.path says "here", as under -c.
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(code))
    surroundings = {**os.environ, "PYTHONPATH": here}
    done = subprocess.run(
        [sys.executable, program], cwd=gone, capture_output=True, text=True, timeout=60, env=surroundings
    )
    updates, said = done.stdout.splitlines()
    assert updates == "4"
    assert said.startswith("The working directory has been deleted, and new processes start in it.")


def test_what_user_code_prints_goes_to_standard_error_and_to_the_events(capfd):
    run = ps.train(misfits.Prints(), TCP, engine=PROCESSES)
    lines = ["worker 1: one whole line", "worker 1: and a last one without an end"]
    assert [text for _, text in run.events] == lines
    assert capfd.readouterr() == ("", "".join(f"{line}\n" for line in lines))


def test_what_user_code_says_before_it_fails_is_shown(capfd):
    with pytest.raises(RuntimeError, match="worker 1 failed: ArithmeticError: the dog"):
        ps.train(misfits.Says(), TCP, engine=PROCESSES)
    shown, said = capfd.readouterr()
    assert shown == ""
    assert [line for line in said.splitlines() if ".py:" not in line] == [
        "worker 1: printed",
        "worker 1: logged",
        'worker 1:   warnings.warn("warned", stacklevel=1)',
        "worker 1: a last one without an end",
    ]
    assert said.count("UserWarning: warned\n") == 1


def test_what_another_worker_said_before_one_fails_is_shown(capfd):
    both = threading.Barrier(3)

    def fails(line):
        line.failed(ArithmeticError("the dog ate my rows"))
        both.wait(10)

    def says(line):
        line.send("log", "here I am")
        both.wait(10)

    with Supervisor(THREADS.start) as supervisor:
        for child, role in zip(supervisor.start("worker 0", "worker 1"), (fails, says), strict=True):
            child.assign(role, {})
        both.wait(10)
        with pytest.raises(RuntimeError, match="worker 0 failed"):
            supervisor.wait(lambda: False, 10)
    assert capfd.readouterr().err == "worker 1: here I am\n"


def test_a_closed_standard_error_loses_what_is_printed_and_no_more(monkeypatch):
    for closed in (None, io.StringIO()):
        if closed:
            closed.close()
        monkeypatch.setattr(sys, "stderr", closed)
        assert len(ps.train(misfits.Prints(), TCP, engine=PROCESSES).events) == 2


# Scripts


@pytest.mark.parametrize("engine", ["threads", "simulated"])
def test_a_bar_that_nobody_sees_writes_nothing(capfd, engine):
    ps.train(DOUBLE, BASE, engine=engine, progress=True)
    list(ps.sweep(DOUBLE, [BASE], engine=engine, progress=True))
    assert capfd.readouterr() == ("", "")


def script(tmp_path, text):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(text))
    return [sys.executable, "-W", "error", str(path)]


def test_a_script_without_a_guard_trains_with_its_own_problem_and_stage(tmp_path):
    command = script(
        tmp_path,
        """
        from dataclasses import dataclass

        import numpy as np

        import minips as ps

        print("once")
        HALF = 0.5

        @ps.register
        @dataclass(frozen=True)
        class Halves(ps.Quantizer):
            name = "halves"
            digits: int = ps.option(1, "halves that are kept", minimum=1)

            def encode(self, x, rng):
                return {"n": np.rint(x / HALF).astype("i4"), "like": x.reshape(x.shape)[...].copy()}

            def decode(self, parts):
                return (parts["n"] * HALF).astype(parts["like"].dtype)

        def square(x):
            return x * x

        class Bowl(ps.Problem):
            def init(self, rng):
                return {"w": np.zeros(3)}

            def loss_and_gradient(self, params, rows=None):
                off = params["w"] - self.X.mean(axis=0)
                return float(square(off).sum()) / 2, {"w": off}

        config = ps.Config(workers=2, steps=3, optimizer=ps.SGD(lr=0.5), push=ps.Codec(quantizer=Halves()))
        run = ps.train(Bowl(np.ones((4, 3)), np.zeros(4)), config)
        print(run.updates, run.params["w"].tolist())
        """,
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.stdout, done.stderr) == ("once\n6 [0.75, 0.75, 0.75]\n", "")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for a group of processes")
def test_ctrl_c_ends_a_run_and_all_its_processes(tmp_path):
    command = script(
        tmp_path,
        """
        import minips as ps

        def tell(progress):
            if progress.applied:
                print("running", flush=True)

        config = ps.Config(workers=2, steps=1_000_000, delays=ps.Delays(seconds=0.005))
        ps.train(ps.SoftmaxRegression(*ps.datasets.synthetic(rows=100, classes=2)), config, progress=tell)
        """,
    )
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True, start_new_session=True) as process:
        assert process.stdout.readline() == "running\n"
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the parent and to every child
        _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert errors.count("Traceback") == 1
    assert errors.rstrip().endswith("KeyboardInterrupt: The run was interrupted; all that it started has ended.")
    while group_is_alive(process.pid):  # the standard library's resource tracker leaves a moment after its parent
        time.sleep(0.02)


def group_is_alive(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_children_leave_by_themselves_when_their_parent_is_killed(tmp_path):
    command = script(
        tmp_path,
        """
        import minips as ps

        config = ps.Config(workers=2, steps=1_000_000, delays=ps.Delays(seconds=0.005))
        problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=100, classes=2))
        ps.train(problem, config, progress=lambda told: told.applied and print("running", flush=True))
        """,
    )
    with subprocess.Popen(command, stdout=-1, stderr=-1, text=True, start_new_session=True) as process:
        assert process.stdout.readline() == "running\n"
        process.kill()
        process.communicate(timeout=60)
    while group_is_alive(process.pid):
        time.sleep(0.02)


def test_importing_and_training_loads_nothing_that_draws_or_shows():
    program = """
    import sys
    import minips as ps
    ps.train(ps.SoftmaxRegression(*ps.datasets.synthetic(rows=40, classes=2)),
             ps.Config(transport="inproc", workers=1, steps=1), engine=ps.Threads())
    heavy = {"matplotlib", "ipywidgets", "sklearn", "IPython", "jupyter", "jupyterlab"}
    print(sorted(heavy & {name.split(".")[0] for name in sys.modules}))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


# User code that would end a program

ENGINES = ["threads", "simulated", pytest.param("processes", marks=pytest.mark.soak)]


def ended(engine, how, **changes):
    """The error of a run in which user code raised something of that name, and what it was."""
    problem = DOUBLE
    if "optimizer" not in changes:
        problem = misfits.Ends(culprits=(0, 1))
        problem.how = how
    config = dataclasses.replace(TCP if engine == "processes" else BASE, **changes)
    with pytest.raises(RuntimeError) as raised:
        ps.train(problem, config, engine=engine)
    assert_nothing_is_left()
    what = misfits.ENDS[how]()
    return raised.value, f"{type(what).__name__}: {message_of(what)}"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("how", ["status", "nothing", "words"])
def test_a_worker_that_exits_says_how(engine, how, capfd):
    error, what = ended(engine, how)
    status = {"status": 3, "nothing": 0, "words": 1}[how]
    expected = (
        f"failed: {what}" if engine == "simulated" else f"ended before its work was done: its exit code was {status}."
    )
    assert str(error).removeprefix("worker 0 ").removeprefix("worker 1 ") == expected
    assert error.run.updates == 4
    if engine != "simulated":
        assert ("bad rows" in capfd.readouterr().err) == (how == "words")


@pytest.mark.parametrize("engine", ["threads", pytest.param("processes", marks=pytest.mark.soak)])
def test_the_run_goes_on_without_a_worker_that_exits(engine):
    problem = misfits.Ends(culprits=(1,))
    slow = dataclasses.replace(TCP, steps=40, delays=ps.Delays(0.02))
    run = ps.train(problem, slow, engine=engine)
    assert any("worker 1 ended before its work was done: its exit code was 3." in text for _, text in run.events)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("how", ["generator", "own"])
def test_a_worker_fails_by_what_is_no_exception(engine, how):
    error, what = ended(engine, how)
    assert str(error).removeprefix("worker 0 ").removeprefix("worker 1 ") == f"failed: {what}"
    assert error.run.updates == 4


@pytest.mark.parametrize("engine", ["threads", pytest.param("processes", marks=pytest.mark.soak)])
def test_an_interrupt_that_a_worker_raises_itself_is_its_failure(engine):
    error, what = ended(engine, "interrupt")
    assert f" failed: {what}" in str(error)


def test_an_interrupt_within_a_simulation_is_the_callers():
    problem = misfits.Ends()
    problem.how = "interrupt"
    with pytest.raises(KeyboardInterrupt):
        ps.train(problem, BASE, engine="simulated")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("how", ["status", "generator", "own"])
def test_a_server_answers_where_a_stage_would_end_it(engine, how):
    error, what = ended(engine, how, optimizer=misfits.EndsItsServer(how=how))
    assert str(error)[9:] == f"failed: RuntimeError: User code raised {what}."
    assert error.run.updates == 4


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("how", ["status", "own"])
def test_replicas_fail_by_what_is_no_exception(engine, how):
    error, what = ended(engine, how, exchange=ps.RingAllReduce())
    exits = how == "status" and engine != "simulated"
    assert str(error)[9:] == ("ended before its work was done: its exit code was 3." if exits else f"failed: {what}")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("callback", ["progress", "on_eval"])
def test_a_callback_that_exits_ends_the_program(engine, callback):
    def leave(_):
        raise SystemExit(4)

    given = {"progress": leave} if callback == "progress" else {"every": 2, "on_eval": leave}
    with pytest.raises(SystemExit) as end:
        ps.train(DOUBLE, TCP if engine == "processes" else BASE, engine=engine, **given)
    assert end.value.code == 4
    assert_nothing_is_left()
