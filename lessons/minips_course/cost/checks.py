"""The exercises of "Predict the cost"."""

import time
import timeit
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
    for trial in range(40):
        workers, bandwidth = int(rng.integers(1, 33)), float(10 ** rng.uniform(6, 10))
        pushed = float(round(10 ** rng.uniform(3, 7)))
        pulled = pushed if trial < 5 else float(round(pushed * 10 ** rng.uniform(-1, 1)))
        latency = 0.0 if trial < 10 else float(10 ** rng.uniform(-4, -1))
        compute = 0.0 if trial < 15 else float(10 ** rng.uniform(-4, -1))
        what = f"{workers} workers, {pushed:,.0f} bytes pushed and {pulled:,.0f} pulled, {bandwidth / 1e6:.4g} Mbit/s"
        with case(f"{what}, latency {latency:.2g} s, gradient {compute:.2g} s:"):
            got = unaided(function, workers, pushed, pulled, bandwidth, latency, compute)
            links = parameter_server_step_s(workers, pushed, bandwidth / 8, latency, pulled_nbytes=pulled)
            equals(got, links + compute, " s")
    return "Right for 40 random steps, with long pushes and with long answers."


@dataclass(frozen=True)
class _Sleepy(ps.Exact):
    """A stage with a fixed time and a time for each value. Every sixth encode takes longer, as on a busy machine."""

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
