"""The exercises of "Trust nobody"."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import Refused, asks, case, conforms, distance, drawn_seed, refuse_if
from minips.stage import Tensors
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
    for trial in range(12):
        n = int(rng.integers(2, 9))
        factors = 10.0 ** rng.uniform(-2, 4, n)
        share_not_zero = (1.0, 0.5, 0.0)[trial % 3]
        factors[1:] *= rng.random(n - 1) < share_not_zero
        grads: list[Tensors] = [{"w": f * rng.normal(size=(3, 4)), "b": f * rng.normal(size=2)} for f in factors]
        got = aggregator.combine([ps.Contribution(i, 0, 0, g) for i, g in enumerate(grads)])
        lengths = [float(np.sqrt(sum(np.square(x).sum() for x in g.values()))) for g in grads]
        limit = float(np.median(lengths))
        scales = [1 if length <= limit else limit / length for length in lengths]
        of_lengths = f"lengths {', '.join(f'{length:.3g}' for length in lengths)}, whose median is {limit:.3g}"
        with case(f"With {n} gradients of {of_lengths}:"):
            for name in ("w", "b"):
                pieces = [scale * g[name] for scale, g in zip(scales, grads, strict=True)]
                far = distance(got, {name: np.mean(pieces, axis=0)})
                near = far <= 1e-9 * max(limit, 1)
                refuse_if(not near, f"{name!r} is off the mean of the shortened ones by {far:.3g}.")
    traitor, seed = int(rng.integers(5)), drawn_seed(rng)
    accuracy, plain = (_accuracy((traitor,), garbage, aggregator=one, seed=seed) for one in (aggregator, ps.Mean()))
    refuse_if(accuracy < 0.8, f"Worker {traitor} sent garbage (seed {seed}), and the accuracy was {accuracy:.2f}.")
    return (
        f"The formula holds; with garbage from worker {traitor}: accuracy {accuracy:.2f}, the plain mean {plain:.2f}."
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
)
def break_the_median(lie: Any, rng: np.random.Generator) -> str:
    """Break the median: make two traitors out of five workers lower the accuracy on the digits below one half."""
    if not callable(lie) or len(inspect.signature(lie).parameters) != 3:
        raise Refused(f"Expected your function my_lie(part, params, gradient), got {lie!r}.")
    seed, (one, other) = drawn_seed(rng), sorted(rng.choice(5, 2, replace=False).tolist())
    accuracy = _accuracy((one, other), lie, batch_size=8, aggregator=ps.Median(), seed=seed)
    who, asked = f"With traitors {one} and {other} (seed {seed})", f"less than {BROKEN_BELOW:.2f} is asked for"
    refuse_if(accuracy >= BROKEN_BELOW, f"{who} the median still reads {accuracy:.2f} of the digits; {asked}.")
    return f"{who} the model reads {accuracy:.2f} of the digits. The median never left the honest values."
