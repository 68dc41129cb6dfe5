"""Evaluations in the pauses of a run; epochs; and draws of a problem's own."""

import csv
import math
import signal
import sys
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest

import minips as ps
from minips.engines.worker import batch

PROBLEM = ps.SoftmaxRegression(*ps.datasets.digits())
ENGINES = ["threads", "simulated", "processes"]
EXCHANGES = [{}, {"servers": 2}, {"exchange": ps.RingAllReduce()}, {"consistency": "asp"}, {"overlap": True}]


def recorded(engine, every=4, **fields):
    evaluations = []
    run = ps.train(
        PROBLEM, ps.Config(workers=2, steps=10, **fields), engine=engine, every=every, on_eval=evaluations.append
    )
    return run, evaluations


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("fields", EXCHANGES, ids=["ps", "two servers", "ring", "asp", "overlap"])
def test_an_evaluation_shows_the_run_after_every_so_many_steps_and_at_its_end(engine, fields):
    run, evaluations = recorded(engine, **fields)
    assert [now.step for now in evaluations] == [4, 8, 10]
    assert [now.seconds for now in evaluations] == sorted(now.seconds for now in evaluations)
    assert not run.stopped
    assert run.updates == 20
    last = evaluations[-1]
    assert last.validation_loss == run.validation_loss
    assert last.loss == run.losses[-1][2]
    if fields != {"consistency": "asp"}:
        shorter = ps.train(PROBLEM, ps.Config(workers=2, steps=8, **fields), engine="simulated")
        for name, p in shorter.params.items():
            np.testing.assert_array_equal(p, evaluations[1].params[name])
        assert evaluations[1].loss == shorter.losses[-1][2]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("fields", EXCHANGES[:3], ids=["ps", "two servers", "ring"])
def test_a_function_that_returns_true_ends_the_run_there(engine, fields):
    config = ps.Config(workers=2, steps=50, **fields)
    run = ps.train(PROBLEM, config, engine=engine, every=3, on_eval=lambda now: now.step == 6)
    assert run.stopped
    assert len(run.losses) == 6
    same = ps.train(PROBLEM, config.with_({"steps": 6}), engine="simulated")
    for name, p in same.params.items():
        np.testing.assert_array_equal(p, run.params[name])


def test_all_functions_are_called_even_where_one_ends_the_run():
    seen = []
    ps.train(
        PROBLEM,
        ps.Config(workers=1, steps=9),
        engine="threads",
        every=2,
        on_eval=[lambda now: True, lambda now: seen.append(now.step)],
    )
    assert seen == [2]


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_function_raises_passes_through(engine):
    def fails(now):
        raise LookupError(f"at {now.step}")

    with pytest.raises(LookupError, match="at 2"):
        ps.train(PROBLEM, ps.Config(workers=2, steps=9), engine=engine, every=2, on_eval=fails)
    assert not [one for one in threading.enumerate() if one.name.startswith("minips")]


@pytest.mark.soak
def test_a_slow_function_is_not_the_workers_fault():
    """Nobody is blamed for a pause that is longer than the config's time-out."""
    config = ps.Config(workers=2, servers=2, steps=4, timeout_s=0.2)
    run = ps.train(PROBLEM, config, engine="threads", every=2, on_eval=lambda now: threading.Event().wait(1.0) and None)
    assert (run.updates, run.events) == (8, [])


def test_a_stop_in_a_pause_ends_the_run():
    stop = threading.Event()
    run = ps.train(
        PROBLEM,
        ps.Config(workers=2, servers=2, steps=10_000),
        engine="threads",
        stop=stop,
        every=2,
        on_eval=lambda now: stop.set(),
    )
    assert run.stopped
    assert run.updates < 100


class Dies(ps.SoftmaxRegression):
    """Worker 0, with one row more, is killed in its third step, when one of two servers has its push alone."""

    def loss_and_gradient(self, params, rows=None):
        steps = vars(self).setdefault("steps", [])
        steps.append(self.rows)
        if self.rows % 2 == 0 and len(steps) == 3:
            import os
            import signal
            import time

            from minips.stages.transports import streams

            ask = streams.StreamChannel.ask

            def ask_once(channel, frames, caller):
                ask(channel, frames, caller)
                time.sleep(0.1)
                os.kill(os.getpid(), signal.SIGKILL)

            streams.StreamChannel.ask = ask_once
        return super().loss_and_gradient(params, rows)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="there is no SIGKILL here")
@pytest.mark.parametrize(("consistency", "workers"), [("bsp", 3), ("asp", 2)])
def test_a_worker_that_is_lost_between_two_servers_does_not_hold_up_the_pauses(consistency, workers):
    problem = Dies(PROBLEM.X[: 999 + workers % 2], PROBLEM.y[: 999 + workers % 2])
    assert [problem.shard(worker, workers).rows % 2 for worker in range(workers)] == [0, 1, 1][:workers]
    began, steps = time.monotonic(), []
    run = ps.train(
        problem,
        ps.Config(workers=workers, servers=2, steps=12, timeout_s=5.0, consistency=consistency),
        stop=lambda: time.monotonic() > began + 30,
        every=1,
        on_eval=lambda now: steps.append(now.step),
    )
    assert not run.stopped
    assert steps == [*range(1, 13)]


