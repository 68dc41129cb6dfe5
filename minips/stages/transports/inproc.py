"""Threads of one process: messages go through two queues, each frame copied once, as a kernel would."""

import queue
import threading
from dataclasses import dataclass

from minips.stage import Frames, register
from minips.stages.transports.base import fresh_name
from minips.stages.transports.streams import StreamTransport
from minips.stages.transports.wire import Listener, Wire

_Queue = queue.SimpleQueue[tuple[int, Frames] | None]
_listeners: dict[str, "_QueueListener"] = {}
_lock = threading.Lock()


@register
@dataclass(frozen=True)
class InProc(StreamTransport):
    """Queues between the threads of one process: ``inproc://name``. What is left when there is no network."""

    name = "inproc"
    scheme = "inproc"

    def listen(self, address: str | None) -> Listener:
        address = address or f"inproc://{fresh_name()}"
        self.rest(address)
        return _QueueListener(address)

    def dial(self, address: str, timeout: float) -> Wire:
        self.rest(address)
        with _lock:
            listener = _listeners.get(address)
            if listener is None:
                raise ConnectionError(
                    f"No server of this process listens at {address}. Threads can use inproc, other processes cannot."
                )
            there, here = queue.SimpleQueue(), queue.SimpleQueue()  # type: _Queue, _Queue
            listener.incoming.put(_QueueWire(there, here))
        return _QueueWire(here, there)


class _QueueWire(Wire):
    resumes = True

    def __init__(self, inbox: _Queue, outbox: _Queue) -> None:
        self._inbox, self._outbox, self._closed = inbox, outbox, False

    def send(self, tag: int, frames: Frames) -> None:
        if self._closed:
            raise ConnectionError("the connection is closed")
        self._outbox.put((tag, [memoryview(bytearray(frame)) for frame in frames]))

    def receive(self, timeout: float | None = None, limit: int | None = None) -> tuple[int, Frames]:
        try:
            message = self._inbox.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError("no message came in time") from None
        if message is None:
            self.hang_up()
            raise EOFError
        return message

    def hang_up(self) -> None:
        if not self._closed:
            self._closed = True
            self._outbox.put(None)
            self._inbox.put(None)

    def close(self) -> None:
        self.hang_up()


class _QueueListener(Listener):
    def __init__(self, address: str) -> None:
        self.address = address
        self.incoming: queue.SimpleQueue[_QueueWire | None] = queue.SimpleQueue()
        with _lock:
            if address in _listeners:
                raise OSError(f"{address} is in use already. Choose another name, or None for a fresh one.")
            _listeners[address] = self

    def accept(self) -> Wire:
        wire = self.incoming.get()
        if wire is None:
            raise OSError("the listener is closed")
        return wire

    def hang_up(self) -> None:
        self.incoming.put(None)

    def close(self) -> None:
        with _lock:
            if _listeners.get(self.address) is self:
                del _listeners[self.address]
