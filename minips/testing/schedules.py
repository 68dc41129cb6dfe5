"""Schedules of faults: the protocol in virtual time, with servers and workers that are killed and start again.

A schedule is a short run of real workers, servers, codecs and journals, in one thread. Its messages take drawn times;
its faults kill parties between two steps, cut connections, and stop processes for a while. What a killed party had sent
still arrives, and its disk is left as it was. One seed always gives the same schedule, to the bit.

What has happened is then checked: each acknowledged push is in its server's journal, and each push is there once. The
parameters are those of a plain loop over that journal; under BSP, they are those of a run without faults, too. The
versions that a worker hears of only grow, no pull is granted too early, and no wait is endless.

Assumed: a disk keeps what was written, in order (no power loss), and pulls are exact. Not modelled: threads, heartbeats
and time-outs.
"""

import hashlib
import heapq
import math
import pickle
import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from minips.core import recovery
from minips.core.codec import Decoder, unpack
from minips.core.config import Config
from minips.core.journal import Record, from_frames, to_frames
from minips.core.loop import Call, Compute, train_served
from minips.core.membership import ClientConnection
from minips.core.message import Header
from minips.core.partition import cut, layout_at
from minips.core.protocol import PULLS, PUSHES, KeptPush, ServerProtocol, ServerRecord, WorkerProtocol
from minips.core.resending import Dial, Pause, Resend, Resending, hello_again
from minips.core.sessions import Do, Receive, Send, Session, Until
from minips.core.shard import Shard
from minips.results.checkpoints import keeps_worker
from minips.results.trace import UNTIMED
from minips.stage import Frames, Tensors
from minips.stages.aggregators import Contribution
from minips.testing.base import require, same_bits

REJOIN_S = 1000.0
"""A lost worker keeps its place for longer than any schedule lasts, in seconds."""
EVERY = 2
"""The updates from one snapshot of a server to the next."""
ROUNDS = 2
"""The rounds of pushes for which each file of a journal has room."""
SOON_S, LATE_S, LATE = 0.001, 1.0, 0.03
"""The mean time of a message, the longest time of a late one, and the share of late ones."""
BUSY = 0.1
"""The share of a server's steps during which it goes on with other requests."""


class Kill(NamedTuple):
    """Kill a party, such as ``server 0`` or (``all``) everything, at the ``at``-th step; it is down for ``down_s``."""

    party: str
    at: int
    down_s: float

    def __str__(self) -> str:
        return f"kill {self.party} at its step {self.at}, for {self.down_s:.3f} s"


class Cut(NamedTuple):
    """Cut a worker's connection to a server behind their ``at``-th message or, if ``lost``, before it."""

    worker: int
    server: int
    at: int
    lost: bool

    def __str__(self) -> str:
        place = "before" if self.lost else "behind"
        return f"cut the connection of worker {self.worker} and server {self.server} {place} its message {self.at}"


class Stop(NamedTuple):
    """Stop a party's process at the ``at``-th step, and let it go on after ``seconds``."""

    party: str
    at: int
    seconds: float

    def __str__(self) -> str:
        return f"stop {self.party} at its step {self.at}, for {self.seconds:.3f} s"


Fault = Kill | Cut | Stop


@dataclass
class Outcome:
    """The outcome of a schedule: its faults, and the sentences that say which promises were broken."""

    config: Config
    seed: int
    faults: tuple[Fault, ...]
    violations: list[str]
    params: list[Tensors] = field(repr=False)
    """Each server's parameters at the end."""
    steps: Counter[str] = field(repr=False)
    """The number of steps of each party at which it can be killed, and of messages of each connection."""
    log: list[tuple[float, str, str]] = field(repr=False)
    """What has happened: the time in seconds, the party, and its step; empty unless it was asked for."""

    @property
    def digest(self) -> str:
        """A digest of all that has happened; two runs of one schedule have the same."""
        digest = hashlib.sha256(repr((self.faults, self.violations, self.log)).encode())
        for params in self.params:
            for x in params.values():
                digest.update(x.tobytes())
        return digest.hexdigest()

    def __str__(self) -> str:
        """The schedule as a text: its faults, its steps, and what it broke."""
        steps = (f"  {at:9.4f} s  {party:9} {what}" for at, party, what in self.log)
        faults = (f"  {fault}" for fault in self.faults)
        return "\n".join([f"seed {self.seed}, {self.config!r}", *faults, *steps, *self.violations])


class _Killed(BaseException):
    """A party's process was killed; its sessions have no chance to notice."""


