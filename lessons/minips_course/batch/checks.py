"""The exercises of "A small batch is an estimate"."""

import copy
from itertools import product
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import Refused, asks, case, number, refuse_if
from minips.stage import Array, Tensors
from minips.testing.base import same_bits
from minips_course.arrays import drawn_tensors


@asks(
    "batch.3",
    "The outer loop runs over groups: batches[first : first + many], where first grows by many. The last group "
    "may be shorter.",
    "Pull before the inner loop and push after it. The inner loop adds up gradients, tensor by tensor: start with an "
    "empty dict and total.get(name, 0).",
    "problem.gradient is a mean over a batch's rows. Multiply it by their number before you add it, and divide the "
    "total by the number of all the rows of the group.",
)
def accumulate(function: Any, rng: np.random.Generator) -> str:
    """Push the mean gradient of every few batches, one batch at a time."""
    refuse_if(
        not callable(function), f"Expected the function accumulate(worker, problem, batches, many), got {function!r}."
    )
    for trial in range(12):
        problem = _drawn_problem(rng, trial)
        many, groups = int(rng.integers(2, 6)), int(rng.integers(2, 5))
        short = (0, int(rng.integers(1, many)))[trial % 2]
        if trial == 10:
            many, groups, short = 1, 4, 0
        elif trial == 11:
            many, groups, short = 6, 0, 4
        sizes = rng.integers(1, 9, many * groups + short) if trial % 3 else np.full(many * groups + short, 5)
        batches = [rng.choice(problem.rows, size, replace=False) for size in sizes]
        with case(f"With many={many} and batches of {', '.join(map(str, sizes))} rows:"):
            _accumulates(function, problem, batches, many, rng)
    return "Each push is the mean over all the rows of its batches, and each group pulls and pushes once."


def _drawn_problem(rng: np.random.Generator, trial: int) -> ps.Problem:
    X, y = rng.normal(size=(60, int(rng.integers(2, 6)))), rng.integers(3, size=60)
    if trial % 2:
        return ps.MLP(X, y, hidden=int(rng.integers(2, 5)), classes=3)
    return ps.LinearRegression(X, X.sum(axis=1) + rng.normal(size=60))


class _Worker:
    """A client of a server with plain SGD, which keeps the pushes."""

    def __init__(self, params: Tensors, lr: float) -> None:
        self.params, self._lr = params, lr
        self.pulls = 0
        self.pushes: list[tuple[Tensors, Tensors]] = []
        """The parameters before each push, and what was pushed."""

    def pull(self) -> "_Answer":
        self.pulls += 1
        return _Answer({name: x.copy() for name, x in self.params.items()})

    def push(self, gradients: Any) -> "_Answer":
        refuse_if(not isinstance(gradients, dict) or {*gradients} != {*self.params}, f"it pushed {gradients!r:.80}.")
        pushed = {name: np.array(gradients[name], float) for name in self.params}
        alike = all(pushed[name].shape == x.shape for name, x in self.params.items())
        refuse_if(not alike, "it pushed gradients whose shapes are not those of the parameters.")
        self.pushes.append((self.params, pushed))
        self.params = {name: np.asarray(x - self._lr * pushed[name]) for name, x in self.params.items()}
        return _Answer("applied")

    def push_pull(self, gradients: Any) -> "_Answer":
        self.push(gradients)
        return self.pull()


class _Answer:
    def __init__(self, value: Any) -> None:
        self._value = value

    def result(self, timeout: float | None = None) -> Any:
        return self._value


def _accumulates(function: Any, problem: Any, batches: list[Array], many: int, rng: np.random.Generator) -> None:
    """Refuse a function unless it pushes each group's mean gradient, from the parameters that the server then has."""
    worker = _Worker(problem.init(rng), float(rng.uniform(0.05, 0.2)))
    compute, allowed, asked = problem.loss_and_gradient, {tuple(sorted(rows)) for rows in batches}, []

    def watched(params: Tensors, rows: Any = None) -> Any:
        asked.append(tuple(sorted(np.arange(problem.rows) if rows is None else rows)))
        return compute(params, rows)

    problem.loss_and_gradient = watched
    given = copy.deepcopy(batches)
    function(worker, problem, given, many)
    groups = [np.concatenate(batches[first : first + many]) for first in range(0, len(batches), many)]
    pushed = len(worker.pushes)
    refuse_if(pushed != len(groups), f"it pushed {pushed} times; {len(batches)} batches are {len(groups)} groups.")
    for turn, (rows, (params, got)) in enumerate(zip(groups, worker.pushes, strict=True), 1):
        wanted = compute(params, rows)[1]
        off = max(float(np.abs(got[name] - x).max()) for name, x in wanted.items())
        near = off <= 1e-7 * max(1.0, *(float(np.abs(x).max()) for x in wanted.values()))
        refuse_if(not near, f"push {turn} is not the mean over the {len(rows)} rows of its group: {off:.2g} apart.")
    most = max(map(len, asked))
    refuse_if(
        not {*asked} <= allowed, f"it computed a gradient of {most} rows at once, which is not one of the batches."
    )
    refuse_if(worker.pulls > len(groups) + 1, f"it pulled {worker.pulls} times for {len(groups)} groups.")
    same = len(given) == len(batches) and all(map(np.array_equal, given, batches))
    refuse_if(not same, "it changed the list of batches.")


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
