"""Stream sockets as wires: they block, send by scatter-gather, and receive into the wire's own memory.

If the kernel has POSIX's time-outs, they are used, since Python's add a system call to each send and receive. Otherwise
`select` waits for bytes, and buffers are sent one by one.
"""

import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from minips.stage import Buffer, Frames
from minips.stages.transports.base import Rest
from minips.stages.transports.framing import AHEAD_BYTES, Framer, pieces
from minips.stages.transports.patience import INCOMING, STALLED_S, IncompleteRecordError, Limit, StallTimer, timeval
from minips.stages.transports.wire import POOL, Wire
from minips.words import message_of

KERNEL_TIMES_OUT = hasattr(socket, "SO_RCVTIMEO") and sys.platform != "win32"
"""True if sockets have POSIX's time-outs."""
_ALL: int = getattr(socket, "MSG_WAITALL", 0)
NOW: int = getattr(socket, "MSG_DONTWAIT", 0) if KERNEL_TIMES_OUT else 0
"""The flag of a send that does not wait, or 0 if the system has none."""
VECTORS = 512
"""The most buffers passed to one sendmsg. POSIX guarantees 16; Linux and macOS accept 1024."""


class SharesLarge(Protocol):
    """Wires that help another wire with large messages: see `minips.stages.transports.pools`."""

    least_bytes: int
    coming: Any
    """A large message that has partly arrived, or None."""
    others: Sequence["SocketWire"]

    def send(self, tag: int, frames: Frames) -> None: ...
    def receive(self, deadline: float | None, announced: Frames | None = None) -> tuple[int, Frames]: ...
    def close(self) -> None: ...


class SocketWire(Wire):
    """A wire over a stream socket, whose peer may stall for up to ``stalled_s`` seconds."""

    def __init__(self, sock: Any, framer: Framer, stalled_s: float = STALLED_S) -> None:
        self._sock, self.framer, self._tick = sock, framer, 0.0  # a socket, or an object that behaves like one
        self.stalled_s, self._scatters, self._over = stalled_s, hasattr(sock, "sendmsg"), threading.Event()
        self._look_s = Limit(stalled_s).tick
        self.receive_into: Callable[..., int] = sock.recv_into
        """The function that receives bytes into a buffer, with flags."""
        self.pool: SharesLarge | None = None
        if KERNEL_TIMES_OUT:
            sock.settimeout(None)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeval(self._look_s))
        else:
            sock.settimeout(self._look_s)

    def send(self, tag: int, frames: Frames) -> None:
        if self.pool and sum(map(len, frames)) >= self.pool.least_bytes:
            self.pool.send(tag, frames)
        else:
            self.write(pieces(tag, frames))

    def begin(self, tag: int, frames: Frames) -> Rest | None:
        if not NOW or (self.pool and sum(map(len, frames)) >= self.pool.least_bytes):
            return super().begin(tag, frames)
        return self.write(pieces(tag, frames), flags=NOW)

    def receive(self, timeout: float | None = None, limit: int | None = None) -> tuple[int, Frames]:
        deadline = None if timeout is None else time.monotonic() + timeout
        framer = self.framer
        if self.pool and self.pool.coming:
            return self.pool.receive(deadline)
        held, stall = 0, None
        try:
            message, late = framer.message(limit) if framer.incomplete else None, False
            while message is None:
                if late:
                    raise TimeoutError("no whole message came in time")
                if framer.incomplete:
                    held = held or INCOMING.wait(len(framer.room), framer.max_message_bytes, self._over.is_set)
                    stall = stall or StallTimer(self.stalled_s)
                framer.advance(self.read(framer.room, deadline, stall))
                late = deadline is not None and time.monotonic() >= deadline
                message = framer.message(limit)
            if message[0] == POOL and self.pool:
                return self.pool.receive(deadline, message[1])
            return message
        except BaseException as error:  # after a ValueError the peer receives an answer before the connection ends
            if framer.incomplete and not isinstance(error, TimeoutError | ValueError):
                self.shutdown()  # the start of the next message is lost
            raise
        finally:
            if held:
                INCOMING.release(held)

    def fill(self, room: memoryview) -> None:
        """Fill ``room`` with the next bytes. EOFError if the peer is gone."""
        room = self.framer.fill(room)
        held = INCOMING.wait(len(room), self.framer.max_message_bytes, self._over.is_set)
        stall = StallTimer(self.stalled_s)
        try:
            while len(room):
                room = room[self.read(room, None, stall) :]
        finally:
            INCOMING.release(held)

    def write(self, buffers: Sequence[Buffer], ancillary: Sequence[Any] = (), flags: int = 0) -> Rest | None:
        """Send the buffers as they are, and ``ancillary`` with their first bytes. OSError if the peer is gone. With the
        flag `NOW`, send what fits into the socket, and return a function that sends the rest, if any.
        """
        total = sum(map(len, buffers))
        if total <= AHEAD_BYTES and not ancillary:
            buffers = [b"".join(buffers)]
        left: list[memoryview] = []
        while True:
            some: Sequence[Buffer] = left[:VECTORS] or buffers[:VECTORS]
            try:
                sent = self._sock.sendmsg(some, ancillary, flags) if self._scatters else self._sock.send(some[0])
            except (BlockingIOError, TimeoutError):  # the peer accepted nothing for a tick
                sent = 0
            total -= sent
            if total <= 0:
                return None
            if not left:
                left, stall = [memoryview(buffer) for buffer in buffers], StallTimer(self.stalled_s)
            stall.count(sent)
            advance(left, sent)
            ancillary = () if sent else ancillary
            if flags:
                return partial(self.write, left, ancillary)

    def read(self, room: memoryview, deadline: float | None, stall: StallTimer | None = None) -> int:
        """Receive bytes into ``room``; return the count. EOFError if the peer is gone, TimeoutError at ``deadline``."""
        while True:
            tick = self._look_s if deadline is None else min(self._look_s, max(deadline - time.monotonic(), 1e-3))
            try:
                if KERNEL_TIMES_OUT:
                    if tick != self._tick:
                        self._tick = tick
                        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeval(tick))
                elif not select.select([self._sock], [], [], tick)[0]:
                    raise BlockingIOError
                got = self.receive_into(room, 0, _ALL if len(room) > AHEAD_BYTES else 0)
            except BlockingIOError as nothing:
                if deadline is not None and time.monotonic() >= deadline:
                    raise TimeoutError("no message came in time") from None
                if stall:
                    stall.count(0)
                elif isinstance(nothing, IncompleteRecordError):
                    stall = StallTimer(self.stalled_s)
            except TimeoutError as error:  # the system's error if the peer is gone
                raise ConnectionError(message_of(error)) from None
            else:
                if not got:
                    raise EOFError
                if stall:
                    stall.count(got)
                return got

    def shutdown(self) -> None:
        self._over.set()
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        for other in self.pool.others if self.pool else ():
            other.shutdown()

    def close(self) -> None:
        self.shutdown()
        if self.pool:
            self.pool.close()
        self._sock.close()


def advance(buffers: list[memoryview], done: int) -> None:
    """Drop the first ``done`` bytes of the buffers, and the empty buffers after them."""
    count = 0
    while count < len(buffers) and done >= len(buffers[count]):
        done -= len(buffers[count])
        count += 1
    del buffers[:count]  # in one step, since each removal moves the rest
    if done:
        buffers[0] = buffers[0][done:]
