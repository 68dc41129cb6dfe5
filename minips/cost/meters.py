"""What a calibration runs in two processes of its own: one asks, as a worker does, and one answers, as a server does.

Three things are asked, in turns, so that what the machine does now and then falls on all of them: bare calls of several
sizes; the same through a shaped link, which should take what the link says and is late; and pushes with their pulls, of
several models, each at a server of its own. Walls are clocks of single calls; processor time is that of all of a
process's threads, over a block of calls.
"""

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np

from minips.problems import Problem
from minips.runtime.client import Client, connect
from minips.runtime.config import Config
from minips.runtime.engines.roles import Line as Pipe
from minips.runtime.server import Server
from minips.runtime.worker import compute
from minips.stage import Frames, Tensors
from minips.stages.aggregators import Aggregator, Contribution
from minips.stages.transports import Channel, Link

CALL_BYTES = (100, 10_000, 100_000, 1_000_000)
LINK = Link(bandwidth_bps=1e9, latency_s=2e-3)
"""What the lateness is measured behind: no link of anybody's config, only one that makes a message wait a while."""
BLOCKS, CALLS = 7, 6
"""So many times each thing is asked a few times in a row."""
BLOCK_S, ENOUGH_S = 0.25, 1.0
"""A block of calls that would take longer has fewer calls, but one at least; what took so long in all has no more."""
SPIN_S = 0.1
_CPU = struct.Struct("<d")

Timings = list[tuple[float, float]]
"""Pairs of a size (values, bytes or rows) and seconds."""


def answer(
    line: Pipe, *, config: Config, pieces: list[Tensors], aggregator: Aggregator, together: int, token: str
) -> dict[str, Any]:
    """Echo, bare and behind a link, and a server for each of ``pieces``; reports the servers' spans, and what the
    aggregator takes for ``together`` contributions.
    """
    with ExitStack() as stack:
        bare = stack.enter_context(config.transport.serve(_processor_time, None, token))
        shaped = stack.enter_context(LINK.around(config.transport).serve(_processor_time, None, token))
        servers = [stack.enter_context(Server(params, config).serve(token=token)) for params in pieces]
        line.say("ready", [bare.address, shaped.address, *(server.address for server in servers)])
        if line.wait()[0] == "spin":
            line.say("spun", _spin())
            line.wait()
    rounds = list(_rounds(aggregator, pieces, together))
    return {"spans": [list(server.trace) for server in servers], "aggregate": rounds}


def ask(
    line: Pipe, *, config: Config, pieces: list[Tensors], problem: Problem | None, addresses: list[str], token: str
) -> dict[str, Any]:
    """Call, push and pull, compute; reports what everything took, says ``progress`` on the way."""
    line.say("ready")
    if line.wait()[0] == "spin":
        line.say("spun", _spin())
    with ExitStack() as stack:
        bare = stack.enter_context(config.transport.connect(addresses[0], token))
        shaped = stack.enter_context(LINK.around(config.transport).connect(addresses[1], token))
        clients = [stack.enter_context(connect(address, config, token=token)) for address in addresses[2:]]
        meter = _Meter(bare, config)
        for client in clients:
            client.pull().result(config.timeout_s)
        for block in range(-1, BLOCKS):  # the first warms up
            line.say("progress", (block + 1) / (BLOCKS + 1))
            if line.hear(0.0)[0] == "stop":
                raise InterruptedError("The calibration was stopped.")
            for nbytes in CALL_BYTES:
                frames: Frames = [b"", bytes(nbytes)]
                meter.block("calls", nbytes, lambda frames=frames: bare.call(frames).result(config.timeout_s))  # type: ignore[misc]
            meter.block("shaped", 0, lambda: shaped.call([b""]).result(config.timeout_s))
            for client, gradients in zip(clients, pieces, strict=True):
                meter.trips(client, gradients)
            if block < 0:
                meter.rows = {}
    gradients_s = list(_gradients(problem, config)) if problem else []
    return {**meter.rows, "gradient": gradients_s}


class _Meter:
    """Times blocks of calls: rows of (size, median wall, processor time here, and there), each per call."""

    def __init__(self, bare: Channel, config: Config) -> None:
        self._bare, self._config = bare, config
        self._spent: dict[tuple[str, float], float] = {}
        self.rows: dict[str, list[Any]] = {}

    def block(self, kind: str, size: float, call: Callable[[], object]) -> int:
        """Make a block of calls, and a row of them; how many."""
        spent = self._spent.get((kind, size), 0.0)
        if spent > ENOUGH_S and any(row[0] == size for row in self.rows.get(kind, [])):
            return 0
        walls: list[float] = []
        there, here, began = self._there(), time.process_time(), time.monotonic()
        while len(walls) < CALLS and time.monotonic() - began < BLOCK_S:
            start = time.monotonic()
            call()
            walls.append(time.monotonic() - start)
        here = time.process_time() - here
        there = self._there() - there
        self._spent[kind, size] = spent + sum(walls)
        self.rows.setdefault(kind, []).append((size, float(np.median(walls)), here / len(walls), there / len(walls)))
        return len(walls)

    def trips(self, client: Client, gradients: Tensors) -> None:
        """A block of pushes with their pulls; besides, the worker's spans by name, and from when to when it was."""
        size, before, began = sum(x.size for x in gradients.values()), len(client.trace), time.monotonic()
        calls = self.block("trips", size, lambda: client.push_pull(gradients).result(self._config.timeout_s))
        if not calls:
            return
        spans: dict[str, float] = {}
        for span in list(client.trace)[before:]:
            spans[span.name] = spans.get(span.name, 0.0) + span.seconds
        self.rows.setdefault("blocks", []).append((size, calls, spans, began, time.monotonic()))

    def _there(self) -> float:
        """Processor time of the process that answers, all of its threads together."""
        (reply,) = self._bare.call([b""]).result(self._config.timeout_s)
        return float(_CPU.unpack(reply)[0])


def _processor_time(_: Frames) -> Frames:
    return [_CPU.pack(time.process_time())]


def _spin() -> float:
    """The share of a core that a process gets that wants all of one."""
    wall, cpu = time.monotonic(), time.process_time()
    while time.monotonic() - wall < SPIN_S:
        pass
    return (time.process_time() - cpu) / (time.monotonic() - wall)


def _rounds(aggregator: Aggregator, pieces: list[Tensors], together: int) -> Iterator[tuple[float, float]]:
    """Values and seconds of aggregating so many contributions."""
    for block in range(-1, BLOCKS):
        for piece in pieces:
            contributions = [Contribution(worker, 0, 0, piece) for worker in range(together)]
            began, calls = time.monotonic(), 0
            while calls < CALLS and time.monotonic() - began < BLOCK_S:
                aggregator.combine(contributions)
                calls += 1
            if block >= 0:
                yield float(sum(x.size for x in piece.values())), (time.monotonic() - began) / calls


def _gradients(problem: Problem, config: Config) -> Iterator[tuple[float, float]]:
    """Rows and seconds of gradients, for the config's batch and for a smaller one."""
    alone = replace(config, delays=None, accumulate=1)
    params = problem.init(np.random.default_rng(config.seed))
    rows = min(config.batch_size or problem.rows, problem.rows)
    for block in range(-1, BLOCKS):
        for size in sorted({max(1, rows // 4), rows}):
            some = replace(alone, batch_size=size)
            for clock in range(CALLS if block >= 0 else 1):
                began = time.monotonic()
                compute(problem, some, params, 0, clock)
                if block >= 0:
                    yield float(size), time.monotonic() - began
                if time.monotonic() - began > BLOCK_S:
                    break
