"""The exercises of "Talk less often"."""

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import asks, case, is_own, refuse_if
from minips.stage import Tensors
from minips.testing.base import same_bits
from minips_course.arrays import drawn_like, drawn_tensors


@asks(
    "local.1",
    "Copy what you pulled: the copy makes the steps, and the original is still there for the difference.",
    "Each step needs the gradient at the copy, not at the start: a loop over steps, and in it one over the names.",
    "The server divides the sum of the pushes by the number of workers. By what must each worker multiply its "
    "difference, so that the result is the sum of (part.rows / total) times the differences?",
)
def own_round(function: Any, rng: np.random.Generator) -> str:
    """Write one round of a worker of federated averaging: local steps, and a difference weighted by rows."""
    told = f"Expected the function one_round(client, part, total, steps, rate), got {function!r}."
    refuse_if(not callable(function), told)
    for turn in range(12):
        workers, steps = int(rng.integers(2, 9)), (1, 2, int(rng.integers(3, 12)))[turn % 3]
        rate, dtype = float(rng.uniform(0.05, 0.3)), ("f8", "f4")[turn % 2]
        params = drawn_tensors(rng, int(rng.integers(1, 5)), dtype)
        parts = [_Part(params, int(rng.integers(1, 90)), rng) for _ in range(workers)]
        total, worker = sum(part.rows for part in parts), int(rng.integers(workers))
        client = _Client(params, workers, worker)
        rows = parts[worker].rows
        with case(
            f"{workers} workers, {rows} of {total} rows, {steps} step{'s' * (steps > 1)} of size {rate:.2f}, {dtype}:"
        ):
            for number in range(2):  # a second round from other parameters
                _makes_a_round(function, client, parts[worker], total, steps, rate, number)
                client.params = drawn_like(params, rng)
    return "Each round pushed once: the difference of its steps, weighted by its rows. 2 to 8 workers, 1 to 11 steps."


class _Part:
    """A shard whose gradient is that of a quadratic function with curvatures between 0.5 and 2."""

    def __init__(self, like: Tensors, rows: int, rng: np.random.Generator) -> None:
        self.rows = rows
        self.target = drawn_like(like, rng)
        self.curvature = {name: rng.uniform(0.5, 2, x.shape).astype(x.dtype) for name, x in like.items()}
        self.asked = 0

    def gradient(self, params: Tensors, rows: Any = None) -> Tensors:
        self.asked += 1
        return {name: np.asarray(c * (params[name] - self.target[name])) for name, c in self.curvature.items()}


class _Client:
    """A client of a server that keeps what is pushed."""

    def __init__(self, params: Tensors, workers: int, worker: int) -> None:
        self.params, self.worker, self.config = params, worker, ps.Config(workers=workers)
        self.pulled: Tensors = {}
        self.pulls, self.pushes = 0, list[Tensors]()

    def pull(self) -> Any:
        self.pulls += 1
        self.pulled = {name: np.array(x) for name, x in self.params.items()}
        return _answer(self.pulled)

    def push(self, gradients: Any) -> Any:
        refuse_if(not isinstance(gradients, dict) or {*gradients} != {*self.params}, f"it pushed {gradients!r:.80}.")
        for name, x in self.params.items():
            got = np.asarray(gradients[name])
            told = f"it pushed {got.dtype}{list(got.shape)} as {name!r}, expected {x.dtype}{list(x.shape)}."
            refuse_if((got.dtype, got.shape) != (x.dtype, x.shape), told)
        self.pushes.append({name: np.array(x) for name, x in gradients.items()})
        return _answer("held")

    def push_pull(self, gradients: Any) -> Any:
        self.push(gradients)
        return self.pull()


def _answer(value: Any) -> Any:
    return SimpleNamespace(result=lambda timeout=None: value)


