"""A wire is one end of a connection: whole messages, in order, each with a tag. A listener accepts wires."""

from abc import abstractmethod
from typing import Generic, TypeVar

from minips.stage import Frames
from minips.stages.transports.base import Closable

CALL, ERROR, AUTH, POOL = range(4)
"""Tags of messages: a call or its answer, a handler's error as text, a step of the authentication, news of a pool."""


class Interruptible(Closable):
    """Something that one thread waits on and another can end: first ``shutdown`` from anywhere, then ``close`` by the
    waiting thread.

    A descriptor that is closed under a waiting thread may belong to another file when the thread looks again.
    """

    @abstractmethod
    def shutdown(self) -> None:
        """Wake the waiting threads with an OSError or EOFError. Safe to call from any thread, and twice."""


class Wire(Interruptible):
    """One end of a connection: whole messages in order. One thread sends at a time, one receives."""

    @abstractmethod
    def send(self, tag: int, frames: Frames) -> None:
        """Send one message. OSError where the peer is gone."""

    @abstractmethod
    def receive(self, timeout: float | None = None, limit: int | None = None) -> tuple[int, Frames]:
        """The next message, its frames writable. A time-out loses nothing: the next call goes on from there.

        EOFError where the peer is gone, TimeoutError after ``timeout`` seconds, ValueError past ``limit`` bytes.
        """

    def join(self, frames: Frames) -> "Wire | None":
        """Add this connection to the pool that the frames name. Returns the wire that now carries its messages; None
        where another thread serves it.
        """
        raise ValueError(f"{type(self).__name__} knows no pools")


P = TypeVar("P", bound=Interruptible)


class Listener(Interruptible, Generic[P]):
    """Accepts connections: wires, or the callers of a library."""

    address: str

    @abstractmethod
    def accept(self) -> P:
        """The next connection. OSError once this is shut down."""
