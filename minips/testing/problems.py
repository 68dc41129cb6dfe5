"""The contract of a problem: the gradient fits the loss, shards add up to the whole, and results repeat."""

import copy
import math
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np

from minips.core.rows import Rows, row_numbers
from minips.engines.worker import pair
from minips.problems import Problem
from minips.stage import Array, Tensors
from minips.testing.base import doing, require, same_bits, strictly, without_global_draws
from minips.training.progress import Wait, showing

DIRECTIONS, WORKERS, SEED = 5, 2, 5
NEAR = {2: 0.2, 4: 2e-2, 8: 1e-4}
"""Maps the size of a parameter's dtype, in bytes, to the relative error that rounding may cause in a slope."""
FILLS = ((3.0, 0.0), (-5.0, 0.0), (0.0, 1e4))
"""Mean and deviation of the values filled into table rows that a worker did not request. NaN would be too strict: zero
times any finite value is zero."""


@showing(None, first=Wait("checking a problem"))
def check_problem(problem: Problem) -> None:
    """Check a problem: gradients agree with finite differences; names, shapes and dtypes fit; the gradients of equal
    shards average to that of the whole; a batch agrees with a problem of only its rows; and results repeat to the bit.

    A problem that draws is checked both with and without a generator. The table rows that a batch does not need are
    filled with other numbers, which must change neither loss nor gradient.
    """
    with strictly(f"{problem!r}"):
        params = {name: np.asarray(p) for name, p in problem.init(np.random.default_rng(0)).items()}
        again = problem.init(np.random.default_rng(0))
        for name, p in params.items():
            require(p.dtype.kind == "f", f"init makes {name!r} of {p.dtype}; parameters must be floats.")
            require(same_bits(p, np.asarray(again[name])), f"init makes a different {name!r} from the same generator.")
        _check_tables(problem, params)
        rng = np.random.default_rng(1)
        params = {name: np.asarray(p + 0.1 * rng.normal(size=p.shape), p.dtype) for name, p in params.items()}
        rows = problem.fingerprint()
        for seed in (None, SEED) if problem.draws else (None,):
            with doing(f"rng {'not ' * (seed is None)}given") if problem.draws else nullcontext():
                _check_gradient(problem, params, seed)
                _check_slopes(problem, params, rng, seed)
        _check_shards(problem, params)
        _check_batches(problem, params)
        _check_weights(problem, params)
        for batch in (*_batches(problem.rows), None) if problem.tables else ():
            _check_rows_needed(problem, params, batch)
        require(problem.fingerprint() == rows, "loss_and_gradient changed the rows, X or y; work on a copy.")


def _evaluate(problem: Problem, params: Tensors, rows: Any = None, seed: int | None = None) -> tuple[float, Any]:
    """Return the loss and the gradient; a problem that draws receives a generator with that seed, or None."""
    drawn = {} if seed is None else {"rng": np.random.default_rng(seed)}
    loss, gradient = pair(problem.loss_and_gradient(params, rows, **drawn))
    return loss, gradient


def _dense(gradient: Any, params: Tensors) -> Tensors:
    """Return the gradient with each `Rows` as a full array of zeros elsewhere; rows that occur twice are added up."""
    dense = {}
    for name, g in gradient.items():
        if isinstance(g, Rows):
            ids, values = g.summed()
            g = np.zeros_like(params[name])
            g[ids] = values
        dense[name] = g
    return dense


def _check_tables(problem: Problem, params: Tensors) -> None:
    tables = problem.tables
    named = not isinstance(tables, str) and all(name in params and params[name].ndim for name in tables)
    said = f"tables must be a tuple of names of parameters with rows, such as ('E',); got {tables!r}"
    require(named, f"{said}, and the parameters are {list(params)}.")


def _check_gradient(problem: Problem, params: Tensors, seed: int | None) -> None:
    before, evaluate = copy.deepcopy(params), partial(_evaluate, problem, seed=seed)
    loss, gradient = evaluate(params)
    first = copy.deepcopy((loss, gradient))
    require(isinstance(loss, float), f"the loss is a {type(loss).__name__}, not a float.")
    require(math.isfinite(loss), f"the loss is {loss} near the initial parameters.")
    require(list(gradient) == list(params), f"the gradient names {list(gradient)}, the parameters are {list(params)}.")
    for name, p in params.items():
        _check_fits(name, gradient[name], p, name in problem.tables)
        require(same_bits(p, before[name]), f"loss_and_gradient changed the parameter {name!r}.")
        apart = not any(np.may_share_memory(one, p) for one in _arrays(gradient[name]))
        require(apart, f"the gradient of {name!r} is the parameter's own array, which will change. Copy it.")
    loss, again = evaluate(params)
    same = loss == first[0] and all(map(_same_gradient, again.values(), first[1].values()))
    hint = "draw only from rng, and nothing if it is None" if problem.draws else "draw from rng, a parameter"
    require(same, f"loss_and_gradient gives other bits the second time; {hint}.")
    with without_global_draws("loss_and_gradient"):
        evaluate({name: np.asarray(p / 2, p.dtype) for name, p in params.items()})
    kept = all(_same_gradient(g, first[1][name]) for name, g in gradient.items())
    require(kept, "loss_and_gradient writes into arrays that it returned before; return new ones each time.")


