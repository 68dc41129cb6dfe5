"""Lesson 08: send fewer bits."""

from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import asks, case, conforms, number, refuse_if
from minips.lab.course.questions import Expected, Option, card, estimate, question, sentence
from minips.stages.quantizers import Parts

estimate(
    "08.1",
    "One bit for each value, not 32: how many times fewer bytes does a worker send?",
    "times",
    expected=(8, 10),
    because="A push carries more than the bits: each tensor has a scale, and names, shapes, the clock and the loss "
    "travel in a header. With 650 values this fixed part, as minips writes it, is larger than the bits themselves.",
    otherwise="The nearer to 32, the less there was besides the bits. The account of a push below says what there is.",
)

question(
    "08.2",
    "Same levels, same gradient at every worker: from how many workers on is the average of random "
    "rounding nearer to the true gradient than that of nearest rounding?",
    Option(
        "from one worker on",
        lambda workers: workers == 1,
        "A single copy that was rounded at random was nearer already. On the same levels nothing is nearer than "
        "nearest rounding, so the levels differed.",
    ),
    Expected(
        "from a few on, 2 to 10",
        lambda workers: 2 <= workers <= 10,
        "Nearest rounding makes the same error in every copy: a bias, which no average removes. Random "
        "rounding makes a larger error in each copy, but a different one each time, and a mean of n divides "
        "its variance by n.",
    ),
    Option(
        "from more than 10 on",
        lambda workers: 10 < workers < float("inf"),
        "The variance of random rounding is so large that many copies have to be averaged before its mean is nearer "
        "than the bias of nearest rounding.",
    ),
    Option(
        "never, however many they are",
        lambda workers: workers == float("inf"),
        "Up to the largest number that was tried, the average of random rounding stayed behind: its errors did not "
        "cancel out.",
    ),
    otherwise="There was no number of workers to compare.",
)

question(
    "08.3",
    "Four workers, 100 steps, one value of W out of 640 in each push: how many values of W has training moved at the "
    "end, with the memory compared with no memory?",
    Option(
        "fewer: the memory repeats itself",
        lambda times: 0 < times < 0.9,
        "What was left out came back at the same places, and these were sent again and again.",
    ),
    Option(
        "about as many: each push moves one",
        lambda times: 0.9 <= times <= 1.3,
        "Both send 400 values, and chose their places about equally often anew.",
    ),
    Expected(
        "about twice as many",
        lambda times: 1.3 < times <= 3.5,
        "Without a memory the same places win again and again: those whose gradients are the largest. With it, a value "
        "that is left out grows in the memory until it is the largest one. Then all of it is sent, and the next one's "
        "turn comes.",
    ),
    Option(
        "many times as many",
        lambda times: times > 3.5,
        "Without a memory hardly any place but a few was ever the largest. With it, each one's turn came.",
    ),
    otherwise="There was nothing to compare: without a memory no value of W has moved.",
)

sentence(
    "08.1",
    "{blank} numbers are zero because a pixel is blank. Half of the others are below {half:.0%} of the largest.",
    expect="half < 0.2",
)

sentence(
    "08.2",
    "A push weighs {push:.0f} bytes: {bits} are the bits, {scales} two scales, and {header:.0f} the header.",
    expect="bits == 82 and scales == 16 and header > bits + scales",
)

sentence(
    "08.26",
    "With a header of 16 bytes in both runs the ratio would be {slim:.0f}, not {ratio:.0f}.",
    expect="20 < slim < 32 and slim > 2 * ratio",
)

sentence(
    "08.3", "650 values: {small:.1f} times fewer bytes. 10 010 values: {large:.1f} times.", expect="25 < large < 32"
)

sentence(
    "08.27",
    "One value in a hundred costs {least:.2%} to {most:.2%} of the bytes.",
    expect="0.0124 < least < most < 0.0201",
)

sentence(
    "08.28",
    "Relative error: {two:.2f} with the two bits of Uniform, {one:.2f} with the one bit of Sign. Uniform's levels are "
    "{apart:.2f} apart, and half of the values are below {middle:.2f}: {share:.0%} of all get the same level.",
    expect="0.5 < one < two and apart > 3 * middle and share > 0.7",
)

sentence(
    "08.29",
    "Squared errors, in |x|². Sign: {sign:.3f}, by the formula {predicted:.3f}. The largest 5 %: {top:.3f}, where 0.95 "
    "is the bound. A random 5 %, mean of 500: {luck:.2f}, 0.95 by the formula.",
    expect="abs(sign / predicted - 1) < 1e-6 and top < 0.95 and abs(luck - 0.95) < 0.01",
)

sentence(
    "08.4",
    "The largest 5 % of the values hold {small:.0%} ± {small_half:.0%} of the square here, and {large:.0%} ± "
    "{large_half:.0%} of that of the large model's gradient (five seeds). Of normally distributed values they hold "
    "{normal:.0%}.",
    expect="small - small_half > normal + 0.05 and abs(large - normal) < 0.05",
)

