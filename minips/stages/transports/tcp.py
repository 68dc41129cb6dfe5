"""TCP: blocking sockets, scatter-gather sends, and receives straight into the memory that the arrays will live in.

message    tag (1 byte), 3 zero bytes, number of frames (4 bytes), the frames' lengths (8 bytes each), the frames;
little-endian
"""

import socket
import struct
import sys
import time
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from minips.stage import Frames, option, register
from minips.stages.transports.base import Listener, Wire, WireTransport

_HEAD = struct.Struct("<BxxxI")
_VECTORS = 512
"""Buffers for one sendmsg or recvmsg; POSIX promises 16, Linux and macOS take 1024."""
_ALIGNMENT = 64
_SEND_TIMEOUT_S = 60


@register
@dataclass(frozen=True)
class Tcp(WireTransport):
    """TCP connections: ``tcp://host:port``, port 0 for a free one. Loopback unless another host is named."""

    name = "tcp"
    scheme = "tcp"
    max_message_bytes: int = option(2**31, "largest message that is taken", minimum=2**10, unit="byte")

    def listen(self, address: str | None) -> Listener:
        return _TcpListener(self, address or "tcp://127.0.0.1:0")

    def dial(self, address: str, timeout: float) -> Wire:
        try:
            return _TcpWire(socket.create_connection(self.host_and_port(address), timeout), self.max_message_bytes)
        except OSError as error:
            raise ConnectionError(f"Nobody answers at {address}: {error}. Is the server running?") from None

    def host_and_port(self, address: str) -> tuple[str, int]:
        """``tcp://host:port`` taken apart; an IPv6 host stands in brackets."""
        host, separator, port = self.rest(address).rpartition(":")
        if not separator or not port.isdigit() or int(port) > 65535:
            raise ValueError(f"Tcp takes an address such as tcp://127.0.0.1:5000, got {address!r}.")
        return host.strip("[]") or "127.0.0.1", int(port)


class _TcpWire(Wire):
    def __init__(self, sock: socket.socket, max_message_bytes: int) -> None:
        self._sock, self._max = sock, max_message_bytes
        sock.settimeout(None)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if (
            sys.platform != "win32"
        ):  # a time-out of the kernel's costs no system call; Python's would add a poll to every send
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_TIMEOUT_S, 0))

    def send(self, tag: int, frames: Frames) -> None:
        head = _HEAD.pack(tag, len(frames)) + struct.pack(f"<{len(frames)}Q", *map(len, frames))
        buffers = [memoryview(head), *(memoryview(frame) for frame in frames if len(frame))]
        try:
            while buffers:
                _advance(buffers, self._sock.sendmsg(buffers[:_VECTORS]))
        except BlockingIOError:
            raise TimeoutError(f"the peer took nothing for {_SEND_TIMEOUT_S} seconds") from None

    def receive(self, timeout: float | None = None, limit: int | None = None) -> tuple[int, Frames]:
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            return self._receive(limit or self._max, deadline)
        finally:
            if deadline is not None:
                self._sock.settimeout(None)

    def _receive(self, limit: int, deadline: float | None) -> tuple[int, Frames]:
        head = bytearray(_HEAD.size)
        self._fill([memoryview(head)], deadline)
        tag, count = _HEAD.unpack(head)
        if count * 8 > limit:
            raise ValueError(f"a message of {count} frames is larger than the {limit} bytes that are allowed")
        lengths = bytearray(8 * count)
        self._fill([memoryview(lengths)], deadline)
        sizes = struct.unpack(f"<{count}Q", lengths)
        if sum(sizes) > limit:
            raise ValueError(f"a message of {sum(sizes)} bytes is larger than the {limit} that are allowed")
        frames = _allocate(sizes)
        self._fill([frame for frame in frames if len(frame)], deadline)
        return tag, list(frames)

    def _fill(self, buffers: list[memoryview], deadline: float | None) -> None:
        while buffers and len(buffers[0]):
            if deadline is not None:
                self._sock.settimeout(max(deadline - time.monotonic(), 1e-3))
            got = self._sock.recvmsg_into(buffers[:_VECTORS])[0]
            if got == 0:
                raise EOFError
            _advance(buffers, got)

    def hang_up(self) -> None:
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.hang_up()
        self._sock.close()


class _TcpListener(Listener):
    def __init__(self, transport: Tcp, address: str) -> None:
        self._transport = transport
        host, port = transport.host_and_port(address)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._sock = socket.create_server((host, port), family=family, backlog=128)
        except OSError as error:
            raise OSError(
                f"{address} cannot be served: {error.strerror}. Choose another port, or 0 for a free one."
            ) from None
        host, port = self._sock.getsockname()[:2]
        self.address = f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"

    def accept(self) -> Wire:
        return _TcpWire(self._sock.accept()[0], self._transport.max_message_bytes)

    def hang_up(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:  # only Linux wakes an accept by that; elsewhere a visitor does
            with suppress(OSError):
                socket.create_connection(self._transport.host_and_port(self.address), 1).close()

    def close(self) -> None:
        self._sock.close()


def _allocate(sizes: tuple[int, ...]) -> list[memoryview]:
    """Writable buffers of these sizes in one allocation, each aligned; the memory is not cleared, it is about to be
    filled.
    """
    steps = [-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes]
    block = np.empty(sum(steps) + _ALIGNMENT, np.uint8)
    start = -block.ctypes.data % _ALIGNMENT
    frames = []
    for size, step in zip(sizes, steps, strict=True):
        frames.append(block[start : start + size].data)
        start += step
    return frames


def _advance(buffers: list[memoryview], done: int) -> None:
    """Drop the first ``done`` bytes of the buffers."""
    while done:
        if done < len(buffers[0]):
            buffers[0] = buffers[0][done:]
            return
        done -= len(buffers.pop(0))
