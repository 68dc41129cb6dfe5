"""Pictures: who sends to whom, and what an exchange costs. The notebook imports them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

import minips as ps
from minips.lab.plots import LOOKS, MEASURED, PREDICTED, Look, legend_above
from minips.stage import Array

MARK = Look("black", "X", ":", "")
"""The look of a seventh way."""


def draw_schedules(exchanges: "Mapping[str, ps.AllReduce]", workers: int = 4) -> None:
    """Beside each other, who sends to whom in each hop: a line's width is the share of the values that it carries."""
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
        ax.set(title=name, xlabel="hop", xlim=(0, count), ylim=(workers - 0.6, -0.4), yticks=range(workers))
    axes[0].set(ylabel="rank")


def draw_steps(predicted: Mapping[str, float], took: "Mapping[str, Array]", least: Mapping[str, float]) -> None:
    """Two bars for each way: its formula, with a mark at the least time if that is less, and the measured steps, their
    median and their middle half.
    """
    ax = pyplot.subplots(figsize=(7.4, 3.4), layout="constrained")[1]
    for row, way in enumerate(predicted):
        low, middle, high = 1e3 * np.quantile(took[way], (0.25, 0.5, 0.75))
        ax.barh(row - 0.2, 1e3 * predicted[way], 0.38, **PREDICTED.area)
        ax.barh(row + 0.2, middle, 0.38, **MEASURED.area)
        ax.hlines(row + 0.2, low, high, color="black", linewidth=1.5)
        if least[way] < 0.99 * predicted[way]:
            ax.vlines(1e3 * least[way], row - 0.42, row + 0.42, color="black", linewidth=2)
        for y, end, number in ((row - 0.2, 0.0, 1e3 * predicted[way]), (row + 0.2, high, middle)):
            at = (max(end, number), y)
            ax.annotate(f"{number:.0f}", at, xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)
    ax.set_yticks(range(len(predicted)), [*predicted])
    ax.invert_yaxis()
    ax.margins(x=0.1)
    ax.set(xlabel="time of a step (ms)")
    kinds: list[Any] = [
        Patch(label="predicted", **PREDICTED.area),
        Patch(label="measured, link emulated", **MEASURED.area),
    ]
    if any(least[way] < 0.99 * predicted[way] for way in predicted):
        kinds.append(Line2D([], [], color="black", linewidth=2, label="at the least"))
    legend_above(ax, 3, handles=kinds)


def draw_costs(
    over: Sequence[float],
    most: "Mapping[str, Array]",
    least: "Mapping[str, Array]",
    measured: "Mapping[str, Mapping[float, Array]]",
    label: str,
) -> None:
    """A line for each way, a band below it down to the least time, and marks at the measured medians."""
    ax = pyplot.subplots(figsize=(7.6, 4.2), layout="constrained")[1]
    for way, look in zip(most, (*LOOKS, MARK), strict=False):
        ax.plot(over, 1e3 * most[way], color=look.colour, linestyle=look.dash)
        ax.fill_between(over, 1e3 * least[way], 1e3 * most[way], color=look.colour, alpha=0.2, linewidth=0)
        marks = {x: 1e3 * np.median(times) for x, times in measured.get(way, {}).items()}
        ax.plot([*marks], [*marks.values()], linestyle="", color=look.colour, marker=look.marker)
        ax.plot([], [], label=way, **look.line)
    ax.set(xscale="log", yscale="log", xlabel=label, ylabel="time of an exchange (ms)")
    ax.grid(alpha=0.3)
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)


def draw_over_workers(
    over: Sequence[int],
    most: "Mapping[str, Array]",
    least: "Mapping[str, Array]",
    measured: "Mapping[str, Mapping[float, Array]]",
) -> None:
    """`draw_costs` over the number of workers, each of which is named on the axis."""
    draw_costs(over, most, least, measured, "workers")
    ax = pyplot.gca()
    ax.set_xscale("log", base=2)
    ax.set_xticks(over, [str(n) for n in over])


def draw_racks(networks: Mapping[str, Any]) -> None:
    """Graphs of networkx beside each other, with the messages of a ring as arrows."""
    import networkx as nx

    _, axes = pyplot.subplots(1, len(networks), figsize=(9, 3), layout="constrained")
    for ax, (name, graph) in zip(axes, networks.items(), strict=True):
        _draw_rack(ax, nx, graph)
        ax.set_title(name)
        ax.axis("off")


def _draw_rack(ax: Axes, nx: Any, graph: Any) -> None:
    at = nx.kamada_kawai_layout(graph)
    nx.draw_networkx_edges(graph, at, ax=ax, edge_color="lightgrey", width=3)
    frame = {"boxstyle": "round", "facecolor": "white", "edgecolor": "grey"}
    switches = {node: node for node in graph if node.startswith("rack")}
    nx.draw_networkx_labels(graph, at, switches, ax=ax, font_size=8, bbox=frame)
    hosts = [node for node in graph if node.startswith("worker")]
    nx.draw_networkx_nodes(graph, at, hosts, ax=ax, node_color=LOOKS[0].colour)
    nx.draw_networkx_labels(graph, at, {host: host.split()[1] for host in hosts}, ax=ax, font_color="white")
    around = [(f"worker {i}", f"worker {(i + 1) % len(hosts)}") for i in range(len(hosts))]
    orange = {"edge_color": LOOKS[1].colour, "connectionstyle": "arc3,rad=0.2"}
    nx.draw_networkx_edges(nx.DiGraph(around), at, around, ax=ax, arrows=True, **orange)
