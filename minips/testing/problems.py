"""The contract of a problem: its gradient is that of its loss, its shards make the whole, and it repeats itself."""

import copy
from typing import Any

import numpy as np

from minips.engines.worker import pair
from minips.problems import Problem
from minips.stage import Tensors
from minips.testing.base import require, same_bits, strictly

DIRECTIONS, WORKERS = 5, 2
NEAR = {2: 0.2, 4: 2e-2, 8: 1e-4}
"""The relative error of a slope, by the bytes of a parameter, that rounding may make."""


def check_problem(problem: Problem) -> None:
    """Check a problem: gradients against finite differences, names, shapes and dtypes, equal shards whose gradients
    average to that of the whole, and the same bits every time.
    """
    with strictly(f"{problem!r}"):
        params = {name: np.asarray(p) for name, p in problem.init(np.random.default_rng(0)).items()}
        again = problem.init(np.random.default_rng(0))
        for name, p in params.items():
            require(p.dtype.kind == "f", f"init makes {name!r} of {p.dtype}; parameters are floating-point numbers.")
            require(same_bits(p, np.asarray(again[name])), f"init makes another {name!r} from the same generator.")
        rng = np.random.default_rng(1)
        params = {name: np.asarray(p + 0.1 * rng.normal(size=p.shape), p.dtype) for name, p in params.items()}
        _check_gradient(problem, params)
        _check_slopes(problem, params, rng)
        _check_shards(problem, params)


def _check_gradient(problem: Problem, params: Tensors) -> None:
    before = copy.deepcopy(params)
    loss, gradient = pair(problem.loss_and_gradient(params))
    first = copy.deepcopy((loss, gradient))
    require(isinstance(loss, float), f"the loss is a {type(loss).__name__}, not a float.")
    require(list(gradient) == list(params), f"the gradient names {list(gradient)}, the parameters are {list(params)}.")
    for name, p in params.items():
        g = gradient[name]
        got = f"{g.dtype} of {g.shape}" if isinstance(g, np.ndarray) else type(g).__name__
        fits = isinstance(g, np.ndarray) and (g.shape, g.dtype) == (p.shape, p.dtype)
        require(fits, f"the gradient of {name!r} is {got}, the parameter {p.dtype} of {p.shape}.")
        require(same_bits(p, before[name]), f"loss_and_gradient changed the parameter {name!r}.")
    loss, again = problem.loss_and_gradient(params)
    same = loss == first[0] and all(same_bits(g, first[1][name]) for name, g in again.items())
    require(same, "loss_and_gradient gives other bits the second time; draw from a generator with a fixed seed.")
    problem.loss_and_gradient({name: np.asarray(p / 2, p.dtype) for name, p in params.items()})
    kept = all(same_bits(g, first[1][name]) for name, g in gradient.items())
    require(kept, "loss_and_gradient writes into the arrays that it returned before; return new ones each time.")


def _check_slopes(problem: Problem, params: Tensors, rng: np.random.Generator) -> None:
    """The loss along random directions, where it is smooth: a kink next to the parameters spoils a direction or two."""
    _, gradient = problem.loss_and_gradient(params)
    nbytes = min(p.dtype.itemsize for p in params.values())
    step, near = {2: 3e-2, 4: 3e-3, 8: 1e-5}[nbytes], NEAR[nbytes]
    told, found = np.empty(DIRECTIONS), np.empty(DIRECTIONS)
    for number in range(DIRECTIONS):
        ways = {name: np.sign(rng.normal(size=p.shape)) for name, p in params.items()}
        moved = [{name: np.asarray(p + h * ways[name], p.dtype) for name, p in params.items()} for h in (step, -step)]
        up, down = (problem.loss_and_gradient(one)[0] for one in moved)
        told[number] = sum(float(np.vdot(gradient[name].astype(float), way)) for name, way in ways.items())
        found[number] = (up - down) / (2 * step)
    off = np.abs(told - found) / max(float(np.abs(found).max()), 1e-3)
    slopes = f"along {DIRECTIONS} random directions it promises slopes of {_figures(told)}"
    said = f"the gradient is not that of the loss: {slopes}, and the loss has {_figures(found)}."
    require(float(np.median(off)) <= near, said)


def _check_shards(problem: Problem, params: Tensors) -> None:
    if problem.rows < WORKERS:
        return
    part: Any = problem.shard(0, 1)
    require(part.rows == problem.rows, f"shard(0, 1) has {part.rows} of {problem.rows} rows.")
    parts: list[Any] = [problem.shard(worker, WORKERS) for worker in range(WORKERS)]
    counts = [part.rows for part in parts]
    require(sum(counts) == problem.rows, f"shards of {counts} rows do not make {problem.rows}.")
    whole = problem.loss_and_gradient(params)[1]
    pieces = [part.loss_and_gradient(params)[1] for part in parts]
    near = NEAR[min(p.dtype.itemsize for p in params.values())]
    for name, g in whole.items():
        mean = np.average([piece[name].astype(float) for piece in pieces], axis=0, weights=counts)
        scale = max(float(np.abs(mean).max(initial=0)), 1e-6)
        off = float(np.abs(mean - g).max(initial=0)) / scale
        require(off <= near, f"the gradients of {name!r} on two halves of the rows do not average to the whole's.")


def _figures(values: Any) -> str:
    return ", ".join(f"{value:.4g}" for value in values)
