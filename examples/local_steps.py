"""Federated averaging: workers take several steps of their own before they send anything, on rows of unlike classes.

The server adds what the workers moved on average: FedAvg (McMahan et al. 2017), or with Nesterov's momentum DiLoCo
(Douillard et al. 2023). Ten local steps take a tenth of the bytes.
"""

from typing import Any, Self

import numpy as np

import minips as ps
from minips.stage import Tensors


class Clients(ps.SoftmaxRegression):
    """The "gradient" is how far ``local`` steps lead, so that a server with the learning rate 1 averages models."""

    local = 1

    def shard(self, worker: int, workers: int) -> Self:
        """The rows in the order of their classes, so that each of four workers has two or three of the ten."""
        part, mine = super().shard(worker, workers), np.array_split(np.argsort(self.y, kind="stable"), workers)[worker]
        part.X, part.y = self.X[mine], self.y[mine]
        return part

    def loss_and_gradient(self, params: Tensors, rows: Any = None) -> tuple[float, Tensors]:
        moved = dict(params)
        for some in np.array_split(np.arange(self.rows) if rows is None else rows, self.local):
            loss, gradient = super().loss_and_gradient(moved, some)
            moved = {name: p - np.float32(0.1) * gradient[name] for name, p in moved.items()}
        return loss, {name: p - moved[name] for name, p in params.items()}


if __name__ == "__main__":
    problem = Clients(*ps.datasets.digits())
    plain, nesterov = ps.SGD(lr=1.0), ps.SGD(lr=0.7, momentum=0.5, nesterov=True)
    for name, local, step in ("every step", 1, plain), ("FedAvg", 10, plain), ("DiLoCo", 10, nesterov):
        problem.local = local
        run = ps.train(problem, ps.Config(steps=200 // local, batch_size=32 * local, optimizer=step), engine="threads")
        print(f"{name:10} accuracy {run.accuracy:.3f}, {run.bytes_sent / 1e6:5.2f} MB sent by {run.config.workers}")
