"""Runs on Ray clusters: on the loopback of a network of their own, and on two hosts that the test makes."""

import json
import shutil
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import hosts
import pytest

import minips as ps
from minips.engines import threads
from minips.engines.actor import _ShiftedPipe, shift_times
from minips.engines.on_ray import found_cluster
from minips.results.trace import Trace

PROGRAM = Path(__file__).with_name("on_ray.py")
PORT = 6379
needs_ray = pytest.mark.skipif(not find_spec("ray"), reason="Ray is not installed")
needs_hosts = pytest.mark.skipif(
    bool(sys.platform != "linux" or hosts.lacking()), reason="no namespaces can be made here"
)
needs_cables = pytest.mark.skipif(not shutil.which("ip"), reason="there is no ip, of iproute2")
MESSAGES = {"ends": True, "bytes": True, "waits": True, "played": True}
DIGITS = ps.SoftmaxRegression(*ps.datasets.digits())


@pytest.mark.skipif(bool(find_spec("ray")), reason="Ray is installed")
def test_where_ray_is_missing_a_sentence_says_how_to_get_it():
    with pytest.raises(ModuleNotFoundError, match=r'needs ray.*pip install "minips\[ray\]"'):
        ps.Ray()


@needs_ray
def test_what_cannot_be_is_refused_before_ray_starts():
    with pytest.raises(ValueError, match="which tcp connects; got transport=SharedMemory"):
        ps.train(DIGITS, ps.Config(transport="shm"), engine=ps.Ray())
    for address in ("ray://127.0.0.1:10001", "10.0.0.1"):
        with pytest.raises(ValueError, match="the address of a cluster's head"):
            ps.train(DIGITS, engine=ps.Ray(address))


