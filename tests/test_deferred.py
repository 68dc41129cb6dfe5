"""Requests that wait for others: who goes on with them, what ends their wait, and whom they do not delay."""

import contextlib
import dataclasses
import threading
import time
from dataclasses import dataclass

import numpy as np
import pytest
from test_server import BSP, ONES, SSP, START, WAIT_S, Raw, serve

import minips as ps
from minips.core.codec import Decoder, Encoder
from minips.core.message import Message
from minips.drivers import server as driver
from minips.stage import missing
from minips.stages.transports.auth import authenticate
from minips.stages.transports.base import DEFERRED, Connection, Service
from minips.stages.transports.certificates import files, issue_certificate
from minips.stages.transports.deferred import Deferred
from minips.stages.transports.wire import CALL

NAMES = ["inproc", "tcp", "pipe", "shm", "tls", "shaped", "http", "zmq", "grpc", "thrift", "pyro"]
EVERYWHERE = [pytest.param(name, marks=pytest.mark.soak if name not in NAMES[:2] else ()) for name in NAMES]
everywhere = pytest.mark.parametrize("name", EVERYWHERE)


@contextlib.contextmanager
def over(name, base=BSP, **changes):
    """A config whose messages go over this transport."""
    with contextlib.ExitStack() as stack:
        if name == "tls":
            certificate, key = issue_certificate("127.0.0.1")
            mine, known = stack.enter_context(files(certificate + key, certificate))
            changes["transport"] = ps.Tcp(certificate=mine, authority=known)
        elif name == "shaped":
            changes |= {"transport": "tcp", "link": ps.Link(1e9, 1e-3)}
        else:
            if missing(type(ps.build("transport", name))):
                pytest.skip(f"{name} is not installed")
            changes["transport"] = name
        yield dataclasses.replace(base, **changes)


def parked(server, count=1):
    """Wait until this many requests wait for others."""
    deadline = time.monotonic() + WAIT_S
    while len(server._waiting) != count:
        assert time.monotonic() < deadline, server._waiting
        time.sleep(0.002)


@contextlib.contextmanager
def waiting_pull(config, **options):
    """A server, and worker 0's pull of a round that lacks worker 1's push."""
    with serve(config, **options) as server, Raw(server) as raw:
        raw.push()
        future = raw.channel.call(raw.frames("pull"))
        parked(server)
        yield server, raw, future
        assert server._waiting == []
        assert server._membership.waiting == set()


@everywhere
def test_what_ends_the_wait_of_a_request(name):
    with over(name, timeout_s=20.0) as config:
        with waiting_pull(config) as (server, _, future), Raw(server, worker=1) as other:
            other.push()
            assert future.result(WAIT_S)
        for end in (ps.Server.stop, lambda server: server.diverge("enough")):
            with waiting_pull(config) as (server, _, future):
                end(server)
                assert future.result(WAIT_S)
        with waiting_pull(config) as (server, _, future):
            server.close()
            with pytest.raises(ConnectionError):
                future.result(WAIT_S)
        with waiting_pull(config, silence_s=0.4) as (server, _, future):
            server.shard.stuck = "No round can be completed any more."
            with pytest.raises(RuntimeError, match="No round can be completed"):
                future.result(WAIT_S)
    with (
        over(name, timeout_s=0.2) as config,
        waiting_pull(config) as (_, _, future),
        pytest.raises(TimeoutError, match=r"Worker 0 at clock 1 waited 0\.2 seconds for worker 1 at clock 0"),
    ):
        future.result(WAIT_S)


