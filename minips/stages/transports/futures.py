"""Futures completed by the thread that waits for them."""

import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from minips.stages.transports.patience import TICK_S

_MAKING = threading.Lock()
"""Held while a future's lock is created."""
T = TypeVar("T")


class Driven(Future[T]):
    """A future completed by the thread that waits for it or, on demand, by a background thread.

    Handing an answer from one thread to another takes longer than reading a small answer. So a thread that waits for
    such a future does the future's work, ``drive``. If no thread waits, ``attend`` starts that work in the background.
    The lock is created only if a thread other than the completing one has to wait or asks for a callback.
    """

    _state, _result, _exception = "PENDING", None, None
    _made: threading.Condition | None = None
    _waiting: list[Any] | None = None
    _calls: list[Callable[[Any], object]] | None = None

    def __init__(self) -> None:
        """Create nothing yet: everything that a future needs is created on demand."""

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        """The lock. The completer sets the state, then checks for it; a waiter creates it, then rechecks the state."""
        if self._made is None:
            with _MAKING:
                self._made = self._made or threading.Condition()
        return self._made

    @property
    def _done_callbacks(self) -> list[Callable[[Any], object]]:
        """Return the functions to call when it is done. `Future` reads them with the lock held, or after completion."""
        if self._calls is None:
            self._calls = []
        return self._calls

    def set_result(self, result: T) -> None:
        self._complete(result, None)

    def set_exception(self, exception: BaseException | None) -> None:
        self._complete(None, exception)

    def _complete(self, result: T | None, error: BaseException | None) -> None:
        self._result, self._exception = result, error
        self._state = "FINISHED"
        if self._made is not None:
            with self._made:
                for waiter in self._waiting or ():
                    (waiter.add_exception if self._exception else waiter.add_result)(self)
                self._made.notify_all()
        if self._calls:
            self._invoke_callbacks()  # type: ignore[attr-defined]

    def __await__(self) -> Generator[Any, None, T]:
        """Let asyncio's event loop continue while the caller waits. Cancelling ends only the wait: the sent message
        still counts, and ``result()`` can still return the answer.
        """
        import asyncio

        return asyncio.wrap_future(self).__await__()

    def drive(self, deadline: float | None) -> None:
        """Work until done or past ``deadline`` (``time.monotonic``). Return immediately if another thread works."""
        raise NotImplementedError

    def attend(self) -> None:
        """Let a background thread complete it."""
        raise NotImplementedError

    def completed(self) -> bool:
        """Return True if it holds a result or an error. Unlike ``done``, it does not call `attend`."""
        return self._state == "FINISHED"  # it is never cancelled, and reading this needs no lock

    def done(self) -> bool:
        if self.completed():
            return True
        self.attend()  # since a caller that polls does not drive it
        return False

    def cancel(self) -> bool:
        """Return False: a message that was sent cannot be recalled."""
        return False

    def result(self, timeout: float | None = None) -> T:
        deadline = None if timeout is None else time.monotonic() + timeout
        if self._state != "FINISHED":
            self.drive(deadline)
        if self._state == "FINISHED" and self._exception is None:
            return self._result  # type: ignore[return-value]
        try:
            return super().result(None if deadline is None else max(deadline - time.monotonic(), 0.0))
        except TimeoutError:
            if self.completed() or timeout is None or deadline is None:  # the answer itself was a TimeoutError
                raise
            if time.monotonic() - deadline > TICK_S:  # this process was late, and has not read since
                return self.result(timeout)
            raise TimeoutError(
                f"No answer came within {timeout:g} seconds. Are the other side and everything it waits for running?"
            ) from None

    def exception(self, timeout: float | None = None) -> BaseException | None:
        with suppress(Exception):
            self.result(timeout)
        return super().exception(0.0)

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        super().add_done_callback(fn)
        if not self.completed():
            self.attend()

    def then(self, fn: Callable[[Any], object]) -> None:
        """Call ``fn`` when it is done, in any thread that completes it."""
        super().add_done_callback(fn)

    @property
    def _waiters(self) -> list[Any]:
        """Return the waiters for `concurrent.futures.wait`, which cannot drive it: a background thread takes over."""
        if not self.completed():
            self.attend()
        if self._waiting is None:
            self._waiting = []
        return self._waiting

    @_waiters.setter
    def _waiters(self, waiters: list[Any]) -> None:
        self._waiting = waiters
