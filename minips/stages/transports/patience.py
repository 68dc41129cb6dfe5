"""Limits on a process's peers: how slow they may be, and how many bytes may arrive at the same time."""

import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from minips.stage import Frames
from minips.stages.transports.framing import AHEAD_BYTES
from minips.stages.transports.wire import Wire

SLOWEST_BPS, TICK_S = 1_000, 1.0
"""The lowest rate, in bytes per second, allowed for a peer with bytes due; the seconds between two checks of a wait."""
LOOKS = 20
"""The minimum number of times that a wait is checked before it may count as too long."""
STRANGER_S, STALLED_S = 15.0, 75.0
"""By default, the seconds to wait for a peer's first call, and the seconds that a peer may stay below `SLOWEST_BPS`."""
OUTSTANDING_BYTES, AT_ONCE = 2**24, 64
"""The bytes that a connection may have outstanding besides a message; how many largest messages may arrive together."""
_TCP_INFO = struct.Struct("120xQQ8xI")


class Limit:
    """A limit on a wait for a peer. The waiter checks it every ``tick`` seconds (at least ``least_s``). A late check
    counts as one tick, since this process's delay is not the peer's; bytes that arrived meanwhile are read first.
    """

    def __init__(self, seconds: float, least_s: float = 0.0) -> None:
        self.tick = max(min(TICK_S, seconds / LOOKS), least_s)
        self.left, self._last = seconds, time.monotonic()

    def over(self) -> bool:
        """Check the clock. Return True once the wait has reached the limit."""
        now = time.monotonic()
        self.left -= min(now - self._last, self.tick)
        self._last = now
        return self.left <= 0


def outlasts(seconds: float, ended: threading.Event) -> bool:
    """Wait for a `Limit` of ``seconds`` seconds. Return True after it, or False as soon as ``ended`` is set."""
    left = Limit(seconds)
    while not ended.wait(left.tick):
        if left.over():
            return True
    return False


def timeval(seconds: float) -> bytes:
    """Return a time of at least a microsecond in the format of POSIX's socket time-outs."""
    whole, micro = divmod(max(int(seconds * 1e6), 1), 10**6)
    return struct.pack("ll", whole, micro)


class StallTimer:
    """Limits how slow a peer may be: each ``seconds`` times 1 kB of due bytes, or all the rest, must pass within
    ``seconds`` of the preceding bytes. Call ``count`` at least once every ``tick`` seconds.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._begin()
        self.tick = self._limit.tick

    def _begin(self) -> None:
        self._limit, self._left = Limit(self._seconds), self._seconds * SLOWEST_BPS

    def count(self, nbytes: int, due: bool = True) -> None:
        """Count bytes that were sent or received. ConnectionError if these are too few although bytes are ``due``."""
        self._left -= nbytes
        if not due or self._left <= 0:
            self._begin()
        elif self._limit.over():
            raise ConnectionError(f"The peer stalls: over {self._seconds:g} seconds it was slower than 1 kB a second.")


def receive_within(seconds: float, wire: Wire, limit: int | None = None) -> tuple[int, Frames]:
    """Return the next message from a wire. TimeoutError if it is not complete within a `Limit` of ``seconds``."""
    left = Limit(seconds)
    while True:
        try:
            return wire.receive(left.tick, limit)
        except TimeoutError:
            if left.over():
                raise


class ConnectionMonitor:
    """A TCP connection that a library reads and writes; Linux's statistics show the progress of both sides."""

    def __init__(self, sock: Any, stalled_s: float) -> None:
        self.sock, self.received, self._acked = sock, 0, 0
        self._receiving, self._sending = StallTimer(stalled_s), StallTimer(stalled_s)

    def progress(self) -> tuple[int, int, int]:
        """Return the numbers of bytes that the peer acknowledged, that it sent, and that are unsent; 0 if unknown."""
        with suppress(AttributeError, OSError, struct.error):
            acked, received, waits = _TCP_INFO.unpack(
                self.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
            )
            return acked, received, waits
        return 0, 0, 0

    def check_progress(self, due: bool) -> None:
        """Raise ConnectionError if the peer stalls while bytes are ``due`` from it, or does not accept sent bytes."""
        (acked, received, waits), received_before, acked_before = self.progress(), self.received, self._acked
        self.received, self._acked = received, acked
        self._receiving.count(received - received_before, due and received > 0)
        self._sending.count(acked - acked_before, waits > 0)


class IncompleteRecordError(BlockingIOError):
    """Raised if bytes have arrived that do not yet form a complete TLS record."""


class _Incoming:
    """Counts the bytes of the large messages that are arriving over all connections of this process."""

    def __init__(self) -> None:
        self._held, self._lock = 0, threading.Lock()

    def reserve(self, nbytes: int, limit: int) -> bool:
        """Reserve ``nbytes``, or return False if that would be too much. ``limit``: the largest message."""
        with self._lock:
            fits = not self._held or self._held + nbytes <= AT_ONCE * limit
            self._held += nbytes if fits else 0
            return fits

    def wait(self, nbytes: int, limit: int, ended: Callable[[], bool]) -> int:
        """Reserve and return ``nbytes``; return 0 for small messages. ConnectionError once the connection has ended."""
        while nbytes > AHEAD_BYTES and not self.reserve(nbytes, limit):
            time.sleep(TICK_S / 50)
            if ended():
                raise ConnectionError("the connection is closed")
        return nbytes if nbytes > AHEAD_BYTES else 0

    def release(self, nbytes: int) -> None:
        """Release reserved bytes."""
        with self._lock:
            self._held -= nbytes


INCOMING = _Incoming()
