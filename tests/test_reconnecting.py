"""Connections that break: what was under way is sent again, and counts once."""

import dataclasses
import itertools
import random
import threading
import time
from concurrent.futures import Future
from contextlib import ExitStack
from functools import partial

import numpy as np
import pytest

import minips as ps
from minips.core.resending import PAUSES_S, Resending
from minips.drivers.reconnecting import Reconnecting
from minips.stages.transports import Channel, Connection, Service

WAIT_S = 20.0
TOKEN = "broken"
CONFIG = ps.Config(transport="tcp", workers=1, consistency="asp", optimizer=ps.SGD(lr=1.0), timeout_s=20.0)
START = {"w": np.zeros(4)}
ONES = {"w": np.ones(4)}
SOON = (0.0, 0.01, 0.02)


class Scripted(Channel):
    """Answers each call with itself, or breaks when its turn in the script comes."""

    def __init__(self, breaks_at, log):
        self.breaks_at, self.log, self.calls = breaks_at, log, 0

    def call(self, frames):
        self.calls += 1
        future = Future()
        if self.calls == self.breaks_at:
            future.set_exception(ConnectionError("The wire broke."))
        else:
            self.log.append(bytes(frames[0]))
            future.set_result(frames)
        return future

    def close(self):
        pass


def scripted(*breaks, pauses_s=SOON):
    """A lasting channel whose connections break at these calls; None for one that cannot be made."""
    log, script = [], iter(breaks)

    def connect():
        turn = next(script)
        if turn is None:
            raise ConnectionError("Nobody answers.")
        return Scripted(turn, log)

    return Reconnecting(connect, Resending(lambda: iter(()), pauses_s), lambda channel: {}), log


class Asked(Future):
    """A request as a future of its answer."""

    numbers = itertools.count()

    def __init__(self, connection, frames, last):
        super().__init__()
        self.connection, self.frames, self.last = connection, frames, last
        self.number, self.breaks = next(self.numbers), 0

    arrived = Future.set_result

    def failed(self, error):
        if failure := self.connection.failed(self, error):
            self.set_exception(failure)


def ask(connection, frames, last=False):
    asked = Asked(connection, frames, last)
    connection.channel.ask(frames, asked)
    return asked


@pytest.mark.parametrize("breaks", [(2, 0), (2, None, 0), (2, 1, 0)])
def test_what_was_not_answered_is_sent_again_in_order(breaks):
    channel, log = scripted(*breaks)
    answers = [ask(channel, [b"%d" % i]) for i in range(4)]
    assert [bytes(answer.result(WAIT_S)[0]) for answer in answers] == [b"0", b"1", b"2", b"3"]
    assert log == [b"0", b"1", b"2", b"3"]
    channel.close()


def test_after_the_last_attempt_every_call_fails_with_what_broke_it_first():
    channel, _ = scripted(1, None, None, None)
    answer = ask(channel, [b"a"])
    with pytest.raises(ConnectionError, match="The wire broke"):
        answer.result(WAIT_S)
    with pytest.raises(ConnectionError, match="The wire broke"):
        ask(channel, [b"b"])
    channel.close()


def test_without_pauses_nothing_is_tried_again():
    channel, _ = scripted(1, pauses_s=())
    with pytest.raises(ConnectionError, match="The wire broke"):
        ask(channel, [b"a"]).result(WAIT_S)
    channel.close()


def test_an_error_of_the_new_connection_that_is_none_of_a_connection_reaches_the_one_that_waits():
    channel, _ = scripted(2, 0)
    ask(channel, [b"a"]).result(WAIT_S)
    call = Scripted.call

    def no_memory(self, frames):
        if self.breaks_at == 0:
            raise RuntimeError("There is no shared memory.")
        return call(self, frames)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scripted, "call", no_memory)
        answer = ask(channel, [b"b"])
        with pytest.raises(RuntimeError, match="no shared memory"):
            answer.result(WAIT_S)
    with pytest.raises(ConnectionError, match="no shared memory"):
        ask(channel, [b"c"])
    channel.close()


def test_the_last_call_is_no_reason_to_connect_again():
    channel, log = scripted(2, pauses_s=(WAIT_S,))
    ask(channel, [b"a"]).result(WAIT_S)
    with pytest.raises(ConnectionError, match="The wire broke"):
        ask(channel, [b"bye"], last=True).result(0.0)
    assert log == [b"a"]
    channel.close()


def test_a_channel_that_is_closed_tries_no_more():
    channel, _ = scripted(1, *[None] * 3, pauses_s=(WAIT_S, WAIT_S, WAIT_S))
    answer = ask(channel, [b"a"])
    channel.close()
    with pytest.raises(ConnectionError):
        answer.result(WAIT_S)


def cut(client):
    """Break the connection under a client's feet."""
    client._connections[0].channel._wire.shutdown()


@pytest.mark.parametrize("codec", [ps.Codec(), ps.Codec(memory=ps.Delta()), ps.Codec(ps.TopK(0.5), ps.ErrorFeedback())])
def test_pushes_count_once_through_cuts(codec):
    config = dataclasses.replace(CONFIG, push=codec, pull=ps.Codec(memory=ps.Delta()))
    reference = dataclasses.replace(config, transport="inproc")
    results = []
    for one, cuts in ((reference, ()), (config, (2, 5, 6))):
        with (
            ps.Server(START, one).serve(token="t") as server,
            ps.connect(server.address, one, token="t", pauses_s=SOON) as client,
        ):
            for step in range(10):
                if step in cuts:
                    cut(client)
                pulled = client.push_pull({"w": np.arange(4.0) + step}).result(WAIT_S)
            assert (server.shard.applied, server.shard.late) == (10, 0)
            np.testing.assert_array_equal(pulled["w"], server.params["w"])
            assert server.events == []
            results.append(pulled["w"])
    np.testing.assert_array_equal(*results)


