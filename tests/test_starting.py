"""The wait at the start of a run by hand: of servers for workers, of workers for servers and for each other."""

import dataclasses
import logging
import re
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from test_byhand import PROBLEM, TWO, Working, assert_same, served

import minips as ps
from minips import cli
from minips.drivers import starting
from minips.stages.transports import patience
from minips.training import byhand

WAIT_S = 20.0
INF = float("inf")
THREE = dataclasses.replace(TWO, workers=3, steps=4)
LATE = "waited 0.3 seconds for workers 1 and 2 to come, and the run has not begun. Start what is missing, or wait for "


def serving(config=THREE, seconds=WAIT_S, **options):
    return byhand.serving(PROBLEM, config, None, "t", start_timeout_s=seconds, **options)


def until(condition):
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_server_gives_up_those_who_do_not_come_and_tells_the_others():
    with serving(seconds=0.3) as one:
        server = one.servers[0]
        worker = Working(PROBLEM, server.address, rank=0, start_timeout_s=WAIT_S)
        until(lambda: server.connected)
        with pytest.raises(TimeoutError, match=f"^Server 0 {LATE}"):
            one.wait()
        with pytest.raises(RuntimeError, match=f"^Server 0 {LATE}"):
            worker.result()
        run = one.end()
    assert (run.updates, run.stopped) == (0, True)
    assert re.search(LATE, run.events[0][1])
    assert run.events[1][1].startswith("worker 0 has left: RuntimeError: Server 0 waited")


def test_a_python_server_gives_up_too():
    params = PROBLEM.init(None)
    with ps.Server(params, THREE, updates=12, start_timeout_s=0.3).serve(token="t") as server:
        with pytest.raises(TimeoutError, match=r"waited 0\.3 seconds for workers 0, 1 and 2 to come"):
            server.wait(WAIT_S)
        with pytest.raises(RuntimeError, match=r"^Server 0 waited"):
            ps.work(PROBLEM, server.address, token="t")
    with ps.Server(params, THREE, start_timeout_s=0.1).serve(
        token="t"
    ) as server:  # without an end, without a beginning
        with pytest.raises(TimeoutError, match=r"The run is not over in 0\.3 seconds"):
            server.wait(0.3)
        assert server.status().stuck == ""


def test_a_worker_gives_up_those_who_do_not_come():
    with serving() as one:
        server = one.servers[0]
        with pytest.raises(TimeoutError, match=f"^Worker 0 {LATE}"):
            ps.work(PROBLEM, server.address, token="t", start_timeout_s=0.3)
        assert [text.partition(" seconds")[0] for _, text in server.events] == [
            "worker 0 has left: TimeoutError: Worker 0 waited 0.3"
        ]
        assert not server.connected


def test_a_worker_gives_up_a_server_that_does_not_come():
    began = time.monotonic()
    with pytest.raises(ConnectionError, match=r"No server answers at tcp://127\.0\.0\.1:9"):
        ps.work(PROBLEM, "tcp://127.0.0.1:9", token="t", start_timeout_s=0.3)
    assert time.monotonic() - began > 0.3
    halt = threading.Event()
    halt.set()
    with pytest.raises(ConnectionError, match="No server answers"):
        ps.work(PROBLEM, "tcp://127.0.0.1:9", token="t", stop=halt)


def test_a_worker_that_comes_before_its_server_trains(tmp_path):
    address, config = f"pipe://{tmp_path.name}", dataclasses.replace(TWO, workers=1, transport="pipe")
    worker = Working(PROBLEM, address, start_timeout_s=WAIT_S)
    time.sleep(0.2)
    with byhand.serving(PROBLEM, config, address, "t") as one:
        one.wait()
        assert worker.result().pushes == TWO.steps
        run = one.end()
    assert_same(run.params, ps.train(PROBLEM, config, engine="threads").params)


def test_a_worker_takes_no_number_before_all_servers_are_there(tmp_path):
    config = dataclasses.replace(TWO, workers=1, servers=2, transport="pipe")
    addresses = [f"pipe://{tmp_path.name}-{index}" for index in range(2)]
    with byhand.serving(PROBLEM, config, addresses[0], "t", index=0) as one:
        worker = Working(PROBLEM, addresses, start_timeout_s=WAIT_S)
        time.sleep(3 * byhand.DIAL_S)
        with byhand.serving(PROBLEM, config, addresses[1], "t", index=1) as other:
            one.wait(), other.wait()
            assert worker.result().pushes == TWO.steps
        assert one.servers[0].events == []


@pytest.mark.parametrize("seconds", [WAIT_S, INF])
def test_who_waits_says_for_whom(seconds, monkeypatch, caplog):
    monkeypatch.setattr(starting, "SAY_S", 0.1)
    caplog.set_level(logging.WARNING, "minips")
    with serving(seconds=seconds) as one:
        server, runs = one.servers[0], []
        waiting = threading.Thread(target=lambda: runs.append(one.wait()))
        waiting.start()
        workers = [Working(PROBLEM, server.address, rank=0, start_timeout_s=seconds)]
        most = "for ever" if seconds == INF else r"for at most \d+ seconds more"
        for who in ("Server 0", "Worker 0"):
            until(lambda who=who: re.search(rf"{who} waits for workers 1 and 2, {most}\.", caplog.text))
        status = ps.status(server.address, "t")
        assert status.awaited == status.to_dict()["awaited"] == [1, 2]
        assert [one.waits_for for one in status.workers] == [[1, 2], [], []]
        assert "waiting for workers 1 and 2 to begin" in str(status)
        workers.append(Working(PROBLEM, server.address, rank=1))
        until(lambda: ps.status(server.address, "t").awaited == [2])
        workers.append(Working(PROBLEM, server.address, rank=2))
        waiting.join(WAIT_S)
        assert [worker.result().pushes for worker in workers] == [4, 4, 4]
        status = server.status()
        assert status.awaited == []
        assert not {"awaited", "missing"} & status.to_dict().keys()


