"""After a worker has left: under BSP the others make the config's steps, without rounds its pushes as well."""

import dataclasses
import os
import threading

import numpy as np
import pytest
from test_sessions import put
from test_shard import START, make, push, state_of

import minips as ps
from minips import cli, seeds
from minips.core.loop import Call, train_served
from minips.results.status import expected
from minips.training import byhand

WAIT_S = 20.0
PROBLEM = ps.SoftmaxRegression(*ps.datasets.synthetic(classes=3))
CONFIG = ps.Config(workers=3, steps=8, batch_size=None, optimizer=ps.SGD(lr=0.5, schedule=ps.Cosine(steps=8)))
LEFT = 3
"""The pushes of worker 1, which then leaves."""


def leaving(worker, overlap, over=lambda: False, seen=None):
    """The training loop, in which worker 1 leaves with a goodbye."""
    seen = yield from train_served(
        worker, overlap, lambda: over() or (worker.worker == 1 and worker.clock == LEFT), seen
    )
    if worker.worker == 1:
        yield Call(worker.ask_all("bye"))
    return seen


def serial(config, left=LEFT, problem=PROBLEM, steps=None):
    """The parameters of a loop over clocks, in which worker 1 pushes ``left`` times; and the loss of each clock."""
    params, losses = problem.init(seeds.init(config.seed)), []
    shards = [problem.shard(worker, config.workers) for worker in range(config.workers)]
    for clock in range(steps or config.steps):
        there = [worker for worker in range(config.workers) if worker != 1 or clock < left]
        pushed = [shards[worker].loss_and_gradient(params) for worker in there]
        losses.append(np.mean([loss for loss, _ in pushed]))
        rate = config.optimizer.lr * config.optimizer.schedule.factor(clock)
        for name in params:
            params[name] = params[name] - rate * np.mean([gradient[name] for _, gradient in pushed], axis=0)
    return params, losses


def assert_close(params, others):
    for name, p in others.items():
        np.testing.assert_allclose(params[name], p, rtol=1e-5, atol=1e-6)


# The shard


def test_a_round_lacks_a_worker_and_the_run_no_round():
    shard = make(ps.BSP(), updates=3 * 4)
    for worker in range(3):
        push(shard, worker)
    assert (shard.made, expected(shard)) == (3, 12)
    shard.leave(1)
    assert expected(shard) == 3 + 2 * 3
    for clock in range(1, 4):
        assert not shard.done
        push(shard, 0, clock), push(shard, 2, clock)
    assert (shard.done, shard.rounds, shard.applied, shard.missing) == (True, 4, 9, 3)
    assert expected(shard) == shard.applied
    assert [step for step, _ in shard.losses] == [1, 2, 3, 4]


def test_one_that_comes_back_goes_on_and_what_it_missed_stays_missing():
    shard = make(ps.BSP(), updates=3 * 5)
    shard.leave(1)
    for _ in range(2):
        push(shard, 0), push(shard, 2)
    assert shard.join(1) == 2
    assert expected(shard) == 4 + 3 * 3
    while not shard.done:
        for worker in range(3):
            push(shard, worker)
    assert (shard.rounds, shard.applied, shard.missing, shard.clocks) == (5, 13, 2, [5, 5, 5])


@pytest.mark.parametrize(("gone", "missing"), [(0, 0), (1, 0), (2, 6)])
def test_backup_workers_stand_in_for_as_many_that_leave(gone, missing):
    shard = make(ps.BSP(backup=1), workers=4, updates=4 * 4)  # 16 pushes of 3 a round: 6 rounds
    for worker in range(gone):
        shard.leave(worker)
    while not shard.done:
        for worker in sorted(shard.live):
            if shard.may_push(shard.clocks[worker]):
                push(shard, worker)
    assert (shard.rounds, shard.applied, shard.missing) == (6, 18 - missing, missing)


