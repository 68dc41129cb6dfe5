"""The machines that a run is spread over: what they have, and who is on which of them."""

from dataclasses import dataclass
from math import inf
from typing import Any

from minips.core.config import Config
from minips.core.topology import Star, hosts
from minips.stage import Value, option
from minips.stages.transports import Link


@dataclass(frozen=True)
class Machines(Value):
    """Equal machines around one switch.

    >>> Machines(machines=2).places(workers=3, servers=1)
    {'server 0': 0, 'worker 0': 1, 'worker 1': 0, 'worker 2': 1}
    """

    machines: int = option(
        4, "machines; in `compare` those with a worker each, and servers have machines besides", minimum=1, step=1
    )
    bandwidth_bps: float = option(1e9, "bits per second of each machine's link, each way", above=0, unit="bit/s")
    latency_s: float = option(1e-4, "seconds that a message travels from one machine to another", minimum=0, unit="s")
    compute_s: float = option(0.0, "seconds that a worker computes for a batch", minimum=0, unit="s")
    cores: int = option(1, "cores of each machine; a process works on one of them at a time", minimum=1, step=1)

    @property
    def link(self) -> Link:
        """Each machine's connection to the switch, as a config has it."""
        return Link(self.bandwidth_bps, self.latency_s)

    def places(self, workers: int, servers: int) -> dict[str, int]:
        """The machine of each server and each worker: in turn, servers first, as the Ray engine places them."""
        names = [*hosts(0, servers), *hosts(workers, 0)]
        return {who: number % self.machines for number, who in enumerate(names)}

    def graph(self, workers: int, servers: int) -> Any:
        """The network as a ``networkx.Graph``: what stays on one machine passes no link."""
        graph = Star().graph(workers=0, servers=0)  # empty; where networkx is missing it says what to install
        for who, number in self.places(workers, servers).items():
            graph.add_edge(who, f"machine {number}", bandwidth_bps=inf, latency_s=0.0)
        for number in range(self.machines):
            graph.add_edge(
                f"machine {number}", "switch", bandwidth_bps=self.bandwidth_bps, latency_s=self.latency_s / 2
            )
        return graph


def check_one_network(config: Config, cluster: Machines | None) -> None:
    """ValueError where a run would have the network of a cluster and the config's link."""
    if cluster and config.link:
        raise ValueError(f"The cluster has a network of its own, and the config has {config.link!r}. Use link=None.")
