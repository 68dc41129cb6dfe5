"""Faults in virtual time: nodes that die, pause and come back, over connections that break and are made again.

A dead node's tasks wait for a signal that never happens. What it has sent still arrives. A server comes back as a new
`FaultyServer` that replays the old one's journal, and a worker as a new `FaultyWorker`. `SimWire` is a worker's
connection to a server: it carries out the session of `minips.core.resending`, as a real run does.
"""

import copy
from collections import Counter
from collections.abc import Generator, Iterable
from functools import partial
from typing import Any

from minips import seeds
from minips.core.journal import JournalRecord, from_frames, to_frames
from minips.core.loop import Compute
from minips.core.membership import ClientConnection
from minips.core.protocol import KeptPush
from minips.core.recovery import replay
from minips.core.resending import Dial, Pause, Resend, Resending, hello_again
from minips.core.sessions import Do, Receive, Send, Session
from minips.drivers.events import Signal, Task, unrecorded
from minips.drivers.virtual import Interconnect, T
from minips.engines.inner import Inner
from minips.engines.simulated.central import ServerTeam, SimServer, SimWorker
from minips.engines.simulated.mutual import SimRank, Team
from minips.engines.simulated.simulation import Simulation
from minips.results.checkpoints import keeps_worker
from minips.results.run import Run
from minips.results.state import ServerState, WorkerState
from minips.stage import Frames
from minips.stages.transports.framing import size

LOOK_S = 0.05
"""The seconds between two looks of a restarted server for its first worker."""


class Late(Interconnect):
    """The simulation's network, on which each message is late by a drawn time. None overtakes an earlier one."""

    def __init__(self, simulation: Simulation) -> None:
        self._events, self._network, self._faults = simulation.events, simulation.network, simulation.faults
        self._workers = simulation.config.workers
        self._draws: dict[tuple[str, str], Any] = {}
        self._arrivals = Counter[tuple[str, str]]()

    def travel(
        self, source: str, target: str, nbytes: float, least_s: float = 0.0, queue: str = ""
    ) -> Iterable[float | Signal]:
        ends = source, target
        if ends not in self._draws:
            self._draws[ends] = seeds.late(self._faults.seed, *map(self._number, ends))
        late_s = self._faults.delay_s * self._draws[ends].exponential()
        yield from self._network.travel(source, target, nbytes, least_s, queue)
        now = self._events.now
        self._arrivals[ends] = at = max(now + late_s, self._arrivals[ends])
        yield at - now

    def left(self) -> list[float]:
        return self._network.left()

    def _number(self, who: str) -> int:
        role, number = who.split()
        return int(number) + self._workers * (role == "server")


class SimRequest:
    """A message to a server over a `SimWire`. ``done`` signals its end: the answer, or the exception to raise."""

    last = False

    def __init__(self, number: int, message: Send, step: Any, greets: bool = False) -> None:
        self.number, self.frames, self.values, self.step = number, message.parcel, message.values, step
        self.breaks, self.greets, self.reached, self.done = 0, greets, False, Signal()

    def arrived(self, frames: Frames) -> None:
        """Pass on the answer."""
        self.done.succeed(frames)

    def failed(self, error: Exception) -> None:
        """Pass on the error."""
        self.done.succeed(error)


class SimConnection(ClientConnection):
    """A connection to one life of a server, and the requests that are not answered yet."""

    def __init__(self, server: "FaultyServer") -> None:
        self.server = server
        self.unanswered: list[SimRequest] = []
        self.broken = self.abandoned = self.closed = False
        """``broken``: nothing arrives any more. ``abandoned``: the worker has died, but what it sent still arrives.
        ``closed``: the server knows.
        """
        self.serving = 0
        """The number of requests that the server answers now. It notices the end of a connection after them."""


