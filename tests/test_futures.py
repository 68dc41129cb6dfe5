"""Futures whose waiter does the work, and the channel that is built on them."""

import errno
import socket
import threading
import time
from concurrent.futures import wait

import pytest

import minips as ps
from minips.stages.transports.framing import pieces
from minips.stages.transports.futures import CallFuture
from minips.stages.transports.streams import StreamChannel, _Answer
from minips.stages.transports.tcp import _TcpWire
from minips.stages.transports.wire import CALL

WAIT_S = 20.0


class ByHand(CallFuture):
    """Completed by who waits for it, with the name of the thread that did it."""

    attended = False

    def drive(self, deadline):
        if deadline is None or deadline > time.monotonic() + 1:
            self.set_result(threading.current_thread().name)

    def attend(self):
        self.attended = True


class Noted(_Answer):
    """Notes the thread that read it."""

    def arrived(self, frames):
        self.reader = threading.current_thread()
        self.set_result(frames)


@pytest.fixture
def ends():
    """A channel, and the wire at its other end."""
    here, there = (_TcpWire(sock, 2**24) for sock in _sockets())
    channel = StreamChannel(here, "tcp://test")
    yield channel, there
    channel.close()
    there.close()


def _sockets():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = socket.create_connection(listener.getsockname())
        return one, listener.accept()[0]


def test_who_waits_does_the_work():
    future = ByHand()
    assert not future.completed()
    assert future.result() == threading.current_thread().name
    assert not future.attended


def test_a_wait_that_is_too_short_is_a_time_out_once():
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        ByHand().result(0.05)
    assert time.monotonic() - began < 1


def test_who_wants_to_be_called_has_it_attended():
    future = ByHand()
    future.add_done_callback(lambda done: None)
    assert future.attended


def test_one_who_asks_whether_it_is_done_has_it_attended():
    future = ByHand()
    assert not future.done()
    assert future.attended


def test_an_answer_that_comes_through_a_link_is_read_by_the_thread_that_waits():
    shaped = ps.Link(bandwidth_bps=1e12, latency_s=0).around(ps.Tcp())
    with shaped.serve(lambda frames: frames) as endpoint, shaped.connect(endpoint.address) as channel:
        for _ in range(3):
            answer = Noted(channel)
            channel.ask([b"a"], answer)
            assert bytes(answer.result(WAIT_S)[0]) == b"a"
            assert answer.reader is threading.current_thread()


def test_the_callers_thread_reads_its_own_answer(ends):
    channel, there = ends
    answer = Noted(channel)
    channel.ask([b"question"], answer)
    assert bytes(there.receive(WAIT_S)[1][0]) == b"question"
    there.send(CALL, [b"answer"])
    assert bytes(answer.result(WAIT_S)[0]) == b"answer"
    assert answer.reader is threading.current_thread()


def test_an_answer_that_nobody_waits_for_comes_all_the_same(ends):
    channel, there = ends
    answer = channel.call([b"question"])
    there.send(CALL, [b"answer"])
    done, _ = wait([answer], WAIT_S)
    assert done == {answer}


def test_a_wait_that_ends_in_the_middle_of_a_message_loses_nothing(ends):
    channel, there = ends
    payload = bytes(range(256)) * 1000
    message = b"".join(pieces(CALL, [payload]))
    for stop in (3, 12, 64, 1000, 100_000):
        answer = channel.call([b"question"])
        there.receive(WAIT_S)
        there._sock.sendall(message[:stop])
        with pytest.raises(TimeoutError):
            answer.result(0.05)
        there._sock.sendall(message[stop:])
        assert bytes(answer.result(WAIT_S)[0]) == payload


def test_a_time_out_holds_while_bytes_trickle_in(ends):
    channel, there = ends
    payload = bytes(100_000)
    message, sent = b"".join(pieces(CALL, [payload])), 0
    answer, waiting = channel.call([b"question"]), threading.Event()

    def trickle():
        nonlocal sent
        while not waiting.wait(0.002) and sent < 20_000:
            sent += there._sock.send(message[sent : sent + 8])

    peer = threading.Thread(target=trickle)
    peer.start()
    with pytest.raises(TimeoutError):
        answer.result(0.2)
    waiting.set()
    peer.join()
    assert sent < 20_000
    there._sock.sendall(message[sent:])
    assert bytes(answer.result(WAIT_S)[0]) == payload


