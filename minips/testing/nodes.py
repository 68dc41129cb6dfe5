"""Servers and workers of a schedule of faults: minips' own protocol, over a disk that outlives its process.

A server appends each record to its journal before it applies it, takes snapshots between two updates, and goes on from
both, as with `minips.drivers.checkpoint`. A worker keeps each push before it sends it, if another process could not
make it again. It reconnects and sends again as `minips.core.resending` says.
"""

import pickle
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from minips.core import recovery
from minips.core.journal import JournalRecord, from_frames, to_frames
from minips.core.loop import Call, Compute, train_served
from minips.core.message import Header
from minips.core.partition import Layouts
from minips.core.protocol import KeptPush, ServerProtocol, ServerRecord, WorkerProtocol
from minips.core.resending import Dial, Pause, Resend, Resending, hello_again
from minips.core.sessions import Receive, Send, Session, Until
from minips.core.shard import Shard
from minips.results.checkpoints import keeps_worker
from minips.results.trace import UNTIMED
from minips.stage import Frames, Tensors
from minips.testing.faults import Agenda, Party, Task, Wire
from minips.testing.history import History

EVERY, ROUNDS, SLOW = 2, 2, 30
"""The clocks between two snapshots, the rounds for which a journal's file has room, and how many times longer than a
message a snapshot takes.
"""
PATIENCE_S = 1000.0
"""For so long a worker tries to reconnect."""
REDIAL_S = 0.1
"""The pause before a worker that starts dials again."""

Gradient = Callable[[int, int, Tensors], tuple[float, Tensors]]


class Disk:
    """A server's disk: its last snapshot, and a journal in two files that are overwritten in turn.

    Each file has ``room`` for so many pushes. A record that was not overwritten yet may be from an earlier lap.
    """

    def __init__(self, room: int) -> None:
        self.files: list[list[tuple[int, Frames]]] = [[], []]
        """Numbered records, in the file in use and in the other one."""
        self.room = self.left = room
        self.at = self.first = self.number = 0
        """The place in the file in use, the number of its first record, and the number of the next one."""
        self.snapshot: tuple[int, bytes] | None = None
        """The number of the first record that the snapshot does not cover, and its content."""

    @property
    def covered(self) -> int:
        """The snapshot covers all records with smaller numbers."""
        return self.snapshot[0] if self.snapshot else 0

    def append(self, frames: Frames) -> None:
        """Write a record. OSError if there is no room for it."""
        self.left -= len(frames) > 1
        if self.left < 0:
            raise OSError("There is no room in the journal's file.")
        self.files[0][self.at : self.at + 1] = [(self.number, frames)]
        self.at, self.number = self.at + 1, self.number + 1

    def turn(self) -> None:
        """Begin to overwrite the other file."""
        self.files.reverse()
        self.at, self.left, self.first = 0, self.room, self.number

    def records(self) -> list[Frames]:
        """The records that the snapshot does not cover, in order."""
        return [frames for number, frames in sorted(self.files[0] + self.files[1]) if number >= self.covered]


class WatchedProtocol(ServerProtocol):
    """A server's protocol that notes each granted pull."""

    history: History

    def read(self, worker: int) -> tuple[int, Tensors]:
        if not self.shard.done:
            self.history.grant(self.index, worker)
        return super().read(worker)


