"""The needs of a protocol session, and a driver that carries one out in one thread.

A session is a generator without thread, socket, lock or clock. It yields what it needs next, and is given it: `Do`, a
piece of work, for its result; `Send`, a message to another party; `Receive`, for the next message of one; `Until`, a
condition, for going on once it holds. What the work raises, or what a message was answered with, is raised in it.

A driver carries sessions out, and decides how and in which time: threads with sockets and the wall clock; a simulated
cluster with the real arrays; a prediction, where sizes stand in for arrays and nothing is computed.
"""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

Parcel = Any
"""The content of a message: frames or, where nothing is computed, their number of bytes."""
Result = TypeVar("Result")
NO_LOCK = nullcontext()


@dataclass(eq=False, slots=True)
class Do:
    """Work under these spans on so many values; the session goes on with what ``call`` returns. ``transfer`` is the
    processor's part of sending or receiving a message. Other sessions of the same party go on meanwhile, unless it is
    done ``alone``.
    """

    spans: tuple[str, ...]
    values: float
    call: Callable[[], Any]
    alone: bool = False


@dataclass(eq=False, slots=True)
class Send:
    """A message of so many values to another party, its ``number``-th."""

    to: int
    parcel: Parcel
    values: float
    number: int = 0


@dataclass(eq=False, slots=True)
class Receive:
    """The next message of another party: the ``number``-th, or the answer to what was sent to it first."""

    source: int
    number: int = 0


@dataclass(eq=False, slots=True)
class Until:
    """Go on once ``ready()``, which this worker waits for."""

    ready: Callable[[], bool]
    worker: int


Session = Generator[Any, Any, Result]
"""Yields `Do`, `Send`, `Receive` and `Until`; returns a Result."""


def nothing() -> None:
    """Work that takes time, perhaps, and leaves no result."""


def _no_other(need: Send | Receive) -> Parcel:
    raise RuntimeError(f"This session has no other party; it wanted {need!r}.")


def carry_out(
    session: Session[Result],
    send: Callable[[Send], object] = _no_other,
    receive: Callable[[Receive], Parcel] = _no_other,
    stepping: AbstractContextManager[Any] = NO_LOCK,
) -> Result:
    """Carry a session out here and now, in this thread; what it returns. What it waits for must hold already.
    ``stepping`` is held while the session goes from one need to the next.
    """
    answer, error = None, None
    while True:
        try:
            with stepping:
                need = session.send(answer) if error is None else session.throw(error)
        except StopIteration as end:
            result: Result = end.value
            return result
        answer, error = None, None
        try:
            if type(need) is Do:
                with stepping if need.alone else NO_LOCK:
                    answer = need.call()
            elif type(need) is Send:
                send(need)
            elif type(need) is Receive:
                answer = receive(need)
            else:
                assert need.ready(), f"Worker {need.worker} would have to wait."
        except Exception as raised:
            error = raised
