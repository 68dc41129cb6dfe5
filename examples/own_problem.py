"""A model of your own: Poisson regression, which predicts counts. ``mypy --strict`` accepts its types.

A problem defines its initial parameters, the loss and the gradient. minips does the rest.
"""

from typing import Any

import numpy as np

import minips as ps


class PoissonRegression(ps.Problem):
    """Predicts counts y with the mean exp(Xw). The loss is mean(exp(Xw) − y·Xw)."""

    def init(self, rng: np.random.Generator) -> ps.Tensors:
        return {"w": np.zeros(self.X.shape[1])}

    def loss_and_gradient(self, params: ps.Tensors, rows: Any = None) -> tuple[float, ps.Tensors]:
        X, y = (self.X, self.y) if rows is None else (self.X[rows], self.y[rows])
        mean = np.exp(X @ params["w"])
        return float(np.mean(mean - y * (X @ params["w"]))), {"w": X.T @ (mean - y) / len(y)}


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    truth = np.array([0.5, -0.3, 0.1, 0.0])
    X = rng.normal(size=(2000, 4))
    problem = PoissonRegression(X, rng.poisson(np.exp(X @ truth)))
    ps.testing.check(problem)  # compares the gradient with finite differences, shards with the whole
    config = ps.Config(workers=2, consistency="ssp", optimizer=ps.Adam(lr=0.01), steps=400)
    print(config)  # the fields that differ from their defaults; help(ps.Config) explains all
    run = ps.train(problem, config)
    print(f"{run}: loss {problem.loss(run.params):.4f}, w = {run.params['w'].round(2)} where the truth is {truth}")
