"""Runs a lesson's functions in a torch.distributed group of two processes, if torch is installed."""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import minips as ps
from minips.engines import Processes
from minips.engines.shipping import ship, unship
from minips.engines.supervisor import ControlPipe, Supervisor
from minips.lab.course.recorded import NotRunError, fingerprint, load, record, recorded
from minips.stage import Array

if TYPE_CHECKING:
    import torch

LIMIT_S = 200.0
"""The most seconds that the start, or one call, may take."""
KEY = "ddp.torch"
WARM = 3
"""The first steps of each way, which are not timed: in the second one DDP arranges its buckets anew."""


class Ranks:
    """Two processes, rank 0 and rank 1, that call functions with the same arguments. If torch is missing, recorded
    results of the same functions and arguments replace them.
    """

    def __init__(self) -> None:
        self._stack, self._children = ExitStack(), list[Any]()
        self.values: dict[str, Any] = {}
        self.here = find_spec("torch") is not None
        if self.here:
            version = self.values["torch"] = self._start()
            print(f"torch {version} is here. Two processes of this machine are rank 0 and rank 1.")
        else:
            self.values = recorded(KEY)
            print(f"They are those of torch {self.values['torch']}.")

    def _start(self) -> str:
        """Start both processes, and return torch's version."""
        folder = self._stack.enter_context(tempfile.TemporaryDirectory())
        self._supervisor = self._stack.enter_context(Supervisor(Processes().start))
        self._children = self._supervisor.start("rank 0", "rank 1")
        for number, child in enumerate(self._children):
            child.assign(attend, {"rank": number, "folder": Path(folder)})
        version, _ = (self._supervisor.receive(child, "ready", LIMIT_S) for child in self._children)
        return str(version)

    def run(self, name: str, function: Callable[..., Any], **parts: Any) -> Any:
        """Let both ranks call the function, and return rank 0's result, which must be valid in JSON. NotRunError if
        torch is missing, and no result of this function with these parts was recorded under this name. After `close`,
        the processes are started again.
        """
        if self.here:
            if not self._children:
                self._start()
            what = ship((function, parts))
            for child in self._children:
                child.send("work", what)
            found, _ = (self._supervisor.receive(child, "done", LIMIT_S) for child in self._children)
            self.values[name] = {"of": _mark(function, parts), "found": found}
        kept = self.values.get(name, {})
        if kept.get("of") != _mark(function, parts):
            raise NotRunError("torch")
        return kept["found"]

    def keep(self, name: str, function: Callable[..., Any], **parts: Any) -> Any:
        """Return what `run` does, but run it only if no result of this function with these parts was recorded: a sweep
        takes minutes.
        """
        with suppress(ValueError):
            kept = load(KEY)["values"].get(name, {})
            if kept.get("of") == _mark(function, parts):
                self.values[name] = kept
                return kept["found"]
        return self.run(name, function, **parts)

    def close(self) -> None:
        """End the processes, and save the results if recording is on."""
        self._stack.close()
        self._children = []
        if self.here:
            record(KEY, self.values)


def _mark(function: Callable[..., Any], parts: Mapping[str, Any]) -> str:
    """Return a hash of a function and of what it is called with."""
    return fingerprint(function, *(piece for part in sorted(parts.items()) for piece in part))


def attend(control: ControlPipe, *, rank: int, folder: Path) -> None:
    """Join the other rank, and call the functions that the supervisor sends."""
    import torch
    import torch.distributed as dist

    if sys.platform == "linux":  # so that no message leaves this machine
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    control.send("ready", torch.__version__)
    while (message := control.wait("work"))[0] == "work":
        function, parts = unship(message[1])
        control.send("done", function(**parts))
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


class SlowLink:
    """Runs all-reduces one after another, as over one slow link: each takes at least latency_s + bytes / bytes_per_s.
    ``spans`` contains the start, the end and the bytes of each all-reduce.
    """

    def __init__(self, latency_s: float, bytes_per_s: float) -> None:
        self.latency_s, self.bytes_per_s = latency_s, bytes_per_s
        self.spans = list[tuple[float, float, int]]()
        self._sender = ThreadPoolExecutor(1)

    def start(self, tensor: "torch.Tensor") -> "Future[torch.Tensor]":
        """Start an all-reduce that replaces the tensor by its mean over the ranks."""
        return self._sender.submit(self._mean, tensor)

    def _mean(self, tensor: "torch.Tensor") -> "torch.Tensor":
        import torch.distributed as dist

        began = time.perf_counter()
        dist.all_reduce(tensor)
        tensor /= dist.get_world_size()
        until = began + self.latency_s + tensor.nbytes / self.bytes_per_s
        time.sleep(max(until - time.perf_counter(), 0.0))
        self.spans.append((began, time.perf_counter(), tensor.nbytes))
        return tensor

    def close(self) -> None:
        """End the thread."""
        self._sender.shutdown()


