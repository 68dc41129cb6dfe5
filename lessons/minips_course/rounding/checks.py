"""The exercises of "Round at random"."""

from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import asks, case, conforms, number, refuse_if
from minips.stage import Array
from minips.stages.quantizers import Parts

DRAWS, VALUES = 500, 300
ALLOWED = 0.16
"""The most steps by which a mean of ``DRAWS`` draws may be off; by Hoeffding, at most 1 in 10¹¹ is further off."""


@asks(
    "rounding.1",
    "A value of 2.3 steps has to become 2 in seven cases of ten and 3 in three of ten. Draw from rng.",
    "Only the codes change. Replace np.rint by two steps: add a number drawn for each value, as `at_random` does in "
    "this lesson, and round down.",
    "Mind the values below zero: astype(np.int8) cuts −2.3 to −2, while np.floor goes down to −3. "
    "So which of the two must come first?",
)
def dither(quantizer: Any, rng: np.random.Generator) -> str:
    """Make the rounding random, so that the mean of many decoded arrays is the gradient itself."""
    conforms(quantizer, ps.Quantizer, "Dither()")
    for dtype in (np.float32, np.float64):
        x = np.asarray(rng.normal(size=VALUES) ** 3 * 10 ** rng.uniform(-3, 3), dtype)
        step = float(np.abs(x).max()) / 100
        nbytes = _nbytes(quantizer.encode(x, rng))
        became = f"{VALUES} values of {x.dtype} became {nbytes} bytes"
        refuse_if(nbytes > VALUES + 64, f"{became}; a byte for each is allowed.")
        errors = np.array([quantizer.decode(quantizer.encode(x, rng)) - x for _ in range(DRAWS)], float) / step
        largest, off = np.abs(errors).max(axis=0), errors.mean(axis=0)
        worst = int(largest.argmax())
        asked = f"one step at most is allowed, and a step is max|x| / 100 = {step:.4g}"
        came = f"x[{worst}] = {x[worst]:.4g} came back {largest[worst]:.2f} steps off"
        refuse_if(not largest[worst] <= 1.001, f"{came}; {asked}.")
        worst = int(np.abs(off).argmax())
        meant = f"x[{worst}] = {x[worst]:.4g} is {x[worst] / step:.2f} steps"
        mean = f"The mean of {DRAWS} decoded values is {x[worst] / step + off[worst]:.2f} steps"
        refuse_if(abs(off[worst]) > ALLOWED, f"{meant}. {mean}: rounding is not yet right on average.")
        together = float(errors.sum(axis=1).var() / errors.var(axis=0).sum())
        varies = f"the error of their sum varies {together:.0f} times as much as it should"
        rounded = f"All values are rounded up or down together: {varies}"
        refuse_if(together > 3, f"{rounded}. Draw a number for each value.")
    return f"The mean of {DRAWS} draws is right for {VALUES} random values, in float32 and float64."


@asks(
    "rounding.2",
    "A value at 2.3 steps: nearest rounding errs by 0.3 steps, always. Random rounding errs by −0.3 in seven cases of "
    "ten and by 0.7 in three. What is the mean of the square?",
    "Work in steps: r = x / step, p = r - np.floor(r). The variance of all values is the sum of p (1 − p).",
    "Random rounding is better if variance / n < bias². Which is the smallest whole n for which that is true? An equal "
    "error is not better.",
)
def workers_needed(function: Any, rng: np.random.Generator) -> str:
    """Compute the smallest number of workers for which the mean of random rounding is better than nearest rounding."""
    refuse_if(not callable(function), f"Expected the function workers_needed, got {function!r}.")
    drawn: list[tuple[Array, float]] = []
    while len(drawn) < 12:
        step, size = float(2.0 ** rng.integers(-6, 4)), int(rng.integers(2, 40))
        x = step * rng.integers(-8, 9, size) + step * rng.uniform(-0.3, 0.3, size)
        variance, bias = _errors(x / step)
        if 0.01 < variance / bias % 1 < 0.99:  # so far from the border that no order of adding crosses it
            drawn.append((x, step))
    halves = np.arange(-3, 4) * 0.25 + 0.125
    quarters = np.array([0.25, 0.5, 1.25, -0.75])
    for x, step in [*drawn, (halves, 0.25), (quarters, 1.0), (np.array([1.0, -2.0, 3.0]), 1.0)]:
        variance, bias = _errors(x / step)
        wanted = float(variance // bias + 1) if bias else float("inf")
        with case(f"For {x.size} values of {variance:.4g} steps² variance and {bias:.4g} steps² bias², step {step:g}:"):
            got = number(function(x.copy(), step))
            refuse_if(got != wanted, f"it returned {got:g}, expected {wanted:g}.")
    return "It agrees with bias² + variance / n: for random values, for equal errors, and if no value is rounded."


def _errors(r: Array) -> tuple[float, float]:
    """Return the variance of random rounding and the bias² of nearest rounding, for values in units of a step."""
    p = r - np.floor(r)
    return float((p * (1 - p)).sum()), float(((np.rint(r) - r) ** 2).sum())


def _nbytes(parts: Parts) -> int:
    return sum(part.nbytes for part in parts.values())
