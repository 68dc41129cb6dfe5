"""The exercises of "Trust nobody"."""

import copy
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import Refused, asks, case, conforms, distance, drawn_seed, refuse_if
from minips.stage import Tensors
from minips.testing.base import same_bits
from minips_course.arrays import copied, drawn_like, drawn_tensors
from minips_course.trust.traitors import Traitors

BROKEN_BELOW = 0.5


@asks(
    "trust.1",
    "Compute a gradient's length over all its tensors together: the root of the sum of all their squared values.",
    "limit = np.median(lengths). Multiply each gradient that is longer by limit / length; leave the others alone.",
    "A length may be zero. Only one of the two cases divides by a length: can that length be zero?",
)
def clipped(aggregator: Any, rng: np.random.Generator) -> str:
    """Shorten each worker's gradient to at most the median length, and then average."""
    conforms(aggregator, ps.Aggregator, "Clipped()")
    kept: list[tuple[Tensors, Tensors]] = []
    for trial in range(24):
        n = 1 + trial if trial < 3 else int(rng.integers(4, 14))
        shaped = drawn_tensors(rng, int(rng.integers(1, 5)), ["f8", "f4"][trial % 2])
        factors = 10.0 ** rng.uniform(-2, 4, n)
        share_not_zero = (1.0, 0.8, 0.0, 1.0)[trial % 4]
        factors[1:] *= rng.random(n - 1) < share_not_zero
        factors = rng.permutation(factors)
        grads = [{name: (x * f).astype(x.dtype) for name, x in drawn_like(shaped, rng).items()} for f in factors]
        kept.append(_clipped(aggregator, grads, rng))
    changed = any(not same_bits(got[name], then[name]) for got, then in kept for name in then)
    refuse_if(changed, "A later call wrote into arrays that an earlier call had returned. Make new ones in each call.")
    traitor, seed = int(rng.integers(5)), drawn_seed(rng)
    accuracy, plain = (_accuracy((traitor,), garbage, aggregator=one, seed=seed) for one in (aggregator, ps.Mean()))
    refuse_if(accuracy < 0.8, f"Worker {traitor} sent garbage (seed {seed}), and the accuracy was {accuracy:.2f}.")
    return (
        f"The formula holds; with garbage from worker {traitor}: accuracy {accuracy:.2f}, the plain mean {plain:.2f}."
    )


def _clipped(aggregator: Any, grads: list[Tensors], rng: np.random.Generator) -> tuple[Tensors, Tensors]:
    """Refuse an aggregator that combines these gradients wrongly. Return what it returned, and a copy."""
    workers = rng.choice(100, size=len(grads), replace=False).tolist()
    pushes = [ps.Contribution(i, 7, 7, copied(g)) for i, g in zip(workers, grads, strict=True)]
    lengths = [float(np.sqrt(sum(np.square(x, dtype=float).sum() for x in g.values()))) for g in grads]
    limit = float(np.median(lengths))
    scales = [1 if length <= limit else limit / length for length in lengths]
    of_lengths = f"lengths {', '.join(f'{length:.3g}' for length in lengths)}, whose median is {limit:.3g}"
    with case(f"With {len(grads)} gradients of {of_lengths}:"):
        got = aggregator.combine(pushes)
        refuse_if({*got} != {*grads[0]}, f"the names of the result are {[*got]}, expected {[*grads[0]]}.")
        for name, x in grads[0].items():
            pieces = [scale * g[name].astype(float) for scale, g in zip(scales, grads, strict=True)]
            far = distance({name: got[name]}, {name: np.mean(pieces, axis=0)})
            near = far <= (1e-9 if x.dtype == np.float64 else 1e-5) * max(limit, 1e-3)
            refuse_if(not near, f"{name!r} is off the mean of the shortened ones by {far:.3g}.")
        for push, before in zip(pushes, grads, strict=True):
            alike = all(same_bits(push.gradients[name], x) for name, x in before.items())
            refuse_if(not alike, f"it changed the gradient of worker {push.worker}.")
    return got, copied(got)


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
