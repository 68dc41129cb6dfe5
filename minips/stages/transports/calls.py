"""Transports over libraries that make calls: a call sends a message and returns the answer.

A connection's first call is empty and returns the challenge of `auth`; the second proves that the caller knows the
token. So no peer reaches the handler without that proof. Until then, a peer may send only small messages.
"""

import threading
from abc import abstractmethod
from collections.abc import Callable
from queue import SimpleQueue

from minips.stage import Buffer, Frames
from minips.stages.transports.auth import HANDSHAKE_BYTES, Proof, prove
from minips.stages.transports.base import HANDSHAKE_S, Connection, Endpoint, Handler, Service, service_of
from minips.stages.transports.endpoints import StreamTransport, ThreadedEndpoint
from minips.stages.transports.framing import TooLargeError, pieces, split
from minips.stages.transports.inbox import InboxWire
from minips.stages.transports.network import NetworkTransport
from minips.stages.transports.patience import Limit
from minips.stages.transports.streams import answer_of
from minips.stages.transports.wire import AUTH, CALL, Interruptible
from minips.words import message_of

Body = list[Buffer]
"""The buffers that form a message's body."""


class RemoteCaller(Interruptible):
    """The server's end of a connection. The library calls ``answer`` for each call, one after the other."""

    limit = HANDSHAKE_BYTES
    """The largest body, in bytes, that is accepted at present."""
    _begun = False
    _connection: Connection | None = None
    _proof: Proof | None

    def __init__(self) -> None:
        self._due = Limit(HANDSHAKE_S)
        self.known = threading.Event()
        """Set when the peer has made its first call, or is gone."""

    @abstractmethod
    def serve(self) -> None:
        """Let the library answer calls until the peer is gone or a call raises an error."""

    def talk(self, service: Service, token: str, max_message_bytes: int, stranger_s: float) -> None:
        """Answer the peer's calls, provided that it authenticates and makes its first call in time. Then close."""
        self._service, self._max, self._proof, self._stranger_s = service, max_message_bytes, prove(token), stranger_s
        try:
            self.watch()
            self.serve()
        except Exception:  # the peer has gone or sent nonsense; each library has its own error types
            pass
        finally:
            self.known.set()
            self.close()  # before the handler waits for its peer to reconnect
            if self._connection:
                self._connection.closed()

    def answer(self, body: memoryview) -> Body:
        """Return the body of a call's answer. ValueError for a malformed call, PermissionError after a wrong token."""
        if len(body) > self.limit:
            raise ValueError(f"a message of {len(body)} bytes is larger than the {self.limit} that are allowed")
        if self._proof is None:
            tag, frames = split(body)
            if tag != CALL:
                raise ValueError(f"a message with tag {tag} is not a call")
            if not self._connection:
                self.known.set()
                self._connection = self._service.connection()
            return pieces(*answer_of(self._connection, frames))
        tag, frames = self._proof.send(split(body) if self._begun else None)
        if self._begun and tag == AUTH:
            self._proof, self.limit = None, self._max
            self._due = Limit(self._stranger_s)
        self._begun = True
        return pieces(tag, frames)

    def watch(self) -> None:
        """Call `overdue` regularly until the peer is known."""
        threading.Thread(target=self._watch, name="minips-watch", daemon=True).start()

    def overdue(self) -> bool:
        """Return True if the peer has not authenticated, or not made its first call, in time. Call this every tick."""
        return not self.known.is_set() and self._due.over()

    def _watch(self) -> None:
        while not self.known.wait(self._due.tick):
            if self.overdue():
                self.shutdown()
                return


class RemoteServer(Interruptible):
    """The client's end of a connection."""

    @abstractmethod
    def begin(self, body: Body) -> Callable[[], memoryview]:
        """Begin a call. Return a function that waits for the body of its answer. Both are called in order."""


class CallWire(InboxWire):
    """The client's end as a wire. Each message is a call; a thread waits for the answers in the order of the calls."""

    def __init__(self, server: RemoteServer, address: str) -> None:
        super().__init__(SimpleQueue())
        self._server, self.why = server, "it is closed"
        self._begun: SimpleQueue[Callable[[], memoryview] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"minips-calls-{address}", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            server.close()
            raise
        self._begun.put(server.begin([]))

    def send(self, tag: int, frames: Frames) -> None:
        if self.ended:
            raise ConnectionError(str(self.why))
        self._begun.put(self._server.begin(pieces(tag, frames)))

    def shutdown(self) -> None:
        if not self.ended:
            self.end()
            self._begun.put(None)
            self._server.shutdown()

    def close(self) -> None:
        self.shutdown()
        self._thread.join(HANDSHAKE_S)
        self._server.close()

    def _run(self) -> None:
        for wait in iter(self._begun.get, None):
            try:
                self.inbox.put(split(wait()))
            except Exception as error:  # each library has its own error types
                self.why = error if isinstance(error, TooLargeError) else message_of(error)
                self.shutdown()
            del wait  # frees the answer before the next one arrives


class CallTransport(NetworkTransport, StreamTransport):
    """A transport over a library that makes calls: ``listen`` accepts a `RemoteCaller`, ``dial`` makes a `CallWire`."""

    max_message_bytes: int

    def serve(self, handler: Handler | Service, address: str | None = None, token: str = "") -> Endpoint:
        arguments = service_of(handler), token, self.max_message_bytes, self.stranger_s
        return ThreadedEndpoint(self.listen(address), lambda caller: caller.talk(*arguments))
