"""The needs of a protocol session, and a driver that carries out a session in one thread.

A session is a generator without thread, socket, lock or clock. It yields its next need, and the driver resumes it with
the result. The needs are `Do` (some work), `Send` (a message to another party), `Receive` (another party's next
message) and `Until` (a wait for a condition). An error in the work, the answer or the wait is raised in the session.

Each driver carries out sessions with its own clock. Threads use sockets and the wall clock. A simulated cluster uses
virtual time and real arrays. A prediction has sizes instead of arrays and computes nothing.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

Parcel = Any
"""The content of a message: frames or, in predictions, their number of bytes."""
Result = TypeVar("Result")
NO_LOCK = nullcontext()


@dataclass(eq=False, slots=True)
class Do:
    """Work on this number of values. The driver resumes the session with the result of ``call``. In virtual time, the
    driver charges the time of these spans (``transfer`` is the processor's part of a message); in a real run, codec,
    client and server record them. Other sessions of the same party may run meanwhile, unless the work runs ``alone``,
    as only a server's work does.
    """

    spans: tuple[str, ...]
    values: float
    call: Callable[[], Any]
    alone: bool = False


@dataclass(eq=False, slots=True)
class Send:
    """Send another party a message with this number of values; ``number`` is the hop's number, if there are hops."""

    to: int
    parcel: Parcel
    values: float
    number: int = 0


@dataclass(eq=False, slots=True)
class Receive:
    """Receive another party's next message: that of hop ``number`` or, from a server, the oldest request's answer."""

    source: int
    number: int = 0


@dataclass(eq=False, slots=True)
class Until:
    """Wait until ``ready()``, on behalf of this worker; -1 stands for a worker without a number."""

    ready: Callable[[], bool]
    worker: int


Session = Generator[Any, Any, Result]
"""Yields `Do`, `Send`, `Receive` and `Until`; returns a Result."""


def nothing() -> None:
    """Do nothing; for work that has no result but may take time."""


def carry_out(
    session: Session[Result],
    meet: Mapping[type, Callable[[Any], Any]],
    stepping: AbstractContextManager[Any] = NO_LOCK,
) -> Result:
    """Carry out a session, or a training loop, in this thread. Returns its result.

    ``meet`` maps each kind of need to the function that meets it. The work of a `Do` is carried out here; the
    condition of an `Until` must hold already. ``stepping`` is held while the session runs from one need to the next.
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
                answer = need.call()
            elif type(need) is Until:
                assert need.ready(), f"Worker {need.worker} would have to wait."
            elif type(need) in meet:
                answer = meet[type(need)](need)
            else:
                raise RuntimeError(f"This session has no other party, but it needs {need!r}.")
        except Exception as raised:
            error = raised
