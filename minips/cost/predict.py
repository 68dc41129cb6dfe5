"""Seconds per step before anything is run.

A small simulation in virtual time walks each worker through its cycle: compute, encode, the link, the server, the link
again, decode. The times are the calibration's, the bytes are those of a really encoded gradient, and who waits for whom
is decided by the same `Shard` that decides it in a run. Cores and links are resources that serve one after the other.
"""

import heapq
import statistics
import time
from collections import defaultdict
from collections.abc import Generator
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from minips.cost.calibrate import Calibration, Line, calibrate
from minips.problems import Problem
from minips.runtime.codec import Codec, Encoder
from minips.runtime.collectives import PS
from minips.runtime.config import Config
from minips.runtime.message import Header, Message
from minips.runtime.shard import Shard
from minips.runtime.trace import SPANS, Trace
from minips.runtime.train import Run
from minips.runtime.worker import compute
from minips.stages.aggregators import Contribution

Cycle = Generator[float | None, float, None]
MAX_STEPS = 200
"""The simulation stops here; what a step costs does not change after that many."""


@dataclass(frozen=True)
class Prediction:
    """Seconds per step by span name, as one worker spends them on average, and the bytes of all the workers."""

    config: Config
    spans: dict[str, float]
    seconds_per_step: float
    bytes_sent: int
    bytes_received: int

    @property
    def seconds(self) -> float:
        """Seconds of the whole run."""
        return self.seconds_per_step * self.config.steps


def predict(problem: Problem, config: Config, calibration: Calibration | None = None) -> Prediction:
    """What a step of ``config`` on ``problem`` will cost. Without a ``calibration`` one is made, which takes a second
    or two.

    The gradient is timed here, in this process; everything else follows from the calibration. Several servers are taken
    to share the values evenly and to work side by side. ValueError where gradients meet elsewhere than at servers.
    """
    if config.exchange != PS():
        raise ValueError(f"What parameter servers cost can be predicted, what {config.exchange!r} costs not yet.")
    calibration = calibration or calibrate(config)
    part = problem.shard(0, config.workers)
    params = problem.init(np.random.default_rng(config.seed))
    quick = replace(config, delays=None)
    times = []
    for clock in range(9):
        began = time.monotonic()
        _, gradients = compute(part, quick, params, 0, clock)
        times.append(time.monotonic() - began)
    push: Header = {"kind": "push_pull", "worker": 0, "loss": 0.1, "clock": 100, "version": 100}
    reply: Header = {"kind": "reply", "version": 100, "clock": 100, "done": False, "outcome": "held"}
    pushed = _nbytes(config.push, Message(push, gradients))
    pulled = _nbytes(config.pull, Message(reply, params), {"busy": 0.1, "waited": 0.1})
    walk = _Walk(config, calibration, statistics.median(times), sum(x.size for x in params.values()), pushed, pulled)
    seconds = walk.run()
    spans = {name: walk.spans[name] / walk.updates for name in SPANS if walk.spans[name]}
    spans["wait"] = max(0.0, seconds - sum(spans.values()))
    total = config.workers * config.steps
    return Prediction(
        config, {name: spans[name] for name in SPANS if name in spans}, seconds, total * pushed, total * pulled
    )


@dataclass(frozen=True)
class Comparison:
    """A prediction and a run, joined by span name: rows of (name, predicted seconds per step, measured seconds per
    step).
    """

    rows: list[tuple[str, float, float]]

    def __str__(self) -> str:
        lines = [f"{'':<12}{'predicted':>12}{'measured':>12}{'ratio':>8}"]
        for name, predicted, measured in self.rows:
            ratio = f"{predicted / measured:8.2f}" if measured else f"{'–':>8}"
            lines.append(f"{name:<12}{predicted * 1e3:>9.3f} ms{measured * 1e3:>9.3f} ms{ratio}")
        return "\n".join(lines)


