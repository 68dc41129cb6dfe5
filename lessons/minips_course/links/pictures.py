"""Pictures of queues over time, and of the times of steps."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib import pyplot

from minips.lab.plots import LOOKS
from minips_course.hosts import SHOWN_S, Watched


def draw_queues(runs: Mapping[str, Watched]) -> None:
    """Plot a row for each run: the bytes in all queues over time, with the ends of steps, and each step's time."""
    size: dict[str, Any] = {"figsize": (7.4, 1.2 + 1.7 * len(runs)), "layout": "constrained"}
    _, axes = pyplot.subplots(len(runs), 2, width_ratios=(3, 1), sharex="col", sharey="col", squeeze=False, **size)
    for (name, run), (left, right), look in zip(runs.items(), axes, LOOKS, strict=False):
        at, nbytes = run.waiting["at"], np.array(run.waiting["nbytes"]) / 1e3
        left.fill_between(at, nbytes, step="post", color=look.colour, alpha=0.6, linewidth=0.8)
        left.plot(run.ends, [0] * len(run.ends), "|", color="black", markersize=14, label="a step ends")
        left.set(ylabel="kB in all queues", title=name, xlim=(0, SHOWN_S))
        right.plot(range(1, len(run.steps) + 1), 1e3 * np.sort(run.steps), look.marker, color=look.colour, markersize=3)
        right.set(ylabel="time (ms)", title="each step")
        for ax in (left, right):
            ax.grid(alpha=0.3)
    axes[0, 0].legend(loc="upper right")
    axes[-1, 0].set_xlabel("seconds, around the slowest step")
    axes[-1, 1].set(xlabel="steps, fastest first", ylim=(0, None))
    pyplot.show()


def table(most_ms: float, four_ms: float, *runs: Watched) -> str:
    """Return a row for each of four runs: its median and its slowest step, and the paper's, in ms."""
    rows = ["ms of a step             paper   median  slowest"]
    names = [f"{servers}, {queue}" for queue in ("4 MB", "50 kB") for servers in ("one server", "four servers")]
    for name, paper, run in zip(names, (most_ms, four_ms) * 2, runs, strict=True):
        rows.append(f"{name:22} {paper:7.0f} {1e3 * run.median:8.0f} {1e3 * run.slowest:8.0f}")
    return "\n".join(rows)
