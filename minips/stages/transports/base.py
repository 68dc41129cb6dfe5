"""The contract of a transport, and what those that keep a connection open have in common.

A `Wire` is one end of one connection: whole messages, in order. `WireTransport` makes a transport of a way to listen
and a way to dial: a thread per connection on the server, so that a handler may block, and on the client a channel on
which many calls may be outstanding. Answers come in the order of the calls.
"""

import secrets
import threading
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import ClassVar, Protocol, cast

from minips.stage import Frames, Stage, reason
from minips.stages.transports.auth import answer_challenge, challenge
from minips.stages.transports.futures import Driven, then
from minips.stages.transports.wire import CALL, ERROR, POOL, Closable, Listener, Wire, check_count

Handler = Callable[[Frames], Frames]
"""What a server does with a call: frames in, frames out. What it raises reaches the caller's future."""


class Connection:
    """The server's side of one connection: what it does with each call, and with the end."""

    def answer(self, frames: Frames) -> Frames:
        """Frames in, frames out. What it raises reaches the caller's future."""
        raise NotImplementedError

    def closed(self) -> None:
        """The peer has gone."""


class Service:
    """A handler for which it matters who is asking: each connection has an object of its own."""

    def connection(self) -> Connection:
        """The object of a new connection."""
        raise NotImplementedError


class _Plain(Service, Connection):
    """A function that answers all connections alike."""

    def __init__(self, handler: Handler) -> None:
        self.answer = handler  # type: ignore[assignment,method-assign]

    def connection(self) -> Connection:
        return self


def service_of(handler: Handler | Service) -> Service:
    """``handler`` as a service."""
    return handler if isinstance(handler, Service) else _Plain(handler)


class Caller(Protocol):
    """What is told how a call has ended, once."""

    def arrived(self, frames: Frames) -> None:
        """With an answer."""

    def failed(self, error: Exception) -> None:
        """With the handler's error, or that of a connection that broke."""


COMMON = (ValueError, TypeError, KeyError, TimeoutError, PermissionError, ConnectionError, RuntimeError)
"""The errors of a handler that keep their type on the way to the caller; a subclass travels as the first of these."""
PATIENCE_S, MOST_PATIENCE_S, QUIET_LOOKS = 0.005, 0.16, 8
"""How often the background looks for answers that nobody reads: first, where for long it has found none, and after how
many looks without a call it sleeps.
"""
HANDSHAKE_S = 5.0
"""How long either side waits for the other's word while they authenticate each other."""


class Endpoint(Closable):
    """The serving side. ``address`` is what a client connects to."""

    address: str


class Channel(Closable):
    """The calling side of one connection."""

    @abstractmethod
    def call(self, frames: Frames) -> "Future[Frames]":
        """Send the frames and return at once; the future holds the answer's frames, or the handler's error.

        ConnectionError where the peer is gone, ValueError for more than 65,536 frames. The frames must not change
        before the answer has come.
        """

    def ask(self, frames: Frames, caller: Caller) -> None:
        """The same as ``call``, for one that is told of the answer and needs no future."""

        def told(future: "Future[Frames]") -> None:
            error = future.exception()
            if error is None:
                caller.arrived(future.result())
            else:
                caller.failed(cast(Exception, error))

        then(self.call(frames), told)

    def read(self, until: Callable[[], bool], timeout: float | None) -> None:
        """Read answers in this thread until ``until()``, or for ``timeout`` seconds; at once where another thread does
        that anyway.
        """

    def attend(self) -> None:
        """Have the answers read in the background, where that does not happen anyway."""


class Transport(Stage):
    """The contract of a transport."""

    kind: ClassVar[str] = "transport"
    scheme: ClassVar[str]
    """What an address of this transport starts with, before ``://``."""

    @abstractmethod
    def serve(self, handler: Handler | Service, address: str | None = None, token: str = "") -> Endpoint:
        """Answer calls at ``address`` (None: a fresh local one) from peers that know ``token``.

        Each connection has a thread of its own, so that the handler may block. OSError where the address cannot be had.
        """

    @abstractmethod
    def connect(self, address: str, token: str = "", timeout: float = 10.0) -> Channel:
        """A channel to the endpoint at ``address``. ConnectionError where nobody answers, PermissionError for a wrong
        token.
        """

    def rest(self, address: str) -> str:
        """The address without its scheme. ValueError where it is another transport's."""
        scheme, separator, rest = address.partition("://")
        if scheme != self.scheme or not separator:
            raise ValueError(
                f"{type(self).__name__} takes an address that starts with {self.scheme}://, got {address!r}."
            )
        return rest


