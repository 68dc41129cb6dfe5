"""Runs that end before their time: what they had come to is kept, and goes on to where the undisturbed run ends."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import minips as ps
from minips.core.partition import cut, partition
from minips.engines import local
from minips.results.run import state_of

PROBLEM = ps.SoftmaxRegression(*ps.datasets.digits())
TOPK = ps.Codec(quantizer=ps.TopK(fraction=0.05), memory=ps.ErrorFeedback())
DELTA = ps.Codec(ps.Sign(), memory=ps.Delta())
SOON = ps.Delays(seconds=0.002)
BASE = ps.Config(workers=2, servers=2, steps=1000, transport="inproc", delays=SOON, optimizer=ps.Adam(lr=0.01))


def interrupting(at):
    """A function for progress that sends this process a Ctrl-C once so many pushes are applied."""
    sent = []

    def watch(progress):
        if progress.applied >= at and not sent:
            sent.append(1)
            os.kill(os.getpid(), signal.SIGINT)

    return watch


def interrupted(config, engine, at=8, **options):
    with pytest.raises(KeyboardInterrupt, match="all that it started has ended") as caught:
        ps.train(PROBLEM, config, engine=engine, progress=interrupting(at), **options)
    run = caught.value.run
    assert run.stopped
    assert at <= run.updates < config.workers * config.steps
    assert run.validation_loss is not None
    return run


def assert_same(run, other):
    for name, p in run.params.items():
        np.testing.assert_array_equal(p, other.params[name], strict=True)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"push": TOPK},
        {"push": DELTA, "pull": DELTA},
        {"push": TOPK, "overlap": True},
        {"servers": 1, "push": TOPK, "exchange": ps.RingAllReduce()},
    ],
    ids=["exact", "topk", "delta", "overlap", "ring"],
)
@pytest.mark.parametrize("engine", ["threads", "simulated"])
def test_a_run_that_ctrl_c_has_ended_goes_on_to_the_bits_of_the_undisturbed_one(engine, fields, tmp_path):
    config = BASE.with_({**fields, "delays": None if engine == "simulated" else SOON})
    first = interrupted(config, engine)
    first.save(tmp_path / "run.npz")
    steps = first.updates // config.workers + 5
    config = config.with_({"steps": steps, "delays": None})
    again = ps.train(PROBLEM, config, engine="simulated", resume=tmp_path / "run.npz")
    assert_same(again, ps.train(PROBLEM, config, engine="simulated"))
    assert again.updates == 2 * steps


def test_a_run_in_processes_that_ctrl_c_has_ended_goes_on_too():
    config = BASE.with_({"push": TOPK, "transport": "tcp"})
    first = interrupted(config, "processes")
    config = config.with_({"steps": first.updates // 2 + 5, "delays": None})
    again = ps.train(PROBLEM, config, engine="threads", resume=first)
    assert_same(again, ps.train(PROBLEM, config, engine="simulated"))


@pytest.mark.parametrize("engine", ["threads", "simulated"])
def test_a_run_without_rounds_that_ctrl_c_has_ended_goes_on_with_all_pushes(engine):
    config = BASE.with_({"consistency": "asp", "push": TOPK})
    first = interrupted(config, engine)
    total = first.updates // config.workers + 5
    again = ps.train(PROBLEM, config.with_({"steps": total}), engine=engine, resume=first)
    assert [sum(server["shard"]["clocks"]) for server in again.state["servers"]] == [2 * total] * 2
    assert again.updates == 2 * total


def test_a_resumed_run_that_ctrl_c_has_ended_is_the_whole_one():
    config = BASE.with_({"delays": None})
    first = ps.train(PROBLEM, config.with_({"steps": 6}), engine="simulated")
    run = interrupted(config, "simulated", resume=first)
    assert [step for _, step, _ in run.losses] == [*range(1, run.updates // 2 + 1)]


def test_the_second_ctrl_c_ends_a_run_at_once():
    raised = []

    def watch(progress):
        if progress.applied and not raised:
            raised.append(1)
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught:
        ps.train(PROBLEM, BASE, engine="threads", progress=watch)
    assert not hasattr(caught.value, "run")


def test_a_handler_of_ones_own_is_heard_and_decides():
    stop = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: stop.set())
    try:
        run = ps.train(PROBLEM, BASE, engine="threads", progress=interrupting(8), stop=stop)
    finally:
        assert signal.signal(signal.SIGINT, before) is not signal.default_int_handler
    assert run.stopped


@pytest.mark.parametrize("exchange", [ps.PS(), ps.RingAllReduce()], ids=repr)
@pytest.mark.parametrize("engine", ["threads", "simulated"])
def test_an_error_in_a_callback_carries_the_run(engine, exchange):
    def raises(now):
        if now.step == 10:
            raise OSError("The disk is full.")

    config = BASE.with_({"servers": 2 if exchange == ps.PS() else 1, "push": TOPK, "exchange": exchange})
    with pytest.raises(OSError, match=r"The disk is full\.") as caught:
        ps.train(PROBLEM, config, engine=engine, every=5, on_eval=raises)
    assert caught.value.run.updates == 20
    config = config.with_({"steps": 15, "delays": None})
    again = ps.train(PROBLEM, config, engine="simulated", resume=caught.value.run)
    assert_same(again, ps.train(PROBLEM, config, engine="simulated"))


class Breaks(ps.SoftmaxRegression):
    """Its last worker fails after so many steps."""

    steps = 5

    def shard(self, worker, workers):
        part = super().shard(worker, workers)
        part.left = self.steps if worker == workers - 1 else None
        return part

    def loss_and_gradient(self, params, rows=None):
        if getattr(self, "left", None) is not None:
            self.left -= 1
            if self.left < 0:
                raise ArithmeticError("worn out")
        return super().loss_and_gradient(params, rows)


@pytest.mark.parametrize("exchange", [ps.PS(), ps.RingAllReduce()], ids=repr)
@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_the_end_of_a_worker_carries_the_run(engine, exchange):
    config = BASE.with_({"servers": 1, "exchange": exchange, "transport": "tcp"})
    with pytest.raises(RuntimeError, match="worker 1 failed: ArithmeticError: worn out") as caught:
        ps.train(Breaks(*ps.datasets.digits()), config, engine=engine)
    run = caught.value.run
    assert (run.updates, run.stopped) == (10, True)
    expected = ps.train(PROBLEM, config.with_({"steps": 5, "delays": None}), engine="simulated")
    assert_same(run, expected)
    assert run.accuracy == expected.accuracy
    mended = Breaks(*ps.datasets.digits())
    mended.steps = 1000
    if exchange == ps.PS():
        assert ps.train(mended, config.with_({"steps": 10}), engine="threads", resume=run).updates >= 20
    else:
        with pytest.raises(ValueError, match="has no state to resume from"):
            ps.train(mended, config, engine="threads", resume=run)


def test_no_goodbye_completes_a_round_before_the_server_has_heard_of_the_end(monkeypatch):
    go_on, close = ps.Server.go_on, ps.Client.close

    def late(server, end=False):
        time.sleep(0.3)
        go_on(server, end)

    def after_the_one_that_fails(client, **words):
        time.sleep(0.1 * (client.worker == 0))
        close(client, **words)

    monkeypatch.setattr(ps.Server, "go_on", late)
    monkeypatch.setattr(ps.Client, "close", after_the_one_that_fails)
    with pytest.raises(RuntimeError, match="worn out") as caught:
        ps.train(Breaks(*ps.datasets.digits()), BASE.with_({"servers": 1}), engine="threads")
    assert (caught.value.run.updates, caught.value.run.stopped) == (10, True)


@pytest.mark.parametrize("exchange", [ps.PS(), ps.RingAllReduce()], ids=repr)
@pytest.mark.parametrize("engine", ["threads", "simulated"])
@pytest.mark.parametrize("callback", ["progress", "stop"])
def test_a_callback_that_raises_each_time_carries_the_run(callback, engine, exchange):
    applied = []

    def raises(*told):
        if told:
            applied.append(told[0].applied)
        if applied and applied[-1] >= 8:
            raise OSError("The disk is full.")

    callbacks = {"progress": raises} | ({"stop": raises} if callback == "stop" else {})
    if callback == "stop":
        callbacks["progress"] = lambda told: applied.append(told.applied)
    config = BASE.with_({"servers": 2 if exchange == ps.PS() else 1, "push": TOPK, "exchange": exchange})
    with pytest.raises(OSError, match=r"The disk is full\.") as caught:
        ps.train(PROBLEM, config, engine=engine, **callbacks)
    first = caught.value.run
    config = config.with_({"steps": first.updates // 2 + 5, "delays": None})
    again = ps.train(PROBLEM, config, engine="simulated", resume=first)
    assert_same(again, ps.train(PROBLEM, config, engine="simulated"))


@pytest.mark.parametrize("engine", ["threads", "simulated"])
def test_ctrl_c_in_the_last_evaluation_is_heard(engine):
    def interrupts(now):
        if now.step == 4:
            os.kill(os.getpid(), signal.SIGINT)

    config = BASE.with_({"steps": 4})
    with pytest.raises(KeyboardInterrupt) as caught:
        ps.train(PROBLEM, config, engine=engine, every=2, on_eval=interrupts)
    assert (caught.value.run.updates, caught.value.run.stopped) == (8, False)


def test_a_stop_in_a_pause_of_replicas_ends_them_all_at_one_step():
    config = BASE.with_({"servers": 1, "workers": 3, "steps": 40, "exchange": ps.RingAllReduce(), "delays": None})
    for _ in range(6):
        stop = threading.Event()

        def stops(now, stop=stop):
            if now.step == 8:
                stop.set()

        run = ps.train(PROBLEM, config, engine="threads", every=4, on_eval=stops, stop=stop)
        assert 24 <= run.updates <= 120


def test_a_resumed_run_that_is_stopped_before_it_begins_keeps_what_workers_remember():
    config = BASE.with_({"push": TOPK, "delays": None, "steps": 10})
    first = ps.train(PROBLEM, config.with_({"steps": 5}), engine="threads")
    stopped = ps.train(PROBLEM, config, engine="threads", resume=first, stop=lambda: True)
    assert (stopped.updates, stopped.stopped) == (10, True)
    again = ps.train(PROBLEM, config, engine="threads", resume=stopped)
    assert_same(again, ps.train(PROBLEM, config, engine="simulated"))
    assert again.events == []


def test_after_an_error_no_gradient_is_computed_from_what_an_earlier_run_had_seen():
    problem = Breaks(*ps.datasets.digits())
    problem.steps = 1000
    config = BASE.with_({"overlap": True, "delays": None, "steps": 60})
    first = ps.train(problem, config.with_({"steps": 5}), engine="threads")
    problem.steps = 30
    with pytest.raises(RuntimeError, match="worn out") as caught:
        ps.train(problem, config, engine="threads", resume=first)
    problem.steps = 1000
    run = ps.train(problem, config, engine="threads", resume=caught.value.run)
    assert max(run.staleness) <= 3


@pytest.mark.parametrize(
    ("taken", "kept"),
    [
        ([(34, [(0, 34)]), (34, [(1, 34)])], [[], []]),
        ([(34, [(0, 34)]), (34, [(0, 34)])], [[(0, 34)], [(0, 34)]]),
        ([(35, [(0, 35)]), (34, [(1, 34)])], [[], [(1, 34)]]),
        ([(35, [(1, 35)]), (35, [(1, 35), (0, 35)]), (35, [(1, 35)])], [[(1, 35)]] * 3),
    ],
    ids=["crossed", "at both", "in a round that is complete at the other", "three servers"],
)
def test_a_push_that_one_server_has_not_taken_is_made_again(taken, kept):
    servers = [{"shard": {"rounds": rounds, "held": held}, "links": []} for rounds, held in taken]
    assert [server["shard"]["held"] for server in state_of(servers, [])["servers"]] == kept


def test_workers_whose_pushes_came_to_one_server_each_before_the_end_go_on():
    config = BASE.with_({"delays": None, "steps": 8, "timeout_s": 20.0})
    first = ps.train(PROBLEM, config.with_({"steps": 4}), engine="threads")
    for worker, (server, layout) in enumerate(zip(first.state["servers"], layouts(config), strict=True)):
        gradients = cut({name: np.zeros_like(p) for name, p in first.params.items()}, layout)
        server["shard"]["held"] = [(worker, 4, 4, gradients, 0.0)]
    first.state = state_of(first.state["servers"], first.state["workers"])
    run = ps.train(PROBLEM, config, engine="threads", resume=first)
    assert_same(run, ps.train(PROBLEM, config, engine="simulated"))


def layouts(config):
    return partition(PROBLEM.init(np.random.default_rng(0)), config.servers)


def test_a_run_within_a_callback_is_interrupted_and_is_not_taken_for_the_outer_one():
    inner, config = [], BASE.with_({"workers": 1, "delays": None, "transport": "inproc"})

    def trains(now):
        try:
            ps.train(PROBLEM, config, engine="threads", progress=interrupting(1))
        except KeyboardInterrupt as interrupt:
            inner.append(interrupt.run)
            raise

    with pytest.raises(KeyboardInterrupt) as caught:
        ps.train(PROBLEM, BASE, engine="threads", every=2, on_eval=trains)
    assert inner[0].config.workers == 1
    assert not hasattr(caught.value, "run")


MODULE = """
from pathlib import Path
import minips as ps
from minips.engines import local

