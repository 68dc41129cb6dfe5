"""Optimizers: what the server does with an aggregated gradient.

The contract is `Optimizer`. All of these work on each value by itself, so any number of servers may share the values.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from minips.stage import Array, Stage, StageField, Tensors, option, register
from minips.stages.schedules import Schedule


class Optimizer(Stage):
    """The contract. ``state`` is a dict that starts empty, is kept by the shard, and belongs to the optimizer, but for
    ``"clock"``: there the shard says how many clocks of all the workers came before.
    """

    kind: ClassVar[str] = "optimizer"
    elementwise: ClassVar[bool] = False
    """True where each value is changed by itself, so that large tensors may come in pieces, each with a ``state``."""

    @abstractmethod
    def step(self, params: Tensors, grads: Tensors, state: dict[str, Any]) -> None:
        """Change ``params`` in place. ``grads`` has the same names, shapes and dtypes, and stays as it is."""

    def step_into(self, new: Tensors, params: Tensors, grads: Tensors, state: dict[str, Any]) -> None:
        """Write into ``new`` what `step` makes of ``params``, to the bit. Override it where that takes fewer passes."""
        for name, p in params.items():
            new[name][...] = p
        self.step(new, grads, state)


@register
@dataclass(frozen=True)
class SGD(Optimizer):
    """Gradient descent: ``p ← p − lr·g``, with ``g ← g + weight_decay·p`` first and ``v ← momentum·v + g`` between.

    Momentum moves along ``v``, Nesterov's along ``g + momentum·v``. Sources: Polyak 1964; Sutskever et al. 2013, "On
    the Importance of Initialization and Momentum in Deep Learning" (in the form that keeps ``lr`` outside of ``v``).
    """

    name = "sgd"
    elementwise = True
    lr: float = option(0.1, "learning rate", above=0, step=0.01)
    momentum: float = option(0.0, "share of the old velocity that is kept", minimum=0, maximum=1, step=0.05)
    nesterov: bool = option(False, "look ahead along the velocity")
    weight_decay: float = option(0.0, "pull towards zero", minimum=0, step=1e-4)
    schedule: StageField[Schedule | None] = option(None, "the learning rate over the run; None: it stays")

    def step(self, params: Tensors, grads: Tensors, state: dict[str, Any]) -> None:
        lr = self.schedule.rate(self.lr, state) if self.schedule else self.lr
        for name, p in params.items():
            g = grads[name]
            if self.weight_decay:
                g = g + self.weight_decay * p
            if self.momentum:
                v = _zeros(state, "velocity", name, p)
                v *= self.momentum
                v += g
                g = g + self.momentum * v if self.nesterov else v
            p -= lr * g

    def step_into(self, new: Tensors, params: Tensors, grads: Tensors, state: dict[str, Any]) -> None:
        if self.momentum or self.weight_decay or type(self).step is not SGD.step:  # a subclass may step otherwise
            return super().step_into(new, params, grads, state)
        lr = self.schedule.rate(self.lr, state) if self.schedule else self.lr
        for name, p in params.items():
            np.subtract(p, np.multiply(grads[name], lr, out=new[name]), out=new[name])


@register
@dataclass(frozen=True)
class Adagrad(Optimizer):
    """A step size per value that shrinks with all it has seen: ``G ← G + g²``, ``p ← p − lr·g / (√G + epsilon)``.

    Source: Duchi, Hazan and Singer 2011, "Adaptive Subgradient Methods", figure 1 (the diagonal form).
    """

    name = "adagrad"
    elementwise = True
    lr: float = option(0.1, "learning rate", above=0, step=0.01)
    epsilon: float = option(1e-8, "keeps the division finite", above=0)
    schedule: StageField[Schedule | None] = option(None, "the learning rate over the run; None: it stays")

    def step(self, params: Tensors, grads: Tensors, state: dict[str, Any]) -> None:
        lr = self.schedule.rate(self.lr, state) if self.schedule else self.lr
        for name, p in params.items():
            g = _wide(grads[name])
            total = _zeros(state, "squares", name, g)
            total += g * g
            p -= lr * g / (np.sqrt(total) + self.epsilon)


@register
@dataclass(frozen=True)
class Adam(Optimizer):
    """Running means of g and g², both corrected for their start at zero: ``p ← p − lr·m̂ / (√v̂ + epsilon)``.

    ``m ← β₁m + (1−β₁)g``, ``v ← β₂v + (1−β₂)g²``, ``m̂ = m/(1−β₁ᵗ)``, ``v̂ = v/(1−β₂ᵗ)``.
    Source: Kingma and Ba 2015, "Adam", algorithm 1.
    """

    name = "adam"
    elementwise = True
    lr: float = option(0.001, "learning rate", above=0, step=0.001)
    beta1: float = option(0.9, "memory of the mean", minimum=0, maximum=0.999999, step=0.01)
    beta2: float = option(0.999, "memory of the mean square", minimum=0, maximum=0.999999, step=0.001)
    epsilon: float = option(1e-8, "keeps the division finite", above=0)
    schedule: StageField[Schedule | None] = option(None, "the learning rate over the run; None: it stays")

    def step(self, params: Tensors, grads: Tensors, state: dict[str, Any]) -> None:
        state["steps"] = t = state.get("steps", 0) + 1
        lr = self.schedule.rate(self.lr, state) if self.schedule else self.lr
        for name, p in params.items():
            g = _wide(grads[name])
            m, v = _zeros(state, "mean", name, g), _zeros(state, "squares", name, g)
            m *= self.beta1
            m += (1 - self.beta1) * g
            v *= self.beta2
            v += (1 - self.beta2) * (g * g)
            p -= lr * (m / (1 - self.beta1**t)) / (np.sqrt(v / (1 - self.beta2**t)) + self.epsilon)


def _wide(g: Array) -> Array:
    """``g``, half floats in float32: their squares, and ``epsilon``, would vanish."""
    return g.astype(np.result_type(g, np.float32), copy=False)


def _zeros(state: dict[str, Any], what: str, name: str, like: Array) -> Array:
    """The array that ``state`` keeps under ``what`` for the tensor ``name``: zeros at first."""
    kept: Array = state.setdefault(what, {}).setdefault(name, np.zeros_like(like))
    return kept
