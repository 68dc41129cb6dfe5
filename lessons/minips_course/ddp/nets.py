"""The lesson's programs that need torch: a net's backward pass, a step of DDP, and training with hooks."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from statistics import median
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np

import minips as ps
from minips.stage import Array

if TYPE_CHECKING:
    import torch

LIMIT_S = 60.0
"""The most seconds that a backward pass may take."""
BATCH = 256
"""The rows of each rank in a step that is timed."""


@contextmanager
def group(rank: int, folder: Path) -> Iterator[None]:
    """Join torch's process group of two ranks."""
    import torch
    import torch.distributed as dist

    if sys.platform == "linux":  # so that no message leaves this machine
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    try:
        yield
    finally:
        dist.destroy_process_group()


def make_net() -> "torch.nn.Module":
    """Return a net that maps digits of 8 × 8 pixels to ten scores. It has 38,282 parameters in eight tensors."""
    from torch import nn

    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


class Net:
    """A net with rows of one rank. Autograd waits ``wait_s`` before each gradient, as if the net were larger."""

    def __init__(self, rank: int, wait_s: float) -> None:
        import torch

        torch.manual_seed(0)
        X, y = map(torch.from_numpy, ps.datasets.digits()[:2])
        rows = torch.randint(len(X), (2 * BATCH,))[rank::2]
        self.X, self.y, self.net = X[rows], y[rows], make_net()
        self.model: Any = self.net
        self.ready: Queue[tuple[float, torch.Tensor]] = Queue()
        for p in self.net.parameters():
            p.register_hook(lambda gradient: time.sleep(wait_s))  # it returns None: the gradient stays
            p.register_post_accumulate_grad_hook(lambda p: self.ready.put((time.perf_counter(), p.grad)))

    def backward(self) -> None:
        """Compute the gradients."""
        import torch

        self.net.zero_grad()
        torch.nn.functional.cross_entropy(self.model(self.X), self.y).backward()

    def gradients(self) -> Iterator[Array]:
        """Yield each gradient as a flat array that shares its memory, when it is ready, while backward goes on."""
        thread = Thread(target=self.backward)
        thread.start()
        for _ in self.net.parameters():
            _, gradient = self.ready.get(timeout=LIMIT_S)
            yield gradient.numpy().reshape(-1)
        thread.join()


def backward_times(peer: Any, wait_s: float, turns: int = 15) -> dict[str, Any]:
    """Return the number of values of each gradient, in the order in which they are ready, and when, in milliseconds."""
    net, times = Net(peer.rank, wait_s), list[list[float]]()
    for _ in range(turns):
        peer.swap(np.zeros(1))
        began, values, ready = time.perf_counter(), [], []
        for gradient in net.gradients():
            values.append(gradient.size)
            ready.append(1e3 * (time.perf_counter() - began))
        times.append(ready)
    return {"values": values, "ready_ms": [round(median(one), 1) for one in zip(*times, strict=True)]}


def ddp_step(peer: Any, wait_s: float, turns: int = 9) -> dict[str, float]:
    """Make steps under DDP with buckets of its own size. Return, in milliseconds of the median step, when the first and
    the last gradient were ready, and when the first all-reduce began.
    """
    import torch
    import torch.distributed as dist

    net, begun, steps = Net(peer.rank, wait_s), list[float](), list[tuple[float, dict[str, float]]]()

    def noting(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        begun.append(time.perf_counter())
        bucket.buffer().div_(dist.get_world_size())
        summed = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return summed.then(lambda done: done.value()[0])

    net.model = torch.nn.parallel.DistributedDataParallel(net.net)
    net.model.register_comm_hook(None, noting)
    for _ in range(turns):
        begun.clear()
        peer.swap(np.zeros(1))
        began = time.perf_counter()
        net.backward()
        took = time.perf_counter() - began
        ready = [net.ready.get(timeout=LIMIT_S)[0] for _ in net.net.parameters()]
        found = {"first": ready[0], "last": ready[-1], "begin": begun[0]}
        steps.append((took, {name: 1e3 * (at - began) for name, at in found.items()}))
    return sorted(steps, key=lambda step: step[0])[turns // 2][1]


def learn(
    peer: Any, wrap: Callable[..., Any], codecs: Mapping[str, Any], rate: float, steps: int = 60, seeds: int = 5
) -> dict[str, list[list[float]]]:
    """Train the net that ``wrap(net, codec)`` makes. Return, for each codec, a row for each seed: its accuracy, and the
    bytes that a rank hands over. With the same seed, all start from the same parameters and read the same rows.
    """
    import torch.distributed as dist

    sent, found = list[int](), dict[str, list[list[float]]]()
    before = dist.all_reduce, dist.all_gather
    dist.all_reduce, dist.all_gather = (_counting(one, sent) for one in before)
    try:
        for name, codec in codecs.items():
            found[name] = []
            for seed in range(seeds):
                sent.clear()
                accuracy = _learnt(wrap, codec, rate, steps, seed)
                found[name].append([accuracy, sum(sent)])
    finally:
        dist.all_reduce, dist.all_gather = before
    return found


def _learnt(wrap: Callable[..., Any], codec: Any, rate: float, steps: int, seed: int) -> float:
    """Return the accuracy of one run."""
    import torch
    import torch.distributed as dist

    X, y, X_new, y_new = map(torch.from_numpy, ps.datasets.digits(seed=seed))
    middle, spread = X.mean(), X.std()
    X, X_new = (X - middle) / spread, (X_new - middle) / spread
    torch.manual_seed(seed)
    model = wrap(make_net(), codec)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(steps):
        rows = torch.randint(len(X), (64,))[dist.get_rank() :: 2]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(X[rows]), y[rows]).backward()
        optimizer.step()
    return float((model(X_new).argmax(1) == y_new).float().mean())


def _counting(collective: Callable[..., Any], sent: list[int]) -> Callable[..., Any]:
    """Return a collective that also records the bytes of its last argument."""

    def counted(*given: Any, **options: Any) -> Any:
        sent.append(given[-1].nbytes)
        return collective(*given, **options)

    return counted


class Group:
    """The ranks as the homework's hook sees them: their number, and the sum of the arrays that they hand over."""

    def __init__(self, bucket: int) -> None:
        import torch.distributed as dist

        self.size, self.bucket = dist.get_world_size(), bucket

    def all_reduce(self, array: Array) -> Array:
        """Return the sum of this array over the ranks, in the array's own type."""
        import torch
        import torch.distributed as dist

        total = torch.from_numpy(np.array(array))
        dist.all_reduce(total)
        return np.asarray(total.numpy())


def as_hook(mine: Callable[..., Array]) -> Callable[[Any, Any], Any]:
    """Return a hook for torch that calls ``mine(array, group)`` for each bucket."""
    import torch
    import torch.distributed as dist

    def hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        mean = mine(bucket.buffer().numpy(), Group(bucket.index()))
        bucket.buffer().copy_(torch.from_numpy(np.ascontiguousarray(mean)))
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    return hook
