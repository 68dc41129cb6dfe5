"""Processes that can be killed and stopped, in virtual time, and connections that can be cut.

All processes share one agenda of events. A message takes a drawn time, and a few take much longer, so that a new
connection may overtake an old one. What a killed process has sent still arrives, then the end of the connection. A
connection is cut behind a message: what was sent before it arrives, in order, and nothing else does.
"""

import heapq
import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple

from minips.core.membership import ClientConnection
from minips.core.sessions import Do, Session

SOON_S, LATE_S, LATE = 0.001, 1.0, 0.03
"""The mean time of a message, the longest time of a late one, and the share of late ones."""
BUSY = 0.1
"""The share of a session's work after which its process first goes on with other sessions."""


class Kill(NamedTuple):
    """Kill a process, or ``all`` of them, at its ``at``-th step. It starts again after ``down_s`` seconds."""

    party: str
    at: int
    down_s: float

    def __str__(self) -> str:
        return f"kill {self.party} at step {self.at}, for {self.down_s:.4f} s"


class Stop(NamedTuple):
    """Stop a process at its ``at``-th step, and let it go on after ``seconds``."""

    party: str
    at: int
    seconds: float

    def __str__(self) -> str:
        return f"stop {self.party} at step {self.at}, for {self.seconds:.4f} s"


class Cut(NamedTuple):
    """Cut a worker's connection to a server behind their ``at``-th message or, if ``lost``, before it."""

    worker: int
    server: int
    at: int
    lost: bool

    def __str__(self) -> str:
        where = "before" if self.lost else "behind"
        return f"cut worker {self.worker}'s connection to server {self.server} {where} message {self.at}"


Fault = Kill | Stop | Cut


class Killed(BaseException):
    """A process was killed. No code of its can notice this."""


class Agenda:
    """The clock, the events to come, and the faults that wait for a step or a message."""

    def __init__(self, seed: int, faults: Sequence[Fault], log: bool) -> None:
        self.seed, self.now = seed, 0.0
        self.steps: Counter[str] = Counter()
        """The number of steps of each process, and of ``all``."""
        self.sent: Counter[tuple[int, int]] = Counter()
        """The number of messages between each worker and each server."""
        self.log: list[tuple[float, str, str]] | None = [] if log else None
        """What has happened: the time in seconds, the process, and what it did."""
        self.faults: dict[tuple[Any, ...], Fault] = {}
        for fault in faults:
            self.faults[(fault.worker, fault.server, fault.at) if type(fault) is Cut else (fault[0], fault.at)] = fault
        self.parties: list[Party] = []
        self._events: list[tuple[float, int, Party, int, Callable[..., object], tuple[Any, ...]]] = []
        self._numbers = count()

    def at(self, when: float, party: "Party", life: int, call: Callable[..., object], *args: Any) -> None:
        """Let a process make a call at this time, if it is still in this ``life``."""
        heapq.heappush(self._events, (when, next(self._numbers), party, life, call, args))

    def note(self, party: str, what: str) -> None:
        """Note in the log what a process does, if a log is kept."""
        if self.log is not None:
            self.log.append((self.now, party, what))

    def run(self, over: Callable[[], bool], until: float) -> None:
        """Let events happen until ``over()`` is true, none is left, or it is too late."""
        events = self._events
        while events and not over():
            when, number, party, life, call, args = heapq.heappop(events)
            if life != party.life or party.ended:
                continue
            if party.stopped_until > when:
                heapq.heappush(events, (party.stopped_until, number, party, life, call, args))
                continue
            if when > until:
                return
            self.now = when
            with suppress(Killed):
                call(*args)
                party.went_on()