def _check_fits(name: str, g: Any, p: Array, table: bool) -> None:
    """Check that a parameter's gradient has its shape and dtype or, for a table, consists of its rows."""
    if not table:
        got = f"{g.dtype} of {g.shape}" if isinstance(g, np.ndarray) else type(g).__name__
        fits = isinstance(g, np.ndarray) and (g.shape, g.dtype) == (p.shape, p.dtype)
        require(fits, f"the gradient of {name!r} is {got}, the parameter {p.dtype} of {p.shape}.")
        require(np.isfinite(g).all(), f"the gradient of {name!r} holds NaN or infinity.")
        return
    rows = isinstance(g, Rows) and isinstance(g.values, np.ndarray)
    require(rows, f"{name!r} is a table, so its gradient must be ps.Rows(ids, values); got {type(g).__name__}.")
    with doing(f"the gradient of {name!r}"):
        ids, values = row_numbers(g.ids, p.shape), g.values
        fits = (values.shape, values.dtype) == ((len(ids), *p.shape[1:]), p.dtype)
        got = f"{values.dtype} of {values.shape} for {len(ids)} rows"
        require(fits, f"Rows has values of {got}; the table is {p.dtype} of {p.shape}.")
        require(np.isfinite(values).all(), "it holds NaN or infinity.")


def _arrays(g: Any) -> list[Array]:
    return [np.asarray(g.ids), g.values] if isinstance(g, Rows) else [g]


def _same_gradient(one: Any, other: Any) -> bool:
    return len(_arrays(one)) == len(_arrays(other)) and all(map(same_bits, _arrays(one), _arrays(other)))


def _check_slopes(problem: Problem, params: Tensors, rng: np.random.Generator, seed: int | None) -> None:
    """Check the loss's slopes in random directions. Only the median error counts, since a kink may spoil one or two."""
    gradient = _dense(_evaluate(problem, params, seed=seed)[1], params)
    nbytes = min(p.dtype.itemsize for p in params.values())
    step, near = {2: 3e-2, 4: 3e-3, 8: 1e-5}[nbytes], NEAR[nbytes]
    promised, found = np.empty(DIRECTIONS), np.empty(DIRECTIONS)
    for number in range(DIRECTIONS):
        ways = {name: np.sign(rng.normal(size=p.shape)) for name, p in params.items()}
        moved = [{name: np.asarray(p + h * ways[name], p.dtype) for name, p in params.items()} for h in (step, -step)]
        up, down = (_evaluate(problem, one, seed=seed)[0] for one in moved)
        promised[number] = sum(float(np.vdot(gradient[name].astype(float), way)) for name, way in ways.items())
        found[number] = (up - down) / (2 * step)
    off = np.abs(promised - found) / max(float(np.abs(found).max()), 1e-3)
    slopes = f"in {DIRECTIONS} random directions it promises the slopes {_figures(promised)}"
    said = f"the gradient is not that of the loss: {slopes}, but the loss has {_figures(found)}."
    require(float(np.median(off)) <= near, said)


def _check_shards(problem: Problem, params: Tensors) -> None:
    if problem.rows < WORKERS:
        return
    part: Any = problem.shard(0, 1)
    require(part.rows == problem.rows, f"shard(0, 1) has {part.rows} of {problem.rows} rows.")
    parts: list[Any] = [problem.shard(worker, WORKERS) for worker in range(WORKERS)]
    counts = [part.rows for part in parts]
    require(sum(counts) == problem.rows, f"shards of {counts} rows do not add up to {problem.rows}.")
    whole = _dense(_evaluate(problem, params)[1], params)
    pieces = [_dense(_evaluate(part, params)[1], params) for part in parts]
    for name, g in whole.items():
        mean = np.average([piece[name].astype(float) for piece in pieces], axis=0, weights=counts)
        said = f"the gradients of {name!r} on two halves of the rows do not average to the whole's."
        require(_near(g, mean, params), said)


