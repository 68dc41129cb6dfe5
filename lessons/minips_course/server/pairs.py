"""Two runs of one seed."""

import numpy as np

from minips.stage import Tensors


def apart(one: Tensors, other: Tensors) -> float:
    """Return the largest difference between two runs' parameters, as a share of the largest parameter.

    >>> apart({"w": np.array([1.0, -4.0])}, {"w": np.array([1.0, -3.0])})
    0.25
    """
    largest = max(float(np.abs(x).max()) for x in one.values())
    return max(float(np.abs(x - other[name]).max()) for name, x in one.items()) / largest
