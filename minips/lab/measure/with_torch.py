"""A training run on torch.distributed.rpc, in processes that import torch when they join the others.

A worker calls a function in the server's process; arguments and result are tensors. Both sides use NumPy arrays that
share the tensors' memory, so that gradient, mean and SGD are minips' own code.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from minips.core.config import Config
from minips.engines.supervisor import ControlPipe
from minips.engines.worker import compute
from minips.lab.measure.pairs import silence
from minips.lab.measure.rounds import Rounds, told_to_go
from minips.problems import Problem
from minips.stage import Tensors

SERVER = "server"
JOIN_S = 100.0
"""The most seconds to wait for the other members at the start."""
_served: Any = None
"""The object that remote calls use, in the server's process."""


@contextmanager
def member(name: str, rank: int, size: int, folder: Path) -> Iterator[Any]:
    """Join the other members, yield the module torch.distributed.rpc, and leave at the end."""
    from torch.distributed import rpc

    if sys.platform == "linux":  # other systems name the loopback differently
        os.environ["TP_SOCKET_IFNAME"] = os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{folder}/torch", rpc_timeout=JOIN_S)
    rpc.init_rpc(name, rank=rank, world_size=size, rpc_backend_options=options)
    try:
        yield rpc
    finally:
        rpc.shutdown(graceful=False)


def serve(control: ControlPipe, *, config: Config, params: Tensors, folder: Path) -> dict[str, Any]:
    """Serve a job's parameters until the supervisor says stop."""
    global _served
    silence()
    _served = Rounds(config, params)
    with member(SERVER, 0, config.workers + 1, folder):
        control.send("ready")
        while control.wait()[0] != "stop":
            pass
    report: dict[str, Any] = _served.report()
    return report


def run_ps_worker(control: ControlPipe, *, config: Config, problem: Problem, worker: int, folder: Path) -> None:
    """Run one worker of a job."""
    silence()
    with member(f"worker-{worker}", worker + 1, config.workers + 1, folder) as rpc:
        if not told_to_go(control):
            return
        params = _arrays(rpc.rpc_sync(SERVER, _pull))
        for clock in range(config.steps):
            _, gradients = compute(problem, config, params, worker, clock)
            params = _arrays(rpc.rpc_sync(SERVER, _push_pull, args=(worker, _tensors(gradients))))


def _pull() -> dict[str, Any]:
    return _tensors(_served.params)


def _push_pull(worker: int, gradients: dict[str, Any]) -> dict[str, Any]:
    return _tensors(_served.push_pull(worker, _arrays(gradients)))


def _tensors(arrays: Tensors) -> dict[str, Any]:
    import torch

    return {name: torch.from_numpy(x) for name, x in arrays.items()}


def _arrays(tensors: dict[str, Any]) -> Tensors:
    return {name: x.numpy() for name, x in tensors.items()}
