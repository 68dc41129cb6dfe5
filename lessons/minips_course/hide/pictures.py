"""The picture of concurrent calls."""

from collections.abc import Mapping

import numpy as np
from matplotlib import pyplot

from minips.lab.measure.turns import Spread
from minips.lab.plots import LOOKS
from minips.stage import Array
from minips_course import gone

__getattr__ = gone(__name__)


def draw_calls(took: Mapping[str, Array]) -> None:
    """Draw the times of one call and of ten concurrent calls, for each message size: medians and quartiles of turns."""
    _, axes = pyplot.subplots(1, len(took), figsize=(9, 1.9), layout="constrained")
    for ax, (size, seconds) in zip(axes, took.items(), strict=True):
        middle, low, high = np.array([Spread.of(column) for column in np.transpose(seconds)]).T
        error = (middle - low, high - middle)
        ax.barh(["one call", "ten calls"], middle, xerr=error, capsize=3, **LOOKS[0].area)
        ax.set(xlabel="time (s)", title=f"{size} in each", xlim=(0, 11 * middle[0]))
        ax.invert_yaxis()
