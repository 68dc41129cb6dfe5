"""Optimizers: the server's steps with aggregated gradients. The contract is `Optimizer`.

All of them treat each value by itself, so any number of servers may share the values.
"""

from minips.stages.optimizers.adaptive import Adagrad, Adam
from minips.stages.optimizers.base import SGD, Optimizer

__all__ = ["SGD", "Adagrad", "Adam", "Optimizer"]
