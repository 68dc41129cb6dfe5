"""Pictures of the workers' waits, the time that each rule takes, and the lag of reads."""

from collections.abc import Mapping

import numpy as np
from matplotlib import pyplot
from numpy.typing import ArrayLike, NDArray

from minips.lab.course.intervals import interval
from minips.lab.plots import LOOKS, timeline
from minips.results.run import Run


def draw_timelines(runs: Mapping[str, Run], seconds: tuple[float, float]) -> None:
    """Draw, for each rule, a timeline of all workers between two moments, one below the other."""
    _, axes = pyplot.subplots(len(runs), 1, figsize=(9, 2.15 * len(runs)), layout="constrained", sharex=True)
    for ax, (name, run) in zip(axes, runs.items(), strict=True):
        timeline(run, seconds=seconds, ax=ax)
        ax.set(ylabel=name)
        ax.label_outer()
        if ax is not axes[0]:
            ax.get_legend().remove()
    pyplot.show()


def draw_shares(series: Mapping[str, Mapping[str, ArrayLike]]) -> None:
    """Draw a bar for each rule and each kind of slowness: times of several runs, as shares of BSP's time."""
    _, ax = pyplot.subplots(figsize=(7.2, 1.2 + 1.1 * len(series)), layout="constrained")
    height = 0.8 / len(series)
    for turn, (look, (label, shares)) in enumerate(zip(LOOKS, series.items(), strict=False)):
        means, halves = np.transpose([interval(one) for one in shares.values()])
        at = np.arange(len(shares)) + height * (turn - (len(series) - 1) / 2)
        ax.barh(at, 100 * means, height, xerr=100 * halves, label=label, error_kw={"capsize": 3}, **look.area)
        ax.set_yticks(range(len(shares)), list(shares))
    ax.invert_yaxis()
    ax.set(xlabel="time for the same number of updates (% of BSP's)", xlim=(0, None))
    ax.grid(axis="x", alpha=0.3)
    ax.legend(ncols=len(series), loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    pyplot.show()


def draw_lags(lags: Mapping[str, NDArray[np.int64]]) -> None:
    """Draw, for each rule, a histogram of the reads' lags, in updates."""
    _, axes = pyplot.subplots(1, len(lags), figsize=(9, 2.6), layout="constrained", sharex=True, sharey=True)
    for ax, look, (name, found) in zip(axes, LOOKS, lags.items(), strict=False):
        ax.bar(*np.unique(found, return_counts=True), **look.area)
        ax.set_title(name, fontsize=10)
        ax.xaxis.get_major_locator().set_params(integer=True)
    axes[0].set(ylabel="reads")
    axes[0].figure.supxlabel("lag: the reader's clock minus the fewest updates that it saw of a worker", fontsize=10)
    pyplot.show()
