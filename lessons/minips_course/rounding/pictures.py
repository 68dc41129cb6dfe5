"""The lesson's pictures."""

from collections.abc import Mapping, Sequence

from matplotlib import pyplot
from numpy.typing import ArrayLike

from minips.lab.plots import LOOKS


def draw_errors(counts: Sequence[int], curves: Mapping[str, ArrayLike]) -> None:
    """Plot the error of an average of gradients against their number."""
    _, ax = pyplot.subplots(figsize=(6.4, 3.4), layout="constrained")
    for (name, curve), look in zip(curves.items(), LOOKS, strict=False):
        ax.loglog(counts, curve, label=name, **look.line)
    ax.set(xlabel="gradients that were averaged", ylabel="relative error of the average")
    ax.set_xticks(counts[::2], [*map(str, counts[::2])])
    low, high = ax.get_ylim()
    ticks = [tick for tick in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5) if low < tick < high]
    ax.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.grid(alpha=0.3)
    ax.legend()
    pyplot.show()


def draw_variances(
    levels: Sequence[int], bound: Sequence[float], formula: Sequence[float], measured: Sequence[float]
) -> None:
    """Plot QSGD's variance against its number of levels: the bound, the formula, and measurements."""
    _, ax = pyplot.subplots(figsize=(6.4, 3.2), layout="constrained")
    ax.loglog(levels, bound, color=LOOKS[3].colour, linestyle=LOOKS[3].dash, label="the bound")
    ax.loglog(levels, formula, color=LOOKS[0].colour, label="the formula")
    ax.loglog(levels, measured, LOOKS[1].marker, color=LOOKS[1].colour, label="measured")
    ax.set_xticks(levels, map(str, levels))
    ax.minorticks_off()
    ax.set(xlabel="levels s", ylabel="variance / |x|²")
    ax.grid(alpha=0.3)
    ax.legend()
    pyplot.show()
