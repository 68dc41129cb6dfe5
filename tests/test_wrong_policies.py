"""Wrong aggregators, consistency models, optimizers, schedules and shards, and the words that refuse each."""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from wrong import Wrong, refuse

import minips as ps
from minips.stages.schedules import Schedule
from minips.stages.shards import Shards

WRONG = Wrong()
refused = WRONG.refused


# Aggregators


@dataclass(frozen=True)
class Middle(ps.Aggregator):
    """The mean, by hand: a right one."""

    name = "middle"
    elementwise = True

    def combine(self, contributions):
        first = contributions[0].gradients
        return {name: self.mean([one.gradients[name] for one in contributions]) for name in first}

    def mean(self, pieces):
        return np.asarray(sum(pieces) / len(pieces), pieces[0].dtype)


@refused("it changed 'scalar' of worker|it changed 'bias' of worker")
class AddsInPlace(Middle):
    def mean(self, pieces):
        total = pieces[0]
        for piece in pieces[1:]:
            total += piece
        return total / len(pieces) if total.ndim else np.asarray(total / len(pieces), total.dtype)


@refused("it changed 'scalar' of worker|it changed 'bias' of worker")
class ClearsTheLast(Middle):
    """A second call changes nothing more."""

    def mean(self, pieces):
        pieces[-1][...] = 0
        return super().mean(pieces)


@refused("differs for the same contributions in reverse order")
class HalvesAsItGoes(Middle):
    def mean(self, pieces):
        mean = pieces[0]
        for piece in pieces[1:]:
            mean = (mean + piece) / 2
        return np.asarray(mean, pieces[0].dtype)


@refused("differs for the same contributions in reverse order")
class KeepsTheLast(Middle):
    def mean(self, pieces):
        return pieces[-1].copy()


@refused("'scalar' became float64 of shape|became float64")
class Widens(Middle):
    def mean(self, pieces):
        return np.asarray(np.mean(pieces, axis=0, dtype=float))


@refused("'scalar' is a float32, not an array")
class GivesAScalar(Middle):
    def mean(self, pieces):
        return sum(pieces) / pieces[0].dtype.type(len(pieces))


@refused(r"the names are \['bias', 'empty', 'scalar', 'weights'\], expected")
class SortsTheNames(Middle):
    def combine(self, contributions):
        return dict(sorted(super().combine(contributions).items()))


@refused("a later round wrote into the 'scalar' of an earlier one")
class OneResultForAll(Middle):
    results = {}

    def combine(self, contributions):
        for name, y in super().combine(contributions).items():
            self.results.setdefault((name, y.dtype.str), y)[...] = y
        return {name: self.results[name, g.dtype.str] for name, g in contributions[0].gradients.items()}


@refused("differs the second time; the same pushes must give the same bits")
class MomentumInTheClass(Middle):
    last = {}

    def combine(self, contributions):
        mean = super().combine(contributions)
        for name, y in mean.items():
            mean[name] = np.asarray(y + 0.5 * self.last.get((name, y.dtype.str), 0), y.dtype)
            self.last[name, y.dtype.str] = mean[name]
        return mean


@refused("differs the second time")
class DropsOneNowAndThen(Middle):
    calls = itertools.count()

    def combine(self, contributions):
        return super().combine(contributions[: -1 if next(self.calls) % 2 and len(contributions) > 1 else None])


@refused("elementwise is True, but half of")
class ClipsByTheNorm(Middle):
    def mean(self, pieces):
        y = super().mean(pieces)
        return np.asarray(y / max(1, float(np.linalg.norm(y))), y.dtype)


@refused("it reads the contributions' rows, which workers report only if weighs is True")
class WeighsUnsaid(Middle):
    def combine(self, contributions):
        total = sum(one.rows for one in contributions)
        return {
            name: np.asarray(sum(one.gradients[name] * (one.rows / total) for one in contributions), g.dtype)
            for name, g in contributions[0].gradients.items()
        }


@refused("tables is True but elementwise is not")
class TablesAlone(Middle):
    elementwise = False
    tables = True


@refused("and least is 1: it raised ValueError: too few")
class NeedsThreeUnsaid(Middle):
    def combine(self, contributions):
        if len(contributions) < 3:
            raise ValueError("too few")
        return super().combine(contributions)


@refused("with 1 contributions .*expected ValueError, got IndexError|with 1 contributions .*it raised IndexError")
class NeedsTwo(Middle):
    def combine(self, contributions):
        contributions[1]
        return super().combine(contributions)


@refused("it raised IndexError")
class IndexesByWorker(Middle):
    def combine(self, contributions):
        weights = np.ones(len(contributions))
        return super().combine([one for one in contributions if weights[one.worker]])


