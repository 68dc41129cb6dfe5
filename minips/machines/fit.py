"""Lines ``fixed + each · x`` seconds, fitted to timings in such a way that a few outliers do not matter."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np

from minips.stage import Value, option

Bound = Literal["low", "high"]


@dataclass(frozen=True)
class Line(Value):
    """A line of ``fixed_s + each_s · x`` seconds for x values, bytes or rows.

    Half of the fitted timings lie between ``low`` and ``high`` times the line's seconds. These factors reflect the
    machine's noise, and timings that do not lie on a straight line.

    >>> Line(1e-3, 1e-6).at(500)
    0.0015
    """

    fixed_s: float = option(0.0, "seconds whatever the size", unit="s")
    each_s: float = option(0.0, "seconds for each value, byte or row", unit="s")
    low: float = option(1.0, "the lower quartile, as a factor", minimum=0)
    high: float = option(1.0, "the upper quartile, as a factor", minimum=0)

    def at(self, x: float) -> float:
        """Return the seconds for x, never below zero."""
        return max(0.0, self.fixed_s + self.each_s * x)

    def bound(self, which: Bound) -> "Line":
        """Return the line of the lower or the upper quartile."""
        return self.times(self.low if which == "low" else self.high)

    def times(self, factor: float) -> "Line":
        """Return the line with ``factor`` times the seconds."""
        return replace(self, fixed_s=self.fixed_s * factor, each_s=self.each_s * factor)

    def less(self, *others: "Line") -> "Line":
        """Return this line minus the others; neither of the line's two parts falls below zero."""
        fixed = self.fixed_s - sum(other.fixed_s for other in others)
        each = self.each_s - sum(other.each_s for other in others)
        return replace(self, fixed_s=max(0.0, fixed), each_s=max(0.0, each))

    @classmethod
    def fit(cls, timings: Sequence[tuple[float, float]]) -> Self:
        """Fit a line through pairs of (x, seconds), several for each x.

        First, take the median m for each x. Then minimize the squared relative errors, ``Σ((fixed + each·x − m)/m)²``,
        with neither part below zero. So one slow timing does not move a median, and small sizes count as much as large
        ones. With a single x, the fixed part is the whole median; if all medians are zero, the result is the zero line.
        """
        x, y = np.array(timings, float).reshape(-1, 2).T
        sizes = np.unique(x)
        medians = np.array([np.median(y[x == size]) for size in sizes])
        if len(medians) and not medians.any():
            return cls()
        fixed, each = _least(sizes, np.maximum(medians, 1e-9))
        fitted = np.maximum(fixed + each * x, 1e-12)
        low, high = np.quantile(y / fitted, [0.25, 0.75]) if fixed + each > 0 else (1.0, 1.0)
        return cls(fixed, each, float(low), float(high))


def _least(
    x: "np.ndarray[tuple[int], np.dtype[np.float64]]", m: "np.ndarray[tuple[int], np.dtype[np.float64]]"
) -> tuple[float, float]:
    if len(x) == 1:
        return float(m[0]), 0.0
    (fixed, each), *_ = np.linalg.lstsq(np.stack([1 / m, x / m], axis=1), np.ones(len(m)), rcond=None)
    if fixed < 0:
        return 0.0, float((x / m).sum() / ((x / m) ** 2).sum())
    if each < 0:
        return float((1 / m).sum() / ((1 / m) ** 2).sum()), 0.0
    return float(fixed), float(each)
