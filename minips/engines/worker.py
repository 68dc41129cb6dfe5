"""A worker in a run with servers: its training loop, in a thread, and its gradients."""

import math
import reprlib
import time
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from functools import lru_cache
from threading import Event
from typing import Any, cast

import numpy as np

from minips import seeds
from minips.core.config import Config
from minips.core.loop import Await, Begin, Call, Compute, Seen, train_served
from minips.core.message import ADVICE, AT_FIRST, NonFiniteError
from minips.core.partition import native
from minips.core.protocol import WorkerProtocol
from minips.core.rows import Rows
from minips.core.sessions import carry_out
from minips.core.tables import TableWorker, rows_read
from minips.drivers.client import Client
from minips.halves import as_dtype, widen
from minips.intake import as_array, as_number
from minips.problems import Problem
from minips.results.state import LinkState, WorkerState
from minips.stage import Array, Tensors
from minips.stages.shards import Contiguous


def shards_of(problem: Problem, config: Config) -> Callable[[int], Problem]:
    """Return the function that maps a worker to its part of ``problem``, by `Config.shards` or the problem's
    ``shard``. ValueError if both are set, or if the parts break the rules of `Shards`.
    """
    shards, workers = config.shards, config.workers
    if shards == Contiguous():
        return lambda worker: problem.shard(worker, workers)
    if type(problem).shard is not Problem.shard:
        raise ValueError(
            f"{type(problem).__name__} divides its rows with its own shard(worker, workers), so shards={shards!r} "
            "would do nothing. Leave one of them out; to change each part, override subset(rows) in place of shard."
        )
    problem.shard(0, workers)  # raises an error if there are more workers than rows
    parts = [as_array(part, "A shard") for part in shards.split(problem.y, workers, seeds.shards(config.seed))]
    once = len(parts) == workers and np.array_equal(np.sort(np.concatenate(parts)), np.arange(problem.rows))
    if not (once and all(map(len, parts))):
        raise ValueError(
            f"{shards!r} must give each of {problem.rows} rows to one of {workers} workers, and every worker some; got "
            f"shards of {', '.join(str(len(part)) for part in parts)} rows. ps.testing.check names the fault."
        )
    return lambda worker: problem.subset(parts[worker])


def train_ps(
    problem: Problem,
    config: Config,
    client: Client,
    stop: Event,
    seen: Seen | None = None,
    patience_s: float = 0.0,
    inner: Any = None,
    computed: Callable[[int], object] = lambda clock: None,
) -> Seen:
    """Train on ``problem``, this worker's shard of the rows, by `train_served`, until the servers end the run or
    ``stop`` is set.

    NonFiniteError if a loss or a gradient is not finite. An answer may take twice ``config.timeout_s``, or
    ``patience_s`` if that is longer. ``inner`` is the `Inner` of a config with local steps. ``computed`` is called with
    the clock of each gradient, before it is pushed.
    """
    timeout, trace, gradient = max(2 * config.timeout_s, patience_s), client.trace, inner or compute

    def compute_timed(need: Compute) -> tuple[float, Tensors]:
        trace.step = need.clock
        with trace.span("compute"):
            pushed: tuple[float, Tensors] = gradient(problem, config, need.seen, client.worker, need.clock, stop)
        computed(need.clock)
        return pushed

    loop = train_served(by_rows(client.protocol, problem, config), config.overlap, stop.is_set, seen)
    meet = {
        Compute: compute_timed,
        Call: lambda need: client.begin(need.session).result(timeout),
        Begin: lambda need: client.begin(need.session),
        Await: lambda need: need.begun.result(timeout),
    }
    return carry_out(loop, meet)


def by_rows(worker: WorkerProtocol, problem: Problem, config: Config) -> WorkerProtocol:
    """Return the worker's side for its training loop, which pulls from tables only the rows that the batches read."""
    if not problem.tables:
        return worker

    def rows_at(clock: int) -> dict[str, Array]:
        batches = (batch(problem, config, worker.worker, clock, turn) for turn in range(config.accumulate))
        turns = [rows_read(problem.rows_needed(rows), problem.tables, worker.like) for rows in batches]
        return {name: np.unique(np.concatenate([turn[name] for turn in turns])) for name in problem.tables}

    return cast(WorkerProtocol, TableWorker(worker, rows_at, config.overlap))