class SimWire:
    """A worker's way to one server: a connection at a time, and what happens when it breaks."""

    def __init__(self, worker: "FaultyWorker", index: int, life: int) -> None:
        engine, self.worker, self.index = worker.simulation.engine, worker, index
        self._faults, self._numbers = worker.faults, 0
        self._draws = [seeds.cut(self._faults.seed, worker.rank, index, life, way) for way in (0, 1)]
        self._resending = Resending(partial(hello_again, worker.protocol, index), None, worker.config.transport)
        self._resending.outlast(engine.patience_s)
        self.connection = SimConnection(worker.team.servers[index])

    def ask(self, message: Send, step: Any) -> Signal:
        """Send a request, now or once the connection works again. Returns the signal of its end."""
        request, self._numbers = SimRequest(self._numbers, message, step), self._numbers + 1
        try:
            if self._resending.ask(request):
                self._send(request)
        except ConnectionError as error:
            request.failed(error)
        return request.done

    def abandon(self) -> None:
        """End the connection of a worker that has died, once all that it has sent has arrived."""
        self.connection.abandoned = True
        self._close(self.connection)

    def break_(self, connection: SimConnection) -> None:
        """Break a connection: nothing more arrives over it, and the worker notices if it waits for an answer."""
        if connection.broken:
            return
        connection.broken = True
        self._close(connection)
        if self.worker.alive:
            requests, connection.unanswered = connection.unanswered, []
            self._fail(requests)

    def _send(self, request: SimRequest) -> None:
        connection = self.connection
        if connection.broken or not connection.server.up:
            self._fail([request])
        else:
            connection.unanswered.append(request)
            self.worker.start(self._trip(request, connection))

    def _fail(self, requests: Iterable[SimRequest]) -> None:
        connected = not self._resending.broken
        for request in requests:
            error = ConnectionError(f"The connection to server {self.index} broke.")
            if failure := error if request.greets else self._resending.failed(request, error):
                request.failed(failure)
        if connected and self._resending.broken:
            self.worker.start(self._reconnect())

    def _trip(self, request: SimRequest, connection: SimConnection) -> Task[None]:
        """Carry a request to the server, let the server carry out its session, and bring the answer."""
        worker, server, network = self.worker, connection.server, self.worker.simulation.network
        least_s, step = worker.idle.at(request.values), request.step
        nbytes, began = size(request.frames), worker.events.now
        worker.bytes_sent += nbytes
        yield from network.travel(worker.who, server.who, nbytes, least_s)
        if connection.broken or not server.up:
            return
        worker.simulation.record("transfer", worker.who, began, step)
        request.reached, connection.serving = True, connection.serving + 1
        self._perhaps_cut(connection, "request", 0)
        answer: Frames = []
        try:
            session = server.protocol.answer(request.frames, connection, worker.events.now)
            answer = yield from server.carry_out(session, step)
        except Exception:
            if not (connection.broken or connection.abandoned):
                raise
        connection.serving -= 1
        self._close(connection)
        if connection.broken or connection.abandoned:
            return
        nbytes, began = size(answer), worker.events.now
        yield from network.travel(server.who, worker.who, nbytes, least_s)
        if connection.broken or connection.abandoned:
            return
        worker.simulation.record("transfer", worker.who, began, step)
        worker.bytes_received += nbytes
        connection.unanswered.remove(request)
        request.arrived(answer)
        self._perhaps_cut(connection, "answer", 1)

    def _perhaps_cut(self, connection: SimConnection, what: str, way: int) -> None:
        if self._faults.cut and self._draws[way].random() < self._faults.cut and not connection.broken:
            clock = self.worker.protocol.servers[self.index].clock
            ends = f"between {self.worker.who} and {connection.server.who} broke behind"
            self.worker.simulation.note(f"the connection {ends} the {what} at clock {clock}")
            self.break_(connection)

    def _close(self, connection: SimConnection) -> None:
        """Tell the server of the connection's end, if it has ended and the server has nothing left to do for it."""
        travelling = any(not request.reached for request in connection.unanswered)
        ended = connection.broken or (connection.abandoned and not travelling)
        server = connection.server
        if not ended or connection.closed or connection.serving or connection.worker < 0 or not server.up:
            return
        connection.closed = True
        lost_at = server.protocol.membership.lost(connection)
        if lost_at is not None:
            server.start(server.await_return(self.worker.rank, lost_at))

    def _reconnect(self) -> Task[None]:
        """Carry out the session that connects again."""
        session, worker = self._resending.reconnect(), self.worker
        answer: Any = None
        error: Exception | None = None
        greeting: SimRequest | None = None
        while worker.alive:
            try:
                need = session.send(answer) if error is None else session.throw(error)
            except StopIteration as end:
                for request in end.value:
                    request.failed(self._resending.broken)
                return
            answer, error = None, None
            match need:
                case Pause(seconds=seconds):
                    yield seconds
                case Dial():
                    self.connection = SimConnection(worker.team.servers[self.index])
                    if not self.connection.server.up:
                        error = ConnectionRefusedError(f"Server {self.index} is not up.")
                case Resend(request=request):
                    self._send(request)  # type: ignore[arg-type]
                case Do(call=call):
                    answer = call()
                case Send():
                    greeting = SimRequest(-1, need, worker.clock, greets=True)
                    self._send(greeting)
                case Receive():
                    assert greeting
                    answer = yield greeting.done
                    if isinstance(answer, Exception):
                        answer, error = None, answer