sentence(
    "08.5",
    "One copy: nearest rounding errs by {near:.2f}, random rounding by {random:.2f}. From {workers} "
    "workers on the average of random rounding is nearer.",
    expect="1 < workers <= 10",
)

sentence(
    "08.6",
    "The step of QSGD is {wider:.0f} times the step of Uniform, at the same 3 bits. The largest value is "
    "{largest:.2f} of such a step. One copy errs by {error:.1f}: worse than sending nothing. Its average "
    "beats nearest rounding from about {workers} workers on.",
    expect="error > 1 and largest < 1 and workers > 16",
)

sentence(
    "08.7",
    "Four workers with their own 32 rows: error {unrounded:.2f} without rounding, {nearest:.2f} with "
    "nearest, {at_random:.2f} with random rounding on the same levels, {qsgd:.2f} with QSGD.",
    expect="unrounded < nearest < at_random < qsgd",
)

sentence(
    "08.8",
    "With 256 workers: nearest {nearest:.3f}, random {at_random:.3f}.",
    expect="abs(nearest / at_random - 1) < 0.25",
)

sentence(
    "08.30",
    "The same with 1024 of the {rows} rows at each of 256 workers: nearest {nearest:.3f}, random {at_random:.3f}.",
    expect="nearest > 2 * at_random",
)

card(
    "08.31",
    "For {levels} values of s the variance is off the formula by {off:.1%} at most, and the squared mean error off "
    "variance/N by {bias:.0%} at most. The formula is above the bound for {above} of them.",
    expect="off < 0.1 and bias < 0.3 and above == 0",
)

sentence(
    "08.9",
    "Ternary: variance {formula:.1f} |x|² by the formula, {measured:.1f} |x|² measured.",
    expect="abs(measured / formula - 1) < 0.1",
)

sentence(
    "08.32",
    "Of the {live} values of W whose pixel is not blank, {few:.0f} have moved without a memory and {many:.0f} with it "
    "(means of 5 seeds).",
    expect="many > 1.3 * few",
)

sentence(
    "08.10",
    "Accuracy, mean of 5 seeds: {all:.0%} with everything, {without:.0%} without a memory, "
    "{remembered:.0%} with error feedback. The memory adds {gain:.0f} ± {half:.0f} percentage points.",
    expect="gain - half > 20",
)

sentence("08.33", "Sent plus held equals meant for {equal} of {of} values, up to rounding.", expect="equal == of")

card(
    "08.34",
    "{runs} runs each. Without a memory the loss is never below {least:.2f}. With error feedback it ends below 10⁻⁹ in "
    "{below} of them.",
    expect="least > 2 - 1e-9 and below == runs",
)

sentence(
    "08.11",
    "Step size {lr}, {starts} starts. Without a memory w is within the threshold for good after {soon} steps, and "
    "stops up to {stuck:.2f} from the minimum. With error feedback the memory holds up to {most:.0f}, w overshoots to "
    "{lowest:.1f}, is within the threshold for good after {late} steps, and stays within {end:.2f} of the minimum; "
    "lr · t is {reach:.2f}. (From the start 5.0 it ends at {exactly:.2f}.)",
    expect="soon < late and lowest < -3 and exactly < 1e-9 < end <= reach + 1e-9 and reach < stuck <= 0.5",
)

sentence(
    "08.12",
    "Five sets of batches. QSGD(levels=3): at most {qsgd:.0f} gradients' lengths are held with the remedy, {wild:,.0f} "
    "or more without. Ternary: at most {ternary:.0f} with it, at most {tame:.0f} without.",
    expect="qsgd < 20 and wild > 1e4 and ternary < tame < 30",
)

sentence(
    "08.35",
    "Ternary without the remedy: ω is {first:.1f} at the first step, and {last:.1f} over the last 50.",
    expect="last < first / 2",
)

sentence(
    "08.13",
    "At the same lr of 0.1, momentum correction lowers the loss after 60 steps by {gain:.2f} ± {half:.2f} against "
    "error feedback. Error feedback with a step ten times as long lowers it by {longer:.2f} ± {longer_half:.2f}.",
    expect="gain > half and longer - longer_half > 0 and longer > gain",
)

sentence(
    "08.14",
    "The best of three effective steps for each: the loss with momentum correction, minus that with error feedback, is "
    "{more:+.2f} ± {half:.2f}. At the effective step 1.0, minus that with error feedback and the server's momentum: "
    "{beside:+.3f} ± {beside_half:.3f} (pairs, 5 seeds).",
    expect="more > 0 and abs(beside) < beside_half",
)

sentence(
    "08.15",
    "From step 20 on, with all the rows, the error without Delta is {slow:.0f} ± {slow_half:.0f} times the error with "
    "it. With 32 random rows it is {fast:.2f} ± {fast_half:.2f} times: there Delta is no help.",
    expect="slow - slow_half > 3 and fast + fast_half < 1",
)

