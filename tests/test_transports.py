"""What is particular to a transport: its addresses and its limits, and peers that mean no good."""

import contextlib
import dataclasses
import gc
import json
import marshal
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import threading
import zlib
from contextlib import contextmanager
from multiprocessing import connection
from pathlib import Path

import msgpack
import numpy as np
import pytest

import minips as ps
import minips.stages.transports.zmq
from minips import stage
from minips.stage import missing
from minips.stages.transports import patience
from minips.stages.transports.auth import PROTOCOL, answer_challenge, challenge
from minips.stages.transports.base import remote_error
from minips.stages.transports.framing import AHEAD_BYTES, MOST_FRAMES, Framer, stream_nbytes
from minips.stages.transports.sockets import SocketWire
from minips.stages.transports.wire import AUTH, CALL, ERROR
from minips.testing.transports import Watched

WAIT_S = 20.0
HEAD = struct.Struct("<BxxxI")
TOKEN = "the right token"
OPTIONAL = [cls() for cls in (ps.Zmq, ps.Http, ps.Grpc, ps.Thrift, ps.Pyro) if not missing(cls)]
WIRES = [ps.InProc(), ps.Pipe(), ps.Tcp(), *OPTIONAL]
BETWEEN_PROCESSES = [ps.Pipe(), ps.Tcp(), *OPTIONAL]

every_wire = pytest.mark.parametrize("transport", WIRES, ids=lambda t: t.name)
between_processes = pytest.mark.parametrize("transport", BETWEEN_PROCESSES, ids=lambda t: t.name)


def echo(frames):
    return frames


@contextmanager
def talking(transport, handler=echo):
    with transport.serve(handler, token=TOKEN) as endpoint, transport.connect(endpoint.address, TOKEN) as channel:
        yield endpoint, channel


@contextmanager
def no_thread_for(name, monkeypatch):
    """No thread whose name begins like that can be started."""
    start = threading.Thread.start

    def refuse(thread):
        if thread.name.startswith(name):
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield


def ask(channel, *frames):
    return [bytes(frame) for frame in channel.call(list(frames)).result(WAIT_S)]


# Calls


@pytest.mark.soak
@between_processes
def test_a_large_message_arrives_whole(transport):
    block = np.random.default_rng(0).bytes(2**26)
    with talking(transport) as (_, channel):
        assert ask(channel, block, b"tail") == [block, b"tail"]


@every_wire
def test_frames_that_are_no_buffers_fail_their_call_and_no_other_gets_its_answer(transport):
    with talking(transport) as (endpoint, channel):
        with pytest.raises((TypeError, AttributeError)):
            channel.call([b"fine", None])
        with pytest.raises(ConnectionError):
            ask(channel, b"later")
        with transport.connect(endpoint.address, TOKEN) as other:
            assert ask(other, b"other") == [b"other"]


@every_wire
def test_a_future_cannot_be_called_back(transport):
    with talking(transport) as (_, channel):
        future = channel.call([b"a"])
        assert not future.cancel()
        assert [*map(bytes, future.result(WAIT_S))] == [b"a"]


@every_wire
def test_an_answer_may_be_followed_by_a_call_from_its_own_callback(transport):
    with talking(transport) as (_, channel):
        second = []
        done = threading.Event()

        def again(first):
            second.append(channel.call([*first.result(), b"again"]))
            done.set()

        channel.call([b"once"]).add_done_callback(again)
        assert done.wait(WAIT_S)
        assert [*map(bytes, second[0].result(WAIT_S))] == [b"once", b"again"]


@every_wire
def test_a_handler_may_close_its_own_endpoint(transport):
    served = []

    def handler(frames):
        served[0].close()
        return frames

    with transport.serve(handler, token=TOKEN) as endpoint, transport.connect(endpoint.address, TOKEN) as channel:
        served.append(endpoint)
        with pytest.raises(ConnectionError):
            ask(channel, b"a")


@every_wire
def test_a_callback_may_close_its_own_channel(transport):
    closed = threading.Event()
    with talking(transport) as (_, channel):

        def close(_):
            channel.close()
            closed.set()

        channel.call([b"a"]).add_done_callback(close)
        assert closed.wait(WAIT_S)


@pytest.mark.parametrize(
    ("frames", "kind", "text"),
    [
        ([b"KeyError", b"w"], KeyError, "'w'"),
        ([b"OSError", b"disk"], RuntimeError, "OSError: disk"),
        ([b"ValueError"], ValueError, ""),
        ([], RuntimeError, ": "),
        ([b"\xff", b"\xff", b"more"], RuntimeError, "\ufffd: \ufffd"),
    ],
    ids=repr,
)
def test_any_frames_are_an_error(frames, kind, text):
    error = remote_error(frames)
    assert type(error) is kind
    assert str(error) == text


@every_wire
@pytest.mark.parametrize("error", [TimeoutError(), MemoryError(), ValueError("")], ids=repr)
def test_an_error_without_a_text_arrives_with_words(transport, error):
    def handler(frames):
        raise error

    words = f"a {type(error).__name__} without a text"
    with talking(transport, handler) as (_, channel), pytest.raises(Exception, match=words):
        ask(channel, b"a")


