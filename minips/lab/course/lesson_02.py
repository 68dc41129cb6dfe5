"""Lesson 02: a small batch is an estimate."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import Refused, asks, case, drawn_seed, number, refuse_if
from minips.lab.course.questions import Expected, Item, Option, card, prompt, question, quiz, sentence
from minips.stage import Array, Tensors

question(
    "02.1",
    "A batch of 64 rows has sixteen times as many rows as a batch of 4. How much smaller is its typical error?",
    Option(
        "sixteen times smaller",
        lambda ratio: ratio >= 10,
        "The error fell as fast as the number of rows rose: the batches cannot have been drawn at random.",
    ),
    Expected(
        "about four times smaller",
        lambda ratio: 3 <= ratio < 6,
        "A mean of sixteen times as many rows has a sixteenth of the variance. The typical error is the root of the "
        "variance: a quarter. It is a little less still, for 64 different rows are a good part of all 354.",
    ),
    Option(
        "less than twice smaller",
        lambda ratio: 0 < ratio < 2,
        "The rows of a batch did not make up for each other's errors, as if they were all alike.",
    ),
    otherwise="The ratio lies between two of the options: the error fell, by another law.",
)

question(
    "02.2",
    "Average eight rows before each step. How long may the step be, compared with one row?",
    Option(
        "eight times as long",
        lambda ratio: 7 <= ratio < 10,
        "The noise alone set the border: its variance is an eighth, and the step may be eight times as long.",
    ),
    Expected(
        "longer, and clearly less than eight times",
        lambda ratio: 1.5 <= ratio < 7,
        "Two things limit a step. The variance falls to an eighth. The curvature is the same for any number of rows, "
        "and above 2/λ a step overshoots without any noise.",
    ),
    Option(
        "no longer",
        lambda ratio: 0.5 < ratio < 1.5,
        "The noise made no difference: the border with one row was that of the curvature already.",
    ),
    otherwise="Eight rows allowed more than ten times the step, or less than half of it.",
)

sentence(
    "02.1",
    "The mean of {draws:,} gradients of 4 rows is off by {off:.3f}. The typical error of one of them is {each:.1f}.",
    expect="off < 3 * each / draws**0.5 and each > 0.5",
)

card(
    "02.2",
    "{rows} rows, {settings} settings of batch and workers: measured over computed lies between {least:.2f} and "
    "{most:.2f}.",
    expect="settings == 11 and 0.9 < least <= most < 1.1",
)

sentence(
    "02.3",
    "Each run looks at {least:,} rows. Accumulation sends {ratio:.2f} of the bytes.",
    expect="least == most == 2560 and 0.2 < ratio < 0.3",
)

sentence(
    "02.4",
    "Above the least possible loss, five seeds: {each:.4f} where each batch is pushed, {fourth:.4f} where every fourth "
    "is, at the same learning rate, {longer:.4f} with lr × 4. The last and the first differ by {mean:+.4f} (95 % "
    "interval ±{half:.4f}).",
    expect="abs(mean) + half < 0.02 and fourth > 3 * each",
)

sentence(
    "02.5",
    "2/λ is {limit:.2f}. Training begins at a loss of {start:.2f}. With all the rows, after 40 steps, it is "
    "{below:.2f} at 0.9 of this limit, and {above:,.0f} at 1.1 of it.",
    expect="below < start < above",
)

sentence(
    "02.6",
    "workers={workers}, accumulate={many}: at half of the largest step the loss ends at {half:.2f}, at twice the "
    "largest step at {twice:.0e}.",
    expect="half < 0.5 < twice",
)

sentence(
    "02.7",
    "From one round of {workers} workers with {rows} rows each, on average of {rounds:,} rounds: σ² is {sigma:.2f} of "
    "the true one, the squared length {length:.2f} of the true one.",
)

prompt(
    "02.1",
    "By how much may the step be longer with accumulate=4, and with accumulate=8? Give the largest rates with their "
    "intervals, and say why it is not 4 and 8. Two sentences.",
    "With accumulate=4 the largest step is about three times as long as with one row, with accumulate=8 about four "
    "times, and the intervals do not overlap. The noise falls with the number of rows, but the border of the "
    "curvature, 2/λ, stays where it is.",
)

quiz(
    "02",
    Item(
        "A batch grows from 16 to 64 rows, out of very many. What becomes of the typical error of its gradient?",
        {
            "it halves": "The variance is a quarter, and the error is its root.",
            "it falls to a quarter": "That is the variance. The error is measured in the units of the gradient, and "
            "is the root of it.",
            "it stays: the gradient is right on average": "Right on average means that the mean of the errors "
            "is zero. Their size falls.",
        },
    ),
    Item(
        "Eight workers have 16 rows each, from shards that look alike. One worker has 128 rows. Whose mean gradient is "
        "noisier?",
        {
            "neither": "Both are a mean over 128 rows. Who looked at which row makes no difference.",
            "the eight workers'": "Each of their gradients is noisier. The mean of the eight is not.",
            "the single worker's": "Its one gradient is a mean over as many rows as all of theirs.",
        },
    ),
    Item(
        "accumulate=4, and all else as before: the same rows, the same learning rate. Why does the loss end higher?",
        {
            "a quarter of the steps, each about as long as before": "The model gets about a quarter of the way. A "
            "longer step makes up for it.",
            "the average of four batches is a wrong gradient": "It is a better estimate than each of the four.",
            "three of four batches are thrown away": "All four are in the average.",
        },
    ),
    Item(
        "What does accumulation save?",
        {
            "pushes and pulls": "One push for four batches: about a quarter of the bytes.",
            "gradients to compute": "Each run looks at the same number of rows.",
            "steps, at any learning rate": "With the same learning rate the fewer steps get less far.",
        },
    ),
    Item(
        "With all the rows and a step of 1.1 · 2/λ the loss grows. Would twice as many rows help?",
        {
            "no: the step overshoots without any noise": "At the largest curvature each step ends farther from the "
            "minimum than it began. Noise has no part in it.",
            "yes: the variance would be half": "A gradient of all the rows has no variance from drawing them.",
            "yes: each row would weigh less": "The mean, and with it the curvature λ, stays about the same.",
        },
    ),
)

WITHIN, MOST_RUNS = 1.02, 10


@asks(
    "02.1",
    "Each run halves what you do not know, if you choose the learning rate well. Which one lies between a rate that "
    "ends well and one that does not?",
    "Keep two rates: low has ended well, high has not. Try a rate between them; it replaces one of the two.",
    "A while loop that ends when the two rates are near enough. In it: one middle by ratio, one run, one if.",
)
def largest(function: Any, rng: np.random.Generator) -> str:
    """Find the largest learning rate that ends well, to within 2 %, in at most 10 runs."""
    refuse_if(not callable(function), f"Expected the function largest(ends_well, low, high), got {function!r}.")
    for trial in range(12):
        low = float(rng.uniform(0.005, 0.02))
        high = low * float(rng.uniform(50, 150))
        border = low * (high / low) ** float([0.02, 0.98][trial] if trial < 2 else rng.uniform(0.05, 0.95))
        with case(f"Between {low:.4f} and {high:.4f}, where rates below {border:.4f} end well:"):
            _brackets(function, border.__gt__, low, high)
    for many in (4, 8):
        seed = drawn_seed(rng)
        with case(f"With accumulate={many} and seed {seed}:"):
            _brackets(function, partial(_ends_well, many=many, seed=seed), 0.01, 1.0)
    return f"Within 2 % each time, in at most {MOST_RUNS} runs: on a dozen borders, and on the lesson's own problem."


def _brackets(function: Any, ends_well: Callable[[float], bool], low: float, high: float) -> None:
    """Refused where the rate did not end well, or where none that is larger by 2 % at most was seen to end badly."""
    seen = {low: True, high: False}
    runs = 0

    def asked(lr: Any) -> bool:
        nonlocal runs
        lr, runs = number(lr), runs + 1
        refuse_if(not low <= lr <= high, f"it asked for {lr:.4g}, outside of low and high.")
        refuse_if(runs > 4 * MOST_RUNS, f"it asked for more than {4 * MOST_RUNS} runs.")
        seen[lr] = ends_well(lr)
        return seen[lr]

    got = number(function(asked, low, high))
    refuse_if(got not in seen, f"it returned {got:.4f}, and never tried that.")
    refuse_if(not seen[got], f"it returned {got:.4f}, which does not end well.")
    badly = min(lr for lr, well in seen.items() if not well and lr > got)
    refuse_if(badly > WITHIN * got, f"it returned {got:.4f}; the next rate that ended badly is {badly:.4f}.")
    refuse_if(runs > MOST_RUNS, f"it took {runs} runs; {MOST_RUNS} are enough.")


def _ends_well(lr: float, many: int, seed: int) -> bool:
    """The lesson's own: forty steps on the diabetes data, each over so many rows; True where the loss is lower."""
    problem = ps.LinearRegression(*ps.datasets.diabetes(dtype="float64"))
    rng, params = np.random.default_rng(seed), problem.init(np.random.default_rng(0))
    before = problem.loss(params)
    for _ in range(40):
        gradient = problem.gradient(params, rng.integers(problem.rows, size=many))
        params = {name: np.asarray(p - lr * gradient[name]) for name, p in params.items()}
    return problem.loss(params) < before


