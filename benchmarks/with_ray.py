"""The same work on Ray actors. Each driver is a process with its own Ray, which ends with it."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

from minips import seeds
from minips.core.config import Config
from minips.engines.on_ray import connected
from minips.engines.supervisor import ControlPipe
from minips.engines.worker import compute
from minips.lab.measure.pairs import WAIT_S, Trip, answering, numbers, silence
from minips.lab.measure.rounds import Rounds, told_to_go
from minips.problems import Problem
from minips.stage import Array, Tensors


@contextmanager
def silenced() -> Iterator[Any]:
    """The module ray; its output is discarded."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        import ray

        try:
            yield ray
        except ray.exceptions.RayError as error:  # its text lists every task that depended on the failed one
            raise RuntimeError(str(error).strip().splitlines()[-1]) from None


@contextmanager
def trip(address: None, *, values: int) -> Iterator[Trip]:
    """An actor that steps its parameters and answers with them."""
    gradient = numbers(values)
    with silenced() as ray, connected("local", 1, 1.0):
        actor = ray.remote(_Stepper).remote(values)
        yield lambda: ray.get(actor.step.remote(gradient), timeout=WAIT_S)


class _Stepper:
    def __init__(self, values: int) -> None:
        self._answer: Callable[[Array], Array] = answering(values, applies=True)

    def step(self, gradient: Array) -> Array:
        return self._answer(gradient)


class _Worker:
    def __init__(self, config: Config, problem: Problem, worker: int) -> None:
        self._config, self._problem, self._worker = config, problem, worker

    def gradient(self, params: Tensors, clock: int) -> Tensors:
        return compute(self._problem, self._config, params, self._worker, clock)[1]


class _Server(Rounds):
    def __init__(self, config: Config, params: Tensors) -> None:
        super().__init__(config, {name: p.copy() for name, p in params.items()})  # Ray's own are read-only

    def step(self, *gradients: Tensors) -> Tensors:
        self.apply(list(gradients))
        return self.params


def drive(control: ControlPipe, *, config: Config, make: Callable[[int], Problem], features: int) -> Any:
    """A whole job on the problem from ``make``, from the start of Ray to its end. Times are in seconds."""
    silence()
    problem = make(features)
    params = problem.init(seeds.init(config.seed))
    with silenced() as ray:
        if not told_to_go(control):
            return None
        began = time.monotonic()
        with connected("local", config.workers + 1, 1.0):
            server = ray.remote(_Server).remote(config, params)
            workers = [
                ray.remote(_Worker).remote(config, problem.shard(number, config.workers), number)
                for number in range(config.workers)
            ]
            ray.get([actor.__ray_ready__.remote() for actor in (server, *workers)], timeout=WAIT_S)
            going = time.monotonic()
            latest: Any = params
            for clock in range(config.steps):
                latest = server.step.remote(*[worker.gradient.remote(latest, clock) for worker in workers])
            ray.get(latest, timeout=WAIT_S)
            report = ray.get(server.report.remote(), timeout=WAIT_S)
            report["params"] = {name: p.copy() for name, p in report["params"].items()}
    return {"params": report["params"], "loop_s": report["changed_at"] - going, "total_s": time.monotonic() - began}
