"""ZeroMQ: messages of many frames, queued and sent by libzmq's own threads, outside Python.

The library frames messages, sends in the background and names each connection (ROUTER). It does not report when peers
come or go, since its sockets are meant to outlive connections, but a parameter server needs to know. So a client sends
HELLO and BYE. Both sides send an empty message over each connection twice a second, which libzmq refuses if the peer
has gone. libzmq also reports the beginning and the end of connections (a monitor).

On the wire: the tag in a frame of one byte, then the frames as they are (ZMTP 3). Large frames are not copied: libzmq
sends from the caller's memory, and the receiver's arrays use libzmq's memory. Small frames are copied, which is faster.

A ZeroMQ socket belongs to one thread. The loop here owns it; other threads pass messages to it through a queue. The
size limit is applied to each frame while it is read, and afterwards to their sum. libzmq has no smaller limit for
strangers. So every few milliseconds the server checks how many bytes each unauthenticated connection has delivered,
and cuts a connection that has sent more than a handshake or has taken too long.

libzmq also does not report a message's progress, or slow peers: it reads ahead without limit. So both sides query Linux
(`ConnectionMonitor`), and cut a connection that delivered no whole message and too few bytes, or whose peer accepts too
few. A client sends no call while more than 16 MB of calls are outstanding; a server sends no answer while part of 16 MB
has not left. A server also cuts a client whose calls exceed a message plus 16 MB.
"""

import os
import queue
import socket
import struct
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from minips.stage import Buffer, Frames, option, register
from minips.stages.transports.base import HANDSHAKE_S, Rest
from minips.stages.transports.endpoints import PatientTransport
from minips.stages.transports.framing import size, too_large
from minips.stages.transports.inbox import InboxListener, InboxWire
from minips.stages.transports.network import NetworkTransport, is_number, netloc
from minips.stages.transports.patience import AT_ONCE, OUTSTANDING_BYTES, ConnectionMonitor, Limit, StallTimer
from minips.stages.transports.wire import AUTH, CALL, Listener, Wire

_HELLO, _BYE, _PROBE = b"\xfd", b"\xfe", b"\xff"
_PROBE_S = 0.5
_FAREWELL_MS = 1_000
_SMALL_BYTES, _FRAME_BYTES = 4_096, 512
"""The largest frame that is copied; and the memory that a waiting frame needs in addition to its own bytes, roughly."""
_LOOK_S, _STRANGER_BYTES = 0.005, 4_096
"""The seconds between two checks of strangers, and the bytes of a handshake: both greetings and one message."""
_AT_ONCE = 256
"""The most messages that the loop receives before it does its other work, even if more are waiting."""
_ROOM = 32
"""The number of descriptors that must be free before a socket is created, which uses about twelve."""
_making = threading.Lock()


@register
@dataclass(frozen=True)
class Zmq(NetworkTransport, PatientTransport):
    """ZeroMQ, a ROUTER for the server and a DEALER for each channel: ``zmq://host:port``."""

    name = "zmq"
    scheme = "zmq"
    requires = ("zmq",)
    max_message_bytes: int = option(2**31, "largest message accepted", minimum=2**10, unit="byte", operator=True)

    def listen(self, address: str | None) -> Listener[Wire]:
        host, port = self.free_port(address)
        loop = _Loop("ROUTER", self.max_message_bytes, self.stalled_s)
        try:
            loop.socket.bind(f"tcp://{netloc(host, port or '*')}")
        except Exception as error:  # a ZMQError is not an OSError
            loop.let_go()
            raise self.unservable(host, port, error) from None
        bound = loop.socket.last_endpoint.decode().rpartition(":")[2]
        loop.start()
        return _ZmqListener(loop, self.address(host, int(bound)))

    def dial(self, address: str, timeout: float) -> Wire:
        host, port = self.host_and_port(address)
        if not is_number(host):  # libzmq tries only one address of a name, perhaps not the server's
            host, port = self.resolve(address, timeout, [host])
        loop = _Loop("DEALER", self.max_message_bytes, self.stalled_s)
        try:
            loop.socket.connect(f"tcp://{netloc(host, port)}")
        except Exception as error:
            loop.let_go()
            raise ConnectionError(f"No server answers at {address}: {error}.") from None
        wire = loop.wires[None] = _ZmqWire(loop, None)
        loop.start()
        wire.post(_HELLO)
        return wire


