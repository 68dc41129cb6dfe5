"""The exercises of "Round at random"."""

from dataclasses import replace
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import Refused, asks, case, conforms, number, refuse_if
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
    "rounding.3",
    "Begin with the blocks. Make zeros of shape (number of blocks, self.block), and let rows.flat[: x.size] take the "
    "values. Then np.abs(rows).max(axis=1, keepdims=True) / self.levels has a step for each row.",
    "A value of 2.3 steps has to become 2 in seven cases of ten, and 3 in three. Add rng.random(rows.shape) and round "
    "down: np.floor first, then np.int8, which cuts −2.3 to −2. A block of zeros has no step: divide it by 1.",
    "decode has to know the shape of x. Import base from minips.stages.quantizers, and send base.shape_tag(x) as part "
    '"like", as QSGD does. Then y = base.empty_for(parts) has this shape: fill y.flat[:] with the first y.size values. '
    'And base.part(parts, "codes") reads a part.',
)
def blockwise(quantizer: Any, rng: np.random.Generator) -> str:
    """Round each value at random, without bias, to the whole steps of its own block."""
    conforms(quantizer, ps.Quantizer, "Blockwise()")
    for dtype in (np.float32, np.float64):
        block, count = ((20, 5), (25, 4), (50, 2))[int(rng.integers(3))]
        levels = int(rng.integers(3, 101))
        some = _made(quantizer, levels, block)
        _is_right_on_average(some, _scaled(rng, levels, block, count, dtype), rng)
        _has_its_own_step(some, rng, dtype)
        halves = rng.integers(-levels, levels, (100, 8)) + 0.5
        halves[:, 0] = levels
        _draws_for_each(_made(quantizer, levels, 8), np.asarray(halves * 2.0 ** rng.integers(-6, 6), dtype), rng)
    return f"The mean of {DRAWS * COPIES:,} draws is right for each of {PLACES} values, in blocks of several sizes."


def _made(quantizer: Any, levels: int, block: int) -> Any:
    try:
        return replace(quantizer, levels=levels, block=block)
    except (TypeError, ValueError) as error:
        raise Refused(f"Blockwise(levels={levels}, block={block}) fails: {error}") from None


def _scaled(rng: np.random.Generator, levels: int, block: int, count: int, dtype: Any) -> Array:
    """Blocks whose largest magnitudes differ, shape (count, block); the values' fractions of a step are drawn."""
    steps = rng.integers(-levels, levels, (count, block)) + rng.uniform(0.02, 0.98, (count, block))
    steps[:, 1:3] %= [1, -1]  # less than a step, above zero and below it
    steps[:, 3] = np.floor(steps[:, 3]) + rng.uniform(0.02, 0.08, count)
    steps[:, 0] = rng.choice([-levels, levels], count)
    steps[0] = -np.abs(steps[0])
    scales = 2.0 ** rng.permutation(np.arange(count) - count // 2) * rng.uniform(0.5, 1)
    return np.asarray(rng.permuted(steps, axis=1) * scales[:, None], dtype)


def _is_right_on_average(quantizer: Any, blocks: Array, rng: np.random.Generator) -> None:
    """Refuse a quantizer unless the mean of what it makes of each value of these blocks is this value."""
    x, step = np.tile(blocks, (COPIES, 1)), np.abs(blocks).max(axis=1, keepdims=True) / quantizer.levels
    nbytes, most = _nbytes(quantizer.encode(x, rng)), x.size + len(x) * x.itemsize + 64
    became = f"{x.size} values of {x.dtype} in {len(x)} blocks became {nbytes} bytes"
    refuse_if(nbytes > most, f"{became}; a byte for each value and a step for each block are allowed.")
    draws = [_errors_of(quantizer, x, rng).reshape(COPIES, *blocks.shape) / step for _ in range(DRAWS)]
    errors = np.concatenate(draws).reshape(DRAWS * COPIES, -1)
    _within_a_step(errors, blocks, quantizer)
    off, values = errors.mean(axis=0), (blocks / step).reshape(-1)
    deviations = off / np.sqrt(errors.var(axis=0) / len(errors) + NEAR**2)
    worst = int(np.abs(deviations).argmax())
    meant = f"In {quantizer!r} x = {blocks.flat[worst]:.4g} is {values[worst]:.3f} steps of its block"
    mean = f"The mean of {len(errors):,} decoded values is {values[worst] + off[worst]:.3f} steps"
    wrong = abs(deviations[worst]) > SURE or np.square(deviations).sum() > SPREAD
    refuse_if(wrong, f"{meant}. {mean}: rounding is not yet right on average.")


def _has_its_own_step(quantizer: Any, rng: np.random.Generator, dtype: Any) -> None:
    """Refuse a quantizer whose blocks are not runs of values, in arrays of any shape; the last one may be short."""
    block = quantizer.block
    for shape in ((3 * block + block // 2,), (block - 1,), (4, block // 2 + 1, 3), (block + 1, 2)):
        flat = rng.normal(size=int(np.prod(shape)))
        for start in range(0, flat.size, 2 * block):
            flat[start : start + block] *= 1e4
        flat[block : 2 * block] *= rng.random() < 0.5  # a block of zeros
        x = np.asarray(flat.reshape(shape), dtype)
        largest = [np.abs(flat[i : i + block]).max() or quantizer.levels for i in range(0, flat.size, block)]
        steps = np.repeat(largest, block)
        errors = _errors_of(quantizer, x, rng).reshape(-1) / (steps[: x.size] / quantizer.levels)
        with case(f"Of an array of shape {shape}:"):
            _within_a_step(errors[None], x, quantizer)


def _within_a_step(errors: Array, x: Array, quantizer: Any) -> None:
    """Refuse a quantizer if any of these errors, in steps of the value's block, is more than a step."""
    largest = np.abs(errors).max(axis=0)
    worst = int(largest.argmax())
    came = f"{quantizer!r} brings x = {x.flat[worst]:.4g} back {largest[worst]:.2f} steps off"
    refuse_if(not largest[worst] <= 1.001, f"{came}; a step is the largest magnitude of its block / levels.")


def _draws_for_each(quantizer: Any, x: Array, rng: np.random.Generator) -> None:
    """Refuse a quantizer unless the errors of different values have nothing to do with each other."""
    errors = np.stack([_errors_of(quantizer, x, rng) for _ in range(2 * DRAWS)])[:, :, 1:].reshape(2 * DRAWS, -1, 7)
    errors /= np.abs(x[:, :1])  # in units of the block's largest magnitude
    pairs = errors[:, :, :6].reshape(2 * DRAWS, -1, 3, 2)
    sums = ((errors, (1, 2), "all values", 2.5), (errors, (1,), "a place in the blocks", 1.7))
    for some, axes, which, most in (*sums, (errors, (2,), "a block", 1.3), (pairs, (3,), "neighbours", 1.3)):
        together = float(some.sum(axis=axes).var(axis=0).sum() / some.var(axis=0).sum())
        varies = f"the error of the sum of {which} varies {together:.2f} times as much as it should"
        apart = 1 / most < together < most
        refuse_if(not apart, f"The values are not rounded one by one: {varies}. Draw a number for each value.")


def _errors_of(quantizer: Any, x: Array, rng: np.random.Generator) -> Array:
    return np.asarray(np.subtract(quantizer.decode(quantizer.encode(x, rng)), x, dtype=float))


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
