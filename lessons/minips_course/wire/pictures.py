"""A picture: formats side by side."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from numpy.typing import NDArray

from minips.lab.plots import LOOKS
from minips_course import gone

__getattr__ = gone(__name__)


def draw_formats(extra: Mapping[str, int], times: Mapping[str, Sequence[NDArray[np.float64]]]) -> None:
    """Draw each format's overhead in bytes (left), and its microseconds for a small and a large array (right)."""
    _, (left, right) = pyplot.subplots(1, 2, figsize=(9.4, 3), layout="constrained", sharey=True)
    left.plot([*extra.values()], [*extra], LOOKS[0].marker, color=LOOKS[0].colour)
    for name, more in extra.items():
        left.annotate(f"{more:,}", (more, name), xytext=(6, 0), textcoords="offset points", va="center")
    left.set(xlabel="bytes more than the small array, logarithmic", xscale="log")
    left.margins(x=0.35, y=0.1)
    left.invert_yaxis()
    for number, (look, label) in enumerate(zip(LOOKS, ("small array", "large array"), strict=False)):
        _quartiles(right, {name: pair[number] for name, pair in times.items()}, look.marker, look.colour, label)
    right.set(xlabel="time to write, send and read (µs), logarithmic", xscale="log")
    right.legend()
    for ax in (left, right):
        ax.grid(axis="x", alpha=0.3)
    pyplot.show()


def _quartiles(ax: Axes, times: Mapping[str, NDArray[np.float64]], marker: str, colour: str, label: str) -> None:
    """Draw a mark at each median, and a line from the lower to the upper quartile."""
    low, middle, high = np.quantile([*times.values()], [0.25, 0.5, 0.75], axis=1)
    around = np.array([middle - low, high - middle])
    ax.errorbar(middle, np.arange(len(times)), xerr=around, fmt=marker, color=colour, label=label)
