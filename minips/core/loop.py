"""A worker's training loop, written once for real runs, simulations and predictions.

A loop is a session whose needs are larger than a call's: `Compute`, a gradient; `Call`, the result of another session;
`Begin`, the start of a session beside the loop; `Await`, that session's result. The driver decides how long these take.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from minips.core.protocol import WorkerProtocol
from minips.core.sessions import Session
from minips.stage import Tensors


class Compute(NamedTuple):
    """The loss and the gradients at this clock, from the parameters that the worker has ``seen``. None if a simulated
    straggler abandons the gradient because its round was completed without it.
    """

    clock: int
    seen: Any


class Call(NamedTuple):
    """The result of a session that the driver carries out to its end."""

    session: Session[Any]


class Begin(NamedTuple):
    """Begin a session. Once its messages are sent, the loop continues, with a value to pass to `Await`."""

    session: Session[Any]


class Await(NamedTuple):
    """The result of a session begun earlier."""

    begun: Any


class Seen(NamedTuple):
    """The parameters for a worker's next gradient, and their versions by server. With overlap, also the parameters of
    the last answer, which are for the gradient after that.
    """

    params: Tensors
    versions: tuple[int, ...]
    next_params: Tensors | None = None


def train_served(
    worker: WorkerProtocol, overlap: bool, over: Callable[[], bool] = lambda: False, seen: Seen | None = None
) -> Session[Seen]:
    """A worker's loop with servers: gradient, push, pull, until ``over()`` is true, or until the servers say that the
    run is over. Returns the last parameters that the worker has seen; ``seen`` holds those of a saved run.

    With ``overlap``, the worker computes gradient k + 1, from the answer to push k − 1, while push k is under way.
    """
    travelling: Any = None
    if seen is None:
        params, versions = (yield Call(worker.pull_whole())), worker.versions
    else:
        params, versions, next_params = seen
        travelling = None if next_params is None else (yield Begin(_returned(next_params)))
    while not (worker.done or over()):
        gradient_versions, computed = versions, (yield Compute(worker.clock, params))
        if over():
            break
        if travelling is not None:
            next_params = yield Await(travelling)
            if worker.done or over():
                break
            params, versions, travelling = next_params, worker.versions, None
        if computed is None:
            params, versions = (yield Call(worker.pull_whole())), worker.versions
            continue
        loss, gradients = computed
        push_pull = worker.push_pull(loss, gradients, gradient_versions)
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
    """A rank's loop without servers: gradient and exchange at each of these clocks, until the last exchange. Returns
    the copy of the parameters for the next gradient; ``seen`` is such a copy of a saved run.

    ``copy()`` copies the rank's current parameters. ``exchange(clock, computed)`` is the session for one step of all
    ranks; it returns True after the last step. With ``overlap``, the rank computes the next gradient while it exchanges
    the last one, as in `train_served`.
    """
    travelling: Any = None
    for clock in clocks:
        if seen is None or not overlap:
            seen = copy()
        computed = yield Compute(clock, seen)
        if travelling is not None and (yield Await(travelling)):
            break
        if overlap:
            seen = copy()  # copied before the exchange, which changes the parameters
            travelling = yield Begin(exchange(clock, computed))
        elif (yield Call(exchange(clock, computed))):
            break
    if travelling is not None:
        yield Await(travelling)
    return seen or copy()


def _returned(result: Any) -> Session[Any]:
    """A session that ends immediately with this result."""
    return result
    yield  # makes this function a generator
