"""Calls over a connection that stays open and carries one message after another.

A `Wire` is one end of a connection: whole messages, in order. A `StreamChannel` makes calls over it, many of which may
be outstanding; `answer_of` answers a call. Answers arrive in the order of the calls.
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

from minips.stage import Frames
from minips.stages.transports.base import COMMON, HANDSHAKE_S, Caller, Channel, Connection, Reply, remote_error
from minips.stages.transports.framing import MOST_FRAMES, TooLargeError, check_count
from minips.stages.transports.futures import Driven
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
    """Calls are sent under a lock, and their answers come back in the same order.

    A thread that waits for an answer reads the wire itself, and delivers the answers that arrive before its own, so no
    thread has to wake another. A background thread, started when first needed, reads if several calls are outstanding
    or if no thread waits for an answer.
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
                self.attend()  # may find that no thread can be started; so called before anything waits
            self._waiting.append(caller)
            try:
                self._wire.send(CALL, frames)
            except OSError:  # the reader finds the end of the stream, and fails all waiting calls
                self._wire.shutdown()
                self.attend()
            except BaseException:
                with suppress(ValueError):
                    self._waiting.remove(caller)
                self._wire.shutdown()  # a partly sent message cannot be recalled
                self.attend()
                raise
            finally:
                if self._gone:  # gone since the check above: no thread reads anymore
                    self._fail(self._gone)

    def close(self) -> None:
        self._wire.shutdown()  # before the lock: a stuck sender holds it
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
        """Read one message from the wire. Return False if none arrived in time, or none will ever arrive."""
        try:
            tag, frames = self._wire.receive(None if deadline is None else max(deadline - time.monotonic(), 0.0))
            caller = self._waiting.popleft()
        except TimeoutError:
            return False
        except (EOFError, OSError, ValueError, IndexError) as error:
            self._wire.shutdown()
            gone = ConnectionError(f"The server at {self._address} closed the connection. {error}".strip())
            self._gone = self._gone or gone
            if isinstance(error, TooLargeError) and self._waiting:  # this is the first answer; others may follow
                self._waiting.popleft().failed(error)
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
