"""The lesson's measurements: gradients of unequal shards, their distance, and what a row counts in their mean."""

from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np

import minips as ps
from minips import lab
from minips.stage import Tensors
from minips_course.arrays import flat


class Cut(ps.SoftmaxRegression):
    """A problem whose workers get shards of these sizes: rows in their order or, with a ``seed``, in a random one."""

    def __init__(self, problem: ps.SoftmaxRegression, sizes: Sequence[int], seed: int | None = None) -> None:
        super().__init__(problem.X, problem.y)
        count = problem.rows
        order = np.arange(count) if seed is None else np.random.default_rng(seed).permutation(count)
        self.parts = np.split(order, np.cumsum(sizes)[:-1])

    def shard(self, worker: int, workers: int) -> Self:
        return self.subset(self.parts[worker])

    def pushes(self, params: Tensors) -> list[ps.Contribution]:
        """Each worker's gradient with its number of rows, as the server gets them."""
        gradients = [self.gradient(params, part) for part in self.parts]
        return [ps.Contribution(i, 0, 0, g, rows=len(self.parts[i])) for i, g in enumerate(gradients)]

    def row_counts(self, params: Tensors, mean: Tensors) -> list[float]:
        """For each shard: how much one of its rows counts in a mean of the gradients, 1 if as much as in the gradient
        of all rows. Least squares find each gradient's weight in the mean.
        """
        pushed = self.pushes(params)
        gradients = np.stack([flat(one.gradients) for one in pushed], axis=1)
        weights = np.linalg.lstsq(gradients, flat(mean), rcond=None)[0]
        return [float(weight * self.rows / one.rows) for weight, one in zip(weights, pushed, strict=True)]


def distance(a: Tensors, b: Tensors) -> float:
    """The length of the difference divided by the length of ``b``, over the numbers of all arrays."""
    return float(np.linalg.norm(flat(a) - flat(b)) / np.linalg.norm(flat(b)))


def bits(tensors: Tensors) -> bytes:
    """The bytes of all arrays: equal if every bit is."""
    return b"".join(x.tobytes() for x in tensors.values())


def plain_loop(problem: ps.Problem, params: Tensors, steps: int, lr: float) -> Tensors:
    """Gradient descent on all rows, without workers."""
    for _ in range(steps):
        gradient = problem.gradient(params)
        params = {name: p - lr * gradient[name] for name, p in params.items()}
    return params


def table_of(rows: Mapping[int, Sequence[Sequence[float]]]) -> str:
    """A table of the distances for each size of the largest shard: of the plain mean and of the learner's."""
    lines = ["largest shard   plain mean differs by   yours differs by"]
    for largest, ways in rows.items():
        plain, yours = np.round(ways, 12)  # without errors of rounding
        middle, half = lab.interval(plain)
        lines.append(f"{largest:13}   {middle:13.3f} ± {half:.3f}   {yours.mean():16.3f}")
    return "\n".join(lines)
