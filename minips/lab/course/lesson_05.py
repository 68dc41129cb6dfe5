"""Lesson 05: send fewer bits."""

from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import asks, case, conforms, number, refuse_if
from minips.lab.course.questions import Option, question, sentence
from minips.stages.quantizers import Parts

question(
    "05.1",
    "One bit for each value, not 32: how many times fewer bytes does a worker send?",
    Option("32 times, as the rule says", lambda TODO: False, "TODO"),
    Option("between 20 and 32 times", lambda TODO: False, "TODO"),
    Option(
        "about 9 times",
        lambda TODO: False,
        "A push carries more than the bits: each tensor has a scale, and names, shapes, the clock and the "
        "loss travel in a header. With 650 values this fixed part is larger than the bits themselves.",
    ),
    expected="about 9 times",
    otherwise="TODO",
    telling=[],
)

question(
    "05.2",
    "Same levels, same gradient at every worker: from how many workers on is the average of random "
    "rounding nearer to the true gradient than that of nearest rounding?",
    Option("from one worker on", lambda TODO: False, "TODO"),
    Option(
        "from a few on, 2 to 10",
        lambda TODO: False,
        "Nearest rounding makes the same error in every copy: a bias, which no average removes. Random "
        "rounding makes a larger error in each copy, but a different one each time, and a mean of n divides "
        "its variance by n.",
    ),
    Option("from about 50 on", lambda TODO: False, "TODO"),
    Option("never", lambda TODO: False, "TODO"),
    expected="from a few on, 2 to 10",
    otherwise="TODO",
    telling=[],
)

question(
    "05.3",
    "One value of W in a push, 100 steps: what does the memory do for the accuracy on held-out digits?",
    Option("little: both send the same number of values", lambda TODO: False, "TODO"),
    Option(
        "it adds more than 20 percentage points",
        lambda TODO: False,
        "Without a memory only the places with the largest gradients ever move. With it, a value that is left"
        " out grows in the memory until it is the largest one, and then all of it is sent.",
    ),
    Option("nothing helps: both stay below one half", lambda TODO: False, "TODO"),
    expected="it adds more than 20 percentage points",
    otherwise="TODO",
    telling=[],
)

sentence(
    "05.1",
    "{blank} numbers are zero because a pixel is blank. Half of the others are below {half:.0%} of the largest.",
    expect="half < 0.2",
)

sentence("05.2", "650 values, one bit for each: {ratio:.1f} times fewer bytes.", expect="8 < ratio < 10")

sentence(
    "05.3", "650 values: {small:.1f} times fewer bytes. 10 010 values: {large:.1f} times.", expect="25 < large < 32"
)

sentence(
    "05.4",
    "The largest 5 % of the values hold {top:.0%} of the square; of normally distributed ones they hold {normal:.0%}.",
    expect="top > normal + 0.1",
)

sentence(
    "05.5",
    "One copy: nearest rounding errs by {near:.2f}, random rounding by {random:.2f}. From {workers} "
    "workers on the average of random rounding is nearer.",
    expect="1 < workers <= 10",
)

sentence(
    "05.6",
    "The step of QSGD is {wider:.0f} times the step of Uniform, at the same 3 bits. The largest value is "
    "{largest:.2f} of such a step. One copy errs by {error:.1f}: worse than sending nothing. Its average "
    "beats nearest rounding from about {workers} workers on.",
    expect="error > 1 and largest < 1 and workers > 16",
)

sentence(
    "05.7",
    "Four workers with their own 32 rows: error {unrounded:.2f} without rounding, {nearest:.2f} with "
    "nearest, {at_random:.2f} with random rounding on the same levels, {qsgd:.2f} with QSGD.",
    expect="unrounded < nearest < at_random < qsgd",
)

sentence(
    "05.8",
    "With 256 workers: nearest {nearest:.3f}, random {at_random:.3f}.",
    expect="abs(nearest / at_random - 1) < 0.25",
)

