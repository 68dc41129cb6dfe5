"""A server on real connections: what it answers, what it refuses, and whom it no longer waits for."""

import contextlib
import dataclasses
import queue
import re
import socket
import threading
import time

import numpy as np
import psutil
import pytest

import minips as ps
from minips import stage
from minips.core.codec import Decoder, Encoder
from minips.core.message import Message
from minips.core.sessions import Do, Receive, Until, nothing
from minips.drivers import server as server_module
from minips.engines import roles
from minips.engines.supervisor import Supervisor
from minips.results.status import Status
from minips.stages.transports.base import DEFERRED

START = {"w": np.zeros(3), "b": np.array(1.0)}
ONES = {"w": np.ones(3), "b": np.array(1.0)}
LOCAL = ps.Config(transport="inproc", consistency="asp", workers=2, optimizer=ps.SGD(lr=1.0), timeout_s=20.0)
WAIT_S = 20.0
transports = pytest.mark.parametrize("transport", ["inproc", "pipe", "tcp"])


class Raw:
    """A client that checks nothing, has no heartbeat and says no goodbye; its first word is a hello, nevertheless."""

    def __init__(self, server, worker=0, codec=None):
        self.worker, self.greeted, self.secret = worker, None, None
        self.channel = server.config.shaped_transport().connect(server.address, server.token)
        self.encoder = Encoder(codec or ps.Codec(), np.random.default_rng(0), ps.Trace())

    def frames(self, kind, tensors=None, **header):
        return self.encoder.encode(Message({"kind": kind, "worker": self.worker, **header}, tensors or {}))

    def send(self, frames):
        answer = self.channel.call(frames).result(WAIT_S)
        packet, stamp, *_ = ps.core.codec.unpack(answer, ps.Codec(), ps.Trace())
        message = Decoder(ps.Trace()).decode(packet)
        return Message({**message.header, **stamp}, message.tensors)

    def say(self, kind, tensors=None, **header):
        if kind not in ("hello", "status") and self.greeted != self.worker:
            self.hello()
        return self.send(self.frames(kind, tensors, **header))

    def hello(self, secret=None, **header):
        answer = Raw.send(self, Raw.frames(self, "hello", **header, **({"secret": secret} if secret else {})))
        self.greeted, self.secret = self.worker, answer.header["secret"]
        return answer

    def push(self, tensors=ONES, clock=0, **header):
        return self.say("push", tensors, clock=clock, version=0, **header)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.channel.close()


def serve(config=LOCAL, params=START, **options):
    return ps.Server(params, config, **options).serve()


def assert_unchanged(server):
    assert (server.shard.version, server.shard.applied, server.shard.clocks) == (0, 0, [0, 0])
    for name, x in START.items():
        np.testing.assert_array_equal(server.params[name], x)


# Answers


def test_hello_tells_what_the_tensors_are():
    with serve() as server, Raw(server, worker=1) as raw:
        header = raw.say("hello").header
        assert header["layout"] == {"w": [[3], "float64", 0, 3], "b": [[], "float64", 0, 1]}
        assert (header["index"], header["servers"], header["clock"], header["done"]) == (0, 1, 0, False)


@transports
def test_push_and_pull(transport):
    with serve(dataclasses.replace(LOCAL, transport=transport)) as server, Raw(server) as raw:
        acknowledged = raw.push()
        assert (acknowledged.header["outcome"], acknowledged.tensors) == ("applied", {})
        answer = raw.say("pull")
        np.testing.assert_array_equal(answer.tensors["w"], np.full(3, -0.5))
        assert (answer.header["version"], answer.header["clock"]) == (1, 1)
        assert list(raw.say("pull", names=["b"]).tensors) == ["b"]
        assert raw.say("push_pull", ONES, clock=1, version=1).tensors["b"] == 0.0
        np.testing.assert_array_equal(server.params["w"], np.full(3, -1.0))


def test_a_pull_answers_in_the_codec_of_the_config():
    config = dataclasses.replace(LOCAL, pull=ps.Codec(quantizer="sign", serializer="json"))
    with serve(config, {"w": np.array([1.0, -3.0])}) as server, Raw(server) as raw:
        np.testing.assert_array_equal(raw.say("pull").tensors["w"], [2.0, -2.0])


def test_a_report_holds_what_a_run_keeps():
    with serve() as server, Raw(server) as raw:
        raw.push(loss=3.0)
        raw.push(clock=1, loss=1.0)
    report = server.report()
    assert (report["applied"], report["late"]) == (2, 0)
    ((_, step, loss),) = report["losses"]
    assert (step, loss) == (1, 2.0)
    assert {"aggregate", "apply", "deserialize"} <= set(report["trace"].seconds())


