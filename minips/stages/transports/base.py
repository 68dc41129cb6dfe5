"""The contract of a transport: it carries frames to a handler, and returns the handler's answer."""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import ClassVar, Protocol, Self, cast

from minips.stage import Frames, Stage

Handler = Callable[[Frames], Frames]
"""A server's function that answers a call: it receives and returns frames. Its errors reach the caller's future."""
Rest = Callable[[], object]
"""Sends the rest of a message. It may wait for the peer."""
Reply = Callable[[Frames | Exception], Rest | None]
"""Sends a deferred answer or an error, until it would have to wait for the peer. Returns a function for the rest."""
DEFERRED: Frames = []
"""`Connection.begin` returns this same list object if the answer will be sent later."""


class Closable(ABC):
    """Something that is closed explicitly or by ``with``."""

    @abstractmethod
    def close(self) -> None:
        """Free threads, sockets and memory. May be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class Connection:
    """The server's side of one connection: it answers each call, and is notified when the connection ends.

    A subclass defines ``answer`` or, if some answers must wait for other callers, ``begin``.
    """

    def answer(self, frames: Frames) -> Frames:
        """Return the frames of the answer to a call. Errors reach the caller's future."""
        deferred: SimpleQueue[Frames | Exception] = SimpleQueue()
        answer: Frames | Exception = self.begin(frames, deferred.put)
        if answer is DEFERRED:
            answer = deferred.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def begin(self, frames: Frames, reply: Reply) -> Frames:
        """Answer a call without waiting for other callers. If the answer must wait, return `DEFERRED`, and later pass
        the answer to ``reply`` once, from any thread. The next call arrives only after that.
        """
        return self.answer(frames)

    def cancel(self) -> None:
        """Called when the peer is gone, before ``closed``. A deferred answer must then be sent immediately."""

    def closed(self) -> None:
        """Called when the peer is gone."""


class Service:
    """A handler that distinguishes its callers. ``connection()`` returns a new object for each connection."""

    def __init__(self, connection: Callable[[], Connection]) -> None:
        self.connection = connection


def service_of(handler: Handler | Service) -> Service:
    """Return ``handler`` as a service; a plain function answers all connections in the same way."""
    if isinstance(handler, Service):
        return handler
    connection = Connection()
    connection.answer = handler  # type: ignore[assignment,method-assign]
    return Service(lambda: connection)


class Caller(Protocol):
    """The receiver of a call's outcome. Exactly one of its two methods is called, once."""

    def arrived(self, frames: Frames) -> None:
        """Receive the answer."""

    def failed(self, error: Exception) -> None:
        """Receive the handler's error, or the error of a broken connection."""


COMMON = (ValueError, TypeError, KeyError, TimeoutError, PermissionError, ConnectionError, RuntimeError)
"""A handler's errors that keep their type on the way to the caller; a subclass becomes the first type that fits."""
HANDSHAKE_S = 5.0
"""The longest time, in seconds, that either side waits for the other's message during authentication."""


class Endpoint(Closable):
    """The serving side of a transport. Clients connect to its ``address``."""

    address: str


class Channel(Closable):
    """The calling side of one connection."""

    @abstractmethod
    def call(self, frames: Frames) -> "Future[Frames]":
        """Send the frames and return immediately; the future receives the answer's frames, or the handler's error.

        ConnectionError if the peer is gone, ValueError for more than 65,536 frames. The frames must not change before
        the answer has arrived.
        """

    def ask(self, frames: Frames, caller: Caller) -> None:
        """Send the frames as ``call`` does, but pass the answer to ``caller`` instead of a future."""

        def pass_on(future: "Future[Frames]") -> None:
            error = future.exception()
            if error is None:
                caller.arrived(future.result())
            else:
                caller.failed(cast(Exception, error))

        self.call(frames).add_done_callback(pass_on)

    def read(self, until: Callable[[], bool], deadline: float | None) -> None:
        """Read answers in this thread until ``until()`` holds or the ``deadline`` of ``time.monotonic`` has passed.
        Return immediately if another thread is already reading.
        """

    def attend(self) -> None:
        """Start reading the answers in the background, unless a thread already reads them."""


class Transport(Stage):
    """The base class of transports."""

    kind: ClassVar[str] = "transport"
    reach: ClassVar[str] = "network"
    """The farthest peer it can connect: in the same ``process``, on the same ``machine``, or over a ``network``."""
    scheme: ClassVar[str]
    """The part of this transport's addresses before ``://``."""

    @abstractmethod
    def serve(self, handler: Handler | Service, address: str | None = None, token: str = "") -> Endpoint:
        """Answer calls at ``address`` (None: a fresh local address) from peers that know ``token``.

        Each connection has its own thread, so the handler may block. OSError if the address cannot be used.
        """

    @abstractmethod
    def connect(self, address: str, token: str = "", timeout: float = 10.0) -> Channel:
        """Return a channel to the endpoint at ``address``.

        ConnectionError if no server answers, PermissionError for a wrong token.
        """

    def plain(self, address: str | None, file: str, plaintext: bool) -> bool:
        """Return True if ``address`` is public and lacks this TLS ``file``; unless ``plaintext``, raise ValueError."""
        return False

    def rest(self, address: str) -> str:
        """Return the address without its scheme. ValueError for another transport's address."""
        scheme, separator, rest = address.partition("://")
        if scheme != self.scheme or not separator:
            takes = f"{type(self).__name__} takes an address that starts with {self.scheme}://"
            raise ValueError(f"{takes}, got {address!r}.")
        return rest


def remote_error(frames: Frames) -> Exception:
    """Rebuild the handler's error. It keeps its type if that type is in `COMMON`; otherwise it is a RuntimeError."""
    kind, text = ([bytes(frame).decode(errors="replace") for frame in frames] + ["", ""])[:2]
    for error in COMMON:
        if kind == error.__name__:
            return error(text)
    return RuntimeError(f"{kind}: {text}")


def fresh_name() -> str:
    """Return an unused name for a local address."""
    return f"minips-{secrets.token_hex(8)}"


def check_token(token: object) -> None:
    """Raise TypeError for a token that is not text, ValueError for an empty token, which would admit every peer."""
    error = None if isinstance(token, str) else TypeError
    if error or not token:
        got = type(token).__name__ if error else "an empty one"  # not its value, which may be a secret anyway
        raise (error or ValueError)(
            f"A token is a text that is not empty, the same for a server and its clients; got {got}. A server that is "
            "served without a token makes one: pass its server.token to connect."
        )
