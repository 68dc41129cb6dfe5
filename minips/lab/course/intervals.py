"""The confidence interval of a mean over seeds: ``mean, half = lab.interval(points)``."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

SHARE = 0.95
"""The share of all such intervals that contain the true mean, if the values come from a normal distribution."""


class Half(float):
    """Half of an interval's length. Text of it is never zero: it has a digit that is not, or says that all values are
    equal, which does not show how much others would vary.
    """

    values = 0
    """The number of values."""

    def __format__(self, spec: str) -> str:
        text = super().__format__(spec)
        if not self:
            return f"– ({self.values} equal)"
        if any(digit in text for digit in "123456789"):
            return text
        return f"{100 * self:.1g}%" if spec.endswith("%") else f"{float(self):.1g}"


class Interval(NamedTuple):
    """A mean, and half the length of the interval around it; arrays if there are several means."""

    mean: float
    half: float


def interval(values: ArrayLike) -> Interval:
    """The mean along the first axis, and half its 95 % interval: t s / √n (Student's t, n − 1 degrees of freedom).

    ValueError for fewer than two values. If n trials all have the same outcome, at most 3/n of all trials have another
    (the rule of three, 95 %). Source: Student 1908, "The Probable Error of a Mean".

    >>> mean, half = interval([1.0, 2.0, 3.0, 4.0, 5.0])
    >>> print(f"{mean} ± {half:.3f}")
    3.0 ± 1.963
    >>> "{:.2f} ± {:.2f}".format(*interval([1.0, 1.001, 1.002])), "{:.2f} ± {:.2f}".format(*interval([1.0, 1.0, 1.0]))
    ('1.00 ± 0.002', '1.00 ± – (3 equal)')
    """
    from scipy.special import stdtrit  # scikit-learn installs scipy

    x: Any = np.asarray(values, float)
    if x.ndim == 0 or len(x) < 2:
        raise ValueError(f"An interval needs two values or more; got {values!r}.")
    t = float(stdtrit(len(x) - 1, (1 + SHARE) / 2))
    spread = np.where(x.min(axis=0) == x.max(axis=0), 0.0, x.std(axis=0, ddof=1))  # equal values, without rounding
    halves = t * spread / len(x) ** 0.5
    if not halves.ndim:
        halves = Half(halves)
        halves.values = len(x)
    return Interval(x.mean(axis=0), halves)
