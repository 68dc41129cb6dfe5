"""What the wires over sockets have in common: blocking sockets, scatter-gather sends, receives into memory of one's
own.
"""

import math
import socket
import struct
import time
import weakref
from abc import abstractmethod
from collections.abc import Generator, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

import numpy as np

from minips.stage import Array, Buffer, Frames
from minips.stages.transports.network import ALIGNMENT, cut, memory, starts
from minips.stages.transports.wire import Listener, Wire

T = TypeVar("T")
Steps = Generator[memoryview, int, T]
"""Yields the room that it wants filled, from its beginning; is sent the bytes that came; returns a T."""
VECTORS = 512
"""Buffers for one sendmsg; POSIX promises 16, Linux and macOS take 1024."""
KEPT = 2
"""Blocks in use that a wire remembers, to fill them again."""
AHEAD_BYTES = 2**14
"""Messages up to here are read, and written, with one system call."""
SEND_TIMEOUT_S, TICK_S = 60, 1.0
"""How long the peer may take nothing, and how often a wait for it looks at its deadline."""


class Blocks:
    """Memory for what arrives; not cleared, and used again once nobody looks at it any more, since fresh memory costs
    the system nearly as much time as filling it.
    """

    def __init__(self) -> None:
        self._blocks: list[tuple[memoryview, weakref.ref[Array]]] = []

    def take(self, nbytes: int) -> memoryview:
        """A writable block of so many bytes, aligned, that nobody looks at."""
        free = [block for block, reader in self._blocks if reader() is None and nbytes <= len(block) <= 2 * nbytes]
        block = free[0] if free else memory(nbytes)
        reader = np.frombuffer(block, np.uint8)  # alive for as long as any view of it
        used = [pair for pair in self._blocks if pair[1]() is not None]
        self._blocks = [*used[-KEPT:], (block, weakref.ref(reader))]
        return reader.data[:nbytes]