@pytest.mark.parametrize("updates", [None, 100])
def test_a_server_without_an_end_keeps_the_last_rows_and_a_run_keeps_all(monkeypatch, updates):
    monkeypatch.setattr(ps.core.protocol, "KEPT_ROWS", 10)
    with serve(dataclasses.replace(LOCAL, workers=1), updates=updates) as server, Raw(server) as raw:
        for clock in range(100):
            raw.push(clock=clock, loss=float(clock))
            raw.say("pull")
        for _ in range(0 if updates else 100):
            raw.say("pull")
    report = server.report()
    assert report["losses"][-1][1:] == (100, 99.0)
    assert len(report["losses"]) == 100 if updates else 10 <= len(report["losses"]) < 20
    assert len(report["grants"]) == 99 if updates else 10 <= len(report["grants"]) < 20  # not that of the end
    assert (report["applied"], server.shard.losses) == (100, [])


# What could not work is refused before anything is served

INTEGERS = np.arange(3)
UNFIT = [
    (lambda: ps.Server([1.0], LOCAL), TypeError, r"mapping of names to arrays.*got \[1\.0\]"),
    (lambda: ps.Server(None, LOCAL), TypeError, "mapping of names to arrays.*got None"),
    (lambda: ps.Server({5: np.zeros(3)}, LOCAL), TypeError, "mapping of names to arrays"),
    (lambda: ps.Server({"w": np.array([None])}, LOCAL), ValueError, "'w' must hold floating-point.*got object"),
    (lambda: ps.Server({"w": INTEGERS}, LOCAL), ValueError, r"'w' must hold floating-point.*got int64.*astype"),
    (lambda: ps.Server({"w": INTEGERS > 0}, LOCAL), ValueError, "'w' must hold floating-point.*got bool"),
    (lambda: ps.Server(START, "asp"), TypeError, "takes the Config.*got 'asp'"),
    (lambda: ps.Server(START, LOCAL, index=7), ValueError, "index is 0 to 0, got 7"),
    (lambda: ps.Server(START, LOCAL, index=-1), ValueError, "index is 0 to 0, got -1"),
    (lambda: ps.Server(START, LOCAL, index="0"), ValueError, "index is 0 to 0, got '0'"),
    (lambda: ps.Server(START, LOCAL, updates=-1), ValueError, "at least 1, or None.*got -1"),
    (lambda: ps.Server(START, LOCAL, updates=1.5), ValueError, r"at least 1, or None.*got 1\.5"),
    (lambda: ps.Server(START, LOCAL, silence_s=0), ValueError, "silence_s takes seconds above 0.*got 0"),
    (lambda: ps.Server(START, LOCAL, silence_s=-1.0), ValueError, r"silence_s takes seconds above 0.*got -1\.0"),
    (lambda: ps.Server(START, LOCAL, silence_s=np.inf), ValueError, r"at most 1e\+06; got inf"),
    (lambda: ps.Server(START, LOCAL, silence_s=np.nan), ValueError, r"seconds above 0.*got nan"),
    (lambda: ps.Server(START, LOCAL).serve(5), TypeError, "serve takes an address.*got 5"),
    (lambda: ps.Server(START, LOCAL).serve(token=""), ValueError, "a text that is not empty.*got an empty one"),
    (lambda: ps.Server(START, LOCAL).serve(token=b"secret"), TypeError, "a text that is not empty.*got bytes"),
    (lambda: ps.Server(START, LOCAL).serve(token=7), TypeError, "a text that is not empty.*got int"),
]


@pytest.mark.parametrize(("make", "kind", "words"), UNFIT, ids=range(len(UNFIT)))
def test_what_could_not_work_is_refused_in_a_sentence(make, kind, words):
    with pytest.raises(kind, match=words) as refused:
        make()
    assert "secret" not in str(refused.value)


# Refusals: an error to the caller, nothing changed, and the server goes on


WRONG = {
    "NaN": ({**ONES, "w": np.array([1, np.nan, 2])}, "NaN or infinity"),
    "infinity": ({**ONES, "b": np.array(np.inf)}, "NaN or infinity"),
    "shape": ({**ONES, "w": np.ones(4)}, "shape"),
    "dtype": ({**ONES, "w": np.ones(3, "f4")}, "float64"),
    "missing": ({"w": np.ones(3)}, "Expected gradients of w, b"),
    "unknown": ({**ONES, "c": np.ones(3)}, "Expected gradients of w, b"),
}


@transports
@pytest.mark.parametrize(("tensors", "words"), WRONG.values(), ids=list(WRONG))
def test_gradients_that_do_not_fit_are_refused(transport, tensors, words):
    with serve(dataclasses.replace(LOCAL, transport=transport)) as server, Raw(server) as raw:
        with pytest.raises(ValueError, match=words):
            raw.push(tensors)
        assert_unchanged(server)
        assert raw.push().header["outcome"] == "applied"


