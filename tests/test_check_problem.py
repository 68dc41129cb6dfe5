"""The check of problems: those of minips pass, and each seeded mistake is caught."""

import misfits
import numpy as np
import pytest

import minips as ps

X, Y, X_TEST, Y_TEST = ps.datasets.synthetic(rows=80, features=5, classes=3)


@pytest.mark.parametrize(
    "problem",
    [
        ps.SoftmaxRegression(X, Y, l2=0.1),
        ps.SoftmaxRegression(X.astype("f8"), Y, weights=np.arange(len(Y)) % 3),
        ps.LinearRegression(X, Y, l2=0.1),
        ps.MLP(X.astype("f8"), Y, hidden=7),
    ],
    ids=repr,
)
def test_the_problems_of_minips_pass(problem):
    if problem.weights is not None:
        problem.weights[:] = 1 + 0 * problem.weights  # halves of unequal weight do not average
    ps.testing.check(problem)


class Doubled(ps.SoftmaxRegression):
    def loss_and_gradient(self, params, rows=None):
        loss, gradient = super().loss_and_gradient(params, rows)
        return loss, {name: 2 * g for name, g in gradient.items()}


class Summed(ps.LinearRegression):
    def loss_and_gradient(self, params, rows=None):
        loss, gradient = super().loss_and_gradient(params, rows)
        count = len(self._chosen(rows)[1])
        return loss * count, {name: np.asarray(g * g.dtype.type(count)) for name, g in gradient.items()}


class Sharded(ps.LinearRegression):
    def shard(self, worker, workers):
        part = super().shard(worker, workers)
        part.y = part.y + 100 * (worker == 0) * (workers > 1)
        return part


class Wide(ps.SoftmaxRegression):
    def loss_and_gradient(self, params, rows=None):
        loss, gradient = super().loss_and_gradient(params, rows)
        return loss, {name: g.astype("f8") for name, g in gradient.items()}


class Greedy(ps.SoftmaxRegression):
    def loss_and_gradient(self, params, rows=None):
        loss, gradient = super().loss_and_gradient(params, rows)
        params["W"] -= gradient["W"]
        return loss, gradient


class Noisy(ps.SoftmaxRegression):
    count = 0

    def loss_and_gradient(self, params, rows=None):
        loss, gradient = super().loss_and_gradient(params, rows)
        Noisy.count += 1
        return loss, {name: g + np.float32(1e-3 * Noisy.count) for name, g in gradient.items()}


class Silent(ps.SoftmaxRegression):
    def loss_and_gradient(self, params, rows=None):
        super().loss_and_gradient(params, rows)


class Swapped(ps.SoftmaxRegression):
    def loss_and_gradient(self, params, rows=None):
        loss, gradient = super().loss_and_gradient(params, rows)
        return gradient, loss


NOT_A_PAIR = [
    (Silent(X, Y), r"loss_and_gradient returns the loss and a dict of gradients; got None\."),
    (Swapped(X, Y), r"loss_and_gradient returns the loss and a dict of gradients; got \({'W': array.*}, \d\.\d+\)\."),
]


@pytest.mark.parametrize(("problem", "said"), NOT_A_PAIR, ids=["none", "swapped"])
def test_a_run_says_what_loss_and_gradient_returns(problem, said):
    with pytest.raises(RuntimeError, match=f"worker 0 failed: TypeError: {said}"):
        ps.train(problem, ps.Config(workers=1, steps=2, timeout_s=5), engine="threads")


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        *NOT_A_PAIR,
        (Doubled(X, Y), "the gradient is not that of the loss"),
        (Summed(X, Y), "two halves of the rows do not average"),
        (Wide(X, Y), r"gradient of 'W' is float64 of \(5, 3\), the parameter float32"),
        (Greedy(X, Y), "changed the parameter 'W'"),
        (misfits.Reuses(X, Y), "writes into the arrays that it returned before"),
        (Sharded(X, Y), "two halves of the rows do not average"),
        (Noisy(X, Y), "other bits the second time"),
    ],
)
def test_a_mistake_is_said(problem, said):
    with pytest.raises(AssertionError, match=said):
        ps.testing.check(problem)
