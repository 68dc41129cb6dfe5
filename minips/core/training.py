"""The training loop of a worker, written once for real runs, simulations and predictions.

A loop is a session whose needs are larger than those of a call: `Compute`, a gradient; `Call`, the result of another
session; `Begin`, a session that runs beside the loop; `Await`, its result. The driver decides how long these take.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from minips.core.protocol import WorkerProtocol
from minips.core.sessions import Result, Session
from minips.stage import Tensors


class Compute(NamedTuple):
    """The loss and the gradients at this clock, of the parameters that the worker has seen; None where the worker gives
    up, since the round was completed without it.
    """

    clock: int
    seen: Any


class Call(NamedTuple):
    """The result of a session, carried out to its end."""

    session: Session[Any]


class Begin(NamedTuple):
    """Begin a session. Once all its messages are sent, the loop continues with the value that `Await` takes."""

    session: Session[Any]


class Await(NamedTuple):
    """The result of a session that has begun."""

    begun: Any


class Seen(NamedTuple):
    """The parameters from which a worker computes its next gradient, the servers' versions of them and, with overlap,
    the parameters of the answer that arrived meanwhile.
    """

    params: Tensors
    versions: tuple[int, ...]
    arrived: Tensors | None = None


def train_served(
    worker: WorkerProtocol, overlap: bool, over: Callable[[], bool] = lambda: False, seen: Seen | None = None
) -> Session[Seen]:
    """Compute a gradient, push it, pull, and repeat until the servers say that the run is over, or ``over()``. Returns
    what the worker has seen last; ``seen`` is what it had seen in a saved run.

    With ``overlap`` the worker computes the next gradient while the last one travels, from parameters one step older.
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
    """Compute and exchange a rank's gradient at each of these clocks, until an exchange is the last one. Returns the
    parameters for the next gradient; ``seen`` are those of a saved run.

    ``copy()`` copies the rank's current parameters. ``exchange(clock, computed)`` is the session of one step of all the
    ranks; its result is True for the last one. With ``overlap`` the rank computes the next gradient during the exchange
    of the last one, as in `train_served`.
    """
    travelling: Any = None
    for clock in clocks:
        if seen is None or not overlap:
            seen = copy()
        computed = yield Compute(clock, seen)
        if travelling is not None and (yield Await(travelling)):
            break
        if overlap:
            seen = copy()  # before the exchange begins, which will change the parameters
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
    """Carry out a loop at once, in this thread. Returns its result."""
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
    """A session that ends at once, with this result."""
    return result
    yield  # makes this function a generator
