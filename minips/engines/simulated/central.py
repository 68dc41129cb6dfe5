"""Workers that push to servers and pull from them in virtual time.

`SimServer` runs a server's sessions; `SimWorker` runs a worker's sessions and its training loop. Messages and seeds are
those of a real run, so the parameters agree to the bit and the traffic to the byte.
"""

import math
from collections import deque
from typing import Any

from minips.core.loop import Begin, Call, Compute, Seen, train_served
from minips.core.membership import ClientConnection
from minips.core.message import NonFiniteError
from minips.core.partition import cut, join, native, partition
from minips.core.protocol import ServerProtocol, ServerRecord, WorkerProtocol
from minips.core.sessions import Receive, Send, Session, carry_out
from minips.core.shard import Shard
from minips.core.tables import rows_pushed
from minips.drivers.events import Signal, Task
from minips.drivers.virtual import ServedNode
from minips.engines.inner import Inner
from minips.engines.simulated.simulation import SimNode, Simulation, Trainer
from minips.engines.worker import at_step, before_updates, by_rows, compute, has_moved, worker_state
from minips.machines.calibration import server_lines, worker_lines
from minips.machines.fit import Line
from minips.results.run import Run
from minips.results.state import ServerState, WorkerState, state_of
from minips.results.status import expected
from minips.stage import Frames, Tensors
from minips.stages.transports.framing import size


class ServerTeam:
    """The servers and their workers."""

    def __init__(self, simulation: Simulation) -> None:
        config, state = simulation.config, simulation.job.state
        whole = {name: native(x, f"The parameter {name!r}") for name, x in simulation.job.params.items()}
        self.simulation, self.whole = simulation, whole
        self.servers: list[SimServer] = []
        self.workers = [self.worker(rank) for rank in range(config.workers)]
        self.servers += [self.server(index) for index in range(config.servers)]
        self.dead: list[SimWorker] = []
        """The earlier lives of workers that have died and were started again."""
        for server in self.servers:
            server.begin(state and state["servers"][server.index])
        for worker in self.workers:
            worker.at_once(worker.protocol.hello())
            worker.resume(state and state["workers"][worker.rank])

    def worker(self, rank: int) -> "SimWorker":
        """Create a worker."""
        return SimWorker(self.simulation, rank, self.servers)

    def server(self, index: int) -> "SimServer":
        """Create a server, with the initial parameters."""
        return SimServer(self, index, self.whole)

    def begin(self) -> list[Signal]:
        """Start the workers. Returns the signals of their ends."""
        return [worker.start(worker.train()) for worker in self.workers]

    def result(self) -> Run:
        """Return the results at the run's end."""
        simulation, servers, workers = self.simulation, self.servers, self.workers
        for worker in workers if not simulation.failure else ():
            if not worker.gone and worker.connected:
                worker.at_once(worker.protocol.ask_all("bye"))
        shard, losses, states = servers[0].shard, servers[0].losses, [worker.state() for worker in workers]
        simulation.report(shard.applied, expected(shard) or 0, losses, last=True)
        return Run(
            config=simulation.config,
            params=join([dict(server.shard.params) for server in servers], [server.layout for server in servers]),
            seconds=max(server.protocol.changed_at for server in servers),
            losses=losses,
            updates=shard.applied,
            missing=shard.missing,
            late=shard.late,
            state=None if simulation.failure else state_of([one.protocol.state() for one in servers], states),
            stopped=simulation.ended or not all(server.shard.done for server in servers),
            diverged=next((server.shard.diverged for server in servers if server.shard.diverged), None),
            bytes_sent=sum(worker.bytes_sent for worker in [*workers, *self.dead]),
            bytes_received=sum(worker.bytes_received for worker in [*workers, *self.dead]),
            staleness=shard.staleness,
            grants=shard.grants,
            trace=simulation.trace,
            server_rows=[n for server in servers if (n := rows_pushed(server.shard)) is not None],
            events=sorted(
                [
                    *simulation.happened,
                    *((at, f"server {one.index}: {text}") for one in servers for at, text in one.protocol.events),
                ]
            ),
        )