class _Mortal:
    """A worker that pauses, and dies once it has computed the gradient of a clock. A mix-in."""

    simulation: Simulation
    who: str
    alive = True

    def doom(self, first: bool = True) -> None:
        """Read from the faults when this worker pauses and dies, in its ``first`` life."""
        self.faults = faults = self.simulation.faults
        self._kill_at = faults.kill.get(self.who) if first else None
        self._pause = faults.pause.get(self.who) if first else None

    def compute(self, need: Compute, step: None) -> Task[Any]:
        worker: Any = self
        if self._pause and need.clock >= self._pause[0]:
            (_, seconds), self._pause, began = self._pause, None, self.simulation.events.now
            self.simulation.note(f"{self.who} pauses for {seconds:g} s at clock {need.clock}")
            worker.work((seconds, unrecorded))
            yield seconds
            self.simulation.record("wait", self.who, began, need.clock)
        computed = yield from super().compute(need, step)  # type: ignore[misc]
        if self._kill_at is not None and need.clock >= self._kill_at and computed is not None:
            self.alive = False
            self.simulation.note(f"{self.who} was killed at clock {need.clock}")
            self.die()
            yield self.simulation.never
        return computed

    def die(self) -> None:
        """Handle this worker's death: without servers, it ends the run."""
        self.simulation.lose(self.who)


class FaultyWorker(_Mortal, SimWorker):
    """A worker's first life, or the one that goes on after its ``earlier`` one."""

    def __init__(self, team: "Served", rank: int, earlier: "FaultyWorker | None" = None) -> None:
        super().__init__(team.simulation, rank, team.servers)  # type: ignore[arg-type]
        self.team = team
        self.life: int = earlier.life + 1 if earlier else 0
        self.doom(first=earlier is None)
        self.wires: list[SimWire] = []
        self.kept: tuple[KeptPush, Any] | None = earlier.kept if earlier else None
        """The last push, and the inner optimizer's state after it, where nothing else can restore them."""
        if not earlier and keeps_worker(self.config):
            self.protocol.keep = self._keep

    def connect(self) -> None:
        """Connect to all the servers."""
        self.wires = [SimWire(self, index, self.life) for index in range(self.config.servers)]

    def connection_to(self, index: int) -> ClientConnection:
        if not self.wires:
            self.connect()
        return self.wires[index].connection

    @property
    def connected(self) -> bool:
        wires = [wire.connection for wire in self.wires]
        return self.alive and not any(connection.broken for connection in wires)

    def state(self) -> WorkerState:
        return super().state() if self.alive else None  # type: ignore[return-value]

    def send(self, message: Send, step: Any) -> Task[None]:
        yield from self.spend(("transfer",), message.values, step)
        if not self.alive:
            yield self.simulation.never
        self._trips[message.to].append(self.wires[message.to].ask(message, step))
        if message.to == len(self.servers) - 1:
            self._sent.succeed()

    def receive(self, wanted: Receive, step: Any) -> Task[Frames]:
        answer: Any = yield self._trips[wanted.source].popleft()
        if not self.alive:
            yield self.simulation.never
        if isinstance(answer, Exception):
            raise answer
        frames: Frames = answer
        return frames

    def come_back(self) -> Task[None]:
        """Go on in the place of the earlier life."""
        yield from self.carry_out(self.protocol.hello(again=self.kept is not None), self.clock)
        if self.kept:
            push, inner = self.kept
            self._inner = self._inner and Inner(inner)
            yield from self.carry_out(self.protocol.finish_push(push), self.clock)
        elif keeps_worker(self.config):
            self.resume(self.team.resumed(self.rank))
        if keeps_worker(self.config):
            self.protocol.keep = self._keep
        yield from self.train()

    def die(self) -> None:
        self.gone = True
        for wire in self.wires:
            wire.abandon()
        self.team.worker_died(self)

    def _keep(self, push: KeptPush) -> None:
        parcels = [[bytes(frame) for frame in parcel] for parcel in push.parcels]
        inner = self._inner.state() if self._inner else None
        self.kept = KeptPush([*push.clocks], copy.deepcopy(push.links), parcels), inner


