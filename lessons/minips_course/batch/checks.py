"""The exercises of "A small batch is an estimate"."""

import copy
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import Refused, asks, case, drawn_seed, number, refuse_if
from minips.stage import Tensors
from minips.testing.base import same_bits
from minips_course.arrays import drawn_tensors

WITHIN, MOST_RUNS, WIDEST = 1.02, 10, 1000.0


@asks(
    "batch.1",
    "Each run can halve the range that you do not know. Which learning rate lies in the middle between a rate that "
    "ends well and a rate that does not?",
    "Keep two rates: low has ended well, high has not. Try a rate between them, which then replaces one of the two.",
    "Write a while loop that ends when the rates are close enough. Each turn tries their geometric middle once.",
)
def largest(function: Any, rng: np.random.Generator) -> str:
    """Find the largest learning rate that ends well, to within 2 %, in at most 10 runs."""
    refuse_if(not callable(function), f"Expected the function largest(ends_well, low, high), got {function!r}.")
    for trial in range(12):
        low = 10.0 ** float(rng.uniform(-5, 2))
        high = low * [WIDEST, _unlucky(rng), 1.015][trial] if trial < 3 else low * WIDEST ** float(rng.uniform(0.1, 1))
        near_an_end = [low * 1.001, high / 1.001]
        for border in (near_an_end[trial % 2], low * (high / low) ** float(rng.uniform(0.05, 0.95))):
            with case(f"Between {low:.4g} and {high:.4g}, where rates below {border:.4g} end well:"):
                _brackets(function, border.__gt__, low, high)
    for many in (4, 8):
        seed = drawn_seed(rng)
        with case(f"With accumulate={many} and seed {seed}:"):
            _brackets(function, partial(_ends_well, many=many, seed=seed), 0.01, 1.0)
    return f"Each rate was found to within 2 % in at most {MOST_RUNS} runs, also for the lesson's own problem."


def _unlucky(rng: np.random.Generator) -> float:
    """Return a range that so many halvings leave a little too wide."""
    return float((WITHIN + 0.0002) ** (2 ** rng.integers(4, 9)))


def _brackets(function: Any, ends_well: Callable[[float], bool], low: float, high: float) -> None:
    """Refuse a rate unless its run ended well, and a run at a rate at most 2 % larger ended badly."""
    seen = {low: True, high: False}
    runs = 0

    def asked(lr: Any) -> bool:
        nonlocal runs
        lr, runs = number(lr), runs + 1
        refuse_if(not low <= lr <= high, f"it tried {lr:.4g}, which is not between low and high.")
        refuse_if(runs > 4 * MOST_RUNS, f"it made more than {4 * MOST_RUNS} runs.")
        seen[lr] = ends_well(lr)
        return seen[lr]

    got = number(function(asked, low, high))
    refuse_if(got not in seen, f"it returned {got:.4f}, which it never tried.")
    refuse_if(not seen[got], f"it returned {got:.4f}, which does not end well.")
    badly = min(lr for lr, well in seen.items() if not well and lr > got)
    refuse_if(badly > WITHIN * got, f"it returned {got:.4f}; the next rate that ended badly is {badly:.4f}.")
    refuse_if(runs > MOST_RUNS, f"it made {runs} runs; {MOST_RUNS} are enough.")


def _ends_well(lr: float, many: int, seed: int) -> bool:
    """Return True if forty steps of batches of ``many`` rows, as in the lesson, lower the loss on the diabetes data."""
    problem = ps.LinearRegression(*ps.datasets.diabetes(dtype="float64"))
    rng, params = np.random.default_rng(seed), problem.init(np.random.default_rng(0))
    before = problem.loss(params)
    for _ in range(40):
        gradient = problem.gradient(params, rng.integers(problem.rows, size=many))
        params = {name: np.asarray(p - lr * gradient[name]) for name, p in params.items()}
    return problem.loss(params) < before


@asks(
    "batch.2",
    "The mean of the workers is not the true gradient, and the workers' distances to this mean are a little too short. "
    "np.var corrects that with ddof=1.",
    "A worker's gradient is a mean over its rows, so its variance is σ² divided by the number of rows.",
    "The squared length of a noisy mean is too large on average, by the variance of that mean. This variance is a "
    "worker's variance divided by the number of workers.",
)
def noise(function: Any, rng: np.random.Generator) -> str:
    """Estimate σ² and the squared length of the true gradient from the gradients of one round, both unbiased."""
    refuse_if(not callable(function), f"Expected the function noise_of(gradients, rows), got {function!r}.")
    for workers in range(2, 9):
        for scale in (0.0, float(rng.uniform(0.5, 2))):
            _is_unbiased(function, rng, workers, scale)
    return "Both estimates are unbiased, for two to eight workers."


def _is_unbiased(function: Any, rng: np.random.Generator, workers: int, scale: float) -> None:
    """Refuse a function unless its mean over all cases is right to rounding, where a gradient has few equal chances."""
    rows, few = int(rng.integers(1, 65)), 3 if workers < 6 else 2
    true = {name: np.asarray(scale * x) for name, x in drawn_tensors(rng).items()}
    drawn = {name: rng.normal(size=(few, *x.shape)) * (1 + np.abs(x).max()) for name, x in true.items()}
    noise = {name: x - x.mean(axis=0) for name, x in drawn.items()}
    chances = [{name: np.asarray(x + noise[name][i]) for name, x in true.items()} for i in range(few)]
    cases = [*product(chances, repeat=workers)]
    wanted = (rows * _square(noise) / few, _square(true))
    told = f"With {workers} workers and {rows} rows each, a gradient being one of {few} with equal chances:"
    with case(told):
        means = np.mean([_noise(function, [*one], rows) for one in cases], axis=0)
        for name, mean, right in zip(("σ²", "the squared length"), means, wanted, strict=True):
            near = np.isclose(mean, right, rtol=1e-8, atol=1e-8 * wanted[0])
            refuse_if(not near, f"over all {len(cases)} cases, {name} is {mean:.4g} on average, not {right:.4g}.")


def _square(tensors: Tensors) -> float:
    return float(sum(np.square(x).sum() for x in tensors.values()))


def _noise(function: Any, gradients: list[Tensors], rows: int) -> tuple[float, float]:
    """Return the function's two numbers. Raises `Refused` unless these are two, and the gradients stay as they were."""
    given = copy.deepcopy(gradients)
    got = function(given, rows)
    if not (isinstance(got, tuple | list) and len(got) == 2):
        raise Refused(f"it returned {got!r}; expected two numbers.")
    same = all(same_bits(one[name], x) for one, old in zip(given, gradients, strict=True) for name, x in old.items())
    refuse_if(not same, "it changed the gradients that it was given.")
    return number(got[0]), number(got[1])