@everywhere
def test_a_pause_is_no_part_of_a_wait(name):
    with (
        over(name, timeout_s=0.4) as config,
        serve(config) as server,
        Raw(server) as raw,
        Raw(server, worker=1) as other,
    ):
        raw.push(), other.push()
        server.pause(2)
        assert server.paused
        future = raw.channel.call(raw.frames("push", ONES, clock=1, version=1))
        parked(server)
        time.sleep(1.0)
        assert not future.done()
        server.go_on()
        assert future.result(WAIT_S)


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("name", ["inproc", "tcp", "pipe", "shm", "shaped"])
def test_the_thread_that_completes_a_round_answers_the_others(name, large, monkeypatch):
    begun, replied, begin, reply = {}, [], driver._WorkerConnection.begin, Deferred.reply

    def begins(self, frames, reply):
        begun[self] = threading.current_thread()
        return begin(self, frames, reply)

    def replies(self, answer):
        replied.append(threading.current_thread())
        return reply(self, answer)

    monkeypatch.setattr(driver._WorkerConnection, "begin", begins)
    monkeypatch.setattr(Deferred, "reply", replies)
    monkeypatch.setattr(driver, "LARGE_BYTES", 0 if large else 2**16)
    with over(name, workers=3) as config, serve(config) as server, contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(ps.connect(server.address, config, worker=rank, token=server.token))
            for rank in range(3)
        ]
        for client in clients:
            client.pull().result(WAIT_S)
        waiting = [client.push_pull(ONES) for client in clients[:2]]
        parked(server, 2)
        begun.clear(), replied.clear()
        clients[2].push_pull(ONES).result(WAIT_S)
        for future in waiting:
            np.testing.assert_array_equal(future.result(WAIT_S)["w"], START["w"] - 1)
        (completing,) = {thread for connection, thread in begun.items() if connection.worker == 2}
        assert replied[0] is completing
        assert len(replied) == 3
        for thread in replied[1:]:
            assert (thread is completing) == (not large)


class Bare(Raw):
    """A worker that reads its socket only when it is told to."""

    def __init__(self, server, worker=0):
        self.worker, self.encoder = worker, Encoder(ps.Codec(), np.random.default_rng(0), ps.Trace())
        wire = server.config.transport.dial(server.address, WAIT_S)
        self.channel = self.wire = authenticate(wire, server.token, server.address, WAIT_S)

    def ask(self, kind, tensors=None, **header):
        self.wire.send(CALL, self.frames(kind, tensors, **header))

    def read(self):
        tag, frames = self.wire.receive(WAIT_S)
        assert tag == CALL, [*map(bytes, frames)]
        packet, stamp, *_ = ps.core.codec.unpack(frames, ps.Codec(), ps.Trace())
        message = Decoder(ps.Trace()).decode(packet)
        return Message({**message.header, **stamp}, message.tensors)


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("name", ["tcp", "pipe", "tls"])
def test_a_slow_reader_does_not_delay_the_others(name, large, monkeypatch):
    params, ones = ({"w": np.full(2**22, x, "f4")} for x in (0, 1))  # 16 MiB, more than a socket takes
    monkeypatch.setattr(driver, "LARGE_BYTES", 0 if large else 2**40)
    with over(name, workers=3) as config, serve(config, params) as server, contextlib.ExitStack() as stack:
        slow = stack.enter_context(Bare(server))
        slow.ask("hello"), slow.read()
        slow.ask("push", ones, clock=0, version=0), slow.read()
        slow.ask("pull")
        parked(server)
        others = [
            stack.enter_context(ps.connect(server.address, config, worker=rank, token=server.token)) for rank in (1, 2)
        ]
        waiting = others[0].push_pull(ones)
        parked(server, 2)
        for future in (others[1].push_pull(ones), waiting):
            assert future.result(WAIT_S)["w"][-1] == -1
        for client in others:  # the threads of their connections serve them still
            client.push(ones).result(WAIT_S)
        assert slow.read().tensors["w"][-1] == -1


