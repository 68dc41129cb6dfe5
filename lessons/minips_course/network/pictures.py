"""Pictures of predicted and measured times on several networks."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib import pyplot
from matplotlib.patches import Patch

from minips.lab.plots import MEASURED, PREDICTED, legend_above
from minips_course.network.timing import Pair


def draw_pairs(found: Mapping[str, Mapping[str, Pair]]) -> None:
    """Draw two bars for each way, one network beside the other: the virtual time, and the runs on hosts."""
    _, axes = pyplot.subplots(1, len(found), figsize=(7.4, 3.4), layout="constrained", squeeze=False)
    for ax, (network, ways) in zip(axes[0], found.items(), strict=True):
        for row, pair in enumerate(ways.values()):
            first, seconds = 1e3 * pair.predicted, pair.runs.seconds
            low, middle, high = (1e3 * one for one in (min(seconds), np.median(seconds), max(seconds)))
            ax.barh(row - 0.2, first, 0.38, **PREDICTED.area)
            ax.barh(row + 0.2, middle, 0.38, **MEASURED.area)
            ax.hlines(row + 0.2, low, high, color="black", linewidth=1.5)
            for y, end, shown in ((row - 0.2, first, first), (row + 0.2, high, middle)):
                at = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": 8}
                ax.annotate(f"{shown:.0f}", (end, y), **at)
        ax.set_yticks(range(len(ways)), [*ways])
        ax.margins(x=0.14)
        ax.invert_yaxis()
        ax.set(xlabel=f"time of a step (ms), {network}")
    kinds: list[Any] = [
        Patch(label=name, **look.area) for name, look in (("in virtual time", PREDICTED), ("on hosts", MEASURED))
    ]
    legend_above(axes[0][0], 2, handles=kinds)