def test_a_server_that_can_start_no_thread_says_so_and_serves_the_next(monkeypatch):
    with talking(ps.Tcp()) as (endpoint, channel):
        words = r"cannot serve one more connection: can't start new thread\. Is"
        with no_thread_for("minips-serve", monkeypatch), pytest.raises(ConnectionError, match=words):
            ps.Tcp().connect(endpoint.address, TOKEN)
        with ps.Tcp().connect(endpoint.address, TOKEN) as other:
            assert ask(other, b"other") == [b"other"]
        assert ask(channel, b"a") == [b"a"]


@every_wire
def test_a_channel_that_can_start_no_thread_leaves_nothing_behind_and_the_next_is_answered(transport, monkeypatch):
    with talking(transport) as (endpoint, _):
        before = {*threading.enumerate()}
        with no_thread_for("minips-read", monkeypatch), pytest.raises(RuntimeError, match="can't start new thread"):
            transport.connect(endpoint.address, TOKEN)
        with transport.connect(endpoint.address, TOKEN) as other:
            assert ask(other, b"other") == [b"other"]
        left = {*threading.enumerate()} - before
        for thread in left:
            thread.join(WAIT_S)
        assert not [thread for thread in left if thread.is_alive()]


@every_wire
def test_an_endpoint_that_can_start_no_thread_leaves_nothing_behind(transport, monkeypatch):
    before = {*threading.enumerate()}
    with no_thread_for("minips-accept", monkeypatch), contextlib.suppress(RuntimeError):
        transport.serve(echo, token=TOKEN).close()
    for thread in {*threading.enumerate()} - before:
        thread.join(WAIT_S)
    assert {*threading.enumerate()} <= before
    if isinstance(transport, ps.InProc):
        assert not minips.stages.transports.inproc._listeners


@pytest.mark.parametrize("transport", [ps.Pipe(), ps.Http()], ids=lambda t: t.name)
def test_closing_waits_for_all_blocked_handlers_at_once(transport, monkeypatch):
    for module in ("calls", "endpoints", "streams"):
        monkeypatch.setattr(f"minips.stages.transports.{module}.HANDSHAKE_S", 1.0)
    gate = threading.Event()
    with contextlib.ExitStack() as stack:
        endpoint = transport.serve(lambda frames: [str(gate.wait(WAIT_S)).encode()], token=TOKEN)
        for _ in range(12):
            stack.enter_context(transport.connect(endpoint.address, TOKEN)).call([b"a"])
        closing = threading.Thread(target=endpoint.close)
        closing.start()
        closing.join(6.0)  # one after the other they would take 12
        blocked = closing.is_alive()
        gate.set()
        closing.join(WAIT_S)
    assert not blocked


# Peers that vanish

SERVER = """
import sys, time, minips as ps
transport = ps.build("transport", sys.argv[1])
def handler(frames):
    if bytes(frames[0]) == b"hang":
        time.sleep(60)
    return frames
with transport.serve(handler, token=sys.argv[2]) as endpoint:
    print(endpoint.address, flush=True)
    time.sleep(60)
"""
CLIENT = """
import sys, time, minips as ps
channel = ps.build("transport", sys.argv[1]).connect(sys.argv[3], sys.argv[2])
channel.call([b"hello"]).result(20)
print("connected", flush=True)
time.sleep(60)
"""
DIALLER = """
import sys, minips as ps
print("here", flush=True)
try:
    ps.build("transport", sys.argv[1]).connect(sys.argv[3], sys.argv[2])
except ConnectionError:
    sys.exit(0)
sys.exit(1)
"""


@contextmanager
def another_process(code, *arguments, **options):
    command = [sys.executable, "-c", code, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options) as process:
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


@between_processes
def test_a_server_that_is_killed_fails_pending_and_later_calls(transport):
    with (
        another_process(SERVER, transport.name, TOKEN) as (process, address),
        transport.connect(address, TOKEN) as channel,
    ):
        assert ask(channel, b"a") == [b"a"]
        pending = channel.call([b"hang"])
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(ConnectionError, match=address):
            pending.result(WAIT_S)
        with pytest.raises(ConnectionError, match=address):
            ask(channel, b"later")
        with pytest.raises(ConnectionError, match=address):
            transport.connect(address, TOKEN, 2.0)


@between_processes
def test_a_client_that_is_killed_is_noticed(transport):
    service = Watched()
    gone = service.left
    with (
        transport.serve(service, token=TOKEN) as endpoint,
        another_process(CLIENT, transport.name, TOKEN, endpoint.address) as (process, word),
    ):
        assert word == "connected"
        assert not gone.is_set()
        os.kill(process.pid, signal.SIGKILL)
        assert gone.wait(WAIT_S)


# Addresses


@pytest.mark.parametrize(
    "address", ["tcp://", "tcp://host", "tcp://127.0.0.1:port", "tcp://127.0.0.1:65536", "tcp://:-1"]
)
def test_tcp_says_what_an_address_looks_like(address):
    with pytest.raises(ValueError, match=r"such as tcp://127\.0\.0\.1:5000"):
        ps.Tcp().connect(address, timeout=1.0)