class Party:
    """A process that can be killed and stopped. ``life`` counts its processes so far; an event is for one of them."""

    def __init__(self, world: "World", name: str) -> None:
        self.world, self.name, self.life, self.steps = world, name, 0, 0
        self.up, self.stopped_until, self.ended = False, 0.0, False
        self.rng = random.Random(f"{world.seed} {name}")
        self.wires: list[Wire] = []

    def latency(self) -> float:
        """The drawn time of a message or a calculation, in seconds."""
        return self.rng.random() * LATE_S if self.rng.random() < LATE else self.rng.expovariate(1 / SOON_S)

    def later(self, seconds: float, call: Callable[..., object], *args: Any) -> None:
        """Let this process make a call after these seconds, if it lives that long."""
        self.world.at(self.world.now + seconds, self, self.life, call, args)

    def step(self, what: str, *about: Any) -> None:
        """Take one more step, which may be the last one."""
        self.steps += 1
        self.world.steps += 1
        if self.world.log is not None:
            self.world.note(self.name, what.format(*about))
        for step in (self.name, self.steps), ("all", self.world.steps):
            if (fault := self.world.faults.get(step)) is None:
                continue
            if type(fault) is Stop:
                self.stopped_until = self.world.now + fault.seconds
                continue
            for party in self.world.parties if fault.party == "all" else [self]:
                party.die(fault.down_s)
            raise _Killed

    def die(self, down_s: float) -> None:
        """End at once, and start again after ``down_s``."""
        if not self.up:
            return
        self.world.note(self.name, "is killed")
        self.up, self.life, self.stopped_until = False, self.life + 1, 0.0
        for wire in [*self.wires]:
            wire.cut(by=self)
        self.wires.clear()
        self.later(down_s, self.start)

    def start(self) -> None:
        """Begin a process, from what is on the disk."""
        raise NotImplementedError

    def carry_out(self, session: Session[Any], then: Callable[[Any, Any], object], of: Any = None) -> None:
        """Carry out a session; ``then`` gets its result, or its error."""
        Task(self, session, then, of).go()

    def meet(self, need: Any, task: "Task") -> tuple[Any, Exception | None] | None:
        """Meet a session's need: the answer or the error, or None if the task goes on later."""
        raise NotImplementedError

    def went_on(self) -> None:
        """Do what is to be done after each event of this party."""


class Task:
    """A session that a party carries out on behalf ``of`` something: a wire or the number of a server."""

    __slots__ = ("answers", "needs", "of", "party", "session", "then")

    def __init__(self, party: Party, session: Session[Any], then: Callable[[Any, Any], object], of: Any) -> None:
        self.party, self.session, self.then, self.of = party, session, then, of
        self.answers: dict[int, tuple[Any, Exception | None]] = {}
        """The answers that have come before the session needs them, by server."""
        self.needs: int | None = None
        """The server whose answer the session waits for."""

    def go(self, answer: Any = None, error: Exception | None = None) -> None:
        """Go on with an answer or an error, as far as the session can."""
        while True:
            try:
                need = self.session.send(answer) if error is None else self.session.throw(error)
            except StopIteration as end:
                self.then(end.value, None)
                return
            except Exception as raised:
                self.then(None, raised)
                return
            answer, error = None, None
            if type(need) is Do:
                try:
                    answer = need.call()
                except Exception as raised:
                    error = raised
                if not need.alone and self.party.rng.random() < BUSY:
                    return self.party.later(self.party.latency(), self.go, answer, error)
            elif (met := self.party.meet(need, self)) is None:
                return
            else:
                answer, error = met

    def answered(self, server: int, answer: Any, error: Exception | None) -> None:
        """Take a server's answer, or the error in its place."""
        if self.needs == server:
            self.needs = None
            self.go(answer, error)
        else:
            self.answers[server] = answer, error


