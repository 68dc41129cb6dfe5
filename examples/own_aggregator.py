"""An aggregator of your own: the geometric median, which barely moves if one worker sends garbage.

On the command line: ``minips --load own_aggregator.py train --aggregator geometricmedian``.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

import minips as ps


@ps.register
@dataclass(frozen=True)
class GeometricMedian(ps.Aggregator):
    """The point whose sum of distances to all gradients is least, from ten rounds of Weiszfeld's iteration (1937)."""

    name = "geometricmedian"

    def combine(self, contributions: Sequence[ps.Contribution]) -> ps.Tensors:
        stacks = {name: np.stack([one.gradients[name] for one in contributions]) for name in contributions[0].gradients}
        weights = np.full(len(contributions), 1 / len(contributions))
        for _ in range(10):
            squares = np.full(len(weights), 1e-12)
            for x in stacks.values():
                squares += np.square(x - np.tensordot(weights, x, 1)).reshape(len(x), -1).sum(axis=1)
            weights = squares**-0.5 / (squares**-0.5).sum()
        return {name: np.asarray(np.tensordot(weights, x, 1), x.dtype) for name, x in stacks.items()}


if __name__ == "__main__":
    ps.testing.check(GeometricMedian())
    X, y, X_new, y_new = ps.datasets.digits()
    X[: len(X) // 5] *= -100  # the first of five workers has wrong rows
    for aggregator in ps.Mean(), ps.Median(), GeometricMedian():
        config = ps.Config(workers=5, steps=60, aggregator=aggregator)
        run = ps.train(ps.SoftmaxRegression(X, y, X_new, y_new), config, engine="threads")
        print(f"accuracy {run.accuracy:.3f} with {aggregator}")
