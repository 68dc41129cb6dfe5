"""A channel that outlives its connection.

When the connection breaks, a new one is made, after pauses that grow, and what had not been answered is sent again: the
same bytes, in the same order. The server knows a push by its worker and its clock, so each is applied once, however
often it is sent.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from minips.stage import Frames
from minips.stages.transports import Channel
from minips.stages.transports.wire import Closable

PAUSES_S = (0.0, 0.1, 0.3, 0.9)
"""Seconds before each attempt to connect again."""


class Asker(Protocol):
    """What a request is made for: it is given the answer, or the error that came instead, once."""

    def answered(self, channel: "ReconnectingChannel", frames: Frames | None, error: Exception | None) -> None: ...


class _Request:
    """A request as it was sent over one connection."""

    __slots__ = ("asker", "channel", "frames", "last")

    def __init__(self, channel: "ReconnectingChannel", frames: Frames, asker: Asker, last: bool) -> None:
        self.channel, self.frames, self.asker, self.last = channel, frames, asker, last

    def arrived(self, frames: Frames) -> None:
        if self.channel.settles(self):
            self.asker.answered(self.channel, frames, None)

    def failed(self, error: Exception) -> None:
        if self.channel.settles(self, error):
            self.asker.answered(self.channel, None, error)


class ReconnectingChannel(Closable):
    """Requests over the channels that ``connect()`` makes; ``resume(channel)`` says on a new one who is there again.

    Once all the attempts have failed, so does every request, with what broke the connection first.
    """

    def __init__(
        self, connect: Callable[[], Channel], resume: Callable[[Channel], None], pauses_s: Sequence[float] = PAUSES_S
    ) -> None:
        self._connect, self._resume, self._pauses_s = connect, resume, pauses_s
        self._channel = connect()
        self._sending, self._lock = threading.Lock(), threading.Lock()  # to be taken in this order
        self._open: dict[_Request, None] = {}
        """What was sent and not answered, in order."""
        self._closing = threading.Event()
        self._broken: Exception | None = None
        self._torn = False
        self._reconnecting: threading.Thread | None = None

    @property
    def outstanding(self) -> bool:
        """True while an answer is to come."""
        return bool(self._open)

    def ask(self, frames: Frames, asker: Asker, last: bool = False) -> None:
        """Send the frames; ``asker`` is given the answer. The ``last`` request is no reason to connect again.

        ConnectionError once the connection is broken for good, and what the channel raises.
        """
        request = _Request(self, frames, asker, last)
        with self._sending:
            with self._lock:
                if self._broken and not self._reconnecting:
                    raise ConnectionError(str(self._broken))
                self._open[request] = None
                if self._reconnecting:
                    return
            self._send(request)

    def read(self, until: Callable[[], bool], timeout: float | None) -> None:
        """Read answers in this thread until ``until()``, or for ``timeout`` seconds, unless another thread does."""
        self._channel.read(until, timeout)

    def attend(self) -> None:
        """Have the answers read in the background."""
        self._channel.attend()

    def close(self) -> None:
        self._closing.set()
        self._channel.close()
        reconnecting = self._reconnecting
        if reconnecting and reconnecting is not threading.current_thread():
            reconnecting.join()
            self._channel.close()

    def settles(self, request: _Request, error: Exception | None = None) -> bool:
        """True where this is how the request ends; False where it was, or will be, sent again."""
        with self._lock:
            if request not in self._open:
                return False
            if error and isinstance(error, ConnectionError) and not request.last and self._reconnect(error):
                return False
            del self._open[request]
            return True

    def _send(self, request: _Request) -> None:
        try:
            self._channel.ask(request.frames, request)
        except ConnectionError as error:
            request.failed(error)
        except BaseException:
            with self._lock:
                self._open.pop(request, None)
            raise

    def _reconnect(self, error: Exception) -> bool:
        """Have the connection made again; False where it is not to be. With the lock held."""
        if self._closing.is_set() or not self._pauses_s or (self._broken and not self._reconnecting):
            return False
        self._torn = True
        if not self._reconnecting:
            self._broken = error
            self._reconnecting = threading.Thread(target=self._try_again, name="minips-reconnect", daemon=True)
            self._reconnecting.start()
        return True

    def _try_again(self) -> None:
        for pause in self._pauses_s:
            if self._closing.wait(pause):
                break
            try:
                self._channel.close()
                self._channel = self._connect()
                self._resume(self._channel)
            except OSError:  # no server there yet, or gone again
                continue
            except Exception as error:
                self._broken = error
                break
            if self._send_again():
                return
        with self._lock:
            self._reconnecting = None
            requests, self._open = self._open, {}
        for request in requests:
            request.asker.answered(self, None, self._broken)

    def _send_again(self) -> bool:
        """Send what has not been answered; False where the new connection broke too."""
        with self._sending:
            with self._lock:  # as new requests: what the old connection still says of the old ones no longer counts
                requests = [_Request(self, old.frames, old.asker, old.last) for old in self._open]
                self._open, self._torn = dict.fromkeys(requests), False
            for request in requests:
                if not self._torn:  # what comes after the one that broke must not overtake it
                    self._send(request)
            with self._lock:
                if self._torn:
                    return False
                self._reconnecting, self._broken = None, None
        self._channel.attend()  # those that wait have waited for the connection that broke
        return True
