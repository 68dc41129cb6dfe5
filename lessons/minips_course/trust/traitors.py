"""A softmax regression with workers that lie, two of their lies, and what the lesson measures about rules."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.best import Best
from minips.stage import Tensors


class Traitors(ps.SoftmaxRegression):
    """A softmax regression whose ``traitors`` push ``lie(part, params, gradient)`` instead of their gradient."""

    def __init__(self, *rows: Any, traitors: tuple[int, ...] = (), lie: Callable[..., Tensors] | None = None) -> None:
        super().__init__(*rows)
        self.traitors, self.lie = traitors, lie
        self.honest, self.rng = True, np.random.default_rng(0)

    def shard(self, worker: int, workers: int) -> "Traitors":
        part = super().shard(worker, workers)
        part.X = part.X.copy()  # so that a traitor can change only its own rows
        part.honest, part.rng = worker not in self.traitors, np.random.default_rng(worker)
        return part

    def truth(self, params: Tensors, rows: Any = None) -> Tensors:
        """Return the honest gradient."""
        return super().loss_and_gradient(params, rows)[1]

    def loss_and_gradient(self, params: Tensors, rows: Any = None) -> tuple[float, Tensors]:
        loss, gradient = super().loss_and_gradient(params, rows)
        if self.honest or self.lie is None:
            return loss, gradient
        told = self.lie(self, params, gradient)
        return loss, {name: np.asarray(told[name], p.dtype) for name, p in params.items()}


def problems(traitors: tuple[int, ...] = (), lie: Callable[..., Tensors] | None = None) -> list[Traitors]:
    """Return the digits for five seeds, each with its own split into rows to train on and held-out rows."""
    return [Traitors(*ps.datasets.digits(seed=seed), traitors=traitors, lie=lie) for seed in range(5)]


def uphill(part: Traitors, params: Tensors, gradient: Tensors) -> Tensors:
    """Go uphill: return ten times the gradient, with the opposite sign."""
    return {name: -10 * g for name, g in gradient.items()}


def lazy(part: Traitors, params: Tensors, gradient: Tensors) -> Tensors:
    """Compute nothing: return zeros."""
    return {name: 0 * g for name, g in gradient.items()}


def combined(rule: ps.Aggregator, gradients: Sequence[Any]) -> Any:
    """Return the result of a rule for these gradients, one from each worker. They may be numbers."""
    pushed = [ps.Contribution(i, 0, 0, {"w": np.asarray(g, float)}) for i, g in enumerate(gradients)]
    result = rule.combine(pushed)["w"]
    return result if result.ndim else float(result)


def draws_of_krum(problem: Traitors) -> dict[str, list[float]]:
    """Return how widely gradients of 4 and 32 rows scatter, in lengths of the mean gradient, and the share of 200 draws
    of four of them in which Krum chooses a fifth gradient, of zeros: at the start twice, and after 60 steps.
    """
    rng, length = np.random.default_rng(0), np.linalg.norm
    start = problem.init(np.random.default_rng(0))  # zeros
    trained = ps.train(problem, ps.Config(workers=5, steps=60), engine=ps.Threads()).params
    found: dict[str, list[float]] = {"scatter": [], "chosen": []}
    for rows, params in ((4, start), (32, start), (32, trained)):
        mean, far, chosen = problem.gradient(params)["W"], [], []
        for _ in range(200):
            batches = [rng.choice(problem.rows, rows, replace=False) for _ in range(4)]
            four = [problem.gradient(params, batch)["W"] for batch in batches]
            far.append(length(four[0] - mean) / length(mean))
            chosen.append(not combined(ps.Krum(bad=1), [*four, 0 * mean]).any())
        found["scatter"].append(float(np.mean(far)))
        found["chosen"].append(float(np.mean(chosen)))
    return found


def worst_case(table: Mapping[str, Best]) -> Best:
    """Return each rule in the one of its cases in which it reads the fewest digits, at its best rate there."""
    ends: dict[str, list[Any]] = {}
    for best in table.values():
        for name, sweep in best.sweeps.items():
            ends.setdefault(name, []).append(sweep)
    return Best({name: min(each, key=lambda one: one.values(one.best).mean()) for name, each in ends.items()})
