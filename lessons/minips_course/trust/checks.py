"""The exercises of "Trust nobody"."""

import copy
import dataclasses
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

import minips as ps
from minips.lab.course.exercises import Refused, asks, case, drawn_seed, is_own, refuse_if
from minips.stage import Tensors
from minips.testing.base import same_bits
from minips_course.arrays import copied, drawn_like, drawn_tensors
from minips_course.trust.traitors import Traitors

BROKEN_BELOW = 0.5


@asks(
    "trust.3",
    "Make a table of squared distances first: of each gradient to each other one, over all tensors together. "
    "one.gradients maps names to arrays.",
    "Sort the distances of one gradient. The first one, 0, is its distance to itself. How many of the next ones count, "
    "with n = len(contributions) and f = self.bad?",
    "Return the whole gradient with the smallest sum: contributions[index].gradients. np.argmin finds the index.",
)
def krum(aggregator: Any, rng: np.random.Generator) -> str:
    """Write Krum: return the one gradient that has the smallest sum of squared distances to its nearest others."""
    is_own(aggregator, ps.Aggregator, "MyKrum(bad=1)")
    refuse_if(isinstance(aggregator, ps.Krum), "It inherits from Krum. Write combine yourself.")
    with _krum_refused():
        for trial in range(60):
            bad = int(rng.integers(0, 4)) if trial else 1
            n = 2 * bad + 3 + int(rng.integers(0, 4)) if trial > 1 else 7 - 2 * trial
            mine = _set_up(aggregator, bad)
            with case(f"With {n} gradients and bad={bad}:"):
                for grads in (_drawn(n, bad, trial + k, rng) for k in range(2)):
                    _chooses(mine, grads, bad, rng)
        traitor, seed = int(rng.integers(5)), drawn_seed(rng)
        mine = _set_up(aggregator, 1)
        accuracy, plain = (_accuracy((traitor,), garbage, aggregator=one, seed=seed) for one in (mine, ps.Mean()))
    refuse_if(accuracy < 0.8, f"Worker {traitor} sent garbage (seed {seed}), and the accuracy was {accuracy:.2f}.")
    return (
        f"It chooses the gradient with the nearest others; with garbage from worker {traitor}: accuracy "
        f"{accuracy:.2f}, the plain mean {plain:.2f}."
    )


@contextmanager
def _krum_refused() -> Iterator[None]:
    """Refuse an answer that calls minips' own Krum."""

    def combine(*_: Any) -> Tensors:
        raise Refused("It calls ps.Krum. Compute the distances yourself.")

    with patch.object(ps.Krum, "combine", combine):
        yield


def _set_up(aggregator: Any, bad: int) -> Any:
    """Return the aggregator, set up for so many liars."""
    try:
        return dataclasses.replace(aggregator, bad=bad)
    except TypeError:
        raise Refused("Expected a class with the field bad, as in the code you were given.") from None


def _drawn(n: int, bad: int, trial: int, rng: np.random.Generator) -> list[Tensors]:
    """Draw gradients, of which ``bad`` are lies: far away, zeros, or copies of one that is not far away."""
    shaped = drawn_tensors(rng, int(rng.integers(2, 5)), ["f8", "f4"][trial % 2])
    scales = {name: 10 ** rng.uniform(-0.5, 0.5) for name in shaped}
    grads: list[Tensors] = []
    for worker in range(n):
        drawn = {name: x * scales[name] for name, x in drawn_like(shaped, rng).items()}
        if worker < bad and trial % 3:
            drawn = {name: 0 * x for name, x in drawn.items()} if trial % 3 == 1 else grads[0] if grads else drawn
        elif worker < bad:
            drawn = {name: 100 * x for name, x in drawn.items()}
        grads.append({name: np.asarray(x, shaped[name].dtype) for name, x in drawn.items()})
    return [copied(grads[index]) for index in rng.permutation(n)]