class FaultyServer(SimServer):
    """A server's first life, or the one that goes on from the journal of its ``earlier`` one."""

    def __init__(self, team: "Served", index: int, earlier: "FaultyServer | None" = None) -> None:
        self.up, self._replays = True, False
        super().__init__(team, index, team.whole)
        faults = team.simulation.faults
        self.team, self._earlier, self._resumes_at = team, earlier, 0.0
        self._kill_at = None if earlier else faults.kill.get(self.who)
        self._pause = None if earlier else faults.pause.get(self.who)
        self._journal: list[Frames] = earlier._journal if earlier else []

    def begin(self, state: ServerState | None) -> None:
        super().begin(state)
        if self._kill_at is not None and self.team.restarts(self.who):
            self.protocol.journal = self._append

    def come_back(self, state: ServerState | None) -> None:
        """Replay the journal, and go on."""
        earlier = self._earlier
        assert earlier
        super().begin(state)
        self._replays, replayed = True, 0
        for frames in self._journal:
            record = from_frames(frames)
            replay(self.protocol, record)
            replayed += record.kind == "push"
        self._replays = False
        self.trace.forget()
        self.protocol.events[:0] = earlier.protocol.events
        after = f"after {self.simulation.engine.restart_s:g} s, with {replayed} pushes from its journal"
        self.simulation.note(f"{self.who} was started again {after}")
        self.start(self._await_first(self.protocol.membership.restarted()))
        self.decide()

    def start(self, steps: Task[Any]) -> Signal:
        """Start a task of this server."""
        return self.events.start(steps)

    def carry_out(self, session: Session[T], step: Any = None) -> Task[T]:
        steps: Generator[Any, Any, T] = super().carry_out(session, step)
        value: Any = None
        wanted: Any = None
        ended = False
        while True:
            while self.events.now < self._resumes_at:
                yield self._resumes_at - self.events.now
            if self.up and ended:
                result: T = value
                return result
            if self.up:
                try:
                    wanted = steps.send(value)
                except StopIteration as end:
                    value, ended = end.value, True
                    continue
            if not self.up:
                yield self.simulation.never
            value = yield wanted

    def await_return(self, worker: int, lost_at: float) -> Task[None]:
        """Stop counting a lost worker, unless it comes back in time."""
        yield self.protocol.membership.rejoin_s
        event = f"worker {worker} is gone: its connection closed without a goodbye"
        yield from self.carry_out(self.protocol.leave(worker, event, lost_at), self.shard.clocks[worker])

    def _await_first(self, lost_at: float) -> Task[None]:
        """After a restart, stop counting the workers that do not come back within ``rejoin_s`` of the first one."""
        membership = self.protocol.membership
        while not membership.connected:
            yield LOOK_S
        yield membership.rejoin_s
        for worker in range(self.config.workers):
            event = f"worker {worker} did not come back after the server's restart"
            yield from self.carry_out(self.protocol.leave(worker, event, lost_at), self.shard.clocks[worker])

    def updated(self) -> None:
        clock = self.shard.made // self.shard.workers
        if self._replays:
            self.protocol.keep()
        elif self._kill_at is not None and clock >= self._kill_at:
            self.up = False
            self.simulation.note(f"{self.who} was killed at clock {clock}")
            self.team.server_died(self)
        else:
            if self._pause and clock >= self._pause[0]:
                (_, seconds), self._pause = self._pause, None
                self._resumes_at = self.events.now + seconds
                self.simulation.note(f"{self.who} pauses for {seconds:g} s at clock {clock}")
            super().updated()

    @property
    def paused(self) -> bool:
        return self.up and super().paused

    def _look(self) -> None:
        if self.up:
            super()._look()

    def _append(self, record: JournalRecord) -> None:
        self._journal.append([bytes(frame) for frame in to_frames(record)])


