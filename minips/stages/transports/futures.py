"""The future of a call, which the waiting thread itself completes.

Handing an answer from one thread to another takes longer than reading a small answer. So a thread that waits for a
call also reads its answer. If no thread waits, as after ``done`` or ``add_done_callback``, a background thread reads.
"""

import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, TypeVar

from minips.stages.transports.patience import TICK_S

T = TypeVar("T")
_CREATING = threading.Lock()
"""Held while a future's lock is created."""


class CallFuture(Future[T]):
    """A future that is pending until the thread that reads the answer sets its result or its exception, once.

    Subclasses define two ways to complete it: ``drive``, in the thread that waits, and ``attend``, in the background.
    """

    _state, _result, _exception = "PENDING", None, None
    _lock: threading.Condition | None = None
    _waiting: list[Any]
    _done_callbacks: list[Callable[[Any], object]]

    def __init__(self) -> None:
        """Create nothing yet: most calls need neither a lock nor callbacks, whose creation would take some 2 % of a
        small message's round trip.
        """

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        """The lock of `Future`, for waits of other threads and for callbacks. It is created when it is first used."""
        if self._lock is None:
            with _CREATING:
                if self._lock is None:
                    self._waiting, self._done_callbacks = [], []
                    self._lock = threading.Condition()
        return self._lock

    def set_result(self, result: T) -> None:
        self._complete(result, None)

    def set_exception(self, exception: BaseException | None) -> None:
        self._complete(None, exception)

    def _complete(self, result: T | None, error: BaseException | None) -> None:
        self._result, self._exception = result, error
        self._state = "FINISHED"
        if self._lock is not None:  # a thread that creates it after this check finds the state
            with self._lock:
                for waiter in self._waiting:
                    (waiter.add_result if error is None else waiter.add_exception)(self)
                self._lock.notify_all()
            self._invoke_callbacks()  # type: ignore[attr-defined]

    def drive(self, deadline: float | None) -> None:
        """Read until the future is completed or ``deadline`` (``time.monotonic``) has passed. Return immediately if
        another thread reads; that thread completes the future.
        """
        raise NotImplementedError

    def attend(self) -> None:
        """Let a background thread complete this future."""
        raise NotImplementedError

    def completed(self) -> bool:
        """Return True if the future has a result or an exception. Unlike ``done``, this does not call ``attend``."""
        return self._state == "FINISHED"  # it is never cancelled

    def result(self, timeout: float | None = None) -> T:
        deadline = None if timeout is None else time.monotonic() + max(timeout, 0.0)
        while self._state != "FINISHED":
            self.drive(deadline)
            if self._state == "FINISHED":
                break
            left = TICK_S if deadline is None else min(max(deadline - time.monotonic(), 0.0), TICK_S)
            with self._condition:  # another thread reads
                if self._condition.wait_for(self.completed, left) or timeout is None or deadline is None:
                    continue
            late = time.monotonic() - deadline
            if late > TICK_S:  # this process was suspended: read what has arrived meanwhile
                deadline = time.monotonic() + timeout
            elif late >= 0:
                raise TimeoutError(
                    f"No answer came within {timeout:g} seconds. "
                    "Are the other side and everything it waits for running?"
                )
        if self._exception is None:
            return self._result  # type: ignore[return-value]
        return super().result()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        try:
            self.result(timeout)
        except BaseException:
            if not self.completed():
                raise
        return self._exception

    def __await__(self) -> Generator[Any, None, T]:
        """Let asyncio's event loop continue while the caller waits. Cancelling ends only the wait: the sent message
        still counts, and ``result()`` can still return the answer.
        """
        import asyncio

        return asyncio.wrap_future(self).__await__()

    def cancel(self) -> bool:
        """Return False: a message that was sent cannot be recalled."""
        return False

    def done(self) -> bool:
        if self.completed():
            return True
        self.attend()  # since a caller that polls does not drive it
        return False

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        super().add_done_callback(fn)
        if not self.completed():
            self.attend()

    @property
    def _waiters(self) -> list[Any]:
        """The waiters of `concurrent.futures.wait` and `as_completed`, which do not drive the future."""
        if not self.completed():
            self.attend()
        return self._waiting

    @_waiters.setter
    def _waiters(self, waiters: list[Any]) -> None:
        self._waiting = waiters
