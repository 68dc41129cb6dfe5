"""The exercises of "Split a gradient"."""

import copy
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import Refused, asks, case, distance, drawn_seed, refuse_if, unaided
from minips.stage import Array, Tensors
from minips.testing.base import same_bits
from minips_course.arrays import drawn_names, drawn_tensors
from minips_course.split import shares


@asks(
    "split.3",
    "A worker's gradient is the mean over its rows. What do you get if you multiply it by the number of rows?",
    "Add up one.rows / total * one.gradients[name] over the contributions, where total is the number of all rows.",
    "Write weighs = True under the name. Begin with a zero array for each name, and go through the contributions in "
    "one loop and through their gradients in another.",
)
def by_rows(made: Any, rng: np.random.Generator) -> str:
    """Write an aggregator for shards of any size, in which each row counts once, and train with it."""
    is_one = isinstance(made, type) and issubclass(made, ps.Aggregator)
    refuse_if(not is_one, f"Expected your class ByRows, a ps.Aggregator; got {made!r}.")
    refuse_if(made.__module__.startswith("minips."), f"{made.__name__} is minips' own. Write one yourself.")
    for trial in range(8):
        sizes = rng.integers(1, 80, int(rng.integers(2, 7))).tolist()
        if trial == 0:
            sizes = [sizes[0]] * len(sizes)
        elif trial == 1:
            sizes = sizes[:1]
        # the gradients of the rows, one by one
        rows = {name: x * rng.normal(1, 2, (sum(sizes), *x.shape)) for name, x in drawn_tensors(rng).items()}
        shards = [np.split(x, np.cumsum(sizes)[:-1]) for x in rows.values()]
        gradients = [dict(zip(rows, map(_mean, shard), strict=True)) for shard in zip(*shards, strict=True)]
        with case(f"With {sizes} rows, for {', '.join(rows)}:"):
            _combines(made(), gradients, sizes, {name: _mean(x) for name, x in rows.items()})
    refuse_if(
        not made.weighs,
        "combine is right, but workers do not report their rows to it. Write weighs = True in the class.",
    )
    with case("In a simulated run with unequal shards:"):
        _trains(made(), rng)
    return "Each row counts once, in combine and in a run with unequal shards."


def _trains(aggregator: ps.Aggregator, rng: np.random.Generator) -> None:
    """Refuse an aggregator unless a run with it takes the same steps as gradient descent on all rows."""
    data = ps.datasets.synthetic(rows=120, features=4, classes=3, noise=1.0, seed=drawn_seed(rng), dtype="float64")
    sizes = rng.permutation([len(data.X) - 25, 16, 9]).tolist()
    problem = shares.Cut(ps.SoftmaxRegression(data.X, data.y), sizes)
    config = ps.Config(workers=3, steps=4, batch_size=None, optimizer=ps.SGD(lr=0.3), aggregator=aggregator)
    run = ps.train(problem, config, engine=ps.Simulated())
    alone = shares.plain_loop(problem, problem.init(np.random.default_rng(0)), config.steps, 0.3)
    far = shares.distance(run.params, alone)
    refuse_if(not far < 1e-9, f"with shards of {sizes} rows, the parameters differ by {far:.2g} from the loop's.")


def _mean(rows: Array) -> Array:
    return np.asarray(rows.sum(axis=0) / max(len(rows), 1))


def _combines(aggregator: ps.Aggregator, gradients: list[Tensors], rows: list[int], wanted: Tensors) -> None:
    """Refuse an aggregator unless its result is right, belongs to the caller alone, and nothing it is given changes."""
    kept, given = copy.deepcopy(gradients), _pushed(gradients, rows)
    got = unaided(aggregator.combine, given)
    _is_close(got, wanted)
    refuse_if([one.rows for one in given] != rows, "the list of contributions was changed. Do not change it.")
    first = {name: np.array(x) for name, x in got.items()}
    backwards = aggregator.combine(_pushed([_negated(one) for one in kept], rows))
    _is_close(backwards, _negated(wanted))
    refuse_if(distance(got, first), "a second call changed the first result. Make new arrays.")
    _overwrite(got)
    changed = any(
        not same_bits(one[name], x) for one, old in zip(gradients, kept, strict=True) for name, x in old.items()
    )
    refuse_if(changed, "a worker's gradient was changed, or is a part of the result. Make a new array.")


def _pushed(gradients: list[Tensors], rows: list[int]) -> list[ps.Contribution]:
    return [ps.Contribution(i, 3, 3, g, rows=n) for i, (g, n) in enumerate(zip(gradients, rows, strict=True))]


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
    "Each piece's gradient is a mean over its rows. How did exercise split.3 add means?",
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
        refuse_if(
            not far <= 1e-9 * np.abs(g).max(), f"{name!r} differs from the gradient of all the rows by {far:.3g}."
        )
