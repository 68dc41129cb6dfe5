"""The lesson's pictures."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import pyplot

from minips.lab.plots import LOOKS


def draw_staleness(found: Mapping[str, Sequence[Sequence[int]]]) -> None:
    """Draw a panel for each name, with a histogram of the staleness of its runs' gradients, up to 20 versions."""
    _, axes = pyplot.subplots(1, len(found), figsize=(8, 2.8), layout="constrained", sharex=True, sharey=True)
    for ax, look, (name, runs) in zip(axes, LOOKS, found.items(), strict=False):
        ax.bar(*np.unique(np.concatenate(runs), return_counts=True), **look.area)
        ax.set_title(name, fontsize=10)
        ax.xaxis.get_major_locator().set_params(integer=True)
    axes[0].set(ylabel="gradients of five runs", xlim=(-0.8, 20.5))
    axes[0].figure.supxlabel("staleness (versions)", fontsize=10)
