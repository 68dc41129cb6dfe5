"""What this machine takes: each span of one push and pull, measured at two sizes on the config's own stages.

One real worker and one real server exchange gradients of a small and of a large model, and a line through the medians
gives each span's fixed seconds (α) and seconds per value. The link, the delays and the other workers are left out: they
are for the prediction to add.
"""

import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
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
ROUNDS, LEAST_ROUNDS = 30, 5
ENOUGH_S = 1.0
"""Rounds of one size: so many or, where they are slow, as many as fit into so many seconds."""


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


def alone(config: Config) -> Config:
    """What of a config its calibration depends on: one worker and one server, without link and delays."""
    return replace(
        config,
        workers=1,
        servers=1,
        steps=10**9,
        batch_size=None,
        seed=0,
        consistency=BSP(),
        link=None,
        delays=None,
        overlap=False,
        accumulate=1,
    )


def calibrate(config: Config, *, stop: Callable[[], bool] = lambda: False) -> Calibration:
    """Measure one push and pull of ``config``'s stages and transport here. Takes a second or two, in processes of its
    own. RuntimeError where ``stop()`` ends it before.
    """
    config = alone(config)
    engine: LocalEngine = Threads() if config.transport.name == "inproc" else Processes()
    members: list[Member] = []
    try:
        with ctrl_c_later():
            for size in SIZES:
                members.append(engine.start(f"server for {size} values"))
        for size, member in zip(SIZES, members, strict=True):
            params = {"w": np.zeros(size, np.float32)}
            member.brief(roles.serve, {"config": config, "params": params, "index": 0, "token": ""})
        small, large = (_measure(config, member, size, stop) for size, member in zip(SIZES, members, strict=True))
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


def _measure(config: Config, member: Member, size: int, stop: Callable[[], bool]) -> dict[str, dict[str, float]]:
    """Median seconds of one push and pull by side and span name; the transfer is all that no span claims."""
    gradient = {"w": np.random.default_rng(config.seed).normal(size=size).astype(np.float32)}
    trips: list[float] = []
    with connect(_hear(member, "ready", stop), config) as client:
        client.pull().result(config.timeout_s)
        while len(trips) < ROUNDS and not (len(trips) >= LEAST_ROUNDS and sum(trips) > ENOUGH_S):
            _go_on(stop)
            began = time.monotonic()
            client.push_pull(gradient).result(config.timeout_s)
            trips.append(time.monotonic() - began)
    member.say("stop")
    report = _hear(member, "result", stop)
    sides = {"worker": _per_trip(client.trace, len(trips)), "server": _per_trip(report["trace"], len(trips))}
    claimed = sum(sum(side.values()) for side in sides.values())
    return {**sides, "between": {"transfer": statistics.median(trips) - claimed}}


def _per_trip(trace: Trace, trips: int) -> dict[str, float]:
    """Seconds of one trip by span name: the median span, times the spans of that name in a trip."""
    spans: dict[str, list[float]] = defaultdict(list)
    for span in trace:
        spans[span.name].append(span.seconds)
    ours = {name: seconds for name, seconds in spans.items() if name not in ("transfer", "wait")}
    return {name: statistics.median(seconds) * round(len(seconds) / trips) for name, seconds in ours.items()}


def _line(small: float, large: float) -> Line:
    slope = max(0.0, (large - small) / (SIZES[1] - SIZES[0]))
    return Line(max(0.0, small - slope * SIZES[0]), slope)


def _hear(member: Member, wanted: str, stop: Callable[[], bool]) -> Any:
    """The value of the member's word ``wanted``; RuntimeError where it fails first."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        _go_on(stop)
        if not member.pipe.poll(0.1):
            continue
        word, value = member.pipe.recv()
        if word == wanted:
            return value
        if word == "failed":
            raise RuntimeError(f"{member.who} failed: {value[0]}")
    raise RuntimeError(f"{member.who} said nothing for {START_S:g} seconds.")


def _go_on(stop: Callable[[], bool]) -> None:
    if stop():
        raise RuntimeError("The calibration was stopped.")