class WireTransport(Transport):
    """A transport made of a listener and a dial."""

    @abstractmethod
    def listen(self, address: str | None) -> Listener:
        """Take connections at ``address``, or at a fresh local one."""

    @abstractmethod
    def dial(self, address: str, timeout: float) -> Wire:
        """Connect to a listener."""

    def serve(self, handler: Handler | Service, address: str | None = None, token: str = "") -> Endpoint:
        return WireEndpoint(self.listen(address), service_of(handler), token)

    def connect(self, address: str, token: str = "", timeout: float = 10.0) -> Channel:
        wire = self.dial(address, timeout)
        try:
            answer_challenge(wire, token, address, min(timeout, HANDSHAKE_S))
        except BaseException:
            wire.close()
            raise
        return WireChannel(wire, address)


class WireEndpoint(Endpoint):
    """One thread that accepts, and one for each connection."""

    def __init__(self, listener: Listener, service: Service, token: str) -> None:
        self.address = listener.address
        self._listener, self._service, self._token = listener, service, token
        self._lock = threading.Lock()
        self._closing = False
        self._wires: dict[threading.Thread, Wire] = {}
        self._accepting = threading.Thread(target=self._accept, name=f"minips-accept-{self.address}", daemon=True)
        self._accepting.start()

    def close(self) -> None:
        with self._lock:
            self._closing = True
            wires = dict(self._wires)
        self._listener.hang_up()
        for wire in wires.values():
            wire.hang_up()
        for thread in (self._accepting, *wires):
            if thread is not threading.current_thread():
                thread.join(HANDSHAKE_S)

    def _accept(self) -> None:
        try:
            while not self._closing:
                self._accept_one()
        finally:
            self._listener.close()

    def _accept_one(self) -> None:
        try:
            wire = self._listener.accept()
        except OSError:
            time.sleep(0 if self._closing else 0.05)  # out of descriptors, perhaps: give the others time to let some go
            return
        thread = threading.Thread(target=self._talk, args=(wire,), name=f"minips-serve-{self.address}", daemon=True)
        with self._lock:
            if not self._closing:
                self._wires[thread] = wire
                try:
                    thread.start()
                    return
                except RuntimeError as error:
                    del self._wires[thread]
                    words = f"{error}. Is there a limit on threads or on memory (ulimit -u, ulimit -v)?"
                    with suppress(OSError):
                        wire.send(*_refusal(RuntimeError(f"The server cannot serve one more connection: {words}")))
        wire.close()

    def _talk(self, first: Wire) -> None:
        wire: Wire | None = first
        connection: Connection | None = None
        try:
            challenge(first, self._token, HANDSHAKE_S)
            try:
                while wire:
                    tag, frames = wire.receive()
                    if tag == POOL:
                        wire = self._replace(wire.join(frames))
                    else:
                        connection = connection or self._service.connection()
                        answer = self._answer(frames, connection)
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
            self._replace(None)

    def _replace(self, wire: Wire | None) -> Wire | None:
        """What this thread serves from now on."""
        with self._lock:
            self._wires.pop(threading.current_thread(), None)
            if wire:
                self._wires[threading.current_thread()] = wire
        return wire

    def _answer(self, frames: Frames, connection: Connection) -> tuple[int, Frames]:
        """Tag and frames of what the handler says to a call."""
        try:
            answer = connection.answer(frames)
            check_count(len(answer))
            return CALL, answer
        except Exception as error:
            return _refusal(error)


def _refusal(error: Exception) -> tuple[int, Frames]:
    """Tag and frames that tell the caller of an error."""
    kind = next((one for one in COMMON if isinstance(error, one)), type(error))
    return ERROR, [kind.__name__.encode(), reason(error).encode()]


