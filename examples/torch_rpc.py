"""A parameter server on torch.distributed.rpc: two workers push gradients of ``nn.Linear(10, 1)``, the server steps.

Five things easily go wrong; comments (1) to (5) mark where this code gets them right. ``torch_rpc_in_minips.py`` is the
same program in minips. This file needs PyTorch: ``pip install torch``.
"""

import os
import tempfile
import threading

import numpy as np
import torch
from torch import nn
from torch.distributed import rpc

WORKERS, STEPS = 2, 30


class ParameterServer:
    """The model, its optimizer, and the gradients of a round."""

    def __init__(self) -> None:
        self.model = nn.Linear(10, 1)
        for p in self.model.parameters():
            nn.init.zeros_(p)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.lock, self.round = threading.Lock(), torch.futures.Future()
        self.gradients: list[list[torch.Tensor]] = []

    def weights(self) -> list[torch.Tensor]:
        """Copies of the parameters; the next step does not change the copies."""
        return [p.detach().clone() for p in self.model.parameters()]


@rpc.functions.async_execution
def push_pull(server: rpc.RRef, gradients: list[torch.Tensor]) -> torch.futures.Future:
    """Runs on the server. (1) Functions are sent by name, so a lambda would fail: the other side cannot look it up."""
    ps = server.local_value()  # (2) only at the owner of the reference; elsewhere use server.to_here()
    with ps.lock:  # (3) calls run in several threads, so updates must hold a lock
        answer = ps.round
        ps.gradients.append(gradients)
        if len(ps.gradients) == WORKERS:
            for p, *pushed in zip(ps.model.parameters(), *ps.gradients, strict=True):
                p.grad = sum(pushed) / WORKERS
            ps.optimizer.step()
            ps.gradients, ps.round = [], torch.futures.Future()
            answer.set_result(ps.weights())
    return answer  # (4) with async_execution the call returns when this Future is completed


def data() -> tuple[torch.Tensor, torch.Tensor]:
    """Two hundred rows drawn from a linear model."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 10)).astype(np.float32)
    y = X @ rng.normal(size=10).astype(np.float32) + 1
    return torch.from_numpy(X), torch.from_numpy(y)


def loss_of(model: nn.Module, X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Half the mean squared error."""
    return nn.functional.mse_loss(model(X)[:, 0], y) / 2


def work(server: rpc.RRef, worker: int) -> None:
    """Runs on a worker, with the worker's half of the rows: sends gradients and gets new weights."""
    model = nn.Linear(10, 1)
    X, y = (part.chunk(WORKERS)[worker] for part in data())
    weights = rpc.rpc_sync(server.owner(), pull, args=(server,))
    for _ in range(STEPS):
        for p, w in zip(model.parameters(), weights, strict=True):
            p.data = w
        gradients = torch.autograd.grad(loss_of(model, X, y), list(model.parameters()))
        future = rpc.rpc_async(server.owner(), push_pull, args=(server, list(gradients)))
        weights = future.wait()  # (5) a worker that ignores the answer keeps its first weights for ever


def pull(server: rpc.RRef) -> list[torch.Tensor]:
    """Runs on the server."""
    with server.local_value().lock:
        return server.local_value().weights()


def run(rank: int, folder: str) -> None:
    """Run one process. Rank 0 is the server and starts ``work`` on the workers."""
    os.environ["TP_SOCKET_IFNAME"] = os.environ["GLOO_SOCKET_IFNAME"] = "lo"  # nothing leaves this machine
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{folder}/meet", rpc_timeout=60)
    rpc.init_rpc(f"rank-{rank}", rank=rank, world_size=WORKERS + 1, rpc_backend_options=options)
    if rank == 0:
        ps = ParameterServer()
        server = rpc.RRef(ps)
        futures = [rpc.rpc_async(f"rank-{worker + 1}", work, args=(server, worker)) for worker in range(WORKERS)]
        torch.futures.wait_all(futures)
        print(f"loss {loss_of(ps.model, *data()).item():.7g} after {WORKERS * STEPS} gradients")
    rpc.shutdown()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(run, args=(folder,), nprocs=WORKERS + 1)