@pytest.mark.parametrize("name", ["tcp", "pipe"])
def test_answers_are_sent_in_the_order_of_the_calls(name, monkeypatch):
    monkeypatch.setattr(driver, "LARGE_BYTES", 2**40)
    params, ones = ({"w": np.full(2**20, x, "f4")} for x in (0, 1))
    with over(name) as config, serve(config, params) as server, Bare(server) as slow, Bare(server, 1) as other:
        for worker in (slow, other):
            worker.ask("hello"), worker.read()
        for clock in range(3):  # the later ones while the first is still being sent
            parked(server, 0)
            slow.ask("push_pull", ones, clock=clock, version=clock)
            parked(server)
            other.ask("push_pull", ones, clock=clock, version=clock), other.read()
        slow.ask("alive")
        for clock in range(3):
            answer = slow.read()
            assert (answer.header["version"], answer.tensors["w"][-1]) == (clock + 1, -1 - clock)
        assert slow.read().header["clock"] == 3


@pytest.mark.parametrize("name", ["inproc", "tcp", "pipe", "shm", "tls", "shaped"])
@pytest.mark.parametrize("kind", ["push", "pull"])
def test_the_connection_of_a_waiting_request_breaks(name, kind):
    with over(name) as config, serve(config, rejoin_s=WAIT_S) as server, Raw(server, worker=1) as other:
        other.hello()
        with Raw(server) as raw:
            raw.push()
            clock = int(kind == "push")
            raw.channel.call(raw.frames("push_pull", ONES, clock=clock, version=0))
            parked(server)
        parked(server, 0)
        while server._members[0].connections:
            time.sleep(0.002)
        assert (server._members[0].busy, server.shard.clocks) == (0, [1, 0])
        with Raw(server) as again:
            assert again.hello(raw.secret, again=True).header["clock"] == 1
            future = again.channel.call(again.frames("push_pull", ONES, clock=clock, version=0))
            parked(server)
            other.push()
            if kind == "push":
                other.push(clock=1)
            assert future.result(WAIT_S)
        assert server.shard.clocks == [1 + clock, 1 + clock]
        assert server.shard.applied == 2 + 2 * clock
        np.testing.assert_array_equal(server.params["w"], START["w"] - 1 - clock)


@pytest.mark.parametrize("name", ["inproc", "tcp"])
def test_a_worker_that_is_gone_while_its_request_waits_no_longer_counts(name):
    with over(name, workers=3) as config, serve(config, rejoin_s=0.1) as server, contextlib.ExitStack() as stack:
        raws = [stack.enter_context(Raw(server, worker=rank)) for rank in (1, 2)]
        with Raw(server) as gone:
            gone.push()
            gone.channel.call(gone.frames("pull"))
            parked(server)
        while 0 in server.shard.live:
            time.sleep(0.01)
        for raw in raws:
            raw.push()
        assert server.shard.clocks == [1, 1, 1]  # the push that was acknowledged counts
        assert server.shard.applied == 3
        assert any("worker 0 is gone" in words for _, words in server.events)


@pytest.mark.usefixtures("registry")
def test_a_start_that_fails_ends_the_waits_at_once(monkeypatch):
    @ps.register
    @dataclass(frozen=True)
    class Never(ps.ASP):
        """No worker may pull."""

        name = "never"

        def may_pull(self, clock, slowest):
            return False

    """The watcher would look only after minutes."""
    monkeypatch.setattr(driver, "TURN_S", 1e3)
    config = dataclasses.replace(BSP, consistency=Never(), timeout_s=1e4)
    held = []
    with serve(config, updates=8, silence_s=1e3, start_timeout_s=0.01) as server, Raw(server) as raw:
        strand = server.shard.strand
        monkeypatch.setattr(server.shard, "strand", lambda why: (held.append(server._lock.locked()), strand(why)))
        raw.hello()
        future = raw.channel.call(raw.frames("pull"))
        parked(server)
        with pytest.raises(TimeoutError, match=r"waited 0\.01 seconds for worker 1 to come"):
            server.wait(WAIT_S)
        with pytest.raises(RuntimeError, match=r"waited 0\.01 seconds for worker 1 to come"):
            future.result(WAIT_S)
        assert held == [True]