def test_the_systems_word_for_a_peer_that_is_gone_is_no_time_out(ends):
    channel, _ = ends

    def gone(*_):
        raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")

    channel._wire.receive_into = gone
    for answer in (channel.call([b"one"]), channel.call([b"two"])):
        with pytest.raises(ConnectionError, match="Connection timed out"):
            answer.result(WAIT_S)


def test_two_who_wait_are_both_answered(ends):
    channel, there = ends
    got = []

    def ask(word):
        got.append(bytes(channel.call([word]).result(WAIT_S)[0]))

    threads = [threading.Thread(target=ask, args=(bytes([65 + i]),)) for i in range(8)]
    for thread in threads:
        thread.start()
    for _ in threads:
        there.send(CALL, there.receive(WAIT_S)[1])
    for thread in threads:
        thread.join(WAIT_S)
    assert sorted(got) == [bytes([65 + i]) for i in range(8)]


def test_a_wait_has_words_and_an_answer_that_is_a_time_out_keeps_its_own(ends):
    channel, _ = ends
    for wait_for in (CallFuture.result, CallFuture.exception):
        for seconds in (0.05, 0, -1.0):
            with pytest.raises(TimeoutError, match=f"No answer came within {seconds:g} seconds"):
                wait_for(channel.call([b"question"]), seconds)
    future = CallFuture()
    future.set_exception(TimeoutError("the handler's own"))
    with pytest.raises(TimeoutError, match=r"^the handler's own$"):
        future.result(WAIT_S)


def test_a_callback_may_wait_for_a_later_answer(ends):
    """It waits in the thread that would read that answer."""
    channel, there = ends
    got, ended = [], threading.Event()

    def waits(first):
        for ask in (channel.call, channel.call):
            got.append(bytes(ask([first.result()[0], b"again"]).result(WAIT_S)[1]))
        ended.set()

    channel.call([b"1"]).add_done_callback(waits)
    second = channel.call([b"2"])
    for _ in range(4):
        there.send(CALL, there.receive(WAIT_S)[1])
    assert ended.wait(WAIT_S)
    assert (got, bytes(second.result(WAIT_S)[0])) == ([b"again"] * 2, b"2")
    assert bytes(_echoed(channel, there, b"3")) == b"3"
    channel.close()
    assert not channel._background.is_alive()


def _echoed(channel, there, word):
    answer = channel.call([word])
    there.send(CALL, there.receive(WAIT_S)[1])
    return answer.result(WAIT_S)[0]


def test_a_callback_of_a_broken_call_may_wait_for_the_next_one(ends):
    channel, there = ends
    errors, calls = [], []
    reached = threading.Event()

    def waits(first):
        reached.wait(WAIT_S)
        errors.append(calls[1].exception(WAIT_S))

    calls.append(channel.call([b"1"]))
    calls[0].add_done_callback(waits)
    calls.append(channel.call([b"2"]))
    there.close()
    reached.set()
    assert isinstance(calls[1].exception(WAIT_S), ConnectionError)
    channel.close()
    assert errors == [calls[1].exception(0)]


def test_a_call_over_a_closed_channel_fails_and_so_do_those_that_wait(ends):
    channel, _ = ends
    waiting = [channel.call([b"%d" % number]) for number in range(3)]
    channel.close()
    for answer in waiting:
        with pytest.raises(ConnectionError, match="channel to tcp://test is closed"):
            answer.result(0)
    with pytest.raises(ConnectionError, match="channel to tcp://test is closed"):
        channel.call([b"later"])


def test_a_channel_that_finds_no_thread_closes_its_wire(monkeypatch):
    here, there = (_TcpWire(sock, 2**24) for sock in _sockets())
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", _refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            StreamChannel(here, "tcp://test")
    with pytest.raises(EOFError):
        there.receive(WAIT_S)
    there.close()


def _refuse(thread):
    raise RuntimeError("can't start new thread")