def _check_batches(problem: Problem, params: Tensors) -> None:
    """Check that a batch gives the same results as a problem of only the batch's rows."""
    if type(problem).shard is not Problem.shard and type(problem).subset is Problem.subset:
        return  # the problem divides its rows differently
    for rows in _batches(problem.rows):
        with doing(f"loss_and_gradient(params, rows) with {_describe(rows)}"):
            loss, gradient = _evaluate(problem, params, rows)
            alone, expected = _evaluate(problem.subset(rows), params)
            gradient, expected = _dense(gradient, params), _dense(expected, params)
            alike = _near(np.asarray(loss), np.asarray(alone), params, 0.05)
            require(alike, f"the loss is {loss:g}, and that of a problem of only these rows is {alone:g}.")
            for name, g in gradient.items():
                same = _near(g, expected[name], params, 0.05)
                require(same, f"the gradient of {name!r} is not that of a problem of only these rows.")


def _check_weights(problem: Problem, params: Tensors) -> None:
    """Check that a row of weight 0 has no effect."""
    if problem.weights is None or type(problem).subset is not Problem.subset:
        return
    even, part = np.arange(0, problem.rows, 2), copy.copy(problem)
    counts = np.zeros(problem.rows)
    counts[even] = 1
    part.weights, alone = counts / counts.mean(), problem.subset(even)
    alone.weights = None
    gradient, expected = (_dense(_evaluate(one, params)[1], params) for one in (part, alone))
    for name, g in gradient.items():
        said = f"the gradient of {name!r} does not follow the rows' weights: a row of weight 0 counts"
        require(_near(g, expected[name], params), said)


def _batches(rows: int) -> Iterator[Any]:
    """Yield batches as in a training run: slices, and row numbers in any order."""
    yield slice(0, max(rows // 3, 1))
    yield np.random.default_rng(2).permutation(rows)[: max(rows // 2, 1)]
    yield np.array([rows - 1])


def _describe(rows: Any) -> str:
    if rows is None:
        return "None, for all rows"
    return f"rows {rows.start} to {rows.stop - 1}" if isinstance(rows, slice) else f"{len(rows)} row numbers"


def _check_rows_needed(problem: Problem, params: Tensors, rows: Any) -> None:
    """Check ``rows_needed``: a worker has only the table rows that it requested; others are stale or were never set."""
    with doing(f"rows_needed({_describe(rows)})"):
        needed = problem.rows_needed(rows)
        named = isinstance(needed, dict) and set(needed) == set(problem.tables)
        require(named, f"expected a dict with the rows of each of {', '.join(problem.tables)}; got {needed!r:.200}.")
        ids = {name: row_numbers(needed[name], params[name].shape) for name in problem.tables}
        gradient = _evaluate(problem, params, rows)[1]
        for name in problem.tables:
            other = np.setdiff1d(gradient[name].ids, ids[name])
            touched = f"the gradient of {name!r} has rows that it omits"
            require(not other.size, f"{touched}: {', '.join(map(str, other[:8]))}.")
        for mean, deviation in FILLS:
            same = _same_without_others(problem, params, rows, ids, mean, deviation)
            require(same, "it omits rows that loss_and_gradient reads: with other values there, the results change.")


def _same_without_others(
    problem: Problem, params: Tensors, rows: Any, ids: Tensors, mean: float, deviation: float
) -> bool:
    """Return True if loss and gradient stay the same with random numbers in all other table rows."""
    filled, rng = dict(params), np.random.default_rng(3)
    for name, some in ids.items():
        filled[name] = rng.normal(mean, deviation, params[name].shape).astype(params[name].dtype)
        filled[name][some] = params[name][some]
    (loss, gradient), (other_loss, other) = (_evaluate(problem, some, rows) for some in (params, filled))
    pairs = zip(_dense(gradient, params).values(), _dense(other, params).values(), strict=True)
    return loss == other_loss and all(np.array_equal(a, b) for a, b in pairs)


def _near(x: Array, expected: Array, params: Tensors, share: float = 1.0) -> bool:
    """Return True if ``x`` equals ``expected`` up to rounding. ``share`` below 1 is for sums in the same order."""
    near = share * NEAR[min(p.dtype.itemsize for p in params.values())]
    scale = max(float(np.abs(expected).max(initial=0)), 1e-6)
    return float(np.abs(expected - x.astype(float)).max(initial=0)) / scale <= near


def _figures(values: Any) -> str:
    return ", ".join(f"{value:.4g}" for value in values)
