"""ZeroMQ: messages of many frames, queued and sent by threads of libzmq's own, outside Python.

What the library does: it frames messages, sends in the background, gives each connection a name (ROUTER) and pings it.
What it does not: tell who has come and who has gone, since its sockets are meant to outlive connections. A parameter
server wants to know. So a client says HELLO and BYE; the server sends each connection an empty message twice a second,
which libzmq refuses for one that has gone; and the client has libzmq report the end of its one connection (a monitor).

On the wire: the tag in a frame of one byte, then the frames as they are (ZMTP 3). Large frames are not copied: libzmq
sends out of the caller's memory, and the receiver's arrays live in libzmq's. Small ones are: that is faster.

A ZeroMQ socket belongs to one thread. The loop here owns it, and the others hand it their messages through a queue.
The limit on a message holds for each frame while it is read and for their sum after that. libzmq knows no smaller one
for strangers. So the server has it report each connection that it takes, looks every few milliseconds at how much has
come over those that have not proved themselves, and cuts one that has sent more than a handshake, or taken too long.
"""

import os
import queue
import socket
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from minips.stage import Buffer, Frames, option, register
from minips.stages.transports.base import HANDSHAKE_S
from minips.stages.transports.endpoints import StreamTransport
from minips.stages.transports.framing import size
from minips.stages.transports.inbox import InboxListener, InboxWire
from minips.stages.transports.network import NetworkTransport, netloc
from minips.stages.transports.wire import AUTH, Listener, Wire

_HELLO, _BYE, _PROBE = b"\xfd", b"\xfe", b"\xff"
_PROBE_S = 0.5
_HEARTBEAT_MS, _SILENCE_MS, _FAREWELL_MS = 5_000, 30_000, 1_000
_SMALL_BYTES = 4_096
_LOOK_S, _STRANGER_BYTES = 0.005, 4_096
"""How often the server looks at strangers, and what a handshake may take: both greetings and one message."""
_AT_ONCE = 256
"""Messages that are taken before the loop looks at anything else, so that no flood keeps it from that."""
_TCP_INFO_BYTES, _RECEIVED_AT = 136, 128
_ROOM = 32
"""Descriptors that must be left before a socket is made, which takes a dozen."""
_making = threading.Lock()


@register
@dataclass(frozen=True)
class Zmq(NetworkTransport, StreamTransport):
    """ZeroMQ, a ROUTER for the server and a DEALER for each channel: ``zmq://host:port``."""

    name = "zmq"
    scheme = "zmq"
    requires = ("zmq",)
    max_message_bytes: int = option(2**31, "largest message that is taken", minimum=2**10, unit="byte", operator=True)

    def listen(self, address: str | None) -> Listener:
        host, port = self.host_and_port(address)
        loop = _Loop("ROUTER", self.max_message_bytes)
        try:
            loop.socket.bind(f"tcp://{netloc(host, port or '*')}")
        except Exception as error:  # ZMQError is no OSError
            loop.let_go()
            raise self.unservable(address, error) from None
        bound = loop.socket.last_endpoint.decode().rpartition(":")[2]
        loop.start()
        return _ZmqListener(loop, self.address(host, int(bound)))

    def dial(self, address: str, timeout: float) -> Wire:
        place = netloc(*self.host_and_port(address))
        loop = _Loop("DEALER", self.max_message_bytes)
        try:
            loop.socket.connect(f"tcp://{place}")
        except Exception as error:
            loop.let_go()
            raise ConnectionError(f"No server answers at {address}: {error}.") from None
        wire = loop.wires[None] = _ZmqWire(loop, None)
        loop.start()
        wire.post(_HELLO)
        return wire