sentence(
    "05.9",
    "Ternary: variance {formula:.1f} |x|² by the formula, {measured:.1f} |x|² measured.",
    expect="abs(measured / formula - 1) < 0.1",
)

sentence(
    "05.10",
    "Accuracy, mean of 5 seeds: {all:.0%} with everything, {without:.0%} without a memory, "
    "{remembered:.0%} with error feedback. The memory adds {gain:.0f} ± {half:.0f} percentage points.",
    expect="gain - half > 20",
)

sentence(
    "05.11",
    "Step size {lr}: without a memory w {reached}, and stops at {stuck:.2f}. With error feedback up to "
    "{most:.0f} are held, w overshoots to {lowest:.1f}, is within 0.5 for good after {late} steps, and "
    "ends at {end:.2f}.",
    expect="soon < late and lowest < -3 and abs(stuck) > 0.2 and end < 1e-9",
)

sentence(
    "05.12",
    "QSGD(levels=3): at most {qsgd:.0f} gradients' lengths are held with the remedy, {wild:.0e} without. "
    "Ternary: {ternary:.0f} with it, {tame:.0f} without.",
    expect="qsgd < 20 and wild > 1e4 and ternary < tame < 30",
)

sentence(
    "05.13",
    "Momentum correction lowers the loss after 60 steps by {gain:.2f} ± {half:.2f} against error feedback alone.",
    expect="gain > half",
)

sentence(
    "05.14",
    "Against error feedback with the server's momentum the difference is {gain:.2f} ± {half:.2f}, 5 "
    "seeds: none that can be told from chance.",
    expect="abs(gain) < half",
)

sentence(
    "05.15",
    "With all the rows, the error without Delta is {slow:.0f} times the error with it. With 32 random "
    "rows it is {fast:.1f} times: there Delta is no help.",
    expect="slow > 3 and fast < 1",
)

sentence(
    "05.16",
    "Against an exact pull, 2 bits raise the held-out loss by {plain:.4f} ± {half:.4f}; with Delta by "
    "{delta:.4f} ± {delta_half:.4f} (5 seeds).",
    expect="plain > half and abs(delta) < plain / 3",
)

sentence(
    "05.17",
    "{name}, {bits:.2f} bits per value: {plain:+.1f} ± {plain_half:.1f} percentage points without a "
    "memory, {fed:+.1f} ± {fed_half:.1f} with error feedback.",
    expect="bits < 1.3 and fed - fed_half > -6 and plain < fed",
)

sentence(
    "05.18",
    "Ternary with error feedback, scaled by 1/(1 + ω): {mean:+.1f} ± {half:.1f} percentage points.",
    expect="abs(mean) < 3",
)

sentence(
    "05.19",
    "Computing in 16 bits: {computed:.0%} of the bytes. Sending in 16 bits: {sent:.0%}.",
    expect="computed == 1 and 0.5 < sent < 0.6",
)

sentence(
    "05.20",
    "For the same harm, U saves {times:.1f} times as many bytes as W. a and b save less than 1 %: leave them exact.",
    expect="times > 2 and small < 0.01",
)

sentence(
    "05.21",
    "Mixed: {share:.1%} of the bytes, and the accuracy changes by {more:+.1f} ± {half:.1f} percentage "
    "points (5 seeds).",
    expect="share < 0.12 and more - half > -3",
)

sentence(
    "05.22",
    "Allowed error {target}: {share:.1%} of the bytes, accuracy {more:+.1f} ± {half:.1f} percentage points.",
    expect="share < 0.5 and more - half > -3",
)

sentence(
    "05.23",
    "Sign with error feedback: {share:.1%} of the bytes, accuracy {more:+.1f} ± {half:.1f} percentage points.",
    expect="share < 0.1 and more - half > -3",
)

sentence("05.24", "Your quantizer sent {share:.0%} of the bytes.", expect="share < 0.45")


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