@pytest.mark.parametrize(
    "header", [{"clock": None}, {"clock": "0"}, {"clock": 0, "version": 1.5}, {"clock": 7}], ids=repr
)
def test_a_push_with_a_wrong_header_is_refused(header):
    with serve() as server, Raw(server) as raw:
        with pytest.raises(ValueError, match=r"2⁶³ − 1 under '(clock|version)'|pushes are missing"):
            raw.say("push", ONES, **header)
        assert_unchanged(server)


@pytest.mark.parametrize("worker", [-1, 2, "0", None])
@pytest.mark.parametrize("kind", ["hello", "push", "pull", "bye"])
def test_an_unknown_worker_is_refused(kind, worker):
    with serve() as server, Raw(server) as raw:
        raw.hello()
        raw.worker = raw.greeted = worker
        if (kind, worker) == ("hello", -1):
            return  # the first that is free
        with pytest.raises(ValueError, match=r"There are workers 0 to 1|under 'worker'"):
            raw.say(kind, **({"tensors": ONES, "clock": 0, "version": 0} if kind == "push" else {}))
        assert_unchanged(server)


def test_an_unknown_kind_is_refused():
    with serve() as server, Raw(server) as raw:
        with pytest.raises(ValueError, match="No message is of kind 'dance'"):
            raw.say("dance")
        assert raw.say("pull").tensors


@pytest.mark.parametrize("names", [["c"], ["w", 3], "w", 7], ids=repr)
def test_a_pull_of_unknown_names_is_refused(names):
    with serve() as server, Raw(server) as raw:
        with pytest.raises(ValueError, match=r"There is no tensor|needs a list of texts, or nil under 'names'"):
            raw.say("pull", names=names)
        assert raw.say("pull").tensors


@transports
@pytest.mark.parametrize(
    "frames", [[], [b""], [b"\x00" * 100], [b"\x81\xa1v\x01", b"x"], [b"GET / HTTP/1.1\r\n\r\n"]], ids=repr
)
def test_garbage_is_answered_with_an_error(transport, frames):
    with serve(dataclasses.replace(LOCAL, transport=transport)) as server, Raw(server) as raw:
        with pytest.raises(ValueError, match="envelope"):
            raw.send(frames)
        assert_unchanged(server)
        assert raw.push().header["outcome"] == "applied"


def test_a_peer_that_does_not_speak_the_protocol_disturbs_nobody():
    with serve(dataclasses.replace(LOCAL, transport="tcp")) as server, Raw(server) as raw:
        host, port = server.config.transport.host_and_port(server.address)
        with socket.create_connection((host, port), WAIT_S) as stranger:
            stranger.sendall(b"\xff" * 200)
            while stranger.recv(1024):
                pass  # until the server hangs up
        assert raw.push().header["outcome"] == "applied"


def test_pickle_is_refused_unless_the_servers_config_names_it():
    pickled = ps.Codec(serializer="pickle")
    with serve() as server, Raw(server, codec=pickled) as raw:
        with pytest.raises(ValueError, match="can run code"):
            raw.push()
        assert_unchanged(server)
    with serve(dataclasses.replace(LOCAL, push=pickled)) as server, Raw(server, codec=pickled) as raw:
        assert raw.push().header["outcome"] == "applied"


@transports
def test_a_wrong_token_is_refused(transport):
    config = dataclasses.replace(LOCAL, transport=transport)
    with ps.Server(START, config).serve(token="right") as server:
        with pytest.raises(PermissionError, match="token"):
            ps.connect(server.address, config, token="wrong")
        with ps.connect(server.address, config, token="right") as client:
            assert client.pull().result(WAIT_S).keys() == START.keys()


def test_a_server_makes_a_token_of_its_own():
    with serve() as one, serve() as other:
        assert one.token != other.token
        with pytest.raises(PermissionError, match="token"):
            ps.connect(one.address, LOCAL, token=other.token)


@transports
def test_an_address_in_use_is_refused(transport):
    config = dataclasses.replace(LOCAL, transport=transport)
    with serve(config) as server, pytest.raises(OSError, match=r"in use|cannot be served"):
        ps.Server(START, config).serve(server.address)


def test_an_address_is_free_again_after_close():
    with serve() as server:
        address = server.address
    with ps.Server(START, LOCAL).serve(address) as again:
        assert again.address == address


# Exactly once


@dataclasses.dataclass(frozen=True)
class Difference(ps.Memory):
    """Sends what has changed: both halves of the link remember the last value."""

    name = "difference"

    def compensate(self, x, state):
        return x - state.get("last", 0)

    def update(self, p, sent, state):
        state["last"] = state.get("last", 0) + sent

    def restore(self, received, state):
        state["last"] = state.get("last", 0) + received
        return state["last"]