class _Loop(threading.Thread):
    """The thread that owns a socket: it sends what the wires post and sorts what comes in by who sent it."""

    def __init__(self, kind: str, max_message_bytes: int) -> None:
        import zmq

        super().__init__(name=f"minips-zmq-{kind.lower()}", daemon=True)
        self.max_message_bytes = max_message_bytes
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
        self.socket.heartbeat_ivl, self.socket.heartbeat_timeout = _HEARTBEAT_MS, _SILENCE_MS
        self.socket.reconnect_ivl = -1  # a channel is one connection: when that has gone, so has the channel
        self.socket.ipv6 = True
        self._strangers: dict[int | None, tuple[socket.socket, float]] = {}
        if self._is_server:
            self.socket.router_mandatory = True  # a send to one who has gone is an error
        watched = zmq.EVENT_ACCEPTED if self._is_server else zmq.EVENT_DISCONNECTED | zmq.EVENT_CLOSED
        self._events: Any = self.socket.get_monitor_socket(watched)

    def post(self, posted: "tuple[_ZmqWire, list[Buffer]] | None") -> None:
        """Have a message sent over a wire. From any thread; None ends the loop."""
        self._outbox.put(posted)
        with suppress(OSError):  # full: it has been rung already; closed: no thread waits any more
            self._bell.send(b"\0")

    def stop(self) -> None:
        """End the loop."""
        self.post(None)
        self.join(HANDSHAKE_S)

    def run(self) -> None:
        import zmq

        poller, probed = zmq.Poller(), time.monotonic()
        for one in (self.socket, self._ear, self._events):
            poller.register(one, zmq.POLLIN)
        try:
            while True:
                ready = dict(poller.poll(int((_LOOK_S if self._strangers else _PROBE_S) * 1000)))
                if self._ear.fileno() in ready:
                    self._ear.recv(4096)
                while not self._outbox.empty():
                    if (posted := self._outbox.get()) is None:
                        return
                    self._send(*posted)
                if self._is_server:  # before the first message of a connection that has just been taken
                    self._meet_strangers()
                self._receive_all()
                if self._events in ready and not self._is_server:  # the server is gone
                    return
                if self._is_server and time.monotonic() - probed > _PROBE_S:
                    probed = time.monotonic()
                    for wire in list(self.wires.values()):
                        self._send(wire, [_PROBE])
        finally:
            for wire in list(self.wires.values()):
                wire.end()
            self.incoming.put(None)
            self.let_go()

    def _meet_strangers(self) -> None:
        import zmq
        from zmq.utils.monitor import recv_monitor_message

        with suppress(zmq.ZMQError):
            while True:
                number = recv_monitor_message(self._events, zmq.NOBLOCK)["value"]
                self.trust(number)  # which was another one's, who has gone
                if twin := _twin(number, int(self.socket.last_endpoint.rpartition(b":")[2])):
                    self._strangers[number] = twin, time.monotonic() + HANDSHAKE_S
        for number, (twin, until) in list(self._strangers.items()):
            if time.monotonic() > until or _received(twin) > _STRANGER_BYTES:
                with suppress(OSError):  # at once: a stranger who goes on sending is to hear a reset
                    twin.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    twin.shutdown(socket.SHUT_RDWR)
                self.trust(number)

    def trust(self, number: int | None) -> None:
        """Look no more at the connection with this descriptor. From any thread."""
        twin, _ = self._strangers.pop(number, (None, 0.0))
        if twin:
            twin.close()

    def _send(self, wire: "_ZmqWire", message: list[Buffer]) -> None:
        import zmq

        try:
            self.socket.send_multipart([wire.peer, *message] if wire.peer else message, zmq.NOBLOCK, copy=False)
        except zmq.ZMQError:  # no peer has this name any more
            self.wires.pop(wire.peer, None)
            wire.end()
        if message[0] == _BYE:
            self.wires.pop(wire.peer, None)

    def _receive_all(self) -> None:
        import zmq

        for _ in range(_AT_ONCE):
            try:
                parts = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.ZMQError:
                return
            number = parts[0].get(zmq.SRCFD) if self._is_server and self._strangers else None
            peer = parts.pop(0).bytes if self._is_server else None
            tag = parts.pop(0).bytes if parts else b""
            wire = self.wires.get(peer)
            if tag == _HELLO and self._is_server and not wire:
                self.wires[peer] = wire = _ZmqWire(self, peer, number)
                self.incoming.put(wire)
            elif wire and (tag == _BYE or len(tag) != 1):
                self.wires.pop(peer)
                wire.end()
            elif wire and tag != _PROBE:
                wire.inbox.put((tag[0], [part.buffer for part in parts]))

    def let_go(self) -> None:
        """Close the socket once its last words are out, or a second later."""
        self.socket.disable_monitor()
        self._events.close(0)
        for number in list(self._strangers):
            self.trust(number)
        self.socket.close()
        self._context.term()
        self._bell.close()
        self._ear.close()


def _twin(number: int, port: int) -> socket.socket | None:
    """A descriptor of our own for a connection that libzmq took at this port, which nothing else can become; None where
    it has gone, and its number may be another's.
    """
    with suppress(OSError):
        twin = socket.fromfd(number, socket.AF_INET, socket.SOCK_STREAM)
        with suppress(OSError):
            if twin.getsockname()[1] == port:
                return twin
        twin.close()
    return None


def _received(sock: socket.socket) -> int:
    """The bytes that have come over a connection so far; 0 where the system does not tell."""
    with suppress(AttributeError, OSError, struct.error):
        told = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        return int(struct.unpack_from("Q", told, _RECEIVED_AT)[0])
    return 0


def _check_room() -> None:
    """OSError where few descriptors are left: libzmq ends the whole process where it gets none."""
    try:
        import resource

        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        left = most - len(os.listdir("/dev/fd"))
    except (ImportError, OSError):  # a system that does not tell
        return
    if most != resource.RLIM_INFINITY and left < _ROOM:
        raise OSError(
            f"zmq needs {_ROOM} descriptors for a new connection, and {left} are left of the {most} that a process may "
            "have. Raise the limit (ulimit -n), close some connections, or use another transport, such as tcp."
        )


class _ZmqWire(InboxWire):
    def __init__(self, loop: _Loop, peer: bytes | None, number: int | None = None) -> None:
        super().__init__(queue.SimpleQueue())
        self.peer, self._loop, self._number, self._said = peer, loop, number, 0

    def post(self, *message: Buffer) -> None:
        self._loop.post((self, list(message)))

    def send(self, tag: int, frames: Frames) -> None:
        if self.ended:
            raise ConnectionError("the connection is closed")
        self._said += tag == AUTH
        if self._said == 2:  # the server's own proof, which a peer gets after its own proof
            self._said += 1
            self._loop.trust(self._number)
        self.post(bytes([tag]), *(memoryview(frame) for frame in frames))

    def receive(self, timeout: float | None = None, limit: int | None = None) -> tuple[int, Frames]:
        tag, frames = super().receive(timeout)
        limit = limit or self._loop.max_message_bytes
        if size(frames) > limit:
            raise ValueError(f"a message of {size(frames)} bytes is larger than the {limit} that are allowed")
        return tag, [memoryview(bytearray(frame)) if len(frame) < _SMALL_BYTES else frame for frame in frames]

    def shutdown(self) -> None:
        if not self.ended:
            self.end()
            self.post(_BYE)

    def close(self) -> None:
        self.shutdown()
        if self.peer is None:  # a client's loop has this wire alone
            self._loop.stop()


class _ZmqListener(InboxListener[Wire]):
    def __init__(self, loop: _Loop, address: str) -> None:
        super().__init__(address)
        self._loop, self.incoming = loop, loop.incoming

    def close(self) -> None:
        self._loop.stop()