@asks(
    "02.2",
    "The mean of the workers is not the true gradient. The distances to it are a little too short: np.var takes ddof=1 "
    "for that.",
    "A worker's gradient is a mean over its rows, so its variance is σ² divided by their number.",
    "The squared length of a noisy mean is too long on average, by the variance of that mean: a worker's variance "
    "divided by the number of workers.",
)
def noise(function: Any, rng: np.random.Generator) -> str:
    """Estimate σ² and the squared length of the true gradient from the gradients of one round, both unbiased."""
    refuse_if(not callable(function), f"Expected the function noise_of(gradients, rows), got {function!r}.")
    for _ in range(10):
        workers, rows = int(rng.integers(2, 9)), int(rng.integers(1, 65))
        true: Tensors = {"w": rng.normal(size=(3, 2)), "b": np.asarray(rng.normal())}
        gradients = [
            {name: np.asarray(g + rng.normal(size=g.shape) / rows**0.5) for name, g in true.items()}
            for _ in range(workers)
        ]
        with case(f"With {workers} workers and {rows} rows each:"):
            got = function(gradients, rows)
            if not (isinstance(got, tuple) and len(got) == 2):
                raise Refused(f"it returned {got!r}; expected two numbers.")
            for name, one, wanted in zip(("σ²", "the squared length"), got, _noise(gradients, rows), strict=True):
                near = np.isclose(number(one), wanted, rtol=1e-9)
                refuse_if(not near, f"{name} is {number(one):.4g}; an unbiased estimate is {wanted:.4g}.")
    return "Both are unbiased, for two workers and for eight."


def _noise(gradients: list[Tensors], rows: int) -> tuple[float, float]:
    each: Array = np.stack([np.concatenate([np.ravel(x) for x in g.values()]) for g in gradients])
    one_worker = float(each.var(axis=0, ddof=1).sum())
    return rows * one_worker, float(np.square(each.mean(axis=0)).sum()) - one_worker / len(each)