def naive(model: Any, loss: Callable[[Any], Any], wire: SlowLink) -> None:
    """Run backward, and then an all-reduce for each tensor."""
    loss(model).backward()
    for p in model.parameters():
        wire.start(p.grad).result()


def flat(model: Any, loss: Callable[[Any], Any], wire: SlowLink) -> None:
    """Run backward, and then one all-reduce of all tensors in one buffer."""
    loss(model).backward()
    gradients = [p.grad for p in model.parameters()]
    buffer = gradients[0].new_empty(sum(g.numel() for g in gradients))
    pieces = buffer.split([g.numel() for g in gradients])
    for g, piece in zip(gradients, pieces, strict=True):
        piece.copy_(g.flatten())
    wire.start(buffer).result()
    for g, piece in zip(gradients, pieces, strict=True):
        g.copy_(piece.view_as(g))


def overlapped(model: Any, loss: Callable[[Any], Any], wire: SlowLink) -> None:
    """Run backward, and start each tensor's all-reduce as soon as its gradient is ready."""
    begun: list[Future[Any]] = []
    hooks = [
        p.register_post_accumulate_grad_hook(lambda p: begun.append(wire.start(p.grad))) for p in model.parameters()
    ]
    loss(model).backward()
    for one in begun:
        one.result()
    for hook in hooks:
        hook.remove()


def in_buckets(megabytes: float | None) -> Callable[..., Any]:
    """Return a function that wraps a net in DistributedDataParallel with this bucket size (None: torch's default)."""

    def wrapped(model: Any, wire: SlowLink) -> Any:
        import torch
        import torch.distributed as dist

        def through(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
            future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
            wire.start(bucket.buffer()).add_done_callback(lambda done: future.set_result(done.result()))
            return future

        ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=megabytes)
        ddp.register_comm_hook(None, through)
        return ddp

    return wrapped


def backward_alone(model: Any, loss: Callable[[Any], Any], wire: SlowLink) -> None:
    """Run only backward. DDP needs nothing else from a program: its hooks do the rest."""
    loss(model).backward()


WAYS: Mapping[str, tuple[Callable[..., Any], Callable[..., None]]] = {
    "naive": (lambda model, wire: model, naive),
    "flat": (lambda model, wire: model, flat),
    "overlapped": (lambda model, wire: model, overlapped),
    "DDP, its own buckets": (in_buckets(None), backward_alone),
    "DDP, small buckets": (in_buckets(0.05), backward_alone),
}


