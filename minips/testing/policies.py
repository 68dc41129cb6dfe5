"""The contracts of the server's stages: aggregators, consistency models, optimizers and their schedules."""

import copy
import itertools
import math
from typing import Any

import numpy as np

from minips.stage import Tensors
from minips.stages.aggregators import Aggregator, Contribution
from minips.stages.consistency import Consistency, PullView, takes_view
from minips.stages.optimizers import Optimizer
from minips.stages.schedules import Schedule
from minips.testing.base import doing, failing_only_with, require, same_bits, strictly
from minips.testing.stages import check_stage

SHAPES: dict[str, tuple[int, ...]] = {"scalar": (), "empty": (0,), "bias": (7,), "weights": (3, 5)}
WORKERS = [1, 2, 3, 4, 5, 8, 16]
CLOCKS = [*range(8), 100, 1001]


def tensors(seed: int, dtype: Any) -> Tensors:
    """Return named random arrays of a few shapes."""
    rng = np.random.default_rng(seed)
    return {name: np.asarray(rng.standard_normal(shape), dtype) for name, shape in SHAPES.items()}


def check_aggregator(aggregator: Aggregator) -> None:
    """Check an aggregator's contract: it returns arrays like those of the workers, and does not change those.

    An aggregator that needs several workers sets ``least``, and may raise ValueError for fewer workers.
    """
    check_stage(aggregator)
    least = aggregator.least
    require(isinstance(least, int) and least >= 1, f"{aggregator!r}: least is {least!r}; expected a number from 1.")
    by_itself = aggregator.elementwise or not aggregator.tables
    require(by_itself, f"{aggregator!r}: tables is True but elementwise is not, and rows come in pieces.")
    for dtype in (np.float32, np.float64):
        for workers in {*WORKERS, least}:
            what = f"{aggregator!r} with {workers} contributions of {np.dtype(dtype)}, and least is {least}"
            with failing_only_with(ValueError, what) if workers < least else doing(what):
                aggregator.combine(_contributions(workers, dtype))
                _check_combined(aggregator, _contributions(workers, dtype))


def _contributions(workers: int, dtype: Any) -> list[Contribution]:
    return [_contribution(i, tensors(i, dtype)) for i in range(workers)]


def _contribution(i: int, gradients: Tensors) -> Contribution:
    """Return one of several pushes that differ in age and shard size. Some workers are missing, as if they had left."""
    return Contribution(2 * i + 1, 5, 5 - i % 3, gradients, 0.5, staleness=i % 3, rows=i + 1)


def _check_combined(aggregator: Aggregator, contributions: list[Contribution]) -> None:
    before = copy.deepcopy([one.gradients for one in contributions])
    with strictly("combine"):
        first = aggregator.combine(contributions)
        then = copy.deepcopy(first)
        _check_combined_shapes(first, contributions, before)
        halved = [{name: np.asarray(g / 2, g.dtype) for name, g in one.items()} for one in before]
        aggregator.combine([one._replace(gradients=g) for one, g in zip(contributions, halved, strict=True)])
        for name, y in first.items():
            kept = same_bits(y, then[name])
            require(kept, f"a later round wrote into the {name!r} of an earlier one; make new arrays.")
        again = [aggregator.combine(contributions) for _ in range(3)]
        for name, y in first.items():
            same = all(same_bits(y, other[name]) for other in again)
            require(same, f"{name!r} differs the second time; the same pushes must give the same bits.")
        for name, y in first.items() if aggregator.elementwise else ():
            for half in (slice(None, None, 2), slice(1, None, 2)):
                some = [one._replace(gradients={name: one.gradients[name].reshape(-1)[half]}) for one in contributions]
                same = same_bits(aggregator.combine(some)[name], y.reshape(-1)[half])
                require(same, f"elementwise is True, but half of {name!r}, combined separately, gives other values.")
        if len(contributions) < max(WORKERS):
            return
        other_way = aggregator.combine(contributions[::-1])
        for name, y in first.items():
            near = np.allclose(y, other_way[name], rtol=1e-3, atol=1e-4)
            require(near, f"{name!r} differs for the same contributions in reverse order; all must count alike.")
        if not aggregator.weighs:
            alike = aggregator.combine([one._replace(rows=1.0) for one in contributions])
            same = all(same_bits(y, alike[name]) for name, y in first.items())
            require(same, "it reads the contributions' rows, which workers report only if weighs is True.")


def _check_combined_shapes(combined: Tensors, contributions: list[Contribution], before: list[Tensors]) -> None:
    require(list(combined) == list(before[0]), f"the names are {list(combined)}, expected {list(before[0])}.")
    for one, old in zip(contributions, before, strict=True):
        for name, x in old.items():
            same = same_bits(one.gradients[name], x)
            require(same, f"it changed {name!r} of worker {one.worker}; copy before you add.")
    for name, y in combined.items():
        x = before[0][name]
        require(isinstance(y, np.ndarray), f"{name!r} is a {type(y).__name__}, not an array.")
        require((y.shape, y.dtype) == (x.shape, x.dtype), f"{name!r} became {y.dtype} of shape {y.shape}.")
        require(np.isfinite(y).all(), f"{name!r} holds NaN or infinity.")