def test_a_worker_that_comes_as_the_time_ends_is_not_late(monkeypatch):
    with serve(BSP, updates=8, start_timeout_s=0.01) as server, Raw(server) as one, Raw(server, worker=1) as other:
        one.hello()
        look = server.start.look

        def slowly(absent):
            while not (late := look(absent)):
                time.sleep(0.01)
            other.hello()
            return late

        monkeypatch.setattr(server.start, "look", slowly)
        server.start.check()
        assert (server.status().stuck, server.connected, server.events) == ("", 2, [])


def test_a_change_that_raises_lets_the_server_go_on(monkeypatch):
    monkeypatch.setattr(driver, "TURN_S", 1e3)
    with waiting_pull(dataclasses.replace(BSP, timeout_s=1e4), silence_s=1e3) as (server, _, future):

        def pause(at):
            server.shard.diverge("half of a change")
            raise ZeroDivisionError

        monkeypatch.setattr(server.shard, "pause", pause)
        with pytest.raises(ZeroDivisionError):
            server.pause()
        assert future.result(WAIT_S)


@pytest.mark.usefixtures("registry")
def test_a_rule_that_sees_time_is_asked_again_though_nothing_changes():
    @ps.register
    @dataclass(frozen=True)
    class AfterAWhile(ps.ASP):
        """A pull may return 0.3 seconds after its worker's last push."""

        name = "afterawhile"

        def may_pull(self, view):
            return view.now - view.pushed_at[view.worker] > 0.3

    with serve(dataclasses.replace(SSP, consistency=AfterAWhile(), timeout_s=2.0)) as server, Raw(server) as raw:
        raw.push()
        began = time.monotonic()
        raw.say("pull")
        assert time.monotonic() - began > 0.2


def test_a_rule_that_raises_refuses_its_pull_alone(monkeypatch):
    broken = threading.Event()

    def may_pull(self, clock, slowest):
        if broken.is_set():
            raise ArithmeticError("an error of the rule")
        return slowest >= clock

    monkeypatch.setattr(ps.SSP, "may_pull", may_pull)
    with serve(SSP) as server, Raw(server) as raw, Raw(server, worker=1) as other:
        raw.push()
        future = raw.channel.call(raw.frames("pull"))
        parked(server)
        broken.set()
        assert other.push().header["outcome"] == "applied"
        with pytest.raises(RuntimeError, match="could not answer this request"):
            future.result(WAIT_S)
        broken.clear()
        assert raw.say("pull").tensors
        assert server._waiting == []


def test_an_answer_is_sent_although_no_thread_can_be_started(monkeypatch):
    with over("tcp") as config, serve(config) as server, Raw(server) as raw, Raw(server, worker=1) as other:
        raw.push(), other.hello()
        future = raw.channel.call(raw.frames("pull"))
        parked(server)
        monkeypatch.setattr(server, "_large", True)
        start = threading.Thread.start

        def refuse(thread):
            if thread.name == "minips-answer":
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", refuse)
        other.push()
        assert future.result(WAIT_S)


def test_a_connection_that_defers_answers_serves_libraries_too():
    class Later(Connection):
        def begin(self, frames, reply):
            if bytes(frames[0]) == b"now":
                return frames
            error = ValueError("no") if bytes(frames[0]) == b"no" else None
            threading.Timer(0.02, lambda: reply(error or frames)).start()
            return DEFERRED

    for name in ("tcp", "http", "zmq"):
        transport = ps.build("transport", name)
        if missing(type(transport)):
            continue
        with (
            transport.serve(Service(Later), token="t") as endpoint,
            transport.connect(endpoint.address, "t") as channel,
        ):
            futures = [(word, channel.call([word])) for word in (b"later", b"now", b"no", b"later")]
            for word, future in futures:
                if word == b"no":
                    with pytest.raises(ValueError, match="no"):
                        future.result(WAIT_S)
                else:
                    assert bytes(future.result(WAIT_S)[0]) == word
