"""Futures whose waiter does the work.

To hand an answer from one thread to another takes longer than to read a small answer. So who waits for such a future
works for it himself, ``drive``; for one that nobody waits for, ``attend`` sees to it that somebody else does.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")


class Driven(Future[T]):
    """A future that is completed by whoever waits for it, or in the background once somebody wants to be called."""

    def drive(self, timeout: float | None) -> None:
        """Work until it is done, or for ``timeout`` seconds; at once where somebody else works for it already."""
        raise NotImplementedError

    def attend(self) -> None:
        """Have it completed in the background."""
        raise NotImplementedError

    def completed(self) -> bool:
        """True once it holds a result or an error. Unlike ``done``, it has nothing done about that."""
        return super().done()

    def done(self) -> bool:
        if super().done():
            return True
        self.attend()  # for one that asks again and again
        return False

    @property
    def _waiters(self) -> list[Any]:
        """Those of ``concurrent.futures.wait``, which wait without a call that could be driven."""
        if not super().done():
            self.attend()
        waiters: list[Any] = self.__dict__["_waiters"]
        return waiters

    @_waiters.setter
    def _waiters(self, waiters: list[Any]) -> None:
        self.__dict__["_waiters"] = waiters

    def cancel(self) -> bool:
        """False: what has been sent cannot be taken back."""
        return False

    def result(self, timeout: float | None = None) -> T:
        try:
            return super().result(timeout if self.completed() else self._driven(timeout))
        except TimeoutError:
            if self.completed() or timeout is None:  # then it is what the call was answered with
                raise
            raise TimeoutError(
                f"No answer came within {timeout:g} seconds. Is the other side running, and what it waits for itself?"
            ) from None

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return super().exception(timeout if self.completed() else self._driven(timeout))

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        super().add_done_callback(fn)
        if not self.completed():
            self.attend()

    def then(self, fn: Callable[[Any], object]) -> None:
        """Call ``fn`` when it is done, whoever completes it, and whenever."""
        super().add_done_callback(fn)

    def _driven(self, timeout: float | None) -> float | None:
        """Drive, and return the seconds that are left of ``timeout``."""
        began = time.monotonic()
        self.drive(timeout)
        return None if timeout is None else max(0.0, began + timeout - time.monotonic())


def then(future: "Future[T]", fn: Callable[["Future[T]"], object]) -> None:
    """Call ``fn`` with the future when it is done; nobody is set to work for that."""
    (future.then if isinstance(future, Driven) else future.add_done_callback)(fn)


class Then(Driven[T]):
    """The future of ``fn(future)``, called when ``future`` is done, by whoever completes that."""

    def __init__(self, future: "Future[Any]", fn: Callable[["Future[Any]"], T]) -> None:
        super().__init__()
        self._future: Future[Any] | None = future
        self._fn = fn
        then(future, self._arrived)

    def drive(self, timeout: float | None) -> None:
        future = self._future
        if isinstance(future, Driven):
            future.drive(timeout)

    def attend(self) -> None:
        future = self._future
        if isinstance(future, Driven):
            future.attend()

    def _arrived(self, future: "Future[Any]") -> None:
        self._future = None  # which knows this one: a circle would keep what has arrived until it is swept up
        try:
            result = self._fn(future)
        except Exception as error:
            self.set_exception(error)
        else:
            self.set_result(result)


class Joined(Driven[T]):
    """The future of ``finish(results)`` of several; it fails with the first of their errors, once all are done."""

    def __init__(self, futures: "Sequence[Future[Any]]", finish: Callable[[list[Any]], T]) -> None:
        super().__init__()
        self._futures, self._finish = list(futures), finish
        self._left, self._counting = len(futures), Lock()
        for future in futures:
            then(future, self._arrived)

    def drive(self, timeout: float | None) -> None:
        for future in self._futures:
            if isinstance(future, Driven) and not future.done():
                future.drive(timeout)

    def attend(self) -> None:
        for future in self._futures:
            if isinstance(future, Driven) and not future.done():
                future.attend()

    def _arrived(self, _: "Future[Any]") -> None:
        with self._counting:
            self._left -= 1
            if self._left:
                return
        done, self._futures = self._futures, []
        try:
            result = self._finish([future.result() for future in done])
        except Exception as error:
            self.set_exception(error)
        else:
            self.set_result(result)
