"""A connection that reconnects when it breaks.

As long as the connection works, its channel sends the requests and receives the answers. When it breaks, the channel
fails all unanswered requests. `Reconnecting` collects these, reconnects after growing pauses, and sends them again: the
same bytes, in the same order. The server identifies a push by its worker and its clock, so it applies each push only
once, even if it is sent several times.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from minips.stage import Frames
from minips.stages.transports import Channel
from minips.stages.transports.base import Caller, Closable
from minips.stages.transports.framing import TooLargeError

PAUSES_S = (0.0, 0.1, 0.3, 0.9)
"""The default pause before each attempt to reconnect, in seconds."""


class Request(Caller, Protocol):
    """A request over a channel. If the connection breaks first, the request calls `Reconnecting.retries`; if that
    returns False, the request fails with the error.
    """

    frames: Frames
    number: int
    """Requests are numbered in the order of sending."""

    @property
    def last(self) -> bool:
        """True for the client's last request, for which it does not reconnect."""


class Reconnecting(Closable):
    """A connection whose ``channel`` takes the requests; during reconnection, ``channel`` is a queue.

    ``connect()`` returns a channel; ``resume(channel)`` says hello again on a new one. Once all attempts have failed,
    every request fails with the error that first broke the connection.
    """

    def __init__(
        self, connect: Callable[[], Channel], resume: Callable[[Channel], None], pauses_s: Sequence[float] | None = None
    ) -> None:
        self._connect, self._resume, self._given_s = connect, resume, pauses_s
        self._pauses_s = PAUSES_S if pauses_s is None else pauses_s
        self._lock, self._closing = threading.RLock(), threading.Event()
        self._queue = _Queue(self)
        self.broken: Exception | None = None
        """The error that broke the connection; None while it is connected."""
        self.over = False
        """True once all attempts have failed."""
        self._thread: threading.Thread | None = None
        self._connected = connect()
        self.channel: Channel | _Queue = self._connected

    def retries(self, request: Request, error: Exception) -> bool:
        """True if this failed request will be sent again; a request that is too large would only fail again."""
        with self._lock:
            if not isinstance(error, ConnectionError) or request.last or not self._pauses_s:
                return False
            if self.over or self._closing.is_set():
                return False
            again = not isinstance(error, TooLargeError)
            if again:
                self._queue.requests.append(request)
            if self.channel is not self._queue:
                self.channel, self.broken = self._queue, error
                self._thread = threading.Thread(target=self._reconnect, name="minips-reconnect", daemon=True)
                self._thread.start()
            return again

    def outlast(self, seconds: float) -> None:
        """Let the attempts to reconnect continue for longer than ``seconds``, unless the caller gave the pauses."""
        while self._given_s is None and sum(self._pauses_s) <= seconds:
            self._pauses_s = [*self._pauses_s, sum(self._pauses_s) / 2]

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
            except OSError:  # the server is not up yet, or is gone again
                continue
            except Exception as error:
                self.broken = error
                break
        assert self.broken
        with self._lock:
            self.over, requests = True, self._queue.take()
        for request in requests:
            request.failed(self.broken)

    def _send_again(self) -> bool:
        """Send all unanswered requests again. False if the new connection broke, too."""
        with self._lock:
            requests = self._queue.take()
            try:
                while requests and not self._queue.requests:  # no request may overtake one that has failed again
                    self._connected.ask(requests[0].frames, requests[0])
                    del requests[0]
            finally:
                self._queue.requests += requests
            if self._queue.requests:
                return False
            self.channel, self.broken, self._thread = self._connected, None, None
        self._connected.attend()  # threads that wait for an answer read the broken connection
        return True


class _Queue:
    """A substitute for a missing channel: it keeps requests until the connection is restored."""

    def __init__(self, owner: Reconnecting) -> None:
        self.requests: list[Request] = []
        self._owner = owner

    def ask(self, frames: Frames, request: Request) -> None:
        """Keep the request or, if a connection exists by now, send it. ConnectionError if all attempts have failed."""
        with self._owner._lock:
            if self._owner.over:
                raise ConnectionError(str(self._owner.broken))
            if self._owner.channel is self:
                self.requests.append(request)
                return
        self._owner.channel.ask(frames, request)

    def read(self, until: Callable[[], bool], deadline: float | None) -> None:
        """Do nothing: no answer can arrive."""

    def attend(self) -> None:
        """Do nothing: no answer can arrive."""

    def take(self) -> list[Request]:
        """Empty the queue. Returns its requests in order."""
        requests, self.requests = sorted(self.requests, key=lambda request: request.number), []
        return requests
