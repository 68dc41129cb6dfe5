"""Schedules of faults for the learner's own server: its messages take drawn times, connections break, and it is killed.

A parameter counts the pushes: it has a place for each push, and the push's gradient is 1 there and 0 elsewhere. A
server's disk has its attributes, as they are after each message and before its answers.
"""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from minips.lab.course import own
from minips.stage import Array
from minips.testing.faults import Agenda, Cut, Fault, Kill, Party, Wire
from minips.testing.schedules import LONG_S, shrink
from minips_course import given_server

Once = next(cls for cls in given_server.Server.__mro__ if "deliver" in vars(cls))
"""The given server as this lesson leaves it: it counts each push once."""
WORKERS, STEPS, DOWN_S, REDIAL_S = 3, 4, 0.01, 0.002
"""Of a run; and the seconds for which a killed server is down, and those before a worker dials again."""
MESSAGES = 4 * STEPS
"""Those of one connection in a run without faults."""
LEAST, MOST, SALT = 3, 6, 28
"""The least and the most faults of a schedule; and what their draws begin with."""


def deliver(server: Any, worker: int, clock: int, message: tuple[str, Any]) -> list[tuple[int, Any]]:
    """Return a server's answers to a numbered message; one without a method for it does not see the number."""
    answers: list[tuple[int, Any]] = (
        server.deliver(worker, clock, message) if hasattr(server, "deliver") else server.handle(worker, message)
    )
    return answers


@dataclass
class Drill:
    """A run of a server under faults. ``counted`` has how often each push counts, by worker and clock."""

    seed: int
    faults: tuple[Fault, ...]
    counted: Array
    waiting: list[int]
    """The workers that wait for ever."""
    log: list[tuple[float, str, str]] = field(repr=False)
    history: list[tuple[str, int, int]] = field(repr=False)
    """What happened to each push, in order: it was sent, kept or acknowledged; its worker and its clock. A death of the
    server is ``("killed", -1, -1)``."""

    @property
    def twice(self) -> int:
        """The number of pushes that count more than once."""
        return int((self.counted > 1).sum())

    @property
    def lost(self) -> int:
        """The number of pushes that do not count."""
        return int((self.counted < 1).sum())

    @property
    def wrong(self) -> list[str]:
        """A sentence for each push that does not count once, and for each worker that waits for ever."""
        wrong = np.argwhere(self.counted != 1).tolist()
        found = [f"worker {worker}'s push {c} counts {self.counted[worker, c]:g} times" for worker, c in wrong]
        return found + [f"worker {worker} waits for ever" for worker in self.waiting]

    def __str__(self) -> str:
        return "\n".join([f"Seed {self.seed}:", *(f"  {fault}" for fault in self.faults), *self.wrong])

    def story(self) -> str:
        """What happened to the first push that does not count once."""
        if not (wrong := np.argwhere(self.counted != 1).tolist()):
            return "Each push counts once."
        worker, clock = wrong[0]
        lines: list[str] = []
        for at, party, what in self.log:
            if party == f"worker {worker}" and what == f"sends its pull {clock + 1}":
                break
            sends = party == f"worker {worker}" and what == f"sends its push {clock}"
            ours = f"worker {worker}'s push {clock}" in what or f"answers worker {worker}: applied" in what
            if sends or (
                lines and (ours or what == "is killed" or (party, what) == (f"worker {worker}", "reconnects"))
            ):
                lines.append(f"{at:8.4f} s  {party:8}  {what}")
        return "\n".join(lines)


class _Server(Party):
    """A process with a learner's server, and what its disk has."""

    def __init__(self, agenda: Agenda, cls: type, history: list[tuple[str, int, int]]) -> None:
        super().__init__(agenda, "server 0")
        self.cls, self.disk, self.history = cls, dict[str, Any](), history
        self.gradients = np.eye(WORKERS * STEPS).reshape(WORKERS, STEPS, WORKERS, STEPS)

    def start(self) -> None:
        self.up, self.newest = True, dict[int, Wire]()
        self.server: Any = self.cls({"counts": np.zeros((WORKERS, STEPS))}, WORKERS, -float(WORKERS))
        vars(self.server).update(copy.deepcopy(self.disk))

    def received(self, wire: Wire, content: tuple[str, int]) -> None:
        (worker, _), (kind, clock) = wire.link, content
        if self.newest.setdefault(worker, wire) is not wire:
            if wire.is_cut:
                return
            self.newest[worker] = wire
        self.step(f"takes worker {worker}'s {kind} {clock}")
        gradient = {"counts": self.gradients[worker, clock].copy()} if kind == "push" else {}
        counted = self.server.params["counts"].sum()
        answers = deliver(self.server, worker, clock, (kind, gradient))
        if self.server.params["counts"].sum() > counted:
            self.history.append(("kept", worker, clock))
        self.disk = copy.deepcopy(vars(self.server))
        self.step(f"has kept worker {worker}'s {kind} {clock}")
        for to, (said, _) in answers:
            self.agenda.note(self.name, f"answers worker {to}: {said}")
            if to in self.newest:
                self.newest[to].send(0, said)

    def die(self, down_s: float) -> None:
        if self.up:
            self.history.append(("killed", -1, -1))
        super().die(down_s)

    def closed(self, wire: Wire) -> None:
        if self.newest.get(wire.link[0]) is wire:
            del self.newest[wire.link[0]]


