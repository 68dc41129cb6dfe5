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
from minips.lab.course.exercises import Refused, asks, case, number, refuse_if, unaided
from minips.stage import Array
from minips.stages.quantizers import Parts


@asks(
    "cost.3",
    "A call is two messages, and the second one is empty: its seconds are 2α + βS. Two sizes that lie far apart would "
    "be enough for α and β, if each of them had one time that is right.",
    "Slow calls move a mean, but not a median. And numpy.polyfit gives all sizes the same weight in seconds: then a "
    "hundredth of the longest call is more than the whole α. Divide each row by its median, or take the smallest and "
    "the largest size alone.",
    "One message after another: after the first answer all pushes follow, or all answers and then the last push, "
    "whichever has more bytes: max(n · pushed + pulled, pushed + n · pulled). Shared: each of n pushes, then each of n "
    "answers. Both cost one α there and one α back.",
)
def step_of(function: Any, rng: np.random.Generator) -> str:
    """Fit α and β to timed calls, and predict from them the least and the most seconds of a step."""
    refuse_if(not callable(function), f"Expected the function step_of, got {function!r}.")
    for trial in range(24):
        alpha, even = float(10 ** rng.uniform(-5, -2)), float(10 ** rng.uniform(3.5, 4.5))
        beta = 2 * alpha / even  # a call of this size takes as long for its bytes as for its two messages
        timed = _timed(rng, alpha, beta)
        workers = int(10 ** rng.uniform(0.31, 2.5)) if trial % 4 else 1 + trial // 4 % 4
        pushed, pulled = _sizes(rng, trial)
        least = 2 * alpha + max(workers * pushed + pulled, pushed + workers * pulled) * beta
        most = 2 * alpha + workers * (pushed + pulled) * beta
        told = f"{pushed:,} bytes pushed, {pulled:,} pulled, α {alpha:.2g} s, β {beta:.2g} s:"
        with case(f"{workers} worker{'s' * (workers > 1)}, {told}"):
            got = unaided(function, timed, workers, pushed, pulled)
            if not isinstance(got, tuple) or len(got) != 2:
                raise Refused(f"Expected a tuple (least, most), got {got!r}.")
            for name, said, right in zip(("least", "most"), got, (least, most), strict=True):
                near = abs(number(said) / right - 1) < 0.08
                refuse_if(not near, f"the {name} that it returned is {number(said):.4g} s, expected {right:.4g} s.")
    return "Right to 8 % for 24 networks, with α and β over decades, slow calls among the timed ones."


def _sizes(rng: np.random.Generator, trial: int) -> tuple[int, int]:
    """Return the bytes of a push and of an answer: both long, long pushes, long answers, or both short."""
    short, long = int(10 ** rng.uniform(4, 6)), int(10 ** rng.uniform(6.3, 8))
    tiny = int(rng.integers(1, 50))
    return [(long, int(long * rng.uniform(0.7, 1.4))), (long, short), (short, long), (tiny, tiny)][trial % 4]


def _timed(rng: np.random.Generator, alpha: float, beta: float) -> dict[int, list[float]]:
    """Return the seconds of 15 calls of each of some sizes, in any order. Of each size five calls are slow."""
    between = [float(10 ** rng.uniform(2.5, 6)) for _ in range(rng.integers(1, 3))]
    large = [float(10 ** rng.uniform(6, 6.7)) for _ in range(2)]
    sizes = [int(10 ** rng.uniform(1.5, 2)), *map(int, between + large), int(10 ** rng.uniform(6.8, 7))]
    timed = {}
    for size in rng.permutation(sizes).tolist():
        seconds = (2 * alpha + beta * size) * (1 + 0.06 * (rng.random(15) - 0.65))
        seconds[rng.permutation(15)[:5]] *= rng.uniform(3, 20, 5)
        timed[size] = seconds.tolist()
    return timed


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
    "into two numbers: minips.machines.fit.Line.fit takes the pairs.",
    beside=True,
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
