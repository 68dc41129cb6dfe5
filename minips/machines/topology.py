"""Networks and machines for the simulated engine: nodes, links, routes, fair shares, and placement of processes.

A topology is an object that builds a networkx graph for a given number of workers and servers. Its nodes are the hosts,
named as in a trace ("worker 0", "server 0"), and the switches between them. Its edges are the links. Each has
``bandwidth_bps`` (bits per second each way: links are full duplex), ``latency_s`` and perhaps ``loss`` (the share of
packets dropped). A message takes the path with the fewest links (or with the least ``weight``, if edges have one).
Switches store nothing: S bytes over two links of B bytes per second and latencies α₁ and α₂ take S/B + α₁ + α₂.
"""

from abc import abstractmethod
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, fields
from itertools import pairwise
from math import inf
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from minips.core.config import Config
from minips.stage import Array, Stage, Value, option, register
from minips.stages.transports import Link

__all__ = ["FatTree", "Ring", "Star", "Topology", "Traffic", "Tree", "TwoRacks"]

Edges = NDArray[np.intp]
"""The numbers of a network's links; each direction of a link has its own number."""


class Topology(Stage):
    """The base class of networks."""

    kind: ClassVar[str] = "topology"
    requires: ClassVar[tuple[str, ...]] = ("networkx",)
    extra: ClassVar[str] = "simulate"

    @abstractmethod
    def graph(self, workers: int, servers: int) -> Any:
        """Return a ``networkx.Graph`` with a node for each of the `hosts`; a ``DiGraph`` has one-way links."""


def hosts(workers: int, servers: int) -> list[str]:
    """Return the nodes that send and receive: "worker 0", …, "server 0", …"""
    return [f"{role} {i}" for role, count in (("worker", workers), ("server", servers)) for i in range(count)]


@dataclass(frozen=True)
class _Alike(Topology):
    """A topology whose links have the same latency and loss. ``links`` yields the ends of each link, and its bandwidth
    if that differs from ``bandwidth_bps``.
    """

    bandwidth_bps: float = option(1e9, "bits per second of each link, each way", above=0, unit="bit/s")
    latency_s: float = option(1e-4, "seconds that a message travels over each link", minimum=0, unit="s")
    loss: float = option(0.0, "share of the packets that each link drops", minimum=0, maximum=0.9)

    @abstractmethod
    def links(self, workers: int, servers: int) -> Iterator[tuple[str, str] | tuple[str, str, float]]:
        """Yield the links in the order of their numbers."""

    def graph(self, workers: int, servers: int) -> Any:
        import networkx as nx

        graph = nx.Graph()
        for node, neighbour, *bandwidth_bps in self.links(workers, servers):
            bits = bandwidth_bps[0] if bandwidth_bps else self.bandwidth_bps
            graph.add_edge(node, neighbour, bandwidth_bps=bits, latency_s=self.latency_s, loss=self.loss)
        return graph


@register
@dataclass(frozen=True)
class Star(_Alike):
    """One switch with a link to every host; a message crosses two links.

    >>> sorted(Star().graph(workers=2, servers=1)["switch"])
    ['server 0', 'worker 0', 'worker 1']
    """

    name = "star"

    def links(self, workers: int, servers: int) -> Iterator[tuple[str, str]]:
        return ((host, "switch") for host in hosts(workers, servers))


@register
@dataclass(frozen=True)
class Ring(_Alike):
    """The hosts form a circle, workers before servers, each with a link to the next. Hosts forward messages."""

    name = "ring"

    def links(self, workers: int, servers: int) -> Iterator[tuple[str, str]]:
        circle = hosts(workers, servers)
        return zip(circle, [*circle[1:], *circle[:1]], strict=True)


