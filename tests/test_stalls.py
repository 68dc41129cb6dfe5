"""Peers that stall are dropped in time, who waits or is slow is not, and what is outstanding takes no memory."""

import contextlib
import re
import subprocess
import sys
import threading
import time
from operator import le
from pathlib import Path

import numpy as np
import psutil
import pytest

import minips as ps
from benchmarks import stalls
from benchmarks.stalls import TOKEN, WAIT_S, Peer, bare
from minips.stage import missing
from minips.stages.transports.auth import authenticate
from minips.stages.transports.wire import CALL

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux tells how far a connection has come")
MEGABYTE = 2**20
SERVER = """
import sys, time, minips as ps
from minips.stages.transports import endpoints, calls, zmq
from minips.stages.transports.http import calls as http
stranger_s, stalled_s, handshake_s, megabytes = map(float, sys.argv[3:])
for module in (endpoints, calls, zmq, http):
    module.HANDSHAKE_S = handshake_s
fields = {"max_message_bytes": int(megabytes * 2**20)}
if hasattr(ps.stage.stage_class("transport", sys.argv[1]), "stalled_s"):
    fields |= {"stranger_s": stranger_s, "stalled_s": stalled_s}
else:
    calls.CallTransport.stranger_s = stranger_s
answers = {"megabyte": bytes(2**20), "much": bytes(2**25)}
def handler(frames):
    word, _, seconds = bytes(frames[0][:20]).decode().partition(" ")
    if word == "wait":
        time.sleep(float(seconds))
    return [answers.get(word, b"yes")]
with ps.build("transport", {"name": sys.argv[1], **fields}).serve(handler, token=sys.argv[2]) as endpoint:
    print(endpoint.address, flush=True)
    time.sleep(300)
"""
TRANSPORTS = [cls() for cls in (ps.Tcp, ps.SharedMemory, ps.Http, ps.Zmq) if not missing(cls)]
each = pytest.mark.parametrize("transport", TRANSPORTS, ids=lambda transport: transport.name)
ONE_NOW = [pytest.param(t, marks=() if t.name == "tcp" else pytest.mark.soak) for t in TRANSPORTS]
first = pytest.mark.parametrize("transport", ONE_NOW, ids=[transport.name for transport in TRANSPORTS])
"""The first transport in the default run, the others in the soak: most of these tests wait."""


@contextlib.contextmanager
def serving(transport, stranger_s=1.0, stalled_s=1.0, handshake_s=1.0, megabytes=8):
    """A server in another process: its process, and its address."""
    limits = map(str, (stranger_s, stalled_s, handshake_s, megabytes))
    command = [sys.executable, "-c", SERVER, transport.name, TOKEN, *limits]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield psutil.Process(process.pid), process.stdout.readline().strip()
        finally:
            process.kill()


def ask(channel, frame):
    return bytes(channel.call([frame]).result(WAIT_S)[0])


def silent(transport, address):
    return bare(transport, address)


def half_a_greeting(transport, address):
    sock = bare(transport, address)
    sock.sendall({"http": b"GET / HTTP/1.1\r\nHost", "zmq": b"\xff" + bytes(8)}.get(transport.name, b"\2\0\0"))
    return sock


def no_first_call(transport, address):
    return authenticate(transport.dial(address, WAIT_S), TOKEN, address, WAIT_S)


def half_a_head(transport, address):
    if transport.name == "http":  # of whose session it is not known
        return half_a_greeting(transport, address)
    peer = Peer(transport, address)
    peer.sock.sendall(peer.call(b"a")[:5])
    return peer


