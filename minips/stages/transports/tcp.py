"""TCP: blocking sockets, scatter-gather sends, and receives straight into the memory that the arrays will live in.

message    tag (1 byte), 3 zero bytes, number of frames (4 bytes), the frames' lengths (8 bytes each), the frames;
all little-endian
"""

import socket
import struct
from dataclasses import dataclass

from minips.stage import Frames, option, register
from minips.stages.transports.network import NetworkTransport
from minips.stages.transports.sockets import SocketListener, SocketWire, Steps, lengths_of
from minips.stages.transports.wire import Listener, Wire

_HEAD = struct.Struct("<BxxxI")


@register
@dataclass(frozen=True)
class Tcp(NetworkTransport):
    """TCP connections: ``tcp://host:port``, port 0 for a free one. Loopback unless another host is named."""

    name = "tcp"
    scheme = "tcp"
    max_message_bytes: int = option(2**31, "largest message that is taken", minimum=2**10, unit="byte")

    def listen(self, address: str | None) -> Listener:
        return _TcpListener(self.bound(address), self)

    def dial(self, address: str, timeout: float) -> Wire:
        return _TcpWire(self.dialled(address, timeout), self.max_message_bytes)


class _TcpWire(SocketWire):
    def __init__(self, sock: socket.socket, max_message_bytes: int) -> None:
        super().__init__(sock, max_message_bytes)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def send(self, tag: int, frames: Frames) -> None:
        self._write(_HEAD.pack(tag, len(frames)) + lengths_of(frames), frames)

    def _message(self, limit: int) -> Steps[tuple[int, Frames]]:
        tag, count = _HEAD.unpack((yield from self._bytes(_HEAD.size)))
        sizes = yield from self._lengths(count, limit)
        return tag, (yield from self._frames(sizes))


class _TcpListener(SocketListener):
    def __init__(self, sock: socket.socket, transport: Tcp) -> None:
        super().__init__(sock, transport.address(*sock.getsockname()[:2]))
        self._transport = transport

    def wire(self, sock: socket.socket) -> Wire:
        return _TcpWire(sock, self._transport.max_message_bytes)
