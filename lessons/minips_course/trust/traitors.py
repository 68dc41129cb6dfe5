"""A softmax regression with some workers that lie."""

from collections.abc import Callable
from typing import Any

import numpy as np

import minips as ps
from minips.stage import Tensors


class Traitors(ps.SoftmaxRegression):
    """The digits; some workers push ``lie(part, params, gradient)`` in place of their gradient."""

    def __init__(self, *rows: Any, traitors: tuple[int, ...] = (), lie: Callable[..., Tensors] | None = None) -> None:
        super().__init__(*rows)
        self.traitors, self.lie = traitors, lie
        self.honest, self.rng = True, np.random.default_rng(0)

    def shard(self, worker: int, workers: int) -> "Traitors":
        part = super().shard(worker, workers)
        part.X = part.X.copy()  # a traitor may change its own rows, but not the others'
        part.honest, part.rng = worker not in self.traitors, np.random.default_rng(worker)
        return part

    def truth(self, params: Tensors, rows: Any = None) -> Tensors:
        """The honest gradient."""
        return super().loss_and_gradient(params, rows)[1]

    def loss_and_gradient(self, params: Tensors, rows: Any = None) -> tuple[float, Tensors]:
        loss, gradient = super().loss_and_gradient(params, rows)
        if self.honest or self.lie is None:
            return loss, gradient
        told = self.lie(self, params, gradient)
        return loss, {name: np.asarray(told[name], p.dtype) for name, p in params.items()}