def _chooses(aggregator: Any, grads: list[Tensors], bad: int, rng: np.random.Generator) -> None:
    """Refuse an aggregator that returns another gradient than one with the smallest sum."""
    flat = [np.concatenate([np.ravel(x).astype(float) for x in g.values()]) for g in grads]
    distances = np.array([[np.square(a - b).sum() for b in flat] for a in flat])
    sums = np.sort(distances, axis=1)[:, 1 : len(grads) - bad - 1].sum(axis=1)
    workers = rng.choice(100, size=len(grads), replace=False).tolist()
    pushes = [ps.Contribution(i, 7, 7, copied(g)) for i, g in zip(workers, grads, strict=True)]
    got = aggregator.combine(pushes)
    for push, before in zip(pushes, grads, strict=True):
        alike = all(same_bits(push.gradients[name], x) for name, x in before.items())
        refuse_if(not alike, f"it changed the gradient of worker {push.worker}.")
    refuse_if({*got} != {*grads[0]}, f"the names of the result are {[*got]}, expected {[*grads[0]]}.")
    equal = [all(same_bits(np.asarray(got[name]), x) for name, x in g.items()) for g in grads]
    refuse_if(not any(equal), "the result is not the whole gradient of one worker.")
    chosen, best = float(sums[equal].min()), float(sums.min())
    refuse_if(
        chosen > best * (1 + 1e-4),
        f"it chose the gradient of worker {workers[equal.index(True)]}, whose {len(grads) - bad - 2} smallest squared "
        f"distances add up to {chosen:.4g}. Those of worker {workers[int(sums.argmin())]} add up to {best:.4g}.",
    )


def _accuracy(traitors: tuple[int, ...], lie: Callable[..., Tensors], **fields: Any) -> float:
    """Return the accuracy on held-out digits after a run of five workers, some of which are traitors."""
    problem = Traitors(*ps.datasets.digits(), traitors=traitors, lie=lie)
    return float(ps.train(problem, ps.Config(workers=5, steps=60, **fields), engine=ps.Threads()).accuracy or 0)


def garbage(part: Traitors, params: Tensors, gradient: Tensors) -> Tensors:
    """Return noise a hundred times as large as any gradient."""
    return {name: 100 * part.rng.normal(size=p.shape) for name, p in params.items()}


@asks(
    "trust.2",
    "The median of five values is the third in order. Two traitors that agree decide which of the three honest values "
    "that is: the lowest, or the highest.",
    "In each coordinate, push to the side that slows learning down: against the true gradient. Any value that is far "
    "enough on that side will do.",
    "Your traitors must agree on the side. Gradients of 8 rows are noisy; part.truth(params), the gradient of all rows "
    "of a traitor, is less noisy. np.sign gives the side.",
    "Return a dictionary like gradient: for each name an array of the same shape, with a large value everywhere.",
    beside=True,
)
def break_the_median(lie: Any, rng: np.random.Generator) -> str:
    """Break the median: make two traitors out of five workers lower the accuracy on the digits below one half."""
    if not callable(lie) or len(inspect.signature(lie).parameters) != 3:
        raise Refused(f"Expected your function my_lie(part, params, gradient), got {lie!r}.")
    _tells(lie, rng)
    said = []
    for _ in range(3):
        seed, (one, other) = drawn_seed(rng), sorted(rng.choice(5, 2, replace=False).tolist())
        accuracy = _accuracy((one, other), lie, batch_size=8, aggregator=ps.Median(), seed=seed)
        who, asked = f"With traitors {one} and {other} (seed {seed})", f"less than {BROKEN_BELOW:.2f} is asked for"
        refuse_if(accuracy >= BROKEN_BELOW, f"{who} the median still reads {accuracy:.2f} of the digits; {asked}.")
        said.append(f"{who} the model reads {accuracy:.2f} of the digits.")
    return " ".join([*said, "The median never left the honest values."])


class _Net(Traitors, ps.MLP):
    """A net with a traitor: its tensors have other names and shapes than those of a softmax regression."""


def _tells(lie: Any, rng: np.random.Generator) -> None:
    """Refuse a lie unless it is like a gradient, and leaves its arguments as they are."""
    for rows in (ps.datasets.digits(), ps.datasets.synthetic(rows=60, features=5, classes=3, seed=drawn_seed(rng))):
        for problem in (Traitors, _Net):
            worker = int(rng.integers(5))
            part = problem(*rows, traitors=(worker,), lie=lie).shard(worker, 5)
            params = drawn_like(part.init(rng), rng)
            gradient = part.truth(params, np.arange(8))
            given = copy.deepcopy((params, gradient))
            sizes = ", ".join(f"{name} {list(g.shape)}" for name, g in gradient.items())
            with case(f"With a gradient of {sizes}:"):
                told = lie(part, *given)
                for name, g in gradient.items():
                    is_like = np.shape(told[name]) == g.shape and np.isfinite(told[name]).all()
                    refuse_if(not is_like, f"the lie's {name!r} must be a finite array of the shape {g.shape}.")
                for what, now, before in zip(("parameters", "gradient"), given, (params, gradient), strict=True):
                    alike = all(same_bits(now[name], x) for name, x in before.items())
                    refuse_if(not alike, f"the lie changed the {what} that it got. Make new arrays.")