class ServerNode(Party):
    """A server with these parameters at first."""

    def __init__(
        self, agenda: Agenda, history: History, index: int, params: Tensors, layout: Layouts, rejoin_s: float
    ) -> None:
        super().__init__(agenda, f"server {index}")
        self.history, self.config, self.index, self.rejoin_s = history, history.config, index, rejoin_s
        self.first_params, self.layout = params, layout
        self.disk = Disk(room=ROUNDS * self.config.workers)

    def start(self) -> None:
        agenda, config, disk = self.agenda, self.config, self.disk
        self.up, self.to_check = True, False
        self.inboxes: dict[Wire, deque[Frames | None]] = {}
        """For each connection, what has come while a request of it was at work; None is the end."""
        self.waiting: list[tuple[Until, Task]] = []
        self.taken: tuple[int, bytes] | None = None
        """A snapshot that is being written."""
        params, state = pickle.loads(disk.snapshot[1]) if disk.snapshot else (self.first_params, None)
        updates = config.workers * config.clocks
        self.shard = Shard.of(config, params, updates=updates, now=lambda: agenda.now)
        hooks = self.changed, self.updated
        self.protocol = WatchedProtocol(
            self.shard, config, self.index, self.layout, UNTIMED, *hooks, rejoin_s=self.rejoin_s
        )
        self.protocol.history, records = self.history, disk.records()
        try:
            if state:
                recovery.restore(self.protocol, state)
            self.clock = self.shard.made // config.workers
            for frames in records:
                recovery.replay(self.protocol, from_frames(frames))
        except (AssertionError, ValueError) as error:
            self.history.violations.append(f"{self.name} cannot start again: {error}")
        agenda.note(self.name, f"starts at version {self.shard.version}, with {len(records)} records of its journal")
        lost_at = self.protocol.membership.restarted()
        self.protocol.journal = self.keep
        self.updated()
        self.write_snapshot()
        for worker, member in enumerate(self.protocol.membership.members):
            if member.lost_at is not None:
                self.later(self.rejoin_s, self.leave, worker, lost_at)

    def keep(self, record: JournalRecord) -> None:
        """Append a record to the journal."""
        if not self.disk.left:
            self.make_room()
        self.step("appends a {} of worker {} to its journal", record.kind, record.worker)
        self.disk.append([bytes(frame) for frame in to_frames(record)])
        self.history.keep(self.index, record)
        self.step("has appended it")

    def updated(self) -> None:
        """After an update, turn the journal if it is full, and take a snapshot if one is due; it is written later."""
        if self.protocol.journal is None:  # the server replays
            return
        clock, disk = self.shard.made // self.config.workers, self.disk
        due = clock // EVERY > self.clock // EVERY or disk.first > disk.covered
        if due and not self.taken and self.shard.at_border:
            self.step("takes a snapshot at clock {}", clock)
            content = pickle.dumps((self.shard.params, recovery.snapshot(self.protocol)))
            self.clock, self.taken = clock, (disk.number, content)
            self.later(SLOW * self.latency(), self.write_snapshot)
        if disk.left < self.config.workers:
            self.make_room()

    def write_snapshot(self) -> None:
        """Write the snapshot that was taken, unless it is written already."""
        if self.taken:
            self.step("has written its snapshot")
            self.disk.snapshot, self.taken = self.taken, None
            self.step("has renamed it")

    def make_room(self) -> None:
        """Turn to the journal's other file, once a snapshot covers all its records."""
        if self.disk.first > self.disk.covered:
            self.write_snapshot()
        if self.disk.first <= self.disk.covered:
            self.step("turns to its journal's other file")
            self.disk.turn()

    def received(self, wire: Wire, content: Frames | None) -> None:
        if wire in self.inboxes:
            self.inboxes[wire].append(content)
        elif content is not None:
            self.inboxes[wire] = deque()
            answer = self.protocol.answer(content, wire, self.agenda.now)
            self.carry_out(answer, partial(self.reply, wire), wire)
        elif (lost_at := self.protocol.membership.lost(wire)) is not None:
            self.later(self.rejoin_s, self.leave, wire.worker, lost_at)

    def reply(self, wire: Wire, answer: Frames, error: Exception | None) -> None:
        """Answer a request, and take what has come behind it."""
        content = self.protocol.refusal(error) if error else [bytes(frame) for frame in answer]
        self.step("answers worker {}{}", wire.link[0], f": {error}" if error else "")
        wire.send(0, content)
        self.step("has answered")
        for frames in self.inboxes.pop(wire):
            self.received(wire, frames)

    def closed(self, wire: Wire) -> None:
        for need, task in self.waiting:
            if task.of is wire:
                self.waiting.remove((need, task))
                task.go(None, ConnectionError("The connection is closed."))
                break
        self.received(wire, None)

    def leave(self, worker: int, lost_at: float) -> None:
        """Stop counting a lost worker, unless it has come back."""
        self.agenda.note(self.name, f"has waited for worker {worker} since {lost_at:.4f} s")
        self.carry_out(self.protocol.leave(worker, f"worker {worker} is lost", lost_at), lambda *_: None)

    def meet(self, need: Any, task: Task) -> tuple[Any, Exception | None] | None:
        if need.ready():
            return None, None
        self.agenda.note(self.name, f"lets worker {need.worker} wait")
        self.waiting.append((need, task))
        return None

    def changed(self) -> None:
        """Note that waiting sessions may be ready."""
        self.to_check = True

    def went_on(self) -> None:
        while self.to_check:
            self.to_check = False
            for waiting in [*self.waiting]:
                if waiting in self.waiting and waiting[0].ready():
                    self.waiting.remove(waiting)
                    waiting[1].go()


