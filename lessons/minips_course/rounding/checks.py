"""The exercises of "Round at random"."""

from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import asks, case, conforms, number, refuse_if
from minips.stage import Array
from minips.stages.quantizers import Parts
from minips.testing.base import same_bits

DRAWS, PLACES, COPIES = 50, 100, 100
"""The draws of an array, the different values in it, and how often it holds each."""
SURE = 7.0
"""The standard errors by which a mean of draws may be off; by chance, 1 in 10¹¹ is further off."""
NEAR = 0.002
"""The steps by which a mean may be off besides: rare draws and float32 deviate, too."""
SPREAD = 260.0
"""The sum of the squares of ``PLACES`` such standard errors, on average 100; by chance, 1 in 10¹⁵ exceeds this."""


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
        step = float(10 ** rng.uniform(-3, 3)) if dtype == np.float64 else float(2.0 ** rng.integers(-9, 9))
        steps = rng.integers(-99, 99, PLACES) + np.r_[rng.uniform(0.02, 0.08, 10), rng.uniform(0.02, 0.98, PLACES - 10)]
        steps[:30] %= np.repeat([1, -1], 15)  # less than a step, above zero and below it
        steps[-1] = float(rng.choice([-100, 100]))
        x = np.asarray(step * steps, dtype)
        _is_right_on_average(quantizer, np.repeat(x[:, None], COPIES, axis=1), step, rng)
        halves = rng.integers(-99, 99, (600, 2, 2)) + 0.5
        halves[0, 0, 0] = 100
        _draws_for_each(quantizer, np.asarray(step * halves, dtype), rng)
    return f"The mean of {DRAWS * COPIES:,} draws is right for each of {PLACES} values, in float32 and float64."


def _is_right_on_average(quantizer: ps.Quantizer, x: Array, step: float, rng: np.random.Generator) -> None:
    """Refuse a quantizer unless the mean of what it makes of each row's value is this value."""
    nbytes = _nbytes(quantizer.encode(x, rng))
    became = f"{x.size} values of {x.dtype} became {nbytes} bytes"
    refuse_if(nbytes > x.size + 64, f"{became}; a byte for each is allowed.")
    draws = np.stack([_errors_of(quantizer, x, rng) for _ in range(DRAWS)]) / step
    largest, off, values = np.abs(draws).max(axis=(0, 2)), draws.mean(axis=(0, 2)), x[:, 0]
    worst = int(largest.argmax())
    asked = f"one step at most is allowed, and a step is max|x| / 100 = {step:.4g}"
    came = f"x[{worst}] = {values[worst]:.4g} came back {largest[worst]:.2f} steps off"
    refuse_if(not largest[worst] <= 1.001, f"{came}; {asked}.")
    errors = np.sqrt(draws.var(axis=(0, 2)) / (DRAWS * COPIES) + NEAR**2)
    deviations = off / errors
    worst = int(np.abs(deviations).argmax())
    meant = f"x = {values[worst]:.4g} is {values[worst] / step:.3f} steps"
    mean = f"The mean of {DRAWS * COPIES:,} decoded values is {values[worst] / step + off[worst]:.3f} steps"
    wrong = abs(deviations[worst]) > SURE or np.square(deviations).sum() > SPREAD
    refuse_if(wrong, f"{meant}. {mean}: rounding is not yet right on average.")


def _draws_for_each(quantizer: ps.Quantizer, x: Array, rng: np.random.Generator) -> None:
    """Refuse a quantizer unless the errors of different values have nothing to do with each other."""
    errors = np.stack([_errors_of(quantizer, x, rng) for _ in range(2 * DRAWS)])
    sums = (((1, 2, 3), "all values", 2.5), ((1,), "a column", 1.7), ((2,), "neighbours", 1.3), ((3,), "a row", 1.3))
    for axes, which, most in sums:
        together = float(errors.sum(axis=axes).var(axis=0).sum() / errors.var(axis=0).sum())
        varies = f"the error of the sum of {which} varies {together:.2f} times as much as it should"
        apart = 1 / most < together < most
        refuse_if(not apart, f"The values are not rounded one by one: {varies}. Draw a number for each value.")


def _errors_of(quantizer: ps.Quantizer, x: Array, rng: np.random.Generator) -> Array:
    return np.subtract(quantizer.decode(quantizer.encode(x, rng)), x, dtype=float)


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
    while len(drawn) < 40:
        step, size = float(10 ** rng.uniform(-3, 2)), int(rng.integers(1, 40))
        far = 0.5 * 10 ** -rng.uniform(0, 4 if len(drawn) < 20 else 1, size if len(drawn) % 2 else 1)
        x = step * (rng.integers(-8, 9, size) + rng.uniform(-far, far, size))
        variance, bias = _errors(x / step)
        if 0.01 < variance / bias % 1 < 0.99 and variance < 2e4 * bias:  # no order of adding crosses the border
            drawn.append((x, step))
    for power in range(1, 7):  # an equal error with 1, 3, 7, 15, 31 and 63 workers
        signs = rng.choice([-1, 1], int(rng.integers(1, 30)))
        step = float(2.0 ** rng.integers(-6, 4))
        drawn.append((step * (rng.integers(-8, 9, signs.size) + signs * 0.5**power), step))
    quarters = np.array([0.25, 0.5, 1.25, -0.75])
    for x, step in [*drawn, (quarters, 1.0), (np.array([1.0, -2.0, 3.0]), 1.0), (np.zeros(3), 0.5)]:
        variance, bias = _errors(x / step)
        wanted = float(variance // bias + 1) if bias else float("inf")
        with case(f"For {x.size} values of {variance:.4g} steps² variance and {bias:.4g} steps² bias², step {step:g}:"):
            given = x.copy()
            got = number(function(given, step))
            refuse_if(got != wanted, f"it returned {got:g}, expected {wanted:g}.")
            refuse_if(not same_bits(given, x), "it changed x.")
    return "It agrees with bias² + variance / n: for random values, for equal errors, and if no value is rounded."


def _errors(r: Array) -> tuple[float, float]:
    """Return the variance of random rounding and the bias² of nearest rounding, for values in units of a step."""
    p = r - np.floor(r)
    return float((p * (1 - p)).sum()), float(((np.rint(r) - r) ** 2).sum())


def _nbytes(parts: Parts) -> int:
    return sum(part.nbytes for part in parts.values())
