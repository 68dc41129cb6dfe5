"""Calls over a connection that stays open, on which messages follow each other.

A `Wire` is one end of a connection: whole messages, in order. A `StreamChannel` makes calls over it, of which many may
be outstanding, and `answer_of` answers one. Answers come in the order of the calls.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from minips.stage import Frames, reason
from minips.stages.transports.base import COMMON, HANDSHAKE_S, Caller, Channel, Connection, remote_error
from minips.stages.transports.wire import CALL, ERROR, MOST_FRAMES, Wire, check_count

_MAKING = threading.Lock()
"""Held while a future's lock is made."""
T = TypeVar("T")


class Driven(Future[T]):
    """A future that is completed by the thread that waits for it, or in the background once that is wanted.

    To hand an answer from one thread to another takes longer than to read a small answer. So the thread that waits for
    such a future works for it itself, ``drive``; for one that no thread waits for, ``attend`` has that done. A lock is
    made where another thread than the one that completes it has to wait, or asks to be called.
    """

    _state, _result, _exception = "PENDING", None, None
    _made: threading.Condition | None = None
    _waiting: list[Any] | None = None
    _calls: list[Callable[[Any], object]] | None = None

    def __init__(self) -> None:
        """All that a future has is made where it is wanted."""

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        """A future's lock. What is set before it is looked for, and looked at after it was made, is seen by both."""
        if self._made is None:
            with _MAKING:
                self._made = self._made or threading.Condition()
        return self._made

    @property
    def _done_callbacks(self) -> list[Callable[[Any], object]]:
        """The functions that are called when it is done. `Future` asks for them with the lock held, or afterwards."""
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
        """In a program of asyncio: the event loop goes on meanwhile. Who is cancelled waits no longer; what has been
        sent counts all the same, and ``result()`` still has the answer.
        """
        import asyncio

        return asyncio.wrap_future(self).__await__()

    def drive(self, deadline: float | None) -> None:
        """Work until it is done, or up to this moment of ``time.monotonic``; at once where another thread does."""
        raise NotImplementedError

    def attend(self) -> None:
        """Have it completed in the background."""
        raise NotImplementedError

    def completed(self) -> bool:
        """True once it holds a result or an error. Unlike ``done``, it has nothing done about that."""
        return self._state == "FINISHED"  # it is never cancelled, and a look needs no lock

    def done(self) -> bool:
        if self.completed():
            return True
        self.attend()  # for one that asks again and again
        return False

    def cancel(self) -> bool:
        """False: what has been sent cannot be taken back."""
        return False

    def result(self, timeout: float | None = None) -> T:
        deadline = None if timeout is None else time.monotonic() + timeout
        if self._state != "FINISHED":
            self.drive(deadline)
        if self._state == "FINISHED" and self._exception is None:
            return self._result  # type: ignore[return-value]
        try:
            return super().result(_left(deadline))
        except TimeoutError:
            if self.completed() or timeout is None:  # then it is what the call was answered with
                raise
            raise TimeoutError(
                f"No answer came within {timeout:g} seconds. Is the other side running, and what it waits for itself?"
            ) from None

    def exception(self, timeout: float | None = None) -> BaseException | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        if not self.completed():
            self.drive(deadline)
        return super().exception(_left(deadline))

    def add_done_callback(self, fn: Callable[[Any], object]) -> None:
        super().add_done_callback(fn)
        if not self.completed():
            self.attend()

    def then(self, fn: Callable[[Any], object]) -> None:
        """Call ``fn`` when it is done, whichever thread completes it, and whenever."""
        super().add_done_callback(fn)

    @property
    def _waiters(self) -> list[Any]:
        """For `concurrent.futures.wait`, which makes no call that could be driven: it is attended from then on."""
        if not self.completed():
            self.attend()
        if self._waiting is None:
            self._waiting = []
        return self._waiting

    @_waiters.setter
    def _waiters(self, waiters: list[Any]) -> None:
        self._waiting = waiters


def _left(deadline: float | None) -> float | None:
    """Seconds until a moment of ``time.monotonic``; None where there is none."""
    return None if deadline is None else max(deadline - time.monotonic(), 0.0)


def answer_of(connection: Connection, frames: Frames) -> tuple[int, Frames]:
    """Tag and frames of what the handler says to a call."""
    try:
        answer = connection.answer(frames)
        if len(answer) > MOST_FRAMES:
            check_count(len(answer))
        return CALL, answer
    except Exception as error:
        return refusal(error)


