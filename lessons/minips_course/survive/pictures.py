"""Pictures of a storm of retries."""

from collections.abc import Mapping
from itertools import cycle

import numpy as np
from matplotlib import pyplot

from minips.lab.plots import LOOKS
from minips_course.survive.storm import Storm


def draw_answered(storms: Mapping[str, Storm], until_ms: float = 4_000) -> None:
    """Plot the number of answered callers against time, for each storm."""
    _, ax = pyplot.subplots(figsize=(6.4, 3.2), layout="constrained")
    for (name, found), look in zip(storms.items(), cycle(LOOKS), strict=False):
        came = np.sort(found.came[found.came <= until_ms]) / 1e3
        x, y = [0.0, *came, until_ms / 1e3], [0, *range(1, came.size + 1), came.size]
        ax.step(x, y, where="post", color=look.colour, linestyle=look.dash, label=name)
    ax.set(xlabel="time (s)", ylabel="callers with their answer", title="Look for the curve that stops rising")
    ax.set(xlim=(0, until_ms / 1e3), ylim=(0, None))
    ax.grid(alpha=0.3)
    ax.legend(loc="center right")
