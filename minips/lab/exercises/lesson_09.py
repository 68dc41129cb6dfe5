"""Lesson 09: predict the cost."""

import time
import timeit
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

import minips as ps
from minips.cost import ring_allreduce_s
from minips.lab.exercises.base import Refused, asks, case, equals, refuse_if
from minips.stage import Array
from minips.stages.quantizers import Parts


@asks(
    "09.1",
    "How many bytes has a megabyte, how many bits a byte, how many bits a gigabit? No power of two is in it.",
    "A ring of n sends 2(n − 1) messages, one after the other. Each travels latency_s.",
    "Two lines turn the arguments into bytes and bytes per second; the ring's formula is the third.",
)
def ring_seconds(function: Any, rng: np.random.Generator) -> str:
    """Mend the lecture's function: SI units, bytes, and every latency."""
    refuse_if(not callable(function), f"Expected the function ring_seconds, got {function!r}.")
    for trial in range(30):
        workers, bits = int(rng.integers(2, 65)), int(rng.choice([1, 2, 4, 8, 16, 32]))
        megabytes, gigabits = float(rng.uniform(1, 200)), float(rng.uniform(0.1, 100))
        latency = 0.0 if trial < 10 else float(10 ** rng.uniform(-5, -2))
        data = f"{megabytes:.1f} MB at {bits} bits a value"
        with case(f"A ring of {workers}, {data}, {gigabits:.2f} Gbit/s, latency {latency:.2g} s:"):
            got = function(workers, megabytes, bits, gigabits, latency)
            equals(got, ring_allreduce_s(workers, megabytes * 1e6 * bits / 32, gigabits * 1e9 / 8, latency), " s")
    return "Right for 30 random rings, with and without latency."


@dataclass(frozen=True)
class _Sleepy(ps.Exact):
    """Takes a while, so much of it whatever the size; and now and then something else takes the processor."""

    name: ClassVar[str] = "sleepy"
    fixed_s: float = 0.01
    each_s: float = 5e-8
    calls: list[int] = field(default_factory=lambda: [0])

    def encode(self, x: Array, rng: np.random.Generator | None = None) -> Parts:
        self.calls[0] += 1
        time.sleep((self.fixed_s + self.each_s * x.size) / 2 + (0.06 if self.calls[0] % 6 == 0 else 0.0))
        return super().encode(x, rng)

    def decode(self, parts: Parts) -> Array:
        x = super().decode(parts)
        time.sleep((self.fixed_s + self.each_s * x.size) / 2)
        return x


@asks(
    "09.2",
    "Time several sizes, far apart, and each of them several times.",
    "The median of a few times is not moved by one bad trip. Line.fit takes all the timings, and does that.",
    "line = Line.fit([(size, seconds), …]); return line.fixed_s, line.each_s",
)
def cost_of(function: Any, rng: np.random.Generator) -> str:
    """Fit a stage: seconds whatever the size, and seconds for each value, of encode and decode together."""
    refuse_if(not callable(function), f"Expected the function cost_of, got {function!r}.")
    stage = _Sleepy(fixed_s=float(rng.uniform(0.008, 0.014)), each_s=float(rng.uniform(4e-8, 8e-8)))
    answer = function(stage)
    if not isinstance(answer, tuple) or len(answer) != 2 or not all(np.isfinite(part) for part in answer):
        raise Refused(f"Expected a pair (seconds whatever the size, seconds for each value), got {answer!r}.")
    for size in (int(rng.integers(5_000, 12_000)), int(rng.integers(250_000, 400_000))):
        said, was = answer[0] + answer[1] * size, _takes(stage, size)
        with case(f"Of {size} values"):
            right = 0.6 * was < said < 1.6 * was
            refuse_if(not right, f"your fit says {said:.4f} s; encode and decode took {was:.4f} s.")
    return "Your fit predicts two sizes that it has never seen, of a stage that it has never seen."


def _takes(stage: ps.Exact, size: int) -> float:
    rng = np.random.default_rng()
    x = rng.normal(size=size).astype(np.float32)
    return float(np.median(timeit.repeat(lambda: stage.decode(stage.encode(x, rng)), repeat=5, number=1)))
