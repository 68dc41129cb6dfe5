"""Lesson 05: send fewer bits."""

from typing import Any

import numpy as np

import minips as ps
from minips.lab.exercises.base import asks, case, conforms, number, refuse_if
from minips.stages.quantizers import Parts

DRAWS, VALUES = 500, 300
ALLOWED = 0.16
"""Steps by which the mean of so many draws may be off: Hoeffding's inequality gives 1 of 10¹¹ for one value."""


@asks(
    "05.1",
    "How large can a place be? A place among 256 values fits into one byte, 0 to 255. And among 257?",
    "A value takes 4 bytes. Its place takes 1 byte where size is at most 256, 2 bytes up to 65 536, and 4 beyond.",
    "Three cases for the bytes of a place, by size; then k times the bytes of one value with its place.",
)
def topk_bytes(function: Any, rng: np.random.Generator) -> str:
    """Write topk_bytes, of size and k: the bytes of k float32 values out of size, with their places."""
    refuse_if(not callable(function), f"Expected the function topk_bytes, got {function!r}.")
    drawn = [
        int(size) for low, high in ((2, 257), (257, 65_537), (65_537, 300_000)) for size in rng.integers(low, high, 3)
    ]
    for size in [*drawn, 1, 256, 257, 65_536, 65_537]:
        fraction = float(np.round(rng.uniform(0.001, 1), 3))
        parts = ps.TopK(fraction).encode(np.zeros(size, np.float32), None)
        k, wanted = parts["values"].size, _nbytes(parts)
        with case(f"For {k} of {size} values"):
            got = number(function(size, k))
            refuse_if(got != wanted, f"it returned {got:.9g}; TopK({fraction:g}) makes {wanted} bytes.")
    return "It agrees with TopK on random sizes, and where an index grows by a byte."


@asks(
    "05.2",
    "A value of 2.3 steps has to become 2 in seven cases of ten and 3 in three of ten. Draw from rng.",
    "Add a number between 0 and 1 to each value, drawn from rng, and round down: "
    "np.floor(x / step + rng.random(x.shape)).",
    "Mind the values below zero: astype(np.int8) cuts −2.3 to −2, while np.floor goes down to −3. "
    "So which of the two comes first?",
)
def dither(quantizer: Any, rng: np.random.Generator) -> str:
    """Make the rounding random, so that the mean of many decoded arrays is the gradient itself."""
    conforms(quantizer, ps.Quantizer, "Dither()")
    for dtype in (np.float32, np.float64):
        x = np.asarray(rng.normal(size=VALUES) ** 3 * 10 ** rng.uniform(-3, 3), dtype)
        step = float(np.abs(x).max()) / 100
        nbytes = _nbytes(quantizer.encode(x, rng))
        became = f"{VALUES} values of {x.dtype} became {nbytes} bytes"
        refuse_if(nbytes > VALUES + 64, f"{became}; a byte for each is asked for.")
        errors = np.array([quantizer.decode(quantizer.encode(x, rng)) - x for _ in range(DRAWS)], float) / step
        largest, off = np.abs(errors).max(axis=0), errors.mean(axis=0)
        worst = int(largest.argmax())
        asked = f"one step at most is asked for, and a step is max|x| / 100 = {step:.4g}"
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
    return f"The mean of {DRAWS} draws is right for {VALUES} random values, in float32 and float64, a byte each."


@asks(
    "05.3",
    "It is right for small tensors. Try wrong() with more and more values.",
    "Where do the values of a tensor of 70 000 arrive? Compare the places that were meant with those in the parts.",
    "A place travels as a uint16: it counts to 65 535 and then starts again from 0. What could count further?",
    "The dtype may follow from the tensor's size: np.min_scalar_type tells the smallest one that holds a number.",
)
def largest(quantizer: Any, rng: np.random.Generator) -> str:
    """Find an input for which Largest is wrong, and mend it."""
    conforms(quantizer, ps.Quantizer, "Largest()")
    own = ps.TopK(fraction=0.01)
    sizes = [int(rng.integers(*ends)) for ends in ((2, 200), (300, 60_000), (70_000, 120_000), (140_000, 300_000))]
    for size in [*sizes, 65_536, 65_537]:
        for shape in ((size,), (2, size)):
            x = rng.normal(size=shape).astype(np.float32)
            with case(f"For float32 values of shape {shape}, {x.size} in all:"):
                parts = quantizer.encode(x, None)
                got, meant = quantizer.decode(parts), own.decode(own.encode(x, None))
                count, missing = int((meant != 0).sum()), int(((meant != 0) & (got != meant)).sum())
                strange = int(((got != 0) & (got != meant)).sum())
                lost = f"{missing} of the {count} largest values did not arrive at their places"
                refuse_if(missing or strange, f"{lost}, and {strange} places hold what is not theirs.")
                enough = f"{count} values and places of 4 bytes each are enough"
                nbytes = _nbytes(parts)
                refuse_if(nbytes > 8 * count + 64, f"right, but in {nbytes} bytes. {enough}.")
    return "Right for tensors below and above 65 536 values, in any shape, and no larger than it has to be."


def _nbytes(parts: Parts) -> int:
    return sum(part.nbytes for part in parts.values())