class _Loop(threading.Thread):
    """The thread that owns a socket: it sends the wires' messages and sorts incoming messages by sender."""

    def __init__(self, kind: str, max_message_bytes: int, stalled_s: float) -> None:
        import zmq

        super().__init__(name=f"minips-zmq-{kind.lower()}", daemon=True)
        self.max_message_bytes, self.stalled_s = max_message_bytes, stalled_s
        self.wires: dict[bytes | None, _ZmqWire] = {}
        self.incoming: queue.SimpleQueue[Wire | None] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[tuple[_ZmqWire, list[Buffer]] | None] = queue.SimpleQueue()
        self._is_server = kind == "ROUTER"
        with _making:
            _check_room()
            self._bell, self._ear = socket.socketpair()
            self._context = zmq.Context()
            self.socket: Any = self._context.socket(getattr(zmq, kind))
        self._ear.setblocking(False)
        self._bell.setblocking(False)
        self.socket.linger = _FAREWELL_MS
        self.socket.sndhwm = self.socket.rcvhwm = 0
        self.socket.maxmsgsize = max_message_bytes
        self.socket.reconnect_ivl = -1  # a channel is one connection and ends with it
        self.socket.ipv6 = True
        self._connections: dict[int, _WatchedConnection] = {}
        self._strangers: set[_WatchedConnection | None] = set()
        if self._is_server:
            self.socket.router_mandatory = True  # makes sending to a gone peer an error
        begins = zmq.EVENT_ACCEPTED if self._is_server else zmq.EVENT_CONNECTED
        self._events: Any = self.socket.get_monitor_socket(begins | zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED)

    def post(self, posted: "tuple[_ZmqWire, list[Buffer]] | None") -> None:
        """Let the loop send a message over a wire; None ends the loop. May be called from any thread."""
        self._outbox.put(posted)
        with suppress(OSError):  # full: the bell has already rung; closed: no thread waits
            self._bell.send(b"\0")

    def stop(self) -> None:
        """End the loop."""
        self.post(None)
        self.join(HANDSHAKE_S)

    def run(self) -> None:
        import zmq

        poller, probed, every_s = zmq.Poller(), time.monotonic(), min(_PROBE_S, Limit(self.stalled_s).tick)
        for one in (self.socket, self._ear, self._events):
            poller.register(one, zmq.POLLIN)
        try:
            while True:
                ready = dict(poller.poll(int((_LOOK_S if self._strangers else every_s) * 1000)))
                if self._ear.fileno() in ready:
                    self._ear.recv(4096)
                while not self._outbox.empty():
                    if (posted := self._outbox.get()) is None:
                        return
                    self._send(*posted)
                over = (self._strangers or self._events in ready) and self._meet_strangers()
                self._receive_all()
                if over:
                    return
                if time.monotonic() - probed > every_s:
                    probed = time.monotonic()
                    self._cut_slow_peers()
                    for wire in list(self.wires.values()):
                        self._send(wire, [_PROBE])
        finally:
            for wire in list(self.wires.values()):
                wire.end()
            self.incoming.put(None)
            self.let_go()

    def _meet_strangers(self) -> bool:
        """Note new and ended connections, and cut strangers. Return True if a client has lost its server."""
        import zmq
        from zmq.utils.monitor import recv_monitor_message

        with suppress(zmq.ZMQError):
            while True:
                event = recv_monitor_message(self._events, zmq.NOBLOCK)
                number = event["value"]
                self._forget(self._connections.get(number or -1))  # the number belonged to a connection that has gone
                if event["event"] & (zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED):
                    if not self._is_server:
                        return True
                elif sock := _duplicate(number, self._is_server and int(self.socket.last_endpoint.rpartition(b":")[2])):
                    self._connections[number] = connection = _WatchedConnection(sock, self.stalled_s)
                    if self._is_server:
                        self._strangers.add(connection)
                    elif wire := self.wires.get(None):
                        wire.connection, connection.wire = connection, wire
        for connection in filter(None, list(self._strangers)):
            if connection.stranger.over() or connection.progress()[1] > _STRANGER_BYTES:
                self._cut(connection)
        return False

    def _cut_slow_peers(self) -> None:
        """Cut peers that stall. If all peers' unread messages are too large together, cut the peer with the most."""
        connections = [connection for connection in self._connections.values() if connection not in self._strangers]
        for connection in connections:
            try:
                connection.check_progress(not connection.heard)
                connection.heard = False
            except ConnectionError:
                self._cut(connection)
        if sum(connection.waits for connection in connections) > AT_ONCE * self.max_message_bytes + OUTSTANDING_BYTES:
            self._cut(max(connections, key=lambda connection: connection.waits))

    def _cut(self, connection: "_WatchedConnection") -> None:
        """End a connection immediately: a peer that continues to send gets a reset."""
        with suppress(OSError):
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sock.shutdown(socket.SHUT_RDWR)
        if connection.wire:
            self.wires.pop(connection.wire.peer, None)
            connection.wire.end()
        self._forget(connection)

    def _forget(self, connection: "_WatchedConnection | None") -> None:
        if connection:
            self.trust(connection)
            self._connections = {number: one for number, one in self._connections.items() if one is not connection}
            connection.sock.close()
            connection.wire = None

    def trust(self, connection: "_WatchedConnection | None") -> None:
        """Stop treating this connection as a stranger's. May be called from any thread."""
        self._strangers.discard(connection)

    def _send(self, wire: "_ZmqWire", message: list[Buffer]) -> None:
        import zmq

        try:
            self.socket.send_multipart([wire.peer, *message] if wire.peer else message, zmq.NOBLOCK, copy=False)
        except zmq.ZMQError:  # the peer with this name has gone
            self.wires.pop(wire.peer, None)
            wire.end()
        if message[0] == _BYE:
            self.wires.pop(wire.peer, None)

    def _receive_all(self) -> None:
        import zmq

        for _ in range(_AT_ONCE):
            number, peer, frames = None, None, list[Buffer]()
            try:
                part = self.socket.recv(zmq.NOBLOCK, copy=False)
                if self._is_server:
                    with suppress(zmq.ZMQError):  # a peer that does not use ZMTP 3 may have no descriptor
                        number = part.get(zmq.SRCFD)
                    peer = part.bytes
                    part = self.socket.recv(zmq.NOBLOCK, copy=False)
                tag = part.bytes
                while part.more:  # checks the frame's flag, since an empty frame is false
                    part = self.socket.recv(zmq.NOBLOCK, copy=False)
                    frames.append(memoryview(bytearray(part.buffer)) if len(part) < _SMALL_BYTES else part.buffer)
            except zmq.ZMQError:
                return
            wire = self.wires.get(peer)
            if wire and wire.connection:
                wire.connection.heard = True
            if peer and tag == _HELLO and not wire:
                self._meet_strangers()  # the connection may have begun meanwhile
                self.wires[peer] = wire = _ZmqWire(self, peer, self._connections.get(number or -1))
                self.incoming.put(wire)
            elif wire and (tag == _BYE or len(tag) != 1):
                self.wires.pop(peer)
                wire.end()
            elif wire and tag != _PROBE:
                wire.arrived += _weight(frames)
                wire.inbox.put((tag[0], frames))
                if peer and wire.connection and wire.connection.waits > self.max_message_bytes + OUTSTANDING_BYTES:
                    self._cut(wire.connection)

    def let_go(self) -> None:
        """Close the socket when its last messages have left, or after a second at the latest."""
        self.socket.disable_monitor()
        self._events.close(0)
        for connection in list(self._connections.values()):
            self._forget(connection)
        self.socket.close()
        self._context.term()
        self._bell.close()
        self._ear.close()


