"""A connection made of requests, for libraries that know only those: each is answered once, by whichever thread.

A **session** is a wire like any other. What its client sends is a request, what it receives is the answer. The first
request is empty: it asks for the server's first word, the challenge of `auth`. So no peer reaches the handler whose
session has not shown that it knows the token, and the handler runs in the session's own thread. Requests are numbered
from 0, since those that travel side by side may overtake each other.
"""

import queue
import secrets
import threading
from abc import abstractmethod
from collections import deque
from concurrent.futures import CancelledError, Future
from contextlib import suppress

from minips.stage import Buffer, Frames
from minips.stages.transports.base import HANDSHAKE_S
from minips.stages.transports.framing import HANDSHAKE_BYTES, pieces, split
from minips.stages.transports.wire import Listener, Wire

Body = list[Buffer]
"""The pieces of a body."""
_AHEAD = 1024
"""How far a request may run ahead of one that is still under way."""


class Session(Wire):
    """The server's end. ``over`` is done once the session has ended."""

    def __init__(self, max_message_bytes: int) -> None:
        self.name = secrets.token_hex(16)
        self.over: Future[None] = Future()
        self._max, self._next, self._answered = max_message_bytes, 0, 0
        self._lock = threading.Lock()
        self._early: dict[int, tuple[memoryview, Future[Body]]] = {}
        self._inbox: queue.SimpleQueue[memoryview | None] = queue.SimpleQueue()
        self._waiting: queue.SimpleQueue[Future[Body] | None] = queue.SimpleQueue()

    @property
    def limit(self) -> int:
        """The largest request that may be read: a small one until the second answer, which proves a token to one who
        has proved it.
        """
        return self._max if self._answered >= 2 else HANDSHAKE_BYTES

    def ask(self, number: int, body: memoryview) -> "Future[Body]":
        """Take a request in. From any thread. ConnectionError where the session is over, ValueError where the request
        makes no sense.
        """
        future: Future[Body] = Future()
        future.set_running_or_notify_cancel()  # who loses interest cannot take its turn away
        with self._lock:
            if self.over.done():
                raise ConnectionError("The session is over.")
            if not self._next <= number < self._next + _AHEAD or number in self._early:
                raise ValueError(f"Request {number} came when {self._next} was expected.")
            self._early[number] = body, future
            while self._next in self._early:
                body, waiting = self._early.pop(self._next)
                self._waiting.put(waiting)
                if self._next:
                    self._inbox.put(body)
                self._next += 1
        return future

    def send(self, tag: int, frames: Frames) -> None:
        body = pieces(tag, frames)
        try:
            future = self._waiting.get(timeout=HANDSHAKE_S)  # the empty request may still be on its way
        except queue.Empty:
            raise TimeoutError("no request waits for this answer") from None
        if future is None:
            raise ConnectionError("the session is over")
        self._answered += 1
        future.set_result(body)

    def receive(self, timeout: float | None = None, limit: int | None = None) -> tuple[int, Frames]:
        try:
            body = self._inbox.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError("no message came in time") from None
        if body is None:
            raise EOFError
        if len(body) > (HANDSHAKE_BYTES if limit else self._max):
            raise ValueError(f"a message of {len(body)} bytes is larger than is allowed")
        return split(body)

    def hang_up(self) -> None:
        with self._lock:
            if self.over.done():
                return
            self.over.set_result(None)
        left = [future for _, future in self._early.values()]
        with suppress(queue.Empty):
            while future := self._waiting.get_nowait():
                left.append(future)
        self._waiting.put(None)
        self._inbox.put(None)
        for future in left:
            future.set_exception(ConnectionError("The session is over."))

    def close(self) -> None:
        self.hang_up()


class Sessions(Listener):
    """Where sessions come in."""

    def __init__(self, max_message_bytes: int) -> None:
        self._max = max_message_bytes
        self._incoming: queue.SimpleQueue[Session | None] = queue.SimpleQueue()

    def open(self) -> Session:
        """A new session, whose first request must be empty."""
        session = Session(self._max)
        self._incoming.put(session)
        return session

    def accept(self) -> Wire:
        session = self._incoming.get()
        if session is None:
            raise OSError("the listener is closed")
        return session

    def hang_up(self) -> None:
        self._incoming.put(None)


class Asking(Wire):
    """The client's end: what it sends it asks, and what it asked is answered in that order."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[Future[memoryview] | None] = queue.SimpleQueue()
        self._count, self._ended = 0, False
        self._open: deque[Future[memoryview]] = deque()

    @abstractmethod
    def ask(self, number: int, body: Body) -> "Future[memoryview]":
        """Send a request and return at once; the future holds the body of the answer, in memory of its own."""

    def begin(self) -> None:
        """Ask for the server's first word."""
        self._ask([])

    def _ask(self, body: Body) -> None:
        future = self.ask(self._count, body)
        self._count += 1
        self._open.append(future)
        self._asked.put(future)

    def send(self, tag: int, frames: Frames) -> None:
        if self._ended:
            raise ConnectionError("the session is over")
        self._ask(pieces(tag, frames))

    def receive(self, timeout: float | None = None, limit: int | None = None) -> tuple[int, Frames]:
        try:
            future = self._asked.get(timeout=timeout)
            if future is None:
                raise EOFError
            return split(future.result(timeout))
        except queue.Empty:
            raise TimeoutError("no message came in time") from None
        except CancelledError:
            raise EOFError from None
        finally:
            while self._open and self._open[0].done():
                self._open.popleft()

    def hang_up(self) -> None:
        self._ended = True
        self._asked.put(None)
        for future in list(self._open):
            future.cancel()
