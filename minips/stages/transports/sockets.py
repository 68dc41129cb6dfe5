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

from minips.stage import Array, Frames
from minips.stages.transports.network import ALIGNMENT, memory
from minips.stages.transports.wire import Listener, Wire

T = TypeVar("T")
Steps = Generator[list[memoryview], int, T]
"""Yields the buffers that it wants filled, the first ones first; is sent the bytes that came; returns a T."""
VECTORS = 512
"""Buffers for one sendmsg or recvmsg; POSIX promises 16, Linux and macOS take 1024."""
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

    def frames(self, sizes: Sequence[int]) -> Frames:
        """Writable buffers of these sizes in one block, each aligned."""
        begins, total = starts(sizes)
        block = self._take(total)
        return [block[begin : begin + size].data for begin, size in zip(begins, sizes, strict=True)]

    def _take(self, nbytes: int) -> Array:
        free = [block for block, reader in self._blocks if reader() is None and nbytes <= len(block) <= 2 * nbytes]
        block = free[0] if free else memory(nbytes)
        reader = np.frombuffer(block, np.uint8)  # alive for as long as any view of it
        used = [pair for pair in self._blocks if pair[1]() is not None]
        self._blocks = [*used[-KEPT:], (block, weakref.ref(reader))]
        return reader


class SocketWire(Wire):
    """A wire over a stream socket. Subclasses say what a message looks like.

    A message is read in steps: a generator yields the room that it wants filled and is sent the number of bytes that
    came. So a time-out in the middle of a message loses nothing. What is small is read ahead, to ask the system once.
    """

    resumes = True

    def __init__(self, sock: Any, max_message_bytes: int) -> None:
        self._sock, self._max = sock, max_message_bytes  # a socket, or what behaves like one
        self._steps: Steps[tuple[int, Frames]] | None = None
        self._room: list[memoryview] = []
        self._ahead, self._start, self._stop = memoryview(bytearray(AHEAD_BYTES)), 0, 0
        self._blocks, self._tick, self._begun = Blocks(), 0.0, False
        sock.settimeout(None)  # the kernel's time-outs cost no system call; Python's would add a poll to each
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_TIMEOUT_S, 0))

    def receive(self, timeout: float | None = None, limit: int | None = None) -> tuple[int, Frames]:
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        try:
            if self._steps is None:
                self._begun = self._start < self._stop
                self._steps = self._message(min(limit or self._max, self._max))
                self._room = next(self._steps)
            while True:
                self._room = self._steps.send(self._receive(deadline))
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

    @abstractmethod
    def _message(self, limit: int) -> "Steps[tuple[int, Frames]]":
        """The next message, step by step. ValueError as the contract of a wire says."""

    def hang_up(self) -> None:
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.hang_up()
        self._sock.close()

    def _write(self, head: bytes, frames: Frames, ancillary: Sequence[Any] = ()) -> None:
        """Send the head and the frames, ``ancillary`` with the first of their bytes."""
        buffers = [memoryview(head), *(memoryview(frame) for frame in frames if len(frame))]
        if not ancillary and sum(map(len, buffers)) <= AHEAD_BYTES:
            buffers = [memoryview(b"".join(buffers))]
        try:
            while buffers:
                advance(buffers, self._sock.sendmsg(buffers[:VECTORS], ancillary))
                ancillary = ()
        except BlockingIOError:
            raise TimeoutError(f"the peer took nothing for {SEND_TIMEOUT_S} seconds") from None

    def _receive(self, deadline: float) -> int:
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
                got = self._take(self._room)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise TimeoutError("no message came in time") from None
            else:
                if not got:
                    raise EOFError
                return got

    def _take(self, room: list[memoryview]) -> int:
        """What the system has, into these buffers."""
        return int(self._sock.recv_into(room[0]) if len(room) == 1 else self._sock.recvmsg_into(room)[0])

    def _fill(self, buffers: list[memoryview]) -> "Steps[None]":
        """Fill all the buffers, first from what has been read ahead."""
        while buffers:
            if self._start < self._stop:
                some = self._ahead[self._start : min(self._stop, self._start + len(buffers[0]))]
                buffers[0][: len(some)] = some
                self._start += len(some)
                advance(buffers, len(some))
            elif sum(map(len, buffers)) < AHEAD_BYTES:
                self._start, self._stop = 0, (yield [self._ahead])
            else:
                advance(buffers, (yield buffers[:VECTORS]))

    def _bytes(self, count: int) -> "Steps[memoryview]":
        """The next ``count`` bytes, to be looked at before the next step."""
        if count <= self._stop - self._start:
            self._start += count
            return self._ahead[self._start - count : self._start]
        room = memoryview(bytearray(count))
        yield from self._fill([room])
        return room

    def _lengths(self, count: int, limit: int) -> "Steps[tuple[int, ...]]":
        """The lengths of ``count`` frames. ValueError where they are more than ``limit`` bytes together."""
        if count * 8 > limit:
            raise ValueError(f"a message of {count} frames is larger than the {limit} bytes that are allowed")
        sizes = struct.unpack(f"<{count}Q", (yield from self._bytes(8 * count)))
        if sum(sizes) > limit:
            raise ValueError(f"a message of {sum(sizes)} bytes is larger than the {limit} that are allowed")
        return sizes

    def _frames(self, sizes: Sequence[int]) -> "Steps[Frames]":
        """Frames of these sizes, in memory of their own."""
        if sum(sizes) <= self._stop - self._start:
            frames: Frames = []
            for size in sizes:
                frames.append(memoryview(bytearray((yield from self._bytes(size)))))
            return frames
        frames = self._blocks.frames(sizes)
        yield from self._fill([memoryview(frame) for frame in frames if len(frame)])
        return frames


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


def advance(buffers: list[memoryview], done: int) -> None:
    """Drop the first ``done`` bytes of the buffers."""
    while done:
        if done < len(buffers[0]):
            buffers[0] = buffers[0][done:]
            return
        done -= len(buffers.pop(0))
