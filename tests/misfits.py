"""Problems and an optimizer that misbehave, where a process can import them by name."""

import logging
import os
import signal
import warnings
from dataclasses import dataclass

import numpy as np

import minips as ps


def rows(count=48, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 4))
    return X, X @ [1.0, -2.0, 0.5, 3.0] + 0.1 * rng.normal(size=count)


class Misfit(ps.LinearRegression):
    """A regression that does something at its ``at``th gradient, in those of the workers whose first row is marked."""

    def __init__(self, workers=2, culprits=(1,), at=3):
        super().__init__(*rows())
        self.marks = [float(self.shard(worker, workers).y[0]) for worker in culprits]
        self.at, self.calls = at, 0

    def loss_and_gradient(self, params, rows=None):
        self.calls += 1
        if self.calls == self.at and float(self.y[0]) in self.marks:
            return self.misbehave(params)
        return super().loss_and_gradient(params, rows)

    def misbehave(self, params):
        raise NotImplementedError


class Raises(Misfit):
    def misbehave(self, params):
        raise ArithmeticError("the dog ate my rows")


class Diverges(Misfit):
    def misbehave(self, params):
        return 0.0, {"w": np.full(4, np.nan), "b": np.zeros(())}


class DivergesOnceMoved(Misfit):
    def misbehave(self, params):
        return np.nan if params["w"].any() else 0.0, {"w": np.zeros(4), "b": np.zeros(())}

    def __init__(self):
        super().__init__(at=1)


class WrongShape(Misfit):
    def misbehave(self, params):
        return 0.0, {"w": np.zeros(5), "b": np.zeros(())}


class Kills(Misfit):
    def misbehave(self, params):
        os.kill(os.getpid(), signal.SIGKILL)


class Exits(Misfit):
    def misbehave(self, params):
        os._exit(3)


class Prints(Misfit):
    def misbehave(self, params):
        print("one whole line")
        print("and a last one without an end", end="")
        return super().loss_and_gradient(params)


class Says(Misfit):
    def misbehave(self, params):
        print("printed")
        logging.getLogger("mine").warning("logged")
        warnings.warn("warned", stacklevel=1)
        print("a last one without an end", end="")
        raise ArithmeticError("the dog ate my rows")


class Reuses(ps.LinearRegression):
    """Writes each gradient into the arrays of the one before."""

    def loss_and_gradient(self, params, rows=None):
        loss, gradient = super().loss_and_gradient(params, rows)
        kept = vars(self).setdefault("kept", {name: g.copy() for name, g in gradient.items()})
        for name, g in gradient.items():
            kept[name][...] = g
        return loss, dict(kept)


@dataclass(frozen=True)
class KillsItsServer(ps.SGD):
    name = "kills its server"

    def step(self, params, grads, state):
        state["steps"] = state.get("steps", 0) + 1
        if state["steps"] == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        super().step(params, grads, state)


@dataclass(frozen=True)
class GoesItsOwnWay(ps.SGD):
    name = "goes its own way"

    def step(self, params, grads, state):
        params["b"] += np.random.default_rng().normal()
        super().step(params, grads, state)


class OwnEndError(BaseException):
    """An end of one's own, which is not an Exception."""


ENDS = {
    "status": lambda: SystemExit(3),
    "nothing": SystemExit,
    "words": lambda: SystemExit("bad rows"),
    "interrupt": KeyboardInterrupt,
    "generator": GeneratorExit,
    "own": OwnEndError,
}
"""What user code may raise that is not an Exception."""


class Ends(Misfit):
    how = "status"

    def misbehave(self, params):
        raise ENDS[self.how]()


@dataclass(frozen=True)
class EndsItsServer(ps.SGD):
    name = "ends_its_server"
    how: str = ps.option("status", "what is raised")

    def step(self, params, grads, state):
        state["steps"] = state.get("steps", 0) + 1
        if state["steps"] == 3:
            raise ENDS[self.how]()
        super().step(params, grads, state)