def check_consistency(consistency: Consistency) -> None:
    """Check a consistency model's contract: rounds can be completed, and waits end."""
    check_stage(consistency)
    able = [workers for workers in (*WORKERS, 1000) if _check_quorum(consistency, workers)]
    require(able, f"{consistency!r}.quorum raises ValueError for every number of workers up to 1000.")
    for slowest, clock in itertools.product(CLOCKS, CLOCKS):
        _check_may_pull(consistency, clock, slowest)
    for workers in (1, 2, 3, 8) if takes_view(consistency) else ():
        _check_view(consistency, workers)


def _check_quorum(consistency: Consistency, workers: int) -> bool:
    """Return True if the model can work with this number of workers."""
    with failing_only_with(ValueError, f"{consistency!r}.quorum({workers})"):
        quorum = consistency.quorum(workers)
        number = isinstance(quorum, int) and not isinstance(quorum, bool)
        possible = quorum is None or (number and 1 <= quorum <= workers)
        require(possible, f"it is {quorum!r}; expected None, or 1 to {workers} pushes to complete a round.")
        again = consistency.quorum(workers)
        require(again == quorum, f"it is first {quorum!r}, then {again!r}; it must not have state.")
        return True
    return False


def _check_may_pull(consistency: Consistency, clock: int, slowest: int) -> None:
    """Check that the slowest worker never waits. A model that accepts two clocks must also repeat its answers."""
    if takes_view(consistency):
        clocks = (clock, max(clock, slowest), slowest)
        for worker, own in enumerate(clocks):
            view = PullView(worker, clocks, min(clocks), (1.0, 2.0, 3.0), 4.0, {})
            with strictly(f"{consistency!r}.may_pull({view!r})"):
                _check_answer(consistency.may_pull(view), own, min(clocks))
        return
    with strictly(f"{consistency!r}.may_pull({clock=}, {slowest=})"):
        may = consistency.may_pull(clock, slowest)
        _check_answer(may, clock, slowest)
        require(consistency.may_pull(clock, slowest) is may, "it changes from call to call; it must not have state.")
        later = not may or consistency.may_pull(clock, slowest + 1)
        require(later, "it is True, but False once the slowest is one clock further.")


def _check_answer(may: Any, clock: int, slowest: int) -> None:
    require(isinstance(may, bool), f"it is {may!r}, neither True nor False.")
    require(may or clock > slowest, "it is False, so even the slowest worker would wait, for ever.")