@register
@dataclass(frozen=True)
class Tree(_Alike):
    """A tree of switches with the hosts as leaves. All links are alike, so the links near the root are bottlenecks."""

    name = "tree"
    fanout: int = option(4, "nodes below a switch", minimum=2, step=1)

    def links(self, workers: int, servers: int) -> Iterator[tuple[str, str, float]]:
        leaves = dict.fromkeys(hosts(workers, servers), 1)  # the number of leaves below each node of one level
        level = 0
        while len(leaves) > 1 or not level:
            above: dict[str, int] = {}
            for i, (node, below) in enumerate(leaves.items()):
                switch = f"switch {level}.{i // self.fanout}"
                above[switch] = above.get(switch, 0) + below
                yield node, switch, self.bandwidth_bps * self.width(below)
            leaves, level = above, level + 1

    def width(self, leaves: int) -> int:
        """Return the bandwidth of the link above this many hosts, relative to a host's link."""
        return 1


@register
@dataclass(frozen=True)
class FatTree(Tree):
    """A tree whose links widen towards the root: each has the combined bandwidth of all hosts below it.

    Source: Leiserson 1985, "Fat-Trees: Universal Networks for Hardware-Efficient Supercomputing". Data centres build
    such a tree from many equal switches (Al-Fares et al. 2008), which is equivalent if routing is ideal.
    """

    name = "fattree"

    def width(self, leaves: int) -> int:
        return leaves