def test_early_stopping_keeps_the_best():
    evaluations = []
    stopping = ps.EarlyStopping(patience=2, min_delta=0.0)
    losses = iter([3.0, 2.0, 2.5, 1.9, 1.9, 1.95])
    for step, loss in enumerate(losses, 1):
        now = ps.Eval(step, {}, math.nan, loss, 0.0)
        evaluations.append(stopping(now))
    assert evaluations == [False, False, False, False, False, True]
    assert stopping.best.step == 4
    assert not stopping(ps.Eval(1, {}, math.nan, 5.0, 0.0))  # another run
    assert stopping.best.step == 1
    assert not stopping(ps.Eval(9, {}, math.nan, 4.0, 7.0))
    assert not stopping(ps.Eval(25, {}, math.nan, 4.5, 1.0))  # another one, which is not that far in time
    assert stopping.best.step == 25
    patient = ps.EarlyStopping(patience=1, min_delta=0.5)
    assert [patient(ps.Eval(step, {}, 0.0, loss, 0.0)) for step, loss in ((1, 2.0), (2, 1.6))] == [False, True]


def test_early_stopping_ends_a_run_that_fits_too_much():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 20)), rng.integers(0, 2, 40)
    problem = ps.SoftmaxRegression(X[:20], y[:20], X[20:], y[20:])
    stopping = ps.EarlyStopping(patience=3)
    run = ps.train(
        problem,
        ps.Config(workers=2, steps=400, optimizer=ps.SGD(lr=0.5)),
        engine="simulated",
        every=5,
        on_eval=stopping,
    )
    assert run.stopped
    assert stopping.best.step + 15 == run.losses[-1][1] < 400
    assert stopping.best.validation_loss <= run.validation_loss


def test_early_stopping_says_what_it_needs():
    problem = ps.SoftmaxRegression(PROBLEM.X, PROBLEM.y)
    with pytest.raises(ValueError, match=r"the problem has none. Give it X_validation"):
        ps.train(problem, ps.Config(workers=1, steps=4), engine="simulated", every=2, on_eval=ps.EarlyStopping())
    with pytest.raises(ValueError, match="a patience of at least 1"):
        ps.EarlyStopping(patience=0)


def test_a_csv_log_has_a_row_for_each_evaluation(tmp_path):
    path, config = tmp_path / "log.csv", ps.Config(workers=2, steps=4)
    path.write_text("what was there\n")
    evaluations = []
    first = ps.train(PROBLEM, config, engine="simulated", every=2, on_eval=[ps.CsvLog(path), evaluations.append])
    ps.train(
        PROBLEM,
        config.with_({"steps": 8}),
        engine="simulated",
        every=2,
        on_eval=[ps.CsvLog(path, append=True), evaluations.append],
        resume=first,
    )
    with path.open(newline="") as file:
        rows = [*csv.DictReader(file)]
    assert [int(row["step"]) for row in rows] == [2, 4, 6, 8]
    assert [float(row["loss"]) for row in rows] == [now.loss for now in evaluations]
    assert [float(row["validation_loss"]) for row in rows] == [now.validation_loss for now in evaluations]


@pytest.mark.parametrize("engine", ["threads", "simulated", pytest.param("processes", marks=pytest.mark.soak)])
@pytest.mark.parametrize("exchange", ["ps", "ring"])
def test_a_run_keeps_the_losses_of_its_evaluations_without_a_function_that_is_called(engine, exchange, tmp_path):
    config, seen = ps.Config(workers=2, steps=6, exchange=exchange, transport="tcp"), []
    run = ps.train(PROBLEM, config, engine=engine, every=4, progress=True)
    assert [step for _, step, *_ in run.evaluations] == [4, 6]
    assert run.evaluations[-1][2:] == (run.losses[-1][2], run.validation_loss)
    run.save(tmp_path / "run.npz")
    assert ps.Run.load(tmp_path / "run.npz").evaluations == run.evaluations
    assert run.to_dict()["evaluations"] == run.evaluations
    longer = config.with_({"steps": 9})
    more = ps.train(PROBLEM, longer, engine=engine, every=2, on_eval=seen.append, resume=tmp_path / "run.npz")
    assert [step for _, step, *_ in more.evaluations] == [4, 6, 8, 9]
    assert more.evaluations[:2] == run.evaluations
    assert [now.validation_loss for now in seen] == [row[3] for row in more.evaluations[2:]]
    assert [row[0] for row in more.evaluations] == sorted(row[0] for row in more.evaluations)
    assert ps.train(PROBLEM, config, engine="simulated").evaluations == []