class _WatchedConnection(ConnectionMonitor):
    """A duplicate descriptor of one of libzmq's connections, used to watch its progress."""

    wire: "_ZmqWire | None" = None
    heard = False
    """True if a whole message has arrived since the last check."""

    def __init__(self, sock: socket.socket, stalled_s: float) -> None:
        super().__init__(sock, stalled_s)
        self.stranger = Limit(HANDSHAKE_S)

    @property
    def waits(self) -> int:
        """The weight of the messages that have arrived but have not been read with `receive`."""
        return self.wire.arrived - self.wire.received if self.wire else 0


def _duplicate(number: int, port: int) -> socket.socket | None:
    """Return a duplicate descriptor, safe from reuse, of a connection that libzmq accepted at this port (0: any); None
    if the connection has gone, so that its number may belong to another.
    """
    with suppress(OSError):
        duplicate = socket.fromfd(number, socket.AF_INET, socket.SOCK_STREAM)
        with suppress(OSError, IndexError):  # IndexError for a Unix socket's name
            if port in (0, duplicate.getsockname()[1]):
                return duplicate
        duplicate.close()
    return None


def _weight(frames: Frames) -> int:
    """Return roughly the memory, in bytes, that frames need while they wait."""
    return size(frames) + _FRAME_BYTES * len(frames)


