"""What PROTOCOL.md says of HTTP, by hand: who is hung up on, who is not, and requests as other clients make them."""

import contextlib
import socket
import threading
import time

import pytest

import minips as ps
from benchmarks.stalls import Peer, bare
from minips.stage import missing
from minips.stages.transports import calls

pytestmark = pytest.mark.skipif(bool(missing(ps.Http)), reason="aiohttp is not installed")
TOKEN, WAIT_S = "benchmarks", 20.0  # the token is that of `Peer`
HEAD_END = b"\r\n\r\n"


@pytest.fixture
def endpoint(monkeypatch):
    """A server whose limits are a second, for a stall and for strangers."""
    from minips.stages.transports.http import calls as http

    for module in (calls, http):
        monkeypatch.setattr(module, "HANDSHAKE_S", 1.0)
    with ps.Http(stalled_s=1.0).serve(lambda frames: frames, token=TOKEN) as endpoint:
        yield endpoint


@pytest.fixture
def peer(endpoint):
    """A session, and a connection for calls by hand."""
    with contextlib.closing(Peer(ps.Http(), endpoint.address)) as peer:
        peer.sock.settimeout(WAIT_S)
        yield peer


def answers(sock, count):
    """The status lines and the bodies of so many answers."""
    read, found = sock.makefile("rb"), []
    for _ in range(count):
        status, nbytes = read.readline().strip(), 0
        while line := read.readline().strip():
            name, _, value = line.partition(b":")
            nbytes = int(value) if name.lower() == b"content-length" else nbytes
        found.append((status, read.read(nbytes)))
    return found


SOAK = pytest.mark.soak
HANG_S = 120.0
"""Looks of a busy server come late, and each counts one tick of a limit."""


def is_hung_up_on(sock):
    """Wait for the end of the connection; TimeoutError where it does not come."""
    sock.settimeout(HANG_S)
    with contextlib.suppress(ConnectionError):
        while sock.recv(2**16):
            pass
    return True


def bodies(found):
    """The frames of answers that have one each."""
    return [body[-64:].rstrip(b"\0") for _, body in found]


PARTS = [
    lambda call: call[:1],
    lambda call: call[:30],
    lambda call: call[: call.index(HEAD_END) + 4],
    lambda call: call[:-1],
]
"""A byte, half a head, a head, and all but the last byte of a call."""


WHEN = [pytest.param(when, marks=SOAK) for when in ("first", "with the call before")]


@pytest.mark.parametrize("when", [*WHEN, "right behind the answer"])
def test_a_part_of_a_request_is_dropped_whenever_it_comes(endpoint, when):
    with contextlib.ExitStack() as stack:
        peers = []
        for part in PARTS:
            peer = stack.enter_context(contextlib.closing(Peer(ps.Http(), endpoint.address)))
            peer.sock.settimeout(WAIT_S)
            peers.append(peer.sock)
            one, two = peer.call(b"one"), peer.call(b"two")
            if when == "first":
                peer.sock.sendall(part(one))
            elif when == "with the call before":
                peer.sock.sendall(one + part(two))
                assert bodies(answers(peer.sock, 1)) == [b"one"]
            else:
                peer.sock.sendall(one)
                assert bodies(answers(peer.sock, 1)) == [b"one"]
                peer.sock.sendall(part(two))
        assert all(map(is_hung_up_on, peers))


def test_requests_in_pieces_and_behind_each_other_are_answered_and_an_idle_connection_stays(peer):
    said = b"".join(peer.call(frame) for frame in (b"one", b"two", b"three"))
    for start in range(0, len(said), 7):
        peer.sock.sendall(said[start : start + 7])
    assert bodies(answers(peer.sock, 3)) == [b"one", b"two", b"three"]
    time.sleep(1.6)  # longer than what a part of a request may take
    peer.sock.sendall(peer.call(b"four"))
    assert bodies(answers(peer.sock, 1)) == [b"four"]


@pytest.mark.parametrize("nbytes", [1, 2, 3, 7, 100, 10_000])
def test_where_requests_begin_and_end_is_known_however_they_are_cut(nbytes):
    from minips.stages.transports.http.calls import _PeerMonitor

    lengths = [0, 5, 0, 300, 4]
    said = b"".join(
        b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % n + b"\r\n\r\n"[:n] + bytes(n)[4:] for n in lengths
    )
    with socket.socket() as sock:
        monitor, begun = _PeerMonitor(sock, 1.0), []
        for start in range(0, len(said), nbytes):
            monitor.note(said[start : start + nbytes])
            begun.append(bool(monitor._head or monitor._left))
    assert not begun.pop()
    assert nbytes > 1 or begun.count(False) == len(lengths) - 1


