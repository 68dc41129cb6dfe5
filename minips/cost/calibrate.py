"""What this machine takes: each span of one push and pull, measured at two sizes on the config's own stages.

One real worker and one real server exchange gradients of a small and of a large model, and a line through the medians
gives each span's fixed seconds (α) and seconds per value. The link, the delays and the other workers are left out: they
are for the prediction to add.
"""

import os
import statistics
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minips.runtime.client import connect
from minips.runtime.config import Config
from minips.runtime.engines import Processes, Threads, roles
from minips.runtime.engines.crew import FAREWELL_S, START_S, LocalEngine, Member, ctrl_c_later
from minips.runtime.trace import Trace
from minips.stages.consistency import BSP

SIZES = (1_000, 100_000)
"""Values in the small and in the large model."""
ROUNDS = 30


@dataclass(frozen=True)
class Line:
    """``fixed_s + per_value_s · values``, in seconds; never below zero."""

    fixed_s: float
    per_value_s: float

    def at(self, values: float) -> float:
        """Seconds for an array of so many values."""
        return max(0.0, self.fixed_s + self.per_value_s * values)


@dataclass(frozen=True)
class Calibration:
    """Seconds by span name for one push and pull: what the worker's core does, what the server's does, and the
    transfer.
    """

    worker: dict[str, Line]
    server: dict[str, Line]
    transfer: Line
    cores: int


def calibrate(config: Config) -> Calibration:
    """Measure one push and pull of ``config``'s stages and transport here. Takes a second or two, in processes of its
    own.
    """
    alone = replace(
        config,
        workers=1,
        servers=1,
        steps=10**9,
        consistency=BSP(),
        link=None,
        delays=None,
        overlap=False,
        accumulate=1,
    )
    engine: LocalEngine = Threads() if config.transport.name == "inproc" else Processes()
    members: list[Member] = []
    try:
        with ctrl_c_later():
            for size in SIZES:
                members.append(engine.start(f"server for {size} values"))
        for size, member in zip(SIZES, members, strict=True):
            params = {"w": np.zeros(size, np.float32)}
            member.brief(roles.serve, {"config": alone, "params": params, "index": 0, "token": ""})
        small, large = (_measure(alone, member, size) for size, member in zip(SIZES, members, strict=True))
    finally:
        for member in members:
            member.say("stop")
        for member in members:
            member.end(FAREWELL_S)
    lines = {
        side: {name: _line(small[side][name], large[side][name]) for name in small[side]}
        for side in ("worker", "server")
    }
    transfer = _line(small["between"]["transfer"], large["between"]["transfer"])
    return Calibration(lines["worker"], lines["server"], transfer, os.cpu_count() or 1)


def _measure(config: Config, member: Member, size: int) -> dict[str, dict[str, float]]:
    """Median seconds of one push and pull by side and span name; the transfer is all that no span claims."""
    gradient = {"w": np.random.default_rng(config.seed).normal(size=size).astype(np.float32)}
    trips = []
    with connect(_hear(member, "ready"), config) as client:
        client.pull().result(config.timeout_s)
        for _ in range(ROUNDS):
            began = time.monotonic()
            client.push_pull(gradient).result(config.timeout_s)
            trips.append(time.monotonic() - began)
    member.say("stop")
    sides = {"worker": _per_trip(client.trace), "server": _per_trip(_hear(member, "result")["trace"])}
    claimed = sum(sum(side.values()) for side in sides.values())
    return {**sides, "between": {"transfer": statistics.median(trips) - claimed}}


def _per_trip(trace: Trace) -> dict[str, float]:
    """Seconds of one trip by span name: the median span, times the spans of that name in a trip."""
    spans: dict[str, list[float]] = defaultdict(list)
    for span in trace:
        spans[span.name].append(span.seconds)
    ours = {name: seconds for name, seconds in spans.items() if name not in ("transfer", "wait")}
    return {name: statistics.median(seconds) * round(len(seconds) / ROUNDS) for name, seconds in ours.items()}


def _line(small: float, large: float) -> Line:
    slope = max(0.0, (large - small) / (SIZES[1] - SIZES[0]))
    return Line(max(0.0, small - slope * SIZES[0]), slope)


def _hear(member: Member, wanted: str) -> Any:
    """The value of the member's word ``wanted``; RuntimeError where it fails first."""
    while member.pipe.poll(START_S):
        word, value = member.pipe.recv()
        if word == wanted:
            return value
        if word == "failed":
            raise RuntimeError(f"{member.who} failed: {value[0]}")
    raise RuntimeError(f"{member.who} said nothing for {START_S:g} seconds.")
