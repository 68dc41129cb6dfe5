"""The driver of virtual time: the sessions of a party are carried out by events of a kernel, not by threads.

The kernel is SimPy where real arrays travel, and `minips.cost.clockwork` where sizes stand in for them.
"""

from abc import abstractmethod
from collections.abc import Generator, Iterable
from typing import Any, TypeVar

from minips.core.sessions import Do, Receive, Send, Session, Until

T = TypeVar("T")

Way = Generator[Any, Any, T]
"""Yields the kernel's events; returns a T."""


class Party:
    """A process in virtual time. ``step`` goes with a session: whatever its driver has to know of it."""

    _alone: Any = None
    """The event at the end of the work that is done alone."""

    def carry_out(self, session: Session[T], step: Any) -> Way[T]:
        """A session in virtual time; returns what the session returns."""
        answer, error = None, None
        while True:
            while self._alone:
                yield self._alone
            try:
                need = session.send(answer) if error is None else session.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            answer, error = None, None
            if type(need) is Do:
                over = self.event() if need.alone else None
                self._alone = over or self._alone
                yield from self.spend(need.spans, need.values, step)
                if over:
                    self._alone = None
                    over.succeed()
                try:
                    answer = need.call()
                except Exception as raised:
                    error = raised
            elif type(need) is Send:
                yield from self.send(need, step)
            elif type(need) is Receive:
                answer = yield from self.receive(need, step)
            else:
                yield from self.wait(need, step)

    @abstractmethod
    def event(self) -> Any:
        """An event of the kernel, which its ``succeed()`` brings step."""

    @abstractmethod
    def spend(self, spans: tuple[str, ...], values: float, step: Any) -> Iterable[Any]:
        """The events of the time that these spans take for so many values."""

    def send(self, message: Send, step: Any) -> Iterable[Any]:
        """Send a message."""
        raise NotImplementedError

    def receive(self, wanted: Receive, step: Any) -> Way[Any]:
        """Wait for a message; returns its content."""
        raise NotImplementedError

    def wait(self, wanted: Until, step: Any) -> Iterable[Any]:
        """Wait for a condition."""
        raise NotImplementedError