class Wire(ClientConnection):
    """A connection of a worker and a server: two streams that keep their order, until they are cut."""

    def __init__(self, worker: "WorkerProcess", server: "ServerProcess") -> None:
        self.ends: tuple[WorkerProcess, ServerProcess] = worker, server
        self.lives = worker.life, server.life
        self.arrivals = [0.0, 0.0]
        """The time of the last arrival at the worker and at the server."""
        self.is_cut = self.is_closed = False
        """``is_closed``: the worker knows."""
        self.unanswered: deque[Request] = deque()
        self.inbox: deque[Frames | None] = deque()
        """What the server has not read yet; None is the end."""
        self.reading = False
        worker.wires.append(self)
        server.wires.append(self)

    def send(self, to: Party, content: Any) -> None:
        """Send a request or an answer. It may be lost, as all that comes behind a cut."""
        worker, server = self.ends
        world, link = worker.world, (worker.rank, server.index)
        world.sent[link] += 1
        fault = world.cuts.get((*link, world.sent[link]))
        if not self.is_cut and not (fault and fault.lost):
            self._arrive(to, to.received, content)
        if fault:
            self.cut()

    def cut(self, by: Party | None = None) -> None:
        """Cut the connection behind what was sent. Both ends will see it, except the one ``by`` whom it was cut."""
        if self.is_cut:
            return
        self.is_cut = True
        for end in self.ends:
            if end is not by:
                self._arrive(end, end.closed)

    def _arrive(self, to: Party, call: Callable[..., object], *content: Any) -> None:
        end = self.ends.index(to)  # type: ignore[arg-type]
        when = self.arrivals[end] = max(self.arrivals[end], to.world.now + to.latency())
        to.world.at(when, to, self.lives[end], call, (self, *content))


class Disk:
    """A server's disk: its last snapshot, and a journal in two files that are overwritten in turn.

    Each file has ``room`` for so many pushes. A record that was not overwritten yet may be from an earlier lap.
    """

    def __init__(self, room: int) -> None:
        self.files: list[list[tuple[int, Frames]]] = [[], []]
        self.room = self.left = room
        """``left``: the room that is left in the file in use."""
        self.at = self.first = self.number = 0
        """The place in the file in use, the number of its first record, and the number of the next record."""
        self.snapshot: tuple[int, bytes] | None = None
        """The number of the first record that the snapshot does not contain, and its content."""

    def append(self, frames: Frames) -> None:
        """Write a record. OSError if there is no room for it."""
        self.left -= len(frames) > 1
        if self.left < 0:
            raise OSError("The journal's file in use has no room.")
        self.files[0][self.at : self.at + 1] = [(self.number, frames)]
        self.at, self.number = self.at + 1, self.number + 1

    def turn(self) -> None:
        """Begin to overwrite the other file."""
        self.files.reverse()
        self.at, self.left, self.first = 0, self.room, self.number

    @property
    def covered(self) -> int:
        """The number of the first record that the snapshot does not contain."""
        return self.snapshot[0] if self.snapshot else 0

    def records(self) -> list[Frames]:
        """The records that the snapshot does not contain, in order."""
        return [frames for number, frames in sorted(self.files[0] + self.files[1]) if number >= self.covered]


