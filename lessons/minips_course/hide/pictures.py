"""Pictures and a table of concurrent calls, overlap of communication and computing, a storm of retries, and pools of
connections.
"""

from collections.abc import Mapping, Sequence
from itertools import cycle

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes

from minips.lab.course.intervals import interval
from minips.lab.measure.turns import Spread
from minips.lab.plots import LOOKS
from minips.results.run import Run
from minips.stage import Array


def draw_calls(took: Mapping[str, Array]) -> None:
    """Draw the times of one call and of ten concurrent calls, for each message size: medians and quartiles of turns."""
    _, axes = pyplot.subplots(1, len(took), figsize=(9, 1.9), layout="constrained")
    for ax, (size, seconds) in zip(axes, took.items(), strict=True):
        middle, low, high = 1e3 * np.array([Spread.of(column) for column in seconds.T]).T
        error = (middle - low, high - middle)
        ax.barh(["one call", "ten calls"], middle, xerr=error, capsize=3, **LOOKS[0].area)
        ax.set(xlabel="time (ms)", title=f"{size} in each", xlim=(0, 11 * middle[0]))
        ax.invert_yaxis()


def draw_steps(runs: Mapping[str, Run], start_ms: float = 200, stop_ms: float = 600) -> None:
    """Draw, for each run, the spans of worker 0 between two moments."""
    _, ax = pyplot.subplots(figsize=(9, 2.6), layout="constrained")
    for row, run in enumerate(runs.values()):
        for i, (doing, look) in enumerate(zip(("compute", "transfer"), LOOKS[:2], strict=True)):
            spans = [span for span in run.trace if span.who == "worker 0" and span.name == doing]
            bars = [(1e3 * span.start, 1e3 * span.seconds) for span in spans]
            ax.broken_barh(bars, (row + 0.4 * i - 0.4, 0.36), label="" if row else doing, **look.area)
    ax.set_yticks(range(len(runs)), list(runs))
    ax.set(xlabel="time since the start (ms)", xlim=(start_ms, stop_ms))
    ax.invert_yaxis()
    ax.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False)


def draw_answered(answered: Mapping[str, Array], until_ms: float) -> None:
    """Plot the number of answered callers against time. ``answered`` contains each caller's time in ms, or infinity."""
    ax = _new(6.4, 3.2)
    for (name, moments), look in zip(answered.items(), cycle(LOOKS), strict=False):
        ordered = np.sort(moments[np.isfinite(moments)]) / 1e3
        x, y = [0.0, *ordered, until_ms / 1e3], [0, *range(1, ordered.size + 1), ordered.size]
        ax.step(x, y, where="post", color=look.colour, linestyle=look.dash, label=name)
    ax.set(xlabel="time (s)", ylabel="callers that have their answer", xlim=(0, until_ms / 1e3), ylim=(0, None))
    ax.legend(loc="center right")


def table(storms: Mapping[tuple[str, bool], Sequence[tuple[Array, int]]]) -> str:
    """Return a table with a row for each way to wait, with or without deadlines sent to the server. It shows when the
    last answer arrives, and the number of calls handled. A storm is a pair: its answers' times (ms), and that number.
    """
    lines = [f"{'wait':16} {'deadline':10} {'last answer after':>18} {'calls worked on':>16}"]
    for (name, told), some in storms.items():
        ends = [answered.max() / 1e3 for answered, _ in some]
        after = f"{_told(ends, 2)} s" if np.isfinite(ends).all() else "never"
        calls = _told([worked for _, worked in some], 0)
        lines.append(f"{name:16} {'sent along' if told else 'unknown':10} {after:>18} {calls:>16}")
    return "\n".join(lines)


def _told(values: Sequence[float], digits: int) -> str:
    """Return the mean with half of its 95 % interval, or the mean alone if these digits are the same in all runs."""
    mean, half = interval(values)
    return f"{mean:.{digits}f}" + (f" ± {half:.{digits}f}" if round(half, digits) else "")


def draw_pool(milliseconds: Mapping[int, Spread]) -> None:
    """Plot the time until all calls are answered against the limit of the pool."""
    ax = _new(5.2, 3)
    middle, low, high = np.array(list(milliseconds.values())).T
    ax.errorbar(list(milliseconds), middle, yerr=(middle - low, high - middle), capsize=3, **LOOKS[0].line)
    ax.set(xlabel="limit of the pool (connections)", ylabel="time for 40 calls (ms)", xlim=(0, 42), ylim=(0, None))


def draw_boxes(milliseconds: Mapping[str, Array], of: str) -> None:
    """Draw, for each name, a box for the middle half of many calls' times, and whiskers for 90 % of them."""
    ax = _new(4.8, 3)
    ax.boxplot(list(milliseconds.values()), widths=0.5, whis=(5, 95), showfliers=False)
    ax.set_xticks(range(1, len(milliseconds) + 1), list(milliseconds))
    ax.set(ylabel=f"time of {of} (ms)", ylim=(0, None))


def _new(width: float, height: float) -> Axes:
    ax = pyplot.subplots(figsize=(width, height), layout="constrained")[1]
    ax.grid(alpha=0.3)
    return ax
