"""A picture of what fewer exchanges cost."""

from collections.abc import Mapping

import numpy as np
from matplotlib import pyplot

from minips.lab.course.best import Best
from minips.lab.plots import LOOKS


def draw_losses(found: Mapping[str, Best], averaged: tuple[float, float]) -> None:
    """Draw a line for each of ``found``: the loss of its schemes with local steps, named by their number, as a multiple
    of that with one step; and ``averaged``, the multiple and half its interval for most steps and an outer rate of 1.
    """
    _, ax = pyplot.subplots(figsize=(7.2, 3.6), layout="constrained")
    for look, (name, best) in zip(LOOKS, found.items(), strict=False):
        steps = [scheme for scheme in best.sweeps if scheme.isdecimal()]
        sent = np.array([best.bytes_sent(scheme).mean() / 1e6 for scheme in steps])
        means, halves = np.array([best.ratio(scheme, "1") for scheme in steps], float).T
        halves[0] = np.nan  # 1 by definition
        ax.errorbar(sent, means, halves, capsize=3, label=f"{name}, best rates", **look.line)
    for scheme, x in zip(steps, sent, strict=True):
        words = f"{scheme} step{'s' * (scheme != '1')}"
        ax.annotate(words, (x, 0.86), ha="right" if scheme == "1" else "center")
    label = "sorted rows, outer rate 1, best inner rate"
    ax.errorbar(sent[-1], *averaged, fmt="k*", markersize=11, capsize=3, label=label)
    ax.set(xscale="log", xlabel="sent by all workers (MB)", ylabel="held-out loss\n(times that of 1 step)")
    ax.set(ylim=(0.8, None))
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    pyplot.show()