class ServerProcess(Party):
    """A server: its protocol over its disk."""

    def __init__(self, world: "World", index: int) -> None:
        super().__init__(world, f"server {index}")
        self.index, self.disk = index, Disk(room=ROUNDS * world.config.workers)

    def start(self) -> None:
        world, disk = self.world, self.disk
        self.waiting: list[tuple[Until, Task]] = []
        self.taken: tuple[int, bytes] | None = None
        """A snapshot that is being written."""
        self.to_check = False
        params, state = pickle.loads(disk.snapshot[1]) if disk.snapshot else (world.pieces[self.index], None)
        updates = world.config.clocks * world.config.workers
        self.shard = Shard.of(world.config, params, updates=updates, now=lambda: world.now)
        places = self.shard, world.config, self.index, world.layouts[self.index]
        self.protocol = Protocol(*places, UNTIMED, self.changed, self.updated, rejoin_s=world.rejoin_s)
        self.protocol.history = world.history
        self.up, replayed = True, 0
        try:
            if state:
                recovery.restore(self.protocol, state)
            self.clock = self.shard.made // self.shard.workers
            for frames in disk.records():
                recovery.replay(self.protocol, from_frames(frames))
                replayed += 1
        except (AssertionError, ValueError) as error:
            world.history.violations.append(f"{self.name} cannot start again: {error}")
        lost_at = self.protocol.membership.restarted()
        self.protocol.journal = self.keep
        world.note(self.name, f"starts at version {self.shard.version}, with {replayed} records of its journal")
        self.updated()
        self.write_snapshot()
        for worker, member in enumerate(self.protocol.membership.members):
            if member.lost_at is not None:
                self.later(world.rejoin_s, self.leave, worker, lost_at)

    def keep(self, record: Record) -> None:
        """Append a record to the journal."""
        if not self.disk.left:
            self.write_snapshot()
            self.turn()
        self.step("appends to its journal: {} of worker {}", record.kind, record.worker)
        self.disk.append([bytes(frame) for frame in to_frames(record)])
        self.world.history.keep(self.index, record)
        self.step("has appended it")

    def updated(self) -> None:
        """Take a snapshot between two updates, if one is due; it is written while the run goes on."""
        if self.protocol.journal is None:  # the server replays
            return
        clock, disk = self.shard.made // self.shard.workers, self.disk
        due = clock // EVERY > self.clock // EVERY or disk.first > disk.covered
        if due and not self.taken and self.shard.at_border:
            self.step("takes a snapshot at clock {}", clock)
            content = pickle.dumps((self.shard.params, recovery.snapshot(self.protocol)))
            self.clock, self.taken = clock, (disk.number, content)
            self.later(10 * self.latency(), self.write_snapshot)
        if disk.left < self.shard.workers:
            self.turn()

    def write_snapshot(self) -> None:
        """Write the snapshot that was taken, unless it is written already."""
        if self.taken:
            self.step("has written its snapshot")
            self.disk.snapshot, self.taken = self.taken, None
            self.step("has renamed it")

    def turn(self) -> None:
        """Turn to the journal's other file, if the snapshot contains all its records."""
        if self.disk.first <= self.disk.covered:
            self.step("turns to the journal's other file")
            self.disk.turn()

    def received(self, wire: Wire, frames: Frames | None) -> None:
        """Read what has come over a wire, unless the request before is still at work."""
        wire.inbox.append(frames)
        if not wire.reading:
            self.read(wire)

    def closed(self, wire: Wire) -> None:
        """Read the end of a wire; a request of it no longer waits."""
        for need, task in self.waiting:
            if task.of is wire:
                self.waiting.remove((need, task))
                task.go(None, ConnectionError("The connection is closed."))
                break
        self.received(wire, None)

    def read(self, wire: Wire) -> None:
        """Begin with the oldest request of a wire, or note its end."""
        frames = wire.inbox.popleft()
        if frames is not None:
            wire.reading = True
            answer = self.protocol.answer(frames, wire, self.world.now)
            self.carry_out(answer, partial(self.reply, wire), wire)
        elif (lost_at := self.protocol.membership.lost(wire)) is not None:
            self.later(self.world.rejoin_s, self.leave, wire.worker, lost_at)

    def reply(self, wire: Wire, answer: Any, error: Exception | None) -> None:
        """Send an answer, or an error, and read on."""
        content = self.protocol.refusal(error) if error else [bytes(frame) for frame in answer]
        self.step("answers worker {}{}", wire.ends[0].rank, f": {error}" if error else "")
        wire.send(wire.ends[0], content)
        self.step("has answered")
        wire.reading = False
        if wire.inbox:
            self.read(wire)

    def leave(self, worker: int, lost_at: float) -> None:
        """Stop counting a lost worker that has not come back."""
        self.carry_out(self.protocol.leave(worker, f"worker {worker} is lost", lost_at), lambda *_: None)

    def meet(self, need: Any, task: Task) -> tuple[Any, Exception | None] | None:
        assert type(need) is Until
        if need.ready():
            return None, None
        self.world.note(self.name, f"lets worker {need.worker} wait")
        self.waiting.append((need, task))
        return None

    def changed(self) -> None:
        """Note that waiting sessions may be ready."""
        self.to_check = True

    def went_on(self) -> None:
        while self.to_check and self.up:
            self.to_check = False
            for need, task in [*self.waiting]:
                if (need, task) in self.waiting and need.ready():
                    self.waiting.remove((need, task))
                    task.go()


class Protocol(ServerProtocol):
    """A server's protocol that shows the history each granted pull."""

    history: "History"

    def read(self, worker: int) -> tuple[int, Tensors]:
        if not self.shard.done:
            self.history.grant(self.index, worker)
        return super().read(worker)


class Request:
    """A message to a server. A ``raw`` one is sent over a new connection, and not sent again."""

    def __init__(self, task: Task, index: int, frames: Frames, number: int, last: bool, raw: bool) -> None:
        self.task, self.index, self.frames, self.number, self.last, self.raw = task, index, frames, number, last, raw
        self.breaks = 0

    def arrived(self, frames: Frames) -> None:
        self.task.answered(self.index, frames, None)

    def failed(self, error: Exception) -> None:
        worker: Any = self.task.party
        if failure := error if self.raw else worker.fail(self, error):
            self.task.answered(self.index, None, failure)


class WorkerFile:
    """What a worker keeps: its last two pushes, in two places by the clock's parity."""

    def __init__(self) -> None:
        self.places: list[KeptPush | None] = [None, None]

    def read(self) -> KeptPush | None:
        """The last push that was completely written."""
        return max(filter(None, self.places), key=lambda kept: max(kept.clocks), default=None)


