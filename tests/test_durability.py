"""What a server acknowledged survives its process: kill -9 of servers and workers, and of everything at once."""

import random

import numpy as np
import pytest
from killing import RunByHand

EXACT: dict[str, str] = {}
FEEDBACK = {"quantizer": "topk:fraction=0.1", "memory": "errorfeedback"}
DELTA = {"quantizer": "topk:fraction=0.1", "memory": "delta"}
QSGD = {"quantizer": "qsgd"}
ADAM = {"optimizer": "adam:lr=0.01"}
WHOLE = 10**6
"""Clocks between two snapshots, so that the journal holds the whole run."""


def same(params, others):
    assert params.keys() == others.keys()
    for name, p in params.items():
        assert p.tobytes() == others[name].tobytes(), f"{name} differs by {np.abs(p - others[name]).max()}"


def test_everything_killed_in_turn_and_together_goes_on_by_the_same_commands(tmp_path):
    with RunByHand(tmp_path, {**ADAM, **DELTA}) as run:
        run.kill(20, "server 0")
        run.kill(50, "worker 0")
        run.kill(80, "worker 1")
        run.kill(110, "server 0", "worker 0", "worker 1")
        same(run.finish(), run.undisturbed())
    assert "the run goes on from" in (tmp_path / "server 0.log").read_text()


TRANSPORTS, CODECS = ("tcp", "shm", "http"), {"exact": EXACT, "feedback": FEEDBACK, "delta": DELTA}


def kill_a_server(folder, fields, seed, servers=1, times=1):
    rng = random.Random(seed)
    with RunByHand(folder, {**ADAM, **fields, "servers": str(servers)}, threads=True) as run:
        for at in sorted(rng.sample(range(10, 180), times)):
            run.kill(at, f"server {servers - 1}", rng=rng)
        same(run.finish(), run.undisturbed())
        assert len(run.struck) == times


@pytest.mark.soak
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_server_killed_at_a_drawn_clock_ends_at_the_undisturbed_bits(tmp_path, transport, codec):
    kill_a_server(tmp_path, {**CODECS[codec], "transport": transport}, seed=0)


@pytest.mark.campaign
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(1, 21))
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_server_killed_twenty_times_in_each_way_ends_at_the_undisturbed_bits(tmp_path, transport, codec, seed):
    kill_a_server(tmp_path, {**CODECS[codec], "transport": transport}, seed)


@pytest.mark.soak
@pytest.mark.parametrize("codec", CODECS)
def test_one_of_two_servers_killed_again_and_again_ends_at_the_undisturbed_bits(tmp_path, codec):
    kill_a_server(tmp_path, CODECS[codec], seed=0, servers=2, times=2)


def without_rounds(folder, fields, seed):
    rng = random.Random(seed)
    with RunByHand(folder, {**ADAM, **fields}, threads=True, every=WHOLE) as run:
        run.kill(rng.randrange(20, 150), "server 0", rng=rng)
        ended = run.finish()
        params, pushes = run.serial()
    same(ended, params)
    assert len(pushes) == len({*pushes}) == 2 * 200, "each push is in the journal once"
    for worker, result in run.work.items():
        clocks = sorted(clock for who, clock in pushes if who == worker)
        assert clocks == [*range(len(clocks))], "no acknowledged push is missing"
        assert result.pushes >= len(clocks)


@pytest.mark.parametrize(("rule", "codec"), [("ssp:staleness=2", "delta"), ("asp", "feedback")])
def test_without_rounds_the_parameters_are_those_of_a_loop_over_the_journal(tmp_path, rule, codec):
    without_rounds(tmp_path, {**CODECS[codec], "consistency": rule}, seed=0)


@pytest.mark.campaign
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(1, 11))
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("rule", ["ssp:staleness=2", "asp"])
def test_ten_times_each_without_rounds_the_parameters_are_those_of_a_loop(tmp_path, rule, codec, seed):
    without_rounds(tmp_path, {**CODECS[codec], "consistency": rule}, seed)


def kill_a_worker(folder, fields, seed, servers):
    rng = random.Random(seed)
    with RunByHand(folder, {**ADAM, **fields, "servers": str(servers)}) as run:
        run.kill(rng.randrange(10, 180), f"worker {rng.randrange(2)}", rng=rng)
        same(run.finish(), run.undisturbed())


@pytest.mark.soak
@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("codec", ["exact", "feedback", "qsgd"])
def test_a_killed_worker_comes_back_to_the_undisturbed_bits(tmp_path, codec, servers):
    kill_a_worker(tmp_path, {**CODECS, "qsgd": QSGD}[codec], 0, servers)


@pytest.mark.campaign
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(1, 21))
@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("codec", ["exact", "feedback", "qsgd"])
def test_a_worker_killed_twenty_times_comes_back_to_the_undisturbed_bits(tmp_path, codec, servers, seed):
    kill_a_worker(tmp_path, {**CODECS, "qsgd": QSGD}[codec], seed, servers)


def kill_everything(folder, seed):
    rng = random.Random(seed)
    with RunByHand(folder, {**ADAM, **FEEDBACK, "servers": "2"}) as run:
        run.kill(rng.randrange(10, 180), *run.commands, rng=rng)
        same(run.finish(), run.undisturbed())


@pytest.mark.campaign
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(20))
def test_everything_killed_at_once_goes_on_to_the_undisturbed_bits(tmp_path, seed):
    kill_everything(tmp_path, seed)
