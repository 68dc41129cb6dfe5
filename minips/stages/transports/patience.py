"""Limits of a process on its peers: how long they may take over what is due, and how much may come in at once."""

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
"""The fewest bytes a second of a peer over what is due, and how often a wait for it is looked at."""
LOOKS = 20
"""The fewest looks at a wait before it has lasted too long."""
STRANGER_S, STALLED_S = 15.0, 75.0
"""The longest wait for a peer's first call, and that a peer may be slower than that, unless a transport says more."""
OUTSTANDING_BYTES, AT_ONCE = 2**24, 64
"""What one connection may have outstanding besides a message, and the largest messages that may come in at once."""
_TCP_INFO = struct.Struct("120xQQ8xI")


class Limit:
    """A limit on a wait for a peer, to be looked at every ``tick`` seconds, which are at least ``least_s``. A look that
    comes later counts one tick: the time for which this process was itself kept waiting is nobody's stall, and what
    came meanwhile is read first.
    """

    def __init__(self, seconds: float, least_s: float = 0.0) -> None:
        self.tick = max(min(TICK_S, seconds / LOOKS), least_s)
        self.left, self._last = seconds, time.monotonic()

    def over(self) -> bool:
        """Look: True once the wait has lasted for the limit."""
        now = time.monotonic()
        self.left -= min(now - self._last, self.tick)
        self._last = now
        return self.left <= 0


def outlasts(seconds: float, ended: threading.Event) -> bool:
    """Wait for a `Limit` of so many seconds. False where it has ended meanwhile."""
    left = Limit(seconds)
    while not ended.wait(left.tick):
        if left.over():
            return True
    return False


def timeval(seconds: float) -> bytes:
    """Seconds, and at least a microsecond, as POSIX's time-outs of sockets take them."""
    whole, micro = divmod(max(int(seconds * 1e6), 1), 10**6)
    return struct.pack("ll", whole, micro)


class Patience:
    """The time that a peer has for what is due: each ``seconds`` times 1 kB of it, or all the rest, must come within
    ``seconds`` of the bytes before, to be counted every ``tick`` seconds or more often.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._begin()
        self.tick = self._limit.tick

    def _begin(self) -> None:
        self._limit, self._left = Limit(self._seconds), self._seconds * SLOWEST_BPS

    def count(self, nbytes: int, due: bool = True) -> None:
        """Count bytes that came or went. ConnectionError where too few are, and something is ``due``."""
        self._left -= nbytes
        if not due or self._left <= 0:
            self._begin()
        elif self._limit.over():
            raise ConnectionError(f"The peer stalls: over {self._seconds:g} seconds it was slower than 1 kB a second.")


def receive_within(seconds: float, wire: Wire, limit: int | None = None) -> tuple[int, Frames]:
    """The next message of a wire. TimeoutError where it does not come, whole, within a `Limit` of ``seconds``."""
    left = Limit(seconds)
    while True:
        try:
            return wire.receive(left.tick, limit)
        except TimeoutError:
            if left.over():
                raise


class Flow:
    """A TCP connection that a library reads and writes, and how far both sides have come, which Linux tells."""

    def __init__(self, sock: Any, stalled_s: float) -> None:
        self.sock, self.received, self._acked = sock, 0, 0
        self._incoming, self._outgoing = Patience(stalled_s), Patience(stalled_s)

    def told(self) -> tuple[int, int, int]:
        """The bytes that the peer has taken, that came from it, and that wait for it; 0 where that is not told."""
        with suppress(AttributeError, OSError, struct.error):
            acked, received, waits = _TCP_INFO.unpack(
                self.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
            )
            return acked, received, waits
        return 0, 0, 0

    def look(self, due: bool) -> None:
        """ConnectionError where the peer stalls over what is ``due`` of it, or does not take what waits for it."""
        (acked, received, waits), had, taken = self.told(), self.received, self._acked
        self.received, self._acked = received, acked
        self._incoming.count(received - had, due and received > 0)
        self._outgoing.count(acked - taken, waits > 0)


class BegunError(BlockingIOError):
    """Some of what is due came, of which nothing can be read yet."""


class _Incoming:
    """The bytes of large messages that are coming in, over all connections of this process."""

    def __init__(self) -> None:
        self._held, self._lock = 0, threading.Lock()

    def take(self, nbytes: int, limit: int) -> bool:
        """Take so many bytes, or none where that would be too many; ``limit`` is the size of the largest message."""
        with self._lock:
            fits = not self._held or self._held + nbytes <= AT_ONCE * limit
            self._held += nbytes if fits else 0
            return fits

    def wait(self, nbytes: int, limit: int, ended: Callable[[], bool]) -> int:
        """``nbytes``, once they could be taken; 0 for what is small. ConnectionError once the connection has ended."""
        while nbytes > AHEAD_BYTES and not self.take(nbytes, limit):
            time.sleep(TICK_S / 50)
            if ended():
                raise ConnectionError("the connection is closed")
        return nbytes if nbytes > AHEAD_BYTES else 0

    def give(self, nbytes: int) -> None:
        """Give them back."""
        with self._lock:
            self._held -= nbytes


INCOMING = _Incoming()