@pytest.fixture
def difference(monkeypatch):
    monkeypatch.setitem(stage._KINDS["memory"], "difference", Difference)
    return ps.Codec(memory=Difference())


def test_a_retry_is_acknowledged_before_its_memory_is_restored(difference):
    with serve() as server, Raw(server, codec=difference) as raw:
        raw.hello()
        for clock in range(3):
            frames = raw.frames("push", ONES, clock=clock, version=0)
            assert raw.send(frames).header["outcome"] == "applied"
            assert raw.send(frames).header["outcome"] == "duplicate"
        np.testing.assert_allclose(server.params["w"], np.full(3, -1.5))
        assert (server.shard.applied, server.shard.duplicates) == (3, 3)


def test_a_worker_that_comes_back_starts_its_memory_afresh_on_both_sides(difference):
    config = dataclasses.replace(LOCAL, push=difference, pull=difference)
    with serve(config) as server:
        for turn in range(1, 4):
            with ps.connect(server.address, config, token=server.token) as client:
                for _ in range(2):
                    pulled = client.push_pull(ONES).result(WAIT_S)
            np.testing.assert_allclose(pulled["w"], np.full(3, -1.0 * turn))


# Waiting, and whom the server no longer waits for


BSP = dataclasses.replace(LOCAL, consistency=ps.BSP())
SSP = dataclasses.replace(LOCAL, consistency=ps.SSP(staleness=0))


def waits_for_worker_1(client):
    """A pull that cannot be answered before worker 1 pushes, or no longer counts."""
    client.push(ONES).result(WAIT_S)
    return client.pull()


@transports
@pytest.mark.parametrize("config", [BSP, SSP], ids=["bsp", "ssp"])
def test_a_worker_that_vanishes_no_longer_counts(config, transport):
    config = dataclasses.replace(config, transport=transport)
    with serve(config) as server, ps.connect(server.address, config, token=server.token) as client:
        with Raw(server, worker=1) as raw:
            raw.say("hello")
            waiting = waits_for_worker_1(client)
            assert not waiting.done()
        assert waiting.result(WAIT_S)["b"] < 1
        assert [text for _, text in server.events] == ["worker 1 is gone: its connection closed without a goodbye"]


@pytest.mark.parametrize("config", [BSP, SSP], ids=["bsp", "ssp"])
def test_a_worker_that_says_goodbye_no_longer_counts_and_is_no_event(config):
    with serve(config) as server, ps.connect(server.address, config, token=server.token) as client:
        with ps.connect(server.address, config, worker=1, token=server.token):
            waiting = waits_for_worker_1(client)
            assert not waiting.done()
        assert waiting.result(WAIT_S)["b"] < 1
        assert server.events == []


@pytest.mark.parametrize("config", [BSP, SSP], ids=["bsp", "ssp"])
def test_a_worker_that_falls_silent_no_longer_counts(config):
    with (
        serve(config, silence_s=0.3) as server,
        ps.connect(server.address, config, token=server.token) as client,
        Raw(server, worker=1) as raw,
    ):
        raw.say("hello")
        assert waits_for_worker_1(client).result(WAIT_S)["b"] < 1
        ((_, text),) = server.events
        assert "worker 1 has been silent" in text
        raw.push()  # it is heard again
        assert server.shard.live == {0, 1}


def test_a_heartbeat_is_a_sign_of_life():
    with (
        serve(BSP, silence_s=1.5) as server,
        ps.connect(server.address, BSP, token=server.token) as client,
        ps.connect(server.address, BSP, worker=1, token=server.token) as other,
    ):
        waiting = waits_for_worker_1(client)
        threading.Event().wait(3.5)  # more than twice as long as a silent worker counts
        assert not waiting.done()
        other.push(ONES).result(WAIT_S)
        assert waiting.result(WAIT_S)["b"] == 0
        assert server.events == []


@pytest.mark.parametrize("name", ["inproc", "tcp"])
def test_a_worker_whose_answers_nobody_reads_has_a_heartbeat_nevertheless(name):
    config = dataclasses.replace(BSP, transport=name)
    with (
        serve(config, silence_s=0.2) as server,
        ps.connect(server.address, config, token=server.token) as client,
    ):
        client.push(ONES)
        (member, _), deadline = server._members, time.monotonic() + WAIT_S
        while server.shard.clocks[0] == 0 or member.busy:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        received = member.received
        while member.received == received:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_worker_that_returned_after_a_goodbye_and_vanishes_no_longer_counts():
    with serve(BSP) as server, ps.connect(server.address, BSP, token=server.token) as client:
        with ps.connect(server.address, BSP, worker=1, token=server.token):
            pass
        with Raw(server, worker=1) as raw:
            raw.say("hello")
            waiting = waits_for_worker_1(client)
            assert not waiting.done()
        assert waiting.result(WAIT_S)["b"] < 1


