"""The exercises of "A small batch is an estimate"."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import Refused, asks, case, drawn_seed, number, refuse_if
from minips.stage import Array, Tensors

WITHIN, MOST_RUNS = 1.02, 10


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
        low = float(rng.uniform(0.005, 0.02))
        high = low * float(rng.uniform(50, 150))
        border = low * (high / low) ** float([0.02, 0.98][trial] if trial < 2 else rng.uniform(0.05, 0.95))
        with case(f"Between {low:.4f} and {high:.4f}, where rates below {border:.4f} end well:"):
            _brackets(function, border.__gt__, low, high)
    for many in (4, 8):
        seed = drawn_seed(rng)
        with case(f"With accumulate={many} and seed {seed}:"):
            _brackets(function, partial(_ends_well, many=many, seed=seed), 0.01, 1.0)
    return f"Each rate was found to within 2 % in at most {MOST_RUNS} runs, also for the lesson's own problem."


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
    return "Both estimates are unbiased, for two to eight workers."


def _noise(gradients: list[Tensors], rows: int) -> tuple[float, float]:
    each: Array = np.stack([np.concatenate([np.ravel(x) for x in g.values()]) for g in gradients])
    one_worker = float(each.var(axis=0, ddof=1).sum())
    return rows * one_worker, float(np.square(each.mean(axis=0)).sum()) - one_worker / len(each)