@pytest.mark.parametrize(
    ("address", "error", "words"),
    [
        ("pipe://" + "x" * 200, OSError, r"cannot be served: \w.*Choose another name"),
        ("tcp://127.0.0.1:²", ValueError, "takes an address such as"),
    ],
    ids=["long", "digit"],
)
def test_an_address_that_cannot_be_served_is_a_sentence(address, error, words):
    transport = ps.Tcp() if address.startswith("tcp") else ps.Pipe()
    with pytest.raises(error, match=words) as raised:
        transport.serve(echo, address)
    assert "None. " not in str(raised.value)


def test_a_host_that_cannot_be_one_is_a_connection_error():
    with pytest.raises(ConnectionError, match=r"No server answers at tcp://foo\.\.bar:5000"):
        ps.Tcp().connect("tcp://foo..bar:5000", timeout=1.0)


def test_tcp_serves_loopback_unless_another_host_is_named():
    with ps.Tcp().serve(echo) as endpoint:
        assert endpoint.address.startswith("tcp://127.0.0.1:")
    with ps.Tcp().serve(echo, "tcp://:0") as endpoint:
        assert endpoint.address.startswith("tcp://127.0.0.1:")


def test_tcp_over_ipv6():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    with ps.Tcp().serve(echo, "tcp://[::1]:0") as endpoint, ps.Tcp().connect(endpoint.address) as channel:
        assert endpoint.address.startswith("tcp://[::1]:")
        assert ask(channel, b"six") == [b"six"]


@pytest.mark.parametrize("transport", [ps.InProc(), ps.Pipe()], ids=lambda t: t.name)
def test_a_name_of_ones_own(transport):
    address = f"{transport.scheme}://minips-test-{os.getpid()}"
    with transport.serve(echo, address) as endpoint, transport.connect(address) as channel:
        assert endpoint.address == address
        assert ask(channel, b"a") == [b"a"]


@every_wire
def test_fresh_addresses_differ(transport):
    with transport.serve(echo) as a, transport.serve(echo) as b:
        assert a.address != b.address


# Limits


@pytest.mark.parametrize("transport", BETWEEN_PROCESSES, ids=lambda t: t.name)
def test_a_message_above_the_limit_ends_its_connection_and_no_other(transport):
    transport = dataclasses.replace(transport, max_message_bytes=10_000)
    with talking(transport) as (endpoint, channel):
        assert ask(channel, bytes(9_000)) == [bytes(9_000)]
        with transport.connect(endpoint.address, TOKEN) as greedy:
            with pytest.raises((ConnectionError, ValueError)) as refused:
                ask(greedy, bytes(11_000))
            if transport.name in ("tcp", "pipe", "shm"):
                assert "A message of 11000 bytes is larger than the 10000 that are allowed" in str(refused.value)
            with pytest.raises(ConnectionError):
                ask(greedy, b"gone")
        assert ask(channel, b"still here") == [b"still here"]


@between_processes
def test_an_answer_above_the_clients_limit_is_refused(transport):
    careful = dataclasses.replace(transport, max_message_bytes=2**16)
    with (
        transport.serve(lambda frames: [bytes(2**20)], token=TOKEN) as endpoint,
        careful.connect(endpoint.address, TOKEN) as channel,
        pytest.raises(ConnectionError),
    ):
        ask(channel, b"a")


@pytest.mark.parametrize("transport", [ps.Tcp(), ps.Pipe(), ps.SharedMemory()], ids=lambda t: t.name)
def test_small_messages_after_one_with_a_large_head_need_not_wait_for_more(transport, monkeypatch):
    monkeypatch.setattr(patience, "TICK_S", 2 * WAIT_S)  # how often a wait is looked at
    with talking(transport.with_({"stalled_s": 2 * WAIT_S * patience.LOOKS})) as (_, channel):
        assert ask(channel, *[b"x"] * 5000) == [b"x"] * 5000
        assert [ask(channel, b"small") for _ in range(3)] == [[b"small"]] * 3


@every_wire
def test_a_message_of_too_many_frames_is_refused_either_way_and_the_connection_goes_on(transport):
    def handler(frames):
        return [b""] * (MOST_FRAMES + 1) if bytes(frames[0]) == b"many" else frames

    with talking(transport, handler) as (_, channel):
        for call in (lambda: channel.call([b""] * (MOST_FRAMES + 1)), lambda: ask(channel, b"many")):
            with pytest.raises(ValueError, match="65537 frames has more than the 65536 that are allowed"):
                call()
        assert ask(channel, b"a") == [b"a"]


def peak_bytes(pid):
    """The most memory that a process has had, as Linux says."""
    return int(re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())[1]) * 1024


on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the most memory that a process has had")