sentence(
    "08.16",
    "Against an exact pull, 2 bits raise the held-out loss by {plain:.4f} ± {half:.4f}; with Delta by "
    "{delta:.4f} ± {delta_half:.4f} (5 seeds).",
    expect="plain > half and abs(delta) < plain / 3",
)

sentence(
    "08.36",
    "One value in a hundred with error feedback was at {early:+.1f} ± {early_half:.1f} percentage points against "
    "Exact after {steps} steps, and at {late:+.1f} ± {late_half:.1f} after 160: what looked lost was unfinished.",
    expect="early + early_half < 0 and abs(late) < abs(early) / 2",
)

sentence(
    "08.37",
    "On this model the largest 5 % hold {tail:.0%} of the square, of normally distributed values {normal:.0%}. To "
    "send one value in a hundred changes the accuracy by {fed:+.1f} ± {fed_half:.1f} points with a memory, and by "
    "{plain:+.1f} ± {plain_half:.1f} without.",
    expect="abs(tail - normal) < 0.05 and abs(fed) < 1 and plain + plain_half < -3",
)

sentence(
    "08.38",
    "One value in a thousand with error feedback reads 90 % with {fewer:.0f} ± {fewer_half:.0f} times fewer bytes than "
    "Exact, in {slower:.1f} ± {slower_half:.1f} times as many steps.",
    expect="fewer - fewer_half > 10 and slower - slower_half > 1",
)

sentence(
    "08.18",
    "Ternary with error feedback, scaled by 1/(1 + ω), needs {steps:.2f} ± {half:.2f} times the steps of Exact.",
    expect="steps - half < 1.1 and steps + half < 1.5",
)

sentence(
    "08.39",
    "Head and zeros make the message of Exact {large:.3f} times as long, and that of one value in a thousand "
    "{small:.1f} times.",
    expect="large < 1.02 and small > 2",
)

sentence(
    "08.19",
    "Computed in 16 bits and handed over in 32: {computed:.0%} of the bytes, accuracy {accuracy:.0%}. Sent in 16 bits: "
    "{sent:.0%}, accuracy {other:.0%}.",
    expect="computed == 1 and 0.5 < sent < 0.6 and min([accuracy, other]) > 0.9",
)

sentence(
    "08.25",
    "PowerSGD(rank=2) sends {rank:.0f} bytes in a push, Uniform(bits=4) {bits:.0f}. After 100 steps the "
    "held-out loss is {loss:.2f} with the first, {other:.2f} with the second.",
    expect="rank > bits and loss > 1.5 * other",
)

sentence(
    "08.20",
    "For the same added loss U saves {times:.1f} ± {half:.1f} times as many bytes as W, if the added loss grows in "
    "proportion to the bytes saved. a and b save less than 1 %: leave them exact.",
    expect="times - half > 2 and small < 0.01",
)

sentence(
    "08.21",
    "Without a memory, 40 steps: mixed sends {mixed:.1%} of the bytes, signs everywhere {signs:.1%}, and the accuracy "
    "is {gain:+.1f} ± {half:.1f} percentage points higher with mixed (5 seeds).",
    expect="mixed > signs and gain > half",
)

sentence(
    "08.40",
    "With error feedback, mixed needs {times:.2f} ± {half:.2f} times the bytes of signs everywhere until 90 %. Signs "
    "need {slower:.2f} ± {slower_half:.2f} times the steps of mixed.",
    expect="times - half > 1 and slower < 1.2",
)

sentence(
    "08.42",
    "Signs for all tensors, after 40 steps: {plain:+.1f} ± {plain_half:.1f} percentage points against exact without a "
    "memory, {fed:+.1f} ± {fed_half:.1f} with error feedback.",
    expect="plain + plain_half < fed - fed_half and abs(fed) < abs(plain) / 3",
)

sentence(
    "08.41",
    "The largest error is {over:.3f} of the allowed one. For {rising} of 4 tensors less error takes more bits. At half "
    "of the length allowed, U takes {large:.1f} bits and b {short:.1f}.",
    expect="over <= 1.001 and rising == 4 and large > short",
)

sentence(
    "08.22",
    "Adaptive, allowed error 0.3: {share:.1%} of the bytes, accuracy {more:+.1f} ± {half:.1f} percentage points. "
    "4 bits everywhere: {four_share:.1%}, {four_more:+.1f} ± {four_half:.1f}. Here nothing is gained by choosing anew.",
    expect="four_share < share < 0.25 and more - half > -3 and more - half < four_more + four_half",
)

sentence(
    "08.24",
    "Your quantizer sent {share:.0%} of the bytes, and the model reads {accuracy:.0%} of the held-out digits.",
    expect="share < 0.45 and accuracy > 0.9",
)


DRAWS, VALUES = 500, 300
ALLOWED = 0.16
"""Steps by which the mean of so many draws may be off: Hoeffding's inequality gives 1 of 10¹¹ for one value."""


@asks(
    "08.1",
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
    "08.2",
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
    "08.3",
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
