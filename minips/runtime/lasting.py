"""A channel that outlives its connection.

When the connection breaks, a new one is made, after pauses that grow, and what had not been answered is sent again: the
same bytes, in the same order. The server knows a push by its worker and its clock, so each is applied once, however
often it is sent.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from minips.stage import Frames
from minips.stages.transports import Channel
from minips.stages.transports.futures import Driven, then
from minips.stages.transports.wire import Closable

T = TypeVar("T")
Finish = Callable[["Future[Frames]"], T]
"""What is made of an answer, or of the error that came instead."""

PAUSES_S = (0.0, 0.1, 0.3, 0.9)
"""Seconds before each attempt to connect again."""


class LastingChannel(Closable):
    """Calls over the channels that ``connect()`` makes; ``resume(channel)`` says on a new one who is there again.

    Once all the attempts have failed, so does every call, with what broke the connection first.
    """

    def __init__(
        self, connect: Callable[[], Channel], resume: Callable[[Channel], None], pauses_s: Sequence[float] = PAUSES_S
    ) -> None:
        self._connect, self._resume, self._pauses_s = connect, resume, pauses_s
        self._channel = connect()
        self._sending, self._lock = threading.Lock(), threading.Lock()  # to be taken in this order
        self._open: deque[_Answer[Any]] = deque()
        self._closing = threading.Event()
        self._broken: Exception | None = None
        self._torn = False
        self._mending: threading.Thread | None = None

    def call(self, frames: Frames, finish: Finish[T], last: bool = False) -> Driven[T]:
        """Send the frames, as a channel does; the future holds what ``finish`` makes of the answer, called once.

        The ``last`` call is no reason to connect again.
        """
        answer = _Answer(self, frames, finish, last)
        with self._sending:
            with self._lock:
                if self._broken and not self._mending:
                    raise ConnectionError(str(self._broken))
                self._open.append(answer)
                mending = self._mending
            if not mending:
                self._send(answer)
        return answer

    def close(self) -> None:
        self._closing.set()
        self._channel.close()
        mending = self._mending
        if mending and mending is not threading.current_thread():
            mending.join()
            self._channel.close()

    def settle(self, answer: "_Answer[Any]", inner: "Future[Frames]") -> None:
        """What came of a call: its answer, its error, or a connection that broke."""
        error = inner.exception()
        with self._lock:
            if inner is not answer.inner:  # it has been sent again since
                return
            if isinstance(error, ConnectionError) and not answer.last and self._mend(error):
                return
            self._open.remove(answer)
            answer.inner = _NOBODY  # the two know each other: a circle would keep what has arrived
        answer.complete(inner)

    def _send(self, answer: "_Answer[Any]") -> None:
        try:
            answer.inner = inner = self._channel.call(answer.frames)
        except ConnectionError as error:
            answer.inner = inner = _failed(error)
        except BaseException:
            with self._lock:
                self._open.remove(answer)
            raise
        then(inner, answer.arrived)

    def _mend(self, error: Exception) -> bool:
        """Have the connection made again; False where nobody wants it any more. With the lock held."""
        if self._closing.is_set() or not self._pauses_s or (self._broken and not self._mending):
            return False
        self._torn = True
        if not self._mending:
            self._broken = error
            self._mending = threading.Thread(target=self._try_again, name="minips-mend", daemon=True)
            self._mending.start()
        return True

    def _try_again(self) -> None:
        for pause in self._pauses_s:
            if self._closing.wait(pause):
                break
            try:
                self._channel.close()
                self._channel = self._connect()
                self._resume(self._channel)
            except OSError:  # nobody there yet, or gone again
                continue
            except Exception as error:
                self._broken = error
                break
            if self._send_again():
                return
        with self._lock:
            self._mending = None
            answers, self._open = self._open, deque()
        for answer in answers:
            answer.complete(_failed(self._broken))

    def _send_again(self) -> bool:
        """Send what has not been answered; False where the new connection broke too."""
        with self._sending:
            with self._lock:
                answers, self._torn = list(self._open), False
            for answer in answers:
                if not self._torn:  # what comes after the one that broke must not overtake it
                    self._send(answer)
            with self._lock:
                if self._torn:
                    return False
                self._mending, self._broken = None, None
        for answer in answers:
            answer.attend()  # who waits for it has waited for the connection that broke
        return True


_NOBODY: "Future[Frames]" = Future()


def _failed(error: BaseException | None) -> "Future[Frames]":
    future: Future[Frames] = Future()
    future.set_exception(error)
    return future


class _Answer(Driven[T]):
    """What a call will be answered with, over whichever connection; ``inner`` is that over the last one."""

    def __init__(self, channel: LastingChannel, frames: Frames, finish: Finish[T], last: bool) -> None:
        super().__init__()
        self.channel, self.frames, self.finish, self.last = channel, frames, finish, last
        self.inner = _NOBODY

    def arrived(self, inner: "Future[Frames]") -> None:
        """``inner`` is done."""
        self.channel.settle(self, inner)

    def complete(self, inner: "Future[Frames]") -> None:
        """With what came of the call in the end."""
        try:
            result = self.finish(inner)
        except Exception as error:
            self.set_exception(error)
        else:
            self.set_result(result)

    def drive(self, timeout: float | None) -> None:
        inner = self.inner
        if isinstance(inner, Driven):
            inner.drive(timeout)

    def attend(self) -> None:
        inner = self.inner
        if isinstance(inner, Driven):
            inner.attend()