@on_linux
@pytest.mark.parametrize("transport", [ps.Tcp(), ps.SharedMemory()], ids=lambda t: t.name)
def test_frames_that_are_only_announced_take_no_memory(transport):
    announced = {"tcp": HEAD.pack(CALL, 2**27), "shm": struct.pack("<BBxxIII", CALL, 0, 2**27, 0, 0)}
    with (
        another_process(SERVER, transport.name, TOKEN) as (process, address),
        transport.connect(address, TOKEN) as channel,
        transport.dial(address, WAIT_S) as wire,
    ):
        answer_challenge(wire, TOKEN, address, WAIT_S)
        assert ask(channel, b"a") == [b"a"]
        before = peak_bytes(process.pid)
        wire.write([announced[transport.name].ljust(64, b"\0")])
        tag, (_, why) = wire.receive(WAIT_S)
        assert (tag, b"more than the 65536 that are allowed" in bytes(why)) == (ERROR, True)
        with pytest.raises((EOFError, ConnectionError)):
            wire.receive(WAIT_S)
        assert peak_bytes(process.pid) - before < 20e6
        assert ask(channel, b"a") == [b"a"]


# The token


@every_wire
def test_a_wrong_token_is_refused_in_words(transport):
    said = "refused: The server does not know this token"
    with transport.serve(echo, token=TOKEN) as endpoint, pytest.raises(PermissionError, match=said):
        transport.connect(endpoint.address, "a wrong token")


class Line:
    """A wire of two lists, to speak the handshake by hand."""

    def __init__(self, *incoming):
        self.incoming, self.sent = list(incoming), []

    def send(self, tag, frames):
        self.sent.append((tag, [bytes(frame) for frame in frames]))

    def receive(self, timeout=None, limit=None):
        if not self.incoming:
            raise EOFError
        message = self.incoming.pop(0)
        return message() if callable(message) else message


def client_says(*incoming):
    wire = Line(*incoming)
    answer_challenge(wire, TOKEN, "x://y", 1.0)
    return wire


def test_a_server_that_does_not_know_the_token_is_refused_too():
    with pytest.raises(PermissionError, match="x://y could not prove that it knows the token"):
        client_says((AUTH, [PROTOCOL, bytes(32)]), (AUTH, [bytes(32)]))


def test_a_client_is_not_fooled_by_its_own_proof():
    """A server without the token sends the client's own words back."""
    wire = Line((AUTH, [PROTOCOL, bytes(32)]))
    wire.incoming.append(lambda: (AUTH, [wire.sent[0][1][1]]))
    with pytest.raises(PermissionError, match="could not prove"):
        answer_challenge(wire, TOKEN, "x://y", 1.0)
    assert wire.sent[0][0] == AUTH


def test_a_server_is_not_fooled_by_its_own_proof():
    """A client without the token opens a second connection as a server would, to have the challenge answered there."""
    wire = Line()
    wire.incoming.append(lambda: (AUTH, [wire.sent[0][1][1], wire.sent[0][1][1]]))
    with pytest.raises(PermissionError, match="does not know the token"):
        challenge(wire, TOKEN, 1.0)
    tag, frames = wire.sent[-1]
    assert (tag, frames[0]) == (ERROR, b"PermissionError")


def test_the_proof_of_one_connection_is_worth_nothing_on_another():
    client, server = Line(), Line()
    client.incoming.append((AUTH, [PROTOCOL, b"n" * 32]))
    with pytest.raises(ConnectionError):
        answer_challenge(client, TOKEN, "x://y", 1.0)
    server.incoming.append(client.sent[0])
    with pytest.raises(PermissionError):
        challenge(server, TOKEN, 1.0)


def test_the_token_is_never_sent():
    client, server = Line(), Line()

    def relay(there, back):
        return lambda: there.sent[back]

    server.incoming.append(relay(client, 0))
    client.incoming += [(AUTH, [PROTOCOL, b"n" * 32])]
    with pytest.raises(ConnectionError):
        answer_challenge(client, TOKEN, "x://y", 1.0)
    with pytest.raises(PermissionError):
        challenge(server, TOKEN, 1.0)
    assert TOKEN.encode() not in b"".join(b"".join(frames) for _, frames in client.sent + server.sent)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((CALL, [b"hello"]), None),
        ((AUTH, []), None),
        ((AUTH, [PROTOCOL]), None),
        ((AUTH, [b"minips/0", bytes(32)]), None),
        ((ERROR, []), None),
        (None, None),
    ],
    ids=repr,
)
def test_a_peer_that_is_no_server_is_a_connection_error(first, second):
    with pytest.raises(ConnectionError, match="x://y"):
        client_says(*[message for message in (first, second) if message])


@pytest.mark.parametrize("second", [(AUTH, []), (AUTH, [b"", b""]), (CALL, [bytes(32)]), (ERROR, [])], ids=repr)
def test_a_peer_that_proves_nothing_is_refused(second):
    with pytest.raises(PermissionError, match="x://y"):
        client_says((AUTH, [PROTOCOL, bytes(32)]), second)


@pytest.mark.parametrize(
    "said", [(CALL, [b"hello"]), (AUTH, []), (AUTH, [b"a"]), (AUTH, [b"", b""]), (AUTH, [b"a"] * 3)], ids=repr
)
def test_a_client_that_proves_nothing_is_refused(said):
    with pytest.raises(PermissionError):
        challenge(Line(said), TOKEN, 1.0)


# Garbage on the wire

