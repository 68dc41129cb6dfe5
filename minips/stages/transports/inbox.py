"""A listener and a wire over queues."""

import queue

from minips.stage import Frames
from minips.stages.transports.wire import Listener, P, Wire


class InboxListener(Listener[P]):
    """A listener that receives its connections through a queue."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.incoming: queue.SimpleQueue[P | None] = queue.SimpleQueue()

    def accept(self) -> P:
        if (wire := self.incoming.get()) is None:
            raise OSError("the listener is closed")
        return wire

    def shutdown(self) -> None:
        self.incoming.put(None)


class InboxWire(Wire):
    """A wire that receives its messages through a queue. None in the queue ends the wire."""

    why: Exception | str = ""
    """The reason why the wire ended, if known, as text or as an error."""

    def __init__(self, inbox: "queue.SimpleQueue[tuple[int, Frames] | None]") -> None:
        self.inbox, self.ended = inbox, False

    def receive(self, timeout: float | None = None, limit: int | None = None) -> tuple[int, Frames]:
        try:
            message = self.inbox.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError("no message came in time") from None
        if message is None:
            self.end()
            raise self.why if isinstance(self.why, Exception) else EOFError(self.why)
        return message

    def end(self) -> None:
        """Make each receive, whether already waiting or later, raise EOFError after the queued messages."""
        self.ended = True
        self.inbox.put(None)
