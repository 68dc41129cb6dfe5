"""The contract of a transport: it brings frames to a handler, and the handler's answer back."""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ClassVar, Protocol, Self, cast

from minips.stage import Frames, Stage

Handler = Callable[[Frames], Frames]
"""A server's function for a call: frames in, frames out. Its errors reach the caller's future."""


class Closable(ABC):
    """Something to close, by hand or by ``with``."""

    @abstractmethod
    def close(self) -> None:
        """Free threads, sockets and memory. Safe to call twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class Connection:
    """The server's side of one connection: it answers each call, and learns of the end."""

    def answer(self, frames: Frames) -> Frames:
        """Frames in, frames out. Errors reach the caller's future."""
        raise NotImplementedError

    def closed(self) -> None:
        """Called once the peer has gone."""


class Service:
    """A handler that tells its callers apart: ``connection()`` makes the object for each new connection."""

    def __init__(self, connection: Callable[[], Connection]) -> None:
        self.connection = connection


def service_of(handler: Handler | Service) -> Service:
    """``handler`` as a service; a plain function answers all connections alike."""
    if isinstance(handler, Service):
        return handler
    connection = Connection()
    connection.answer = handler  # type: ignore[assignment,method-assign]
    return Service(lambda: connection)


def then(future: "Future[Any]", fn: Callable[["Future[Any]"], object]) -> None:
    """Call ``fn`` with the future when it is done, without starting a thread."""
    getattr(future, "then", future.add_done_callback)(fn)


class Caller(Protocol):
    """The receiver of a call's outcome; one of the two methods is called, once."""

    def arrived(self, frames: Frames) -> None:
        """Take the answer."""

    def failed(self, error: Exception) -> None:
        """Take the handler's error, or that of a broken connection."""


COMMON = (ValueError, TypeError, KeyError, TimeoutError, PermissionError, ConnectionError, RuntimeError)
"""Errors of a handler that keep their type on the way to the caller; a subclass travels as the first that fits."""
HANDSHAKE_S = 5.0
"""How long either side waits for the other's message while they authenticate each other."""


class Endpoint(Closable):
    """The serving side. Clients connect to its ``address``."""

    address: str


class Channel(Closable):
    """The calling side of one connection."""

    @abstractmethod
    def call(self, frames: Frames) -> "Future[Frames]":
        """Send the frames and return at once; the future holds the answer's frames, or the handler's error.

        ConnectionError where the peer is gone, ValueError for more than 65,536 frames. The frames must not change
        before the answer has arrived.
        """

    def ask(self, frames: Frames, caller: Caller) -> None:
        """As ``call``, but the answer goes to ``caller``, without a future."""

        def pass_on(future: "Future[Frames]") -> None:
            error = future.exception()
            if error is None:
                caller.arrived(future.result())
            else:
                caller.failed(cast(Exception, error))

        then(self.call(frames), pass_on)

    def read(self, until: Callable[[], bool], deadline: float | None) -> None:
        """Read answers in this thread until ``until()`` holds or the ``deadline`` of ``time.monotonic`` has passed.
        Returns at once where another thread reads anyway.
        """

    def attend(self) -> None:
        """Let the answers be read in the background, unless that happens anyway."""


class Transport(Stage):
    """The contract of a transport."""

    kind: ClassVar[str] = "transport"
    reach: ClassVar[str] = "network"
    """How far it reaches: within one ``process``, on one ``machine``, or over a ``network``."""
    scheme: ClassVar[str]
    """The part of this transport's addresses before ``://``."""

    @abstractmethod
    def serve(self, handler: Handler | Service, address: str | None = None, token: str = "") -> Endpoint:
        """Answer calls at ``address`` (None: a fresh local one) from peers that know ``token``.

        Each connection has its own thread, so the handler may block. OSError where the address cannot be used.
        """

    @abstractmethod
    def connect(self, address: str, token: str = "", timeout: float = 10.0) -> Channel:
        """A channel to the endpoint at ``address``.

        ConnectionError where no server answers, PermissionError for a wrong token.
        """

    def plain(self, address: str | None, file: str, plaintext: bool) -> bool:
        """True where ``address`` is public and lacks this ``file`` for TLS. ValueError there, unless ``plaintext``."""
        return False

    def rest(self, address: str) -> str:
        """The address without its scheme. ValueError for another transport's address."""
        scheme, separator, rest = address.partition("://")
        if scheme != self.scheme or not separator:
            takes = f"{type(self).__name__} takes an address that starts with {self.scheme}://"
            raise ValueError(f"{takes}, got {address!r}.")
        return rest


def remote_error(frames: Frames) -> Exception:
    """The handler's error, with its type where that is one of the common ones."""
    kind, text = ([bytes(frame).decode(errors="replace") for frame in frames] + ["", ""])[:2]
    for error in COMMON:
        if kind == error.__name__:
            return error(text)
    return RuntimeError(f"{kind}: {text}")


def fresh_name() -> str:
    """An unused name for a local address."""
    return f"minips-{secrets.token_hex(8)}"


def check_token(token: object) -> None:
    """TypeError for a token that is not text, ValueError for an empty one, which would admit every peer."""
    error = None if isinstance(token, str) else TypeError
    if error or not token:
        got = type(token).__name__ if error else "an empty one"  # not its value: it may be a secret all the same
        raise (error or ValueError)(
            f"A token is a text that is not empty, the same for a server and its clients; got {got}. A server that is "
            "served without a token makes one: pass its server.token to connect."
        )
