"""A picture of the held-out loss against the bytes sent."""

from collections.abc import Mapping

import numpy as np
from matplotlib import pyplot

from minips.lab.course.best import Best
from minips.lab.course.intervals import interval
from minips.lab.plots import LOOKS


def draw_losses(found: Mapping[str, Best], averaged: float) -> None:
    """Draw a line for each of ``found``: the loss of its schemes with local steps, named by their number; and the loss
    of four averages of parameters with sorted rows.
    """
    _, ax = pyplot.subplots(figsize=(7.2, 3.6), layout="constrained")
    for look, (name, best) in zip(LOOKS, found.items(), strict=False):
        steps = [scheme for scheme in best.sweeps if scheme.isdecimal()]
        sent = np.array([best.bytes_sent(scheme).mean() / 1e6 for scheme in steps])
        means, halves = np.array([interval(best.values(scheme)) for scheme in steps]).T
        ax.errorbar(sent, means, halves, capsize=3, label=f"{name}, best rates", **look.line)
        for scheme, x, y in zip(steps, sent, means, strict=True):
            if best is next(iter(found.values())):
                ax.annotate(
                    f"{scheme} step{'s' * (scheme != '1')}", (x, y), (0, -34), textcoords="offset points", ha="center"
                )
    ax.plot(sent[-1], averaged, "k*", markersize=11, label="sorted rows, outer rate 1, best inner rate")
    ax.set(xscale="log", yscale="log", xlabel="sent by all workers (MB)", ylabel="loss on held-out rows")
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    pyplot.show()
