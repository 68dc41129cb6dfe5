"""Futures whose waiter does the work, and the channel that is built on them."""

import errno
import socket
import threading
import time
from concurrent.futures import wait

import pytest

import minips as ps
from minips.stages.transports.framing import pieces
from minips.stages.transports.futures import Driven
from minips.stages.transports.streams import StreamChannel
from minips.stages.transports.tcp import _TcpWire
from minips.stages.transports.wire import CALL

WAIT_S = 20.0


class ByHand(Driven):
    """Completed by who waits for it, with the name of the thread that did it."""

    attended = False

    def drive(self, deadline):
        if deadline is None or deadline > time.monotonic() + 1:
            self.set_result(threading.current_thread().name)

    def attend(self):
        self.attended = True


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
    assert future._made is None, "where no other thread waits, there is no lock"


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
            assert bytes(channel.call([b"a"]).result(WAIT_S)[0]) == b"a"
        assert channel._channel._background is None


def test_the_callers_thread_reads_its_own_answer(ends):
    channel, there = ends
    answer = channel.call([b"question"])
    assert bytes(there.receive(WAIT_S)[1][0]) == b"question"
    there.send(CALL, [b"answer"])
    readers = []
    answer.then(lambda done: readers.append(threading.current_thread()))
    assert bytes(answer.result(WAIT_S)[0]) == b"answer"
    # Where this thread was kept from it for long, the background may have come first.
    assert readers[0] in (threading.current_thread(), channel._background)


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
