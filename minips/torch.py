"""PyTorch: a network as a problem, and a codec as a communication hook of DistributedDataParallel.

minips does not install PyTorch, and no other module imports this one.
"""

import reprlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np

from minips import seeds
from minips.core.alone import Receiver, Sender
from minips.core.codec import Codec
from minips.intake import as_number, check_columns, sparse_or_array
from minips.problems import Problem
from minips.results.trace import Trace
from minips.stage import Array, Tensors
from minips.stages.transports.framing import pieces, split
from minips.stages.transports.wire import CALL
from minips.words import check_type, message_of

try:
    import torch
    import torch.distributed as dist
except ModuleNotFoundError:
    raise ModuleNotFoundError("minips.torch needs PyTorch, which is not installed: pip install torch.") from None

__all__ = ["CodecHook", "TorchProblem", "codec_hook"]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute in one thread, so that all engines give sums that are equal to the bit."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_generator = threading.Lock()
"""Held while a worker draws random numbers: PyTorch has one CPU generator for the whole process."""


@contextmanager
def _drawing(rng: np.random.Generator) -> Iterator[None]:
    """Seed PyTorch's random draws, such as those of dropout, from ``rng``."""
    with _generator, torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(rng.integers(2**63)))
        yield


class TorchProblem(Problem):
    """A network made by ``make_net()``, and the mean ``loss(net(X), y)`` over rows of ``X`` and ``y``.

    The parameters are the network's, by name; autograd computes the gradient. Buffers, such as the running statistics
    of batch normalisation, are not parameters: no gradient changes them. Training uses each batch's own statistics.
    `module`, `predict` and the loss on held-out rows use the statistics of the training rows under the final
    parameters, as computed by `torch.optim.swa_utils.update_bn` (Izmailov et al. 2018, "Averaging Weights Leads to
    Wider Optima and Better Generalization", section 3.2).

    Random layers, such as dropout, draw the same values on every engine, and each time these statistics are computed.
    If ``rng`` is None, the gradient is computed without dropout. Each thread computes on its own network. Raises
    ValueError for a parameter whose type does not exist in NumPy, and for rows that PyTorch cannot convert to a tensor.
    Raises TypeError if ``make_net`` is a network.
    """

    def __init__(
        self,
        make_net: Callable[[], torch.nn.Module],
        loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
        X: Array,
        y: Array,
        X_validation: Array | None = None,
        y_validation: Array | None = None,
    ) -> None:
        if isinstance(make_net, torch.nn.Module):
            raise TypeError(
                "TorchProblem takes a function that makes the network, since each thread needs its own network; "
                f"got the network {reprlib.repr(make_net)}. Give lambda: Net() or, if Net is a class, Net."
            )
        check_type("TorchProblem", make_net, Callable, "a function that makes the network")
        if isinstance(loss, type) or not callable(loss):
            raise TypeError(f"TorchProblem takes a loss, a function of outputs and y; got {loss!r}.")
        super().__init__(X, y, X_validation, y_validation)
        held_out = zip(("X_validation", "y_validation"), self.validation or (), strict=False)
        for name, rows in (("X", self.X), ("y", self.y), *held_out):
            _check_numbers(name, rows)
        self.make_net, self.criterion = make_net, loss
        self._trained_on = self.X
        self._networks = _Networks(make_net)

    def kept(self) -> dict[str, Any]:
        """An empty dict, since the functions that make the network and the loss cannot be saved."""
        return {}

    def subset(self, rows: Any) -> Self:
        part = super().subset(rows)
        part._trained_on = part.X  # the worker gets no other rows
        return part

    def init(self, rng: np.random.Generator) -> Tensors:
        with _drawing(rng):
            net = _make(self.make_net)
        return {name: _array(name, p).copy() for name, p in net.named_parameters()}

    @_one_thread()
    def loss_and_gradient(
        self, params: Tensors, rows: Any = None, rng: np.random.Generator | None = None
    ) -> tuple[float, Tensors]:
        X, y = self._select(rows)
        net = self._fill(params).train()
        if rng is None:
            _without_dropout(net)
        net.zero_grad(set_to_none=True)
        with _drawing(rng or seeds.statistics(0)), _explaining(X, y):
            value = self.criterion(net(torch.from_numpy(X)), torch.from_numpy(y))
            loss = _number(value)
            value.backward()
        gradient = {
            name: np.zeros(p.shape, params[name].dtype) if p.grad is None else p.grad.numpy()
            for name, p in net.named_parameters()
        }
        return loss, gradient

    @_one_thread()
    def loss(self, params: Tensors, rows: Any = None) -> float:
        """The mean loss over the given rows, in evaluation mode, with the training rows' statistics."""
        X, y = self._select(rows)
        with torch.no_grad(), _explaining(X, y):
            return _number(self.criterion(self.module(params)(torch.from_numpy(X)), torch.from_numpy(y)))

    def accuracy(self, params: Tensors) -> float | None:
        """The share of rows whose class has the largest output; None if y does not hold class numbers."""
        if self.y.dtype.kind not in "iu" or self.y.ndim != 1:
            return None
        return float((self.predict(params, self.X).argmax(axis=1) == self.y).mean())

    @_one_thread()
    def predict(self, params: Tensors, X: Array) -> Array:
        """The network's outputs for these rows, converted to the dtype of the training rows."""
        check_columns(X, self.feature_names, "X")
        rows = sparse_or_array(X, "X")
        _check_numbers("X", rows)
        rows = np.ascontiguousarray(rows, self._trained_on.dtype)
        with torch.no_grad(), _explaining(rows):
            return np.asarray(self.module(params)(torch.from_numpy(rows)).numpy())

    def module(self, params: Tensors) -> torch.nn.Module:
        """The network with these parameters, in evaluation mode, with the training rows' statistics."""
        net = self._fill(params)
        rows = [torch.from_numpy(self._trained_on)]
        with _drawing(seeds.statistics(0)):  # update_bn sets training mode, so dropout draws
            torch.optim.swa_utils.update_bn(rows, net)
        return net.eval()

    def _fill(self, params: Tensors) -> torch.nn.Module:
        net = self._networks.here()
        with torch.no_grad():
            for name, p in net.named_parameters():
                p.copy_(torch.from_numpy(np.ascontiguousarray(params[name])))
        return net


