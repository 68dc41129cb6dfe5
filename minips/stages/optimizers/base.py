"""The contract of an optimizer, which steps the server's parameters, and gradient descent."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from minips.stage import Array, Stage, StageField, Tensors, option, register
from minips.stages.schedules import Schedule


class Optimizer(Stage):
    """The contract. ``state`` is the optimizer's dict. It starts empty and is kept by the shard. Only its
    ``"clock"`` belongs to the shard, which writes the number of clocks that all workers have completed there.
    """

    kind: ClassVar[str] = "optimizer"
    elementwise: ClassVar[bool] = False
    """True if each value is changed independently, so that tensors may be cut into pieces, each with a ``state``."""

    @abstractmethod
    def step(self, params: Tensors, grads: Tensors, state: dict[str, Any]) -> None:
        """Change ``params`` in place. ``grads`` has the same names, shapes and dtypes, and must not be changed."""

    def step_into(self, new: Tensors, params: Tensors, grads: Tensors, state: dict[str, Any]) -> None:
        """Write into ``new`` exactly the values that `step` would give ``params``. Override it to make fewer passes."""
        for name, p in params.items():
            new[name][...] = p
        self.step(new, grads, state)


@register
@dataclass(frozen=True)
class SGD(Optimizer):
    """Gradient descent: ``p ← p − lr·g``, after ``g ← g + weight_decay·p`` and ``v ← momentum·v + g``.

    Momentum moves along ``v``, Nesterov's along ``g + momentum·v``. Sources: Polyak 1964; Sutskever et al. 2013, "On
    the Importance of Initialization and Momentum in Deep Learning" (in the form that keeps ``lr`` outside of ``v``). In
    a table, only touched rows change. Momentum and decay then skip the other rows, which changes the algorithm.
    """

    name = "sgd"
    elementwise = True
    lr: float = option(0.1, "learning rate", above=0, step=0.01)
    momentum: float = option(0.0, "share of the old velocity kept", minimum=0, maximum=1, step=0.05)
    nesterov: bool = option(False, "look ahead along the velocity")
    weight_decay: float = option(0.0, "pull towards zero", minimum=0, step=1e-4)
    schedule: StageField[Schedule | None] = option(None, "the learning rate over the run; None: constant")

    def step(self, params: Tensors, grads: Tensors, state: dict[str, Any]) -> None:
        lr = self.schedule.rate(self.lr, state) if self.schedule else self.lr
        for name, p in params.items():
            g = grads[name]
            if self.weight_decay:
                g = g + self.weight_decay * p
            if self.momentum:
                v = zeros(state, "velocity", name, p)
                v *= self.momentum
                v += g
                g = g + self.momentum * v if self.nesterov else v
            p -= lr * g

    def step_into(self, new: Tensors, params: Tensors, grads: Tensors, state: dict[str, Any]) -> None:
        if self.momentum or self.weight_decay or type(self).step is not SGD.step:  # a subclass may have another step
            return super().step_into(new, params, grads, state)
        lr = self.schedule.rate(self.lr, state) if self.schedule else self.lr
        for name, p in params.items():
            np.subtract(p, np.multiply(grads[name], lr, out=new[name]), out=new[name])


def zeros(state: dict[str, Any], what: str, name: str, like: Array) -> Array:
    """The array in ``state`` under ``what`` for the tensor ``name``. It starts as zeros."""
    kept: Array = state.setdefault(what, {}).setdefault(name, np.zeros_like(like))
    return kept
