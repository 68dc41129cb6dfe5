"""Calls over a connection that stays open and carries one message after another.

A `Wire` is one end of a connection that carries whole messages in order. A `StreamChannel` makes calls over it, and
many calls may be outstanding. `answer_of` answers a call. Answers arrive in the order of the calls.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from minips.stage import Frames
from minips.stages.transports.base import COMMON, HANDSHAKE_S, Caller, Channel, Connection, Reply, remote_error
from minips.stages.transports.framing import MOST_FRAMES, TooLargeError, check_count
from minips.stages.transports.futures import CallFuture
from minips.stages.transports.wire import CALL, ERROR, Wire
from minips.words import message_of


def answer_of(connection: Connection, frames: Frames, reply: Reply | None = None) -> tuple[int, Frames]:
    """Return the tag and frames of the handler's answer to a call. It may be `DEFERRED` if there is a ``reply``."""
    try:
        answer = connection.begin(frames, reply) if reply else connection.answer(frames)
        if len(answer) > MOST_FRAMES:
            check_count(len(answer))
        return CALL, answer
    except Exception as error:
        return refusal(error)


def refusal(error: Exception) -> tuple[int, Frames]:
    """Return the tag and frames that report an error to the caller, in at most 2,000 characters."""
    kind = next((one for one in COMMON if isinstance(error, one)), type(error))
    return ERROR, [kind.__name__.encode(), f"{message_of(error):.2000}".encode(errors="backslashreplace")]


class StreamChannel(Channel):
    """Calls are sent under a lock. Their answers arrive in the same order, and are read by one thread at a time.

    A thread that waits for an answer reads the wire until that answer has arrived, and passes those before it to their
    callers. The background thread reads only after `attend`. The channel itself uses `attend` if several calls are
    outstanding, so that answers arrive while calls are being sent. A caller uses it if no thread waits for its answer.
    """

    def __init__(self, wire: Wire, address: str) -> None:
        self._wire, self._address = wire, address
        self._sending, self._reading = threading.Lock(), threading.RLock()
        """The locks that the sending thread and the reading thread hold."""
        self._waiting: deque[Caller] = deque()
        """The callers of the calls that were sent but have not been answered, in order."""
        self._gone: Exception | None = None
        """The reason why this channel sends no more calls."""
        self._wake = threading.Event()
        self._background = threading.Thread(target=self._read_all, name=f"minips-read-{address}", daemon=True)
        try:
            self._background.start()
        except RuntimeError:  # no thread can be started
            wire.close()
            raise

    def call(self, frames: Frames) -> CallFuture[Frames]:
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
                self.attend()
            self._waiting.append(caller)
            try:
                self._wire.send(CALL, frames)
            except BaseException as error:
                self._wire.shutdown()  # a partly sent message cannot be recalled
                self.attend()  # the reader finds the end of the stream, and fails all waiting calls
                if not isinstance(error, OSError):
                    with suppress(ValueError):
                        self._waiting.remove(caller)
                    raise

    def read(self, until: Callable[[], bool], deadline: float | None) -> None:
        if self._reading.acquire(blocking=False):
            try:
                while not until() and self._read_one(deadline):
                    pass
            finally:
                self._reading.release()
                if self._waiting:  # a thread that found this one reading may wait for the next answer
                    self.attend()

    def attend(self) -> None:
        self._wake.set()

    def close(self) -> None:
        self._end(ConnectionError(f"The channel to {self._address} is closed."))
        if self._background is not threading.current_thread():
            self._background.join(HANDSHAKE_S)
        if self._reading.acquire(timeout=HANDSHAKE_S):
            self._wire.close()
            self._reading.release()

    def _read_all(self) -> None:
        """Read in the background. After each request, read until no call waits for its answer."""
        while not self._gone:
            self._wake.wait()
            self._wake.clear()
            with self._reading:
                while self._waiting and self._read_one(None):
                    pass

    def _read_one(self, deadline: float | None) -> bool:
        """Pass the next answer to its caller. Return False if none arrived in time, or none can arrive anymore."""
        try:
            tag, frames = self._wire.receive(None if deadline is None else max(deadline - time.monotonic(), 0.0))
            caller = self._waiting.popleft()
        except TimeoutError:
            return False
        except Exception as error:  # the server is gone, or its message is malformed or answers no call
            gone = ConnectionError(f"The server at {self._address} closed the connection. {error}".strip())
            self._end(gone, error if isinstance(error, TooLargeError) else None)
            return False
        if tag == CALL:
            caller.arrived(frames)
        else:
            caller.failed(remote_error(frames))
        return True

    def _end(self, gone: Exception, first: Exception | None = None) -> None:
        """Fail all waiting calls and all later ones; ``first`` is the first call's own error, if it has one."""
        self._gone = self._gone or gone
        self._wire.shutdown()  # before the lock: a stuck sender holds it
        self._wake.set()  # ends the background thread
        while caller := self._next_waiting():
            caller.failed(first or self._gone)
            first = None

    def _next_waiting(self) -> Caller | None:
        with self._sending:  # a call that is being sent waits, too
            return self._waiting.popleft() if self._waiting else None


class _Answer(CallFuture[Frames]):
    """The future of a call over a channel; it is the call's `Caller`."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel

    arrived, failed = CallFuture.set_result, CallFuture.set_exception

    def drive(self, deadline: float | None) -> None:
        self._channel.read(self.completed, deadline)

    def attend(self) -> None:
        self._channel.attend()