def _without_dropout(net: torch.nn.Module) -> None:
    """Set a network to evaluation mode, except the layers that use the statistics of the batch."""
    net.eval()
    for layer in net.modules():
        if hasattr(layer, "running_mean"):
            layer.train()


def _make(make_net: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    net = make_net()
    check_type("TorchProblem", net, torch.nn.Module, "a function that returns a torch.nn.Module")
    return net


def _check_numbers(name: str, rows: Any) -> None:
    """Raise ValueError for rows that PyTorch cannot convert to a tensor."""
    if not isinstance(rows, np.ndarray):
        raise ValueError(f"TorchProblem takes dense rows; got {name} as a sparse matrix. Give {name}.toarray().")
    if rows.dtype.kind not in "biufc":
        raise ValueError(
            f"TorchProblem takes {name} of numbers; got {rows.dtype}. Number texts with "
            "np.unique(y, return_inverse=True)[1], and convert frames with .to_numpy(np.float32)."
        )
    try:
        torch.from_numpy(rows[:0].copy())
    except (TypeError, ValueError) as error:  # a type such as longdouble
        raise ValueError(f"PyTorch has no tensor type for {name}, which is {rows.dtype}: {error}") from error


@contextmanager
def _explaining(*rows: Array) -> Iterator[None]:
    """Turn PyTorch's errors into a ValueError that states the types and shapes of the rows, the usual cause."""
    try:
        yield
    except (RuntimeError, IndexError) as error:
        given = " and ".join(f"{one.dtype} of shape {one.shape}" for one in rows)
        raise ValueError(
            f"The network or the loss does not take these rows ({given}): {message_of(error).rstrip('.')}. "
            "Give X and y in the types and shapes that they take, such as X.astype(np.float32)."
        ) from error


def _number(loss: Any) -> float:
    """The value of a loss. Raises TypeError unless it is a tensor of one number."""
    check_type("TorchProblem", loss, torch.Tensor, "a loss that returns a tensor of one number")
    return as_number(loss.detach(), "The loss")


class _Networks(threading.local):
    """One network for each thread, made on first use. Pickling omits the networks."""

    def __init__(self, make_net: Callable[[], torch.nn.Module]) -> None:
        self._make_net = make_net
        self._net: torch.nn.Module | None = None

    def here(self) -> torch.nn.Module:
        """This thread's network."""
        self._net = self._net or _make(self._make_net)
        return self._net

    def __reduce__(self) -> tuple[Any, ...]:
        return _Networks, (self._make_net,)


class CodecHook:
    """A communication hook for DistributedDataParallel that sends gradients through a codec. It encodes this rank's
    gradients, gathers those of all ranks, then decodes and averages them in rank order.

    Call ``model.register_comm_hook(None, minips.torch.codec_hook(codec))`` on every rank, with the same codec. The hook
    needs a backend that gathers tensors in CPU memory, such as gloo.

    ``bytes_sent`` counts the bytes of this rank's frames, and ``bytes_dense`` those of the same gradients uncompressed.
    ``trace`` holds the spans. Each parameter has its own memory, since DDP rebuilds its buckets in the second
    iteration. Ranks first gather the lengths, then frames padded to the greatest length; padding is not counted.

    PyTorch expects a hook to divide by the number of ranks.
    Source: PyTorch's documentation, "DDP Communication Hooks".
    """

    def __init__(self, codec: Codec, seed: int = 0) -> None:
        self.__name__ = self.__qualname__ = "codec_hook"  # DDP expects a function, whose name it logs
        self.codec, self.seed = codec, seed
        self.trace = Trace("hook")
        self.bytes_sent = self.bytes_dense = 0
        self._sender: Sender | None = None
        self._receivers: list[Receiver] = []
        self._names: dict[int, str] = {}

    def __call__(self, state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        ranks = dist.get_world_size()
        if self._sender is None:
            self._sender = self.codec.sender((self.seed, dist.get_rank()), self.trace)
            self._receivers = [self.codec.receiver(self.trace) for _ in range(ranks)]
        gradients = bucket.gradients()
        names = [self._names.setdefault(id(p), str(len(self._names))) for p in bucket.parameters()]
        tensors = {name: _array(name, g) for name, g in zip(names, gradients, strict=True)}
        frames = self._sender.encode(tensors)
        self.bytes_sent += sum(map(len, frames))
        self.bytes_dense += sum(g.nbytes for g in tensors.values())
        with self.trace.span("transfer"):
            bodies = _gather(b"".join(pieces(CALL, frames)), ranks)
        mean: Tensors = {}
        for receiver, body in zip(self._receivers, bodies, strict=True):
            for name, g in receiver.decode(split(body)[1]).items():
                mean[name] = g / ranks if name not in mean else mean[name] + g / ranks
        for name, g in zip(names, gradients, strict=True):
            g.copy_(torch.from_numpy(np.ascontiguousarray(mean[name])))
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future


codec_hook = CodecHook
"""Another name for `CodecHook`, in the style of PyTorch's own hooks."""


def _gather(body: bytes, ranks: int) -> list[memoryview]:
    """Gather the message bodies of all ranks, in rank order."""
    lengths = [torch.empty(1, dtype=torch.int64) for _ in range(ranks)]
    dist.all_gather(lengths, torch.tensor([len(body)]))
    longest = max(int(length) for length in lengths)
    padded = torch.zeros(longest, dtype=torch.uint8)
    padded[: len(body)] = torch.frombuffer(bytearray(body), dtype=torch.uint8)
    received = [torch.empty(longest, dtype=torch.uint8) for _ in range(ranks)]
    dist.all_gather(received, padded)
    return [memoryview(one.numpy())[: int(length)] for one, length in zip(received, lengths, strict=True)]


def _array(name: str, tensor: torch.Tensor) -> Array:
    """A tensor as an array that shares its memory. Raises ValueError if NumPy lacks its type."""
    try:
        return np.asarray(tensor.detach().numpy())
    except (TypeError, RuntimeError) as error:
        raise ValueError(f"The tensor {name!r} is {tensor.dtype} on {tensor.device}: {error}") from error


def __dir__() -> list[str]:
    return __all__