class Party:
    """A process with a name, such as ``server 0``. After it was killed, its next ``life`` begins with `start`."""

    def __init__(self, agenda: Agenda, name: str) -> None:
        self.agenda, self.name, self.life = agenda, name, 0
        self.up = self.ended = False
        """``ended``: this process has done its work, and is not started again."""
        self.stopped_until = 0.0
        self.rng = random.Random(f"{agenda.seed} {name}")
        self.wires: list[Wire] = []
        agenda.parties.append(self)
        agenda.at(0.0, self, 0, self.start)

    def start(self) -> None:
        """Begin a life, with nothing but what is on the disk."""
        raise NotImplementedError

    def meet(self, need: Any, task: "Task") -> tuple[Any, Exception | None] | None:
        """Meet a session's need. Returns the answer and the error, or None if the task goes on later."""
        raise NotImplementedError

    def received(self, wire: "Wire", content: Any) -> None:
        """Take a message."""
        raise NotImplementedError

    def closed(self, wire: "Wire") -> None:
        """Take the end of a connection."""
        raise NotImplementedError

    def went_on(self) -> None:
        """Do what follows each event of this process."""

    def latency(self) -> float:
        """Draw the seconds that a message or a calculation takes."""
        return self.rng.random() * LATE_S if self.rng.random() < LATE else self.rng.expovariate(1 / SOON_S)

    def later(self, seconds: float, call: Callable[..., object], *args: Any) -> None:
        """Make a call after these seconds, if this life lasts as long."""
        self.agenda.at(self.agenda.now + seconds, self, self.life, call, *args)

    def step(self, what: str, *about: Any) -> None:
        """Begin a step, at which a fault may wait."""
        agenda = self.agenda
        if agenda.log is not None:
            agenda.note(self.name, what.format(*about))
        for who in self.name, "all":
            agenda.steps[who] += 1
            fault = agenda.faults.get((who, agenda.steps[who]))
            if type(fault) is Stop:
                self.stopped_until = agenda.now + fault.seconds
            elif type(fault) is Kill:
                for party in agenda.parties if who == "all" else [self]:
                    party.die(fault.down_s)
                raise Killed

    def die(self, down_s: float) -> None:
        """End this life, and begin the next one after ``down_s`` seconds."""
        if not self.up:
            return
        self.agenda.note(self.name, "is killed")
        self.up, self.life, self.stopped_until = False, self.life + 1, 0.0
        self.hang_up()
        self.later(down_s, self.start)

    def hang_up(self) -> None:
        """End all connections, behind what was sent."""
        for wire in self.wires:
            wire.cut(by=self)
        self.wires.clear()

    def carry_out(self, session: Session[Any], then: Callable[[Any, Any], object], of: Any = None) -> None:
        """Carry out a session. At its end, ``then`` gets its result and its error."""
        Task(self, session, then, of).go()


class Task:
    """A session that a process carries out, on behalf ``of`` something."""

    __slots__ = ("answers", "needs", "of", "party", "session", "then")

    def __init__(self, party: Party, session: Session[Any], then: Callable[[Any, Any], object], of: Any) -> None:
        self.party, self.session, self.then, self.of = party, session, then, of
        self.answers: dict[int, tuple[Any, Exception | None]] = {}
        """The answers that the session does not need yet, by server."""
        self.needs: int | None = None
        """The server whose answer the session waits for."""

    def go(self, answer: Any = None, error: Exception | None = None) -> None:
        """Go on with an answer or an error, until the session has to wait."""
        party = self.party
        met: tuple[Any, Exception | None] | None = (answer, error)
        while met:
            try:
                need = self.session.send(met[0]) if met[1] is None else self.session.throw(met[1])
            except StopIteration as end:
                self.then(end.value, None)
                return
            except Exception as raised:
                self.then(None, raised)
                return
            if type(need) is not Do:
                met = party.meet(need, self)
                continue
            try:
                met = need.call(), None
            except Exception as raised:
                met = None, raised
            if not need.alone and party.rng.random() < BUSY:
                party.later(party.latency(), self.go, *met)
                return

    def answered(self, server: int, answer: Any, error: Exception | None) -> None:
        """Take a server's answer, or the error in its place."""
        if self.needs == server:
            self.needs = None
            self.go(answer, error)
        else:
            self.answers[server] = answer, error


class Wire(ClientConnection):
    """A connection of a worker (its end 0) to a server (1). Each direction keeps its order."""

    def __init__(self, link: tuple[int, int], ends: tuple[Party, Party]) -> None:
        self.link, self.ends, self.lives = link, ends, (ends[0].life, ends[1].life)
        self.is_cut = False
        self._arrivals = [0.0, 0.0]
        for end in ends:
            end.wires.append(self)

    def send(self, to: int, content: Any) -> None:
        """Send something to an end. It is lost if the connection is cut."""
        agenda = self.ends[to].agenda
        agenda.sent[self.link] += 1
        fault = agenda.faults.get((*self.link, agenda.sent[self.link]))
        if not (self.is_cut or (type(fault) is Cut and fault.lost)):
            self._arrive(to, self.ends[to].received, content)
        if fault:
            self.cut()

    def cut(self, by: Party | None = None) -> None:
        """Cut the connection behind what was sent. Each end learns of it, except the one ``by`` whom it is cut."""
        if not self.is_cut:
            self.is_cut = True
            for number, end in enumerate(self.ends):
                if end is not by:
                    self._arrive(number, end.closed)

    def _arrive(self, to: int, call: Callable[..., object], *content: Any) -> None:
        end = self.ends[to]
        when = self._arrivals[to] = max(self._arrivals[to], end.agenda.now + end.latency())
        end.agenda.at(when, end, self.lives[to], call, self, *content)
