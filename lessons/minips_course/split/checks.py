"""The exercises of "Split a gradient"."""

import copy
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import Refused, asks, case, distance, drawn_seed, refuse_if
from minips.stage import Array, Tensors


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
        rows, d = int(rng.integers(30, 80)), int(rng.integers(2, 6))
        problem = ps.LinearRegression(rng.normal(size=(rows, d)), rng.normal(size=rows) + 3)
        params: Tensors = {"w": rng.normal(size=d), "b": np.array(rng.normal())}
        workers = int(rng.integers(2, 6))
        cuts = np.sort(rng.choice(np.arange(1, rows), workers - 1, replace=False))
        shares = np.split(rng.permutation(rows), cuts)
        if trial == 0:
            shares = np.array_split(np.arange(rows // workers * workers), workers)
        sizes = [len(share) for share in shares]
        gradients = [problem.gradient(params, share) for share in shares]
        kept = copy.deepcopy(gradients)
        with case(f"With {sizes} rows:"):
            _is_close(function(gradients, sizes), problem.gradient(params, np.concatenate(shares)))
            changed = any(distance(one, old) for one, old in zip(gradients, kept, strict=True))
            refuse_if(changed, "a worker's gradient was changed. Make a new array.")
    return "The result is right for a dozen random splits, with equal and with unequal shares."


class _Counted(ps.SoftmaxRegression):
    """A problem that records the rows whose gradients were requested."""

    def __init__(self, *rows: Any) -> None:
        super().__init__(*rows)
        self.asked: list[Array] = []

    def loss_and_gradient(self, params: Tensors, rows: Any = None) -> tuple[float, Tensors]:
        self.asked.append(np.atleast_1d(np.arange(self.rows) if rows is None else np.arange(self.rows)[rows]))
        return super().loss_and_gradient(params, rows)


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
        problem = _Counted(data.X, data.y)
        params: Tensors = {name: rng.normal(size=p.shape) for name, p in problem.init(rng).items()}
        rows = rng.choice(problem.rows, int(rng.integers(30, 90)), replace=False)
        most = [len(rows), 1, 7][trial] if trial < 3 else int(rng.integers(2, len(rows)))
        with case(f"With {len(rows)} rows, {most} at once:"):
            got = function(problem, params, rows.copy(), most)
            seen = np.concatenate([*problem.asked, np.array([], int)])
            largest = max((len(one) for one in problem.asked), default=0)
            refuse_if(largest > most, f"it asked for {largest} rows in one go.")
            lacking = len(np.setdiff1d(rows, seen))
            refuse_if(lacking, f"{lacking} of the rows were never used.")
            refuse_if(len(seen) > len(rows), f"{len(seen)} rows were used in total.")
            _is_close(got, ps.SoftmaxRegression(data.X, data.y).gradient(params, rows))
    return "Each row was used once, never too many at a time, and the gradient is right."


def _is_close(got: Any, wanted: Tensors) -> None:
    if not isinstance(got, dict) or set(got) != set(wanted):
        raise Refused(f"expected a dict of {sorted(wanted)}, got {got if got is None else type(got).__name__}.")
    for name, g in wanted.items():
        refuse_if(np.shape(got[name]) != g.shape, f"{name!r} has shape {np.shape(got[name])}, not {g.shape}.")
        far = distance(got, {name: g})
        refuse_if(not far <= 1e-9, f"{name!r} differs from the gradient of all the rows by {far:.3g}.")
