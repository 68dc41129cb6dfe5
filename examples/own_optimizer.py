"""An optimizer of your own: Lion, which steps along the sign of a running mean.

On the command line: ``minips --load own_optimizer.py train --optimizer lion:lr=0.01``.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

import minips as ps


@ps.register
@dataclass(frozen=True)
class Lion(ps.Optimizer):
    """``p ← p − lr·sign(β₁m + (1−β₁)g)``, then ``m ← β₂m + (1−β₂)g``. Source: Chen et al. 2023, algorithm 2."""

    name = "lion"
    elementwise = True  # values are independent, so several servers may share a tensor
    lr: float = ps.option(0.01, "learning rate", above=0)

    def step(self, params: ps.Tensors, grads: ps.Tensors, state: dict[str, Any]) -> None:
        means = state.setdefault("means", {})  # the server keeps the state, which starts empty
        for name, p in params.items():
            g, m = grads[name], means.setdefault(name, np.zeros_like(p))
            p -= self.lr * np.sign(0.9 * m + 0.1 * g)
            m += 0.01 * (g - m)


if __name__ == "__main__":
    ps.testing.check(Lion())
    problem = ps.SoftmaxRegression(*ps.datasets.digits())
    for optimizer in ps.SGD(lr=0.1), ps.Adam(lr=0.01), Lion():
        run = ps.train(problem, ps.Config(workers=2, servers=2, steps=60, optimizer=optimizer), engine="threads")
        print(f"validation loss {run.validation_loss:.4f}, accuracy {run.accuracy:.3f} with {optimizer}")