class Request:
    """A message to a server. A ``raw`` one belongs to one connection, and is not sent again."""

    def __init__(self, task: Task, index: int, frames: Frames, number: int, last: bool, raw: bool) -> None:
        self.task, self.index, self.number, self.last, self.raw = task, index, number, last, raw
        self.frames: Frames = [bytes(frame) for frame in frames]
        self.breaks = 0

    def arrived(self, frames: Frames) -> None:
        self.task.answered(self.index, frames, None)

    def failed(self, error: Exception) -> None:
        worker: Any = self.task.party
        if failure := error if self.raw else worker.fail(self, error):
            self.task.answered(self.index, None, failure)


class WatchedRecord(ServerRecord):
    """A worker's record of a server that notes what the server says."""

    def __init__(self, history: History, worker: int, index: int, secret: str) -> None:
        super().__init__(history.config, worker, index, UNTIMED)
        self.secret, self.history, self.worker, self.pushed = secret, history, worker, -1

    def begin_push(self) -> int:
        self.pushed = super().begin_push()
        return self.pushed

    def read_stamp(self, kind: str, header: Header) -> None:
        super().read_stamp(kind, header)
        self.history.hear(self.index, self.worker, self.pushed, kind, header)


class Connect(NamedTuple):
    """Connect to a server, and try again until it is up."""

    server: int