@pytest.mark.parametrize("consistency", [ps.SSP(staleness=2), ps.ASP()], ids=repr)
def test_without_rounds_the_others_make_the_pushes(consistency):
    shard = make(consistency, updates=12)
    shard.leave(1)
    while not shard.done:
        assert expected(shard) == 12
        push(shard, 0), push(shard, 2)
    assert (shard.applied, shard.missing, shard.clocks) == (12, 0, [6, 0, 6])


def test_the_state_of_a_shard_that_lacks_pushes_goes_on_to_the_same_round():
    one, other = make(ps.BSP(), updates=18), make(ps.BSP(), updates=18)
    for shard in (one, other):
        shard.leave(1)
        for _ in range(2):
            push(shard, 0), push(shard, 2)
    again = make(ps.BSP(), updates=18, params=one.params)
    again.restore(one.state())
    again.leave(1)
    for shard in (again, other):
        while not shard.done:
            push(shard, 0), push(shard, 2)
    assert state_of(again)[1:4] == state_of(other)[1:4] == (6, 12, 0)
    assert again.missing == other.missing == 6
    earlier = {name: value for name, value in one.state().items() if name != "made"}  # of a file of before
    again.restore(earlier)
    assert (again.applied, again.missing) == (4, 0)


def test_servers_that_a_worker_left_between_two_messages_end_at_one_round():
    shards = [make(ps.BSP(), updates=12) for _ in range(2)]
    for shard, pushing in zip(shards, ((0, 1, 2), (0, 2)), strict=True):
        for worker in pushing:
            push(shard, worker)
        shard.leave(1)
    while not all(shard.done for shard in shards):
        assert shards[0].rounds == shards[1].rounds
        for shard in shards:
            push(shard, 0), push(shard, 2)
    assert [(shard.rounds, shard.made) for shard in shards] == [(4, 12), (4, 12)]


def test_all_that_have_left_are_waited_for_again():
    shard = make(ps.BSP(), updates=9)
    for worker in range(3):
        shard.leave(worker)
    assert (expected(shard), shard.done) == (9, False)
    assert expected(make(ps.BSP(), params=START)) is None


# Runs


@pytest.mark.parametrize("engine", ["threads", "simulated"])
@pytest.mark.parametrize("servers", [1, 2])
def test_each_engine_ends_at_the_weights_of_a_serial_loop(engine, servers, monkeypatch):
    put(monkeypatch, train_served, leaving)
    told = []
    config = dataclasses.replace(CONFIG, servers=servers)
    run = ps.train(PROBLEM, config, engine=engine, progress=told.append)
    params, losses = serial(CONFIG)
    assert_close(run.params, params)
    assert [step for _, step, _ in run.losses] == [*range(1, 9)]
    np.testing.assert_allclose([loss for _, _, loss in run.losses], losses, rtol=1e-5)
    assert (run.updates, run.missing, run.clocks, run.stopped) == (3 * 8 - 5, 5, 8, False)
    assert told[-1][:2] == (19, 19)
    events = sorted(text for _, text in run.events)
    assert events == [f"server {i}: worker 1 has left at clock 3" for i in range(servers)]
    assert "missing updates" in run.summary()
    assert run.to_dict()["missing"] == 5
    assert run.seconds_per_step == run.seconds / 8


class Ends(ps.SoftmaxRegression):
    """Ends the process of worker 1 in its fourth step."""

    steps, ends = 0, False

    def shard(self, worker, workers):
        part = super().shard(worker, workers)
        part.ends = worker == 1
        return part

    def loss_and_gradient(self, params, rows=None):
        self.steps += 1
        if self.ends and self.steps == LEFT + 1:
            os._exit(7)
        return super().loss_and_gradient(params, rows)


@pytest.mark.soak
def test_a_process_that_dies_leaves_the_others_their_steps():
    steps = []
    config = dataclasses.replace(CONFIG, servers=2)
    problem = Ends(*ps.datasets.synthetic(classes=3))
    run = ps.train(problem, config, engine="processes", every=2, on_eval=lambda now: steps.append(now.step))
    assert_close(run.params, serial(CONFIG)[0])
    assert (run.updates, run.missing, run.stopped, steps) == (19, 5, False, [2, 4, 6, 8])
    assert any("worker 1 ended before its work was done" in text for _, text in run.events)


