"""Pictures of the bandwidths at which a codec pays, and of the seconds until a model is accurate enough."""

from collections.abc import Mapping

import numpy as np
from matplotlib import pyplot
from matplotlib.ticker import LogLocator

from minips.lab.plots import LOOKS
from minips.stage import Array
from minips_course.pays.timing import Trips

MOST = 5.0
"""The largest speed-up on the colour scale, as an exponent of two."""


def draw_map(trips: Mapping[str, Trips]) -> None:
    """Draw a message's speed relative to exact values, for each codec and bandwidth. On the upright line, the median
    time to encode and decode equals the time saved on the wire.
    """
    codecs = [name for name in trips if name != "exact"]
    nbytes = {name: one.nbytes for name, one in trips.items()}
    seconds = {name: float(np.median(one.there + one.back)) for name, one in trips.items()}
    rates = np.geomspace(1e6, 400e9, 200)  # bit/s
    plain = seconds["exact"] + 8 * nbytes["exact"] / rates
    times = np.array([plain / (seconds[name] + 8 * nbytes[name] / rates) for name in codecs])
    _, ax = pyplot.subplots(figsize=(9, 3.6), layout="constrained")
    rows = np.arange(len(codecs))
    mesh = ax.pcolormesh(rates, rows, np.log2(times), cmap="PuOr", vmin=-MOST, vmax=MOST, shading="nearest")
    for row, name in enumerate(codecs):
        even = 8 * (nbytes["exact"] - nbytes[name]) / (seconds[name] - seconds["exact"])
        if even > rates[0]:
            ax.plot([even, even], [row - 0.5, row + 0.5], color="black", linewidth=2)
            ax.annotate("pays", (even, row), (-8, 0), textcoords="offset points", ha="right", va="center", fontsize=8)
        ax.annotate("costs", (max(even, rates[0]), row), (8, 0), textcoords="offset points", va="center", fontsize=8)
    ax.set_yticks(rows, codecs)
    ax.invert_yaxis()
    ax.set_xscale("log")
    ax.set_xticks([1e6, 1e7, 1e8, 1e9, 1e10, 1e11], ["1 Mbit/s", "10", "100", "1 Gbit/s", "10", "100"])
    ax.set(xlabel="bandwidth of the link")
    bar = pyplot.colorbar(mesh, ax=ax, ticks=[-4, -2, 0, 2, 4])
    bar.ax.set_yticklabels(["1/16", "1/4", "1", "4", "16"])
    bar.set_label("times faster")
    pyplot.show()


def draw_until_90(sides: Mapping[str, Mapping[str, Array]]) -> None:
    """Plot, for each link, codec and seed, the seconds until 90 % of the held-out digits are read."""
    _, axes = pyplot.subplots(1, len(sides), figsize=(9, 2.8), layout="constrained", sharey=True)
    for ax, (title, rows) in zip(axes, sides.items(), strict=True):
        for place, seconds in enumerate(rows.values()):
            ax.plot(seconds, [place] * len(seconds), LOOKS[0].marker, color=LOOKS[0].colour, ms=6, alpha=0.6)
            ax.plot(np.mean(seconds), place, "|", color="black", ms=16, mew=2)
        ax.set(title=title, xlabel="time until 90 % (s)", xscale="log")
        ax.set_yticks(range(len(rows)), list(rows))
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.xaxis.set_major_formatter("{x:g}")
        ax.minorticks_off()
        ax.margins(y=0.12)
        ax.grid(alpha=0.3)
    axes[0].invert_yaxis()
    pyplot.show()