class SimServer(SimNode):
    """A server: a shard, and the sessions that serve its requests."""

    def __init__(self, team: ServerTeam, index: int, params: Tensors) -> None:
        simulation, self._workers, self._servers = team.simulation, team.workers, team.servers
        calibration, config = simulation.engine.calibration, simulation.config
        super().__init__(simulation, f"server {index}", server_lines(calibration, config) if calibration else {})
        self.simulation, tables = simulation, simulation.job.problem.tables
        self.index, self.layout = index, partition(params, config.servers, tables, config.placement)[index]
        updates, now = config.workers * config.clocks, lambda: self.events.now
        every = math.inf if simulation.every is None else simulation.every * config.workers
        own = cut(params, self.layout)
        self.shard = Shard.of(config, own, updates=updates, now=now, every=every, tables=tables)
        self.protocol = _Protocol(self)
        self.losses = self.protocol.losses
        self._state: tuple[Any, ...] = ()
        self._watching = False

    def begin(self, state: ServerState | None) -> None:
        """Begin, from the ``state`` of a saved run if one is given."""
        if state:
            self.protocol.restore(state)
        self.protocol.keep()

    def watch(self) -> Task[None]:
        """Drop silent workers until none of them counts. Meanwhile the other workers send heartbeats."""
        if self._watching:
            return
        self._watching, membership = True, self.protocol.membership
        while not self.shard.done and any(map(self._misses, self._workers)):
            for worker in self._workers:
                if not worker.gone:
                    worker.at_once(worker.protocol.ask_one(self.index, "alive"))
            for silent, event in membership.silent():
                yield from self.carry_out(self.protocol.leave(silent, event), self.shard.clocks[silent])
            yield membership.silence_s / 4
        self._watching = False

    def _misses(self, worker: "SimWorker") -> bool:
        """Return True if this worker counts and has fallen silent without a goodbye."""
        connections = self.protocol.membership.members[worker.rank].connections
        return worker.gone and worker.rank in self.shard.live and bool(connections)

    def updated(self) -> None:
        """Handle the end of an update."""
        self.protocol.keep()
        self.decide()

    def decide(self) -> None:
        """Report, pause, or let stragglers abandon their gradients."""
        shard = self.shard
        if self.simulation.engine.abandon and shard.quorum is not None and shard.quorum < shard.workers:
            for worker in self._workers:
                worker.left_behind()
        if self.index == 0:
            self.simulation.report(shard.applied, expected(shard) or 0, self.losses)
        if self.simulation.halt:  # all servers end at the same clock
            at = max(server.shard.pause() for server in self._servers)
            for server in self._servers:
                server.shard.pause(at)
        if shard.paused and all(server.paused for server in self._servers):
            parts, layouts = [server.shard.params for server in self._servers], [one.layout for one in self._servers]
            ended = self.simulation.evaluate(
                self._servers[0].shard.made // shard.workers, join(parts, layouts), self._servers[0].losses
            )
            for server in self._servers:
                server.protocol.go_on(ended)
                server._look()

    @property
    def paused(self) -> bool:
        """True while the shard pauses, and its parameters can be evaluated."""
        return self.shard.paused

    def changed(self) -> None:
        """Handle a change of the shard."""
        if self.shard.diverged:
            self.diverge(self.shard.diverged)
        self._look()

    def diverge(self, reason: str) -> None:
        """End the run at every server."""
        for server in self._servers:
            server.protocol.diverge(reason)
            server._look()

    def _look(self) -> None:
        """If the state on which conditions depend has changed, wake the sessions whose conditions hold."""
        shard = self.shard
        state = shard.slowest(), shard.done, shard.pause_at, shard.sees_time and shard.applied, self.protocol.encodings
        if state != self._state:
            self._state = state
            self.wake()


class _Protocol(ServerProtocol):
    """A server's sessions; pulls return parameters that are ``delay_versions`` versions old, as the engine says."""

    def __init__(self, server: SimServer) -> None:
        calls = server.changed, server.updated
        held = [f"{rank:032x}" for rank in range(server.config.workers)]
        super().__init__(
            *(server.shard, server.config, server.index, server.layout, server.trace, *calls),
            rejoin_s=server.simulation.engine.patience_s,
            rank_secrets=held,
        )
        self._versions = deque[tuple[int, Tensors]](maxlen=server.simulation.engine.delay_versions + 1)

    def keep(self) -> None:
        """Keep this version of the parameters, if pulls return earlier ones."""
        if self._versions.maxlen != 1:
            self._versions.append((self.shard.version, self.shard.params))

    def read(self, worker: int) -> tuple[int, Tensors]:
        newest = super().read(worker)
        return self._versions[0] if self._versions else newest


