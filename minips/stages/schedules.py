"""Schedules: the learning rate over the course of a run.

The contract is `Schedule`: a factor for an optimizer's ``lr`` at each clock of all workers. Under BSP a clock is a
round; without rounds, it is as many pushes as there are workers. The factor depends only on the clock, so that all
engines, and all servers of a run, take the same steps.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from math import cos, pi
from typing import Any, ClassVar, Optional

from minips.stage import Stage, StageField, option, register

__all__ = ["Cosine", "Schedule", "StepDecay", "Warmup"]


class Schedule(Stage):
    """The contract."""

    kind: ClassVar[str] = "schedule"

    @abstractmethod
    def factor(self, clock: int) -> float:
        """The factor of the learning rate at this clock; clocks count from 0."""

    def rate(self, lr: float, state: Mapping[str, Any]) -> float:
        """The learning rate at the clock in an optimizer's ``state``."""
        return lr * self.factor(state.get("clock", 0))


@register
@dataclass(frozen=True)
class Cosine(Schedule):
    """Falls from 1 to ``final`` on half a cosine, then stays: ``final + (1 − final)·(1 + cos(π·clock/steps))/2``.

    Source: Loshchilov and Hutter 2017, "SGDR: Stochastic Gradient Descent with Warm Restarts", equation 5.

    >>> [round(Cosine(steps=4).factor(clock), 3) for clock in range(6)]
    [1.0, 0.854, 0.5, 0.146, 0.0, 0.0]
    """

    name = "cosine"
    steps: int = option(200, "clocks until the final factor, however many the run has", minimum=1, step=1)
    final: float = option(0.0, "factor at the end", minimum=0, maximum=1, step=0.01)

    def factor(self, clock: int) -> float:
        return self.final + (1 - self.final) * (1 + cos(pi * min(clock / self.steps, 1))) / 2


@register
@dataclass(frozen=True)
class StepDecay(Schedule):
    """A factor that is multiplied by ``decay`` after every ``every`` clocks: ``decay^⌊clock/every⌋``.

    Source: He et al. 2016, "Deep Residual Learning for Image Recognition", section 3.4.

    >>> [StepDecay(every=2, decay=0.5).factor(clock) for clock in range(5)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """

    name = "stepdecay"
    every: int = option(100, "clocks between two steps", minimum=1, step=1)
    decay: float = option(0.1, "factor of each step", above=0, maximum=1, step=0.05)

    def factor(self, clock: int) -> float:
        return self.decay ** (clock // self.every)


@register
@dataclass(frozen=True)
class Warmup(Schedule):
    """A factor that rises linearly from 1/steps to 1, ``(clock + 1)/steps``; then the schedule ``then``, from clock 0.

    Source: Goyal et al. 2017, "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", section 2.2.

    >>> [Warmup(steps=4, then=StepDecay(every=2, decay=0.5)).factor(clock) for clock in range(8)]
    [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 0.5, 0.5]
    """

    name = "warmup"
    steps: int = option(20, "clocks until the full learning rate", minimum=1, step=1)
    then: StageField[Optional["Schedule"]] = option(None, "the schedule that follows; None: constant")

    def factor(self, clock: int) -> float:
        if clock < self.steps:
            return (clock + 1) / self.steps
        return self.then.factor(clock - self.steps) if self.then else 1.0
