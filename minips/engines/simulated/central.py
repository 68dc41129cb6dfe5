"""Workers that push to servers and pull from them, in virtual time.

`SimServer` carries out the sessions of a server, `SimWorker` those of a worker, and trains as
`minips.engines.worker.train_ps` does: the same messages with the same seeds, so that parameters are those of a real run
to the bit, and bytes to the byte.
"""

import math
from collections import deque
from typing import Any, cast

import simpy

from minips.core.calibration import update_lines
from minips.core.fit import Line
from minips.core.message import Message, NonFiniteError, check_finite
from minips.core.partition import cut, join, native, partition
from minips.core.protocol import ServerLink, ServerSession, WorkerSession
from minips.core.run import Rows, Run, state_of
from minips.core.sessions import Receive, Send, Session, Until, carry_out
from minips.core.shard import Shard
from minips.drivers.virtual import Way
from minips.engines.simulated.cluster import UNTIMED, Node, Simulation, Trainer
from minips.engines.worker import Seen, at_step, compute, worker_state
from minips.stage import Frames, Tensors
from minips.stages.transports.framing import size

_SILENCE_S = 30.0
"""The limit that a simulated server names in its hello; simulated workers are never silent."""


def run(cluster: Simulation) -> Run:
    """Train with parameter servers."""
    config, state = cluster.config, cluster.job.state
    whole = {name: native(x) for name, x in cluster.job.params.items()}
    servers: list[SimServer] = []
    workers = [SimWorker(cluster, rank, servers) for rank in range(config.workers)]
    servers += [SimServer(cluster, index, whole, workers, servers) for index in range(config.servers)]
    for server in servers:
        server.begin(state and state["servers"][server.index])
    for worker in workers:
        worker.at_once(worker.session.hello())
        worker.begin(state and state["workers"][worker.rank])
    cluster.run([worker.start() for worker in workers])
    for worker in workers:
        worker.at_once(worker.session.say("bye"))
    shard, losses = servers[0].shard, servers[0].losses
    cluster.tell(shard.applied, losses, last=True)
    run = Run(
        config=config,
        params=join([dict(server.shard.params) for server in servers], [server.layout for server in servers]),
        seconds=max(server.changed_at for server in servers),
        losses=losses,
        updates=shard.applied,
        late=shard.late,
        state=state_of([server.session.state() for server in servers], [worker.state() for worker in workers]),
        stopped=cluster.ended or not all(server.shard.done for server in servers),
        diverged=next((server.shard.diverged for server in servers if server.shard.diverged), None),
        bytes_sent=sum(worker.bytes_sent for worker in workers),
        bytes_received=sum(worker.bytes_received for worker in workers),
        staleness=shard.staleness,
        grants=shard.grants,
        trace=cluster.trace,
    )
    return cluster.finished(run)