class WireChannel(Channel):
    """Calls go out under a lock, and the answers come back in the same order.

    Whoever waits for an answer reads the wire himself, and hands those who called before him theirs: no thread has to
    wake another. A thread in the background reads where several calls are under way, and looks now and then for an
    answer that nobody has come for.
    """

    def __init__(self, wire: Wire, address: str) -> None:
        self._wire, self._address = wire, address
        self._sending, self._reading = threading.Lock(), threading.Lock()
        self._gone: Exception | None = None
        self._waiting: deque[Caller] = deque()
        self._wake, self._asleep, self._now = threading.Event(), True, False
        self._background = threading.Thread(target=self._attend, name=f"minips-read-{address}", daemon=True)
        self._background.start()

    def call(self, frames: Frames) -> "Future[Frames]":
        answer = _Answer(self)
        self.ask(frames, answer)
        return answer

    def ask(self, frames: Frames, caller: Caller) -> None:
        check_count(len(frames))
        with self._sending:
            if self._gone:
                raise ConnectionError(str(self._gone))
            self._waiting.append(caller)
            if len(self._waiting) > 1 or not self._wire.resumes:
                self.attend()
            elif self._asleep:
                self._wake.set()
            try:
                self._wire.send(CALL, frames)
            except BaseException as error:
                self._wire.hang_up()  # a message sent in part cannot be taken back: all that wait will fail
                self.attend()
                if isinstance(error, OSError):
                    raise ConnectionError(f"The call to {self._address} could not be sent: {reason(error)}.") from error
                raise

    def close(self) -> None:
        self._wire.hang_up()  # before the lock: a sender that is stuck holds it
        with self._sending:
            self._gone = self._gone or ConnectionError(f"The channel to {self._address} is closed.")
        self._wake.set()
        if self._background is not threading.current_thread():
            self._background.join(HANDSHAKE_S)

    def read(self, until: Callable[[], bool], timeout: float | None) -> None:
        if self._wire.resumes and self._reading.acquire(blocking=False):
            deadline = None if timeout is None else time.monotonic() + timeout
            try:
                while not until() and self._read_one(deadline):
                    pass
            finally:
                self._reading.release()
                if self._waiting:
                    self.attend()

    def attend(self) -> None:
        self._now = True
        self._wake.set()

    def _attend(self) -> None:
        oldest, quiet, patience = 0, QUIET_LOOKS, PATIENCE_S
        while not self._gone:
            self._asleep = True
            if self._waiting or quiet < QUIET_LOOKS:  # looked at after asleep is set: who calls now wakes us
                self._asleep = False
            self._wake.wait(None if self._asleep else patience)
            self._wake.clear()
            first = self._first()
            patience = min(2 * patience, MOST_PATIENCE_S)
            if first and (self._now or first == oldest) and self._reading.acquire(blocking=False):
                self._now, patience = False, PATIENCE_S
                try:
                    while self._waiting and self._read_one(None):
                        pass
                finally:
                    self._reading.release()
            oldest, quiet = first, 0 if first else quiet + 1
        with self._reading:
            self._fail(self._gone)
            self._wire.close()

    def _first(self) -> int:
        """Which answer is waited for first, 0 where none is; not the answer, or its memory would stay in use."""
        try:
            return id(self._waiting[0])
        except IndexError:
            return 0

    def _read_one(self, deadline: float | None) -> bool:
        """Take one message off the wire; False where there was none in time, or will be none any more."""
        try:
            tag, frames = self._wire.receive(None if deadline is None else max(deadline - time.monotonic(), 0.0))
            answer = self._waiting.popleft()
        except TimeoutError:
            return False
        except (EOFError, OSError, ValueError, IndexError) as error:
            self._wire.hang_up()
            with self._sending:
                self._gone = self._gone or ConnectionError(
                    f"The server at {self._address} closed the connection. {error}".strip()
                )
            self._fail(self._gone)
            self._wake.set()
            return False
        if tag == ERROR:
            answer.failed(remote_error(frames))
        else:
            answer.arrived(frames)
        return True

    def _fail(self, error: Exception) -> None:
        while self._waiting:
            self._waiting.popleft().failed(error)


class _Answer(Driven[Frames]):
    """What a call will be answered with."""

    def __init__(self, channel: WireChannel) -> None:
        super().__init__()
        self._channel = channel

    arrived, failed = Driven.set_result, Driven.set_exception

    def drive(self, timeout: float | None) -> None:
        self._channel.read(self.done, timeout)

    def attend(self) -> None:
        self._channel.attend()


def remote_error(frames: Frames) -> Exception:
    """The handler's error, of the same type where the type is one of the common ones."""
    kind, text = ([bytes(frame).decode(errors="replace") for frame in frames] + ["", ""])[:2]
    for error in COMMON:
        if kind == error.__name__:
            return error(text)
    return RuntimeError(f"{kind}: {text}")


def fresh_name() -> str:
    """A name that nobody else uses, for a local address."""
    return f"minips-{secrets.token_hex(8)}"