class _Worker(Party):
    """A worker. If its connection breaks, it makes a new one, and repeats its message or, without ``retries``, goes on
    with the next one.
    """

    def __init__(self, agenda: Agenda, rank: int, server: _Server, retries: bool) -> None:
        super().__init__(agenda, f"worker {rank}")
        self.rank, self.server, self.retries = rank, server, retries
        self.kind, self.clock = "pull", 0

    def start(self) -> None:
        self.up, self.asks = True, False
        self.wire: Wire | None = None
        self.later(self.latency(), self.send)

    def send(self) -> None:
        """Send the message, over a new connection if there is none. If the server is down, try again later."""
        if not self.wire:
            if not self.server.up:
                self.later(REDIAL_S, self.send)
                return
            self.wire = Wire((self.rank, 0), (self, self.server))
        self.asks = True
        self.step(f"sends its {self.kind} {self.clock}")
        self.note("sent")
        self.wire.send(1, (self.kind, self.clock))

    def received(self, wire: Wire, said: Any) -> None:
        if wire is self.wire and self.asks and said == {"pull": "params", "push": "applied"}[self.kind]:
            self.note("acknowledged")
            self.go_on()

    def note(self, what: str) -> None:
        """Add something that happened to a push to the history."""
        if self.kind == "push":
            self.server.history.append((what, self.rank, self.clock))

    def closed(self, wire: Wire) -> None:
        if wire is not self.wire:
            return
        self.agenda.note(self.name, "reconnects")
        self.wire = None
        if self.asks and (self.retries or self.kind == "pull"):
            self.asks = False
            self.later(self.latency(), self.send)
        elif self.asks:
            self.go_on()

    def go_on(self) -> None:
        """Go on with the next message."""
        self.asks = False
        if self.kind == "push":
            self.clock += 1
        self.kind = "pull" if self.kind == "push" else "push"
        if self.clock == STEPS:
            self.ended = True
        else:
            self.later(self.latency(), self.send)


class Compared(NamedTuple):
    """Pushes in so many schedules: those that count twice if workers retry and the server does not remember, those
    that are lost if it remembers and nobody retries, and those that do not count once if both hold.
    """

    pushes: int
    twice: int
    lost: int
    wrong: int


def compared(seeds: Sequence[int] = range(200)) -> Compared:
    """Compare the given server without retries, without identities, and with both."""
    without = own.load(own.given(), "plug")
    twice = sum(run(without, seed).twice for seed in seeds)
    lost = sum(run(Once, seed, retries=False).lost for seed in seeds)
    wrong = sum(len(run(Once, seed).wrong) for seed in seeds)
    return Compared(len(seeds) * WORKERS * STEPS, twice, lost, wrong)


def drawn(seed: int) -> tuple[Fault, ...]:
    """Draw the faults of a seed's schedule: ``LEAST`` to ``MOST`` cuts and deaths of the server."""
    rng = np.random.default_rng([seed, SALT])
    faults: list[Fault] = []
    for _ in range(int(rng.integers(LEAST, MOST + 1))):
        if rng.random() < 0.6:
            faults.append(
                Cut(int(rng.integers(WORKERS)), 0, int(rng.integers(1, MESSAGES + 1)), bool(rng.random() < 0.5))
            )
        else:
            faults.append(Kill("server 0", int(rng.integers(1, WORKERS * MESSAGES + 1)), DOWN_S))
    return tuple(faults)


def run(cls: type, seed: int, faults: Sequence[Fault] | None = None, retries: bool = True) -> Drill:
    """Run a server of this class under a seed's schedule, with these faults or, for None, with the drawn ones."""
    faults = drawn(seed) if faults is None else tuple(faults)
    agenda = Agenda(seed, faults, log=True)
    history: list[tuple[str, int, int]] = []
    server = _Server(agenda, cls, history)
    workers = [_Worker(agenda, rank, server, retries) for rank in range(WORKERS)]
    agenda.run(lambda: all(worker.ended for worker in workers) and server.up, until=LONG_S)
    counted = np.round(vars(server.server)["params"]["counts"], 6)
    waiting = [worker.rank for worker in workers if not worker.ended]
    return Drill(seed, faults, counted, waiting, agenda.log or [], history)


def first_wrong(cls: type, seeds: Iterable[int]) -> Drill:
    """Return the first of the seeds' schedules in which a push does not count once, or somebody waits for ever; the
    last one if there is none.
    """
    for seed in seeds:
        found = run(cls, seed)
        if found.wrong:
            break
    return found


def shrunk(cls: type, found: Drill) -> Drill:
    """Return a schedule without the faults that its outcome does not need."""
    return run(cls, found.seed, shrink(found.faults, lambda faults: run(cls, found.seed, faults).wrong))


def tried(cls: type, seeds: Sequence[int] = range(200)) -> dict[str, int]:
    """Count what goes wrong with a server of this class."""
    found = [run(cls, seed) for seed in seeds]
    twice, lost = sum(one.twice for one in found), sum(one.lost for one in found)
    return {"schedules": len(found), "twice": twice, "lost": lost, "waiting": sum(len(one.waiting) for one in found)}
