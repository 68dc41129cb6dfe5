"""The networks of a prediction: links that carry one message after another, and hosts' queues of packets.

On hosts, each connection has one or two bursts in its host's queue, and adds the next one when a burst has left, as
with TCP segmentation offload and TCP small queues (Linux's ``net/ipv4/tcp_output.c``). Each link is a first-in,
first-out queue.
"""

from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from math import ceil
from typing import Any

from minips.drivers.events import EventLoop, Signal, Task
from minips.drivers.virtual import Interconnect
from minips.engines.hosts import PACKET_BYTES
from minips.machines.topology import Network
from minips.stages.transports import Link

PAYLOAD_BYTES = 1448
"""A message's bytes in a packet of 1,500: IP takes 20 (RFC 791), TCP 20 and its time stamps 12 (RFC 9293, 7323)."""
BURST_BYTES = 45 * PACKET_BYTES
"""The bytes of the packets that fit into the 64 KiB of a burst."""
ACKNOWLEDGED = 66 / (2 * PACKET_BYTES)
"""Bytes of acknowledgements per byte of packets: an empty packet for every second packet (RFC 5681)."""
PARTS = 64
"""The most units into which the packets of a long message are grouped."""


class Links(Interconnect):
    """Equal links to one switch, one for each machine: first come, first served in each direction. ``places`` maps
    processes to machines; any other process has its own machine. Messages within a machine do not use its link.

    A link delays messages as `minips.stages.transports.link` does, and by another ``late_s`` seconds if a message had
    to wait.
    """

    def __init__(self, events: EventLoop, link: Link, late_s: float, places: Mapping[str, int]) -> None:
        self._events, self._link, self._late_s, self._places = events, link, late_s, places
        self._out: dict[object, float] = defaultdict(float)
        self._in: dict[object, float] = defaultdict(float)
        """When each machine's link is free again, in each direction."""

    def travel(self, source: str, target: str, nbytes: float, least_s: float = 0.0, queue: str = "") -> Task[None]:
        here, there = self._places.get(source, source), self._places.get(target, target)
        if here == there:
            yield least_s
            return
        events, seconds = self._events, nbytes * 8 / self._link.bandwidth_bps
        start = self._pass(self._out, here, events.now, seconds)
        yield least_s
        yield start - events.now
        arrival = self._pass(self._in, there, start, seconds) + seconds + self._link.latency_s
        if arrival > events.now:
            yield arrival - events.now + self._late_s

    def _pass(self, free: dict[object, float], machine: object, earliest: float, seconds: float) -> float:
        """Return when a message that needs this many seconds begins to occupy a machine's link in one direction."""
        start = self._events.later(free[machine], earliest)
        if seconds:
            free[machine] = start + seconds
        return start

    def left(self) -> list[float]:
        return [max(0.0, free - self._events.now) for free in (*self._out.values(), *self._in.values())]


class Queues(Interconnect):
    """The links of a graph, with a queue in each direction. ``deepest`` is the most bytes that waited in a queue.

    A message keeps ``ahead`` bursts in its sender's queue: 1 if others are sent with it, 2 if a rank sends only it.
    """

    def __init__(self, events: EventLoop, graph: Any, ahead: int) -> None:
        self._events, self._network, self._ahead = events, Network(graph), ahead
        self._rates: list[float] = self._network.capacity.tolist()
        self._free, self.deepest = [0.0] * len(self._rates), 0.0

    def travel(self, source: str, target: str, nbytes: float, least_s: float = 0.0, queue: str = "") -> Task[None]:
        route, began, packets = self._network.route(source, target), self._events.now, ceil(nbytes / PAYLOAD_BYTES)
        links, parts = route.edges.tolist(), min(packets, PARTS)
        size = (nbytes + packets * (PACKET_BYTES - PAYLOAD_BYTES)) / max(parts, 1)  # 14 bytes of a header: RFC 894
        ends: list[float] = []
        for part in range(1, parts + 1):
            arrived = Signal()
            self._pass(links, size, arrived)
            if part % max(1, int(BURST_BYTES / size)) == 0:
                ends.append(self._free[links[0]])
                if len(ends) >= self._ahead:
                    yield ends[-self._ahead] - self._events.now
        if parts:
            yield arrived
        yield max(route.latency_s, began + least_s - self._events.now)

    def _pass(self, links: list[int], size: float, arrived: Signal) -> None:
        """Join the first of these queues, and the next one as soon as the first byte arrives there."""
        link, back, now, rate = links[0], links[0] ^ 1, self._events.now, self._rates[links[0]]
        start = self._events.later(self._free[link], now)
        self._free[link] = start + size / rate
        self._free[back] = max(self._free[back], now) + ACKNOWLEDGED * size / rate
        self.deepest = max(self.deepest, (self._free[link] - now) * rate)
        follow = partial(self._pass, links[1:], size, arrived) if links[1:] else arrived.succeed
        self._events.at(start if links[1:] else self._free[link], follow)
