"""The interval of a mean, ``mean, half = lab.interval(points)``: how far it might move with other seeds."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

SHARE = 0.95
"""The share of such intervals that contain the true mean, if the values are drawn from a normal distribution."""


class Interval(NamedTuple):
    """A mean, and half the length of the interval around it; arrays if there are several means."""

    mean: float
    half: float


def interval(values: ArrayLike) -> Interval:
    """The mean along the first axis, and half its 95 % interval: t s / √n, Student's t with n − 1 degrees of freedom.

    ValueError for fewer than two values. Source: Student 1908, "The Probable Error of a Mean".

    >>> mean, half = interval([1.0, 2.0, 3.0, 4.0, 5.0])
    >>> print(f"{mean} ± {half:.3f}")
    3.0 ± 1.963
    """
    from scipy.special import stdtrit  # comes with scikit-learn

    x: Any = np.asarray(values, float)
    if x.ndim == 0 or len(x) < 2:
        raise ValueError(f"An interval needs two values or more; got {values!r}.")
    t = float(stdtrit(len(x) - 1, (1 + SHARE) / 2))
    return Interval(x.mean(axis=0), t * x.std(axis=0, ddof=1) / len(x) ** 0.5)