def test_a_connection_whose_session_has_ended_is_closed(peer):
    peer.sock.sendall(peer.call(b"one"))
    assert bodies(answers(peer.sock, 1)) == [b"one"]
    peer.server.shutdown()
    assert is_hung_up_on(peer.sock)


@SOAK
def test_a_connection_that_calls_on_after_its_session_is_closed_too(peer):
    call = peer.call(b"one")
    peer.server.shutdown()
    for _ in range(int(WAIT_S / 0.05)):
        try:
            peer.sock.sendall(call)
            if not peer.sock.recv(2**16):
                return
        except ConnectionError:
            return
        time.sleep(0.05)
    pytest.fail("it is still open")


def test_a_client_that_waits_to_be_told_to_continue_is_told(peer):
    head, _, body = peer.call(b"one").partition(HEAD_END)
    peer.sock.sendall(head + b"\r\nExpect: 100-continue" + HEAD_END)
    assert answers(peer.sock, 1) == [(b"HTTP/1.1 100 Continue", b"")]
    peer.sock.sendall(body)
    assert bodies(answers(peer.sock, 1)) == [b"one"]


REFUSED = {
    "chunks": (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n0\r\n\r\n", b"403"),
    "another method": (b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", b"403"),
    "a head of 10 kB": (b"POST / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 10_000 + b"\r\n\r\n", b"400"),
    "no HTTP": (b"\x16\x03\x01" + bytes(100) + b"\r\n\r\n", b"400"),
}


@SOAK
@pytest.mark.parametrize(("said", "status"), REFUSED.values(), ids=REFUSED)
def test_requests_that_are_no_calls_are_refused_and_their_connections_closed(endpoint, said, status):
    with bare(ps.Http(), endpoint.address) as sock:
        sock.sendall(said)
        assert answers(sock, 1)[0][0].split()[1] == status
        assert is_hung_up_on(sock)


@SOAK
def test_chunks_of_a_session_are_refused_and_end_it(peer):
    head, _, body = peer.call(b"one").partition(HEAD_END)
    lines = [line for line in head.split(b"\r\n") if b"Content-Length" not in line]
    chunk = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    peer.sock.sendall(b"\r\n".join([*lines, b"Transfer-Encoding: chunked"]) + HEAD_END + chunk)
    assert answers(peer.sock, 1)[0][0].split()[1] == b"411"
    assert is_hung_up_on(peer.sock)


@SOAK
def test_a_browser_that_looks_in_gets_a_line_and_an_end(endpoint):
    with bare(ps.Http(), endpoint.address) as sock:
        sock.settimeout(WAIT_S)
        sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nAccept: text/html\r\n\r\n")
        assert answers(sock, 1)[0][0] == b"HTTP/1.1 200 OK"
        assert is_hung_up_on(sock)


def test_a_look_at_a_session_that_no_thread_serves_yet_is_not_the_last_one(monkeypatch):
    from minips.stages.transports.http import calls as http

    for module in (calls, http):
        monkeypatch.setattr(module, "HANDSHAKE_S", 0.5)
    with contextlib.closing(ps.Http().listen(None)) as listener, bare(ps.Http(), listener.address) as session:
        session.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        listener.accept()  # the session has come, and nobody talks to it
        assert is_hung_up_on(session)
        with bare(ps.Http(), listener.address) as stranger:
            assert is_hung_up_on(stranger)
        listener.shutdown()


@SOAK
def test_a_server_whose_event_loop_is_behind_cuts_nobody(endpoint):
    """Each turn of the loop takes a fifth of what a stranger may take, who needs more turns than five."""
    loop, over = endpoint._listener._loop._loop, threading.Event()

    def work():
        time.sleep(0.2)
        if not over.is_set():
            loop.call_soon(work)

    loop.call_soon_threadsafe(work)
    try:
        with ps.Http().connect(endpoint.address, TOKEN, WAIT_S) as channel:
            assert bytes(channel.call([b"a"]).result(WAIT_S)[0]) == b"a"
            over.set()
    finally:
        over.set()


def test_an_address_without_a_server_is_said_at_once():
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = "http://{}:{}".format(*other.getsockname())
    with pytest.raises(ConnectionError, match="No server answers"):
        ps.Http().connect(address, TOKEN)
