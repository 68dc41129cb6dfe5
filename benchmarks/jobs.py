"""Training runs without minips' servers, clients and transports: gradients alone, and plain multiprocessing pipes.

Gradient, mean and SGD are minips' own code, so only the communication differs. A role (see `minips.engines.roles`)
waits for go, which comes when all are ready, and then runs its steps under BSP.
"""

import threading
import time
from contextlib import ExitStack, suppress
from multiprocessing import connection
from pathlib import Path
from typing import Any

from benchmarks.ways import pipe_listener
from minips import seeds
from minips.core.config import Config
from minips.engines.supervisor import ControlPipe
from minips.engines.worker import compute
from minips.lab.measure.rounds import Rounds, told_to_go
from minips.problems import Problem
from minips.stage import Tensors


def alone(control: ControlPipe, *, config: Config, problem: Problem, worker: int, folder: Path) -> dict[str, Any]:
    """Gradients alone: the same batches, always at the initial parameters, and nothing is sent.

    ``share`` is the share of a core that it had from go to its end: 1 unless other work runs here.
    """
    params = problem.init(seeds.init(config.seed))
    went = told_to_go(control)
    began, busy = time.monotonic(), time.process_time()
    for clock in range(config.steps if went else 0):
        compute(problem, config, params, worker, clock)
    changed_at = time.monotonic()
    return {"changed_at": changed_at, "share": (time.process_time() - busy) / max(changed_at - began, 1e-9)}


def pipe_server(control: ControlPipe, *, config: Config, params: Tensors, folder: Path) -> dict[str, Any]:
    """A server that receives each round's gradients over a multiprocessing pipe for each worker, as pickles."""
    rounds = Rounds(config, params)
    with pipe_listener(folder) as listener:
        threading.Thread(target=_serve_pipes, args=(listener, rounds, config), daemon=True).start()
        control.send("ready", listener.address)
        control.wait()
    return rounds.report()


def _serve_pipes(listener: connection.Listener, rounds: Rounds, config: Config) -> None:
    with suppress(EOFError, OSError), ExitStack() as stack:
        pipes = [stack.enter_context(listener.accept()) for _ in range(config.workers)]
        pipes = [pipe for _, pipe in sorted((pipe.recv(), pipe) for pipe in pipes)]
        for pipe in pipes:
            pipe.send(rounds.params)
        for _ in range(config.steps):
            rounds.apply([pipe.recv() for pipe in pipes])
            for pipe in pipes:
                pipe.send(rounds.params)


def pipe_worker(control: ControlPipe, *, config: Config, problem: Problem, worker: int, folder: Path) -> None:
    """The other end of one of `pipe_server`'s pipes."""
    word, address = control.wait("connect")
    if word != "connect":
        return
    with connection.Client(address) as pipe:
        if not told_to_go(control):
            return
        pipe.send(worker)
        params = pipe.recv()
        for clock in range(config.steps):
            _, gradients = compute(problem, config, params, worker, clock)
            pipe.send(gradients)
            params = pipe.recv()
