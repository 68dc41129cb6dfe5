"""Pictures of the effect of one value on a rule's result, and of the rules' accuracy under several lies."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import pyplot

from minips.lab.plots import LOOKS, SHADES
from minips.stage import Array

RULES = ("Mean", "Median", "TrimmedMean", "Krum")
LOOK = dict(zip(RULES, LOOKS, strict=False))
HIDDEN = "TrimmedMean"
"""The rule whose curve is drawn wide and pale, behind the median's, since the two coincide."""


def draw_reach(xs: Array, curves: Mapping[str, Sequence[float]], honest: Sequence[float]) -> None:
    """Plot each rule's aggregate of the honest values and x, against x."""
    _, ax = pyplot.subplots(figsize=(7, 3.4), layout="constrained")
    for name, curve in curves.items():
        look = LOOK[name]
        width = 5.0 if name == HIDDEN else 1.6
        ax.plot(xs, curve, color=look.colour, linestyle=look.dash, lw=width, alpha=1.6 / width, label=name)
    ax.plot(honest, [0.82] * len(honest), "|", color="black", ms=12, label="the honest four")
    ax.set(xlabel="x, what the fifth worker says", ylabel="what is combined", ylim=(0.8, 1.3))
    ax.grid(alpha=0.3)
    ax.legend(fontsize=8)
    pyplot.show()


def draw_table(rows: Mapping[str, Sequence[float]], cases: Sequence[str]) -> None:
    """Draw a table of accuracies, with a row for each rule and a column for each case."""
    _, ax = pyplot.subplots(figsize=(8, 3.4), layout="constrained")
    table = np.array([*rows.values()])
    picture = ax.imshow(table, cmap=SHADES, vmin=0, vmax=1, aspect="auto")
    pyplot.colorbar(picture, ax=ax, label="accuracy")
    for (row, column), value in np.ndenumerate(table):
        ax.text(column, row, f"{value:.2f}", ha="center", va="center")
    ax.set_xticks(range(len(cases)), list(cases))
    ax.set_yticks(range(len(rows)), list(rows))
    ax.set(title="accuracy on held-out digits, each rule at its best rate in each case, mean of five seeds")
    pyplot.show()


def draw_one_step(after: Mapping[str, Array], low: Array, high: Array) -> None:
    """Plot the parameters after one step: for all rules (left), and for all but the first (right), with a band from the
    lowest to the highest values that single honest gradients would have given.
    """
    _, (all_rules, robust) = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    numbers = range(1, len(low) + 1)
    for place, (name, w) in enumerate(after.items()):
        for ax in (all_rules, robust) if place else (all_rules,):
            ax.plot(numbers, w, label=name, **LOOK[name].line)
    robust.fill_between(numbers, low, high, color="0.85", label="honest workers")
    for ax, title in ((all_rules, "all rules"), (robust, "without the mean, enlarged")):
        ax.set_xticks(numbers)
        ax.set(xlabel="parameter", ylabel="value after one step", title=title)
        ax.grid(alpha=0.3)
        ax.legend(fontsize=8)
    pyplot.show()