def ladder(
    latency_s: float,
    bytes_per_s: float,
    backward_s: float,
    buckets: Sequence[float] = (),
    turns: int = 20,
    batch: int = 256,
) -> dict[str, Any]:
    """Time whole steps of each way of `WAYS`, or of DDP with each size of ``buckets`` in megabytes, in turns. Autograd
    waits ``backward_s`` before each gradient, as if the net were larger. Return, for each way, in milliseconds: all
    its steps, turn by turn; of the median one, the times from its start at which gradients were ready and at which
    all-reduces ran, with their bytes; and the largest error of the mean gradient.
    """
    import torch
    import torch.distributed as dist

    X, y = map(torch.from_numpy, ps.datasets.digits()[:2])
    rows = torch.randint(len(X), (2 * batch,), generator=torch.Generator().manual_seed(0))
    mine = rows[dist.get_rank() :: 2]

    def loss_of(rows: Any) -> Callable[[Any], Any]:
        return lambda model: torch.nn.functional.cross_entropy(model(X[rows]), y[rows])

    torch.manual_seed(0)
    alone = make_net()
    loss_of(rows)(alone).backward()
    with closing(SlowLink(latency_s, bytes_per_s)) as wire:
        ready, members = list[float](), {}
        sizes = {f"{size} MB": (in_buckets(size), backward_alone) for size in buckets}
        for name, (wrap, step) in (sizes or WAYS).items():
            torch.manual_seed(0)
            net = make_net()
            for p in net.parameters():
                p.register_hook(lambda gradient: time.sleep(backward_s))  # it returns None: the gradient stays
                p.register_post_accumulate_grad_hook(lambda _: ready.append(time.perf_counter()))
            members[name] = (net, wrap(net, wire), step)
        seen: dict[str, list[Any]] = {name: [] for name in members}
        for _ in range(WARM + turns):
            for name, (net, model, step) in members.items():
                net.zero_grad()
                ready.clear()
                wire.spans.clear()
                dist.barrier()
                began = time.perf_counter()
                step(model, loss_of(mine), wire)
                ms = 1e3 * (time.perf_counter() - began)
                calls = [[1e3 * (a - began), 1e3 * (b - began), size] for a, b, size in wire.spans]
                seen[name].append((ms, [1e3 * (at - began) for at in ready], calls))
        found = {}
        for name, (net, _, _) in members.items():
            steps = seen[name][WARM:]
            pairs = zip(net.parameters(), alone.parameters(), strict=True)
            _, ready_ms, calls_ms = sorted(steps, key=lambda step: step[0])[len(steps) // 2]
            found[name] = {"steps_ms": [ms for ms, _, _ in steps], "ready_ms": ready_ms, "calls_ms": calls_ms}
            found[name]["error"] = max(float((a.grad - b.grad).abs().max()) for a, b in pairs)
    return found


class Group:
    """The ranks as a learner's hook sees them: their number, and the sum of the arrays that they hand over."""

    def __init__(self, bucket: int = 0) -> None:
        import torch.distributed as dist

        self.size, self.bucket = dist.get_world_size(), bucket

    def all_reduce(self, array: Array) -> Array:
        """Return the sum of this array over the ranks, in the array's own type."""
        import torch
        import torch.distributed as dist

        total = torch.from_numpy(np.array(array))
        dist.all_reduce(total)
        return np.asarray(total.numpy())


def as_hook(mine: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """Return a DDP hook from a function of an array and a group, or from a class whose instances are such functions."""
    import torch
    import torch.distributed as dist

    call = mine() if isinstance(mine, type) else mine

    def hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        group = Group(bucket.index())
        mean = call(bucket.buffer().numpy(), group)
        bucket.buffer().copy_(torch.from_numpy(np.ascontiguousarray(mean)))
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    return hook


def with_codec(model: Any, codec: ps.Codec) -> Any:
    """Return the net under DDP, which sends each bucket's gradients through a codec of minips."""
    from torch.nn.parallel import DistributedDataParallel

    from minips.torch import codec_hook

    ddp = DistributedDataParallel(model)
    ddp.register_comm_hook(None, codec_hook(codec))
    return ddp


def with_hook(model: Any, hook: Callable[..., Any], state: Any = None) -> Any:
    """Return the net under DDP, which calls ``hook(state, bucket)`` for each bucket."""
    from torch.nn.parallel import DistributedDataParallel

    ddp = DistributedDataParallel(model)
    ddp.register_comm_hook(state, hook)
    return ddp


def hooks() -> dict[str, Callable[[Any], Any]]:
    """Map each hook's name to a function that wraps a net in DDP with this hook."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    def low_rank(model: Any) -> Any:
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=10)
        return with_hook(model, powerSGD_hook.powerSGD_hook, state)

    return {
        "all-reduce": lambda model: with_hook(model, default_hooks.allreduce_hook),
        "torch's fp16": lambda model: with_hook(model, default_hooks.fp16_compress_hook),
        "torch's PowerSGD, rank 2": low_rank,
        "minips, 8 bits": lambda model: with_codec(model, ps.Codec(ps.Uniform(bits=8))),
        "minips, top 2 %, no memory": lambda model: with_codec(model, ps.Codec(ps.TopK(fraction=0.02))),
        "minips, top 2 %, memory": lambda model: with_codec(
            model, ps.Codec(ps.TopK(fraction=0.02), ps.ErrorFeedback())
        ),
    }


def learn(
    rate: float, steps: int = 60, seeds: int = 5, mine: Callable[..., Array] | None = None
) -> dict[str, list[list[float]]]:
    """Train with each hook, or only with ``mine``. Return, for each hook, a row for each seed: its accuracy, and the
    bytes that a rank hands over. With the same seed, all hooks start from the same parameters and batches.
    """
    import torch.distributed as dist

    sent: list[int] = []
    found = dict[str, list[list[float]]]()
    before = dist.all_reduce, dist.all_gather
    dist.all_reduce, dist.all_gather = (_counting(one, sent) for one in before)
    made = {"mine": lambda model: with_hook(model, as_hook(mine))} if mine else hooks()
    try:
        for name, wrap in made.items():
            found[name] = []
            for seed in range(seeds):
                sent.clear()
                accuracy = _learnt(wrap, rate, steps, seed)
                found[name].append([accuracy, sum(sent)])
    finally:
        dist.all_reduce, dist.all_gather = before
    return found


def _learnt(wrap: Callable[[Any], Any], rate: float, steps: int, seed: int) -> float:
    """Return the accuracy of one run."""
    import torch
    import torch.distributed as dist

    X, y, X_new, y_new = map(torch.from_numpy, ps.datasets.digits(seed=seed))
    middle, spread = X.mean(), X.std()
    X, X_new = (X - middle) / spread, (X_new - middle) / spread
    torch.manual_seed(seed)
    model = wrap(make_net())
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for _ in range(steps):
        rows = torch.randint(len(X), (64,))[dist.get_rank() :: 2]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(X[rows]), y[rows]).backward()
        optimizer.step()
    accuracy = (model(X_new).argmax(1) == y_new).float().mean()
    return float(accuracy)


def _counting(collective: Callable[..., Any], sent: list[int]) -> Callable[..., Any]:
    """Return a collective that also records the bytes of its last argument."""

    def counted(*given: Any, **options: Any) -> Any:
        sent.append(given[-1].nbytes)
        return collective(*given, **options)

    return counted
