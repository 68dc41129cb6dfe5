"""Transports over streams: connections that stay open, on which messages follow each other.

A `Wire` is one end of a connection: whole messages, in order. `StreamTransport` makes a transport of a way to listen
and a way to dial: a thread for each connection on the server, and on the client a channel on which many calls may be
outstanding. Answers come in the order of the calls.
"""

import threading
import time
import weakref
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

from minips.stage import Frames, reason
from minips.stages.transports.auth import challenge, proved
from minips.stages.transports.base import (
    COMMON,
    HANDSHAKE_S,
    Caller,
    Channel,
    Connection,
    Endpoint,
    Handler,
    Service,
    Transport,
    remote_error,
    service_of,
    then,
)
from minips.stages.transports.wire import (
    CALL,
    ERROR,
    MOST_FRAMES,
    POOL,
    Acceptor,
    Interruptible,
    Listener,
    Wire,
    check_count,
)

_MAKING = threading.Lock()
"""Held while a future's lock is made."""
T = TypeVar("T")
P = TypeVar("P", bound=Interruptible)


class Driven(Future[T]):
    """A future that is completed by the thread that waits for it, or in the background once that is wanted.

    To hand an answer from one thread to another takes longer than to read a small answer. So the thread that waits for
    such a future works for it itself, ``drive``; for one that no thread waits for, ``attend`` has that done. A lock is
    made where another thread than the one that completes it has to wait, or asks to be called.
    """

    _state, _result, _exception = "PENDING", None, None
    _made: threading.Condition | None = None

    def __init__(self) -> None:
        self._waiting: list[Any] = []
        self._done_callbacks: list[Callable[[Any], object]] = []

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        """A future's lock. What is set before it is looked for, and looked at after it was made, is seen by both."""
        if self._made is None:
            with _MAKING:
                self._made = self._made or threading.Condition()
        return self._made

    def set_result(self, result: T) -> None:
        self._complete(result, None)

    def set_exception(self, exception: BaseException | None) -> None:
        self._complete(None, exception)

    def _complete(self, result: T | None, error: BaseException | None) -> None:
        self._result, self._exception = result, error
        self._state = "FINISHED"
        if self._made is not None:
            with self._made:
                for waiter in self._waiting:
                    (waiter.add_exception if self._exception else waiter.add_result)(self)
                self._made.notify_all()
        if self._done_callbacks:
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
        """The waiters of `concurrent.futures.wait`. It adds its own, which waits without a call that could be driven:
        so the future is attended from then on.
        """
        if not self.completed():
            self.attend()
        return self._waiting

    @_waiters.setter
    def _waiters(self, waiters: list[Any]) -> None:
        self._waiting = waiters


def _left(deadline: float | None) -> float | None:
    """Seconds until a moment of ``time.monotonic``; None where there is none."""
    return None if deadline is None else max(deadline - time.monotonic(), 0.0)


class Then(Driven[T]):
    """The future of ``fn(future)``, called when ``future`` is done, in the thread that completes it."""

    def __init__(self, future: "Future[Any]", fn: Callable[["Future[Any]"], T]) -> None:
        super().__init__()
        self._future: Future[Any] | None = future
        self._fn = fn
        then(future, self._arrived)

    def drive(self, deadline: float | None) -> None:
        if isinstance(future := self._future, Driven):
            future.drive(deadline)

    def attend(self) -> None:
        if isinstance(future := self._future, Driven):
            future.attend()

    def _arrived(self, future: "Future[Any]") -> None:
        self._future = None  # which knows this one: a circle would keep what has arrived until it is swept up
        try:
            result = self._fn(future)
        except Exception as error:
            self.set_exception(error)
        else:
            self.set_result(result)


