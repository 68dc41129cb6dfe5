"""Do without a server: draws the network that an exchange uses; thicker links carry more traffic."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from minips.core.collectives import RingAllReduce
from minips.core.config import Config
from minips.core.exchange import AllReduce, Exchange
from minips.cost import Simulated, Star, Topology, Traffic
from minips.cost.traffic import FixedGradients
from minips.lab.panels.base import Panel, side_by_side
from minips.lab.plots import LOOKS, legend_above
from minips.lab.source import code
from minips.machines.topology import Network
from minips.stage import Value, names, option, stage_class
from minips.stages.transports import Link
from minips.training.train import train

WAYS = {"ps": "parameter server", "halvingdoubling": "halving-doubling", "twoshot": "two-shot"}
"""Maps an exchange's name here to its usual name, if the two differ."""


@dataclass(frozen=True)
class Meeting(Value):
    """An exchange of gradients, and the network that it uses."""

    topology: Topology = option(Star(1e8, 1e-3), "the network")
    exchange: Exchange = option(RingAllReduce(), "servers, or an all-reduce among the workers")
    workers: int = option(8, "workers, each with a gradient", minimum=1, maximum=16, step=1)
    servers: int = option(1, "servers, if the exchange has any", minimum=1, maximum=8, step=1)
    kilobytes: int = option(400, "size of a gradient", minimum=1, maximum=4_000, step=1, unit="kB")
    busy: bool = option(False, "other traffic: a long transfer from worker 0 to worker 1")


class Met(NamedTuple):
    """One exchange over one network."""

    asked: Meeting
    graph: Any
    """A ``networkx.Graph``."""
    carried: Counter[tuple[Any, Any]]
    """Maps a link and direction to the bytes per step, without headers."""
    seconds: dict[str, float]
    """Seconds of a step for each exchange that allows this many workers and was not stopped."""


class Collectives(Panel[Meeting, Met]):
    """Shows a step without computing, in virtual time: the traffic on the network's links, and each exchange's time.

    >>> panel = Collectives(workers=4)
    >>> found = panel.find(panel.form.value())
    >>> found.carried["worker 0", "switch"]  # 2(n−1)/n of 400 kB
    600000.0
    """

    title = "Network"
    asks = Meeting
    width = 8.4
    heights = (4.0, 6.2)

    def find(self, asked: Meeting) -> Met:
        Config(workers=asked.workers, exchange=asked.exchange)  # raises an error with a sentence if it is impossible
        served = 0 if isinstance(asked.exchange, AllReduce) else asked.servers
        graph = asked.topology.graph(asked.workers, served)
        exchanges: dict[str, Any] = {name: stage_class("exchange", name)() for name in names("exchange")}
        seconds = {asked.exchange.name: _seconds(asked)}
        for name, exchange in exchanges.items():
            if name not in seconds and not self.job.stopping.is_set():
                with suppress(ValueError):  # not possible with this many workers
                    seconds[name] = _seconds(replace(asked, exchange=exchange))
        seconds = {name: seconds[name] for name in exchanges if name in seconds}
        return Met(asked, graph, _link_traffic(asked, graph), seconds)

    def draw(self, found: Met, figure: Figure) -> None:
        import networkx as nx

        left, right = side_by_side(figure, width_ratios=(5, 3))
        graph, most = found.graph, max(found.carried.values(), default=1)
        flat = nx.Graph(graph)
        # A circle for a ring of hosts; a spring layout for hosts on switches.
        at = nx.kamada_kawai_layout(flat) if len({d for _, d in flat.degree()}) > 1 else nx.circular_layout(flat)
        for one, other in flat.edges:
            each = max(found.carried[one, other], found.carried[other, one])
            colour = LOOKS[1].colour if each else "lightgrey"
            left.plot(*zip(at[one], at[other], strict=True), color=colour, linewidth=0.8 + 5 * each / most, zorder=1)
        looks = {
            "worker": ("o", LOOKS[0].colour, 260),
            "server": ("s", LOOKS[2].colour, 260),
            "switch": ("D", "white", 60),
        }
        for role, (marker, colour, size) in looks.items():
            who = [node for node in graph if _role(node) == role]
            if who:
                xy = np.array([at[node] for node in who])
                left.scatter(*xy.T, s=size, marker=marker, c=colour, edgecolors="black", zorder=2, label=role)
            for node in who if role != "switch" else ():
                left.text(*at[node], node.split()[1], ha="center", va="center", color="white", fontsize=9)
        left.axis("off")
        left.margins(0.08)
        legend_above(left, 3)
        for name, took in found.seconds.items():
            look = LOOKS[1] if name == found.asked.exchange.name else LOOKS[5]._replace(hatch="")
            bar = right.barh(WAYS.get(name, name), took * 1e3, **look.area)
            right.bar_label(bar, fmt="%.0f" if took > 0.1 else "%.3g", padding=3)
        right.invert_yaxis()
        right.margins(x=0.25)
        right.set(xlabel="time of a step (ms)")

    def words(self, found: Met) -> str:
        asked, took = found.asked, found.seconds[found.asked.exchange.name]
        best = min(found.seconds, key=found.seconds.__getitem__)
        links = dict.fromkeys(
            Link(edge["bandwidth_bps"], edge["latency_s"]) for _, _, edge in found.graph.edges(data=True)
        )
        over = " and of ".join(f"{1e-6 * one.bandwidth_bps:g} Mbit/s and {1e3 * one.latency_s:g} ms" for one in links)
        counted = "a server" if asked.servers == 1 else f"{asked.servers} servers"
        who = f"{asked.workers} workers" + ("" if isinstance(asked.exchange, AllReduce) else f" and {counted}")
        (one, other), each = max(found.carried.items(), key=lambda item: item[1], default=(("", ""), 0))
        link = f" The busiest link, from {one} to {other}, carries {each / 1e3:.0f} kB." if each else ""
        return (
            f"{code(asked.exchange, package=False)} among {who} takes {took * 1e3:.3g} ms a step, in virtual "
            f"time, over links of {over}.{link} The fastest here: {WAYS.get(best, best)}."
        )