@refused("least is 0; expected a number from 1")
class NeedsNobody(Middle):
    least = 0


@refused("holds NaN or infinity|invalid value|divide by zero")
class DividesByTheSpread(Middle):
    def mean(self, pieces):
        return np.asarray(super().mean(pieces) / np.std(pieces, axis=0), pieces[0].dtype)


# Consistency models


@dataclass(frozen=True)
class Ahead(ps.Consistency):
    """SSP: a right one."""

    name = "ahead"
    most: int = ps.option(2, "clocks ahead", minimum=0)

    def quorum(self, workers):
        return None

    def may_pull(self, clock, slowest):
        return clock - slowest <= self.most


@refused("it is False, so even the slowest worker would wait, for ever")
class WaitsForTheSlower(Ahead):
    def may_pull(self, clock, slowest):
        return clock < slowest


@refused("clock=1001, slowest=1001.*even the slowest worker would wait")
class EndsAtAThousand(Ahead):
    def may_pull(self, clock, slowest):
        return clock <= 1000 and super().may_pull(clock, slowest)


@refused("it is True, but False once the slowest is one clock further")
class WaitsOnceCaughtUp(Ahead):
    def may_pull(self, clock, slowest):
        return clock <= slowest or clock - slowest != 2


@refused("it is np.True_, neither True nor False|it is np.False_, neither True nor False")
class NumpysTruth(Ahead):
    def may_pull(self, clock, slowest):
        return np.int64(clock) <= slowest + self.most


@refused("neither True nor False")
class SaysNothing(Ahead):
    def may_pull(self, clock, slowest):
        if clock > slowest + self.most:
            return False


@refused("changes from call to call; it must not have state")
class EverySecondTime(Ahead):
    calls = []

    def may_pull(self, clock, slowest):
        self.calls.append(clock)
        return clock <= slowest or len(self.calls) % 2 == 0


@refused("it is 0; expected None, or 1 to")
class RoundsOfNothing(Ahead):
    def quorum(self, workers):
        return 0


@refused("it is 2; expected None, or 1 to 1 pushes")
class RoundsOfTwo(Ahead):
    def quorum(self, workers):
        return 2


@refused(r"it is 0.5; expected None|it is 1.0; expected None")
class RoundsOfHalf(Ahead):
    def quorum(self, workers):
        return workers / 2


@refused("it is True; expected None")
class RoundsOfTruth(Ahead):
    def quorum(self, workers):
        return True


@refused("quorum raises ValueError for every number of workers up to 1000")
class WorksForNobody(Ahead):
    def quorum(self, workers):
        raise ValueError("not so many")


@refused(r"quorum\(1\): expected ValueError, got ZeroDivisionError")
class DividesByOthers(Ahead):
    def quorum(self, workers):
        return None if 1 / (workers - 1) else 1


@refused("PullView.*even the slowest worker would wait")
class LooksAtTheFirst(Ahead):
    """At the first worker's clock, whoever asks."""

    def may_pull(self, view):
        return view.clocks[0] <= view.slowest + self.most


@refused("at pull 20 of a run: it is False, so even the slowest worker would wait, for ever")
class AllowsTwentyPulls(Ahead):
    def may_pull(self, view):
        view.state["pulls"] = view.state.get("pulls", 0) + 1
        return view.state["pulls"] <= 20 and view.clocks[view.worker] <= view.slowest + self.most


@refused("two runs of 1 workers: it raised IndexError")
class LooksAtTheThird(Ahead):
    def may_pull(self, view):
        return view.clocks[view.worker] <= max(view.slowest, view.clocks[2]) + self.most


@refused("the second run's answers differ from the first's; keep everything in view.state")
class RemembersRuns(Ahead):
    pulls = []

    def may_pull(self, view):
        self.pulls.append(view.now)
        return view.clocks[view.worker] <= view.slowest or len(self.pulls) % 7 != 0


# Optimizers


@dataclass(frozen=True)
class Descent(ps.Optimizer):
    """Momentum: a right one."""

    name = "descent"
    elementwise = True
    lr: float = ps.option(0.1, "learning rate", above=0)

    def step(self, params, grads, state):
        kept = self.kept(state)
        for name, p in params.items():
            v = kept.setdefault(name, np.zeros_like(p))
            v *= 0.5
            v += grads[name]
            p -= p.dtype.type(self.lr) * v

    def kept(self, state: dict[str, Any]) -> dict[str, Any]:
        return state.setdefault("velocity", {})


@refused("is another array after a step; change it in place")
class MakesNewOnes(Descent):
    def step(self, params, grads, state):
        for name, p in params.items():
            params[name] = np.asarray(p - self.lr * grads[name], p.dtype)