def compare(prediction: Prediction, run: Run) -> Comparison:
    """Predicted and measured seconds of one update by span name, and seconds per step as ``total``."""
    measured = run.trace.seconds()
    names = [name for name in SPANS if name in prediction.spans or name in measured]
    rows = [(name, prediction.spans.get(name, 0.0), measured.get(name, 0.0) / max(run.updates, 1)) for name in names]
    return Comparison([*rows, ("total", prediction.seconds_per_step, run.seconds_per_step)])


def _nbytes(codec: Codec, message: Message, stamp: Header | None = None) -> int:
    """The length of the frames of one message."""
    return sum(map(len, Encoder(codec, np.random.default_rng(0), Trace()).encode(message, stamp)))


class _Walk:
    """The workers' cycles in virtual time. ``spans`` adds up the seconds of all the workers by span name."""

    def __init__(
        self, config: Config, calibration: Calibration, gradient_s: float, values: int, pushed: int, pulled: int
    ) -> None:
        self.config, self.calibration, self.gradient_s = config, calibration, gradient_s
        self.values, self.pushed, self.pulled = values, pushed / config.servers, pulled / config.servers
        self.spans: dict[str, float] = defaultdict(float)
        self.updates = config.workers * min(config.steps, MAX_STEPS)
        self._cores = [0.0] * calibration.cores
        self._free = [0.0, 0.0]
        self._shard = Shard(
            {},
            workers=config.workers,
            aggregator=config.aggregator,
            consistency=config.consistency,
            optimizer=config.optimizer,
            updates=self.updates,
        )

    def run(self) -> float:
        """Virtual seconds of one step: one clock of all the workers."""
        order, now = count(), 0.0
        events: list[tuple[float, int, int, Cycle]] = []
        waiting: dict[int, Cycle] = {}
        for worker in range(self.config.workers):
            cycle = self._cycle(worker)
            heapq.heappush(events, (next(cycle) or 0.0, next(order), worker, cycle))
        while events and not self._shard.done:
            now, _, worker, cycle = heapq.heappop(events)
            until = cycle.send(now)
            if until is not None:
                heapq.heappush(events, (until, next(order), worker, cycle))
                continue
            waiting[worker] = cycle
            for ready in [one for one in waiting if self._shard.may_pull(one)]:
                heapq.heappush(events, (now, next(order), ready, waiting.pop(ready)))
        return now * self.config.workers / self.updates

    def _cycle(self, worker: int) -> "Cycle":
        """One worker's steps. Yields the time at which it goes on, or None to go on when it may pull; is sent the
        time.
        """
        shard, delays = self._shard, self.config.delays
        now = yield 0.0
        while True:
            clock = shard.clocks[worker]
            done = self._work(now, self.gradient_s * self.config.accumulate)
            done = max(done, now + delays.of(worker, clock, self.config.seed)) if delays else done
            self.spans["compute"] += done - now
            now = yield done
            now = yield self._cores_work(now, self.calibration.worker, self.config.servers)
            now = yield self._travel(now, 0, self.pushed)
            now = yield self._cores_work(now, self.calibration.server, 1)
            shard.push(Contribution(worker, clock, shard.version, {}))
            now = yield None
            now = yield self._travel(now, 1, self.pulled)

    def _work(self, now: float, seconds: float) -> float:
        """When the core that is free first has worked so long."""
        end = max(now, heapq.heappop(self._cores)) + seconds
        heapq.heappush(self._cores, end)
        return end

    def _cores_work(self, now: float, lines: dict[str, Line], pieces: int) -> float:
        """When a core has done all of one side's spans, for ``pieces`` messages, each with its server's share of the
        values.
        """
        share = self.values / self.config.servers
        for name, line in lines.items():
            self.spans[name] += pieces * line.at(share)
        return self._work(now, sum(pieces * line.at(share) for line in lines.values()))

    def _travel(self, now: float, direction: int, nbytes: float) -> float:
        """When a message has arrived: half of a round trip over the bare transport, and what the servers' link adds."""
        end = now + self.calibration.transfer.at(self.values / self.config.servers) / 2
        link = self.config.link
        if link:
            self._free[direction] = max(now, self._free[direction]) + nbytes * 8 / link.bandwidth_bps
            end = max(end, self._free[direction] + link.latency_s)
        self.spans["transfer"] += end - now
        return end