def half_a_message(transport, address):
    peer = Peer(transport, address)
    peer.sock.sendall(peer.call(bytes(MEGABYTE))[: MEGABYTE // 2])
    return peer


def a_byte_now_and_then(transport, address):
    peer = Peer(transport, address)
    head, _, body = peer.call(bytes(MEGABYTE)).partition(b"\r\n\r\n")
    if body:
        peer.sock.sendall(head + b"\r\n\r\n")

    def drip():
        with contextlib.suppress(OSError):
            for byte in body[:1000] or head[:1000]:
                peer.sock.sendall(bytes([byte]))
                time.sleep(0.3)

    thread = threading.Thread(target=drip)
    thread.start()
    peer.things.callback(thread.join, WAIT_S)
    return peer


def never_reads(transport, address):
    peer = Peer(transport, address)
    if transport.name == "http":
        peer.sock.sendall(peer.call(b"much"))
    else:
        peer.sock.sendall(b"".join(peer.call(b"megabyte") for _ in range(40)))
    return peer


WAYS = [silent, half_a_greeting, no_first_call, half_a_head, half_a_message, a_byte_now_and_then, never_reads]


def held(process):
    """The threads and the descriptors of a process."""
    return process.num_threads(), process.num_fds()


def stalled(transport, each, ways, limits, within_s):
    """Peers that stall in all these ways at once are dropped, and another one is served meanwhile."""
    with (
        serving(transport, *limits) as (process, address),
        transport.connect(address, TOKEN) as channel,
        contextlib.ExitStack() as stack,
    ):
        for _ in range(3):
            assert ask(channel, b"megabyte") == bytes(MEGABYTE)  # for which libzmq's Python has a thread of its own
        time.sleep(0.3)
        before, slowest = held(process), 0.0
        for way in ways:
            for _ in range(each):
                stack.enter_context(contextlib.closing(way(transport, address)))
        deadline, gone = time.monotonic() + within_s, 0
        while gone < 10 and time.monotonic() < deadline:
            gone = gone + 1 if all(map(le, held(process), before)) else 0
            began = time.monotonic()
            assert ask(channel, b"a") == b"yes"
            slowest = max(slowest, time.monotonic() - began)
            time.sleep(0.02)
        assert gone == 10, (held(process), before)
        assert slowest < 5
        return within_s - (deadline - time.monotonic())


@first
def test_peers_that_stall_in_any_way_are_dropped_and_others_are_served(transport):
    stalled(transport, 2, WAYS, (2.0, 1.0, 2.0), 20.0)


@pytest.mark.soak
@each
def test_twenty_peers_that_stall_in_each_way_are_dropped(transport):
    stalled(transport, 20, WAYS, (1.0, 3.0, 5.0), 30.0)


@pytest.mark.soak
@each
def test_who_waits_for_others_or_is_idle_is_not_dropped(transport):
    patient = transport.with_({"stranger_s": 1.0, "stalled_s": 1.0})
    config = ps.Config(workers=2, consistency="bsp", transport=patient, optimizer=ps.SGD(lr=1.0))
    gradient = {"w": np.ones(3)}
    with (
        ps.Server({"w": np.zeros(3)}, config).serve() as server,
        ps.connect(server.address, config, token=server.token, pauses_s=()) as waiting,
        ps.connect(server.address, config, worker=1, token=server.token, pauses_s=()) as idle,
    ):
        for _ in range(2):
            answer = waiting.push_pull(gradient)
            time.sleep(2.5)
            idle.push_pull(gradient).result()
            params = answer.result()["w"]
        assert params.tolist() == [-2, -2, -2]


@each
def test_who_comes_to_a_busy_server_is_served(transport):
    limits = 15.0, 75.0, 5.0  # as they are by default: this process is busy too, and late with what it owes
    with serving(transport, *limits) as (_, address), contextlib.ExitStack() as stack:
        stop = threading.Event()

        def call_on():
            with transport.connect(address, TOKEN) as channel:
                while not stop.is_set():
                    for future in [channel.call([b"x"]) for _ in range(300)]:
                        future.result(WAIT_S)

        for _ in range(3):
            thread = threading.Thread(target=call_on)
            thread.start()
            stack.callback(thread.join)
        stack.callback(stop.set)
        for _ in range(10):
            with transport.connect(address, TOKEN) as channel:
                assert [ask(channel, b"x" * 1_000) for _ in range(12)] == [b"yes"] * 12


class StopsTheServer:
    """A wire over which each message reaches a server that is stopped for longer than its limits."""

    def __init__(self, wire, process, stopped_s):
        self._wire, self._process, self._stopped_s = wire, process, stopped_s
        self.receive, self.close = wire.receive, wire.close

    def send(self, tag, frames):
        self._process.suspend()
        try:
            self._wire.send(tag, frames)
            time.sleep(self._stopped_s)
        finally:
            self._process.resume()


STOPPED = [cls() for cls in (ps.Zmq, ps.Http, ps.Tcp, ps.SharedMemory, ps.Grpc, ps.Pyro, ps.Thrift) if not missing(cls)]
STOPPED = [pytest.param(t, marks=() if t.name == "tcp" else pytest.mark.soak, id=t.name) for t in STOPPED]


@pytest.mark.soak
@pytest.mark.parametrize("transport", STOPPED)
def test_who_proves_itself_and_calls_while_the_server_is_stopped_is_served(transport):
    with serving(transport, 0.5, 1.0, 0.5) as (process, address):
        wire = StopsTheServer(transport.dial(address, WAIT_S), process, 0.8)
        with contextlib.closing(authenticate(wire, TOKEN, address, WAIT_S)):
            for _ in range(2):
                wire.send(CALL, [b"a"])
                tag, frames = wire.receive(WAIT_S)
                assert (tag, [*map(bytes, frames)]) == (CALL, [b"yes"])


@pytest.mark.soak
@each
def test_a_slow_sender_is_not_dropped(transport):
    with serving(transport) as (_, address), contextlib.closing(Peer(transport, address)) as peer:
        message = peer.call(bytes(9_000))
        for start in range(0, len(message), 300):  # 3 kB/s where 1 kB/s is asked for, and no whole message in 1 second
            peer.sock.sendall(message[start : start + 300])
            time.sleep(0.1)
        if transport.name == "zmq":
            assert peer.wire.receive(WAIT_S)[0] == CALL
        else:
            assert peer.sock.recv(1)


def peak_bytes(process):
    """The most memory that a process has had."""
    return int(re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())[1]) * 1024


def with_a_channel(transport, address, stack):
    channel = stack.enter_context(transport.connect(address, TOKEN))
    first = channel.call([b"wait 1"])
    futures = [channel.call([bytes(MEGABYTE)]) for _ in range(400)]
    for future in (first, *futures):
        assert bytes(future.result(WAIT_S)[0]) == b"yes"


def by_hand(transport, address, stack):
    """Without a look at what the server says; over http each call on a connection of its own."""
    peer = stack.enter_context(contextlib.closing(Peer(transport, address)))
    sock = peer.sock
    for frame in (b"wait 3", *[bytes(MEGABYTE)] * 400):
        if transport.name == "http":
            sock = stack.enter_context(bare(transport, address))
        sock.settimeout(1.0)
        try:
            sock.sendall(peer.call(frame))
        except OSError:
            if transport.name != "http":
                break
    time.sleep(1.0)


@pytest.mark.soak
@first
@pytest.mark.parametrize("calls", [with_a_channel, by_hand])
def test_outstanding_calls_take_no_memory_of_the_server(transport, calls):
    with (
        serving(transport, 15.0, 75.0, 5.0, megabytes=4) as (process, address),
        transport.connect(address, TOKEN) as channel,
        contextlib.ExitStack() as stack,
    ):
        assert ask(channel, bytes(MEGABYTE)) == b"yes"
        before = peak_bytes(process)
        calls(transport, address, stack)
        assert peak_bytes(process) - before < 64 * MEGABYTE
        assert ask(channel, bytes(MEGABYTE)) == b"yes"


KEEPS = """
import sys, gc, psutil, minips as ps
transport, resident = ps.build("transport", sys.argv[1]), psutil.Process().memory_info
with transport.serve(lambda frames: frames, token="token") as endpoint:
    for number in range(700):
        if number == 200:
            gc.collect()
            before = resident().rss
        with transport.connect(endpoint.address, "token") as channel:
            channel.call([b"a"]).result(30)
gc.collect()
print(resident().rss - before)
"""


@pytest.mark.soak
@each
def test_500_connections_that_were_closed_keep_at_most_10_kb_each(transport):
    command = [sys.executable, "-c", KEEPS, transport.name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 500 * 10_000


ENDLESS = """
import numpy as np, psutil, minips as ps
config, resident = ps.Config(workers=1, transport="pipe"), psutil.Process().memory_info
with ps.Server({"w": np.zeros(1000)}, config).serve() as server:
    with ps.connect(server.address, config, token=server.token) as client:
        for number in range(40_000):
            if number == 30_000:
                before = resident().rss
            client.push_pull({"w": np.ones(1000)}, loss=1.0).result(30)
        print(resident().rss - before)
"""


@pytest.mark.soak
def test_a_server_without_an_end_does_not_grow():
    done = subprocess.run([sys.executable, "-c", ENDLESS], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 500_000


@pytest.mark.soak
def test_the_table_of_a_good_client_beside_peers_that_stall(monkeypatch):
    monkeypatch.setattr(stalls, "TURN_S", 0.1)
    rows = list(stalls.measure(rounds=2))
    there = [row.contender for row in rows if not row.skipped]
    assert {"pipe", "tcp"} <= {*there}
    assert all(row.over_alone.median > 0 for row in rows if not row.skipped)
    assert stalls.table(rows).row_count == len(stalls.TRANSPORTS)
    assert list(stalls.chart(rows).series["alone"]) == there