@refused("did not move in three steps|step_into")
class ReturnsThem(Descent):
    def step(self, params, grads, state):
        return {name: p - self.lr * grads[name] for name, p in params.items()}


@refused("it changed the gradient of 'bias'; work on a copy|it changed the gradient of 'scalar'")
class ScalesTheGradient(Descent):
    def step(self, params, grads, state):
        for name, p in params.items():
            g = grads[name]
            g *= self.lr
            p -= g


@refused("keeps an array of the caller's, or something outside of the state")
class KeepsTheGradient(Descent):
    def step(self, params, grads, state):
        for name, p in params.items():
            last = state.get(name, grads[name])
            state[name] = grads[name]
            p -= self.lr * 0.5 * (grads[name] + last)


@refused("keep everything in the state|step_into and step give different values|ends differently")
class InTheClass(Descent):
    velocities = {}

    def kept(self, state):
        return self.velocities


@refused("step_into and step give different values|ends differently")
class ByTheArraysPlace(Descent):
    """Finds the memory of an array by its address."""

    def step(self, params, grads, state):
        for p, g in zip(params.values(), grads.values(), strict=True):
            v = state.setdefault(id(p), np.zeros_like(p))
            v += g
            p -= self.lr * v


@refused("it changed state\\['clock'\\], which the shard counts")
class CountsTheClock(Descent):
    def step(self, params, grads, state):
        state["clock"] = state.get("clock", 0) + 1
        super().step(params, grads, state)


@refused(r"after a step the gradients are \[\]")
class TakesTheGradients(Descent):
    def step(self, params, grads, state):
        for name, p in params.items():
            p -= self.lr * grads.pop(name)


@refused("is the sign right")
class Climbs(Descent):
    def step(self, params, grads, state):
        for name, p in params.items():
            p += 0.01 * grads[name]


@dataclass(frozen=True)
class ByLayers(ps.Optimizer):
    """Divides by each gradient's norm: a right one where it says that it is not elementwise."""

    name = "bylayers"

    def step(self, params, grads, state):
        for name, p in params.items():
            p -= p.dtype.type(0.1 / (1 + float(np.linalg.norm(grads[name])))) * grads[name]


@refused("end with other values than one. If that is intended, set elementwise = False in the class")
class ByLayersUnsaid(ByLayers):
    pass


@dataclass(frozen=True)
class ByLayersSaid(ByLayers):
    name = "bylayerssaid"
    elementwise = False


@refused("two servers with half of the values each end with other values than one")
class DividesByTheNorm(Descent):
    def step(self, params, grads, state):
        for name, p in params.items():
            p -= self.lr * grads[name] / (1 + np.linalg.norm(grads[name]))


@refused("step_into and step give different values of 'scalar'")
class StepsIntoOther(Descent):
    def step_into(self, new, params, grads, state):
        for name, p in params.items():
            new[name][...] = p - self.lr * grads[name]


@refused("step_into changed the parameters it starts from")
class StepsIntoBoth(Descent):
    def step_into(self, new, params, grads, state):
        self.step(params, grads, state)
        for name, p in params.items():
            new[name][...] = p


@refused("differs in a second run; keep everything in the state|step_into and step give different values")
class Noisy(Descent):
    def step(self, params, grads, state):
        for name, p in params.items():
            p -= np.asarray(self.lr * grads[name] + 1e-3 * np.random.default_rng().normal(size=p.shape), p.dtype)


@refused("it raised .*0-d|it raised IndexError|too many indices")
class ForgetsNumbers(Descent):
    def step(self, params, grads, state):
        for name, p in params.items():
            p[:] -= self.lr * grads[name]


@refused("divide by zero|invalid value|holds NaN")
class DividesByTheFirst(Descent):
    def step(self, params, grads, state):
        for name, p in params.items():
            v = state.setdefault(name, np.zeros_like(p))
            p -= self.lr * grads[name] / np.sqrt(v)
            v += grads[name] ** 2


# Schedules


