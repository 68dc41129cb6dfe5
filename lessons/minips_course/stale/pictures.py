"""Pictures of gradients' ages and of the borders of stable learning rates."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes

from minips.lab.plots import LOOKS
from minips_course import gone

__getattr__ = gone(__name__)


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


def draw_sides(borders: Mapping[str, Mapping[str, Mapping[str, float]]]) -> None:
    """Draw, for each kind of times and each momentum, the rules' borders, on one logarithmic axis."""
    figure, axes = pyplot.subplots(1, len(borders), figsize=(7.2, 2.8), sharex=True, sharey=True, layout="constrained")
    for ax, (kind, sets) in zip(axes, borders.items(), strict=True):
        wide = 0.8 / len(sets)
        for place, ((label, found), look) in enumerate(zip(sets.items(), LOOKS, strict=False)):
            at = np.arange(len(found)) + wide * (place - (len(sets) - 1) / 2)
            ax.barh(at, [*found.values()], 0.95 * wide, label=label, **look.area)
            for y, border in zip(at, found.values(), strict=True):
                ax.text(border * 1.07, y, f"{border:.2f}", va="center", fontsize=9)
        ax.set_yticks(range(len(found)), list(found))
        ax.set(title=f"{kind} times", xscale="log", xlabel="border (lr · λ)", xlim=(0.05, 20))
        ax.set_xticks([0.1, 0.3, 1, 3], ["0.1", "0.3", "1", "3"])
        ax.minorticks_off()
        ax.grid(alpha=0.3)
    axes[0].invert_yaxis()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False)
    pyplot.show()
