"""The training loop of one worker: gradient, push, pull, again."""

import threading
import time

import numpy as np

from minips.problems import Problem
from minips.runtime.client import Client
from minips.runtime.config import Config
from minips.stage import Tensors


def work(problem: Problem, config: Config, client: Client, stop: threading.Event) -> None:
    """Train on ``problem``, this worker's shard of the rows, until the servers say that the run is done or ``stop`` is
    set.

    With ``config.overlap`` the next gradient is computed while the last one travels, from parameters that are one step
    older.
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
                return
        travelling = client.push_pull(gradients, loss=loss, versions=read)
        if not config.overlap:
            params, versions, travelling = travelling.result(timeout), client.versions, None
    if travelling:
        travelling.result(timeout)


def compute(
    problem: Problem, config: Config, params: Tensors, worker: int, clock: int, stop: threading.Event | None = None
) -> tuple[float, Tensors]:
    """Training loss and gradients of one step: the average over ``accumulate`` batches, no sooner than the delays
    say.
    """
    began = time.monotonic()
    loss, gradients = problem.loss_and_gradient(params, batch(problem, config, worker, clock, 0))
    for turn in range(1, config.accumulate):
        more, summand = problem.loss_and_gradient(params, batch(problem, config, worker, clock, turn))
        loss += more
        for name, g in summand.items():
            gradients[name] = gradients[name] + g
    if config.accumulate > 1:
        loss /= config.accumulate
        gradients = {name: g / config.accumulate for name, g in gradients.items()}
    if config.delays:
        left = config.delays.of(worker, clock, config.seed) - (time.monotonic() - began)
        if left > 0:
            (stop or threading.Event()).wait(left)
    return loss, gradients


def batch(
    problem: Problem, config: Config, worker: int, clock: int, turn: int
) -> "np.ndarray[tuple[int], np.dtype[np.intp]] | None":
    """The rows of one batch, drawn without replacement; None for all of the shard.

    They follow from the seed, the worker and its clock alone, so that any engine and any order draws the same.
    """
    if config.batch_size is None or config.batch_size >= problem.rows:
        return None
    rng = np.random.default_rng([config.seed, worker, clock, 0, turn])
    return rng.choice(problem.rows, config.batch_size, replace=False, shuffle=False)
