"""Pictures of gradients' ages, shares of digits, swings, and the borders of stable learning rates."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes

from minips.lab.course.intervals import interval
from minips.lab.plots import LOOKS, legend_above
from minips.stage import Array


def _new(width: float, height: float) -> Axes:
    ax = pyplot.subplots(figsize=(width, height), layout="constrained")[1]
    ax.grid(alpha=0.3)
    return ax


def draw_ages(ages: Mapping[str, Sequence[int]]) -> None:
    """Plot, for each run, the share of its gradients that have each age."""
    ax = _new(7.2, 2.8)
    for place, ((name, versions), look) in enumerate(zip(ages.items(), LOOKS, strict=False)):
        at, counts = np.unique(versions, return_counts=True)
        aside = 0.4 * (place - (len(ages) - 1) / 2)
        ax.bar(at + aside, 100 * counts / counts.sum(), 0.4, label=name, **look.area)
    ax.set(xlabel="age of the gradient (versions)", ylabel="share of the gradients (%)")
    ax.legend()
    pyplot.show()


def draw_shares(shares: Mapping[str, Array]) -> None:
    """Draw each rule's mean percentage for each digit (column) over its runs (rows), with 95 % intervals."""
    ax = _new(9, 3)
    for place, ((name, percent), look) in enumerate(zip(shares.items(), LOOKS, strict=False)):
        mean, half = interval(percent)
        width = 0.8 / len(shares)
        at = np.arange(percent.shape[1]) + width * (place - (len(shares) - 1) / 2)
        ax.bar(at, mean, width, yerr=half, error_kw={"lw": 0.8}, label=name, **look.area)
    ax.set_xticks(range(10))
    ax.set(xlabel="digit", ylabel="read correctly (%)", ylim=(0, 105))
    legend_above(ax, len(shares))
    pyplot.show()


def draw_swings(paths: Mapping[str, Sequence[float]]) -> None:
    """Plot the distance from the minimum after each push, for each label."""
    ax = _new(7.2, 2.8)
    for (label, path), look in zip(paths.items(), LOOKS, strict=False):
        ax.plot(path, markevery=5, markersize=5, label=label, **look.line)
    ax.axhline(0, color="black", lw=0.8)
    ax.set(xlabel="push", ylabel="distance from the minimum, x", ylim=(-3, 3))
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    pyplot.show()


def draw_borders(plain: Mapping[str, float], moving: Mapping[str, float]) -> None:
    """Draw each rule's border without momentum and with it, on a logarithmic axis."""
    ax = _new(7.2, 2.8)
    for place, ((label, borders), look) in enumerate(
        zip({"no momentum": plain, "momentum 0.9": moving}.items(), LOOKS, strict=False)
    ):
        for row, border in enumerate(borders.values()):
            ax.barh(row + 0.4 * (place - 0.5), border, 0.38, label=None if row else label, **look.area)
            ax.text(border * 1.07, row + 0.4 * (place - 0.5), f"{border:.2f}", va="center", fontsize=9)
    ax.set_yticks(range(len(plain)), list(plain))
    ax.invert_yaxis()
    ax.set(xscale="log", xlabel="largest stable lr · λ", xlim=(0.05, 8))
    ax.set_xticks([0.1, 0.3, 1, 3], ["0.1", "0.3", "1", "3"])
    ax.minorticks_off()
    legend_above(ax, 2)
    pyplot.show()