def _check_room() -> None:
    """Raise OSError if few descriptors are free: libzmq ends the whole process when it cannot get one."""
    try:
        import resource

        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        left = most - len(os.listdir("/dev/fd"))
    except (ImportError, OSError):  # a system that does not report this
        return
    if most != resource.RLIM_INFINITY and left < _ROOM:
        raise OSError(
            f"zmq needs {_ROOM} descriptors for a new connection, and {left} are left of the {most} that a process may "
            "have. Raise the limit (ulimit -n), close some connections, or use another transport, such as tcp."
        )


class _ZmqWire(InboxWire):
    def __init__(self, loop: _Loop, peer: bytes | None, connection: _WatchedConnection | None = None) -> None:
        super().__init__(queue.SimpleQueue())
        self.peer, self.connection, self._loop, self._said = peer, connection, loop, 0
        if connection:
            connection.wire = self
        self.arrived = self.received = 0
        """The weight of all messages that have arrived, and of all that `receive` has returned."""
        self._calls: deque[int] = deque()
        self._sent = self._taken = 0

    def post(self, *message: Buffer) -> None:
        self._loop.post((self, list(message)))

    def send(self, tag: int, frames: Frames) -> None:
        if tag == CALL:
            self._wait_for_room(_weight(frames))
        if self.ended:
            raise ConnectionError("the connection is closed")
        self._said += tag == AUTH
        if self._said == 2:  # the server's proof, sent after the peer has sent its own
            self._said += 1
            self._loop.trust(self.connection)
        self.post(bytes([tag]), *(memoryview(frame) for frame in frames))

    def begin(self, tag: int, frames: Frames) -> Rest | None:
        if self._sent - self._taken > OUTSTANDING_BYTES:
            return super().begin(tag, frames)
        self.send(tag, frames)
        return None

    def _wait_for_room(self, weight: int) -> None:
        """Wait until enough earlier messages have been answered or, on a server, have left."""
        stall = StallTimer(self._loop.stalled_s)
        while self._sent - self._taken > OUTSTANDING_BYTES and not self.ended:
            if self.peer and not (self.connection and self.connection.progress()[2]):
                self._taken = self._sent
            else:
                stall.count(0)
                time.sleep(_LOOK_S)
        self._sent += weight
        if self.peer is None:
            self._calls.append(weight)

    def receive(self, timeout: float | None = None, limit: int | None = None) -> tuple[int, Frames]:
        tag, frames = super().receive(timeout)
        self.received += _weight(frames)
        if self._calls and tag != AUTH:
            self._taken += self._calls.popleft()
        limit = limit or self._loop.max_message_bytes
        if size(frames) > limit:
            raise too_large((size(frames),), limit)
        return tag, frames

    def shutdown(self) -> None:
        if not self.ended:
            self.end()
            self.post(_BYE)

    def close(self) -> None:
        self.shutdown()
        if self.peer is None:  # a client's loop has only one wire
            self._loop.stop()


class _ZmqListener(InboxListener[Wire]):
    def __init__(self, loop: _Loop, address: str) -> None:
        super().__init__(address)
        self._loop, self.incoming = loop, loop.incoming

    def close(self) -> None:
        self._loop.stop()