def _makes_a_round(function: Any, client: _Client, part: _Part, total: int, steps: int, rate: float, turn: int) -> None:
    """Refuse a function unless it pushes once: the weighted difference of that many steps."""
    start, before = {name: np.array(x) for name, x in client.params.items()}, len(client.pushes)
    end, part.asked = copy.deepcopy(start), 0
    function(client, part, total, steps, rate)
    asked, pushed = part.asked, len(client.pushes) - before
    refuse_if(pushed != 1, f"in round {turn} it pushed {pushed} times, not once.")
    refuse_if(client.pulls != turn + 1, f"after round {turn} it had pulled {client.pulls} times, not {turn + 1}.")
    changed = [name for name, x in start.items() if not same_bits(client.pulled[name], x)]
    refuse_if(bool(changed), f"it changed {changed}, which it had pulled.")
    refuse_if(asked != steps, f"it computed {asked} gradients in round {turn}, not {steps}.")
    for _ in range(steps):
        gradient = part.gradient(end)
        end = {name: np.asarray(x - rate * gradient[name], x.dtype) for name, x in end.items()}
    weight, got = client.config.workers * part.rows / total, client.pushes[-1]
    for name, x in start.items():
        wanted = weight * (x - end[name])
        near = (1e-8 if x.dtype == np.float64 else 1e-3) * float(np.abs(x - end[name]).max() + 1e-2 * np.abs(x).max())
        off = float(np.abs(got[name] - wanted).max())
        largest = float(np.abs(wanted).max())
        told = f"round {turn}: {name!r} is up to {off:.2g} off; its largest value is {largest:.2g}."
        refuse_if(not off <= weight * near, told)


@asks(
    "local.2",
    "Two arrays for each name: d = grads[name], and a velocity that lives in state from one step to the next.",
    "Make the new velocity first: momentum times the old one (zeros in the first step) plus d.",
    "The step is not along v alone, as with plain momentum, but along d + momentum · v, with the new v. Keep the "
    "velocities under their tensors' names, and make new arrays.",
)
def outer(cls: Any, rng: np.random.Generator) -> str:
    """Write Nesterov's momentum as an outer optimizer."""
    refuse_if(not isinstance(cls, type), f"Expected your class Outer, got {cls!r}.")
    is_own(cls(), ps.Optimizer, "Outer")
    refuse_if(issubclass(cls, ps.SGD), "It inherits from SGD. Write step yourself.")
    for turn in range(6):
        lr, momentum = float(rng.uniform(0.1, 2)), (0.0, float(rng.uniform(0.1, 0.95)))[turn > 0]
        optimizer, dtype = cls(lr=lr, momentum=momentum), ("f8", "f4")[turn % 2]
        params = drawn_tensors(rng, int(rng.integers(1, 5)), dtype)
        pair = [_Stepped(optimizer, lr, momentum, drawn_like(params, rng)) for _ in range(2)]
        with case(f"lr = {lr:.2f}, momentum = {momentum:.2f}, two servers in turn:"):
            for number in range(int(rng.integers(12, 40))):
                for one in pair:
                    one.step(number, rng)
    return "Each step was Nesterov's: for any rate and momentum, float32 and float64, two servers in turn."


class _Stepped:
    """The parameters of one server, and where they must be after each step."""

    def __init__(self, optimizer: Any, lr: float, momentum: float, params: Tensors) -> None:
        self.optimizer, self.lr, self.momentum = optimizer, lr, momentum
        self.params = params
        self.wanted = {name: x.astype("f8") for name, x in self.params.items()}
        self.velocity = {name: 0 * x for name, x in self.wanted.items()}
        self.state: dict[str, Any] = {}
        self.largest = {name: float(np.abs(x).max()) for name, x in self.wanted.items()}

    def step(self, number: int, rng: np.random.Generator) -> None:
        """Make one step, with the state that the server keeps."""
        grads, arrays = drawn_like(self.params, rng), {name: id(x) for name, x in self.params.items()}
        before = {name: np.array(x) for name, x in grads.items()}
        dtypes = {name: x.dtype for name, x in self.params.items()}
        self.state["clock"] = number
        self.optimizer.step(self.params, grads, self.state)
        refuse_if(self.state.get("clock") != number, "it changed the clock in its state, which is the server's.")
        replaced = {name: id(x) for name, x in self.params.items()} != arrays
        refuse_if(replaced, "it replaced an array of params. Change the arrays in place.")
        for name, d in before.items():
            refuse_if(not same_bits(grads[name], d), f"it changed grads[{name!r}].")
            grads[name][...] = np.nan  # its memory is used again for the next message
            self.velocity[name] = self.momentum * self.velocity[name] + d
            self.wanted[name] = self.wanted[name] - self.lr * (d + self.momentum * self.velocity[name])
            self.largest[name] = max(self.largest[name], float(np.abs(self.wanted[name]).max()))
            off = float(np.abs(self.params[name] - self.wanted[name]).max())
            near = (1e-9 if dtypes[name] == np.float64 else 1e-4) * self.largest[name]
            told = (
                f"after step {number}, {name!r} has NaN. The memory of grads is used again: keep a copy, not the array."
            )
            refuse_if(np.isnan(off), told)
            refuse_if(not off <= near, f"after step {number}, {name!r} is up to {off:.2g} off.")