NONSENSE = {
    "a browser": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "zeros": bytes(100),
    "ones": b"\xff" * 100,
    "a huge message": (HEAD.pack(AUTH, 2) + struct.pack("<2Q", 32, 2**40)).ljust(64, b"\0"),
    "a huge number of frames": HEAD.pack(AUTH, 2**32 - 1).ljust(64, b"\0"),
    "a kilobyte and one": (HEAD.pack(AUTH, 1) + struct.pack("<Q", 1025)).ljust(64, b"\0") + bytes(1088),
    "half a head": HEAD.pack(AUTH, 2)[:5],
    "nothing": b"",
}


def hears_the_end(stranger):
    """Read until the other side hangs up, as it must."""
    try:
        while stranger.poll(WAIT_S):
            stranger.recv_bytes()
    except (EOFError, OSError):
        return
    pytest.fail(f"The other side was still there after {WAIT_S:g} seconds.")


def heard_until_the_end(stranger):
    """All that the other side says until it hangs up, as it must."""
    stranger.settimeout(WAIT_S)
    heard = b""
    with contextlib.suppress(ConnectionError):
        while some := stranger.recv(4096):
            heard += some
    return heard


@pytest.mark.parametrize("nonsense", NONSENSE.values(), ids=NONSENSE.keys())
def test_tcp_hangs_up_on_nonsense_and_serves_the_others(nonsense):
    with talking(ps.Tcp()) as (endpoint, channel):
        with socket.create_connection(ps.Tcp().host_and_port(endpoint.address), WAIT_S) as stranger:
            with contextlib.suppress(OSError):  # it may have hung up before all is said
                stranger.sendall(nonsense)
                stranger.shutdown(socket.SHUT_WR)
            heard_until_the_end(stranger)
        assert ask(channel, b"a") == [b"a"]


@pytest.mark.parametrize(
    "nonsense",
    [bytes(1), b"\xff" * 100, bytes(2000), struct.pack("<BI", AUTH, 2**31), None],
    ids=lambda n: repr(n)[:20],
)
def test_a_pipe_hangs_up_on_nonsense_and_serves_the_others(nonsense, monkeypatch):
    monkeypatch.setattr("minips.stages.transports.endpoints.HANDSHAKE_S", 1.0)
    with talking(ps.Pipe()) as (endpoint, channel):
        with connection.Client("\0" + ps.Pipe().rest(endpoint.address)) as stranger:
            if nonsense is not None:
                stranger.send_bytes(nonsense)
                hears_the_end(stranger)
        assert ask(channel, b"a") == [b"a"]


@pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux's")
@pytest.mark.parametrize("frame", [b"longer than the head says", b"s"], ids=["longer", "shorter"])
def test_a_pipe_hangs_up_on_a_frame_of_another_length(frame, monkeypatch):
    monkeypatch.setattr("minips.stages.transports.endpoints.HANDSHAKE_S", 1.0)
    with talking(ps.Pipe()) as (endpoint, channel):
        with connection.Client("\0" + ps.Pipe().rest(endpoint.address)) as stranger:
            stranger.send_bytes(struct.pack("<BI", AUTH, 1) + struct.pack("<Q", 10))
            stranger.send_bytes(frame)
            hears_the_end(stranger)
        assert ask(channel, b"a") == [b"a"]


def test_peers_that_say_nothing_keep_nobody_waiting():
    with ps.Tcp().serve(echo, token=TOKEN) as endpoint:
        place = ps.Tcp().host_and_port(endpoint.address)
        silent = [socket.create_connection(place, WAIT_S) for _ in range(20)]
        try:
            with ps.Tcp().connect(endpoint.address, TOKEN) as channel:  # gives up after the seconds of one silent peer
                assert ask(channel, b"a") == [b"a"]
        finally:
            for peer in silent:
                peer.close()


