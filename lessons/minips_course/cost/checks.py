"""The exercises of "Predict the cost"."""

import sys
import threading
import time
import timeit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

import minips as ps
from minips.cost import parameter_server_step_s
from minips.lab.course.exercises import Refused, asks, case, equals, refuse_if, unaided
from minips.stage import Array
from minips.stages.quantizers import Parts


@asks(
    "cost.1",
    "Draw the two directions of the server's link over time, from the moment when it has all the pushes to the same "
    "moment one step later. What happens at the same time counts once.",
    "A worker computes and pushes as soon as it has its answer. If pushes are long, the server's incoming direction "
    "is always busy after the first push. If answers are long, its outgoing direction is busy until the last answer.",
    "Each of the two cases is a sum of bytes: of how many messages of each kind? Count them in your drawing, and use "
    "the larger sum. Add a latency for the way there, one for the way back, and one gradient.",
)
def step_of(function: Any, rng: np.random.Generator) -> str:
    """Derive the seconds of one of many steps from bytes pushed and pulled, links, latency, and a gradient's time."""
    refuse_if(not callable(function), f"Expected the function step_s, got {function!r}.")
    for trial in range(60):
        workers = (1, 2, 3)[trial % 3] if trial % 10 < 3 else int(10 ** rng.uniform(0, 3.5))
        bandwidth = float(10 ** rng.uniform(3, 12))
        pushed = float(round(10 ** rng.uniform(0, 9)))
        pulled = pushed if trial < 5 else float(round(pushed * 10 ** rng.uniform(-3, 3)))
        latency = 0.0 if trial < 10 else float(10 ** rng.uniform(-7, 0))
        compute = 0.0 if trial < 15 else float(10 ** rng.uniform(-5, 1))
        what = f"{workers} workers, {pushed:,.0f} bytes pushed and {pulled:,.0f} pulled, {bandwidth / 1e6:.4g} Mbit/s"
        with case(f"{what}, latency {latency:.2g} s, gradient {compute:.2g} s:"):
            got = unaided(function, workers, pushed, pulled, bandwidth, latency, compute)
            links = parameter_server_step_s(workers, pushed, bandwidth / 8, latency, pulled_nbytes=pulled)
            equals(got, links + compute, " s")
    return "Right for 60 random steps, with long pushes and with long answers."


class _Clock:
    """A clock that a check moves on: seconds pass at once, and a busy machine hardly adds any."""

    def __init__(self) -> None:
        self.passed_s, self.reads = 0.0, 0
        self._owner = threading.get_ident()

    def instead_of(self, real: Callable[[], Any]) -> Callable[[], Any]:
        """Return a reader of this clock that is like ``real``. Other threads still read ``real``."""
        a_second = 10**9 if real.__name__.endswith("_ns") else 1.0

        def read() -> Any:
            if threading.get_ident() != self._owner:
                return real()
            self.reads += 1
            return real() + type(a_second)(self.passed_s * a_second)

        return read


@contextmanager
def _reading(clock: _Clock, function: Any) -> Iterator[None]:
    """Let a function read this clock instead of the machine's, by whatever name it knows that."""
    clocks = [getattr(time, name + unit) for name in ("perf_counter", "monotonic", "time") for unit in ("", "_ns")]
    instead = {id(real): clock.instead_of(real) for real in clocks}
    spaces = [vars(time), vars(timeit), vars(sys.modules["__main__"]), getattr(function, "__globals__", {})]
    before = [(space, name, thing) for space in spaces for name, thing in space.items() if id(thing) in instead]
    timers = (timeit.timeit, timeit.repeat, timeit.Timer.__init__)
    defaults = [timer.__defaults__ or () for timer in timers]
    try:
        for space, name, real in before:
            space[name] = instead[id(real)]
        for timer, values in zip(timers, defaults, strict=True):
            timer.__defaults__ = tuple(instead.get(id(value), value) for value in values)
        yield
    finally:
        for space, name, real in before:
            space[name] = real
        for timer, values in zip(timers, defaults, strict=True):
            timer.__defaults__ = values


@dataclass(frozen=True)
class _Sleepy(ps.Exact):
    """A stage with a fixed time and a time for each value, by a clock of its own. Of each size, the call ``slow``, the
    fourth after it and the sixteenth after it take nine times as long.
    """

    name: ClassVar[str] = "sleepy"
    clock: _Clock = field(default_factory=_Clock)
    fixed_s: float = 10.0
    each_s: float = 1e-3
    slow: int = 0
    calls: dict[int, int] = field(default_factory=dict)
    draws: np.random.Generator = field(default_factory=np.random.default_rng)

    def seconds(self, size: int) -> float:
        """Return the seconds of encode and decode, if they are not slow."""
        return self.fixed_s + self.each_s * size

    def encode(self, x: Array, rng: np.random.Generator | None = None) -> Parts:
        call = self.calls[x.size] = self.calls.get(x.size, -1) + 1
        self.clock.passed_s += self._half_s(x.size) * (17 if call - self.slow in (0, 4, 16) else 1)
        return super().encode(x, rng)

    def decode(self, parts: Parts) -> Array:
        x = super().decode(parts)
        self.clock.passed_s += self._half_s(x.size)
        return x

    def _half_s(self, size: int) -> float:
        return self.seconds(size) / 2 * (1 + 0.01 * self.draws.random())


@asks(
    "cost.2",
    "To find two numbers you need two or more sizes, far apart. And one call tells little: another program may have "
    "used the processor.",
    "The given code times one size, once. A slow call hardly changes the median of a few calls. And if short calls "
    "have as much weight as long ones, the fit finds the fixed part as well.",
    "Collect pairs of size and seconds in two loops, over sizes and over repeats. A fit of relative errors turns them "
    "into two numbers: use `fit` of this lesson, which takes a dict, or minips.machines.fit.Line.fit, which takes "
    "the pairs.",
)
def cost_of(function: Any, rng: np.random.Generator) -> str:
    """Fit a stage's time: fixed seconds and seconds for each value, for encode and decode together."""
    refuse_if(not callable(function), f"Expected the function cost_of, got {function!r}.")
    for slow, as_long in enumerate(rng.permutation([10 ** rng.uniform(4, 4.3), 10 ** rng.uniform(4.3, 5), 1e5])):
        fixed_s = float(10 ** rng.uniform(1, 2))  # as many values take as long again
        stage = _Sleepy(fixed_s=fixed_s, each_s=fixed_s / float(as_long), slow=slow, draws=rng)
        with _reading(stage.clock, function):
            answer = function(stage)
        refuse_if(not stage.clock.reads, "It never read a clock. Use perf_counter, or timeit.")
        if not isinstance(answer, tuple) or len(answer) != 2 or not all(np.isfinite(part) for part in answer):
            raise Refused(f"Expected a pair (seconds whatever the size, seconds for each value), got {answer!r}.")
        for size in (int(rng.integers(1_000, 5_000)), int(rng.integers(250_000, 400_000))):
            said, takes = answer[0] + answer[1] * size, stage.seconds(size)
            with case(f"Of {size} values"):
                right = 0.6 * takes < said < 1.6 * takes
                refuse_if(not right, f"your fit says {said:.4g} s; encode and decode take {takes:.4g} s.")
    return "Your fit predicts two sizes that it has never seen, of three stages that it has never seen."