class SimServer(Node):
    """A server: a shard, and the sessions of its requests."""

    def __init__(
        self, cluster: Simulation, index: int, params: Tensors, workers: "list[SimWorker]", servers: "list[SimServer]"
    ) -> None:
        calibration, config = cluster.engine.calibration, cluster.config
        times = {**calibration.server, **update_lines(calibration, config)} if calibration else {}
        if calibration:
            times["transfer"] = calibration.server_rest.times(1 / 2)
        super().__init__(cluster, f"server {index}", times)
        self.index, self.layout, self._workers = index, partition(params, config.servers)[index], workers
        updates, now = config.workers * config.steps, lambda: float(self.env.now)
        every = math.inf if cluster.every is None else cluster.every * config.workers
        self.shard = Shard.of(config, cut(params, self.layout), updates=updates, now=now, every=every)
        self.losses: Rows = []
        self.changed_at = 0.0
        self._servers = servers
        self.session = _Sessions(self)
        self._waiting: list[tuple[Until, simpy.Event]] = []
        self._state: tuple[Any, ...] = ()

    def begin(self, state: Any) -> None:
        """Begin, where a saved run has ended if its ``state`` is given."""
        if state:
            self.session.restore(state)
        self.session.begin()

    def wait(self, wanted: Until, step: int) -> Way[None]:
        if not wanted.ready():
            began, event = self.env.now, self.env.event()
            self._waiting.append((wanted, event))
            yield event
            self.cluster.record("wait", f"worker {wanted.worker}", began, step)

    def updated(self) -> None:
        """An update has taken its time."""
        shard = self.shard
        self.changed_at = self.env.now
        self.losses += [(self.env.now, step, loss) for step, loss in shard.losses[len(self.losses) :]]
        if self.cluster.engine.abandon and shard.quorum is not None and shard.quorum < shard.workers:
            for worker in self._workers:
                worker.left_behind()
        if self.index == 0:
            self.cluster.tell(shard.applied, self.losses)
        if self.cluster.halt:  # all end with those of one clock
            at = max(server.shard.pause() for server in self._servers)
            for server in self._servers:
                server.shard.pause(at)
        if shard.paused and all(server.shard.paused for server in self._servers):
            parts, layouts = [server.shard.params for server in self._servers], [one.layout for one in self._servers]
            ended = self.cluster.evaluate(
                self._servers[0].shard.applied // shard.workers, join(parts, layouts), self._servers[0].losses
            )
            for server in self._servers:
                if ended:
                    server.shard.end()
                else:
                    server.shard.go_on()
                server._look()

    def changed(self) -> None:
        """The shard has changed."""
        if self.shard.diverged:
            self.diverge(self.shard.diverged)
        self._look()

    def diverge(self, reason: str) -> None:
        """The run ends at every server."""
        for server in self._servers:
            server.shard.diverge(reason)
            server._look()

    def _look(self) -> None:
        """Those that wait and need not any more go on. None can, as long as the slowest clock is the same."""
        shard = self.shard
        state = shard.slowest(), shard.done, shard.pause_at, shard.sees_time and shard.applied
        if state != self._state:
            self._state, waiting, self._waiting = state, self._waiting, []
            for wanted, event in waiting:
                if wanted.ready():
                    event.succeed()
                else:
                    self._waiting.append((wanted, event))


class _Sessions(ServerSession):
    """A server's sessions whose pulls see an update once its time is over, and as many versions later as the engine
    says.
    """

    keeps_parameters = True

    def __init__(self, server: SimServer) -> None:
        calls = server.changed, self._publish
        super().__init__(server.shard, server.config, server.index, server.layout, UNTIMED, *calls, _SILENCE_S)
        self._server = server
        self._versions = deque[tuple[int, Tensors]](maxlen=server.cluster.engine.delay_versions + 1)

    def begin(self) -> None:
        """Keep the first version."""
        self._versions.append((self.shard.version, self.shard.params))

    def read(self, worker: int) -> tuple[int, Tensors]:
        self.shard.pull(worker)
        return self._versions[0]

    def _publish(self) -> None:
        self._versions.append((self.shard.version, self.shard.params))
        self._server.updated()


