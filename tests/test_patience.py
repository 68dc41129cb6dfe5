"""Limits in time: a process that was itself kept waiting blames no peer, and reads what has come first."""

import multiprocessing
import threading
import types

import numpy as np
import pytest

import minips as ps
from minips.core.membership import ClientConnection, Membership
from minips.core.shard import Shard
from minips.drivers import peer
from minips.engines import supervisor
from minips.stages.transports import futures, patience, pools
from minips.stages.transports.futures import CallFuture
from minips.stages.transports.inbox import InboxWire
from minips.stages.transports.patience import LOOKS, TICK_S, Limit, StallTimer, receive_within
from minips.stages.transports.wire import CALL

WAIT_S = 20.0
STOPPED_S = 1_000.0


class Clock(types.SimpleNamespace):
    """Stands in for the module `time`, and goes on when it is told to."""

    now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    for module in (patience, futures, peer, pools, supervisor):
        if hasattr(module, "time"):
            monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.mark.parametrize("seconds", [0.4, 1.0, 5.0, 15.0, 75.0])
def test_a_limit_looked_at_in_time_is_over_after_its_seconds(clock, seconds):
    limit, looks = Limit(seconds), 0
    assert limit.tick == min(TICK_S, seconds / LOOKS)
    while not limit.over():
        clock.sleep(limit.tick)
        looks += 1
    assert clock.now == pytest.approx(seconds, abs=1.01 * limit.tick)
    assert looks >= LOOKS


@pytest.mark.parametrize("seconds", [0.4, 5.0, 75.0])
def test_a_late_look_at_a_limit_counts_one_tick(clock, seconds):
    limit = Limit(seconds)
    for _ in range(LOOKS - 2):
        clock.sleep(STOPPED_S)
        assert not limit.over()


def test_a_peer_slower_than_1_kb_a_second_stalls_and_a_process_that_was_stopped_is_none(clock):
    stall = StallTimer(75.0)
    for _ in range(70):
        clock.sleep(STOPPED_S)
        stall.count(0)
    stall.count(75_000)
    for _ in range(74):
        clock.sleep(1.0)
        stall.count(900)
    clock.sleep(1.0)
    with pytest.raises(ConnectionError, match="stalls"):
        stall.count(900)


class Late(InboxWire):
    """A wire whose process is stopped whenever it waits; the message comes in ``turns`` turns."""

    def __init__(self, clock, turns):
        self.clock, self.turns = clock, turns

    def receive(self, timeout=None, limit=None):
        self.clock.sleep(STOPPED_S)
        self.turns -= 1
        if self.turns:
            raise TimeoutError("no message came in time")
        return CALL, [b"here"]

    def send(self, tag, frames):
        raise NotImplementedError

    def shutdown(self):
        raise NotImplementedError

    close = shutdown


def test_a_message_that_came_while_the_process_was_stopped_is_read(clock):
    assert receive_within(5.0, Late(clock, turns=LOOKS - 1)) == (CALL, [b"here"])
    with pytest.raises(TimeoutError, match="no message came in time"):
        receive_within(5.0, Late(clock, turns=2 * LOOKS))


class Stopped(CallFuture):
    """A future whose answer is read in the second turn, since the process was stopped in the first."""

    def __init__(self, clock):
        super().__init__()
        self.clock, self.turns = clock, 0

    def drive(self, deadline):
        self.turns += 1
        if self.turns == 1:
            self.clock.sleep(STOPPED_S)
        else:
            self.set_result("an answer")

    def attend(self):
        pass


@pytest.mark.parametrize("ask", [lambda future: future.result(5.0), lambda future: future.exception(5.0)])
def test_an_answer_that_came_while_the_process_was_stopped_is_read(clock, ask):
    future = Stopped(clock)
    assert ask(future) in ("an answer", None)
    assert future.result() == "an answer"


def liveness(clock, silence_s):
    config = ps.Config(workers=2)
    shard = Shard.of(config, {"w": np.zeros(2)}, now=clock.monotonic)
    present, connections = Membership(shard, silence_s, rejoin_s=0.25), [ClientConnection(), ClientConnection()]
    for worker, connection in enumerate(connections):
        present.connect(connection, worker, {})
    return present


def test_silence_counts_the_time_that_the_server_could_run(clock):
    present = liveness(clock, silence_s=30.0)
    for late_s in (7.0, 7.0, STOPPED_S, 7.0, 7.0, -0.1, -0.1):  # each look is due after 7.5 s
        clock.sleep(7.5 + late_s)
        present.members[1].heard = clock.now
        assert present.silent() == []
        assert all(member.heard <= clock.now for member in present.members)
    clock.sleep(7.4)
    present.members[1].heard = clock.now
    assert present.silent() == [(0, "worker 0 has been silent for 37.2 s: it no longer counts")]


def test_a_supervisor_reads_what_its_children_said_while_it_was_stopped(clock):
    ours, theirs = multiprocessing.Pipe()
    children = supervisor.Supervisor(lambda *_: [])

    def check():
        if not clock.now:
            theirs.send(("ready", "here"))
        clock.sleep(STOPPED_S)

    children._check = check
    child = types.SimpleNamespace(who="server 0", pipe=ours, received={}, done=False, gone=False)
    children.children = [child]
    with ours, theirs:
        assert children.receive(child, "ready", 5.0) == "here"
        with pytest.raises(RuntimeError, match=r"server 0 sent nothing for 0\.1 seconds"):
            children.receive(child, "ready", 0.1)


def test_a_ring_that_was_stopped_takes_what_came_meanwhile(clock):
    """The message comes with the second look of a condition whose first one lasted far longer than the time-out."""
    boxes = threading.Condition()
    turns = []

    def wait_for(ready, seconds):
        turns.append(seconds)
        clock.sleep(STOPPED_S)
        if len(turns) == 2:
            ring._boxes[1].append([peer._SENT.pack(0.0), b"hop"])
        return ready()

    ring = peer.Peer.__new__(peer.Peer)
    ring.config, ring.trace, ring.bytes_received = ps.Config(workers=2, timeout_s=5.0), ps.Trace(), 0
    ring._changed, ring._gone, ring._boxes = boxes, {}, peer.defaultdict(peer.deque)
    boxes.wait_for = wait_for
    assert ring._receive(peer.Receive(1)) == [b"hop"]
    assert sum(turns) < 5.0
