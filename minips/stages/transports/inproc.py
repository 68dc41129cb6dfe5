"""Threads of one process: messages pass through two queues, and each frame is copied once, as a kernel would do."""

import queue
import threading
from contextlib import suppress
from dataclasses import dataclass

from minips.stage import Frames, register
from minips.stages.transports.base import fresh_name
from minips.stages.transports.endpoints import StreamTransport
from minips.stages.transports.inbox import InboxListener, InboxWire
from minips.stages.transports.wire import Listener, Wire

_Queue = queue.SimpleQueue[tuple[int, Frames] | None]
_listeners: dict[str, "_QueueListener"] = {}
_lock = threading.Lock()


@register
@dataclass(frozen=True)
class InProc(StreamTransport):
    """Queues between the threads of one process: ``inproc://name``. Shows the costs that remain without a network."""

    name = "inproc"
    scheme = "inproc"
    reach = "process"

    def listen(self, address: str | None) -> Listener[Wire]:
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


class _QueueWire(InboxWire):
    def __init__(self, inbox: _Queue, outbox: _Queue) -> None:
        super().__init__(inbox)
        self._outbox = outbox

    def send(self, tag: int, frames: Frames) -> None:
        if self.ended:
            raise ConnectionError("the connection is closed")
        self._outbox.put((tag, [memoryview(bytearray(frame)) for frame in frames]))

    def begin(self, tag: int, frames: Frames) -> None:
        self.send(tag, frames)  # which never waits

    def shutdown(self) -> None:
        if not self.ended:
            self.end()
            self._outbox.put(None)

    close = shutdown


class _QueueListener(InboxListener[Wire]):
    def __init__(self, address: str) -> None:
        super().__init__(address)
        with _lock:
            if address in _listeners:
                raise OSError(f"{address} is in use already. Choose another name, or None for a fresh one.")
            _listeners[address] = self

    def close(self) -> None:
        with _lock:
            if _listeners.get(self.address) is self:
                del _listeners[self.address]
        with suppress(queue.Empty):
            while True:  # a peer that has dialled meanwhile would wait for an answer in vain
                if wire := self.incoming.get_nowait():
                    wire.close()