def test_a_run_that_lacks_updates_is_saved_and_goes_on(monkeypatch, tmp_path, capsys):
    half, file = dataclasses.replace(CONFIG, steps=4), str(tmp_path / "half.npz")
    with monkeypatch.context() as patch:
        put(patch, train_served, leaving)
        ps.train(PROBLEM, half, engine="threads").save(file)
    before = ps.Run.load(file)
    assert (before.updates, before.missing, before.clocks) == (11, 1, 4)
    with pytest.raises(
        ValueError, match=r"has applied 11 updates \(1 missing\), and the config makes 12 in all.*more than 4"
    ):
        ps.train(PROBLEM, half, engine="threads", resume=before)
    run = ps.train(PROBLEM, CONFIG, engine="threads", resume=before)
    assert (run.updates, run.missing, run.clocks, run.losses[-1][1]) == (23, 1, 8, 8)
    options = ["train", "--data", "synthetic", "--resume", file, "--steps", "5", "--engine", "threads"]
    assert cli.main(options) == 0
    said = capsys.readouterr()
    assert "Workers that had left did not make 1 of 15 updates.\n" in said.err
    assert "stopped" not in said.err


def test_local_steps_are_counted_as_the_config_counts_them(monkeypatch):
    put(monkeypatch, train_served, leaving)
    local = ps.LocalSteps(steps=3, optimizer=ps.SGD(lr=0.1, schedule=ps.Cosine(steps=24)))
    config = dataclasses.replace(CONFIG, local=local, steps=24, optimizer=ps.SGD(lr=1.0))
    for engine in ("threads", "simulated"):
        told = []
        run = ps.train(PROBLEM, config, engine=engine, progress=told.append)
        assert (run.updates, run.missing, run.losses[-1][1], told[-1][:2]) == (19, 5, 24, (57, 57))


# By hand


def working(address, left, done, **options):
    """A worker in a thread, which leaves after ``left`` pushes, if any."""

    def run():
        clients = []
        stop = (lambda: clients[0].clock == left) if left is not None else None
        done.append(ps.work(PROBLEM, address, token="t", met=clients.append, stop=stop, **options))

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_stop_may_be_a_function_that_is_asked_at_each_clock():
    config = dataclasses.replace(CONFIG, transport="inproc")
    with byhand.serving(PROBLEM, config, None, "t") as served:
        done, told = [], []
        server = served.servers[0]
        threads = [working(server.address, LEFT if rank == 1 else None, done, rank=rank) for rank in range(3)]
        served.wait(told.append)
        status, run = server.status(), served.end()
        for thread in threads:
            thread.join(WAIT_S)
    assert sorted((one.worker, one.pushes, one.over) for one in done) == [(0, 8, True), (1, 3, False), (2, 8, True)]
    assert_close(run.params, serial(CONFIG)[0])
    assert (run.updates, run.missing, run.stopped) == (19, 5, False)
    assert (status.applied, status.updates, status.missing) == (19, 19, 5)
    assert "19 of 19 updates" in str(status)
    assert ", 5 missing, done" in str(status)
    assert all(now.applied <= now.updates for now in told)


def test_what_a_stop_raises_ends_the_work_and_the_server_hears_of_it():
    config = dataclasses.replace(CONFIG, transport="inproc", workers=1)
    with byhand.serving(PROBLEM, config, None, "t") as served:
        with pytest.raises(ZeroDivisionError):
            ps.work(PROBLEM, served.servers[0].address, token="t", stop=lambda: 1 / 0 > 0)
        assert [text for _, text in served.servers[0].events] == [
            "worker 0 has left: ZeroDivisionError: division by zero"
        ]
