"""The base class of transports over libraries that block: a connection carries one call at a time.

Both Pyro and Thrift send a request, wait for its answer, and only then send the next. Many calls may be outstanding,
but only one is on the wire. This module opens the library's sockets, which count the bytes that the library reads, so
that a stranger's message stays small.
"""

import socket
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from minips.stage import option
from minips.stages.transports.calls import Body, CallTransport, CallWire, RemoteCaller, RemoteServer
from minips.stages.transports.endpoints import SocketListener
from minips.stages.transports.framing import LIMIT, TooLargeError, writable
from minips.stages.transports.wire import Listener, Wire

_ENVELOPE_BYTES = 2**11
"""The most bytes that a library adds to a body: the names of the method and the object, and a checksum."""


class Metered(socket.socket):
    """A socket that limits the bytes read for one message; ``left`` is the number of bytes that may still be read."""

    left = 2**62

    def recv(self, size: int, flags: int = 0) -> bytes:
        chunk = super().recv(max(min(size, self.left), 1), flags)
        self.left -= len(chunk)
        if self.left < 0:
            raise ConnectionError("a message is larger than is allowed")
        return chunk


class _Ends:
    """The end of a connection that owns its socket."""

    def __init__(self, sock: Metered) -> None:
        self.sock = sock

    def shutdown(self) -> None:
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.shutdown()
        self.sock.close()


class _BlockingServer(_Ends, RemoteServer):
    def __init__(self, sock: Metered, ask: Callable[[bytes], bytes], max_message_bytes: int) -> None:
        super().__init__(sock)
        self._ask, self._max = ask, max_message_bytes

    def begin(self, body: Body) -> Callable[[], memoryview]:
        def wait() -> memoryview:
            self.sock.left = self._max + _ENVELOPE_BYTES
            try:
                return writable(self._ask(b"".join(body)))
            except Exception:  # each library has its own error types
                if self.sock.left < 0:
                    raise TooLargeError(f"An answer is larger than the {self._max} bytes allowed: {LIMIT}.") from None
                raise

        return wait


class _BlockingCaller(_Ends, RemoteCaller):
    def __init__(self, sock: Metered, read: Callable[[Metered, Callable[[bytes], bytes]], None]) -> None:
        _Ends.__init__(self, sock)
        RemoteCaller.__init__(self)
        self._read = read

    def serve(self) -> None:
        self.sock.left = self.limit + _ENVELOPE_BYTES
        self._read(self.sock, self._answer)

    def _answer(self, body: bytes) -> bytes:
        try:
            answered = b"".join(self.answer(writable(body)))
        except BaseException:
            self.sock.shutdown(socket.SHUT_RD)  # the library may report the error, but cannot read further
            raise
        self.sock.left = self.limit + _ENVELOPE_BYTES
        return answered


@dataclass(frozen=True)
class BlockingTransport(CallTransport):
    """The base class of transports over a library that blocks."""

    max_message_bytes: int = option(
        2**30, "largest message accepted", minimum=2**10, maximum=2**30, unit="byte", operator=True
    )

    @abstractmethod
    def load(self) -> None:
        """Import the library before a peer connects, so that the import's time does not count against the peer."""

    @abstractmethod
    def client(self, sock: Metered) -> Callable[[bytes], bytes]:
        """Return a function that sends a request over the socket and waits for its answer."""

    @abstractmethod
    def read(self, sock: Metered, answer: Callable[[bytes], bytes]) -> None:
        """Let the library answer requests from the socket with ``answer``, until one of them raises an error."""

    def listen(self, address: str | None) -> Listener[RemoteCaller]:
        self.load()
        sock, place = self.bind(address)
        return SocketListener(sock, place, lambda peer: _BlockingCaller(_ready(peer), self.read))

    def dial(self, address: str, timeout: float) -> Wire:
        sock = _ready(self.open_socket(address, timeout))
        try:
            server = _BlockingServer(sock, self.client(sock), self.max_message_bytes)
        except Exception as error:
            sock.close()
            raise ConnectionError(f"The peer at {address} is not a minips server, or it is closing. {error}") from None
        sock.settimeout(None)
        return CallWire(server, address)


def _ready(sock: socket.socket) -> Metered:
    metered = Metered(fileno=sock.detach())
    metered.settimeout(sock.gettimeout())
    metered.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    metered.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return metered