def _seconds(asked: Meeting) -> float:
    """Return the seconds from the end of the first step to the end of the second."""
    traffic = (Traffic("worker 0", "worker 1"),) if asked.busy and asked.workers > 1 else ()
    servers = 1 if isinstance(asked.exchange, AllReduce) else asked.servers
    config = Config(workers=asked.workers, servers=servers, exchange=asked.exchange, steps=2)
    nothing = {"w": np.zeros(250 * asked.kilobytes, np.float32)}
    problem = FixedGradients(nothing, nothing, rows=asked.workers)
    run = train(problem, config, engine=Simulated(asked.topology, traffic=traffic))
    return run.losses[1][0] - run.losses[0][0]


def _link_traffic(asked: Meeting, graph: Any) -> Counter[tuple[Any, Any]]:
    carried, network = Counter[tuple[Any, Any]](), Network(graph)
    for source, target, nbytes in _messages(asked):
        for hop in pairwise(network.path(source, target)):
            carried[hop] += nbytes  # type: ignore[assignment]
    return carried


def _messages(asked: Meeting) -> Iterator[tuple[str, str, float]]:
    """Yield the sender, the receiver and the bytes of each message in a step."""
    nbytes, exchange = 1e3 * asked.kilobytes, asked.exchange
    for worker in range(asked.workers):
        who = f"worker {worker}"
        if isinstance(exchange, AllReduce):
            each = nbytes / exchange.pieces(asked.workers)
            for hop in exchange.schedule(worker, asked.workers):
                if hop.to is not None:
                    yield who, f"worker {hop.to}", each * len(hop.sends)
        else:
            for server in range(asked.servers):
                yield who, f"server {server}", nbytes / asked.servers
                yield f"server {server}", who, nbytes / asked.servers


def _role(node: Any) -> str:
    return next((role for role in ("worker", "server") if str(node).startswith(f"{role} ")), "switch")
