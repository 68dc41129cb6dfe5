"""A connection that is made again when it breaks.

While it holds, requests go to its channel and answers come from there. When it breaks, the channel fails all that was
asked and not answered. `Reconnecting` collects that, connects again, after pauses that grow, and sends it again: the
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


class Request(Protocol):
    """A request over a channel: the channel tells it that an answer has arrived, or that it has failed."""

    frames: Frames
    number: int
    """Those of smaller numbers were asked before."""
    last: bool
    """True for the last request of all, which is no reason to connect again."""

    def arrived(self, frames: Frames) -> None:
        """With an answer."""

    def failed(self, error: Exception) -> None:
        """On this connection. It asks `Reconnecting.retries`, and goes on with the error where that says no."""

    def lost(self, error: Exception) -> None:
        """For good."""


class Reconnecting(Closable):
    """``channel`` is what to ask: that of the connection or, while it is being made again, a queue.

    ``connect()`` makes a channel, ``resume(channel)`` says on a new one who is there again. Once all attempts have
    failed, so does every request, with what broke the connection first.
    """

    def __init__(
        self, connect: Callable[[], Channel], resume: Callable[[Channel], None], pauses_s: Sequence[float] = PAUSES_S
    ) -> None:
        self._connect, self._resume, self._pauses_s = connect, resume, pauses_s
        self._lock, self._closing = threading.RLock(), threading.Event()
        self._queue = _Queue(self)
        self._broken: Exception | None = None
        self._thread: threading.Thread | None = None
        self._connected = connect()
        self.channel: Channel | _Queue | _Broken = self._connected

    def retries(self, request: Request, error: Exception) -> bool:
        """True where a request that has failed will be sent again."""
        with self._lock:
            if not isinstance(error, ConnectionError) or request.last or self._closing.is_set() or not self._pauses_s:
                return False
            if self._broken and self.channel is not self._queue:
                return False
            self._queue.requests.append(request)
            if self.channel is not self._queue:
                self.channel, self._broken = self._queue, error
                self._thread = threading.Thread(target=self._reconnect, name="minips-reconnect", daemon=True)
                self._thread.start()
            return True

    def close(self) -> None:
        self._closing.set()
        self._connected.close()
        thread = self._thread
        if thread and thread is not threading.current_thread():
            thread.join()
            self._connected.close()

    def _reconnect(self) -> None:
        for pause in self._pauses_s:
            if self._closing.wait(pause):
                break
            try:
                self._connected.close()
                self._connected = self._connect()
                self._resume(self._connected)
                if self._send_again():
                    return
            except OSError:  # no server there yet, or gone again
                continue
            except Exception as error:
                self._broken = error
                break
        with self._lock:
            self.channel, requests = _Broken(self._broken), self._queue.take()
        for request in requests:
            request.lost(self._broken or ConnectionError("The connection is closed."))

    def _send_again(self) -> bool:
        """Send what has not been answered; False where the new connection broke too."""
        with self._lock:
            requests = self._queue.take()
            try:
                while requests and not self._queue.requests:  # none must overtake one that has failed again
                    self._connected.ask(requests[0].frames, requests[0])
                    del requests[0]
            finally:
                self._queue.requests += requests
            if self._queue.requests:
                return False
            self.channel, self._broken, self._thread = self._connected, None, None
        self._connected.attend()  # those that wait have waited for the connection that broke
        return True


class _Absent:
    """Stands in for a channel that is not there: nothing is to be read."""

    def read(self, until: Callable[[], bool], timeout: float | None) -> None:
        """No answer comes."""

    def attend(self) -> None:
        """No answer comes."""


class _Queue(_Absent):
    """Keeps requests until there is a connection again."""

    def __init__(self, owner: Reconnecting) -> None:
        self.requests: list[Request] = []
        self._owner = owner

    def ask(self, frames: Frames, request: Request) -> None:
        """Keep the request, unless there is a connection by now."""
        with self._owner._lock:
            if self._owner.channel is self:
                self.requests.append(request)
                return
        self._owner.channel.ask(frames, request)

    def take(self) -> list[Request]:
        """All of them, in order."""
        requests, self.requests = sorted(self.requests, key=lambda request: request.number), []
        return requests


class _Broken(_Absent):
    """The connection is broken for good."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def ask(self, frames: Frames, request: Request) -> None:
        """Refuse the request."""
        raise ConnectionError(str(self._error))
