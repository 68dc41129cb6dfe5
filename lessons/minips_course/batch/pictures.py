"""The lesson's pictures."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from minips.lab.plots import LOOKS
from minips.stage import Array


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


def draw_noise(batches: Sequence[int], one: Array, teams: Sequence[int], many: Array, sigma2: float) -> None:
    """Plot a gradient's variance against its number of rows, measured and computed, for one and several workers."""
    _, ax = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    dots, line, plain, squares = LOOKS[:4]
    ax.loglog(batches, one[:, 0], color=dots.colour, marker=dots.marker, linestyle="", label="one worker")
    style: dict[str, Any] = {
        "color": squares.colour,
        "marker": "s",
        "markersize": 10,
        "markerfacecolor": "none",
        "linestyle": "",
    }
    ax.loglog(np.multiply(teams, 16), many[:, 0], label="2, 4, 8 workers, 16 rows each", **style)
    ax.loglog(batches, one[:, 1], color=line.colour, linestyle=line.dash, label="one worker, by the formula")
    ax.loglog(batches, sigma2 / np.array(batches), color=plain.colour, linestyle=plain.dash, label="σ² / rows")
    ax.set(xlabel="rows that a step looks at, of all the workers", ylabel="variance\n(gradient units squared)")
    ax.set_xticks(batches, [str(rows) for rows in batches])
    ax.minorticks_off()
    ax.legend()
    plt.show()


def draw_steps(rates: Sequence[float], ended: Mapping[str, Array], start: float) -> None:
    """Plot the final loss against the learning rate: the median of the seeds, and a band from the smallest of
    their losses to the largest. ``ended`` maps each name to an array of shape (rates, seeds).
    """
    _, ax = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    for (name, losses), look in zip(ended.items(), LOOKS, strict=False):
        ax.loglog(rates, np.median(losses, axis=1), label=name, markersize=5, **look.line)
        ax.fill_between(rates, losses.min(axis=1), losses.max(axis=1), color=look.colour, alpha=0.25)
    ax.axhline(start, color="dimgrey", linestyle=":", label="where training begins")
    ax.set(xlabel="learning rate", ylabel="loss of all the rows\nafter 40 steps", ylim=(0.2, 100))
    ticks = [0.02, 0.05, 0.1, 0.2, 0.5]
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.grid(alpha=0.3)
    ax.legend(loc="upper left")
    plt.show()
