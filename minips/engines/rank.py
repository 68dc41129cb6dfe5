"""The training loop of a worker without servers: gradient, all-reduce with the others, step, again."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Event

import numpy as np

from minips.core.config import Config
from minips.core.message import NonFiniteError
from minips.core.partition import native
from minips.core.trace import Trace
from minips.drivers.peer import Peer
from minips.engines.replica import Replica
from minips.engines.worker import at_step, compute
from minips.problems import Problem
from minips.stage import Tensors
from minips.stages.aggregators import Contribution


def train_allreduce(
    problem: Problem,
    config: Config,
    peer: Peer,
    replica: Replica,
    stop: Event,
    trace: Trace,
    seen: tuple[Tensors, int] | None = None,
    pause: Callable[[], bool] = lambda: False,
) -> tuple[Tensors, int]:
    """Train on ``problem``, this worker's shard of the rows, until the config's steps are made; where ``stop`` is set
    at any worker, all end after the step that they are in. ``trace`` records the computing. After a step at which the
    replica pauses ``pause()`` is called; all end where it returns True, at every worker. Returns the parameters that
    the next gradient is computed from, and their version; ``seen`` are those of a saved run.

    With ``config.overlap`` the next gradient is computed while the last one is exchanged, as in `work`. DivergedError,
    at all the workers, where one of them has no finite gradient any more, or their mean leads to no finite parameters.
    """
    with ThreadPoolExecutor(1, f"minips-exchange-{peer.rank}") as pool:
        travelling: Future[bool] | None = None
        for clock in range(replica.shard.version, config.steps):
            if seen is None or not config.overlap:
                seen = replica.copy()
            trace.step = clock
            with trace.span("compute"):
                own, diverged = contribute(problem, config, replica, clock, seen, stop)
            if travelling and travelling.result():
                break
            exchange = partial(_exchange, peer, replica, own, stop.is_set(), diverged, pause)
            if config.overlap:
                seen = replica.copy()  # before the exchange begins, which will change it
                travelling = pool.submit(exchange)
            elif exchange():
                break
        if travelling:
            travelling.result()
    return seen or replica.copy()


def contribute(
    problem: Problem, config: Config, replica: Replica, clock: int, seen: tuple[Tensors, int], stop: Event | None = None
) -> tuple[Contribution, str]:
    """A rank's contribution to the sum of a step, computed from the copy of its replica that it has ``seen``; and why
    its gradient is not finite: it then adds zeros, so that the step comes to its end at every rank. NonFiniteError in
    the first step, where only the data can be to blame.
    """
    params, read = seen
    try:
        loss, gradients = compute(problem, config, params, replica.rank, clock, stop)
        gradients = {name: np.array(native(g)) for name, g in gradients.items()}  # the problem may reuse its own
        replica.shard.check(gradients)
    except NonFiniteError as error:
        if clock == 0:
            raise
        nothing = {name: np.zeros_like(p) for name, p in params.items()}
        return Contribution(replica.rank, clock, read, nothing), at_step(clock, replica.rank, error)
    return Contribution(replica.rank, clock, read, gradients, loss), ""


def _exchange(
    peer: Peer, replica: Replica, own: Contribution, ending: bool, diverged: str, pause: Callable[[], bool]
) -> bool:
    """One step of all the workers; True where it is the last one."""
    mean, ending = peer.mean(own.clock, own.gradients, ending, diverged)
    replica.step(own, mean)
    if replica.shard.paused:
        ending = pause() or ending
        replica.shard.go_on()
    return ending