class Answers(ServerRecord):
    """A worker's record of a server that shows the history what the server says."""

    history: "History"
    worker = pushed = 0

    def begin_push(self) -> int:
        self.pushed = super().begin_push()
        return self.pushed

    def read_stamp(self, kind: str, header: Header) -> None:
        super().read_stamp(kind, header)
        self.history.hear(self.index, self.worker, self.pushed, kind, header)


class Connect(NamedTuple):
    """Connect to a server, however long it takes: the need of a worker that starts."""

    index: int


class WorkerProcess(Party):
    """A worker: its training loop, and a session for each connection that is made again."""

    def __init__(self, world: "World", rank: int) -> None:
        super().__init__(world, f"worker {rank}")
        self.rank, self.file, self.secret = rank, WorkerFile(), f"{rank + 1:032x}"
        self.leaving = False
        self.seen: Tensors = {}
        """The last parameters that the worker has seen."""

    def start(self) -> None:
        world = self.world
        self.up, self.numbers = True, count()
        records = [Answers(world.config, self.rank, index, UNTIMED) for index in range(world.config.servers)]
        for record in records:
            record.history, record.worker, record.secret = world.history, self.rank, self.secret
        self.protocol = WorkerProtocol(self.rank, records)
        self.lines: list[Wire | None] = [None] * len(records)
        """The connection to each server, which may be closed."""
        self.resendings = [Resending(partial(hello_again, self.protocol, index)) for index in range(len(records))]
        for resending in self.resendings:
            resending.outlast(REJOIN_S)
        world.note(self.name, "starts")
        self.carry_out(self.train(), self.end)

    def die(self, down_s: float) -> None:
        self.ended |= self.leaving
        super().die(down_s)

    def train(self) -> Session[None]:
        """Connect, go on after the push that an earlier process has kept, train, and say goodbye."""
        for index in range(len(self.lines)):
            yield Connect(index)
        kept = self.file.read()
        yield Call(self.protocol.hello(again=kept is not None))
        if kept:
            yield Call(self.protocol.finish_push(kept))
        self.protocol.keep = self.keep if keeps_worker(self.world.config) else None
        self.seen = (yield from train_served(self.protocol, overlap=False)).params
        self.leaving = True
        with suppress(OSError):
            yield Call(self.protocol.ask_all("bye"))

    def end(self, result: None, error: Exception | None) -> None:
        """End this process."""
        if error:
            self.world.history.violations.append(f"{self.name} failed: {error}")
        self.world.note(self.name, "ends")
        self.ended = True
        for wire in self.wires:
            wire.cut(by=self)

    def keep(self, kept: KeptPush) -> None:
        """Write a push to the file, in place of the last but one."""
        place = kept.clocks[0] % 2
        self.step("writes its push of clock {} to its file", kept.clocks[0])
        self.file.places[place] = None
        self.step("has written half of it")
        self.file.places[place] = kept._replace(parcels=[[bytes(frame) for frame in parcel] for parcel in kept.parcels])
        self.step("has written it")

    def meet(self, need: Any, task: Task) -> tuple[Any, Exception | None] | None:
        if type(need) is Receive:
            if need.source in task.answers:
                return task.answers.pop(need.source)
            task.needs = need.source
        elif type(need) is Send:
            request = Request(task, need.to, need.parcel, next(self.numbers), self.leaving, task.of is not None)
            try:
                if request.raw or self.resendings[need.to].ask(request):
                    self.transmit(request)
            except OSError as error:
                return None, error if request.raw else self.fail(request, error)
            return None, None
        elif type(need) is Resend:
            try:
                self.transmit(need.request)
            except OSError as error:
                return None, error
            return None, None
        elif type(need) is Compute:
            self.later(self.latency(), task.go, self.world.gradient(self.rank, need.clock, need.seen))
        elif type(need) is Call:
            self.carry_out(need.session, task.go)
        elif type(need) is Pause:
            self.later(need.seconds, task.go)
        elif type(need) is Dial:
            self.later(self.latency(), self.dial, task, task.of, None)
        else:
            assert type(need) is Connect
            self.later(self.latency(), self.dial, task, need.index, 0.1)
        return None

    def transmit(self, request: Any) -> None:
        """Send a request over the current connection. ConnectionError if it is known to be closed."""
        wire = self.lines[request.index]
        if wire is None or wire.is_closed:
            raise ConnectionError("The connection is closed.")
        self.step("sends server {} its request {}", request.index, request.number)
        wire.unanswered.append(request)
        wire.send(wire.ends[1], [bytes(frame) for frame in request.frames])
        self.step("has sent it")

    def dial(self, task: Task, index: int, again_s: float | None) -> None:
        """Make a connection to a server. If it is down, try again after ``again_s`` or, for None, refuse."""
        server = self.world.servers[index]
        if old := self.lines[index]:
            old.is_closed = True
            old.cut(by=self)
        if server.up:
            self.lines[index] = Wire(self, server)
            task.go()
        elif again_s is None:
            task.go(None, ConnectionRefusedError(f"{server.name} is down."))
        else:
            self.later(again_s, self.dial, task, index, again_s)

    def received(self, wire: Wire, content: Any) -> None:
        """Take the answer to the oldest request of a connection."""
        if wire.is_closed:
            return
        request = wire.unanswered.popleft()
        if isinstance(content, Exception):
            request.failed(content)
        else:
            request.arrived(content)

    def closed(self, wire: Wire) -> None:
        """Note that a connection is closed: all its unanswered requests fail."""
        wire.is_closed = True
        while wire.unanswered:
            wire.unanswered.popleft().failed(ConnectionError("The connection is closed."))

    def fail(self, request: Request, error: Exception) -> Exception | None:
        """Note that a request has failed, and begin to reconnect. Returns the error unless it will be sent again."""
        resending = self.resendings[request.index]
        connected = not resending.broken
        failure = resending.failed(request, error)
        if connected and resending.broken:
            self.world.note(self.name, f"begins to reconnect to server {request.index}")
            self.carry_out(resending.reconnect(), partial(self.reconnected, resending), request.index)
        return failure

    def reconnected(self, resending: Resending, failed: list[Any] | None, error: Exception | None) -> None:
        """Let the requests fail that cannot be sent again."""
        assert failed is not None, error
        for request in failed:
            request.task.answered(request.index, None, resending.broken)