def test_the_progress_shows_the_last_evaluation(monkeypatch):
    shown = []

    @contextmanager
    def showing(progress, read, first):
        assert (progress, first.phase) == (True, "simulating")
        yield lambda news: shown.append(read(news))

    monkeypatch.setattr(sys.modules["minips.training.train"], "showing", showing)
    run = ps.train(PROBLEM, ps.Config(workers=1, steps=4), engine="simulated", every=2, progress=True)
    losses = [f"{held_out:.4f}" for *_, held_out in run.evaluations]
    details = [f"step 4 of 4 · loss {run.losses[-1][2]:.4f} · validation loss {loss}" for loss in losses]
    assert shown[-1][:2] == ("simulating", 1.0)
    assert shown[-1].detail in details


def test_a_run_that_an_evaluation_ends_with_an_error_keeps_those_before():
    def fails(now):
        if now.step == 4:
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full") as failed:
        ps.train(PROBLEM, ps.Config(workers=1, steps=9, transport="inproc"), engine="threads", every=2, on_eval=fails)
    assert [step for _, step, *_ in failed.value.run.evaluations] == [2, 4]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"every": 0}, "every is a number of steps, at least 1; got 0"),
        ({"on_eval": print}, r"on_eval needs the number of steps between its calls, such as every=20\."),
        ({"every": True}, "every is a number of steps, at least 1; got True"),
        ({"every": 0, "on_eval": print}, "every is a number of steps, at least 1; got 0"),
        ({"every": 2, "on_eval": [7]}, "on_eval takes functions"),
        ({"every": 2, "on_eval": lambda now: "yes"}, "returns True to end the run, or None; .* returned 'yes'"),
    ],
)
def test_what_is_no_evaluation_is_refused(given, sentence):
    with pytest.raises((TypeError, ValueError), match=sentence):
        ps.train(PROBLEM, ps.Config(workers=1, steps=4), engine="simulated", **given)


def test_an_epoch_passes_over_each_row_once():
    problem = ps.SoftmaxRegression(np.eye(10), np.arange(10))
    config = ps.Config(workers=1, batch_size=4, sampling="epoch")
    epochs = [
        np.concatenate([batch(problem, config, 0, clock, 0) for clock in range(3 * e, 3 * e + 3)]) for e in (0, 1)
    ]
    assert [sorted(epoch) for epoch in epochs] == [[*range(10)]] * 2
    assert [*epochs[0]] != [*epochs[1]]
    other = np.concatenate([batch(problem, config, 1, clock, 0) for clock in range(3)])
    assert [*other] != [*epochs[0]]
    twice = config.with_({"accumulate": 3})
    assert [*np.concatenate([batch(problem, twice, 0, 1, turn) for turn in range(3)])] == [*epochs[1]]


def test_epochs_are_steps():
    config = ps.Config(workers=2, epochs=3, batch_size=32, sampling="epoch")
    rows = PROBLEM.rows
    steps = 3 * math.ceil(math.ceil(rows / 2) / 32)
    run = ps.train(PROBLEM, config, engine="simulated")
    assert run.updates == 2 * steps
    assert (run.config.steps, run.config.epochs) == (steps, None)
    assert ps.Config(workers=2, epochs=3, batch_size=None).for_rows(rows).steps == 3
    assert ps.Config(workers=2, epochs=3, accumulate=2).for_rows(rows).steps == math.ceil(steps / 2)
    with pytest.raises(ValueError, match="either steps or epochs; got steps=10 and epochs=2"):
        ps.Config(steps=10, epochs=2)
    with pytest.raises(ValueError, match=r"Config.sampling takes one of 'batch', 'epoch'"):
        ps.Config(sampling="row")


class Dropout(ps.SoftmaxRegression):
    """Drops a part of the features, where it trains."""

    def loss_and_gradient(self, params, rows=None, rng=None):
        if rng is None:
            return super().loss_and_gradient(params, rows)
        X, y = self._select(rows)
        kept = rng.random(X.shape) < 0.8
        return ps.SoftmaxRegression(X * kept / 0.8, y, classes=10).loss_and_gradient(params)


def test_a_problem_that_draws_is_the_same_on_every_engine():
    problem = Dropout(*ps.datasets.digits())
    config = ps.Config(workers=2, steps=6, accumulate=2)
    runs = [ps.train(problem, config, engine=engine) for engine in ENGINES]
    for run in runs[1:]:
        for name, p in runs[0].params.items():
            np.testing.assert_array_equal(p, run.params[name])
    plain = ps.train(PROBLEM, config, engine="simulated")
    assert not np.array_equal(plain.params["W"], runs[0].params["W"])
    assert (Dropout.draws, ps.SoftmaxRegression.draws) == (True, False)
