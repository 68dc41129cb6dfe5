"""The seconds of a step without computing: in virtual time on any network, and on hosts; and workers in zigzag."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import minips as ps
from minips.cost.traffic import FixedGradients
from minips_course.hosts import Network, Runs

Fields = Mapping[str, Any]
"""The fields of a `ps.Config` that say how gradients are added up."""
NBYTES = 100_000
"""Of the gradient that crosses the networks of hosts."""


def ways(workers: int) -> dict[str, Fields]:
    """Return ways to add up gradients: over one server or as many as workers, and by schedules."""
    return {
        "server": {"servers": 1},
        "servers": {"servers": workers},
        "ring": {"exchange": ps.RingAllReduce()},
        "tree": {"exchange": ps.TreeAllReduce()},
        "halving": {"exchange": ps.HalvingDoubling()},
    }


def only_exchange(nbytes: int, workers: int = 8) -> ps.Problem:
    """Return a problem whose gradients take no time, so that a run consists only of exchanges."""
    nothing = {"w": np.zeros(nbytes // 4, np.float32)}
    return FixedGradients(nothing, nothing, rows=workers)


def virtual_s(fields: Fields, network: Any, nbytes: int, workers: int = 8) -> float:
    """Return the seconds of a step in virtual time, over a topology or a graph of networkx."""
    config = ps.Config(workers=workers, steps=2, **fields)
    run = ps.train(only_exchange(nbytes, workers), config, engine=ps.Simulated(network))
    return run.losses[1][0] - run.losses[0][0]


def placed(network: Any, numbers: "list[int]", servers: int = 0) -> Any:
    """Return the graph of a topology with worker ``numbers[i]`` at the place of worker i."""
    import networkx as nx

    graph = network.graph(workers=len(numbers), servers=servers)
    return nx.relabel_nodes(graph, {f"worker {place}": f"worker {rank}" for place, rank in enumerate(numbers)})


def zigzag(workers: int) -> "list[int]":
    """Return the workers in the order of their places if even ones are in the first half, and odd ones in the second.

    >>> zigzag(5)
    [0, 2, 4, 1, 3]
    """
    return [*range(0, workers, 2), *range(1, workers, 2)]


@dataclass(frozen=True)
class ZigzagRing(ps.RingAllReduce):
    """A ring that goes from one half of the workers to the other and back, again and again."""

    name = "zigzagring"

    def schedule(self, rank: int, workers: int) -> "list[ps.Hop]":
        order = [int(place) for place in np.argsort(zigzag(workers))]
        place = order.index(rank)
        after, before = order[(place + 1) % workers], order[place - 1]
        return [hop._replace(to=after, source=before) for hop in super().schedule(place, workers)]


def on_hosts(real: Network, fields: Fields, network: Any, **buffers: int) -> Runs:
    """Return the seconds per step of three runs of four workers on hosts, with a gradient of `NBYTES`."""
    config = ps.Config(workers=4, steps=6, **fields)
    return real.runs(only_exchange(NBYTES, 4), config, real.hosts(network, **buffers))


class Pair(NamedTuple):
    """The seconds of a step in virtual time, and those of the runs on hosts."""

    predicted: float
    runs: Runs

    @property
    def median(self) -> float:
        """The seconds of a step of the median run on hosts."""
        return self.runs.median

    @property
    def ratio(self) -> float:
        """The median over the virtual time."""
        return self.median / self.predicted


def both(real: Network, ways: Mapping[str, Fields], network: Any, **buffers: int) -> dict[str, Pair]:
    """Return the time of a step for each way, in virtual time and on hosts with these ``buffers`` of `ps.Hosts`."""
    return {
        way: Pair(virtual_s(fields, network, NBYTES, workers=4), on_hosts(real, fields, network, **buffers))
        for way, fields in ways.items()
    }


def zigzag_over_ring(pairs: Mapping[str, Pair]) -> dict[str, float]:
    """Return the zigzag ring's time over the ring's, on hosts and in virtual time."""
    zigzag, ring = pairs["zigzag"], pairs["ring"]
    return {"times": zigzag.median / ring.median, "virtual": zigzag.predicted / ring.predicted}


def told(pairs: Mapping[str, Pair]) -> dict[str, float]:
    """Return each way's milliseconds on hosts, and the packets that TCP sent again in the median run."""
    again = {f"{way}_again": statistics.median(pair.runs.again) for way, pair in pairs.items()}
    return {way: 1e3 * pair.median for way, pair in pairs.items()} | again


def hosts_table(found: Mapping[str, Mapping[str, Pair]]) -> str:
    """Return the milliseconds of each way on each network, in virtual time and on hosts."""
    rows = ["ms of a step              virtual   on hosts"]
    for network, pairs in found.items():
        for way, pair in pairs.items():
            rows.append(f"{f'{network}, {way}':25} {1e3 * pair.predicted:7.0f} {1e3 * pair.median:10.0f}")
    return "\n".join(rows)


def numbering_table(racks_s: Any) -> str:
    """Return the milliseconds of four exchanges over two racks by a learner's function and in virtual time."""
    network = ps.TwoRacks(100e6, 0.0, uplink_bps=20e6)
    rows = ["ms of a step   by your function   virtual"]
    for name, exchange in (("ring", ps.RingAllReduce()), ("halving", ps.HalvingDoubling())):
        for how, racks in (("in order", "00001111"), ("in zigzag", "01010101")):
            numbers = sorted(range(8), key=racks.__getitem__)
            virtual = virtual_s({"exchange": exchange}, placed(network, numbers), 400_000)
            mine = racks_s(exchange, racks, 400_000, 100e6 / 8, 20e6 / 8)
            rows.append(f"{f'{name}, {how}':19} {1e3 * mine:12.0f} {1e3 * virtual:9.0f}")
    return "\n".join(rows)