@register
@dataclass(frozen=True)
class TwoRacks(_Alike):
    """Two switches with a thin uplink between them. The first half of the workers is in rack 0; servers alternate. With
    ``racks``, each host is where you say: "0011 01" has two workers and a server in each.

    >>> sorted(TwoRacks(racks="01 1").graph(workers=2, servers=1)["rack 1"])
    ['rack 0', 'server 0', 'worker 1']
    """

    name = "tworacks"
    uplink_bps: float = option(1e8, "bits per second between the racks, each way", above=0, unit="bit/s")
    racks: str = option("", "the rack, 0 or 1, of each worker and then of each server; empty: as above")

    def __post_init__(self) -> None:
        super().__post_init__()
        if {*self.racks} - {*"01 "}:
            raise ValueError(f"The racks are a text of 0, 1 and spaces, such as '0011 01'; got {self.racks!r}.")

    def __repr__(self) -> str:
        """Leave out the usual places: what was recorded on a network is found by this text."""
        named = [field.name for field in fields(self) if field.name != "racks" or self.racks]
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in named)})"

    def links(self, workers: int, servers: int) -> Iterator[tuple[str, str] | tuple[str, str, float]]:
        yield "rack 0", "rack 1", self.uplink_bps
        usual = [i * 2 // workers for i in range(workers)] + [i % 2 for i in range(servers)]
        racks = self.racks.replace(" ", "") or usual
        if len(racks) != len(usual):
            told = f"racks={self.racks!r} places {len(racks)} hosts, not {workers} workers and {servers} servers."
            raise ValueError(told)
        for host, rack in zip(hosts(workers, servers), racks, strict=True):
            yield host, f"rack {rack}"


@dataclass(frozen=True)
class Machines(Value):
    """Equal machines connected to one switch.

    >>> Machines(machines=2).places(workers=3, servers=1)
    {'server 0': 0, 'worker 0': 1, 'worker 1': 0, 'worker 2': 1}
    """

    machines: int = option(
        4, "machines; in `compare`, one for each worker: servers have separate machines", minimum=1, step=1
    )
    bandwidth_bps: float = option(1e9, "bits per second of each machine's link, each way", above=0, unit="bit/s")
    latency_s: float = option(1e-4, "seconds of a message from one machine to another", minimum=0, unit="s")
    compute_s: float = option(0.0, "seconds that a worker computes on a batch", minimum=0, unit="s")
    cores: int = option(1, "cores of each machine; a process uses one at a time", minimum=1, step=1)

    @property
    def link(self) -> Link:
        """Return each machine's link to the switch, as a `Config.link`."""
        return Link(self.bandwidth_bps, self.latency_s)

    def places(self, workers: int, servers: int) -> dict[str, int]:
        """Return the machine of each server and worker: in rotation, servers first, as the Ray engine places them."""
        names = [*hosts(0, servers), *hosts(workers, 0)]
        return {name: number % self.machines for number, name in enumerate(names)}

    def graph(self, workers: int, servers: int) -> Any:
        """Return the network as a ``networkx.Graph``. Messages within one machine are not delayed by a link."""
        graph = Star().graph(workers=0, servers=0)  # empty; if networkx is missing, the error says what to install
        for who, number in self.places(workers, servers).items():
            graph.add_edge(who, f"machine {number}", bandwidth_bps=inf, latency_s=0.0)
        for number in range(self.machines):
            graph.add_edge(
                f"machine {number}", "switch", bandwidth_bps=self.bandwidth_bps, latency_s=self.latency_s / 2
            )
        return graph


def check_one_network(config: Config, cluster: Machines | None) -> None:
    """Raise ValueError if a run would have two networks: the cluster's and the config's link."""
    if cluster and config.link:
        raise ValueError(f"The cluster has its own network, but the config has {config.link!r}. Use link=None.")


@dataclass(frozen=True)
class Own(Topology):
    """A topology that wraps a graph which the user made: `Simulated` accepts a ``networkx.Graph`` and wraps it."""

    name = "own"
    drawn: object = option(None, "a networkx.Graph")

    def graph(self, workers: int, servers: int) -> Any:
        lacking = [host for host in hosts(workers, servers) if host not in self.drawn]  # type: ignore[operator]
        if lacking:
            raise ValueError(f"The graph needs a node for each worker and server; {', '.join(lacking)} is missing.")
        return self.drawn


@dataclass(frozen=True)
class Traffic(Value):
    """A competing transfer between two nodes, which shares the links with all other flows while it lasts."""

    source: str = option("worker 0", "the node that sends")
    target: str = option("server 0", "the node that receives")
    rate_bps: float | None = option(None, "bits per second at most; None: its fair share", above=0, unit="bit/s")
    start_s: float = option(0.0, "when it begins", minimum=0, unit="s")
    stop_s: float | None = option(None, "when it ends; None: never", minimum=0, unit="s")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stop_s is not None and self.stop_s < self.start_s:
            raise ValueError(f"Traffic that begins at {self.start_s:g} s cannot end at {self.stop_s:g} s.")


class Route(NamedTuple):
    """A route between two nodes: its links of finite bandwidth, its total latency and its packet loss."""

    edges: Edges
    latency_s: float
    loss: float


class Network:
    """The numbered links of a graph, one for each direction, and the routes over them.

    ``capacity`` contains each link's bytes per second. Raises ValueError for an edge that lacks a link's attributes.
    """

    def __init__(self, graph: Any) -> None:
        if graph.is_multigraph():
            raise ValueError("Two nodes of a network can have only one link; got a multigraph. Add up the bandwidths.")
        self._graph = graph
        self._numbers: dict[tuple[Hashable, Hashable], int] = {}
        self._routes: dict[tuple[Hashable, Hashable], Route] = {}
        self._middles: dict[tuple[Hashable, Hashable], list[Hashable]] = {}
        self._weight = "weight" if any("weight" in edge for _, _, edge in graph.edges(data=True)) else None
        rows: list[tuple[float, float, float]] = []
        for source, target, edge in graph.edges(data=True):
            try:
                row = _link(edge)
            except ValueError as error:
                raise ValueError(f"The link between {source!r} and {target!r}: {error}") from error
            for ends in ((source, target),) if graph.is_directed() else ((source, target), (target, source)):
                self._numbers[ends] = len(rows)
                rows.append(row)
        table = np.array(rows, float).reshape(-1, 3)
        self.capacity: Array = table[:, 0]
        self._latency_s, self._loss = table[:, 1], table[:, 2]

    def route(self, source: Hashable, target: Hashable) -> Route:
        """Return the route from ``source`` to ``target``. ValueError if none exists, or if it loses all packets."""
        if (source, target) not in self._routes:
            edges = np.array([self._numbers[hop] for hop in pairwise(self.path(source, target))], np.intp)
            narrow, loss = edges[np.isfinite(self.capacity[edges])], 1 - float(np.prod(1 - self._loss[edges]))
            if loss == 1:  # to a float's precision
                raise ValueError(
                    f"Nothing gets from {source!r} to {target!r}: together the {len(edges)} links lose everything. "
                    "Lower their loss."
                )
            self._routes[source, target] = Route(narrow, float(self._latency_s[edges].sum()), loss)
        return self._routes[source, target]

    def path(self, source: Hashable, target: Hashable) -> list[Hashable]:
        """Return the nodes on the route. Nodes with the same only neighbour share one search, so a thousand hosts on
        one switch need only one search.
        """
        import networkx as nx

        lacking = [node for node in (source, target) if node not in self._graph]
        if lacking:
            raise ValueError(f"The network has no node {lacking[0]!r}.")
        before = self._graph.pred if self._graph.is_directed() else self._graph.adj
        first = next(iter(self._graph.adj[source])) if len(self._graph.adj[source]) == 1 else source
        last = next(iter(before[target])) if len(before[target]) == 1 else target
        if target in (source, first) or last == source:
            return list(dict.fromkeys((source, target)))
        if (first, last) not in self._middles:
            try:
                self._middles[first, last] = nx.shortest_path(self._graph, first, last, weight=self._weight)
            except nx.NetworkXNoPath as error:
                raise ValueError(f"The network has no path from {source!r} to {target!r}.") from error
        return list(dict.fromkeys((source, *self._middles[first, last], target)))


def fair_shares(routes: Edges, capacity: Array) -> Array:
    """Return the max-min fair bytes per second of each flow: a flow can have more only if a slower flow gets less.

    ``routes`` of shape (hops, flows) holds each flow's links, padded with the number of a link of infinite
    ``capacity``. Progressive filling: a link that is the narrowest for all its flows is divided equally among them;
    their rates are subtracted from their other links. This step is repeated for the flows that have no rate yet.
    Source: Bertsekas and Gallager 1992, "Data Networks", section 6.5.2.

    Three flows share a link of 6 bytes per second, and one of them also passes a link of 1:

    >>> fair_shares(np.array([[0, 0, 0], [1, 2, 2]]), np.array([6.0, 1.0, np.inf]))
    array([1. , 2.5, 2.5])
    """
    rates = np.full(routes.shape[1], np.inf)
    rest = np.arange(routes.shape[1])
    left = capacity.astype(float)
    while rest.size:
        flows = np.bincount(routes.ravel(), minlength=len(left))
        share = np.full(len(left), np.inf)
        np.divide(left, flows, out=share, where=flows > 0)
        tightest = share.argmin()
        if flows[tightest] == rest.size:  # one link limits all flows, which is the common case: done
            rates[rest] = share[tightest]
            break
        narrowest = share[routes].min(axis=0)
        least = np.full(len(left), np.inf)
        np.minimum.at(least, routes.ravel(), np.tile(narrowest, len(routes)))
        settled = (share <= least * (1 + 1e-12))[routes].any(axis=0)
        taken = narrowest[settled]
        rates[rest[settled]] = taken
        if settled.all():
            break
        rest, gone, routes = rest[~settled], routes[:, settled], routes[:, ~settled]
        used = np.bincount(gone.ravel(), np.tile(taken, len(gone)), len(left))
        left = np.maximum(left - used, 0.0)
    return rates


def _link(edge: dict[str, Any]) -> tuple[float, float, float]:
    """Return the bytes per second, seconds and loss of an edge."""
    lacking = [name for name in ("bandwidth_bps", "latency_s") if name not in edge]
    if lacking:
        raise ValueError(f"it needs {' and '.join(lacking)}.")
    link, loss = Link(edge["bandwidth_bps"], edge["latency_s"]), float(edge.get("loss", 0.0))
    if not 0 <= loss < 1:
        raise ValueError(f"its loss must be at least 0 and below 1, got {loss:g}.")
    return link.bandwidth_bps / 8, link.latency_s, loss


def __dir__() -> list[str]:
    return __all__
