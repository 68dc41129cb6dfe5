"""The history of a schedule of faults, as seen from outside, and the check of what minips promises."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from minips.core.codec import Decoder, unpack
from minips.core.config import Config
from minips.core.journal import JournalRecord
from minips.core.message import Header
from minips.core.protocol import PUSHES
from minips.results.trace import UNTIMED
from minips.stage import Tensors
from minips.stages.aggregators import Contribution
from minips.testing.base import same_bits


class History:
    """The records of each server's journal, and the answers to each worker. ``violations`` are sentences.

    If lost workers ``leave``, others need not wait for them.
    """

    def __init__(self, config: Config, leave: bool) -> None:
        self.config = config
        self.records: list[list[JournalRecord]] = [[] for _ in range(config.servers)]
        """All records of each server, also those that were overwritten."""
        self.pushes: list[Counter[int]] = [Counter() for _ in range(config.servers)]
        """At each server, the number of pushes of each worker."""
        self.acknowledged: dict[tuple[int, int, int], tuple[str, bool]] = {}
        """By server, worker and clock: the outcome of a push, as its worker was told, and whether the run was over."""
        self.versions: dict[tuple[int, int], int] = defaultdict(int)
        self.violations: list[str] = []
        self.in_rounds = config.consistency.quorum(config.workers) is not None
        self.lead = 0 if self.in_rounds else getattr(config.consistency, "staleness", math.inf)
        self.lead = math.inf if leave else self.lead
        """The number of pushes by which a worker that pulls may be ahead of another one."""

    def keep(self, server: int, record: JournalRecord) -> None:
        """Note a record that a server has kept."""
        self.records[server].append(record)
        self.pushes[server][record.worker] += record.kind == "push"

    def grant(self, server: int, worker: int) -> None:
        """Note that a server grants a pull."""
        pushes = self.pushes[server]
        slowest = min(pushes[other] for other in range(self.config.workers))
        if pushes[worker] > slowest + self.lead:
            words = f"after {pushes[worker]} pushes, while another one has made {slowest}"
            self.violations.append(f"server {server} has granted worker {worker} a pull {words}")

    def hear(self, server: int, worker: int, pushed: int, kind: str, header: Header) -> None:
        """Note an answer that a worker has received, to a request of this kind; its last push there was ``pushed``."""
        if kind in PUSHES and header["outcome"] != "over":
            self.acknowledged[server, worker, pushed] = header["outcome"], header["done"]
        known, version = self.versions[server, worker], header["version"]
        self.versions[server, worker] = version
        if version < known:
            self.violations.append(f"server {server} has told worker {worker} of version {known}, then of {version}")

    def check(self, server: int, start: Tensors, params: Tensors) -> None:
        """Check a server's journal and, against it, what workers were told, and the parameters at the end."""
        pushed: Counter[tuple[int, int]] = Counter()
        expected = replayed(self.config, start, self.records[server], pushed)
        for (worker, clock), times in pushed.items():
            if times > 1:
                self.violations.append(f"server {server} has kept worker {worker}'s push {clock} {times} times")
        for (index, worker, clock), (outcome, done) in self.acknowledged.items():
            after_end = done and outcome == "duplicate" and not self.in_rounds  # of a push that was over
            if index == server and not after_end and (worker, clock) not in pushed:
                self.violations.append(f"server {server} has lost worker {worker}'s push {clock}, which is {outcome}")
        if not same(expected, params):
            self.violations.append(f"server {server}'s parameters are not those of a loop over its journal")


def replayed(
    config: Config, start: Tensors, records: Iterable[JournalRecord], pushed: Counter[tuple[int, int]]
) -> Tensors:
    """The parameters after a plain loop over a journal, without a shard. Counts the pushes by worker and clock."""
    params, state, made = {name: x.copy() for name, x in start.items()}, dict[str, Any](), 0
    decoders = [Decoder(UNTIMED) for _ in range(config.workers)]
    live, held = {*range(config.workers)}, dict[int, Contribution]()
    in_rounds = config.consistency.quorum(config.workers) is not None
    for kind, worker, _, fields, frames in records:
        if made == config.workers * config.clocks:
            break
        if kind == "hello" and not fields["again"]:
            decoders[worker] = Decoder(UNTIMED)
        if kind in ("hello", "push"):
            live.add(worker)
        elif kind in ("leave", "bye"):
            live.discard(worker)
        if kind == "push":
            packet = unpack(frames, config.push, UNTIMED)[0]
            clock, gradients = packet.header["clock"], decoders[worker].decode(packet).tensors
            pushed[worker, clock] += 1
            if in_rounds and clock < made // config.workers:  # late
                continue
            held[worker] = Contribution(worker, clock, 0, gradients)
        if held and (not in_rounds or live <= held.keys()):
            mean = config.aggregator.combine([held[one] for one in sorted(held)])
            if not in_rounds:
                mean = {name: g * (1 / config.workers) for name, g in mean.items()}
            state["clock"] = made // config.workers
            config.optimizer.step(params, mean, state)
            made, held = made + (config.workers if in_rounds else 1), {}
    return params


def same(a: Tensors, b: Tensors) -> bool:
    """True if two dicts have the same arrays, to the bit."""
    return a.keys() == b.keys() and all(same_bits(x, b[name]) for name, x in a.items())