class Counts(ps.SoftmaxRegression):
    steps = 0

    def loss_and_gradient(self, params, rows=None):
        self.steps += 1
        if self.steps == 10:
            Path("under way").touch()
        return super().loss_and_gradient(params, rows)

def make():
    return Counts(*ps.datasets.digits())
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no signals for a group of processes")
@pytest.mark.parametrize(
    ("number", "fields"),
    [
        pytest.param(signal.SIGINT, {"push": TOPK}, id="Ctrl-C topk"),
        pytest.param(signal.SIGTERM, {}, id="SIGTERM exact"),
        pytest.param(signal.SIGINT, {}, id="Ctrl-C exact", marks=pytest.mark.soak),
        pytest.param(signal.SIGTERM, {"push": TOPK}, id="SIGTERM topk", marks=pytest.mark.soak),
    ],
)
def test_a_run_of_the_command_line_is_saved_at_the_first_signal_and_goes_on(number, fields, tmp_path):
    config = ps.Config(workers=2, servers=2, steps=100_000, **fields)
    (tmp_path / "c.json").write_text(json.dumps(config.to_dict()))
    (tmp_path / "counted.py").write_text(MODULE)
    train = [sys.executable, "-m", "minips", "train", "--problem", "counted:make"]
    environment = {**os.environ, "PYTHONPATH": str(Path(ps.__file__).parents[1])}
    common = {"cwd": tmp_path, "env": environment, "text": True}
    command = [*train, "--config", "c.json", "--save", "a.npz", "--json", "a.json"]
    with subprocess.Popen(command, stdout=-1, stderr=-1, start_new_session=True, **common) as process:
        while not (tmp_path / "under way").exists():
            assert process.poll() is None
            time.sleep(0.02)
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does: to the parent and to every child
        else:
            process.terminate()
        out, error = process.communicate(timeout=60)
    assert (process.returncode, "(stopped)" in out) == (128 + number, True)
    first = ps.Run.load(tmp_path / "a.npz")
    assert json.loads((tmp_path / "a.json").read_text())["updates"] == first.updates > 10
    assert "a.npz; --resume a.npz continues it.\n" in error
    more = ["--resume", "a.npz", "--steps", str(first.updates // 2 + 5), "--save", "b.npz"]
    subprocess.run([*train, *more], timeout=60, check=True, capture_output=True, **common)
    run = ps.Run.load(tmp_path / "b.npz")
    assert_same(run, ps.train(PROBLEM, run.config, engine="simulated"))


class Fails(Breaks):
    """Its last worker fails once the run is stopped."""

    stop = threading.Event()

    def loss_and_gradient(self, params, rows=None):
        if getattr(self, "left", None) is not None and self.stop.is_set():
            raise ArithmeticError("too late")
        return ps.SoftmaxRegression.loss_and_gradient(self, params, rows)


def test_a_worker_that_fails_while_a_stopped_run_comes_to_its_end_is_an_event(monkeypatch):
    monkeypatch.setattr(local, "FAREWELL_S", 0.5)
    stop, problem = Fails.stop, Fails(*ps.datasets.digits())
    run = ps.train(problem, BASE, engine="threads", stop=stop, progress=lambda told: told.applied and stop.set())
    assert run.stopped
    assert [text for _, text in run.events if "too late" in text] in (
        ["worker 1, while it was ending: ArithmeticError: too late"],
        [],  # where it had heard of the end before
    )


def test_a_stop_that_the_workers_are_too_slow_for_says_so(monkeypatch):
    monkeypatch.setattr(local, "FAREWELL_S", 0.1)
    config = BASE.with_({"delays": ps.Delays(seconds=0.01, slow={1: 500.0}), "steps": 10})
    began = threading.Event()
    run = ps.train(PROBLEM, config, engine="threads", stop=began, progress=lambda told: began.set())
    assert (run.stopped, run.updates) == (True, 0)
    assert any(text.startswith("not all servers reached one clock within 0.1 seconds") for _, text in run.events)


def stopped_somewhere(seed):
    """A run of some config is stopped at some moment, and goes on."""
    rng = random.Random(seed)
    config = BASE.with_(
        {
            "workers": rng.choice([1, 2, 3]),
            "servers": rng.choice([1, 2, 3]),
            "steps": 400,
            "consistency": rng.choice(["bsp", "bsp", "ssp", "asp"]),
            "overlap": rng.random() < 0.3,
            "push": rng.choice([ps.Codec(), TOPK, DELTA]),
            "delays": rng.choice([None, ps.Delays(seconds=0.001)]),
        }
    )
    if rng.random() < 0.25:
        config = config.with_({"servers": 1, "consistency": "bsp", "workers": 3, "exchange": ps.RingAllReduce()})
    pauses = rng.choice([{}, {"every": rng.choice([1, 3, 7]), "on_eval": lambda now: None}])
    stop = threading.Event()
    timer = threading.Timer(rng.uniform(0.0, 0.25), stop.set)
    timer.start()
    first = ps.train(PROBLEM, config, engine="threads", stop=stop, **pauses)
    timer.join()
    assert not [text for _, text in first.events if "one clock" in text]
    config = config.with_({"steps": first.updates // config.workers + 4, "delays": None})
    again = ps.train(PROBLEM, config, engine="threads", resume=first)
    assert again.updates == config.workers * config.steps
    if config.consistency == ps.BSP():
        assert_same(again, ps.train(PROBLEM, config, engine="simulated"))


@pytest.mark.parametrize("seed", range(4))
def test_a_run_that_is_stopped_somewhere_goes_on(seed):
    stopped_somewhere(seed)


@pytest.mark.soak
def test_runs_that_are_stopped_somewhere_go_on():
    for seed in range(4, 64):
        stopped_somewhere(seed)
