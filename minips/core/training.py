"""The training loop of a worker, told once: in a real run, a simulation and a prediction alike.

A loop is a session whose needs are larger than those of a call: `Compute`, a gradient; `Call`, the result of another
session; `Begin`, the same beside what comes next; `Await`, its result. Who carries it out decides what time these take.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from minips.core.protocol import WorkerProtocol
from minips.core.sessions import Result, Session
from minips.stage import Tensors


class Compute(NamedTuple):
    """The loss and the gradients at this clock of what the worker has seen; None where it gives that up, since the
    round was completed without it.
    """

    clock: int
    seen: Any


class Call(NamedTuple):
    """The result of a session, carried out to its end."""

    session: Session[Any]


class Begin(NamedTuple):
    """Begin a session; the loop goes on once all of its messages are sent, with what `Await` waits for."""

    session: Session[Any]


class Await(NamedTuple):
    """The result of a session that has begun."""

    begun: Any


class Seen(NamedTuple):
    """The parameters that a worker computes its next gradient from, the servers' versions of them, and with overlap
    those of the answer that came meanwhile.
    """

    params: Tensors
    versions: tuple[int, ...]
    arrived: Tensors | None = None


def train_served(
    worker: WorkerProtocol, overlap: bool, over: Callable[[], bool] = lambda: False, seen: Seen | None = None
) -> Session[Seen]:
    """Gradient, push, pull, again, until the servers have said that the run is over, or ``over()``. Returns what the
    worker has seen last; ``seen`` is what it had in a saved run.

    With ``overlap`` the next gradient is computed while the last one travels, from parameters that are one step older.
    """
    travelling: Any = None
    if seen is None:
        params, versions = (yield Call(worker.pull_whole())), worker.versions
    else:
        params, versions, arrived = seen
        travelling = None if arrived is None else (yield Begin(_returned(arrived)))
    while not (worker.done or over()):
        read, computed = versions, (yield Compute(worker.clock, params))
        if over():
            break
        if travelling is not None:
            arrived = yield Await(travelling)
            if worker.done or over():
                break
            params, versions, travelling = arrived, worker.versions, None
        if computed is None:
            params, versions = (yield Call(worker.pull_whole())), worker.versions
            continue
        loss, gradients = computed
        push_pull = worker.push_pull(loss, gradients, read)
        if overlap:
            travelling = yield Begin(push_pull)
        else:
            params, versions = (yield Call(push_pull)), worker.versions
    return Seen(params, versions, None if travelling is None else (yield Await(travelling)))


def train_together(
    copy: Callable[[], Any],
    exchange: Callable[[int, Any], Session[bool]],
    clocks: Iterable[int],
    overlap: bool,
    seen: Any = None,
) -> Session[Any]:
    """A rank's gradient and exchange, at each of these clocks, until an exchange is the last one. Returns what the next
    gradient is computed from; ``seen`` is what it was in a saved run.

    ``copy()`` are the rank's parameters as they are now, to be kept; ``exchange`` is the session of a step of all the
    ranks, at a clock, with what was computed, True where it is the last one. With ``overlap`` the next gradient is
    computed while the last one is exchanged, as in `train_served`.
    """
    travelling: Any = None
    for clock in clocks:
        if seen is None or not overlap:
            seen = copy()
        computed = yield Compute(clock, seen)
        if travelling is not None and (yield Await(travelling)):
            break
        if overlap:
            seen = copy()  # before the exchange begins, which will change it
            travelling = yield Begin(exchange(clock, computed))
        elif (yield Call(exchange(clock, computed))):
            break
    if travelling is not None:
        yield Await(travelling)
    return seen or copy()


def carry_out_loop(
    loop: Session[Result],
    compute: Callable[[Compute], Any],
    call: Callable[[Session[Any]], Any],
    begin: Callable[[Session[Any]], Any],
    wait: Callable[[Any], Any],
) -> Result:
    """Carry a loop out here and now, in this thread; what it returns."""
    answer: Any = None
    while True:
        try:
            need = loop.send(answer)
        except StopIteration as end:
            result: Result = end.value
            return result
        if type(need) is Compute:
            answer = compute(need)
        elif type(need) is Call:
            answer = call(need.session)
        elif type(need) is Begin:
            answer = begin(need.session)
        else:
            answer = wait(need.begun)


def _returned(result: Any) -> Session[Any]:
    """A session that is over at once."""
    return result
    yield  # which makes it a session
