"""One end of a connection: whole messages, in order, each with a tag, and how such connections come in."""

import queue
from abc import ABC, abstractmethod
from typing import Generic, Self, TypeVar

from minips.stage import Frames

CALL, ERROR, AUTH, POOL = range(4)
"""Tags of messages: a call or its answer, a handler's error as text, a step of the authentication, a word of a pool."""
MOST_FRAMES = 2**16
"""The most frames of one message. Their lengths take half a megabyte, however many are announced."""


def check_count(frames: int) -> None:
    """ValueError where a message has more frames than are allowed; before memory is taken for their lengths."""
    if frames > MOST_FRAMES:
        raise ValueError(
            f"A message of {frames} frames has more than the {MOST_FRAMES} that are allowed. Each part of a tensor is "
            "a frame: join small tensors into larger ones, or use more servers."
        )


class Closable(ABC):
    """Something to be closed, once or twice, by hand or by ``with``."""

    @abstractmethod
    def close(self) -> None:
        """Let go of threads, sockets and memory. Safe to call twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class Interruptible(Closable):
    """Something that one thread waits on and that another can end: first ``shutdown`` from anywhere, then ``close`` by
    the waiter.

    A descriptor that is closed under a waiting thread may be another file's by the time that it looks again.
    """

    @abstractmethod
    def shutdown(self) -> None:
        """Wake the threads that wait, with an OSError or EOFError. Safe to call from any thread, and twice."""


class Wire(Interruptible):
    """One end of a connection: whole messages in order. One thread sends at a time, one receives."""

    @abstractmethod
    def send(self, tag: int, frames: Frames) -> None:
        """Send one message. OSError where the peer is gone."""

    @abstractmethod
    def receive(self, timeout: float | None = None, limit: int | None = None) -> tuple[int, Frames]:
        """The next message, its frames writable. One that has timed out has lost nothing: the next goes on from there.

        EOFError where the peer is gone, TimeoutError after ``timeout`` seconds, ValueError past ``limit`` bytes.
        """

    def join(self, frames: Frames) -> "Wire | None":
        """The server's side of a pool, which the frames tell of: the wire that takes this one's place, None where
        another one's thread has it.
        """
        raise ValueError(f"{type(self).__name__} knows no pools")


P = TypeVar("P", bound=Interruptible)


class Acceptor(Interruptible, Generic[P]):
    """A listener for connections."""

    address: str

    @abstractmethod
    def accept(self) -> P:
        """The next connection. OSError once this is shut down."""


Listener = Acceptor[Wire]
"""A listener for wires."""


class InboxListener(Acceptor[P]):
    """Connections come in through a queue."""

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
    """A wire whose messages come in through a queue; None is their end."""

    why = ""
    """What ended it, in words, where that is known."""

    def __init__(self, inbox: "queue.SimpleQueue[tuple[int, Frames] | None]") -> None:
        self.inbox, self.ended = inbox, False

    def receive(self, timeout: float | None = None, limit: int | None = None) -> tuple[int, Frames]:
        try:
            message = self.inbox.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError("no message came in time") from None
        if message is None:
            self.end()
            raise EOFError(self.why)
        return message

    def end(self) -> None:
        """Every receive, now or later, ends with EOFError."""
        self.ended = True
        self.inbox.put(None)
