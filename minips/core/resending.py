"""Reconnecting and resending, written once: connections in real time and in virtual time follow it.

While a connection works, its driver sends the requests and passes on the answers. When the connection breaks, all its
unanswered requests fail. `Resending` then decides which of them are sent again, and puts them in a queue, together with
the requests of the meantime. Its session `reconnect` connects again after growing pauses, says hello, and sends the
queue: the same bytes, in the same order. The server identifies a push by its worker and its clock, so it applies each
push only once, even if it is sent several times.
"""

from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Protocol

from minips.core.limits import error_after_breaks
from minips.core.protocol import WorkerProtocol
from minips.core.sessions import Session
from minips.stage import Frames
from minips.stages.transports.base import Caller
from minips.stages.transports.framing import TooLargeError

PAUSES_S = (0.0, 0.1, 0.3, 0.9)
"""The default pause before each attempt to reconnect, in seconds."""


class Request(Caller, Protocol):
    """A message to a server. If it fails, it passes the error to `Resending.failed`."""

    frames: Frames
    number: int
    """A worker's requests are numbered in the order of sending."""
    breaks: int
    """The number of errors of connections with which it has failed."""

    @property
    def last(self) -> bool:
        """True for the client's last request, for which it does not reconnect."""


@dataclass(eq=False, slots=True)
class Pause:
    """Wait for so many seconds. The driver may end a pause early, once it has set `Resending.over`."""

    seconds: float


@dataclass(eq=False, slots=True)
class Dial:
    """Close the connection and open a new one, for all that follows. OSError if the server cannot be reached."""


@dataclass(eq=False, slots=True)
class Resend:
    """Send a request over the new connection, and do not wait for its answer. OSError if it cannot be sent."""

    request: Request


class Resending:
    """A connection of a worker, and what it does when it breaks: its state, and the session that connects again.

    ``hello()`` is the session for a new connection, such as `hello_again`. ``transport`` is asked only for the largest
    message that it sends. A driver with threads holds one lock for each call and each step of `reconnect`.
    """

    def __init__(
        self, hello: Callable[[], Session[Any]], pauses_s: Sequence[float] | None = None, transport: Any = None
    ) -> None:
        self._hello, self._transport, self._given = hello, transport, pauses_s is not None
        self.pauses_s = PAUSES_S if pauses_s is None else pauses_s
        """The pause before each attempt to reconnect, in seconds."""
        self.broken: Exception | None = None
        """The error that broke the connection; None while it is connected."""
        self.over = False
        """True once all attempts have failed, or once the driver has closed the connection and so sets it."""
        self._queue: list[Request] = []
        self._failed_again = False

    def outlast(self, seconds: float) -> None:
        """Let the attempts to reconnect continue for longer than ``seconds``, unless the caller gave the pauses."""
        while not self._given and sum(self.pauses_s) <= seconds:
            self.pauses_s = [*self.pauses_s, sum(self.pauses_s) / 2]

    def ask(self, request: Request) -> bool:
        """True if the request can be sent now; else it is in the queue. ConnectionError if all attempts have failed."""
        if self.over:
            raise ConnectionError(str(self.broken or "The connection is closed."))
        if self.broken:
            self._keep(request)
        return not self.broken

    def failed(self, request: Request, error: Exception) -> Exception | None:
        """Note that a request has failed. Returns the error to report, or None if the request will be sent again.

        If ``broken`` is no longer None afterwards, the driver begins to `reconnect`.
        """
        if not isinstance(error, ConnectionError):
            return error
        request.breaks += 1
        error = error_after_breaks(error, request.frames, request.breaks, self._transport)
        if self.over:
            return self.broken or error
        if request.last or not self.pauses_s:
            return error
        self.broken, self._failed_again = self.broken or error, True
        if isinstance(error, TooLargeError):  # it would only fail again
            return error
        self._keep(request)
        return None

    def reconnect(self) -> Session[list[Request]]:
        """Connect again, and send all unanswered requests again. Returns the requests that now fail with ``broken``:
        all of them once the attempts are over, otherwise none.
        """
        for pause_s in self.pauses_s:
            yield Pause(pause_s)
            if self.over:
                break
            try:
                yield Dial()
                yield from self._hello()
                yield from self._send_again()
            except OSError:  # the server is not up yet, or is gone again
                continue
            except Exception as error:
                self.broken = error
                break
            self.broken = None
            return []
        self.over, requests, self._queue = True, self._queue, []
        return requests

    def _send_again(self) -> Session[None]:
        """Send all unanswered requests, in order. ConnectionError if the new connection breaks, too."""
        self._failed_again = False
        while self._queue:
            request = self._queue.pop(0)
            try:
                yield Resend(request)
            except Exception:
                self._keep(request)
                raise
            if self._failed_again:  # no request may overtake one that has failed again
                raise ConnectionError("The new connection broke.")

    def _keep(self, request: Request) -> None:
        insort(self._queue, request, key=attrgetter("number"))


def hello_again(worker: WorkerProtocol, index: int) -> Session[None]:
    """Say hello again to the server ``index``, over a new connection."""
    try:
        yield from worker.hello(index)
    except ValueError as error:
        if worker.servers[index].secret:
            raise
        raise ConnectionError(str(error)) from error  # try again: the answer to the first hello was lost
