"""The driver in virtual time: it carries out a node's sessions with tasks of `minips.drivers.events`, not threads.

A simulation sends real arrays; a prediction sends sizes instead.
"""

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable
from typing import Any, TypeVar

from minips.core.loop import Begin, Call, Compute
from minips.core.sessions import Do, Receive, Send, Session, Until
from minips.drivers.events import Signal, Task
from minips.words import as_error

T = TypeVar("T")


class Node:
    """A process in virtual time. A ``step`` is a driver's own data about a session, such as its clock."""

    _alone: Signal | None = None
    """The end of work that a session does alone; until then, no other session of this node runs."""

    def carry_out(self, session: Session[T], step: Any) -> Task[T]:
        """Carry out a session in virtual time. Returns its result."""
        answer, error, over = None, None, None
        while True:
            while self._alone and self._alone is not over:
                yield self._alone
            try:
                need = session.send(answer) if error is None else session.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                if over:  # after the session itself has used the outcome of its work
                    self._alone = None
                    over.succeed()
                    over = None
            answer, error = None, None
            if type(need) is Do:
                if need.alone:
                    self._alone = over = Signal()
                yield from self.spend(need.spans, need.values, step)
                try:
                    answer = need.call()
                except KeyboardInterrupt:
                    raise
                except BaseException as raised:
                    error = as_error(raised)
            elif type(need) is Send:
                yield from self.send(need, step)
            elif type(need) is Receive:
                answer = yield from self.receive(need, step)
            else:
                yield from self.wait(need, step)

    @abstractmethod
    def spend(self, spans: tuple[str, ...], values: float, step: Any) -> Iterable[float | Signal]:
        """Spend the time that these spans take for this number of values."""

    def send(self, message: Send, step: Any) -> Iterable[float | Signal]:
        """Send a message."""
        raise NotImplementedError

    def receive(self, wanted: Receive, step: Any) -> Task[Any]:
        """Wait for a message. Returns its content."""
        raise NotImplementedError

    def wait(self, wanted: Until, step: Any) -> Iterable[float | Signal]:
        """Wait for a condition."""
        raise NotImplementedError


class TrainingNode(Node):
    """A worker in virtual time: `train` is its training loop, which `carry_out_loop` carries out."""

    @abstractmethod
    def train(self) -> Task[None]:
        """The training loop."""

    def carry_out_loop(self, loop: Session[T]) -> Task[T]:
        """Carry out a training loop. Returns its result."""
        answer: Any = None
        while True:
            try:
                need = loop.send(answer)
            except StopIteration as end:
                result: T = end.value
                return result
            if type(need) is Compute:
                answer = yield from self.compute(need)
            elif type(need) is Call:
                answer = yield from self.call(need.session)
            elif type(need) is Begin:
                answer = self.start(self.call(need.session))
                yield from self.let_go(answer)
            else:
                answer = yield need.begun

    @abstractmethod
    def compute(self, need: Compute) -> Task[Any]:
        """Spend the time of a gradient. Returns its result to the loop."""

    def call(self, session: Session[Any]) -> Task[Any]:
        """Carry out a session of this worker. Returns its result."""
        return self.carry_out(session, self.step())

    @abstractmethod
    def step(self) -> Any:
        """Return the ``step`` of a session that begins now."""

    @abstractmethod
    def start(self, steps: Task[Any]) -> Signal:
        """Begin a task that runs at the same time as the others. Returns the signal of its end."""

    def let_go(self, begun: Signal) -> Iterable[float | Signal]:
        """The wait from the beginning of a session until the loop continues."""
        return ()


class ServedNode(TrainingNode):
    """A worker with servers. Each message travels to a server, and its answer travels back. The worker receives a
    server's answers in the order of its requests.
    """

    _trips: list[deque[Signal]]
    """For each server, the trips whose answers the worker has not received yet."""

    def call(self, session: Session[Any]) -> Task[Any]:
        self._sent = Signal()
        return super().call(session)

    @abstractmethod
    def trip(self, server: int, parcel: Any, step: Any) -> Task[Any]:
        """Take a message to a server, let the server carry out the session, and return the answer."""

    def let_go(self, begun: Signal) -> Task[None]:
        """Wait until all messages of a push are sent; then the loop continues."""
        if not begun.triggered:
            yield self._sent

    def send(self, message: Send, step: Any) -> Task[None]:
        yield from self.spend(("transfer",), message.values, step)
        self._trips[message.to].append(self.start(self.trip(message.to, message.parcel, step)))
        if message.to == len(self._trips) - 1:
            self._sent.succeed()

    def receive(self, wanted: Receive, step: Any) -> Task[Any]:
        return (yield self._trips[wanted.source].popleft())
