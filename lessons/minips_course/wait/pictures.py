"""A picture of the time that each rule takes."""

from collections.abc import Mapping

import numpy as np
from matplotlib import pyplot
from numpy.typing import NDArray

from minips.lab.course.intervals import interval
from minips.lab.plots import LOOKS
from minips_course import gone

__getattr__ = gone(__name__)


def draw_shares(found: Mapping[int, Mapping[str, NDArray[np.float64]]]) -> None:
    """Draw a bar for each rule and each number of workers: its times, as shares of BSP's with as many workers."""
    _, ax = pyplot.subplots(figsize=(7.2, 3.2), layout="constrained")
    height = 0.8 / len(found)
    for turn, (look, (workers, times)) in enumerate(zip(LOOKS, found.items(), strict=False)):
        shares = [100 * took / times["BSP"] for took in times.values()]
        at = np.arange(len(shares)) + height * (turn - (len(found) - 1) / 2)
        halves = [interval(one).half if np.ptp(one) else np.nan for one in shares]  # BSP's share is always 100 %
        means = [one.mean() for one in shares]
        ax.barh(at, means, height, xerr=halves, label=f"{workers} workers", error_kw={"capsize": 3}, **look.area)
        ax.set_yticks(range(len(shares)), list(times))
    ax.invert_yaxis()
    ax.set(xlabel="time for the same number of updates (% of BSP's)", xlim=(0, None))
    ax.grid(axis="x", alpha=0.3)
    ax.legend(ncols=len(found), loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)
    pyplot.show()