def cut_after_an_update(monkeypatch, server, client):
    """Break the connection once the server has made an update, before it can say so. Returns a list, then not empty."""
    apply, lost = server.shard.apply, []

    def apply_and_cut():
        outcome = apply()
        if not lost:
            lost.append(outcome)
            cut(client)
        return outcome

    monkeypatch.setattr(server.shard, "apply", apply_and_cut)
    return lost


def test_an_acknowledgement_that_was_lost_is_given_again(monkeypatch):
    with (
        ps.Server(START, CONFIG).serve(token="t") as server,
        ps.connect(server.address, CONFIG, token="t") as client,
    ):
        lost = cut_after_an_update(monkeypatch, server, client)
        assert client.push(ONES).result(WAIT_S) in ("applied", "duplicate")
        assert lost
        assert server.shard.applied == 1
        assert client.push(ONES).result(WAIT_S) == "applied"
        np.testing.assert_array_equal(server.params["w"], -2 * np.ones(4))


def test_a_push_that_was_missed_while_its_worker_was_away_is_late():
    shard = ps.Shard(
        START, workers=2, aggregator=ps.Mean(), consistency=ps.BSP(), optimizer=ps.SGD(lr=1.0), updates=None
    )
    shard.leave(0)
    assert shard.push(ps.Contribution(1, 0, 0, ONES)) == "applied"
    shard.join(0)
    assert shard.push(ps.Contribution(0, 0, 0, ONES)) == "late"
    assert (shard.applied, shard.late, shard.duplicates) == (1, 1, 0)
    np.testing.assert_array_equal(shard.params["w"], -np.ones(4))


# A connection to one of several servers


class Gate(Service):
    """Passes calls on to the server at ``address``; ``cut()`` breaks its connections and refuses others for a while."""

    def __init__(self, transport, address):
        super().__init__(partial(Passing, self))
        self.transport, self.address, self.passing = transport, address, set()
        self.endpoint = transport.serve(self, None, TOKEN)

    def cut(self, seconds):
        for connection in [*self.passing]:
            connection.channel.close()  # a call that waits in it fails, and with it the connection
        self.endpoint.close()
        time.sleep(seconds)
        self.endpoint = self.transport.serve(self, self.endpoint.address, TOKEN)


class Passing(Connection):
    def __init__(self, gate):
        self.gate, self.channel = gate, gate.transport.connect(gate.address, TOKEN)
        gate.passing.add(self)

    def answer(self, frames):
        try:
            return self.channel.call([bytes(frame) for frame in frames]).result(WAIT_S)
        except ConnectionError:
            threading.Event().wait(0.2)  # the end of the connection arrives, and not this error
            raise

    def closed(self):
        self.gate.passing.discard(self)
        self.channel.close()


def until(holds):
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def pushed(config, number, gated, deed=lambda gates: None):
    """The parameters after two rounds of two workers and two servers: the first one's call waits during the deed."""
    servers = [ps.Server(START, config, index=index).serve(None, TOKEN) for index in range(2)]
    gates = [Gate(config.transport, server.address) for server in servers] if gated else []
    direct = [server.address for server in servers]
    with ExitStack() as stack:
        for one in (*(gate.endpoint for gate in gates), *servers):
            stack.enter_context(one)
        for gate in gates:
            stack.callback(lambda gate=gate: gate.endpoint.close())
        first, second = (
            stack.enter_context(ps.connect(addresses, config, worker=worker, token=TOKEN, pauses_s=PAUSES_S))
            for worker, addresses in enumerate([[gate.endpoint.address for gate in gates] or direct, direct])
        )
        rng = np.random.default_rng(number)
        for clock in range(2):
            gradients = [{"w": rng.normal(size=4)} for _ in range(2)]
            call = first.push_pull(gradients[0])
            waiter = threading.Thread(target=call.exception, args=(WAIT_S,))
            waiter.start()
            if clock == 0:
                until(lambda: all(server.shard.clocks[0] == 1 for server in servers))  # its push waits for its round
                deed(gates)
            second.push_pull(gradients[1])
            began = time.monotonic()
            waiter.join(WAIT_S)
            pulled = call.result(0)["w"]
            assert time.monotonic() - began < 2.0
        return pulled


def cut_during_a_call(transport, number):
    config = CONFIG.with_({"transport": transport, "workers": 2, "servers": 2, "consistency": "bsp"})
    rng = random.Random(number)

    def deed(gates):
        time.sleep(rng.choice([0.0, 0.01, 0.05]))
        gates[rng.randrange(2)].cut(0.5)

    np.testing.assert_array_equal(pushed(config, number, True, deed), pushed(config, number, False))


@pytest.mark.parametrize("transport", ["tcp", pytest.param("shm", marks=pytest.mark.soak), "http"])
@pytest.mark.parametrize("number", [0, pytest.param(1, marks=pytest.mark.soak)])
def test_a_connection_to_one_server_breaks_while_a_call_waits_for_the_others_answer(transport, number):
    cut_during_a_call(transport, number)


@pytest.mark.soak
@pytest.mark.parametrize(
    "transport", ["tcp", *(pytest.param(name, marks=pytest.mark.campaign) for name in ("shm", "http"))]
)
def test_a_connection_to_one_server_breaks_twenty_times(transport):
    for number in range(20):
        cut_during_a_call(transport, number)
