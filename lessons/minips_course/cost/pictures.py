"""Pictures of the times of calls, of lines fitted to these times, and of a step's predicted and measured times."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, LogLocator, NullFormatter

from minips.cost import Calibration, Comparison
from minips.lab.plots import LOOKS, MEASURED, PREDICTED, legend_above

Calls = Mapping[int, Sequence[float]]
"""Maps a size in bytes to the seconds of several calls."""


def draw_calls(calls: Calls) -> None:
    """Plot a dot for each call, and the median for each size."""
    ax = _by_size()
    for size, seconds in calls.items():
        ax.plot([size] * len(seconds), 1e6 * np.array(seconds), "o", color=LOOKS[5].colour, alpha=0.5)
    ax.plot([*calls], 1e6 * _medians(calls), "_", color="black", markersize=16, label="median")
    ax.legend(loc="upper left")
    pyplot.show()


def draw_fits(calls: Calls, lines: Mapping[str, tuple[float, float]]) -> None:
    """Plot the median for each size, and named lines, each given as fixed seconds and seconds for each byte."""
    ax, grid = _by_size(), np.geomspace(min(calls), max(calls), 80)
    ax.plot([*calls], 1e6 * _medians(calls), "o", color="black", label="medians")
    for look, (name, (fixed, each)) in zip(LOOKS, lines.items(), strict=False):
        seconds = fixed + each * grid
        shown = np.where(seconds > 0, 1e6 * seconds, np.nan)
        ax.plot(grid, shown, color=look.colour, linestyle=look.dash, label=name)
    ax.legend(loc="upper left")
    pyplot.show()


def draw_ratios(ratios: Mapping[str, Mapping[int, Sequence[float]]]) -> None:
    """Plot the ratio of predicted to measured time: a mark for each series of calls, by name and by size."""
    ax = _by_size()
    ax.axhline(1, color="black", linewidth=1)
    for look, (name, of_size) in zip((MEASURED, LOOKS[0]), ratios.items(), strict=False):
        x = np.repeat([*of_size], [len(series) for series in of_size.values()])
        y = np.concatenate([*of_size.values()])
        ax.plot(x, y, look.marker, color=look.colour, alpha=0.7, label=name)
    ax.yaxis.set_major_locator(FixedLocator([0.3, 0.5, 0.7, 0.85, 1, 1.2, 1.4, 2, 3]))
    ax.set(ylabel="predicted / measured")
    legend_above(ax, 2)
    pyplot.show()


def draw_calibration(calibration: Calibration, values: int) -> None:
    """Draw a bar for each stage that takes any time: its calibrated time for a tensor with this many values."""
    lines = {f"worker {name}": line for name, line in calibration.worker.items()}
    lines |= {f"server {name}": line for name, line in calibration.server.items()}
    micros = {name: 1e6 * line.at(values) for name, line in lines.items()}
    shown = {name: micro for name, micro in micros.items() if micro >= 0.5}
    _, ax = pyplot.subplots(figsize=(7, 2.8), layout="constrained")
    bars = ax.barh([*shown], [*shown.values()], color=LOOKS[0].colour)
    ax.bar_label(bars, fmt="%.0f", padding=3)
    ax.invert_yaxis()
    ax.margins(x=0.1)
    ax.set(xlabel=f"time for {values} values, by the calibration (µs)")
    pyplot.show()


def draw_comparison(comparison: Comparison) -> None:
    """Draw the predicted and the measured time of each span and of the whole step, on a logarithmic axis."""
    rows = [row for row in comparison.counted if row[1] and row[2]]
    names = [*(name for name, _, _ in rows[:-1]), "whole step"]
    _, ax = pyplot.subplots(figsize=(7, 3.8), layout="constrained")
    for y, (_, predicted, measured) in enumerate(rows):
        ax.plot([1e3 * predicted, 1e3 * measured], [y, y], color="dimgrey", linewidth=2, zorder=1)
    series = {"predicted": [row[1] for row in rows], "measured": [row[2] for row in rows]}
    for look, (label, seconds) in zip((PREDICTED, MEASURED), series.items(), strict=True):
        style: dict[str, Any] = {"marker": look.marker, "color": look.colour, "linestyle": "", "markersize": 8}
        ax.plot([1e3 * each for each in seconds], range(len(rows)), label=label, **style)
    ax.axhline(len(rows) - 1.5, color="black", linewidth=0.8, linestyle=":")
    ax.set_yticks(range(len(rows)), names)
    ax.invert_yaxis()
    ax.grid(axis="x", alpha=0.3)
    ax.set(xscale="log", xlabel="time (ms)")
    ax.xaxis.set_major_formatter("{x:g}")
    legend_above(ax, 2)
    pyplot.show()


def _medians(calls: Calls) -> Any:
    return np.median([*calls.values()], axis=1)


def _by_size() -> Axes:
    """Return axes, both logarithmic, for the time of calls against their size."""
    _, ax = pyplot.subplots(figsize=(6.4, 3.2), layout="constrained")
    ax.set(xscale="log", yscale="log", xlabel="size of the message (bytes)", ylabel="time of a call (µs)")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.grid(alpha=0.3)
    return ax
