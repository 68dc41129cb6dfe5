"""The work between two exchanges: how long a step's computation takes, and how many steps a worker makes."""

import math
import warnings
from dataclasses import dataclass

from minips import seeds
from minips.stage import StageField, Value, option
from minips.stages.optimizers import SGD, Optimizer

LEAST_LR = 0.5
"""A lower outer learning rate is nearly always a default that the user forgot to change."""


@dataclass(frozen=True)
class Delays(Value):
    """Slower workers: a step's computation takes at least ``seconds`` times the worker's factor in ``slow``.

    After its real work, a worker waits for the rest of that time. With ``exponential``, each step's time is drawn,
    seeded, from an exponential distribution with that mean.

    >>> Delays(seconds=0.01, slow={1: 5.0}).of(worker=1, clock=0, seed=0)
    0.05
    """

    seconds: float = option(0.01, "the least time to compute a step", minimum=0, unit="s")
    slow: dict[int, float] = option(dict, "each slow worker's factor")
    exponential: bool = option(False, "draw each step's time from an exponential distribution")

    def __post_init__(self) -> None:
        super().__post_init__()
        for worker, factor in self.slow.items():
            if worker < 0 or not 0 <= factor < math.inf:
                raise ValueError(f"Delays.slow takes a worker's number and its factor, got {worker}: {factor}.")

    def of(self, worker: int, clock: int, seed: int) -> float:
        """The minimum number of seconds for which this worker computes at this clock."""
        seconds = self.seconds * self.slow.get(worker, 1.0)
        if self.exponential:
            seconds *= seeds.delay(seed, worker, clock).exponential()
        return float(seconds)


@dataclass(frozen=True)
class LocalSteps(Value):
    """The gradient steps that a worker makes by itself before it pushes: ``Config.local``.

    A worker starts at the parameters that it pulled, makes ``steps`` steps of the inner ``optimizer``, and pushes the
    difference start − end as its gradient. The inner optimizer's state stays with the worker: it survives exchanges, a
    pause and a resume. ``Config.optimizer`` is the outer one. If it is ``SGD(lr=1)``, the servers average the workers'
    parameters: local SGD (Stich 2019, "Local SGD Converges Fast and Communicates Little") and FedAvg (McMahan et al.
    2017, algorithm 1). With Nesterov's momentum, this is DiLoCo (Douillard et al. 2023, algorithm 1). A smaller rate
    moves the parameters only that share of the way: a plain SGD below 0.5 causes a UserWarning. One local step with an
    outer ``SGD(lr=1)`` equals a run without local steps, except for rounding.

    ``Config.steps``, ``every`` and losses count gradient steps; clocks, versions and staleness count exchanges: see
    docs/training.md. ``steps`` and ``every`` must be whole numbers of exchanges; ``epochs`` rounds up.

    With ``overlap``, a difference belongs to the previous exchange's parameters (Liu et al. 2024, "Asynchronous
    Local-SGD Training for Language Modeling"). By that source, an outer momentum without rounds (SSP, ASP) is unstable.
    """

    steps: int = option(30, "gradient steps of a worker between two exchanges", minimum=1, step=1)
    optimizer: StageField[Optimizer] = option(SGD(), "the inner optimizer, which steps along a worker's own gradients")

    def check(self, what: str, steps: int) -> None:
        """ValueError if this number of gradient steps is not a whole number of exchanges."""
        if steps % self.steps:
            less = max(steps // self.steps, 1) * self.steps
            raise ValueError(
                f"{what} counts gradient steps, of which a worker makes {self.steps} between two exchanges: it takes a "
                f"multiple of local.steps={self.steps}, such as {less} or {less + self.steps}; got {steps}."
            )


def warn_of_outer(local: LocalSteps | None, outer: Optimizer) -> None:
    """UserWarning if a plain outer SGD follows the local steps' differences less than half of the way."""
    if not (isinstance(outer, SGD) and type(outer).step is SGD.step):  # a subclass may step otherwise
        return
    if local and not outer.momentum and outer.lr < LEAST_LR:
        warnings.warn(
            f"With local steps the optimizer is the outer one, and {outer!r} moves the parameters by {outer.lr:g} of "
            "the way that the workers have made. Use optimizer=ps.SGD(lr=1.0) for their average.",
            UserWarning,
            stacklevel=4,
        )
