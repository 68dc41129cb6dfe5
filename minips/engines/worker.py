"""The training loop of one worker: gradient, push, pull, again; or gradient, exchange with the others, step, again."""

import math
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from threading import Event

import numpy as np

from minips import seeds
from minips.core.config import Config
from minips.core.message import ADVICE, NonFiniteError
from minips.core.partition import native
from minips.core.trace import Trace
from minips.drivers.client import Client
from minips.drivers.peer import Peer
from minips.engines.replica import Replica
from minips.problems import Problem
from minips.stage import Array, Tensors
from minips.stages.aggregators import Contribution


def train_ps(problem: Problem, config: Config, client: Client, stop: Event) -> Tensors:
    """Train on ``problem``, this worker's shard of the rows, until the servers end the run or ``stop`` is set. Returns
    the parameters that were pulled last.

    With ``config.overlap`` the next gradient is computed while the last one travels, from parameters that are one step
    older. NonFiniteError where a loss or a gradient is not finite.
    """
    timeout = 2 * config.timeout_s
    params, versions = client.pull().result(timeout), client.versions
    travelling = None
    while not (client.done or stop.is_set()):
        read = versions
        client.trace.step = client.clock
        with client.trace.span("compute"):
            loss, gradients = compute(problem, config, params, client.worker, client.clock, stop)
        if stop.is_set():
            break
        if travelling:
            params, versions = travelling.result(timeout), client.versions
            if client.done:
                return params
        travelling = client.push_pull(gradients, loss=loss, versions=read)
        if not config.overlap:
            params, versions, travelling = travelling.result(timeout), client.versions, None
    if travelling:
        params = travelling.result(timeout)
    return params


def train_allreduce(problem: Problem, config: Config, peer: Peer, replica: Replica, stop: Event, trace: Trace) -> None:
    """Train on ``problem``, this worker's shard of the rows, for the config's steps; where ``stop`` is set at any
    worker, all end after the step that they are in. ``trace`` records the computing.

    With ``config.overlap`` the next gradient is computed while the last one is exchanged, as in `train_ps`.
    DivergedError, at all the workers, where one of them has no finite gradient any more, or their mean leads to no
    finite parameters.
    """
    with ThreadPoolExecutor(1, f"minips-exchange-{peer.rank}") as pool:
        travelling: Future[bool] | None = None
        for clock in range(config.steps):
            if clock == 0 or not config.overlap:
                seen = replica.copy()
            trace.step = clock
            with trace.span("compute"):
                own, diverged = contribute(problem, config, replica, clock, seen, stop)
            if travelling and travelling.result():
                break
            exchange = partial(_exchange, peer, replica, own, stop.is_set(), diverged)
            if config.overlap:
                seen = replica.copy()  # before the exchange begins, which will change it
                travelling = pool.submit(exchange)
            elif exchange():
                break
        if travelling:
            travelling.result()


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


def at_step(clock: int, worker: int, error: NonFiniteError) -> str:
    """When a run diverged, and why."""
    return f"At step {clock} of worker {worker}: {error}"


def _exchange(peer: Peer, replica: Replica, own: Contribution, ending: bool, diverged: str) -> bool:
    """One step of all the workers; True where it is the last one."""
    mean, ending = peer.mean(own.clock, own.gradients, ending, diverged)
    replica.step(own, mean)
    return ending


def compute(
    problem: Problem, config: Config, params: Tensors, worker: int, clock: int, stop: Event | None = None
) -> tuple[float, Tensors]:
    """Training loss and gradients of one step: the average over ``accumulate`` batches, no sooner than the delays
    say. NonFiniteError where the loss is NaN or infinite.
    """
    began = time.monotonic()
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is told below, and where gradients are sent
        loss, gradients = problem.loss_and_gradient(params, batch(problem, config, worker, clock, 0))
        for turn in range(1, config.accumulate):
            more, summand = problem.loss_and_gradient(params, batch(problem, config, worker, clock, turn))
            loss += more
            for name, g in summand.items():
                gradients[name] = gradients[name] + g
        if config.accumulate > 1:
            loss /= config.accumulate
            gradients = {name: g / config.accumulate for name, g in gradients.items()}
    if not math.isfinite(loss):
        raise NonFiniteError(f"The training loss is {loss}, so its gradient was not sent. {ADVICE}")
    if config.delays:
        left = config.delays.of(worker, clock, config.seed) - (time.monotonic() - began)
        if left > 0:
            (stop or Event()).wait(left)
    return loss, gradients


def batch(problem: Problem, config: Config, worker: int, clock: int, turn: int) -> Array | None:
    """The rows of one batch, drawn without replacement; None for all of the shard.

    They follow from the seed, the worker and its clock alone, so that any engine and any order draws the same.
    """
    if config.batch_size is None or config.batch_size >= problem.rows:
        return None
    rng = seeds.batch(config.seed, worker, clock, turn)
    return rng.choice(problem.rows, config.batch_size, replace=False, shuffle=False)