class SimWorker(ServedNode, Trainer):
    """A worker and its client."""

    def __init__(self, simulation: Simulation, rank: int, servers: list[SimServer]) -> None:
        calibration, config = simulation.engine.calibration, simulation.config
        super().__init__(simulation, rank, worker_lines(calibration) if calibration else {})
        self.idle = calibration.idle.times(1 / 2) if calibration else Line()
        self.servers: list[SimServer] = servers
        self._records = [ServerRecord(config, rank, index, self.trace) for index in range(config.servers)]
        rows = self.problem.rows if config.aggregator.weighs else 0
        for record in self._records:
            record.secret = f"{rank:032x}"  # as long as in a real run
        self.protocol = WorkerProtocol(rank, self._records, rows)
        self._seen: Seen | None = None
        self._inner = Inner() if config.local else None
        self._gave_up = self._over = False
        """``_gave_up``: the last gradient was given up. ``_over``: the run had ended before it was computed."""
        self.gone = False
        """True if the worker's loop ended before the run: the worker has left or fallen silent."""

    def resume(self, state: WorkerState | None) -> None:
        """Resume from the ``state`` of a saved run, if one is given. Called after hello."""
        if state:
            for record, link in zip(self._records, state["links"], strict=True):
                record.restore(link)
            self._seen = Seen(*state["seen"]) if state["seen"] else None
            self._inner = self._inner and Inner.of(state)

    def state(self) -> WorkerState:
        """Return the worker's part of the run's state."""
        return worker_state(self.config, [record.state() for record in self._records], self._seen, self._inner)

    def at_once(self, session: Session[Any]) -> None:
        """Execute a session in no virtual time: a hello before the clock starts, a heartbeat, or the bye at the end."""
        requests: list[Send] = []

        def receive(wanted: Receive) -> Frames:
            frames = requests.pop(0).parcel
            protocol = self.servers[wanted.source].protocol
            answer: Frames = carry_out(protocol.answer(frames, self.connection_to(wanted.source), self.events.now), {})
            self.bytes_sent, self.bytes_received = self.bytes_sent + size(frames), self.bytes_received + size(answer)
            return answer

        carry_out(session, {Send: requests.append, Receive: receive})

    def connection_to(self, index: int) -> ClientConnection:
        """The connection to a server."""
        return self.connection

    @property
    def connected(self) -> bool:
        """True if a goodbye would reach the servers."""
        return bool(self.servers[0].protocol.membership.members[self.rank].connections)

    def left_behind(self) -> None:
        """Abandon the current gradient if its round has ended at every server."""
        if all(server.shard.rounds > record.clock for server, record in zip(self.servers, self._records, strict=True)):
            self.give_up()

    def train(self) -> Task[None]:
        worker = by_rows(self.protocol, self.problem, self._plain)
        loop = train_served(worker, self.config.overlap, lambda: self._over, self._seen)
        try:
            self._seen = yield from self.carry_out(loop)
        except NonFiniteError as error:
            if not has_moved(error, self.protocol.versions):
                raise before_updates(error) from error
            self.servers[0].diverge(at_step(self.protocol.clock, self.rank, error))
        self.gone = not all(server.shard.done for server in self.servers)
        for server in self.servers if self.gone else ():
            self.start(server.watch())

    def compute(self, need: Compute, step: None) -> Task[Any]:
        self._gave_up = not (yield from self.gradient_time(need.clock))
        self._over = all(server.shard.done for server in self.servers)
        if self._gave_up or self._over:
            return None
        return (self._inner or compute)(self.problem, self._plain, need.seen, self.rank, need.clock)

    def call(self, need: Call | Begin, step: None) -> Task[Any]:
        for server in self.servers if self._gave_up else ():
            server.shard.skip(self.rank)
        self._gave_up, self.clock = False, self.protocol.clock
        return super().call(need, step)