def _check_view(consistency: Consistency, workers: int) -> None:
    """Check that the slowest worker never waits, and that a model keeps what it remembers of a run in the view's
    ``state``: a second run must get the same answers.
    """

    def run() -> list[bool]:
        state, answers = dict[str, Any](), []
        for step in range(100):
            clocks = tuple(step // (worker + 1) for worker in range(workers))
            pushed_at = tuple(step - 0.1 * worker for worker in range(workers))
            view = PullView(step % workers, clocks, min(clocks), pushed_at, step + 0.5, state)
            answers.append(consistency.may_pull(view))
            with doing(f"at pull {step} of a run"):
                _check_answer(answers[-1], clocks[view.worker], view.slowest)
        return answers

    with strictly(f"{consistency!r}.may_pull(view) over two runs of {workers} workers"):
        require(run() == run(), "the second run's answers differ from the first's; keep everything in view.state.")


def check_optimizer(optimizer: Optimizer) -> None:
    """Check an optimizer's contract: it steps in place, remembers things only in the state, has no other effect,
    and treats each value separately unless its class sets ``elementwise = False``.
    """
    check_stage(optimizer)
    for dtype in (np.float32, np.float64):
        with strictly(f"{optimizer!r} with {np.dtype(dtype)}"):
            _check_in_place(optimizer, dtype)
            if optimizer.elementwise or not _says_elementwise(optimizer):
                _check_split(optimizer, dtype)
            _check_state(optimizer, dtype)
            _check_descends(optimizer, dtype)


def _check_in_place(optimizer: Optimizer, dtype: Any) -> None:
    params, again, old = (tensors(0, dtype) for _ in range(3))
    before, kept = dict(params), copy.deepcopy(params)
    state, other, third = (dict[str, Any]() for _ in range(3))
    for step in range(1, 4):
        state["clock"] = other["clock"] = third["clock"] = step - 1
        grads = tensors(step, dtype)
        new = {name: np.full_like(p, np.nan) for name, p in old.items()}
        optimizer.step_into(new, old, grads, third)
        untouched = all(same_bits(p, params[name]) for name, p in old.items())
        require(untouched, "step_into changed the parameters it starts from.")
        _check_gradients(grads, tensors(step, dtype))
        optimizer.step(params, grads, state)
        for name, p in params.items():
            require(same_bits(p, new[name]), f"step_into and step give different values of {name!r}.")
        old = new
        optimizer.step(again, tensors(step, dtype), other)
        _check_gradients(grads, tensors(step, dtype))
    for name, p in params.items():
        start = kept[name]
        require(p is before[name], f"{name!r} is another array after a step; change it in place, with p -= ….")
        require((p.shape, p.dtype) == (start.shape, start.dtype), f"{name!r} became {p.dtype} of shape {p.shape}.")
        require(np.isfinite(p).all(), f"{name!r} holds NaN or infinity after three steps.")
        require(p.size == 0 or not same_bits(p, start), f"{name!r} did not move in three steps.")
        require(same_bits(p, again[name]), f"{name!r} differs in a second run; keep everything in the state.")


def _check_gradients(grads: Tensors, before: Tensors) -> None:
    require(list(grads) == list(before), f"after a step the gradients are {list(grads)}, not {list(before)}.")
    for name, g in before.items():
        require(same_bits(g, grads[name]), f"it changed the gradient of {name!r}; work on a copy.")


def _says_elementwise(optimizer: Optimizer) -> bool:
    """Return True if its class, or a base class, sets ``elementwise``."""
    return any("elementwise" in vars(cls) for cls in type(optimizer).__mro__ if cls not in Optimizer.__mro__)


def _check_split(optimizer: Optimizer, dtype: Any) -> None:
    """Check that two servers, each with half of the values, get the same result as one server."""
    whole = {"w": tensors(0, dtype)["weights"].reshape(-1)}
    halves = [{"w": whole["w"][:8].copy()}, {"w": whole["w"][8:].copy()}]
    states: list[dict[str, Any]] = [{}, {}, {}]
    for step in range(1, 4):
        g = tensors(step, dtype)["weights"].reshape(-1)
        for params, piece, state in zip([whole, *halves], [g, g[:8], g[8:]], states, strict=True):
            state["clock"] = step - 1
            optimizer.step(params, {"w": piece.copy()}, state)
    joined = np.concatenate([half["w"] for half in halves])
    said = "two servers with half of the values each end with other values than one"
    advice = "If that is intended, set elementwise = False in the class."
    require(same_bits(joined, whole["w"]), f"{said}. {advice}")


def _check_state(optimizer: Optimizer, dtype: Any) -> None:
    """Check that a run has the same result if it is resumed from copies and its gradients are overwritten."""
    whole, resumed = tensors(0, dtype), tensors(0, dtype)
    state, kept = dict[str, Any](), dict[str, Any]()
    for step in range(1, 4):
        grads = tensors(step, dtype)
        resumed, kept = copy.deepcopy(resumed), copy.deepcopy(kept)  # separate copies, as in files
        state["clock"] = kept["clock"] = step - 1
        optimizer.step(whole, tensors(step, dtype), state)
        optimizer.step(resumed, grads, kept)
        require(kept.get("clock") == step - 1, "it changed state['clock'], which the shard counts.")
        require(list(resumed) == list(SHAPES), f"after a step the parameters are {list(resumed)}, not {list(SHAPES)}.")
        for g in grads.values():
            g.fill(np.nan)
    said = "keeps an array of the caller's, or something outside of the state: with copies a run ends differently"
    for name, p in whole.items():
        require(same_bits(p, resumed[name]), f"the optimizer {said}, in {name!r}.")


def _check_descends(optimizer: Optimizer, dtype: Any) -> None:
    """Check that the optimizer brings p closer to zero on the loss |p|²/2, whose gradient is p."""
    params, state = {"p": np.array([1.0, -2.0, 0.5], dtype)}, {}  # type: Tensors, dict[str, Any]
    start = float(params["p"] @ params["p"])
    for clock in range(200):
        state["clock"] = clock
        optimizer.step(params, {"p": params["p"].copy()}, state)
    end = float(params["p"] @ params["p"])
    require(end < start, f"200 steps on |p|²/2 went from |p|² = {start:g} to {end:g}; is the sign right?")


def check_schedule(schedule: Schedule) -> None:
    """Check a schedule's contract: the factor is at least 0 at each clock, and depends only on the clock."""
    check_stage(schedule)
    clocks = [*range(60), 199, 200, 201, 10_000, 10**6]
    with strictly(f"{schedule!r}.factor"):
        factors = [schedule.factor(clock) for clock in clocks]
        for clock, factor in zip(clocks, factors, strict=True):
            number = isinstance(factor, int | float) and not isinstance(factor, bool)
            require(number and 0 <= factor < math.inf, f"it is {factor!r} at clock {clock}; expected a number from 0.")
        again = [schedule.factor(clock) for clock in reversed(clocks)][::-1]
        require(again == factors, "its factors depend on the order of calls; it must not have state.")
        require(any(factors[:60]), "it is 0 at all of the first 60 clocks, so nothing would be learnt.")