@pytest.mark.soak
def test_the_count_begins_anew_with_a_server_and_with_a_worker_that_are_started_again(monkeypatch):
    now = [0.0]
    for module in (starting, patience):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=time.sleep))

    def check_for(seconds, start):
        for _ in range(seconds):
            now[0] += 1.0
            start.check()

    run = None
    for _ in range(2):
        with serving(seconds=100.0, resume=run) as one:
            check_for(90, one.servers[0].start)
            run = one.end()
    with serving(seconds=100.0, resume=run) as one:
        server, patient = one.servers[0], {"rank": 0, "start_timeout_s": 100.0, "timeout": 101.0}
        for _ in range(2):
            halt = threading.Event()
            worker = Working(PROBLEM, server.address, stop=halt, **patient)
            until(lambda: server.connected)
            now[0] += 90.0
            time.sleep(3 * byhand.LOOK_S)
            halt.set()
            assert not worker.result().over
        worker = Working(PROBLEM, server.address, **patient)
        while worker._thread.is_alive():
            now[0] += 101.0
            time.sleep(byhand.LOOK_S)
        with pytest.raises(TimeoutError, match="Worker 0 waited 100 seconds for workers 1 and 2"):
            worker.result()
        check_for(90, server.start)
        with pytest.raises(TimeoutError, match="Server 0 waited 100 seconds for workers 0, 1 and 2"):
            check_for(11, server.start)


def test_the_time_for_which_a_server_was_stopped_is_no_part_of_its_wait(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(patience, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=time.sleep))
    with serving(seconds=10.0) as one:
        for _ in range(5):
            now[0] += 1_000.0
            one.servers[0].start.check()


@pytest.mark.soak
def test_a_worker_waits_for_a_server_that_is_stopped_for_a_while(caplog):
    """The server answers nobody while the test holds its lock."""
    with serving() as one:
        server = one.servers[0]
        with server._lock:
            asked = []  # whether to stop, while the worker waits for the others
            patient = {"timeout": 0.5, "start_timeout_s": WAIT_S, "stop": lambda: asked.append(True)}
            early = Working(PROBLEM, server.address, rank=0, **patient)
            until(lambda: "This worker waits for the server (No answer came" in caplog.text)
        until(lambda: asked)
        with server._lock:
            until(lambda: "Worker 0 waits for the server (No answer came" in caplog.text)
        others = [Working(PROBLEM, server.address, rank=rank) for rank in (1, 2)]
        one.wait()
        assert [worker.result().pushes for worker in (early, *others)] == [4, 4, 4]


def test_a_run_has_begun_once_all_have_been_there():
    """A worker that has left before its first push is not waited for."""
    with serving(seconds=0.5) as one:
        server = one.servers[0]
        clients = [ps.connect(server.address, worker=rank, token="t") for rank in range(3)]
        server.start.check()
        for client in clients[1:]:
            client.close()
        clients[0].close()
        assert server.status().awaited == []
        done = Working(PROBLEM, server.address, rank=0)
        one.wait()
        assert done.result().pushes == 4
        assert (server.shard.applied, server.shard.missing) == (4, 8)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), -INF, 1e9, "600", None, True])
def test_what_are_no_seconds_is_a_sentence(seconds):
    words = r"start_timeout_s takes seconds above 0 and at most 1e\+06 \(inf waits for ever\); got"
    with pytest.raises(ValueError, match=words):
        ps.Server({"w": np.zeros(1)}, TWO, start_timeout_s=seconds)
    with pytest.raises(ValueError, match=words):
        ps.work(PROBLEM, "tcp://127.0.0.1:9", token="t", start_timeout_s=seconds)


@pytest.mark.parametrize("command", ["serve --data synthetic", "work --data synthetic --connect tcp://127.0.0.1:9"])
def test_what_are_no_seconds_of_a_command_is_exit_status_2(command, monkeypatch, capsys):
    monkeypatch.setenv("MINIPS_TOKEN", "t")
    assert cli.main([*command.split(), "--start-timeout-s", "0"]) == 2
    assert "start_timeout_s takes seconds above 0" in capsys.readouterr().err


@pytest.mark.soak
def test_the_commands_give_up_and_say_so(tmp_path, capsys):
    with served(tmp_path, "--workers", "2", "--start-timeout-s", "2") as (server, _, work):
        work[-1] = str(tmp_path / "t")
        assert cli.main([*work, "--start-timeout-s", "inf"]) == 1
        said = capsys.readouterr().err
        code, _, error = server.ended()
    assert code == 1
    for text in (said, error):
        words = "minips: Server 0 waited 2 seconds for worker 1 to come, and the run has not begun."
        assert text.splitlines()[-1].startswith(words)