class History:
    """What has happened, as seen from outside: what is in each journal, and what each worker was told."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.records: list[list[Record]] = [[] for _ in range(config.servers)]
        """All records that were ever kept, also those that a snapshot has replaced."""
        self.pushes: list[Counter[int]] = [Counter() for _ in range(config.servers)]
        self.acknowledged: dict[tuple[int, int, int], tuple[str, bool]] = {}
        """For each server, worker and clock that a push was acknowledged for: the outcome, and if the run was over."""
        self.versions: dict[tuple[int, int], int] = defaultdict(int)
        self.violations: list[str] = []
        rounds = config.consistency.quorum(config.workers) is not None
        self.lead = 0 if rounds else getattr(config.consistency, "staleness", math.inf)
        """The pushes by which a worker may be ahead of another one when it pulls."""

    def keep(self, server: int, record: Record) -> None:
        """Note a record of a server's journal."""
        self.records[server].append(record)
        self.pushes[server][record.worker] += record.kind == "push"

    def grant(self, server: int, worker: int) -> None:
        """Note that a server grants a pull."""
        pushes = self.pushes[server]
        slowest = min(pushes[other] for other in range(self.config.workers))
        if pushes[worker] - slowest > self.lead:
            words = f"worker {worker} may pull at its push {pushes[worker]}, with a worker at {slowest}"
            self.violations.append(f"server {server} says that {words}")

    def hear(self, server: int, worker: int, pushed: int, kind: str, header: Header) -> None:
        """Note what an answer has told a worker, whose last push was ``pushed``."""
        if kind in PUSHES and header["outcome"] != "over":
            self.acknowledged[server, worker, pushed] = header["outcome"], header["done"]
        known, version = self.versions[worker, server], header["version"]
        self.versions[worker, server] = version
        if version < known:
            self.violations.append(f"worker {worker} has seen version {known} of server {server}, and now {version}")

    def check(self, server: int, start: Tensors, params: Tensors) -> None:
        """Check a server's journal, and its parameters against a plain loop over that journal."""
        pushed: Counter[tuple[int, int]] = Counter()
        expected = replayed(self.config, start, self.records[server], pushed)
        for (worker, clock), times in pushed.items():
            if times > 1:
                self.violations.append(f"server {server} has applied worker {worker}'s push {clock} {times} times")
        for (index, worker, clock), (outcome, done) in self.acknowledged.items():
            if index != server or (worker, clock) in pushed:
                continue
            if not (outcome == "duplicate" and done and self.lead):  # it may have come after the end, twice
                words = f"worker {worker}'s push {clock} as {outcome!r}, and has lost it"
                self.violations.append(f"server {server} has acknowledged {words}")
        if not all(same_bits(expected[name], params[name]) for name in expected):
            self.violations.append(f"server {server}'s parameters are not those of a loop over its journal")


