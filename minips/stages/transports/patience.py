"""Limits of a process on its peers: how long they may take over what is due, and how much may come in at once."""

import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from minips.stages.transports.framing import AHEAD_BYTES

SLOWEST_BPS, TICK_S = 1_000, 1.0
"""The fewest bytes a second of a peer over what is due, and how often a wait for it is looked at."""
STRANGER_S, STALLED_S = 15.0, 75.0
"""The longest wait for a peer's first call, and that a peer may be slower than that, unless a transport says more."""
OUTSTANDING_BYTES, AT_ONCE = 2**24, 64
"""What one connection may have outstanding besides a message, and the largest messages that may come in at once."""
_TCP_INFO = struct.Struct("120xQQ8xI")


class Patience:
    """The time that a peer has for what is due: each ``seconds`` times 1 kB of it, or all the rest, must come within
    ``seconds`` of the bytes before. Time in which this process was itself suspended does not count.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._last = seconds, time.monotonic()
        self._left_s, self._left = seconds, seconds * SLOWEST_BPS

    def count(self, nbytes: int, due: bool = True) -> None:
        """Count bytes that came or went, once in two ticks or more often. ConnectionError where too few are, and
        something is ``due``.
        """
        now = time.monotonic()
        self._left_s -= min(now - self._last, 2 * TICK_S)
        self._left -= nbytes
        if not due or self._left <= 0:
            self._left_s, self._left = self._seconds, self._seconds * SLOWEST_BPS
        elif self._left_s < 0:
            raise ConnectionError(f"The peer stalls: over {self._seconds:g} seconds it was slower than 1 kB a second.")
        self._last = now


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
