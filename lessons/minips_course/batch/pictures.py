"""The lesson's pictures."""

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from minips.lab.plots import LOOKS
from minips.stage import Array
from minips_course import gone
from minips_course.batch.noise import Variances

__getattr__ = gone(__name__)


def draw_clouds(clouds: Mapping[int, Array], full: Array, weights: tuple[int, int]) -> None:
    """Draw, in the plane of two weights, the gradients of batches of each size, and the gradient of all the rows."""
    _, ax = plt.subplots(figsize=(6.4, 3.6), layout="constrained")
    i, j = weights
    for (rows, drawn), look in zip(clouds.items(), LOOKS, strict=False):
        style: dict[str, Any] = {"marker": look.marker, "markersize": 4, "alpha": 0.5, "color": look.colour}
        ax.plot(drawn[:300, i], drawn[:300, j], linestyle="", label=f"batches of {rows} rows", **style)
    ax.plot(full[i], full[j], "x", color="black", ms=10, mew=2.5, label="all the rows")
    ax.set(xlabel=f"gradient of w{i}", ylabel=f"gradient of w{j}", aspect="equal")
    ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    plt.show()


def draw_noise(one: Variances, many: Variances, sigma2: float) -> None:
    """Plot a gradient's variance against its number of rows, measured and computed, for one and several workers."""
    _, ax = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    dots, line, plain, squares = LOOKS[:4]
    ax.loglog(one.rows, one.measured, color=dots.colour, marker=dots.marker, linestyle="", label="one worker")
    style: dict[str, Any] = {
        "color": squares.colour,
        "marker": "s",
        "markersize": 10,
        "markerfacecolor": "none",
        "linestyle": "",
    }
    ax.loglog(many.rows, many.measured, label="2, 4, 8 workers, 16 rows each", **style)
    ax.loglog(one.rows, one.formula, color=line.colour, linestyle=line.dash, label="one worker, by the formula")
    ax.loglog(one.rows, sigma2 / np.array(one.rows), color=plain.colour, linestyle=plain.dash, label="σ² / rows")
    ax.set(xlabel="rows that a step looks at, of all the workers", ylabel="variance\n(gradient units squared)")
    ax.set_xticks(one.rows, [str(rows) for rows in one.rows])
    ax.minorticks_off()
    ax.legend()
    plt.show()
