"""Pictures of the messages of an exchange, and of its rounds and bytes."""

from collections.abc import Mapping

import numpy as np
from matplotlib import pyplot

import minips as ps
from minips.lab.plots import LOOKS, MEASURED, PREDICTED, legend_above
from minips_course import gone

__getattr__ = gone(__name__)


def draw_schedules(exchanges: "Mapping[str, ps.AllReduce]", workers: int = 4) -> None:
    """Draw each exchange's messages, round by round; a line's width is the share of the values in its message."""
    hops = {name: [one.schedule(rank, workers) for rank in range(workers)] for name, one in exchanges.items()}
    widths = [len(ranks[0]) for ranks in hops.values()]
    _, axes = pyplot.subplots(1, len(hops), figsize=(10, 2.8), layout="constrained", sharey=True, width_ratios=widths)
    for ax, (name, ranks) in zip(axes, hops.items(), strict=True):
        for rank, own in enumerate(ranks):
            for number, hop in enumerate(own):
                if hop.to is not None:
                    look, share = LOOKS[not hop.adds], len(hop.sends) / exchanges[name].pieces(workers)
                    arrow = {"arrowstyle": "->", "color": look.colour, "ls": look.dash, "lw": 0.6 + 2.4 * share}
                    ax.annotate("", (number + 0.85, hop.to), (number + 0.1, rank), arrowprops=arrow)
        count = len(ranks[0])
        ax.set_xticks(np.arange(count) + 0.5, range(1, count + 1))
        ax.set(title=name, xlabel="round", xlim=(0, count), ylim=(workers - 0.6, -0.4), yticks=range(workers))
    axes[0].set(ylabel="rank")


def draw_costs_of(counted: "Mapping[str, tuple[float, float]]", measured: "Mapping[str, tuple[float, float]]") -> None:
    """Draw the rounds and the bytes of each schedule as bars: counted, and measured over a link of one kind each."""
    _, axes = pyplot.subplots(1, 2, figsize=(9, 2.6), layout="constrained", sharey=True)
    labels = "latencies (rounds)", "transfers of a gradient (S/B)"
    for part, (ax, label) in enumerate(zip(axes, labels, strict=True)):
        for shift, look, found in ((-0.2, PREDICTED, counted), (0.2, MEASURED, measured)):
            rows = np.arange(len(found)) + shift
            numbers = [pair[part] for pair in found.values()]
            bars = ax.barh(
                rows, numbers, 0.38, label="counted" if shift < 0 else "measured, link emulated", **look.area
            )
            ax.bar_label(bars, [f"{number:.3g}" for number in numbers], padding=3, fontsize=8)
        ax.set(xlabel=label, yticks=range(len(counted)), yticklabels=[*counted])
        ax.margins(x=0.15)
    axes[0].invert_yaxis()
    legend_above(axes[0], 2)