def test_a_worker_with_another_connection_still_counts_when_one_closes():
    with serve(BSP) as server, Raw(server, worker=1) as kept:
        kept.hello()
        with Raw(server, worker=1) as other:
            other.hello(kept.secret)
        while len(server._members[1].connections) > 1:
            time.sleep(0.01)
        with Raw(server) as raw:
            raw.push()
        assert kept.push().header["outcome"] == "applied"
        assert 1 in server.shard.live


@pytest.mark.parametrize("config", [BSP, SSP], ids=["bsp", "ssp"])
def test_a_pull_that_waits_too_long_names_whom_it_waits_for(config):
    config = dataclasses.replace(config, timeout_s=0.2, workers=3)
    with serve(config) as server, ps.connect(server.address, config, token=server.token) as client:
        with Raw(server, worker=1) as raw:
            raw.push()
            with pytest.raises(TimeoutError, match=r"Worker 0 at clock 1 waited 0\.2 seconds for worker 2 at clock 0"):
                waits_for_worker_1(client).result(WAIT_S)
            with Raw(server, worker=2) as last:
                last.push()
        assert client.pull().result(WAIT_S)["b"] < 1


def test_a_push_of_a_round_that_does_not_come_times_out():
    config = dataclasses.replace(BSP, timeout_s=0.2)
    with serve(config) as server, Raw(server) as raw:
        raw.push()
        with pytest.raises(TimeoutError, match="for worker 1 at clock 0"):
            raw.push(clock=1)
        assert server.shard.clocks == [1, 0]


@transports
def test_a_closing_server_wakes_those_who_wait(transport):
    config = dataclasses.replace(BSP, transport=transport)
    with serve(config) as server, ps.connect(server.address, config, token=server.token) as client:
        waiting = waits_for_worker_1(client)
        server.close()
        with pytest.raises(ConnectionError):
            waiting.result(WAIT_S)
        with pytest.raises(ConnectionError):
            client.pull().result(WAIT_S)


def test_closing_twice_is_closing_once():
    server = serve()
    server.close()
    server.close()
    ps.Server(START, LOCAL).close()  # one that never served


def test_a_server_carries_out_every_need_of_a_session():
    ready = threading.Event()

    def session(lock):
        assert lock.locked()
        assert (yield Do((), 0, lambda: lock.locked())) is False  # beside other sessions
        assert (yield Do((), 0, lambda: lock.locked(), alone=True)) is True
        assert (yield Do((), 0, nothing)) is None
        for alone in (False, True):
            with pytest.raises(ArithmeticError, match="once"):
                yield Do((), 0, raises, alone)
            assert lock.locked()
        yield Until(lambda: True, 0)
        yield Until(ready.is_set, 0)
        return 42

    def raises():
        raise ArithmeticError("once")

    def one_need(need):
        yield need

    results = queue.SimpleQueue()
    with serve() as server:
        connection = server_module._WorkerConnection(server)
        connection.reply = results.put
        with server._lock:
            put_aside = server._carry_out(session(server._lock), connection)
        assert (put_aside is DEFERRED, results.empty(), server._lock.locked()) == (True, True, False)
        ready.set()
        server.go_on()
        assert (results.get_nowait(), server._lock.locked()) == (42, False)
        with server._lock, pytest.raises(RuntimeError, match="A server's session has no other party, but it needs"):
            server._carry_out(one_need(Receive(0)))


@contextlib.contextmanager
def connected(server):
    with contextlib.ExitStack() as stack:
        made = [ps.connect(server.address, server.config, worker=i, token=server.token) for i in range(2)]
        yield [stack.enter_context(client) for client in made]


def test_a_push_that_was_held_counts_at_the_server_that_goes_on():
    config = dataclasses.replace(LOCAL, consistency="bsp", push=ps.Codec(ps.TopK(0.5), ps.Delta()))
    rng = np.random.default_rng(0)
    rounds = [[{"w": rng.normal(size=3), "b": np.array(rng.normal())} for _ in range(2)] for _ in range(3)]

    def push(clients, clock, workers=(0, 1)):
        for worker in workers:
            clients[worker].push(rounds[clock][worker]).result(WAIT_S)

    def params(stopped):
        with serve(config) as server, connected(server) as clients:
            push(clients, 0)
            push(clients, 1, [0])
            if not stopped:
                push(clients, 1, [1])
                push(clients, 2)
                return server.params
            state, links = server._protocol.state(), [client.report()["links"] for client in clients]
            start = server.params
        with serve(config, start, state=state) as server, connected(server) as clients:
            for client, kept in zip(clients, links, strict=True):
                client.restore(kept)
            push(clients, 1, [1])
            push(clients, 2)
            return server.params

    for name, x in params(stopped=True).items():
        np.testing.assert_array_equal(x, params(stopped=False)[name])