def refusal(error: Exception) -> tuple[int, Frames]:
    """Tag and frames that tell the caller of an error."""
    kind = next((one for one in COMMON if isinstance(error, one)), type(error))
    return ERROR, [kind.__name__.encode(), reason(error).encode()]


class StreamChannel(Channel):
    """Calls go out under a lock, and the answers come back in the same order.

    A thread that waits for an answer reads the wire itself, and hands out the answers that come before its own: no
    thread has to wake another. A thread in the background, which starts when it is first needed, reads where several
    calls are under way and where an answer is to come that no thread waits for.
    """

    def __init__(self, wire: Wire, address: str) -> None:
        self._wire, self._address = wire, address
        self._sending, self._reading = threading.Lock(), threading.RLock()
        self._gone: Exception | None = None
        self._waiting: deque[Caller] = deque()
        self._starting, self._wake = threading.Lock(), threading.Event()
        self._background: threading.Thread | None = None

    def call(self, frames: Frames) -> "Future[Frames]":
        answer = _Answer(self)
        self.ask(frames, answer)
        return answer

    def ask(self, frames: Frames, caller: Caller) -> None:
        if len(frames) > MOST_FRAMES:
            check_count(len(frames))
        with self._sending:
            if self._gone:
                raise ConnectionError(str(self._gone))
            if self._waiting:
                self.attend()  # which may find that no thread can be started: before anything waits for an answer
            self._waiting.append(caller)
            try:
                self._wire.send(CALL, frames)
            except OSError:  # the reader finds the end of the stream, and tells all that wait
                self._wire.shutdown()
                self.attend()
            except BaseException:
                with suppress(ValueError):
                    self._waiting.remove(caller)
                self._wire.shutdown()  # a message sent in part cannot be taken back
                self.attend()
                raise
            finally:
                if self._gone:  # since it was looked at: no thread reads any more
                    self._fail(self._gone)

    def close(self) -> None:
        self._wire.shutdown()  # before the lock: a sender that is stuck holds it
        with self._sending:
            self._gone = self._gone or ConnectionError(f"The channel to {self._address} is closed.")
        self._wake.set()
        if self._background and self._background is not threading.current_thread():
            self._background.join(HANDSHAKE_S)
        if self._reading.acquire(timeout=HANDSHAKE_S):
            self._fail(self._gone)
            self._wire.close()
            self._reading.release()

    def read(self, until: Callable[[], bool], deadline: float | None) -> None:
        if self._reading.acquire(blocking=False):
            try:
                while not until() and self._read_one(deadline):
                    pass
            finally:
                self._reading.release()
                if self._waiting:
                    self.attend()

    def attend(self) -> None:
        if not self._background:
            with self._starting:
                if not self._background and not self._gone:
                    name = f"minips-read-{self._address}"
                    thread = threading.Thread(target=self._read_in_background, name=name, daemon=True)
                    thread.start()
                    self._background = thread
        self._wake.set()

    def _read_in_background(self) -> None:
        while not self._gone:
            self._wake.wait()
            self._wake.clear()
            with self._reading:
                while self._waiting and not self._gone and self._read_one(None):
                    pass

    def _read_one(self, deadline: float | None) -> bool:
        """Take one message off the wire; False where there was none in time, or will be none any more."""
        try:
            tag, frames = self._wire.receive(None if deadline is None else max(deadline - time.monotonic(), 0.0))
            caller = self._waiting.popleft()
        except TimeoutError:
            return False
        except (EOFError, OSError, ValueError, IndexError) as error:
            self._wire.shutdown()
            gone = ConnectionError(f"The server at {self._address} closed the connection. {error}".strip())
            self._gone = self._gone or gone
            self._fail(self._gone)
            return False
        if tag == CALL:
            caller.arrived(frames)
        else:
            caller.failed(remote_error(frames))
        return True

    def _fail(self, error: Exception) -> None:
        while self._waiting:
            self._waiting.popleft().failed(error)


class _Answer(Driven[Frames]):
    """The future of a call's answer."""

    def __init__(self, channel: StreamChannel) -> None:
        super().__init__()
        self._channel = channel

    arrived, failed = Driven.set_result, Driven.set_exception

    def drive(self, deadline: float | None) -> None:
        self._channel.read(self.completed, deadline)

    def attend(self) -> None:
        self._channel.attend()