class StreamTransport(Transport):
    """A transport made of a listener and a dial."""

    @abstractmethod
    def listen(self, address: str | None) -> Listener:
        """Take connections at ``address``, or at a fresh local one."""

    @abstractmethod
    def dial(self, address: str, timeout: float) -> Wire:
        """Connect to a listener."""

    def serve(self, handler: Handler | Service, address: str | None = None, token: str = "") -> Endpoint:
        return ThreadedEndpoint(self.listen(address), partial(_answer_calls, service_of(handler), token))

    def connect(self, address: str, token: str = "", timeout: float = 10.0) -> Channel:
        return StreamChannel(proved(self.dial(address, timeout), token, address, timeout), address)


class ThreadedEndpoint(Endpoint, Generic[P]):
    """One thread that accepts, and one for each connection, in which ``talk`` answers the peer until it is gone."""

    def __init__(self, listener: Acceptor[P], talk: Callable[[P], None]) -> None:
        self.address = listener.address
        self._listener, self._talk, self._lock, self._closing = listener, talk, threading.Lock(), False
        self._wires = weakref.WeakKeyDictionary[threading.Thread, P]()  # a thread that has ended is forgotten
        self._accepting = threading.Thread(target=self._accept, name=f"minips-accept-{self.address}", daemon=True)
        try:
            self._accepting.start()
        except RuntimeError:
            listener.close()
            raise

    def close(self) -> None:
        with self._lock:
            self._closing = True
            wires = dict(self._wires)
        self._listener.shutdown()
        for wire in wires.values():
            wire.shutdown()
        deadline = time.monotonic() + HANDSHAKE_S
        for thread in (self._accepting, *wires):
            if thread is not threading.current_thread():
                thread.join(max(deadline - time.monotonic(), 0.0))

    def _accept(self) -> None:
        try:
            while not self._closing:
                self._accept_one()
        finally:
            self._listener.close()

    def _accept_one(self) -> None:
        try:
            peer = self._listener.accept()
        except OSError:
            time.sleep(0 if self._closing else 0.05)  # out of descriptors, perhaps: give the others time to let some go
            return
        thread = threading.Thread(target=self._talk, args=(peer,), name=f"minips-serve-{self.address}", daemon=True)
        with self._lock:
            if not self._closing:
                self._wires[thread] = peer
                try:
                    thread.start()
                    return
                except RuntimeError as error:
                    del self._wires[thread]
                    words = f"{error}. Is there a limit on threads or on memory (ulimit -u, ulimit -v)?"
                    if isinstance(peer, Wire):
                        with suppress(OSError):
                            peer.send(*_refusal(RuntimeError(f"The server cannot serve one more connection: {words}")))
        peer.close()


def _answer_calls(service: Service, token: str, first: Wire) -> None:
    """Answer the calls that come over a wire, one after the other, until the peer is gone."""
    wire: Wire | None = first
    connection: Connection | None = None
    try:
        challenge(first, token, HANDSHAKE_S)
        try:
            while wire:
                tag, frames = wire.receive()
                if tag == POOL:
                    wire = wire.join(frames)
                else:
                    connection = connection or service.connection()
                    answer = answer_of(connection, frames)
                    del frames  # before the answer leaves, so that their memory is free by the next call
                    try:
                        wire.send(*answer)
                    except RuntimeError as error:  # this side could not even begin to send it
                        wire.send(*_refusal(error))
                    del answer
        finally:
            if connection:
                connection.closed()
    except (EOFError, OSError, ValueError):
        pass  # the peer went away, talked nonsense or did not know the token: the other connections go on
    finally:
        if wire:
            wire.close()


def answer_of(connection: Connection, frames: Frames) -> tuple[int, Frames]:
    """Tag and frames of what the handler says to a call."""
    try:
        answer = connection.answer(frames)
        if len(answer) > MOST_FRAMES:
            check_count(len(answer))
        return CALL, answer
    except Exception as error:
        return _refusal(error)


def _refusal(error: Exception) -> tuple[int, Frames]:
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
                    thread = threading.Thread(
                        target=self._read_in_background, name=f"minips-read-{self._address}", daemon=True
                    )
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
