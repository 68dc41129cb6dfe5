"""Pictures of the time of a call against its size, its two costs, and the calls per second of many callers."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes

from minips.lab.measure.turns import Spread
from minips.lab.plots import LOOKS, Look
from minips.machines.fit import Line
from minips_course.move.crowd import TRANSPORTS, Calls

NAMES = (*TRANSPORTS, "aiohttp-json", "pyro-msgpack", "pyro-serpent")
MORE = (("black", "X", "-"), ("#595959", "*", "--"), ("#8C510A", "h", "-."), ("#B0306A", "<", ":"))
ROWS = (*LOOKS, *(Look(*look, "") for look in MORE))
"""A look for each contender, the same in all pictures."""


def draw_sizes(calls: Calls, skipped: Mapping[str, str]) -> None:
    """Plot the time of a call against the bytes in its frame: medians, with whiskers from quartile to quartile. Print
    why contenders were skipped.
    """
    for name, why in skipped.items():
        print(f"{name} is {why}.")
    ax = pyplot.subplots(figsize=(8, 4.4), layout="constrained")[1]
    for name in calls[min(calls)]:
        found = {size: Spread.of(1e3 * s for s in row[name].values()) for size, row in calls.items() if name in row}
        _whiskers(ax, name, [*found], [*found.values()])
    ax.set(xlabel="bytes in the frame, each way", ylabel="time of a call (ms)", xscale="log", yscale="log")
    _beside(ax)
    pyplot.show()


def draw_costs(lines: Mapping[str, Line]) -> None:
    """Draw the fixed cost of a message (left) and the cost of each byte (right), with a row for each contender."""
    _, axes = pyplot.subplots(1, 2, figsize=(8, 3.4), layout="constrained", sharey=True)
    alpha, beta = ({name: getattr(line, part) for name, line in lines.items()} for part in ("fixed_s", "each_s"))
    labels = "α: fixed (ms a message)", "β: for each byte (ns a byte)"
    for ax, costs, unit, label in zip(axes, (alpha, beta), (1e3, 1e9), labels, strict=True):
        for name, cost in costs.items():
            look = _look(name)
            ax.plot(unit * cost, name, look.marker, color=look.colour)
        positive = [unit * cost for cost in costs.values() if cost > 0]
        ends = np.log10([min(positive), max(positive)])
        whole = 10 ** np.array([np.floor(ends[0]) - 0.1, np.ceil(ends[1]) + 0.1])  # powers of ten: else labels overlap
        ax.set(xlabel=label, xscale="log", xlim=whole)
        ax.grid(alpha=0.3)
    axes[0].invert_yaxis()
    pyplot.show()


def draw_crowd(rates: Calls) -> None:
    """Plot the calls per second of all callers together against the number of callers: medians, with whiskers from
    quartile to quartile.
    """
    ax = pyplot.subplots(figsize=(8, 4.2), layout="constrained")[1]
    for name in rates[min(rates)]:
        _whiskers(ax, name, [*rates], [Spread.of(row[name].values()) for row in rates.values()])
    ax.set(xlabel="callers at once", ylabel="calls a second, all together", xscale="log", yscale="log")
    ax.set_xticks([*rates], [str(count) for count in rates])
    ax.minorticks_off()
    _beside(ax)
    pyplot.show()


def _look(name: str) -> Look:
    return ROWS[NAMES.index(name)]


def _whiskers(ax: Axes, name: str, x: Sequence[float], spreads: Sequence[Spread]) -> None:
    middle, low, high = np.array(spreads).T
    ax.errorbar(
        x, middle, yerr=(middle - low, high - middle), label=name, capsize=2, elinewidth=0.8, **_look(name).line
    )


def _beside(ax: Axes) -> None:
    """Add a grid, and a legend to the right of the axes."""
    ax.grid(alpha=0.3)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, handlelength=3)
