"""The contract of a transport: a way for frames to reach a handler, and for its answer to come back."""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, ClassVar, Protocol, Self, cast

from minips.stage import Frames, Stage

Handler = Callable[[Frames], Frames]
"""A server's function for a call: frames in, frames out. An error that it raises reaches the caller's future."""


class Closable(ABC):
    """Something to be closed, once or twice, by hand or by ``with``."""

    @abstractmethod
    def close(self) -> None:
        """Let go of threads, sockets and memory. Safe to call twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class Connection:
    """The server's side of one connection: what it does with each call, and with the end."""

    def answer(self, frames: Frames) -> Frames:
        """Frames in, frames out. What it raises reaches the caller's future."""
        raise NotImplementedError

    def closed(self) -> None:
        """The peer has gone."""


class Service:
    """A handler for which it matters who is asking: ``connection()`` makes the object of a new connection."""

    def __init__(self, connection: Callable[[], Connection]) -> None:
        self.connection = connection


def service_of(handler: Handler | Service) -> Service:
    """``handler`` as a service; a function answers all connections alike."""
    if isinstance(handler, Service):
        return handler
    connection = Connection()
    connection.answer = handler  # type: ignore[assignment,method-assign]
    return Service(lambda: connection)


def then(future: "Future[Any]", fn: Callable[["Future[Any]"], object]) -> None:
    """Call ``fn`` with the future when it is done; no thread is set to work for that."""
    getattr(future, "then", future.add_done_callback)(fn)


class Caller(Protocol):
    """The receiver of a call's end, which is told once."""

    def arrived(self, frames: Frames) -> None:
        """With an answer."""

    def failed(self, error: Exception) -> None:
        """With the handler's error, or that of a connection that broke."""


COMMON = (ValueError, TypeError, KeyError, TimeoutError, PermissionError, ConnectionError, RuntimeError)
"""The errors of a handler that keep their type on the way to the caller; a subclass travels as the first of these."""
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

    def read(self, until: Callable[[], bool], deadline: float | None) -> None:
        """Read answers in this thread until ``until()``, or up to the ``deadline`` of ``time.monotonic``; at once where
        another thread does that anyway.
        """

    def attend(self) -> None:
        """Have the answers read in the background, where that does not happen anyway."""


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

        Each connection has a thread of its own, so that the handler may block. OSError where the address cannot be had.
        """

    @abstractmethod
    def connect(self, address: str, token: str = "", timeout: float = 10.0) -> Channel:
        """A channel to the endpoint at ``address``.

        ConnectionError where no server answers, PermissionError for a wrong token.
        """

    def plain(self, address: str | None, file: str, plaintext: bool) -> bool:
        """True where ``address`` is public and this ``file`` for TLS is not named; ValueError unless ``plaintext``."""
        return False

    def rest(self, address: str) -> str:
        """The address without its scheme. ValueError where it is another transport's."""
        scheme, separator, rest = address.partition("://")
        if scheme != self.scheme or not separator:
            takes = f"{type(self).__name__} takes an address that starts with {self.scheme}://"
            raise ValueError(f"{takes}, got {address!r}.")
        return rest


def remote_error(frames: Frames) -> Exception:
    """The handler's error, of the same type where the type is one of the common ones."""
    kind, text = ([bytes(frame).decode(errors="replace") for frame in frames] + ["", ""])[:2]
    for error in COMMON:
        if kind == error.__name__:
            return error(text)
    return RuntimeError(f"{kind}: {text}")


def fresh_name() -> str:
    """A name that is not in use, for a local address."""
    return f"minips-{secrets.token_hex(8)}"


def check_token(token: object) -> None:
    """TypeError for a token that is no text, ValueError for an empty one, which would admit every peer."""
    error = None if isinstance(token, str) else TypeError
    if error or not token:
        got = type(token).__name__ if error else "an empty one"  # not its value: it may be a secret all the same
        raise (error or ValueError)(
            f"A token is a text that is not empty, the same for a server and its clients; got {got}. A server that is "
            "served without a token makes one: pass its server.token to connect."
        )
