"""The base of transports over libraries that block: a session for each connection, and one call after the other.

Both Pyro and Thrift send a request, wait for its answer, and only then send the next. So a channel has a thread that
makes its calls in turn: many may be outstanding, one is on the wire. On the server the connection's end is the
session's end. The sockets are opened here and given to the library; they count what it reads, so that a stranger's
message stays small.
"""

import socket
import threading
import time
from abc import abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from itertools import count
from queue import SimpleQueue
from typing import ClassVar

from minips.stage import Buffer, reason
from minips.stages.transports.base import HANDSHAKE_S
from minips.stages.transports.framing import writable
from minips.stages.transports.network import NetworkTransport
from minips.stages.transports.sessions import Asking, Body, Session, Sessions

_ENVELOPE_BYTES = 2**11
"""Bytes that a library may add to a body: the names of the method and the object, a checksum."""


class Metered(socket.socket):
    """A socket that is read no further than a message may be long; ``left`` is what may still come of this one."""

    left = 2**62

    def recv(self, size: int, flags: int = 0) -> bytes:
        chunk = super().recv(max(min(size, self.left), 1), flags)
        self.left -= len(chunk)
        if self.left < 0:
            raise ConnectionError("a message is larger than is allowed")
        return chunk


class BlockingTransport(NetworkTransport):
    """A transport over a library that blocks."""

    max_message_bytes: int
    most_bytes: ClassVar[int] = 2**30

    def reach(self, address: str, timeout: float) -> socket.socket:
        """A socket connected to ``address``. It times out until the wire has it."""
        return _ready(self.dialled(address, timeout))


class BlockingWire(Asking):
    """The client's end: its thread makes the calls, one after the other, and none after the first that fails."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self._sock = sock
        self._todo: SimpleQueue[tuple[Future[memoryview], Body] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="minips-calls", daemon=True)

    @abstractmethod
    def exchange(self, body: bytes) -> Buffer:
        """Send the request and wait for its answer."""

    def begin(self) -> None:
        self._sock.settimeout(None)
        self._thread.start()
        super().begin()

    def ask(self, number: int, body: Body) -> "Future[memoryview]":
        future: Future[memoryview] = Future()
        self._todo.put((future, body))
        return future

    def _run(self) -> None:
        gone: Exception | None = None
        while todo := self._todo.get():
            future, body = todo
            if not future.set_running_or_notify_cancel():
                continue
            try:
                if gone:
                    raise gone
                future.set_result(writable(self.exchange(b"".join(body))))
            except Exception as error:  # each library has its own
                gone = ConnectionError(reason(error))
                future.set_exception(gone)

    def hang_up(self) -> None:
        super().hang_up()
        self._todo.put(None)
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.hang_up()
        if self._thread.is_alive():
            self._thread.join(HANDSHAKE_S)
        self._sock.close()


class BlockingListener(Sessions):
    """A thread for each connection, in which the library reads and writes."""

    def __init__(self, transport: BlockingTransport, address: str | None) -> None:
        super().__init__(transport.max_message_bytes)
        self._sock = transport.bound(address)
        self.address = transport.address(*self._sock.getsockname()[:2])
        self._closing = False
        self._peers: dict[threading.Thread, tuple[Session, socket.socket]] = {}
        self._accepting = threading.Thread(target=self._accept, name=f"minips-take-{self.address}", daemon=True)
        self._accepting.start()

    @abstractmethod
    def talk(self, peer: socket.socket, answer: Callable[[bytes], bytes]) -> None:
        """Have the library answer requests by ``answer`` until one of them raises."""

    def _accept(self) -> None:
        while not self._closing:
            try:
                sock, _ = self._sock.accept()
            except OSError:
                time.sleep(0 if self._closing else 0.05)
                continue
            peer, session = _ready(sock), self.open()
            thread = threading.Thread(target=self._talk, args=(peer, session), name="minips-talk", daemon=True)
            self._peers[thread] = session, peer
            thread.start()

    def _talk(self, peer: Metered, session: Session) -> None:
        numbers = count()
        peer.left = session.limit + _ENVELOPE_BYTES

        def answer(body: bytes) -> bytes:
            if session.over.done():
                raise EOFError
            future = session.ask(next(numbers), writable(body))
            answered = b"".join(future.result())
            peer.left = session.limit + _ENVELOPE_BYTES
            return answered

        def stop_reading(_: object) -> None:
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RD)  # the last answer may still be on its way out

        session.over.add_done_callback(stop_reading)
        try:
            self.talk(peer, answer)
        except Exception:  # the peer went away or talked nonsense, in the words of each library
            pass
        finally:
            session.hang_up()
            peer.close()
            self._peers.pop(threading.current_thread(), None)

    def close(self) -> None:
        self._closing = True
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)  # wakes the accept, on Linux
        with suppress(OSError):  # and a visitor does elsewhere
            socket.create_connection(self._sock.getsockname()[:2], 0.2).close()
        self._accepting.join(HANDSHAKE_S)
        self._sock.close()
        left = dict(self._peers)
        for session, peer in left.values():
            session.hang_up()
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
        for thread in left:
            thread.join(HANDSHAKE_S)


def _ready(sock: socket.socket) -> Metered:
    metered = Metered(fileno=sock.detach())
    metered.settimeout(sock.gettimeout())
    metered.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    metered.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return metered