class WorkerNode(Party):
    """A worker, whose ``gradient`` is a function of rank, clock and parameters. The secret and the file outlive it."""

    def __init__(self, agenda: Agenda, history: History, rank: int, servers: list[ServerNode], gradient: Gradient):
        super().__init__(agenda, f"worker {rank}")
        self.history, self.config, self.rank, self.servers = history, history.config, rank, servers
        self.gradient, self.secret, self.leaving = gradient, f"{rank + 1:032x}", False
        self.file: list[KeptPush | None] = [None, None]
        """The last two pushes, in two places by the clock's parity; None: a place that was not completely written."""

    def start(self) -> None:
        self.up, self.numbers = True, count()
        self.lines: list[Wire | None] = [None for _ in self.servers]
        """The connection to each server, if it is not known to be closed."""
        self.unanswered: dict[Wire, deque[Request]] = {}
        records = [WatchedRecord(self.history, self.rank, index, self.secret) for index in range(len(self.servers))]
        self.protocol = WorkerProtocol(self.rank, records)
        self.resendings = [Resending(partial(hello_again, self.protocol, index)) for index in range(len(records))]
        for resending in self.resendings:
            resending.outlast(PATIENCE_S)
        self.agenda.note(self.name, "starts")
        self.carry_out(self.train(), self.end)

    def train(self) -> Session[None]:
        """Connect, finish the push that an earlier process has kept, train, and say goodbye."""
        for index in range(len(self.servers)):
            yield Connect(index)
        kept = max(filter(None, self.file), key=lambda push: push.clocks, default=None)
        yield Call(self.protocol.hello(again=kept is not None))
        if kept:
            try:
                yield Call(self.protocol.finish_push(kept))
            except ValueError:  # the servers have gone on without this worker: both ends begin with new memories
                yield Call(self.protocol.hello())
        self.protocol.keep = self.keep if keeps_worker(self.config) else None
        yield from train_served(self.protocol, overlap=False)
        self.leaving = True
        with suppress(OSError):
            yield Call(self.protocol.ask_all("bye"))

    def end(self, result: None, error: Exception | None) -> None:
        """End this process for good."""
        self.agenda.note(self.name, "ends")
        if error:
            self.history.violations.append(f"{self.name} failed: {error}")
        self.ended = True
        self.hang_up()

    def die(self, down_s: float) -> None:
        self.ended |= self.leaving
        super().die(down_s)

    def keep(self, push: KeptPush) -> None:
        """Write a push to the file, in place of the last but one."""
        place, parcels = push.clocks[0] % 2, [[bytes(frame) for frame in parcel] for parcel in push.parcels]
        self.step("writes its push of clock {} to its file", push.clocks[0])
        self.file[place] = None
        self.step("has written a part of it")
        self.file[place] = push._replace(parcels=parcels)
        self.step("has written it")

    def meet(self, need: Any, task: Task) -> tuple[Any, Exception | None] | None:
        match need:
            case Receive(source=source):
                if source in task.answers:
                    return task.answers.pop(source)
                task.needs = source
            case Send(to=to, parcel=parcel):
                raw = task.of is not None
                request = Request(task, to, parcel, next(self.numbers), self.leaving, raw)
                try:
                    if raw or self.resendings[to].ask(request):
                        self.transmit(request)
                except OSError as error:
                    return None, error if raw else self.fail(request, error)
                return None, None
            case Resend(request=request):
                try:
                    self.transmit(request)
                except OSError as error:
                    return None, error
                return None, None
            case Compute(clock=clock, seen=seen):
                self.later(self.latency(), task.go, self.gradient(self.rank, clock, seen))
            case Call(session=session):
                self.carry_out(session, task.go)
            case Pause(seconds=seconds):
                self.later(seconds, task.go)
            case Dial():
                self.later(self.latency(), self.dial, task.of, task)
            case Connect(server=server):
                self.later(self.latency(), self.dial, server, task, True)
        return None

    def transmit(self, request: Any) -> None:
        """Send a request. ConnectionError if the connection is known to be closed."""
        if (wire := self.lines[request.index]) is None:
            raise ConnectionError("The connection is closed.")
        self.step("sends server {} its request {}", request.index, request.number)
        self.unanswered[wire].append(request)
        wire.send(1, request.frames)
        self.step("has sent it")

    def dial(self, index: int, task: Task, patiently: bool = False) -> None:
        """Connect to a server. If it is down, an error says so, or the worker dials again later."""
        server = self.servers[index]
        if old := self.lines[index]:
            old.cut(by=self)
        if server.up:
            wire = self.lines[index] = Wire((self.rank, index), (self, server))
            self.unanswered[wire] = deque()
            task.go()
        elif patiently:
            self.later(REDIAL_S, self.dial, index, task, True)
        else:
            task.go(None, ConnectionRefusedError(f"{server.name} is down."))

    def received(self, wire: Wire, content: Any) -> None:
        if self.lines[wire.link[1]] is wire:
            request = self.unanswered[wire].popleft()
            if isinstance(content, Exception):
                request.failed(content)
            else:
                request.arrived(content)

    def closed(self, wire: Wire) -> None:
        if self.lines[wire.link[1]] is wire:
            self.lines[wire.link[1]] = None
            for request in self.unanswered.pop(wire):
                request.failed(ConnectionError("The connection is closed."))

    def fail(self, request: Request, error: Exception) -> Exception | None:
        """Note a failed request, and reconnect. Returns the error, or None if the request will be sent again."""
        resending = self.resendings[request.index]
        connected = not resending.broken
        failure = resending.failed(request, error)
        if connected and resending.broken:
            self.agenda.note(self.name, f"reconnects to server {request.index}")
            self.carry_out(resending.reconnect(), partial(self.reconnected, resending), request.index)
        return failure

    def reconnected(self, resending: Resending, failed: list[Any], error: Exception | None) -> None:
        """Let those requests fail that cannot be sent again."""
        for request in failed:
            request.task.answered(request.index, None, resending.broken)
