"""One end of a connection: whole messages, in order, each with a tag, and how such connections come in."""

from abc import abstractmethod
from typing import Generic, TypeVar

from minips.stage import Frames
from minips.stages.transports.base import Closable

CALL, ERROR, AUTH, POOL = range(4)
"""Tags of messages: a call or its answer, a handler's error as text, a step of the authentication, a word of a pool."""


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