def replayed(config: Config, start: Tensors, records: Iterable[Record], pushed: Counter[Any]) -> Tensors:
    """The parameters after a plain loop over a journal, without a shard. Counts the pushes by worker and clock."""
    params, state = {name: x.copy() for name, x in start.items()}, dict[str, Any]()
    decoders = [Decoder(UNTIMED) for _ in range(config.workers)]
    rounds, made, held = config.consistency.quorum(config.workers) is not None, 0, dict[int, Contribution]()
    for kind, worker, _, fields, frames in records:
        if kind == "hello" and not fields["again"]:
            decoders[worker] = Decoder(UNTIMED)
        if kind != "push":
            continue
        packet = unpack(frames, config.push, UNTIMED)[0]
        clock = packet.header["clock"]
        pushed[worker, clock] += 1
        held[worker] = Contribution(worker, clock, 0, decoders[worker].decode(packet).tensors)
        if rounds and len(held) < config.workers:
            continue
        mean = config.aggregator.combine([held[each] for each in sorted(held)])
        state["clock"] = made // config.workers
        config.optimizer.step(params, mean if rounds else {n: g * (1 / config.workers) for n, g in mean.items()}, state)
        made, held = made + len(held), {}
    return params


class World:
    """One schedule: the clock, the agenda of events, the parties, and the faults that await them."""

    def __init__(
        self,
        config: Config,
        seed: int,
        faults: Sequence[Fault] = (),
        *,
        undisturbed: Outcome | None = None,
        log: bool = False,
    ) -> None:
        self.undisturbed = undisturbed
        self.config, self.seed, self.given, self.rejoin_s = config, seed, tuple(faults), REJOIN_S
        self.log: list[tuple[float, str, str]] | None = [] if log else None
        self.faults = {(fault.party, fault.at): fault for fault in faults if not isinstance(fault, Cut)}
        self.cuts = {(cut.worker, cut.server, cut.at): cut for cut in faults if isinstance(cut, Cut)}
        self.now, self.steps = 0.0, 0
        self.sent: Counter[tuple[int, int]] = Counter()
        """The number of messages between each worker and each server."""
        self._agenda: list[tuple[float, int, Party, int, Callable[..., object], tuple[Any, ...]]] = []
        self._numbers = count()
        rng = np.random.default_rng([config.seed, 1])
        self.params: Tensors = {"w": rng.standard_normal(5, np.float32), "b": rng.standard_normal(3, np.float32)}
        self.layouts = [layout_at(self.params, config.servers, index) for index in range(config.servers)]
        self.pieces = [cut(self.params, layout) for layout in self.layouts]
        self.history = History(config)
        self.servers = [ServerProcess(self, index) for index in range(config.servers)]
        self.workers = [WorkerProcess(self, rank) for rank in range(config.workers)]
        self.parties: list[Party] = [*self.servers, *self.workers]

    def at(self, when: float, party: Party, life: int, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        """Let a party's process make a call at this time."""
        heapq.heappush(self._agenda, (when, next(self._numbers), party, life, call, args))

    def note(self, party: str, what: str) -> None:
        """Note what has happened, if a log is kept."""
        if self.log is not None:
            self.log.append((self.now, party, what))

    def gradient(self, worker: int, clock: int, seen: Tensors) -> tuple[float, Tensors]:
        """A worker's loss and gradients at a clock; another one would give other bits."""
        slope, shift = 0.1 + 0.1 * (worker + 1) / (clock + 2), math.sin(10 * clock + worker)
        return 1.0, {name: (slope * (x - shift)).astype(x.dtype) for name, x in seen.items()}

    def run(self) -> Outcome:
        """Let everything happen, and check it."""
        for party in self.parties:
            self.at(0.0, party, 0, party.start, ())
        agenda = self._agenda
        while agenda and not self.over:
            when, number, party, life, call, args = heapq.heappop(agenda)
            if life != party.life or party.ended:
                continue
            if party.stopped_until > when:
                heapq.heappush(agenda, (party.stopped_until, number, party, life, call, args))
                continue
            if when >= self.rejoin_s:
                break
            self.now = when
            with suppress(_Killed):
                call(*args)
                party.went_on()
        self.check()
        steps: Counter[Any] = Counter({party.name: party.steps for party in self.parties}, all=self.steps)
        params = [server.shard.params for server in self.servers]
        return Outcome(self.config, self.seed, self.given, self.history.violations, params, steps + self.sent, self.log or [])

    @property
    def over(self) -> bool:
        """True once all workers have ended, and every server is up."""
        return all(worker.ended for worker in self.workers) and all(server.up for server in self.servers)

    def check(self) -> None:
        """Check what has happened against what minips promises."""
        violations = self.history.violations
        for worker in self.workers:
            if not worker.ended:
                violations.append(f"{worker.name} waits for ever")
        for server in self.servers:
            self.history.check(server.index, self.pieces[server.index], server.shard.params)
            if not violations and not server.shard.done:
                violations.append(f"{server.name} has not made all its updates")
            if self.undisturbed and not same(self.undisturbed.params[server.index], server.shard.params):
                violations.append(f"{server.name}'s parameters are not those of the run without faults")


def same(a: Tensors, b: Tensors) -> bool:
    """True if the arrays are equal to the bit."""
    return a.keys() == b.keys() and all(same_bits(x, b[name]) for name, x in a.items())


class Rehearsal:
    """Schedules of one config. Under BSP, each must end with the parameters of the run without faults."""

    def __init__(self, config: Config) -> None:
        self.config, self.undisturbed = config, World(config, 0).run()
        self.in_rounds = config.consistency.quorum(config.workers) is not None
        require(not self.undisturbed.violations, f"Without a fault: {self.undisturbed}")

    def run(self, seed: int, faults: Sequence[Fault] | None = None, log: bool = False) -> Outcome:
        """Run a seed's schedule, with these faults instead of the drawn ones if they are given."""
        given = self.draw(seed) if faults is None else faults
        undisturbed = self.undisturbed if self.in_rounds else None
        return World(self.config, seed, given, undisturbed=undisturbed, log=log).run()

    def draw(self, seed: int) -> tuple[Fault, ...]:
        """Draw a seed's one to four faults."""
        rng, steps = random.Random(f"{seed} faults"), self.undisturbed.steps
        parties = [*(f"server {index}" for index in range(self.config.servers)), "all"]
        workers, faults = [f"worker {rank}" for rank in range(self.config.workers)], []
        for _ in range(rng.randint(1, 4)):
            seconds, deed = 10 ** rng.uniform(-4, 0.5), rng.random()
            party = rng.choice(parties if deed < 0.5 else workers)
            if deed < 0.7:
                faults.append(Kill(party, rng.randint(1, steps[party]), seconds))
            elif deed < 0.9:
                wire = rng.randrange(self.config.workers), rng.randrange(self.config.servers)
                faults.append(Cut(*wire, rng.randint(1, steps[wire]), rng.random() < 0.5))
            else:
                party = rng.choice(parties[:-1] + workers)
                faults.append(Stop(party, rng.randint(1, steps[party]), seconds))
        return tuple(faults)

    def kills(self) -> list[Kill]:
        """A kill at each step of each party in the undisturbed run of seed 0."""
        steps = self.undisturbed.steps
        names = [name for name in steps if isinstance(name, str) and name != "all"]
        return [Kill(name, at, 0.01) for name in names for at in range(1, steps[name] + 1)]

    def shrink(self, found: Outcome) -> Outcome:
        """Drop faults as long as the schedule still breaks a promise. Returns the outcome of what is left, with its
        log.
        """
        faults = found.faults
        smaller = True
        while smaller:
            smaller = False
            for fewer in [faults[:number] + faults[number + 1 :] for number in range(len(faults))]:
                if self.run(found.seed, fewer).violations:
                    faults, smaller = fewer, True
                    break
        return self.run(found.seed, faults, log=True)


def run_schedule(config: Config, seed: int, faults: Sequence[Fault] | None = None) -> Outcome:
    """Run a config's schedule of this seed, with these faults instead of the drawn ones if they are given. Print the
    outcome to see what has happened, and which promises were broken.

    Of the config, its codecs, consistency, optimizer, aggregator, workers, servers, steps and seed count.
    """
    return Rehearsal(config).run(seed, faults, log=True)


def check_recovery(config: Config, seeds: Iterable[int] = range(100)) -> None:
    """Run a config's schedules of these seeds. AssertionError, with the steps of the smallest schedule that fails like
    the first one that did, if a promise was broken.
    """
    rehearsal = Rehearsal(config)
    for seed in seeds:
        outcome = rehearsal.run(seed)
        require(not outcome.violations, outcome.violations and str(rehearsal.shrink(outcome)))
