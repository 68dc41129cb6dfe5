"""Optimizers: the steps that a server takes with aggregated gradients. The contract is `Optimizer`.

All optimizers here treat each value independently, so the values may be divided among any number of servers.
"""

from minips.stages.optimizers.adaptive import Adagrad, Adam
from minips.stages.optimizers.base import SGD, Optimizer

__all__ = ["SGD", "Adagrad", "Adam", "Optimizer"]
