"""What the wires over sockets have in common: blocking sockets, scatter-gather sends, receives into memory of one's
own.
"""

import socket
import struct
import sys
import time
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from minips.stage import Frames
from minips.stages.transports.network import ALIGNMENT, memory
from minips.stages.transports.wire import Listener, Wire

VECTORS = 512
"""Buffers for one sendmsg or recvmsg; POSIX promises 16, Linux and macOS take 1024."""
SEND_TIMEOUT_S = 60


class SocketWire(Wire):
    """A wire over a stream socket. Subclasses say what a message looks like."""

    def __init__(self, sock: socket.socket, max_message_bytes: int) -> None:
        self._sock, self._max = sock, max_message_bytes
        sock.settimeout(None)
        if (
            sys.platform != "win32"
        ):  # the kernel's time-out costs no system call; Python's would add a poll to every send
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_TIMEOUT_S, 0))

    def receive(self, timeout: float | None = None, limit: int | None = None) -> tuple[int, Frames]:
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            return self._receive(min(limit or self._max, self._max), deadline)
        finally:
            if deadline is not None:
                self._sock.settimeout(None)

    @abstractmethod
    def _receive(self, limit: int, deadline: float | None) -> tuple[int, Frames]:
        """The next message. EOFError, TimeoutError and ValueError as the contract of a wire says."""

    def hang_up(self) -> None:
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.hang_up()
        self._sock.close()

    def _write(self, buffers: list[memoryview], ancillary: Sequence[Any] = ()) -> None:
        """Send all the buffers, ``ancillary`` with the first of their bytes."""
        try:
            while buffers:
                advance(buffers, self._sock.sendmsg(buffers[:VECTORS], ancillary))
                ancillary = ()
        except BlockingIOError:
            raise TimeoutError(f"the peer took nothing for {SEND_TIMEOUT_S} seconds") from None

    def _fill(self, buffers: list[memoryview], deadline: float | None) -> None:
        """Receive until all the buffers are full."""
        while buffers and len(buffers[0]):
            self._wait_until(deadline)
            got = self._sock.recvmsg_into(buffers[:VECTORS])[0]
            if got == 0:
                raise EOFError
            advance(buffers, got)

    def _wait_until(self, deadline: float | None) -> None:
        """Let the next receive give up at the deadline."""
        if deadline is not None:
            self._sock.settimeout(max(deadline - time.monotonic(), 1e-3))

    def _lengths(self, count: int, limit: int, deadline: float | None) -> tuple[int, ...]:
        """Receive the lengths of ``count`` frames. ValueError where they are more than ``limit`` bytes together."""
        if count * 8 > limit:
            raise ValueError(f"a message of {count} frames is larger than the {limit} bytes that are allowed")
        lengths = bytearray(8 * count)
        self._fill([memoryview(lengths)], deadline)
        sizes = struct.unpack(f"<{count}Q", lengths)
        if sum(sizes) > limit:
            raise ValueError(f"a message of {sum(sizes)} bytes is larger than the {limit} that are allowed")
        return sizes


class SocketListener(Listener):
    """A listener on a stream socket that is bound already."""

    def __init__(self, sock: socket.socket, address: str) -> None:
        self._sock, self.address = sock, address

    @abstractmethod
    def wire(self, sock: socket.socket) -> Wire:
        """The wire of an accepted connection."""

    def accept(self) -> Wire:
        return self.wire(self._sock.accept()[0])

    def hang_up(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:  # only Linux wakes an accept by that; elsewhere a visitor does
            with suppress(OSError), socket.socket(self._sock.family) as visitor:
                visitor.settimeout(1)
                visitor.connect(self._sock.getsockname())

    def close(self) -> None:
        self._sock.close()


def lengths_of(frames: Frames) -> bytes:
    """The frames' lengths, 8 bytes each, little-endian."""
    return struct.pack(f"<{len(frames)}Q", *map(len, frames))


def starts(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where frames of these sizes begin one behind the other, each aligned, and the bytes of them all."""
    begins, total = [], 0
    for size in sizes:
        begins.append(total)
        total += -(-size // ALIGNMENT) * ALIGNMENT
    return begins, total


def allocate(sizes: Sequence[int]) -> list[memoryview]:
    """Writable buffers of these sizes in one allocation, each aligned; not cleared, for they are about to be filled."""
    begins, total = starts(sizes)
    block = memory(total)
    return [block[begin : begin + size] for begin, size in zip(begins, sizes, strict=True)]


def advance(buffers: list[memoryview], done: int) -> None:
    """Drop the first ``done`` bytes of the buffers."""
    while done:
        if done < len(buffers[0]):
            buffers[0] = buffers[0][done:]
            return
        done -= len(buffers.pop(0))


def filled(frames: Frames) -> list[memoryview]:
    """The frames that have any bytes, as views."""
    return [memoryview(frame) for frame in frames if len(frame)]
