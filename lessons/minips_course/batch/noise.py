"""How noisy the gradients of batches are, and what that does to training."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

import minips as ps
from minips.engines.worker import batch
from minips.lab.course.intervals import interval
from minips.stage import Array, Tensors
from minips_course.arrays import flat

DRAWS, WITHIN, SEEDS, STEPS = 2000, 1.02, 20, 40


def of_each_row(problem: ps.Problem, params: Tensors) -> Array:
    """Return the gradient of each row, shape (rows, values)."""
    return np.array([flat(problem.gradient(params, [row])) for row in range(problem.rows)])


def gradients(each_row: Array, b: int, draws: int = DRAWS) -> Array:
    """Draw batches of ``b`` different rows; return their gradients, shape (draws, values)."""
    rng = np.random.default_rng(b)
    return np.array([rng.choice(each_row, b, replace=False).mean(axis=0) for _ in range(draws)])


class Variances(NamedTuple):
    """The variances of gradients, by the number of their rows."""

    rows: list[int]
    measured: Array
    formula: Array


def measure(each_row: Array, batches: Sequence[int], teams: Sequence[int], b: int = 16) -> tuple[Variances, Variances]:
    """Measure the variance of one worker's gradient over each of ``batches`` rows, and of the mean gradient of each
    number of workers with ``b`` rows of their own shards.
    """
    one = [(rows, *_variance([each_row], rows)) for rows in batches]
    many = [(n * b, *_variance(np.array_split(each_row, n), b)) for n in teams]
    return _table(one), _table(many)


def _table(found: list[tuple[int, float, float]]) -> Variances:
    rows, measured, formula = zip(*found, strict=True)
    return Variances([*rows], np.array(measured), np.array(formula))


def _variance(parts: Sequence[Array], b: int) -> tuple[float, float]:
    """Return the variance of the mean of ``b`` rows' gradients from each of ``parts``: measured, and by the formula for
    rows drawn without replacement.
    """
    rng = np.random.default_rng([len(parts), b])
    drawn = [np.mean([rng.choice(part, b, replace=False).mean(axis=0) for part in parts], axis=0) for _ in range(DRAWS)]
    true = np.mean([part.mean(axis=0) for part in parts], axis=0)
    exact = [part.var(axis=0).sum() / b * (len(part) - b) / (len(part) - 1) for part in parts]
    return float(np.square(drawn - true).sum(axis=1).mean()), float(np.mean(exact) / len(parts))


def losses(problem: ps.LinearRegression, lr: Array | float, rows: int | None, steps: int = STEPS) -> Array:
    """Return the loss of all the rows before training and after each step, shape (steps + 1, seeds).

    Each step averages the gradients of ``rows`` rows, drawn one by one (None: all rows). ``lr`` is one rate, or one for
    each seed.
    """
    X, y = np.c_[problem.X, np.ones(problem.rows)], problem.y
    rngs = [np.random.default_rng(seed) for seed in range(SEEDS)]
    params, found = np.zeros((SEEDS, X.shape[1])), []
    with np.errstate(over="ignore", invalid="ignore"):
        for step in range(steps + 1):
            found.append(np.square(params @ X.T - y).mean(axis=1) / 2)
            if step < steps and rows is None:
                params = params - np.reshape(lr, (-1, 1)) * ((params @ X.T - y) @ X / len(y))
            elif step < steps:
                drawn = np.array([rng.integers(len(y), size=rows) for rng in rngs])
                some = X[drawn]  # shape (seeds, rows, values)
                residual = np.einsum("srv,sv->sr", some, params) - y[drawn]
                params = params - np.reshape(lr, (-1, 1)) * np.einsum("sr,srv->sv", residual, some) / rows
    return np.asarray(np.nan_to_num(np.array(found), nan=np.inf))


def largest_rates(problem: ps.LinearRegression, rows: int, low: float = 0.01, high: float = 1.0) -> Array:
    """Return, for each seed, the largest rate at which training ends with a lower loss than it begins: to within 2 %,
    by halving the range between a rate that ends well and one that does not.
    """
    good, bad = np.full(SEEDS, low), np.full(SEEDS, high)
    while (bad / good).max() > WITHIN:
        middle = np.sqrt(good * bad)
        found = losses(problem, middle, rows)
        well = found[-1] < found[0]
        good, bad = np.where(well, middle, good), np.where(well, bad, middle)
    return good


def table(found: dict[int, Array], limit: float) -> str:
    """Return the largest rates as a table. ``limit`` is the border of the curvature."""
    lines = ["accumulate   largest lr (95 % interval)   times that of one row   part of 2/λ"]
    for rows, rates in found.items():
        mean, half = interval(rates)
        lines.append(f"{rows:10}   {mean:16.3f} ± {half:.3f}   {mean / found[1].mean():21.1f}   {mean / limit:11.2f}")
    return "\n".join(lines)


def runs_that_end_well(problem: ps.Problem, config: ps.Config, lr: float) -> int:
    """Return for how many seeds minips' own training at a rate ends with a lower loss than it begins."""
    config = replace(config, optimizer=ps.SGD(lr=lr))
    start = problem.loss(problem.init(np.random.default_rng(0)))
    runs = [ps.train(problem, replace(config, seed=seed), engine=ps.Simulated()) for seed in range(SEEDS)]
    return sum(problem.loss(run.params) < start for run in runs)


def same_in_processes(problem: ps.Problem, config: ps.Config) -> bool:
    """Return True if processes and the simulation end at the same parameters."""
    one, other = (ps.train(problem, config, engine=engine).params for engine in (ps.Processes(), ps.Simulated()))
    return all(np.array_equal(one[name], x) for name, x in other.items())


def through_a_server(
    accumulate: Callable[..., object], problem: ps.Problem, config: ps.Config, many: int
) -> tuple[bool, int]:
    """Call ``accumulate`` with a client of a server, and the batches of ``config``'s run, ``many`` to a step.

    Return whether the parameters end as those of minips' own accumulation, and the bytes that the client sent.
    """
    config = replace(config, workers=1, steps=config.steps // many, accumulate=many, transport=ps.InProc())
    batches = [batch(problem, config, 0, step, turn) for step in range(config.steps) for turn in range(many)]
    start = problem.init(np.random.default_rng(config.seed))
    with (
        ps.Server(start, config).serve() as server,
        ps.connect(server.address, config, token=server.token) as worker,
    ):
        accumulate(worker, problem, batches, many)
        sent, params = worker.bytes_sent, worker.pull().result()
    own = ps.train(problem, config, engine=ps.Threads()).params
    return all(np.allclose(params[name], x, rtol=1e-9) for name, x in own.items()), sent