@needs_ray
def test_a_cluster_that_does_not_answer_is_a_sentence_at_once(tmp_path, monkeypatch):
    for name in ("RAY_TMPDIR", "TMPDIR"):
        monkeypatch.setenv(name, str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(RuntimeError, match=rf"at {address}: nothing accepts connections there\. `ray start --head`"):
        ps.train(DIGITS, engine=ps.Ray(address))
    monkeypatch.setenv("RAY_ADDRESS", address)
    for engine in (ps.Ray(), ps.Ray("auto")):
        with pytest.raises(RuntimeError, match=f"at {address}: nothing|No Ray cluster is found"):
            ps.train(DIGITS, engine=engine)


def test_times_are_converted_to_the_supervisors_clock():
    trace = Trace("worker 0")
    trace.add("compute", 2.0, 0.5)
    report = {
        "changed_at": 3.0,
        "losses": [(1.0, 0, 2.3)],
        "events": [(1.5, "so it was")],
        "applied": 8,
        "trace": trace,
    }
    moved = shift_times("result", report, 10.0)
    assert moved["changed_at"] == 13.0
    assert moved["losses"] == [(11.0, 0, 2.3)]
    assert moved["events"] == [(11.5, "so it was")]
    assert moved["applied"] == 8
    assert [(span.start, span.seconds) for span in moved["trace"]] == [(12.0, 0.5)]
    assert report["changed_at"] == 3.0
    assert shift_times("finished", None, 10.0) is None
    assert shift_times("result", None, 10.0) is None


@pytest.mark.parametrize("exchange", ["ps", "ring"])
def test_every_time_that_a_role_sends_is_converted(monkeypatch, exchange):
    """A run whose children have a clock that is a million seconds behind the supervisor's."""
    monkeypatch.setattr(threads, "ControlPipe", lambda pipe: _ShiftedPipe(pipe, 1e6))
    watched = []
    config = ps.Config(workers=2, steps=4, exchange=exchange, transport="inproc")
    run = ps.train(DIGITS, config, engine="threads", progress=watched.append)
    times = [row[0] for row in (*run.losses, *run.events)] + [span.start for span in run.trace] + [run.seconds]
    assert len(run.losses) == 4
    assert watched[-1].updates == watched[-1].applied == 8
    assert all(5e5 < at < 2e6 for at in times), times


def test_a_cluster_is_found_without_ray(tmp_path, monkeypatch):
    for name in ("RAY_ADDRESS", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as head:
        address = f"127.0.0.1:{head.getsockname()[1]}"
        (tmp_path / "ray").mkdir()
        (tmp_path / "ray" / "ray_current_cluster").write_text(address)
        assert found_cluster() == (address, True)
    assert found_cluster() == (address, False)
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    assert found_cluster() == (address, False)
    monkeypatch.setattr("os.getuid", lambda: -1)  # somebody else's
    assert found_cluster() == ("", False)
    monkeypatch.setenv("RAY_ADDRESS", "nowhere")
    assert found_cluster() == ("nowhere", False)


@needs_ray
@needs_hosts
def test_a_cluster_on_one_machine():
    found = json.loads(hosts.on_loopback(str(PROGRAM), "on_one_machine", timeout=280))
    assert found["same"], "not the parameters of Processes"
    assert found["bytes"], "a worker's report was lost"
    assert found["spans"] == ["server 0", "server 1", *(f"worker {worker}" for worker in range(4))]
    assert found["spans within the run"]
    assert found["messages"] == MESSAGES
    assert found["own stage"]
    assert found["stopped"]
    assert found["failed"].endswith("ArithmeticError: the third law is broken")
    assert 'raise ArithmeticError("the third law is broken")' in found["traceback"]
    assert found["pauses"] == [10, 20]
    assert found["still connected"], "what was there was not left as it was"
    assert found["disconnected"]
    assert found["no room"] == "The run was stopped before Ray had started its servers and workers."
    assert found["CPUs free again"] == 6
    assert found["groups"] == ["REMOVED"]


@pytest.mark.soak
@needs_ray
@needs_hosts
def test_an_actor_that_is_killed_is_started_again_and_the_run_ends_at_the_undisturbed_bits():
    printed = hosts.on_loopback(str(PROGRAM), "restarted", timeout=280)
    found = json.loads(printed.splitlines()[-1])  # Ray tells of each death before
    assert found == {"same": [True, True, True], "events": [1, 1, 2]}


@pytest.fixture(scope="module")
def cluster():
    """Two hosts, and a Ray cluster of both."""
    with hosts.joined(2) as (first, second):
        for host in (first, second):
            host.ray_start(first)
        yield first, second


@pytest.mark.soak
@pytest.mark.outside
@needs_ray
@needs_hosts
@needs_cables
def test_a_cluster_of_two_hosts(cluster):
    first, second = cluster
    found = json.loads(first.python(str(PROGRAM), "on_two_hosts", f"{first.address}:{PORT}", timeout=280))
    assert found["same"], "not the parameters of Processes"
    placed = found["events"][0]
    assert placed == (
        f"placed on {first.address}: server 0, worker 0, worker 2; {second.address}: server 1, worker 1, worker 3"
    ) or placed == (
        f"placed on {second.address}: server 0, worker 0, worker 2; {first.address}: server 1, worker 1, worker 3"
    )
    begin, end, seconds = found["spans"]
    assert -1 < begin < end < seconds + 1
    assert found["messages"] == MESSAGES
    assert 0 < found["clock error"] < 0.1
    for tls in (True, False):
        counted, due = found[f"tls={tls}"]
        print(f"{tls=}: {counted / 1e6:.1f} MB at the cable, {due / 1e6:.1f} MB due")
        assert counted == pytest.approx(due, rel=0.1)
        assert found[f"heard, tls={tls}"] > 10_000
    assert not found["read, tls=True"]
    assert found["read, tls=False"]
    assert first.actors() + second.actors() == []


@pytest.mark.soak
@pytest.mark.outside
@needs_ray
@needs_hosts
@needs_cables
def test_the_commands_of_the_page_train_on_a_cluster(cluster):
    first, _ = cluster
    *_, train = hosts.commands("ray start", first.address)
    first.run(*first.in_shell(f"{train} --steps 10 --save run.npz"))
    trained = ps.train(DIGITS, ps.Config(steps=10)).params
    for name, x in ps.Run.load(first.place / "run.npz").params.items():
        assert x.tobytes() == trained[name].tobytes()


@pytest.mark.soak
@pytest.mark.outside
@needs_ray
@needs_hosts
@needs_cables
def test_what_starts_on_one_machine_listens_on_its_loopback_alone():
    with hosts.joined(2) as (host, _):
        found = json.loads(host.python(str(PROGRAM), "at_home", timeout=280))
    assert found["same"]
    assert found["skipped"] == []
    assert found["loopback"]
    assert found["elsewhere"] == []


def next_line(program):
    """The next line of the program, among those that Ray prints."""
    while line := program.stdout.readline():
        if line.startswith("{"):
            return json.loads(line)
    raise AssertionError(program.stderr.read())


@pytest.mark.outside
@pytest.mark.timeout(900)
@needs_ray
@needs_hosts
@needs_cables
@pytest.mark.parametrize(
    "victim", ["host", *(pytest.param(name, marks=pytest.mark.campaign) for name in ("worker", "server"))]
)
@pytest.mark.parametrize(
    "turns", [pytest.param(2, marks=pytest.mark.campaign), pytest.param(10, marks=pytest.mark.campaign)]
)
def test_nothing_is_left_where_one_is_killed(cluster, victim, turns):
    first, second = cluster
    steps = 300 if victim == "worker" else 10**6
    for turn in range(turns):
        command = [sys.executable, str(PROGRAM), "until_killed", f"{first.address}:{PORT}", str(steps)]
        with first.popen(*command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
            try:
                places = next_line(program)
                if victim == "host":
                    second.kill(unplug=turn % 2 == 1)
                else:
                    address, pid = places[f"{victim} 1"]
                    (where,) = (host for host in cluster if host.address == address)
                    where.run("kill", "-9", str(pid))
                began = time.monotonic()
                found = next_line(program)
                took = time.monotonic() - began
                print(f"{victim}, turn {turn}: {took:.1f} s, {found}")
                groups, errors = program.communicate(timeout=60)
            except BaseException:
                program.kill()
                raise
        assert program.returncode == 0, errors
        if victim == "worker":
            assert any(
                text.startswith("worker 1 ended before its work was done: its actor was lost")
                for text in found["events"]
            )
            assert 3 * steps <= found["updates"] < 4 * steps  # the three others make their steps
        else:
            assert took < 15
            assert "ended before its work was done: its" in found["error"] or "failed: " in found["error"]
        assert json.loads(groups.splitlines()[-1]) == ["REMOVED"]
        if victim == "host":
            second.start()
            second.ray_start(first)
        gone = time.monotonic() + 10
        while (left := first.actors() + second.actors()) and time.monotonic() < gone:
            time.sleep(0.2)
        assert left == []
