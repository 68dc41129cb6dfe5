"""The contracts of the server's stages: aggregators, consistency models and optimizers."""

import copy
import itertools
from typing import Any

import numpy as np

from minips.stage import Tensors
from minips.stages.aggregators import Aggregator, Contribution
from minips.stages.consistency import Consistency, PullView, takes_view
from minips.stages.optimizers import Optimizer
from minips.testing.base import doing, failing_only_with, require, same_bits, strictly
from minips.testing.stages import check_stage

SHAPES: dict[str, tuple[int, ...]] = {"scalar": (), "empty": (0,), "bias": (7,), "weights": (3, 5)}
WORKERS = [1, 2, 3, 4, 5, 8, 16]


def tensors(seed: int, dtype: Any) -> Tensors:
    """Named arrays of a few shapes, at random."""
    rng = np.random.default_rng(seed)
    return {name: np.asarray(rng.standard_normal(shape), dtype) for name, shape in SHAPES.items()}


def check_aggregator(aggregator: Aggregator) -> None:
    """Check an aggregator against its contract: arrays like the workers' ones, which are left as they were.

    One that needs several workers may raise ValueError for fewer, but not for sixteen.
    """
    check_stage(aggregator)
    for dtype in (np.float32, np.float64):
        for workers in WORKERS:
            contributions = [Contribution(i, 5, 5 - i % 3, tensors(i, dtype), 0.5, rows=i + 1) for i in range(workers)]
            what = f"{aggregator!r} with {workers} contributions of {np.dtype(dtype)}"
            with failing_only_with(ValueError, what) if workers < max(WORKERS) else doing(what):
                aggregator.combine(contributions)
                _check_combined(aggregator, contributions)


def _check_combined(aggregator: Aggregator, contributions: list[Contribution]) -> None:
    before = copy.deepcopy([one.gradients for one in contributions])
    with strictly("combine"):
        first, again = aggregator.combine(contributions), aggregator.combine(contributions)
        require(list(first) == list(before[0]), f"the names are {list(first)}, expected {list(before[0])}.")
        for name, y in first.items():
            x = before[0][name]
            require(isinstance(y, np.ndarray), f"{name!r} is a {type(y).__name__}, not an array.")
            require((y.shape, y.dtype) == (x.shape, x.dtype), f"{name!r} became {y.dtype} of shape {y.shape}.")
            require(np.isfinite(y).all(), f"{name!r} holds NaN or infinity.")
            require(same_bits(y, again[name]), f"{name!r} differs the second time; the same pushes give the same bits.")
            for one, old in zip(contributions, before, strict=True):
                same = same_bits(one.gradients[name], old[name])
                require(same, f"it changed {name!r} of worker {one.worker}; copy before you add.")
        for name, y in first.items() if aggregator.elementwise else ():
            for half in (slice(None, None, 2), slice(1, None, 2)):
                some = [one._replace(gradients={name: one.gradients[name].reshape(-1)[half]}) for one in contributions]
                same = same_bits(aggregator.combine(some)[name], y.reshape(-1)[half])
                require(same, f"elementwise is True, but half of {name!r} alone is combined into other values.")


def check_consistency(consistency: Consistency) -> None:
    """Check a consistency model against its contract: rounds that can be completed, and waits that end."""
    check_stage(consistency)
    for workers in WORKERS:
        with failing_only_with(ValueError, f"{consistency!r}.quorum({workers})"):
            quorum = consistency.quorum(workers)
            possible = quorum is None or (isinstance(quorum, int) and 1 <= quorum <= workers)
            require(possible, f"it is {quorum!r}; it takes None, or 1 to {workers} pushes to complete a round.")
    for slowest, clock in itertools.product(range(8), range(8)):
        _check_may_pull(consistency, clock, slowest)


def _check_may_pull(consistency: Consistency, clock: int, slowest: int) -> None:
    """The slowest worker never waits. A model that sees more than two clocks may change its mind, others may not."""
    clocks = (clock, max(clock, slowest), slowest)
    view = PullView(0, clocks, min(clocks), (1.0, 2.0, 3.0), 4.0, {})
    sees_more = takes_view(consistency)
    what = f"{consistency!r}.may_pull({view!r})" if sees_more else f"{consistency!r}.may_pull({clock=}, {slowest=})"
    with strictly(what):
        may = consistency.may_pull(view) if sees_more else consistency.may_pull(clock, slowest)
        require(isinstance(may, bool), f"it is {may!r}, neither True nor False.")
        require(may or clock > slowest, "it is False, so that even the slowest worker would wait, for ever.")
        if not sees_more:
            again = consistency.may_pull(clock, slowest)
            require(again is may, "it changes from call to call; it must have no state.")
            later = not may or consistency.may_pull(clock, slowest + 1)
            require(later, "it is True, and False once the slowest has come one clock further.")


def check_optimizer(optimizer: Optimizer) -> None:
    """Check an optimizer against its contract: in place, value by value, memory in the state alone, no other effect."""
    check_stage(optimizer)
    for dtype in (np.float32, np.float64):
        with strictly(f"{optimizer!r} with {np.dtype(dtype)}"):
            _check_in_place(optimizer, dtype)
            _check_split(optimizer, dtype)
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
        require(untouched, "step_into changed the parameters that it starts from.")
        optimizer.step(params, grads, state)
        for name, p in params.items():
            require(same_bits(p, new[name]), f"step_into makes other values of {name!r} than step.")
        old = new
        optimizer.step(again, tensors(step, dtype), other)
        for name, g in tensors(step, dtype).items():
            require(same_bits(g, grads[name]), f"it changed the gradient of {name!r}; compute with a copy.")
    for name, p in params.items():
        start = kept[name]
        require(p is before[name], f"{name!r} is another array after a step; change it in place, with p -= ….")
        require((p.shape, p.dtype) == (start.shape, start.dtype), f"{name!r} became {p.dtype} of shape {p.shape}.")
        require(np.isfinite(p).all(), f"{name!r} holds NaN or infinity after three steps.")
        require(p.size == 0 or not same_bits(p, start), f"{name!r} did not move in three steps.")
        require(same_bits(p, again[name]), f"{name!r} differs in a second run; keep everything in the state.")


def _check_split(optimizer: Optimizer, dtype: Any) -> None:
    """Two servers with half of the values each do what one server does."""
    whole = {"w": tensors(0, dtype)["weights"].reshape(-1)}
    halves = [{"w": whole["w"][:8].copy()}, {"w": whole["w"][8:].copy()}]
    states: list[dict[str, Any]] = [{}, {}, {}]
    for step in range(1, 4):
        g = tensors(step, dtype)["weights"].reshape(-1)
        for params, piece, state in zip([whole, *halves], [g, g[:8], g[8:]], states, strict=True):
            state["clock"] = step - 1
            optimizer.step(params, {"w": piece.copy()}, state)
    joined = np.concatenate([half["w"] for half in halves])
    require(same_bits(joined, whole["w"]), "two servers with half of the values each end elsewhere than one.")


def _check_descends(optimizer: Optimizer, dtype: Any) -> None:
    """On |p|²/2, whose gradient is p, it comes closer to zero."""
    params, state = {"p": np.array([1.0, -2.0, 0.5], dtype)}, {}  # type: Tensors, dict[str, Any]
    start = float(params["p"] @ params["p"])
    for clock in range(200):
        state["clock"] = clock
        optimizer.step(params, {"p": params["p"].copy()}, state)
    end = float(params["p"] @ params["p"])
    require(end < start, f"200 steps on |p|²/2 went from |p|² = {start:g} to {end:g}; is the sign right?")
