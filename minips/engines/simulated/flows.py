"""Messages on a simulated network: flows that share its links max-min fairly in virtual time.

A message is a flow: it receives its route's fair share until all of its bytes have left, and arrives after the route's
latency. Messages from one node to another follow each other, as over one connection. Whenever flows begin or end, the
shares of all flows are recomputed, once per instant.

A lost packet is sent again. In this model, a message of k packets is sent; one round trip later the sender knows which
are missing (a seeded draw for each) and resends them; and so on. So S bytes use about S/(1 − loss) bytes of bandwidth
on every link, and one extra round trip for each time that packets were missing.
"""

from collections.abc import Sequence
from functools import partial
from math import ceil, inf, isfinite

import numpy as np

from minips.drivers.events import EventLoop, Signal, Task
from minips.drivers.virtual import Interconnect
from minips.machines.topology import Edges, Network, Traffic, fair_shares

PACKET_BYTES = 1500
"""Bytes of one packet, as in an Ethernet frame."""
_SAME = 1e-12
"""Two times count as equal if they differ by less than this relative amount, the rounding error of sums."""


class FlowNetwork(Interconnect):
    """A network and its flows. ``traffic`` holds the competing flows; ``rng`` draws the lost packets."""

    def __init__(
        self, events: EventLoop, network: Network, traffic: Sequence[Traffic], rng: np.random.Generator
    ) -> None:
        self._events, self._network, self._rng = events, network, rng
        # Each competing flow has its own link, whose capacity is the flow's rate; the last link pads short routes.
        limits = [inf if flow.rate_bps is None else flow.rate_bps / 8 for flow in traffic]
        self._capacity = np.array([*network.capacity, *limits, inf])
        # The active flows, as columns: their links, bytes left, bytes per second, end times, end signals.
        self._edges = np.empty((0, 0), np.intp)
        self._left, self._rate, self._due = np.empty(0), np.empty(0), np.empty(0)
        self._ended = np.empty(0, object)
        self._last: dict[str, Signal] = {}
        self._new: list[tuple[Edges, float, Signal]] = []
        self._at, self._turn, self._settling, self._ending = 0.0, 0, False, False
        for number, flow in enumerate(traffic, len(network.capacity)):
            events.start(self._compete(flow, number))

    def travel(self, source: str, target: str, nbytes: float, least_s: float = 0.0, queue: str = "") -> Task[None]:
        route, began = self._network.route(source, target), self._events.now
        seconds = route.latency_s
        if route.loss and nbytes:
            tries = self._rng.geometric(1 - route.loss, ceil(nbytes / PACKET_BYTES))
            nbytes *= float(tries.mean())
            seconds += 2 * route.latency_s * float(tries.max() - 1)
        if route.edges.size and nbytes:
            queue = queue or f"{source} to {target}"
            before, left = self._last.get(queue), Signal()
            self._last[queue] = left
            if before:
                yield before
            yield self._begin(route.edges, nbytes)
            left.succeed()
        yield seconds
        yield began + least_s - self._events.now

    def _compete(self, traffic: Traffic, limit: int) -> Task[None]:
        route = self._network.route(traffic.source, traffic.target)
        yield traffic.start_s
        edges = np.append(route.edges, [] if traffic.rate_bps is None else [limit]).astype(np.intp)
        if edges.size:
            flow = self._begin(edges, inf)
            if traffic.stop_s is not None:
                yield traffic.stop_s - traffic.start_s
                self._due[self._ended == flow], self._ending = self._events.now, True
                self._touch()

    def _begin(self, edges: Edges, nbytes: float) -> Signal:
        ended = Signal()
        self._new.append((edges, nbytes, ended))
        self._touch()
        return ended

    def _touch(self) -> None:
        """Schedule new shares, to be computed after all events of this instant."""
        if not self._settling:
            self._settling = True
            self._events.at(self._events.now, self._settle)

    def _settle(self) -> None:
        self._settling = False
        self._end()
        if self._new:
            self._admit()
        if self._due.size:
            self._rate = fair_shares(self._edges, self._capacity)
            self._due = self._at + self._left / self._rate
            self._turn += 1
            turn, soonest = self._turn, float(self._due.min())
            if isfinite(soonest):
                self._events.at(soonest, partial(self._wake, turn))

    def _wake(self, turn: int) -> None:
        """End the flows that are due now, unless the shares have changed since ``turn``."""
        if turn == self._turn:
            self._ending = True
            self._end()
            self._touch()

    def _end(self) -> None:
        """Update the columns to this instant, if time has passed or a flow was due, and signal the flows that end."""
        now = self._events.now
        if now == self._at and not self._ending:
            return
        self._ending = False
        self._left = self._left - self._rate * (now - self._at)
        self._at = now
        over = self._due <= now * (1 + _SAME)
        if over.any():
            ended, stay = self._ended[over], ~over
            self._edges, self._ended = self._edges[:, stay], self._ended[stay]
            self._left, self._rate, self._due = self._left[stay], self._rate[stay], self._due[stay]
            for event in ended:
                event.succeed()

    def _admit(self) -> None:
        count, hops = len(self._new), max(route.size for route, _, _ in self._new)
        padding = len(self._capacity) - 1
        if hops > len(self._edges):
            rows = np.full((hops - len(self._edges), self._due.size), padding, np.intp)
            self._edges = np.concatenate([self._edges, rows])
        edges = np.full((len(self._edges), count), padding, np.intp)
        ended = np.empty(count, object)
        for i, (route, _, event) in enumerate(self._new):
            edges[: route.size, i] = route
            ended[i] = event
        self._edges = np.concatenate([self._edges, edges], axis=1)
        self._left = np.append(self._left, [nbytes for _, nbytes, _ in self._new])
        self._ended = np.concatenate([self._ended, ended])
        self._due = np.append(self._due, np.full(count, inf))
        self._new = []
