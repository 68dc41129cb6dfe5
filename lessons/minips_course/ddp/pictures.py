"""A picture of the times of a step's gradients and all-reduces."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib import pyplot
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from minips.lab.measure.turns import Spread
from minips.lab.plots import LOOKS
from minips_course import gone

__getattr__ = gone(__name__)


def draw_steps(steps: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw the median step of each exchange: when gradients were ready, and when all-reduces ran."""
    _, ax = pyplot.subplots(figsize=(8, 3), layout="constrained")
    for row, seen in enumerate(steps.values()):
        for begin, end, _ in seen["calls_ms"]:
            ax.barh(row, end - begin, left=begin, height=0.5, **LOOKS[1].area)
        ready = seen["ready_ms"]
        ax.plot(ready, [row - 0.38] * len(ready), "v", color=LOOKS[0].colour, ms=5)
        ax.plot([np.median(seen["steps_ms"])] * 2, [row - 0.4, row + 0.4], "k", lw=2)
    names = [("a gradient is ready", "v", LOOKS[0].colour), ("the step ends", "|", "black")]
    handles: list[Any] = [Line2D([], [], marker=mark, color=ink, ls="", label=name) for name, mark, ink in names]
    handles.append(Rectangle((0, 0), 1, 1, label="an all-reduce", **LOOKS[1].area))
    ax.set_yticks(range(len(steps)), list(steps))
    ax.invert_yaxis()
    ax.set(xlabel="ms from the start of the step", title="The median step of each exchange")
    ax.set_xlim(0, ax.get_xlim()[1])
    ax.legend(handles=handles, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    pyplot.show()


def shares(steps: Mapping[str, Mapping[str, Any]]) -> dict[str, Spread]:
    """Return the spread of each exchange's steps, as a share of the naive step of the same turn."""
    return {name: Spread.of(np.divide(s["steps_ms"], steps["naive"]["steps_ms"])) for name, s in steps.items()}


def table(steps: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the median milliseconds of whole steps, and their all-reduces, in a table."""
    rows = [f"{name:12} {np.median(s['steps_ms']):9.1f}  {len(s['calls_ms']):11}" for name, s in steps.items()]
    return "\n".join([f"{'':12} {'step (ms)':>9}  {'all-reduces':>11}", *rows])