def test_after_its_updates_a_server_is_done_and_lets_everybody_pull():
    with serve(BSP, updates=2) as server, Raw(server) as raw, Raw(server, worker=1) as other:
        raw.push()
        assert not raw.say("alive").header["done"]
        other.push()
        for clock in (1, 2):
            answer = raw.say("push_pull", ONES, clock=clock, version=1)
            assert (answer.header["outcome"], answer.header["done"]) == ("over", True)
            np.testing.assert_array_equal(answer.tensors["w"], -np.ones(3))


def test_a_push_that_would_lead_past_all_numbers_ends_the_run_with_the_parameters_before_it():
    with serve(params={"w": np.array([1e308])}) as server, Raw(server) as raw:
        assert raw.push({"w": np.array([-1.7e307])}).header["outcome"] == "applied"
        kept = server.params["w"]
        answer = raw.push({"w": np.array([-1.7e308])}, clock=1)
        assert (answer.header["outcome"], answer.header["done"]) == ("over", True)
        assert "'w' NaN or infinite" in server.diverged
        np.testing.assert_array_equal(raw.say("pull").tensors["w"], kept)
        assert raw.push({"w": np.array([1.0])}, clock=2).header["outcome"] == "over"
        np.testing.assert_array_equal(server.params["w"], kept)


def counting(cls):
    """The same quantizer, which counts its encodings."""

    class Counted(cls):
        def encode(self, x, rng):
            Counted.times += 1
            return super().encode(x, rng)

    Counted.times = 0
    return Counted


def test_a_version_is_encoded_once_for_all_who_pull_it():
    cls = counting(ps.Uniform)
    config = dataclasses.replace(LOCAL, workers=4, pull=ps.Codec(quantizer=cls(bits=8)))
    with serve(config) as server:
        raws = [Raw(server, worker) for worker in range(4)]
        try:
            pulled = [raw.say("pull") for raw in raws]
            assert cls.times == len(START)
            for one in pulled:
                np.testing.assert_array_equal(one.tensors["w"], pulled[0].tensors["w"])
            raws[0].push()
            fresh = raws[1].say("pull")
            assert (cls.times, fresh.header["version"]) == (2 * len(START), 1)
            assert raws[2].say("pull", names=["b"]).tensors.keys() == {"b"}
        finally:
            for raw in raws:
                raw.channel.close()


def test_a_server_keeps_a_gradient_of_each_worker_and_four_copies_more():
    """Under BSP, over TCP: the most memory that its process has taken, less what it had before anybody came."""
    workers, values = 6, 2**22
    config = ps.Config(workers=workers, optimizer=ps.SGD(lr=1e-3))
    gradient = {"w": np.ones(values, "f4")}

    def work(address, worker):
        with ps.connect(address, config, worker=worker, token="t") as client:
            for _ in range(6):
                client.push_pull(gradient).result(WAIT_S)

    with Supervisor(ps.Processes().start) as supervisor:
        (server,) = supervisor.start("the server")
        started = []
        while not started:  # until it has become another program
            started = [one for one in psutil.Process().children() if "spawn_main" in " ".join(one.cmdline())]
        (process,) = started
        params = {"w": np.zeros(values, "f4")}
        server.assign(roles.serve, {"config": config, "params": params, "index": 0, "token": "t"})
        address = supervisor.receive(server, "ready", WAIT_S)
        before = process.memory_info().rss - 2 * gradient["w"].nbytes  # the parameters, and as they were shipped
        threads = [threading.Thread(target=work, args=(address, worker)) for worker in range(workers)]
        most = before
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            most = max(most, process.memory_info().rss)
            time.sleep(0.001)
    copies = (most - before) / gradient["w"].nbytes
    assert workers < copies <= workers + 4


# Who is who


def test_a_second_client_is_no_worker_that_is_there_already():
    with serve() as server, Raw(server) as raw, Raw(server) as other:
        raw.hello()
        with pytest.raises(ValueError, match=r"Worker 0 is held by another session.* \(worker=None, --rank auto\)"):
            other.hello("b" * 32)
        with pytest.raises(ValueError, match="Worker 0 is held by another session"):
            other.hello()
        assert raw.push().header["outcome"] == "applied"
        other.worker = 1
        assert other.hello("b" * 32).header["secret"] == "b" * 32


def test_one_that_connects_again_is_itself_also_before_its_old_connection_is_gone():
    with serve() as server, Raw(server) as raw, Raw(server) as again:
        raw.push()
        assert again.hello(raw.secret, again=True).header["clock"] == 1
        assert again.push(clock=1).header["outcome"] == "applied"