class SocketWire(Wire):
    """A wire over a stream socket. Subclasses say what a message looks like.

    A message is read in steps: a generator yields the room that it wants filled and is sent the number of bytes that
    came. So a time-out in the middle of a message loses nothing. What is small is read ahead, to ask the system once.
    """

    resumes = True

    def __init__(self, sock: Any, max_message_bytes: int) -> None:
        self._sock, self.max_message_bytes = sock, max_message_bytes  # a socket, or what behaves like one
        self._steps: Steps[tuple[int, Frames]] | None = None
        self._room = memoryview(b"")
        self._ahead, self._start, self._stop = memoryview(bytearray(AHEAD_BYTES)), 0, 0
        self._blocks, self._tick, self._begun = Blocks(), 0.0, False
        sock.settimeout(None)  # the kernel's time-outs cost no system call; Python's would add a poll to each
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_TIMEOUT_S, 0))

    def receive(self, timeout: float | None = None, limit: int | None = None) -> tuple[int, Frames]:
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        try:
            if self._steps is None:
                self._begun = self._start < self._stop
                self._steps = self._message(min(limit or self.max_message_bytes, self.max_message_bytes))
                self._room = next(self._steps)
            while True:
                self._room = self._steps.send(self._receive(self._room, deadline))
                self._begun = True
        except StopIteration as end:
            self._steps = None
            return cast(tuple[int, Frames], end.value)
        except TimeoutError:
            raise
        except BaseException:
            if self._begun:  # interrupted in the middle of a message: nobody knows where it goes on
                self.hang_up()
            raise

    def fill(self, room: memoryview, deadline: float = math.inf) -> memoryview:
        """Fill the room with the bytes that come next; what is left of it at the deadline. EOFError where the peer is
        gone.
        """
        room = self._from_ahead(room)
        with suppress(TimeoutError):
            while len(room):
                room = room[self._receive(room, deadline) :]
        return room

    @abstractmethod
    def _message(self, limit: int) -> "Steps[tuple[int, Frames]]":
        """The next message, step by step. ValueError as the contract of a wire says."""

    def hang_up(self) -> None:
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.hang_up()
        self._sock.close()

    def write(self, buffers: list[Buffer], ancillary: Sequence[Any] = ()) -> None:
        """Send the buffers as they are, ``ancillary`` with the first of their bytes. OSError where the peer is gone."""
        if not ancillary and sum(map(len, buffers)) <= AHEAD_BYTES:
            buffers = [b"".join(buffers)]
        left = [memoryview(buffer) for buffer in buffers]
        try:
            while left:
                advance(left, self._sock.sendmsg(left[:VECTORS], ancillary))
                ancillary = ()
        except BlockingIOError:
            raise TimeoutError(f"the peer took nothing for {SEND_TIMEOUT_S} seconds") from None

    def _receive(self, room: memoryview, deadline: float) -> int:
        """Bytes that came into the room. EOFError where the peer is gone, TimeoutError past the deadline."""
        while True:
            left = deadline - time.monotonic()
            tick = min(TICK_S, max(left, 1e-3))
            if tick != self._tick:
                self._tick = tick
                self._sock.setsockopt(
                    socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(tick), int(tick % 1 * 1e6))
                )
            try:
                got = self._take(room)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise TimeoutError("no message came in time") from None
            else:
                if not got:
                    raise EOFError
                return got

    def _take(self, room: memoryview) -> int:
        """What the system has, into this room."""
        return int(self._sock.recv_into(room))

    def _fill(self, room: memoryview) -> "Steps[None]":
        """Fill all the room, first with what has been read ahead."""
        room = self._from_ahead(room)
        while len(room):
            if len(room) < AHEAD_BYTES:
                self._start, self._stop = 0, (yield self._ahead)
                room = self._from_ahead(room)
            else:
                room = room[(yield room) :]

    def _from_ahead(self, room: memoryview) -> memoryview:
        """Fill the room with what has been read ahead; what is left of it."""
        some = self._ahead[self._start : min(self._stop, self._start + len(room))]
        room[: len(some)] = some
        self._start += len(some)
        return room[len(some) :]

    def _bytes(self, count: int) -> "Steps[memoryview]":
        """The next ``count`` bytes, to be looked at before the next step."""
        if count <= self._stop - self._start:
            self._start += count
            return self._ahead[self._start - count : self._start]
        room = memoryview(bytearray(count))
        yield from self._fill(room)
        return room

    def _longer(self, head: memoryview, nbytes: int, limit: int) -> "Steps[memoryview]":
        """A padded head of ``nbytes``, of which the first 64 bytes have come. ValueError past ``limit`` bytes."""
        if nbytes <= ALIGNMENT:
            return head
        if nbytes > limit:
            raise ValueError(f"a message with a head of {nbytes} bytes is larger than the {limit} that are allowed")
        begun, (_, padded) = bytes(head), starts([nbytes])
        return memoryview(begun + (yield from self._bytes(padded - len(begun))))

    def _frames(self, sizes: Sequence[int]) -> "Steps[Frames]":
        """Frames of these sizes, in memory of their own."""
        begins, total = starts(sizes)
        if total <= self._stop - self._start:
            block = memoryview(bytearray((yield from self._bytes(total))))
        else:
            block = self._blocks.take(total)
            yield from self._fill(block)
        return cut(block, begins, sizes)


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


def lengths(head: memoryview, at: int, count: int, limit: int) -> tuple[int, ...]:
    """The lengths of ``count`` frames, which stand there. ValueError where they are more than ``limit`` together."""
    sizes = struct.unpack_from(f"<{count}Q", head, at)
    if sum(sizes) > limit:
        raise ValueError(f"a message of {sum(sizes)} bytes is larger than the {limit} that are allowed")
    return sizes


def advance(buffers: list[memoryview], done: int) -> None:
    """Drop the first ``done`` bytes of the buffers."""
    while done:
        if done < len(buffers[0]):
            buffers[0] = buffers[0][done:]
            return
        done -= len(buffers.pop(0))
