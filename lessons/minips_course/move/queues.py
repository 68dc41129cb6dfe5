"""A transport over queues between threads. It lacks two methods, which the exercise asks for."""

import queue
import threading
from abc import abstractmethod

from minips.stage import Frames
from minips.stages.transports.base import fresh_name
from minips.stages.transports.endpoints import StreamTransport
from minips.stages.transports.inbox import InboxListener
from minips.stages.transports.wire import Listener, Wire

Message = tuple[int, Frames]
"""A message: a tag that says its kind, and its frames."""


class MessageQueue:
    """One direction of a connection."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._closed = False

    def put(self, message: Message) -> None:
        """Add a message, or raise ConnectionError if the connection is closed."""
        if self._closed:
            raise ConnectionError("the connection is closed")
        self._queue.put(message)

    def get(self, timeout: float | None = None) -> Message | None:
        """Return the next message, or None after ``timeout`` seconds. Raise EOFError if the connection is closed."""
        try:
            message = self._queue.get(timeout=timeout)
        except queue.Empty:
            return None
        if message is None:
            self._queue.put(None)
            raise EOFError("the connection is closed")
        return message

    def close(self) -> None:
        """Close the queue: no further message can be added."""
        self._closed = True
        self._queue.put(None)


class QueueEnd(Wire):
    """One end of a connection, without ``send`` and ``receive``."""

    def __init__(self, inbox: MessageQueue, outbox: MessageQueue) -> None:
        self.inbox, self.outbox = inbox, outbox

    def shutdown(self) -> None:
        self.inbox.close()
        self.outbox.close()

    def close(self) -> None:
        self.shutdown()


class QueueTransport(StreamTransport):
    """Queues between the threads of one process."""

    scheme = "queues"

    @abstractmethod
    def end(self, inbox: MessageQueue, outbox: MessageQueue) -> QueueEnd:
        """Return one end of a connection."""

    def listen(self, address: str | None) -> Listener[Wire]:
        address = address or f"{self.scheme}://{fresh_name()}"
        self.rest(address)  # ValueError for an address of another transport
        return _Door(address)

    def dial(self, address: str, timeout: float) -> Wire:
        self.rest(address)
        there, here = MessageQueue(), MessageQueue()
        with _lock:
            if address not in _doors:
                raise ConnectionError(f"No server of this process listens at {address}.")
            _doors[address].incoming.put(self.end(there, here))
        return self.end(here, there)


class _Door(InboxListener[Wire]):
    """A listener at an address."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        with _lock:
            if address in _doors:
                raise OSError(f"{address} is in use already.")
            _doors[address] = self

    def close(self) -> None:
        with _lock:
            if _doors.get(self.address) is self:
                del _doors[self.address]


_doors: dict[str, _Door] = {}
_lock = threading.Lock()