def worker_state(config: Config, links: list[LinkState], seen: Seen | None, inner: Any = None) -> WorkerState:
    """Return a worker's part of a run's state, from its links' states and, with local steps, its `Inner`."""
    pulled_again = not config.overlap and config.pull.lossless
    if inner:
        links = [{**links[0], "inner": inner.state()}, *links[1:]]
    return WorkerState(links=links, seen=None if pulled_again or seen is None else [*seen])


def at_step(clock: int, worker: int, error: NonFiniteError) -> str:
    """Return a sentence that states at which step a run diverged, why, and what to do."""
    return f"At step {getattr(error, 'step', clock)} of worker {worker}: {error} {ADVICE}"


def before_updates(error: NonFiniteError) -> NonFiniteError:
    """Return the error for a worker that used the first parameters, so the learning rate is not the cause."""
    return NonFiniteError(f"{error} {AT_FIRST}")


def has_moved(error: NonFiniteError, versions: Iterable[int]) -> bool:
    """Return False for the first parameters or the first step: then the data or the problem must be at fault."""
    return bool(any(versions) or getattr(error, "step", 0))


def compute(
    problem: Problem, config: Config, params: Tensors, worker: int, clock: int, stop: Event | None = None
) -> tuple[float, Tensors]:
    """Return the training loss and gradients of one step, averaged over ``accumulate`` batches. It takes at least the
    time that the delays specify. NonFiniteError if the loss is NaN or infinite.
    """
    began, loss, gradients = time.monotonic(), 0.0, dict[str, Any]()
    with np.errstate(over="ignore", invalid="ignore"):  # losses are checked below, gradients before they are sent
        for turn in range(config.accumulate):
            rng = {"rng": seeds.gradient(config.seed, worker, clock, turn)} if problem.draws else {}
            more, summand = pair(problem.loss_and_gradient(params, batch(problem, config, worker, clock, turn), **rng))
            if config.accumulate == 1:
                loss, gradients = more, summand
                break
            loss += more
            for name, g in summand.items():
                gradients[name] = gradients[name] + g if turn else _summand(name, g)
        if config.accumulate > 1:
            loss /= config.accumulate
            gradients = {name: _mean(g, config.accumulate, summand[name]) for name, g in gradients.items()}
    if not math.isfinite(loss):
        raise NonFiniteError(f"The training loss is {loss}, so its gradient was not sent.")
    if config.delays:
        left = config.delays.of(worker, clock, config.seed) - (time.monotonic() - began)
        if left > 0:
            (stop or Event()).wait(left)
    return loss, gradients


def _summand(name: str, g: Any) -> Any:
    """Copy a gradient, whose array the problem may reuse, so that others can be added; half floats become float32."""
    copied = deepcopy(g)
    return widen(copied if isinstance(g, Rows) else native(copied, f"The gradient of {name!r}"))


def _mean(total: Any, count: int, like: Any) -> Any:
    """Divide a sum of ``count`` gradients by their number, in the dtype of one of them."""
    return as_dtype(total / count, getattr(like, "dtype", float))


def pair(returned: Any) -> tuple[float, Tensors]:
    """Return the loss and gradients that ``loss_and_gradient`` returned. TypeError if it returned something else."""
    match returned:
        case [loss, Mapping() as gradients]:
            return as_number(loss, "The loss"), cast(Tensors, gradients)
    raise TypeError(f"loss_and_gradient returns the loss and a dict of gradients; got {reprlib.repr(returned)}.")


def batch(problem: Problem, config: Config, worker: int, clock: int, turn: int) -> Array | None:
    """Return the row numbers of one batch, drawn without replacement; None for the whole shard.

    The numbers depend only on the seed, the worker and its clock, not on the engine or the order of the draws.
    """
    size = config.batch_size
    if size is None or size >= problem.rows:
        return None
    if config.sampling == "epoch":
        epoch, place = divmod(clock * config.accumulate + turn, -(-problem.rows // size))
        return _order(config.seed, worker, epoch, problem.rows)[place * size : (place + 1) * size]
    rng = seeds.batch(config.seed, worker, clock, turn)
    return rng.choice(problem.rows, size, replace=False, shuffle=False)


@lru_cache(maxsize=16)
def _order(seed: int, worker: int, epoch: int, rows: int) -> Array:
    """Return the order in which a worker visits its rows in one epoch."""
    order = seeds.epoch(seed, worker, epoch).permutation(rows)
    order.flags.writeable = False
    return order