@pytest.mark.parametrize("word", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\xff" * 64], ids=repr)
def test_a_server_of_something_else_is_a_connection_error(word):
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"tcp://127.0.0.1:{other.getsockname()[1]}"

        def serve():
            peer, _ = other.accept()
            with peer:
                peer.sendall(word)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(ConnectionError, match=address):
            ps.Tcp().connect(address, TOKEN, 2.0)
        thread.join(WAIT_S)


def test_a_server_that_says_nothing_is_given_up_on():
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(ConnectionError, match=r"did not answer within 0\.2 seconds"):
            ps.Tcp().connect(address, TOKEN, 0.2)


def test_a_pipe_server_of_something_else_is_a_connection_error():
    name = f"minips-test-other-{os.getpid()}"
    with connection.Listener("\0" + name) as other:

        def serve():
            with other.accept() as peer:
                peer.send_bytes(b"\xff" * 2000)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(ConnectionError, match=name):
            ps.Pipe().connect(f"pipe://{name}", TOKEN, 2.0)
        thread.join(WAIT_S)


# The transports over other people's libraries

over_a_library = pytest.mark.parametrize("transport", OPTIONAL, ids=lambda t: t.name)


def optional(cls):
    return pytest.mark.skipif(bool(missing(cls)), reason=f"{cls.requires} is not installed")


@pytest.mark.parametrize("cls", [ps.Zmq, ps.Http, ps.Grpc, ps.Thrift, ps.Pyro], ids=lambda cls: cls.name)
def test_a_library_that_is_not_installed_is_said(cls, monkeypatch):
    monkeypatch.setattr(stage, "_findable", lambda module: False)
    with pytest.raises(ModuleNotFoundError, match=rf'needs {cls.requires[0]}.* pip install "minips\[{cls.extra}\]"'):
        cls()


def test_importing_minips_imports_none_of_the_libraries():
    code = (
        "import sys, minips; print([m for m in ('zmq', 'aiohttp', 'grpc', 'Pyro5', 'thriftpy2') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60).stdout == "[]\n"


@over_a_library
@pytest.mark.parametrize("address", ["", "host", "127.0.0.1:port", "127.0.0.1:65536", ":-1"])
def test_a_library_is_not_asked_about_a_malformed_address(transport, address):
    with pytest.raises(ValueError, match=rf"such as {transport.scheme}://127\.0\.0\.1:5000"):
        transport.connect(f"{transport.scheme}://{address}", timeout=1.0)


@over_a_library
@pytest.mark.parametrize(
    "message", [[b"let me in"], [bytes(100_000)], [b""] * 500, [b"", b""]], ids=lambda m: f"{len(m)}"
)
def test_who_skips_the_handshake_does_not_reach_the_handler(transport, message):
    reached = []
    with transport.serve(reached.append, token=TOKEN) as endpoint:
        wire = transport.dial(endpoint.address, 5.0)
        try:
            assert wire.receive(5.0)[0] == AUTH
            wire.send(CALL, message)
            with contextlib.suppress(EOFError, ConnectionError):  # hung up on, or told why
                assert wire.receive(5.0)[0] == ERROR
        finally:
            wire.close()
    assert reached == []


@over_a_library
def test_what_strangers_say_to_its_port_disturbs_nobody(transport):
    with talking(transport) as (endpoint, channel):
        for nonsense in (b"\xff" * 3000, b"GET / HTTP/1.0\r\n\r\n", b"PYRO\x01\xf6" + bytes(200), bytes(64), b""):
            place = endpoint.address.rpartition("/")[2].split(":")
            with socket.create_connection((place[0], int(place[1])), WAIT_S) as stranger, contextlib.suppress(OSError):
                stranger.sendall(nonsense)
        assert ask(channel, b"a") == [b"a"]


@optional(ps.Zmq)
def test_zmq_ignores_messages_of_strangers():
    import zmq

    with talking(ps.Zmq()) as (endpoint, channel), zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.linger = 0
        stranger.connect(endpoint.address.replace("zmq", "tcp"))
        for message in ([b""], [b"\x00", b"call"], [b"\xfd"], [b"\xfd", b"x"], [b"nonsense"] * 3, [b"\xfe"], [b"\xff"]):
            stranger.send_multipart(message)
            assert ask(channel, b"a") == [b"a"]


@contextmanager
def zmq_stranger(address):
    """A connection that has exchanged ZeroMQ's greetings and nothing else."""
    with socket.create_connection(ps.Zmq().host_and_port(address), WAIT_S) as stranger:
        stranger.settimeout(WAIT_S)
        stranger.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(52, b"\0"))
        greeting = b""
        while len(greeting) < 64:
            greeting += stranger.recv(64)
        ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER"
        stranger.sendall(b"\x04" + bytes([len(ready)]) + ready)
        yield stranger


MEGABYTE = 2**20
LONG, LONG_AND_MORE = 2, 3
"""Flags of ZeroMQ's frames."""


@on_linux
@optional(ps.Zmq)
@pytest.mark.parametrize("endless", ["one frame", "frames of one message", "small messages"])
def test_zmq_takes_no_more_than_a_handshake_from_strangers(endless):
    first, block = {
        "one frame": (struct.pack(">BQ", LONG, 2**30), bytes(MEGABYTE)),
        "frames of one message": (b"", struct.pack(">BQ", LONG_AND_MORE, MEGABYTE) + bytes(MEGABYTE)),
        "small messages": (b"", b"\0\x0a0123456789" * (MEGABYTE // 12)),
    }[endless]
    with (
        another_process(SERVER, "zmq", TOKEN) as (process, address),
        ps.Zmq().connect(address, TOKEN) as channel,
    ):
        assert ask(channel, bytes(2 * MEGABYTE)) == [bytes(2 * MEGABYTE)]
        before = peak_bytes(process.pid)
        with zmq_stranger(address) as stranger, pytest.raises(OSError, match=r"[Rr]eset|[Bb]roken"):
            stranger.sendall(first + 300 * block)
        assert peak_bytes(process.pid) - before < 60 * MEGABYTE
        assert ask(channel, b"a") == [b"a"]


@optional(ps.Zmq)
def test_zmq_hangs_up_on_silent_strangers_and_on_nobody_else(monkeypatch):
    monkeypatch.setattr(minips.stages.transports.zmq, "HANDSHAKE_S", 0.5)
    with talking(ps.Zmq()) as (endpoint, channel), zmq_stranger(endpoint.address) as stranger:
        assert b"PING" not in heard_until_the_end(stranger)  # which libzmq sends first, after 5 seconds
        assert ask(channel, b"a") == [b"a"]


@optional(ps.Zmq)
def test_zmq_refuses_in_a_sentence_before_the_descriptors_are_gone():
    code = """
        import resource, threading, time, minips as ps
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        over, said = threading.Event(), []
        def talk(address):
            try:
                with ps.Zmq().connect(address, "t") as channel:
                    said.append(bytes(channel.call([b"answered"]).result(20)[0]).decode())
                    over.wait(20)
            except OSError as error:
                said.append(str(error))
        with ps.Zmq().serve(lambda frames: frames, token="t") as endpoint:
            threads = [threading.Thread(target=talk, args=(endpoint.address,)) for _ in range(10)]
            for thread in threads:
                thread.start()
            while len(said) < 10:
                time.sleep(0.01)
            over.set()
            for thread in threads:
                thread.join()
        print(*said, sep="\\n")
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    assert {line[:24] for line in said} == {"answered", "zmq needs 32 descriptors"}
    assert len(said) == 10


@optional(ps.Grpc)
def test_grpc_takes_messages_above_its_usual_four_megabytes():
    with talking(ps.Grpc()) as (_, channel):
        assert ask(channel, bytes(5_000_000)) == [bytes(5_000_000)]


@pytest.fixture
def connections(monkeypatch):
    """The connections that aiohttp's servers take."""
    from aiohttp import web

    taken, made = [], web.Server.connection_made

    def counted(server, *connection):
        taken.append(server)
        made(server, *connection)

    monkeypatch.setattr(web.Server, "connection_made", counted)
    return taken


@optional(ps.Http)
def test_http_uses_its_connections_again(connections):
    with talking(ps.Http(pool=8)) as (_, channel):
        before = len(connections)
        for _ in range(20):
            ask(channel, b"a")
        assert len(connections) <= before + 1  # one for calls that never overlap
        for future in [channel.call([bytes(100_000)]) for _ in range(40)]:
            future.result(WAIT_S)
        assert len(connections) <= before + 8


@optional(ps.Http)
def test_http_without_a_pool_connects_for_each_call(connections):
    with talking(ps.Http(pool=0)) as (_, channel):
        before = len(connections)
        for _ in range(20):
            ask(channel, b"a")
        assert len(connections) == before + 20


@optional(ps.Http)
@pytest.mark.parametrize("failures", [2, 9])
def test_http_tries_again_where_a_call_has_not_reached_the_server(monkeypatch, failures):
    import aiohttp

    left, connect = [failures], aiohttp.TCPConnector.connect

    async def failing(connector, request, *args, **kwargs):
        if left[0]:
            left[0] -= 1
            raise aiohttp.ClientConnectorError(request.connection_key, OSError(111, "refused"))
        return await connect(connector, request, *args, **kwargs)

    with talking(ps.Http()) as (_, channel):
        monkeypatch.setattr(aiohttp.TCPConnector, "connect", failing)
        if failures == 2:
            assert ask(channel, b"a") == [b"a"]
        else:
            with pytest.raises(ConnectionError, match="refused"):
                ask(channel, b"a")


@optional(ps.Http)
def test_http_tells_strangers_what_they_lack():
    import http.client

    def status(method, headers, body=b""):
        connection = http.client.HTTPConnection(endpoint.address.rpartition("/")[2], timeout=WAIT_S)
        try:
            connection.request(method, "/", body, headers)
            return connection.getresponse().status
        finally:
            connection.close()

    reached = []
    with ps.Http().serve(reached.append, token=TOKEN) as endpoint:
        assert status("POST", {}) == 403
        assert status("POST", {"Minips-Session": "0" * 32, "Minips-Call": "0"}) == 403
        for headers, body, expected in [
            ({"Minips-Call": "nonsense"}, b"", 400),
            ({"Minips-Call": "5000"}, b"", 400),
            ({"Minips-Call": "0"}, bytes(100_000), 413),
        ]:
            line = http.client.HTTPConnection(endpoint.address.rpartition("/")[2], timeout=WAIT_S)
            line.request("GET", "/")
            answer = line.getresponse()
            session = {"Minips-Session": answer.headers["Minips-Session"]}
            assert status("POST", session | headers, body) == expected
            answer.close()
            line.close()
    assert reached == []


UNMARSHALLED = b"\xa8\x01\x00\x00\x00>\x01\x00\x00\x00r\x00\x00\x00\x00"
"""A tuple that holds a set that holds the tuple: marshal hashes it before it is whole, and the interpreter crashes."""


def pyro_message(kind, serializer, data, flags, blob=b""):
    annotations = b"BLBI" + struct.pack("!I", len(blob)) + blob if blob else b""
    head = (b"PYRO", 502, kind, serializer, flags, 0, len(data), len(annotations), bytes(16), 0, 0x4DC5)
    return struct.pack("!4sHBBHHII16sHH", *head) + annotations + data


PING = ("Pyro.Daemon", "ping", [], {})
"""A call that Pyro answers to anybody."""
HOSTILE = {
    "marshal": (2, UNMARSHALLED, 0),
    "marshal that is well": (2, marshal.dumps(PING), 0),
    "serpent": (1, repr(PING).encode(), 0),
    "json": (3, json.dumps(dict(zip(("object", "method", "params", "kwargs"), PING, strict=True))).encode(), 0),
    "zlib": (4, zlib.compress(msgpack.packb(PING)), 2),
    "a thread for the call": (4, msgpack.packb(PING), 4),
    "marshal beside msgpack": (4, msgpack.packb(PING), 32, UNMARSHALLED),
}


@optional(ps.Pyro)
@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_pyro_takes_nothing_but_plain_messages_in_msgpack(hostile):
    with another_process(SERVER, "pyro", TOKEN) as (process, address):
        with socket.create_connection(ps.Pyro().host_and_port(address), WAIT_S) as stranger:
            stranger.sendall(pyro_message(4, *hostile))
            assert heard_until_the_end(stranger) == b""
        with ps.Pyro().connect(address, TOKEN) as channel:
            assert ask(channel, b"a") == [b"a"]
        assert process.poll() is None


@optional(ps.Pyro)
@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_pyros_client_asks_and_takes_answers_in_msgpack_alone(hostile):
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"pyro://127.0.0.1:{other.getsockname()[1]}"
        with another_process(DIALLER, "pyro", TOKEN, address) as (process, _):
            peer, _ = other.accept()
            with peer:
                peer.settimeout(WAIT_S)
                assert peer.recv(40)[7] == 4
                peer.sendall(pyro_message(5, *hostile))
                assert process.wait(WAIT_S) == 0


@optional(ps.Http)
@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: x\r\nX: "], ids=["nothing", "half a head"])
def test_http_hangs_up_on_silent_strangers(said, monkeypatch):
    from minips.stages.transports.http import calls

    monkeypatch.setattr(calls, "_IDLE_S", 0.5)
    monkeypatch.setattr(calls, "HANDSHAKE_S", 0.5)
    with (
        ps.Http().serve(echo, token=TOKEN) as endpoint,
        socket.create_connection(ps.Http().host_and_port(endpoint.address), WAIT_S) as stranger,
    ):
        stranger.sendall(said)
        while stranger.recv(2**16):  # perhaps words; then the end
            pass


def test_http_keeps_nothing_of_a_channel_that_is_closed():
    import aiohttp

    def talk():
        with talking(ps.Http()) as (_, channel):
            ask(channel, b"a")

    for _ in range(3):
        talk()
    gc.collect()
    assert [one for one in gc.get_objects() if type(one) is aiohttp.ClientSession] == []


STRANGE = (
    b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n\0\0\0\3\r\n\r\n",
    b"GET /\0 HTTP/9.9\r\n\r\n",
    b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n",
    b"\x16\x03\x01" + bytes(100),
    b"\xff" * 3000,
    b"PYRO\x01\xf6" + bytes(200),
)


@over_a_library
def test_a_server_prints_nothing_of_what_strangers_say(transport):
    with another_process(SERVER, transport.name, TOKEN, stderr=subprocess.PIPE) as (process, address):
        with contextlib.ExitStack() as stack:
            place, strangers = transport.host_and_port(address), []
            for nonsense in STRANGE:
                strangers.append(stack.enter_context(socket.create_connection(place, WAIT_S)))
                strangers[-1].sendall(nonsense)
                with contextlib.suppress(OSError):  # the server may have hung up by now
                    strangers[-1].shutdown(socket.SHUT_WR)
            for stranger in strangers:
                heard_until_the_end(stranger)
        with transport.connect(address, TOKEN) as channel:
            assert ask(channel, b"a") == [b"a"]
        process.kill()
        assert process.stderr.read() == ""


def test_whoever_dials_while_a_listener_ends_hears_of_the_end():
    listener = ps.InProc().listen(None)
    listener.shutdown()
    wire = ps.InProc().dial(listener.address, 1.0)
    listener.close()
    with pytest.raises(EOFError):
        wire.receive(1.0)


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="a stream of this system may deliver a message in parts")
@pytest.mark.parametrize("nbytes", [1, 40_000, AHEAD_BYTES - 64])
def test_one_read_takes_a_message_of_up_to_64_kib(nbytes):
    frames, reads = [bytes(nbytes)], []
    with contextlib.ExitStack() as stack:
        one, other = (stack.enter_context(SocketWire(sock, Framer(2**20))) for sock in socket.socketpair())
        into = other.receive_into

        def counted(*room):
            reads.append(into(*room))
            return reads[-1]

        other.receive_into = counted
        for number in range(3):
            one.send(number, frames)
            assert other.receive(WAIT_S) == (number, frames)
    assert reads == 3 * [stream_nbytes([nbytes])]
    assert stream_nbytes([nbytes]) <= AHEAD_BYTES == 2**16


IDLE = """
import psutil
from minips.stages.transports.framing import Framer, pieces

resident, small = psutil.Process().memory_info, b"".join(pieces(0, [bytes(4000)]))
kept, before = [], resident().rss
for _ in range(500):
    framer = Framer(2**20)
    framer.room[: len(small)] = small
    framer.advance(len(small))
    framer.message()
    kept.append(framer)
print(resident().rss - before)
"""


def test_the_read_ahead_of_500_connections_takes_memory_only_for_what_came():
    done = subprocess.run([sys.executable, "-c", IDLE], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 500 * 16_384
