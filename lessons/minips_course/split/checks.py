"""The exercises of "Split a gradient"."""

import copy
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import Refused, asks, case, distance, drawn_seed, refuse_if
from minips.stage import Array, Tensors
from minips.testing.base import same_bits
from minips_course.arrays import drawn_names, drawn_tensors


@asks(
    "split.1",
    "A worker's gradient is the mean over its rows. What do you get if you multiply it by the number of rows?",
    "Change two things in the line: the terms that are added, and the number that divides the sum.",
    "Return one weighted mean for each name. A weight is a worker's share of all the rows; the weights add up to 1.",
)
def combine(function: Any, rng: np.random.Generator) -> str:
    """Combine the gradients of unequal shards, so that each row counts once."""
    refuse_if(not callable(function), f"Expected the function combine(gradients, rows), got {function!r}.")
    for trial in range(12):
        sizes = rng.integers(1, 80, int(rng.integers(2, 7))).tolist()
        if trial == 0:
            sizes = [sizes[0]] * len(sizes)
        elif trial == 1:
            sizes = sizes[:1]
        elif trial == 2:
            sizes[int(rng.integers(len(sizes)))] = 0
        # the gradients of the rows, one by one
        rows = {name: x + rng.normal(size=(sum(sizes), *x.shape)) for name, x in drawn_tensors(rng).items()}
        shards = [np.split(x, np.cumsum(sizes)[:-1]) for x in rows.values()]
        gradients = [dict(zip(rows, map(_mean, shard), strict=True)) for shard in zip(*shards, strict=True)]
        with case(f"With {sizes} rows, for {', '.join(rows)}:"):
            _combines(function, gradients, sizes, {name: _mean(x) for name, x in rows.items()})
    return "The result is right for a dozen random splits, with equal and with unequal shares."


def _mean(rows: Array) -> Array:
    return np.asarray(rows.sum(axis=0) / max(len(rows), 1))


def _combines(function: Any, gradients: list[Tensors], rows: list[int], wanted: Tensors) -> None:
    """Refuse a function unless its result is right, is the caller's alone, and nothing that it is given changes."""
    kept, sizes = copy.deepcopy(gradients), list(rows)
    got = function(gradients, rows)
    _is_close(got, wanted)
    refuse_if(rows != sizes, f"the list of rows became {rows}. Do not change what you are given.")
    first = {name: np.array(x) for name, x in got.items()}
    backwards = function([_negated(one) for one in kept], sizes)
    _is_close(backwards, _negated(wanted))
    refuse_if(distance(got, first), "a second call changed the first result. Make new arrays.")
    _overwrite(got)
    changed = any(
        not same_bits(one[name], x) for one, old in zip(gradients, kept, strict=True) for name, x in old.items()
    )
    refuse_if(changed, "a worker's gradient was changed, or is a part of the result. Make a new array.")


def _negated(tensors: Tensors) -> Tensors:
    return {name: np.asarray(-x) for name, x in tensors.items()}


def _overwrite(tensors: Tensors) -> None:
    for x in tensors.values():
        if isinstance(x, np.ndarray) and x.flags.writeable:
            x[...] = np.nan


class _Counted:
    """A problem whose tensors have other names, and which records the rows whose gradients were requested."""

    def __init__(self, problem: ps.SoftmaxRegression, names: dict[str, str]) -> None:
        self.rows, self.asked = problem.rows, list[Array]()
        self._problem, self._names = problem, names

    def loss_and_gradient(self, params: Tensors, rows: Any = None) -> tuple[float, Tensors]:
        self.asked.append(np.atleast_1d(np.arange(self.rows) if rows is None else np.arange(self.rows)[rows]))
        inner = {old: params[new] for old, new in self._names.items()}
        loss, gradient = self._problem.loss_and_gradient(inner, rows)
        return loss, {new: gradient[old] for old, new in self._names.items()}

    def gradient(self, params: Tensors, rows: Any = None) -> Tensors:
        return self.loss_and_gradient(params, rows)[1]


@asks(
    "split.2",
    "range accepts a step, so it can yield the start of each piece of `most` rows. The last piece may be shorter.",
    "Each piece's gradient is a mean over its rows. How did exercise split.1 add means?",
    "Write one loop. Add up each name's gradients, weighted by the pieces' lengths, and divide once after the loop.",
)
def in_pieces(function: Any, rng: np.random.Generator) -> str:
    """Compute the gradient of the chosen rows in pieces of at most `most` rows."""
    refuse_if(not callable(function), f"Expected the function in_pieces, got {function!r}.")
    for trial in range(8):
        data = ps.datasets.synthetic(
            rows=200, features=4, classes=3, noise=1.0, seed=drawn_seed(rng), dtype="float64", validation=0.1
        )
        inner = ps.SoftmaxRegression(data.X, data.y)
        names = dict(zip(inner.init(rng), drawn_names(rng, 2), strict=True))
        problem = _Counted(inner, names)
        rows = rng.integers(0, problem.rows, int(rng.integers(30, 90)))
        rows[:5] = rows[5:10]  # as in batches that are drawn with replacement
        rows = rng.permutation(rows)[: 1 if trial == 3 else None]
        most = [len(rows), 1, 7, 5][trial] if trial < 4 else int(rng.integers(2, len(rows)))
        params = {names[old]: rng.normal(size=p.shape) for old, p in inner.init(rng).items()}
        with case(f"With {len(rows)} rows, {most} at once:"):
            got = _in_pieces(function, problem, params, rows, most)
            first = copy.deepcopy(got)
            _in_pieces(function, problem, _negated(params), rows, most)
            refuse_if(distance(got, first), "a second call changed the first result. Make new arrays.")
    return "Each row was used once, never too many at a time, and the gradient is right."


def _in_pieces(function: Any, problem: _Counted, params: Tensors, rows: Array, most: int) -> Tensors:
    """Return the function's gradient. Raises `Refused` if it is wrong, or not made of pieces with each row once."""
    wanted = problem.gradient(params, rows)
    problem.asked.clear()
    given, before = rows.copy(), copy.deepcopy(params)
    got: Tensors = function(problem, params, given, most)
    seen = np.concatenate([*problem.asked, np.array([], int)])
    largest = max((len(one) for one in problem.asked), default=0)
    refuse_if(largest > most, f"it asked for {largest} rows in one go.")
    lacking = len(np.setdiff1d(rows, seen))
    refuse_if(lacking, f"{lacking} of the rows were never used.")
    alike = np.array_equal(np.sort(seen), np.sort(rows))
    refuse_if(not alike, f"{len(seen)} rows were used in total; some not as often as they are in rows.")
    _is_close(got, wanted)
    changed = not np.array_equal(given, rows) or any(not same_bits(params[name], p) for name, p in before.items())
    refuse_if(changed, "rows or params were changed. Do not change what you are given.")
    return got


def _is_close(got: Any, wanted: Tensors) -> None:
    if not isinstance(got, dict) or set(got) != set(wanted):
        raise Refused(f"expected a dict of {sorted(wanted)}, got {got if got is None else type(got).__name__}.")
    for name, g in wanted.items():
        refuse_if(np.shape(got[name]) != g.shape, f"{name!r} has shape {np.shape(got[name])}, not {g.shape}.")
        far = distance(got, {name: g})
        refuse_if(not far <= 1e-9, f"{name!r} differs from the gradient of all the rows by {far:.3g}.")