class SimWorker(Trainer):
    """A worker and its client."""

    def __init__(self, cluster: Simulation, rank: int, servers: list[SimServer]) -> None:
        calibration, config = cluster.engine.calibration, cluster.config
        rest = {"transfer": calibration.worker_rest.times(1 / 2)} if calibration else {}
        super().__init__(cluster, rank, {**calibration.worker, **rest} if calibration else {})
        self._idle = calibration.idle.times(1 / 2) if calibration else Line()
        self._servers = servers
        self._links = [ServerLink(config, rank, index, UNTIMED) for index in range(config.servers)]
        self.session = WorkerSession(rank, self._links)
        self._trips: list[deque[simpy.Process]] = [deque() for _ in self._links]
        self._sent = self.env.event()
        """Happens when all of a push is sent."""
        self._seen: Seen | None = None

    def begin(self, state: Any) -> None:
        """After hello: begin, where a saved run has ended if its ``state`` is given."""
        if state:
            for link, kept in zip(self._links, state["links"], strict=True):
                link.restore(kept)
            self._seen = state["seen"] and Seen(*state["seen"])

    def state(self) -> dict[str, Any]:
        """The worker's part of the run's state."""
        return worker_state(self.config, [link.state() for link in self._links], self._seen)

    def at_once(self, session: Session[Any]) -> None:
        """Carry out a session that takes no time: hello before the clock starts, bye after it has stopped."""
        asked: list[Send] = []

        def receive(wanted: Receive) -> Frames:
            frames = asked.pop(0).parcel
            answer = carry_out(self._servers[wanted.source].session.request(frames))
            self.bytes_sent, self.bytes_received = self.bytes_sent + size(frames), self.bytes_received + size(answer)
            return answer

        carry_out(session, asked.append, receive)

    def left_behind(self) -> None:
        """Give up a gradient whose round is over at every server."""
        if all(server.shard.rounds > link.clock for server, link in zip(self._servers, self._links, strict=True)):
            self.give_up()

    def train(self) -> Way[None]:
        try:
            yield from self._train()
        except NonFiniteError as error:
            if not any(self.session.versions):
                raise
            self._servers[0].diverge(at_step(self.session.clock, self.rank, error))

    def _train(self) -> Way[None]:
        session = self.session
        travelling: simpy.Event | None = None
        if self._seen is None:
            params, versions = (yield from self._pull()), session.versions
        else:
            params, versions, arrived = self._seen
            if arrived is not None:
                travelling = self.env.event().succeed(arrived)
        while not session.done:
            read, clock = versions, session.clock
            finished = yield from self.compute_delay(clock)
            if all(server.shard.done for server in self._servers):
                break
            if finished:
                loss, gradients = compute(self.problem, self._plain, params, self.rank, clock)
            if travelling:
                arrived = yield travelling
                if session.done:
                    break
                params, versions, travelling = arrived, session.versions, None
            if not finished:
                for server in self._servers:
                    server.shard.skip(self.rank)
                params, versions = (yield from self._pull()), session.versions
            elif self.config.overlap:
                travelling = self.process(self._push_pull(gradients, loss, read))
                yield self.env.timeout(0)  # it has begun now
                if not self._sent.triggered:  # a push returns once all of it is sent
                    yield self._sent
            else:
                params, versions = (yield from self._push_pull(gradients, loss, read)), session.versions
        self._seen = Seen(params, versions, (yield travelling) if travelling else None)

    def _pull(self) -> Way[Tensors]:
        return self._joined(self.session.pull(), 0)

    def _push_pull(self, gradients: Tensors, loss: float, versions: tuple[int, ...]) -> Way[Tensors]:
        """NonFiniteError at once, not on the way."""
        whole = {name: native(g) for name, g in gradients.items()}
        check_finite(whole, "The gradient of")
        session, self._sent = self.session, self.env.event()
        return self._joined(session.push(whole, float(loss), versions, pulls=True), session.clock)

    def _joined(self, call: Session[list[Message]], step: int) -> Way[Tensors]:
        return self.session.join((yield from self.carry_out(call, step)))

    def send(self, message: Send, step: int) -> Way[None]:
        yield from self.spend(("transfer",), message.values, step)
        self._trips[message.to].append(self.process(self._trip(self._servers[message.to], message.parcel, step)))
        if message.to == len(self._servers) - 1 and not self._sent.triggered:
            self._sent.succeed()

    def receive(self, wanted: Receive, step: int) -> Way[Frames]:
        return cast(Frames, (yield self._trips[wanted.source].popleft()))

    def _trip(self, server: SimServer, frames: Frames, step: int) -> Way[Frames]:
        """The way of one message to a server, and of its answer back."""
        cluster, least_s = self.cluster, self._idle.at(server.session.values)
        began = self.env.now
        self.bytes_sent += size(frames)
        yield from cluster.travel(self, server, size(frames), least_s)
        cluster.record("transfer", self.who, began, step)
        answer = yield from server.carry_out(server.session.request(frames), step)
        began = self.env.now
        yield from cluster.travel(server, self, size(answer), least_s)
        cluster.record("transfer", self.who, began, step)
        self.bytes_received += size(answer)
        return answer
