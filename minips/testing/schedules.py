"""Schedules of faults: short runs in virtual time, in which servers and workers are killed and start again.

A schedule is a run of minips' own protocol with real codecs and arrays, in one thread. Its messages take drawn times;
its faults kill or stop a process at one of its steps (before and after each record of a journal, each message, and the
parts of a snapshot and of a worker's file), or cut a connection. One seed always gives the same schedule.

What has happened is then checked. Each acknowledged push is in its server's journal, and each push is there once. The
parameters are those of a plain loop over the journal and, under BSP, those of the run without faults, to the bit. The
versions that a worker is told of only grow, no pull is granted too early, and nobody waits for ever.

This assumes that a disk keeps what was written (no power loss), and that pulls are exact. Threads, heartbeats,
time-outs and overlap are not modelled; lost workers keep their ranks unless ``rejoin_s`` is short.
"""

import hashlib
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from minips.core.config import Config
from minips.core.partition import cut, layout_at
from minips.stage import Tensors
from minips.testing.base import require
from minips.testing.faults import Agenda, Cut, Fault, Kill, Stop
from minips.testing.history import History, same
from minips.testing.nodes import ServerNode, WorkerNode

LONG_S = 1000.0
"""No schedule takes as long, in seconds: somebody waits for ever."""
MOST = 4
"""The most faults that are drawn for a schedule."""

T = TypeVar("T")


def shrink(faults: Sequence[T], fails: Callable[[tuple[T, ...]], object]) -> tuple[T, ...]:
    """Drop, one after the other, each fault without which a schedule still ``fails``, and return the others.

    >>> shrink(["a cut", "a pause", "a death"], lambda faults: {"a cut", "a death"} <= {*faults})
    ('a cut', 'a death')
    """
    kept = (*faults,)
    for at in reversed(range(len(kept))):
        if fails(fewer := kept[:at] + kept[at + 1 :]):
            kept = fewer
    return kept


@dataclass
class Outcome:
    """A schedule's faults, and a sentence for each broken promise. ``str`` of it tells everything that has happened."""

    config: Config
    seed: int
    faults: tuple[Fault, ...]
    violations: list[str]
    params: list[Tensors] = field(repr=False)
    """The parameters of each server at the end."""
    steps: Counter[Any] = field(repr=False)
    """The number of steps of each process, of ``all`` together, and of messages by (worker, server)."""
    log: list[tuple[float, str, str]] = field(repr=False)
    """The time in seconds, the process, and what it did."""

    @property
    def digest(self) -> str:
        """A digest of all that has happened."""
        values = [x.tobytes() for params in self.params for x in params.values()]
        return hashlib.sha256(repr((self.faults, self.violations, self.log, values)).encode()).hexdigest()

    def __str__(self) -> str:
        log = (f"  {at:9.4f} s  {party:9} {what}" for at, party, what in self.log)
        faults = (f"  {fault}" for fault in self.faults)
        return "\n".join([f"Seed {self.seed} of {self.config!r}", *faults, *log, *self.violations])