@dataclass(frozen=True)
class Halving(Schedule):
    """A right one."""

    name = "halving"

    def factor(self, clock):
        return 0.5 ** (clock // 100)


@refused("it is -.*; expected a number from 0")
class BelowZero(Halving):
    def factor(self, clock):
        return 1 - clock / 100


@refused("it is nan at clock|it raised ZeroDivisionError")
class DividesByTheClock(Halving):
    def factor(self, clock):
        return 1 / clock


@refused("its factors depend on the order of calls")
class CountsItsCalls(Halving):
    calls = []

    def factor(self, clock):
        self.calls.append(clock)
        return 1 / len(self.calls)


@refused("it is np.float32.*; expected a number|it is np.float32")
class NumpysNumber(Halving):
    def factor(self, clock):
        return np.float32(1)


@refused("it is 0 at all of the first 60 clocks")
class NeverBegins(Halving):
    def factor(self, clock):
        return 0.0


@refused("it is None at clock 101|it is None at clock")
class EndsWithNothing(Halving):
    def factor(self, clock):
        return 1.0 if clock < 100 else None


@refused("its factors depend on the order of calls")
class DrawsOne(Halving):
    def factor(self, clock):
        return float(np.random.default_rng().random())


@refused("it raised IndexError")
class FromAList(Halving):
    def factor(self, clock):
        return [1.0, 0.5, 0.1][clock // 50]


@refused("it is inf at clock")
class Grows(Halving):
    def factor(self, clock):
        return 2.0**clock if clock < 1000 else float("inf")


@refused("it is True at clock 0; expected a number")
class SaysYes(Halving):
    def factor(self, clock):
        return clock < 100


# Shards


@dataclass(frozen=True)
class InTurn(Shards):
    """One row each, in turn: a right one."""

    name = "inturn"

    def split(self, y, workers, rng):
        return [np.arange(worker, len(y), workers) for worker in range(workers)]


@refused("rows do not hold each of 40 rows once")
class LosesTheRest(InTurn):
    def split(self, y, workers, rng):
        each = len(y) // workers
        return [np.arange(worker * each, (worker + 1) * each) for worker in range(workers)]


@refused("rows do not hold each of 40 rows once")
class DrawsWithReplacement(InTurn):
    def split(self, y, workers, rng):
        return np.array_split(rng.integers(0, len(y), len(y)), workers)


@refused("rows do not hold each of 40 rows once|a worker has no rows")
class CountsFromOne(InTurn):
    def split(self, y, workers, rng):
        return np.array_split(np.arange(1, len(y) + 1), workers)


@refused("a shard must be a one-dimensional array of row numbers")
class GivesMasks(InTurn):
    def split(self, y, workers, rng):
        return [np.arange(len(y)) % workers == worker for worker in range(workers)]


@refused("a shard must be a one-dimensional array of row numbers")
class GivesSlices(InTurn):
    def split(self, y, workers, rng):
        return [range(worker, len(y), workers) for worker in range(workers)]


@refused("the shards differ for the same draws; draw only from rng")
class ShufflesGlobally(InTurn):
    def split(self, y, workers, rng):
        return np.array_split(np.random.permutation(len(y)), workers)


@refused("split uses a global generator")
class SeedsTheGlobalOne(InTurn):
    def split(self, y, workers, rng):
        np.random.seed(0)
        return np.array_split(np.random.permutation(len(y)), workers)


@refused("the shards differ for the same draws")
class Rotates(InTurn):
    turns = []

    def split(self, y, workers, rng):
        self.turns.append(1)
        return np.array_split(np.roll(np.arange(len(y)), len(self.turns)), workers)


@refused("writes into an array that was passed to it")
class SortsTheTargets(InTurn):
    def split(self, y, workers, rng):
        y.sort(axis=0)
        return super().split(y, workers, rng)


@refused("a later split wrote into the row numbers of an earlier one")
class OneArrayForAll(InTurn):
    rows = {}

    def split(self, y, workers, rng):
        whole = self.rows.setdefault(len(y), np.arange(len(y)))
        whole[:] = rng.permutation(len(y))
        return np.array_split(whole, workers)


@refused("a worker has no rows: the shards have")
class OneClassEach(InTurn):
    def split(self, y, workers, rng):
        _, classes = np.unique(y.reshape(len(y), -1)[:, 0], return_inverse=True)
        return [np.flatnonzero(classes % workers == worker) for worker in range(workers)]


@refused("it raised .*|could not be|texts")
class NeedsNumbers(InTurn):
    def split(self, y, workers, rng):
        return np.array_split(np.argsort(-y, axis=0).reshape(-1)[: len(y)], workers)


@refused("it returned 2 index arrays for 3 workers|it returned 2 index arrays for 1")
class AlwaysTwo(InTurn):
    def split(self, y, workers, rng):
        return np.array_split(np.arange(len(y)), 2)


@pytest.mark.parametrize(("cls", "said"), WRONG)
def test_a_wrong_one_is_refused(registry, cls, said):
    refuse(cls, said)


@pytest.mark.parametrize("cls", [Middle, Ahead, Descent, ByLayersSaid, Halving, InTurn])
def test_a_right_one_is_accepted(registry, cls):
    ps.testing.check(ps.register(cls)())
