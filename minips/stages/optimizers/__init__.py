"""Optimizers: what the server does with an aggregated gradient. The contract is `Optimizer`.

All of these work on each value by itself, so any number of servers may share the values.
"""

from minips.stages.optimizers.adaptive import Adagrad, Adam
from minips.stages.optimizers.base import SGD, Optimizer

__all__ = ["SGD", "Adagrad", "Adam", "Optimizer"]
