"""Pictures of the times of a step's all-reduces, and of the bytes that hooks hand over."""

from collections.abc import Mapping
from typing import Any

from matplotlib import pyplot

from minips.lab import Best, interval
from minips.lab.plots import LOOKS


def draw_steps(ladder: Mapping[str, Mapping[str, Any]]) -> None:
    """Draw, for each way, one step: the times at which gradients became ready, and those at which all-reduces ran."""
    _, ax = pyplot.subplots(figsize=(8, 3.4), layout="constrained")
    for row, seen in enumerate(ladder.values()):
        for begin, end, _ in seen["calls_ms"]:
            ax.barh(row, end - begin, left=begin, height=0.5, label="an all-reduce" if not row else "", **LOOKS[1].area)
            ax.axvline(0, color="0.8", lw=0.5)
        ready = seen["ready_ms"]
        ax.plot(
            ready, [row - 0.38] * len(ready), "v", color=LOOKS[0].colour, ms=5, label="" if row else "gradient ready"
        )
    handles, labels = ax.get_legend_handles_labels()
    kept = dict(zip(labels, handles, strict=True))
    ax.set_yticks(range(len(ladder)), list(ladder))
    ax.invert_yaxis()
    ax.set(xlabel="ms from the start of the step")
    ax.legend(kept.values(), kept.keys(), fontsize=8)
    pyplot.show()


def draw_hooks(best: Best) -> None:
    """Plot, for each hook at its best rate, the accuracy of its runs against its share of the bytes of the first."""
    _, ax = pyplot.subplots(figsize=(7, 3.6), layout="constrained")
    first = next(iter(best.sweeps))
    for name, look in zip(best.sweeps, LOOKS, strict=False):
        mean, half = interval(100 * best.values(name))
        share = 100 * best.bytes_ratio(name, first).mean
        ax.errorbar(share, mean, half, label=name, color=look.colour, marker=look.marker, capsize=3)
    ax.set(xscale="log", xlabel="bytes handed over (% of the gradients)", ylabel="accuracy (%)")
    ax.minorticks_off()
    ax.set_xticks([5, 10, 20, 50, 100], ["5", "10", "20", "50", "100"])
    ax.grid(alpha=0.3)
    ax.legend(fontsize=8)
    pyplot.show()