def test_a_worker_whose_connection_is_gone_may_be_another_client():
    with serve() as server:
        with Raw(server) as raw:
            raw.push()
        while 0 in server.shard.live:
            time.sleep(0.01)
        with Raw(server) as other:
            assert other.hello().header["clock"] == 1
            assert other.secret != raw.secret


def test_a_worker_that_is_silent_may_be_another_client_and_is_then_no_worker_any_more():
    with serve(silence_s=0.2) as server, Raw(server) as raw, Raw(server) as other:
        raw.hello()
        while 0 in server.shard.live:
            time.sleep(0.01)
        other.hello()
        with pytest.raises(ValueError, match="no longer that of worker 0: say hello first"):
            raw.push()
        assert other.push().header["outcome"] == "applied"


def test_the_first_worker_that_nobody_is_goes_to_each_who_asks():
    workers = 8
    with serve(dataclasses.replace(LOCAL, workers=workers)) as server:
        raws = [Raw(server, worker=-1) for _ in range(workers)]
        try:
            got, threads = [], []
            for raw in raws:
                threads.append(threading.Thread(target=lambda ask=raw.hello: got.append(ask().header["worker"])))
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(WAIT_S)
            assert sorted(got) == list(range(workers))
            with Raw(server, worker=-1) as more:
                with pytest.raises(ValueError, match="All 8 workers are connected already"):
                    more.hello()
                mine = raws[5].hello().header["worker"]  # whoever that is: the same one again
                assert more.hello(raws[5].secret).header["worker"] == mine
            assert server.connected == workers
        finally:
            for raw in raws:
                raw.channel.close()


def test_a_worker_that_was_lost_is_given_away_last():
    with serve(dataclasses.replace(LOCAL, workers=2)) as server, Raw(server, worker=-1) as other:
        with Raw(server, worker=-1) as raw:
            assert raw.hello().header["worker"] == 0
        while 0 in server.shard.live:
            time.sleep(0.01)
        assert other.hello().header["worker"] == 1
        with Raw(server) as again:
            assert again.hello(raw.secret, again=True).header["secret"] == raw.secret


# The end of a run, and how it stands


def test_wait_returns_the_run_once_its_updates_are_applied():
    with serve(BSP, updates=4) as server:
        with Raw(server) as raw, Raw(server, worker=1) as other:
            raw.say("hello"), other.say("hello")
            for clock in (0, 1):
                raw.push(clock=clock, loss=1.0)
                with pytest.raises(TimeoutError, match=rf"not over in 0\.1 seconds: {2 * clock} pushes applied"):
                    server.wait(0.1)
                other.push(clock=clock, loss=3.0)
            assert raw.say("alive").header["done"]
        run = server.wait(WAIT_S)
    assert (run.updates, run.late, run.stopped, run.diverged) == (4, 0, False, None)
    assert [row[1:] for row in run.losses] == [(1, 2.0), (2, 2.0)]
    assert 0 < run.seconds < WAIT_S
    assert min(run.bytes_sent, run.bytes_received) > 400
    assert {"aggregate", "apply"} <= set(run.trace.seconds())
    np.testing.assert_array_equal(run.params["w"], -2 * np.ones(3))


def test_a_server_without_an_end_is_kept_in_a_file_and_served_again(tmp_path):
    config = dataclasses.replace(LOCAL, workers=1, optimizer=ps.Adam(lr=0.1))

    def push(server, times):
        with ps.connect(server.address, config, token=server.token) as client:
            for _ in range(times):
                client.push(ONES).result(WAIT_S)
            return client.clock

    with serve(config) as server:
        push(server, 3)
        server.stop()
        server.wait(WAIT_S).save(tmp_path / "store.npz")
    run = ps.Run.load(tmp_path / "store.npz")
    with serve(config, run.params, state=run.state["servers"][0]) as server, serve(config) as undisturbed:
        assert (push(server, 2), push(undisturbed, 5)) == (5, 5)
        for name, x in server.params.items():
            np.testing.assert_array_equal(x, undisturbed.params[name])


def test_wait_returns_once_all_who_pushed_have_left():
    with serve(updates=100) as server:
        with Raw(server) as raw:
            raw.say("hello")
            raw.push()
            raw.say("bye", failed="ValueError: the disk is full")
        run = server.wait(WAIT_S)
    assert (run.updates, run.stopped) == (1, True)
    assert [text for _, text in run.events] == ["worker 0 has left: ValueError: the disk is full"]


def test_wait_lets_one_that_was_lost_come_back_for_as_long_as_one_may_be_silent():
    with serve(updates=2, silence_s=1.0) as server:
        with Raw(server) as raw:
            raw.say("hello")
            raw.push()
        with pytest.raises(TimeoutError):
            server.wait(0.3)
        assert server.wait(WAIT_S).stopped


