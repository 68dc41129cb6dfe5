"""Optimizers with a step size for each value."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from minips.halves import widen
from minips.stage import StageField, Tensors, option, register
from minips.stages.optimizers.base import Optimizer, zeros
from minips.stages.schedules import Schedule


@register
@dataclass(frozen=True)
class Adagrad(Optimizer):
    """Divides each value's step by the root of its squared gradients' sum: ``G ← G + g²``, ``p ← p − lr·g/(√G + ε)``.

    Source: Duchi, Hazan and Singer 2011, "Adaptive Subgradient Methods", figure 1 (the diagonal form).
    """

    name = "adagrad"
    elementwise = True
    lr: float = option(0.1, "learning rate", above=0, step=0.01)
    epsilon: float = option(1e-8, "keeps the division finite", above=0)
    schedule: StageField[Schedule | None] = option(None, "the learning rate over the run; None: constant")

    def step(self, params: Tensors, grads: Tensors, state: dict[str, Any]) -> None:
        lr = self.schedule.rate(self.lr, state) if self.schedule else self.lr
        for name, p in params.items():
            g = widen(grads[name])
            total = zeros(state, "squares", name, g)
            total += g * g
            p -= lr * g / (np.sqrt(total) + self.epsilon)


@register
@dataclass(frozen=True)
class Adam(Optimizer):
    """Running means of g and g², both corrected for their start at zero: ``p ← p − lr·m̂ / (√v̂ + epsilon)``.

    ``m ← β₁m + (1−β₁)g``, ``v ← β₂v + (1−β₂)g²``, ``m̂ = m/(1−β₁ᵗ)``, ``v̂ = v/(1−β₂ᵗ)``.
    In a table, only touched rows and their means change, but t counts all steps. This is called lazy Adam, and is
    also PyTorch's SparseAdam. Source: Kingma and Ba 2015, "Adam", algorithm 1.
    """

    name = "adam"
    elementwise = True
    lr: float = option(0.001, "learning rate", above=0, step=0.001)
    beta1: float = option(0.9, "memory of the mean", minimum=0, maximum=0.999999, step=0.01)
    beta2: float = option(0.999, "memory of the mean square", minimum=0, maximum=0.999999, step=0.001)
    epsilon: float = option(1e-8, "keeps the division finite", above=0)
    schedule: StageField[Schedule | None] = option(None, "the learning rate over the run; None: constant")

    def step(self, params: Tensors, grads: Tensors, state: dict[str, Any]) -> None:
        state["steps"] = t = state.get("steps", 0) + 1
        lr = self.schedule.rate(self.lr, state) if self.schedule else self.lr
        for name, p in params.items():
            g = widen(grads[name])
            m, v = zeros(state, "mean", name, g), zeros(state, "squares", name, g)
            m *= self.beta1
            m += (1 - self.beta1) * g
            v *= self.beta2
            v += (1 - self.beta2) * (g * g)
            p -= lr * (m / (1 - self.beta1**t)) / (np.sqrt(v / (1 - self.beta2**t)) + self.epsilon)