class Rehearsal:
    """The schedules of a config. Under BSP, each must end with the parameters of the run without faults.

    A lost worker no longer counts after ``rejoin_s`` seconds; if that is short, no bits are promised.
    """

    def __init__(self, config: Config, rejoin_s: float = LONG_S) -> None:
        self.config, self.rejoin_s = config, rejoin_s
        rng = np.random.default_rng([config.seed, config.servers])
        self.params: Tensors = {"w": rng.standard_normal(5, np.float32), "b": rng.standard_normal(3, np.float32)}
        self.layouts = [layout_at(self.params, config.servers, index) for index in range(config.servers)]
        self.pieces = [cut(self.params, layout) for layout in self.layouts]
        self.promised: list[Tensors] | None = None
        self.undisturbed = self.run(0, ())
        require(not self.undisturbed.violations, f"A run without faults fails.\n{self.undisturbed}")
        if config.consistency.quorum(config.workers) is not None and rejoin_s >= LONG_S:
            self.promised = self.undisturbed.params

    def gradient(self, worker: int, clock: int, seen: Tensors) -> tuple[float, Tensors]:
        """A worker's loss and gradients at a clock, which depend on all of its arguments."""
        slope, target = 0.1 + 0.1 * (worker + 1) / (clock + 2), math.sin(10 * clock + worker)
        return 1.0, {name: (slope * (x - target)).astype(x.dtype) for name, x in seen.items()}

    def run(self, seed: int, faults: Sequence[Fault] | None = None, log: bool = False) -> Outcome:
        """Run a seed's schedule, with these faults or, for None, with the drawn ones."""
        faults = self.draw(seed) if faults is None else tuple(faults)
        agenda, history = Agenda(seed, faults, log), History(self.config, self.rejoin_s < LONG_S)
        servers = [
            ServerNode(agenda, history, index, params, layout, self.rejoin_s)
            for index, (params, layout) in enumerate(zip(self.pieces, self.layouts, strict=True))
        ]
        ranks = range(self.config.workers)
        workers = [WorkerNode(agenda, history, rank, servers, self.gradient) for rank in ranks]
        agenda.run(lambda: all(w.ended for w in workers) and all(s.up for s in servers), until=LONG_S)
        self.check(history, servers, workers)
        params = [server.shard.params for server in servers]
        steps: Counter[Any] = Counter(agenda.steps) + Counter(agenda.sent)
        return Outcome(self.config, seed, faults, history.violations, params, steps, agenda.log or [])

    def check(self, history: History, servers: Sequence[ServerNode], workers: Sequence[WorkerNode]) -> None:
        """Add a sentence to the history's violations for each promise that was broken."""
        violations = history.violations
        violations += [f"{worker.name} waits for ever" for worker in workers if not worker.ended]
        for server in servers:
            history.check(server.index, self.pieces[server.index], server.shard.params)
            if not (server.shard.done or violations):
                violations.append(f"{server.name} has not made all its updates")
            if self.promised and not same(self.promised[server.index], server.shard.params):
                violations.append(f"{server.name}'s parameters are not those of the run without faults")

    def draw(self, seed: int) -> tuple[Fault, ...]:
        """Draw the faults of a seed's schedule: one to ``MOST``."""
        rng, steps, config = random.Random(f"{seed} faults"), self.undisturbed.steps, self.config
        servers = [f"server {index}" for index in range(config.servers)]
        workers = [f"worker {rank}" for rank in range(config.workers)]
        faults: list[Fault] = []
        for _ in range(rng.randint(1, MOST)):
            deed, seconds = rng.random(), 10 ** rng.uniform(-4, 0.5)
            if deed < 0.25:
                link = rng.randrange(config.workers), rng.randrange(config.servers)
                faults.append(Cut(*link, rng.randint(1, steps[link]), rng.random() < 0.5))
            else:
                party = rng.choice([*servers, "all"] if deed < 0.7 else workers)
                fault = Kill if deed < 0.9 or party == "all" else Stop
                faults.append(fault(party, rng.randint(1, steps[party]), seconds))
        return tuple(faults)

    def kills(self) -> Iterator[Kill]:
        """A kill at each step of each process in the undisturbed run of seed 0."""
        for name, steps in self.undisturbed.steps.items():
            if isinstance(name, str) and name != "all":
                yield from (Kill(name, at, 0.01) for at in range(1, steps + 1))

    def shrink(self, failed: Outcome) -> Outcome:
        """Drop each fault without which the schedule still breaks a promise. Returns the outcome, with a log."""
        faults = shrink(failed.faults, lambda faults: self.run(failed.seed, faults).violations)
        return self.run(failed.seed, faults, log=True)


def run_schedule(config: Config, seed: int, faults: Sequence[Fault] | None = None) -> Outcome:
    """Run a config's schedule of this seed, with these faults or, for None, with drawn ones. Print the outcome to see
    what happens.

    It reads the config's codecs, consistency, aggregator, optimizer, seed and numbers of workers, servers and steps.
    """
    return Rehearsal(config).run(seed, faults, log=True)


def check_recovery(config: Config, seeds: Iterable[int] = range(100)) -> None:
    """Run a config's schedules of these seeds. AssertionError at the first one that breaks a promise, with all that
    happens in it once all faults are dropped that are not needed.
    """
    rehearsal = Rehearsal(config)
    for seed in seeds:
        outcome = rehearsal.run(seed)
        if outcome.violations:
            raise AssertionError(str(rehearsal.shrink(outcome)))