def test_a_goodbye_may_end_the_run_and_say_why():
    with serve(updates=100) as server, Raw(server) as raw, Raw(server, worker=1) as other:
        raw.say("hello"), other.say("hello")
        raw.push()
        raw.say("bye", diverged="At step 1 of worker 0: no finite gradient.")
        assert other.push().header["outcome"] == "over"
        other.say("bye")
        run = server.wait(WAIT_S)
    assert (run.diverged, run.stopped) == ("At step 1 of worker 0: no finite gradient.", False)


def test_stop_ends_the_run_for_all():
    with serve(BSP, updates=100) as server, Raw(server) as raw:
        raw.say("hello")
        raw.push()
        waiting = raw.channel.call(raw.frames("pull"))
        server.stop()
        waiting.result(WAIT_S)
        raw.say("bye")
        run = server.wait(WAIT_S)
    assert (run.updates, run.stopped) == (0, True)


def test_a_run_that_can_never_end_is_an_error():
    config = dataclasses.replace(BSP, workers=5, aggregator=ps.Krum())
    with serve(config, updates=9) as server, Raw(server) as raw:
        raw.push()
        for worker in (1, 2, 3, 4):
            with Raw(server, worker) as other:
                other.say("bye")
        with pytest.raises(RuntimeError, match="no round can be completed any more"):
            server.wait(WAIT_S)


def test_a_run_keeps_the_problem_and_judges_its_held_out_rows():
    data = ps.datasets.synthetic(rows=40, features=3, classes=2)
    problem = ps.SoftmaxRegression(*data)
    params = problem.init(np.random.default_rng(0))
    with serve(params=params, updates=1) as server, Raw(server) as raw:
        raw.say("hello")
        raw.push(problem.gradient(params))
        raw.say("bye")
        run = server.wait(WAIT_S, problem=problem)
    assert run.problem is problem
    assert run.accuracy == problem.held_out().accuracy(run.params)
    assert run.predict(data.X).shape == (len(data.X),)


def test_status_says_who_waits_for_whom_and_disturbs_nobody():
    with serve(BSP, updates=8) as server, Raw(server) as raw, Raw(server, worker=1) as other:
        raw.say("hello"), other.say("hello")
        raw.push()
        waiting = raw.channel.call(raw.frames("pull"))
        while not server.status().workers[0].waits_for:
            time.sleep(0.01)
        with pytest.raises(PermissionError):
            ps.status(server.address, "wrong")
        told = ps.status(server.address, server.token, over_s=0.05)
        assert [(one.connected, one.clock, one.waits_for) for one in told.workers] == [(True, 1, [1]), (True, 0, [])]
        assert (told.applied, told.updates, told.done, told.pushes_per_s, told.bytes_per_s) == (0, 8, False, 0.0, 0.0)
        assert re.search(r"server 0 of 1: 0 of 8 updates in .* s, running\n.*\nworker", str(told))
        assert "worker 1" in str(told)
        before = server.shard.clocks[:]
        other.push()
        waiting.result(WAIT_S)
        assert [clock - was for clock, was in zip(server.shard.clocks, before, strict=True)] == [0, 1]
        later = ps.status(server.address, server.token)
        assert (later.applied, later.workers[0].waits_for) == (2, [])
        assert later.workers[1].received > told.workers[1].received
        assert (later.since(told, 0.5).pushes_per_s, later.pushes_per_s) == (4.0, None)


@pytest.mark.parametrize("serializer", ["msgpack", "json", "npy", "protobuf", "safetensors"])
def test_status_and_config_travel_in_every_serializer(serializer):
    codec = ps.Codec(serializer=serializer, compressor="zlib")
    config = dataclasses.replace(LOCAL, pull=codec, transport="tcp", delays=ps.Delays(0.0, slow={1: 2.0}))
    config = config.with_({"transport.max_message_bytes": 2**20})
    with serve(config) as server:
        assert not ps.status(server.address, server.token).done
        with ps.connect(server.address, worker=None, token=server.token) as client:
            assert client.worker == 0
            assert client.config == dataclasses.replace(config, transport=ps.Tcp())  # but for what is the server's own
            client.push(ONES).result(WAIT_S)


def test_a_status_of_a_later_server_is_read():
    with ps.Server({"w": np.zeros(2, "f4")}, ps.Config(workers=2)) as server:
        told = server.status().to_dict()
    later = {**told, "mood": "good", "workers": [{**row, "hat": "red"} for row in told["workers"]]}
    assert Status.from_dict(later) == Status.from_dict(told)
    with pytest.raises(TypeError, match="clock"):
        Status.from_dict({**told, "workers": [{"worker": 0}]})
