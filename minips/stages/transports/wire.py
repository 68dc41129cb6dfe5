"""A wire is one end of a connection, and carries whole messages in order, each with a tag. A listener accepts wires."""

from abc import abstractmethod
from functools import partial
from typing import Generic, TypeVar

from minips.stage import Frames
from minips.stages.transports.base import Closable, Rest

CALL, ERROR, AUTH, POOL = range(4)
"""Tags of messages: a call or its answer, a handler's error as text, an authentication step, a pool's message."""


class Interruptible(Closable):
    """An object on which one thread waits and which another thread can end. First, any thread calls ``shutdown``; then
    the waiting thread calls ``close``.

    If a descriptor were closed while a thread waits on it, it could belong to another file when the thread continues.
    """

    @abstractmethod
    def shutdown(self) -> None:
        """Wake the waiting threads with an OSError or EOFError. May be called from any thread, and twice."""


class Wire(Interruptible):
    """One end of a connection that carries whole messages in order. At most one thread may send and one may receive."""

    @abstractmethod
    def send(self, tag: int, frames: Frames) -> None:
        """Send one message. OSError if the peer is gone."""

    def begin(self, tag: int, frames: Frames) -> Rest | None:
        """Send a message until that would have to wait for the peer. Return a function that sends the rest, if any."""
        return partial(self.send, tag, frames)

    @abstractmethod
    def receive(self, timeout: float | None = None, limit: int | None = None) -> tuple[int, Frames]:
        """Return the next message, with writable frames. After a time-out, the next call continues the message.

        EOFError if the peer is gone, TimeoutError after ``timeout`` seconds, ValueError above ``limit`` bytes.
        """

    def join(self, frames: Frames) -> "Wire | None":
        """Add this connection to the pool that the frames name. Return the wire that now carries its messages, or None
        if another thread serves it.
        """
        raise ValueError(f"{type(self).__name__} knows no pools")


P = TypeVar("P", bound=Interruptible)


class Listener(Interruptible, Generic[P]):
    """Accepts connections: wires, or the callers of a library."""

    address: str

    @abstractmethod
    def accept(self) -> P:
        """Return the next connection. OSError once this listener is shut down."""
