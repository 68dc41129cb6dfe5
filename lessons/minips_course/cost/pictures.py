"""Pictures of the times of calls, and of a step's predicted and measured times."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import pyplot
from matplotlib.ticker import LogLocator, NullFormatter

from minips.lab.plots import LOOKS, MEASURED, PREDICTED
from minips_course import gone

__getattr__ = gone(__name__)


def draw_calls(calls: Mapping[int, Sequence[float]], fixed_s: float, each_s: float) -> None:
    """Plot a dot for each call, the median for each size, and a line."""
    _, ax = pyplot.subplots(figsize=(6.4, 3.2), layout="constrained")
    for size, seconds in calls.items():
        ax.plot([size] * len(seconds), 1e3 * np.array(seconds), "o", color=LOOKS[5].colour, alpha=0.5)
    ax.plot([*calls], 1e3 * np.median([*calls.values()], axis=1), "_", color="black", markersize=16, label="median")
    grid = np.geomspace(min(calls), max(calls), 80)
    ms = 1e3 * (fixed_s + each_s * grid)
    ax.plot(grid, np.where(ms > 0, ms, np.nan), color=LOOKS[0].colour, label="the line")
    ax.set(xscale="log", yscale="log", xlabel="size of the message (bytes)", ylabel="time of a call (ms)")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.grid(alpha=0.3)
    ax.legend(loc="upper left")
    pyplot.show()


def draw_steps(measured: Mapping[str, Sequence[float]], least_s: float, most_s: float) -> None:
    """Plot a mark for each run's seconds per step, by name, and a band between two predictions."""
    _, ax = pyplot.subplots(figsize=(7, 0.9 + 0.55 * len(measured)), layout="constrained")
    band = ax.axvspan(1e3 * least_s, 1e3 * most_s, facecolor=PREDICTED.colour, alpha=0.3, hatch="//")
    band.set_label("predicted: from the least to the most")
    for y, seconds in enumerate(measured.values()):
        label = None if y else "measured, each run"
        ax.plot(1e3 * np.array(seconds), [y] * len(seconds), MEASURED.marker, color=MEASURED.colour, ms=8, label=label)
    ax.set_yticks(range(len(measured)), [*measured])
    ax.set(xlabel="time of a step (ms)", xlim=(0, None), ylim=(len(measured) - 0.5, -0.5))
    ax.grid(axis="x", alpha=0.3)
    ax.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    pyplot.show()
