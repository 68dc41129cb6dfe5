"""A picture of the accuracy of rules under several lies."""

from collections.abc import Mapping

import numpy as np
from matplotlib import pyplot

from minips.lab.course.best import Best
from minips.lab.plots import SHADES
from minips_course import gone

__getattr__ = gone(__name__)


def draw_table(table: Mapping[str, Best]) -> None:
    """Draw a table of accuracies, with a row for each rule and a column for each case."""
    rules = [*next(iter(table.values())).sweeps]
    reads = np.array([[best.mean(rule) for best in table.values()] for rule in rules], float)
    _, ax = pyplot.subplots(figsize=(8, 3.4), layout="constrained")
    picture = ax.imshow(reads, cmap=SHADES, vmin=0, vmax=1, aspect="auto")
    pyplot.colorbar(picture, ax=ax, label="accuracy")
    for (row, column), value in np.ndenumerate(reads):
        ax.text(column, row, f"{value:.2f}", ha="center", va="center")
    ax.set_xticks(range(len(table)), list(table))
    ax.set_yticks(range(len(rules)), rules)
    ax.set(title="accuracy on held-out digits, each rule at its best rate in each case, mean of five seeds")
    pyplot.show()
