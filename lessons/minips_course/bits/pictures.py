"""The lesson's pictures."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import pyplot

from minips.lab.plots import LOOKS
from minips.stage import Array
from minips.stages.quantizers import Quantizer

HERE, THERE = LOOKS[0].colour, LOOKS[1].colour
NEVER = 2.0
"""The position of runs that did not reach 90 %, as a multiple of the largest number of the other runs."""


def draw_histogram(values: Array) -> None:
    """Draw a histogram of the values."""
    _, ax = pyplot.subplots(figsize=(6.4, 2.6), layout="constrained")
    ax.hist(values, bins=61, color=HERE)
    ax.set(xlabel="gradient (loss per unit of W)", ylabel="values in a bin")
    pyplot.show()


def draw_before_and_after(x: Array, quantizers: Mapping[str, Quantizer]) -> None:
    """Draw the histograms of one gradient before and after each of six quantizers, in two rows of three."""
    reach = float(np.abs(x).max())
    bins = np.linspace(-reach, reach, 62).tolist()
    _, axes = pyplot.subplots(2, 3, figsize=(9.6, 4.4), layout="constrained", sharex=True, sharey=True)
    for ax, (name, quantizer) in zip(axes.flat, quantizers.items(), strict=True):
        arrived = quantizer.decode(quantizer.encode(x, np.random.default_rng(0)))
        ax.hist(x.reshape(-1), bins, color=LOOKS[5].colour, label="before")
        ax.hist(arrived.reshape(-1), bins, histtype="step", color=THERE, lw=1.5, label="after")
        ax.set(title=name, yscale="log")
    axes[0, 0].legend(fontsize=8)
    for ax in axes[1]:
        ax.set_xlabel("gradient")
    for ax in axes[:, 0]:
        ax.set_ylabel("values in a bin")
    pyplot.show()


def draw_until_90(rows: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> None:
    """Draw steps and kilobytes of each scheme's runs until they read 90 % of the digits; never is infinity."""
    _, axes = pyplot.subplots(1, 2, figsize=(9.6, 3.8), layout="constrained", sharey=True)
    for side, (ax, what) in enumerate(zip(axes, ("steps", "kB sent by the four workers"), strict=True)):
        finite = [number for row in rows.values() for number in row[side] if np.isfinite(number)]
        never = NEVER * max(finite)
        for place, row in enumerate(rows.values()):
            at = [number if np.isfinite(number) else never for number in row[side]]
            ax.plot(at, [place] * len(at), LOOKS[0].marker, color=HERE, ms=6, alpha=0.6)
        ax.axvline(never, color="dimgrey", lw=0.8, ls=":")
        ax.set(xscale="log", xlabel=f"{what} until 90 % (dotted line: not there)")
        ax.grid(alpha=0.3)
        ax.minorticks_off()
    axes[0].set_xticks([20, 50, 100, 200], ["20", "50", "100", "200"])
    axes[1].set_xticks([100, 1000, 10_000], ["100", "1000", "10 000"])
    axes[0].set_yticks(range(len(rows)), list(rows))
    axes[0].invert_yaxis()
    pyplot.show()