class Served(ServerTeam):
    """Servers and workers with faults."""

    workers: list[FaultyWorker]  # type: ignore[assignment]
    servers: list[FaultyServer]  # type: ignore[assignment]

    def __init__(self, simulation: Simulation) -> None:
        self._deaths, self._buried = Counter[str](), list[FaultyServer]()
        super().__init__(simulation)
        self._ends = [Signal() for _ in self.workers]

    def worker(self, rank: int) -> FaultyWorker:
        return FaultyWorker(self, rank)

    def server(self, index: int) -> FaultyServer:
        return FaultyServer(self, index)

    def begin(self) -> list[Signal]:
        for worker, end in zip(self.workers, self._ends, strict=True):
            worker.start(worker.train()).then(end.succeed)
        return self._ends

    def result(self) -> Run:
        if self.simulation.failure and not all(server.up for server in self.servers):
            raise RuntimeError("A server ended without its report, so the parameters are lost.")
        return super().result()

    def resumed(self, rank: int) -> WorkerState | None:
        """A worker's part of the saved run from which this one goes on."""
        state = self.simulation.job.state
        return state and state["workers"][rank]

    def restarts(self, who: str) -> bool:
        """True if this party is started again when it dies now."""
        most: int = self.simulation.engine.restart
        return self._deaths[who] < most

    def worker_died(self, worker: FaultyWorker) -> None:
        """Start a worker again, or go on without it."""
        if self._again(worker.who, lambda: self._revive(worker)):
            return
        self._ends[worker.rank].succeed()
        if not any(other.alive for other in self.workers):
            self.simulation.lose(worker.who)

    def server_died(self, server: FaultyServer) -> None:
        """Break all connections to a server, and start it again, or end the run."""
        for worker in self.workers:
            wire = worker.wires[server.index]
            self.simulation.events.at(self.simulation.events.now, partial(wire.break_, wire.connection))
        if not self._again(server.who, lambda: self._replace(server)):
            self.simulation.lose(server.who)

    def _again(self, who: str, start: Any) -> bool:
        restarts = self.restarts(who)
        self._deaths[who] += 1
        if restarts:
            events = self.simulation.events
            events.at(events.now + self.simulation.engine.restart_s, start)
        return restarts

    def _revive(self, earlier: FaultyWorker) -> None:
        self.dead.append(earlier)
        self.workers[earlier.rank] = worker = FaultyWorker(self, earlier.rank, earlier)
        worker.connect()
        self.simulation.note(f"{worker.who} was started again after {self.simulation.engine.restart_s:g} s")
        worker.start(worker.come_back()).then(self._ends[worker.rank].succeed)

    def _replace(self, earlier: FaultyServer) -> None:
        self._buried.append(earlier)
        state = self.simulation.job.state
        self.servers[earlier.index] = server = FaultyServer(self, earlier.index, earlier)
        server.come_back(state and state["servers"][server.index])


class FaultyRank(_Mortal, SimRank):
    """A worker of an all-reduce that may pause or die."""

    def __init__(self, team: Team, rank: int, state: WorkerState | None) -> None:
        super().__init__(team, rank, state)
        self.simulation = team.simulation
        self.doom()


class Ranks(Team):
    """The workers of an all-reduce, with faults."""

    def rank(self, number: int, state: WorkerState | None) -> SimRank:
        return FaultyRank(self, number, state)
