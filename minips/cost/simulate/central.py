"""Workers that push to servers and pull from them, in virtual time.

`Central` does what `minips.runtime.server.Server` does around its shard and its codec, `Pusher` what
`minips.runtime.client.Client` and `minips.runtime.worker.work` do: the same messages with the same seeds, so that
parameters are those of a real run to the bit, and bytes to the byte.
"""

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, cast

import simpy

from minips import seeds
from minips.cost.fit import Line
from minips.cost.simulate.cluster import UNTIMED, Cluster, Node, Rows, Trainer, size
from minips.cost.simulate.flows import Way
from minips.cost.walk import update_lines
from minips.problems import Problem
from minips.runtime.codec import Decoder, Encoder, envelope, unpack
from minips.runtime.engines import Outcome
from minips.runtime.message import Header, Message, NonFiniteError, check_finite
from minips.runtime.partition import cut, join, native, partition
from minips.runtime.shard import Shard
from minips.runtime.trace import DECODE, ENCODE, UPDATE
from minips.runtime.worker import at_step
from minips.stage import Frames, Tensors
from minips.stages.aggregators import Contribution
from minips.stages.serializers import Packet

Trip = Generator[simpy.Event, Any, Tensors]


def run(cluster: Cluster, problem: Problem, params: Tensors) -> Outcome:
    """Train with parameter servers."""
    config = cluster.config
    whole = {name: native(x) for name, x in params.items()}
    servers: list[Central] = []
    workers = [Pusher(cluster, rank, problem.shard(rank, config.workers), servers) for rank in range(config.workers)]
    servers += [Central(cluster, index, whole, workers, servers) for index in range(config.servers)]
    for worker in workers:
        worker.chat("hello", [server.welcome(worker.rank) for server in servers])
    cluster.run([worker.start() for worker in workers], cluster.halt)
    for worker in workers:
        worker.chat("bye", [server.reply(worker.rank) for server in servers])
    shard, losses = servers[0].shard, servers[0].losses
    cluster.tell(shard.applied, losses, last=True)
    return Outcome(
        params=join([dict(server.shard.params) for server in servers], [server.layout for server in servers]),
        seconds=max(server.changed_at for server in servers),
        losses=losses,
        applied=shard.applied,
        late=shard.late,
        stopped=not all(server.shard.done for server in servers),
        diverged=next((server.shard.diverged for server in servers if server.shard.diverged), None),
        bytes_sent=sum(worker.bytes_sent for worker in workers),
        bytes_received=sum(worker.bytes_received for worker in workers),
        staleness=shard.staleness,
        grants=shard.grants,
        trace=cluster.trace,
    )


class Central(Node):
    """A server: a shard, and the links to all the workers."""

    def __init__(
        self, cluster: Cluster, index: int, params: Tensors, workers: "list[Pusher]", servers: "list[Central]"
    ) -> None:
        calibration, config = cluster.engine.calibration, cluster.config
        times = {**calibration.server, **update_lines(calibration, config)} if calibration else {}
        if calibration:
            times["transfer"] = calibration.server_rest.times(1 / 2)
        super().__init__(cluster, f"server {index}", times)
        self.index, self.layout, self._workers = index, partition(params, config.servers)[index], workers
        self.shard = Shard(
            cut(params, self.layout),
            workers=config.workers,
            aggregator=config.aggregator,
            consistency=config.consistency,
            optimizer=config.optimizer,
            updates=config.workers * config.steps,
        )
        self.values = sum(part.stop - part.start for part in self.layout.values())
        self.losses: Rows = []
        self.changed_at = 0.0
        self._servers = servers
        self._versions = deque([(0, self.shard.params)], cluster.engine.delay_versions + 1)
        self._decoders = [Decoder(UNTIMED) for _ in range(config.workers)]
        self._encoder = Encoder(config.pull, seeds.shared_pull(config.seed, index), UNTIMED)
        self._encoders = [
            Encoder(config.pull, seeds.pull(config.seed, index, worker), UNTIMED) for worker in range(config.workers)
        ]
        self._encoded: tuple[int, Frames] = -1, []
        self._timed = -1
        """The version whose encoding has taken its time: that is done once for all who ask for it."""
        self._waiting: list[tuple[Callable[[], bool], simpy.Event]] = []
        self._state: tuple[int, bool] = (0, False)

    def answer(self, frames: Frames, step: int) -> Generator[simpy.Event, Any, Frames]:
        """What the server says to a pull, or to a push and pull, once it may."""
        packet, _ = unpack(frames, self.config.push, UNTIMED)
        worker, outcome = packet.header["worker"], None
        pushes = packet.header["kind"] == "push_pull"
        yield from self.work(("transfer", *DECODE) if pushes else ("transfer",), self.values, step)
        if pushes:
            clock = packet.header["clock"]
            yield from self._wait(lambda: self.shard.may_push(clock), worker, step)
            outcome = yield from self._push(packet, step)
        yield from self._wait(lambda: self.shard.may_pull(worker), worker, step)
        first = self._versions[0][0] != self._timed or not self.config.pull.memory.stateless
        self._timed = self._versions[0][0]
        yield from self.work((*ENCODE, "transfer") if first else ("transfer",), self.values, step)
        self.shard.pull(worker)
        version, params = self._versions[0]
        return self.reply(worker, outcome, {"version": version}, params)

    def welcome(self, worker: int) -> Frames:
        """The answer to a hello."""
        layout = {name: list(part) for name, part in self.layout.items()}
        return self.reply(
            worker, None, {"layout": layout, "index": self.index, "servers": self.config.servers, "silence_s": 30.0}
        )

    def reply(
        self, worker: int, outcome: str | None = None, says: Header | None = None, params: Tensors | None = None
    ) -> Frames:
        """An answer: an envelope for this worker, and what is the same for all that ask for one version."""
        header = {"kind": "reply", "version": self.shard.version, **(says or {})}
        if not params or not self.config.pull.memory.stateless:
            frames = self._encoders[worker].encode(Message(header, params or {}))[1:]
        else:
            if self._encoded[0] != header["version"]:
                self._encoded = header["version"], self._encoder.encode(Message(header, params))[1:]
            frames = self._encoded[1]
        stamp = {"clock": self.shard.clocks[worker], "done": self.shard.done, "outcome": outcome}
        return [envelope(self.config.pull, {**stamp, "busy": 0.0, "waited": 0.0}), *frames]

    def _push(self, packet: Packet, step: int) -> Generator[simpy.Event, Any, str]:
        header, shard, before = packet.header, self.shard, self.shard.version
        gradients = self._decoders[header["worker"]].decode(packet).tensors
        outcome = shard.push(
            Contribution(header["worker"], header["clock"], header["version"], gradients, header["loss"])
        )
        if shard.version > before:
            made = shard.version, shard.params
            yield from self.work(UPDATE, self.values, step)
            self._versions.append(made)
            self.changed_at = self.env.now
            self.losses += [(self.env.now, step, loss) for step, loss in shard.losses[len(self.losses) :]]
            self._leave_behind()
            if self.index == 0:
                self.cluster.tell(shard.applied, self.losses)
        if shard.diverged:
            self.diverge(shard.diverged)
        self._look()
        return outcome

    def diverge(self, reason: str) -> None:
        """The run ends at every server."""
        for server in self._servers:
            server.shard.diverge(reason)
            server._look()

    def _leave_behind(self) -> None:
        """Stragglers give up, where they are to."""
        if self.cluster.engine.abandon and self.shard.quorum is not None and self.shard.quorum < self.shard.workers:
            for worker in self._workers:
                worker.left_behind()

    def _wait(self, ready: Callable[[], bool], worker: int, step: int) -> Way:
        if not ready():
            began, event = self.env.now, self.env.event()
            self._waiting.append((ready, event))
            yield event
            self.cluster.record("wait", f"worker {worker}", began, step)

    def _look(self) -> None:
        """Whoever waits and need not any more goes on. Nobody need look as long as the slowest clock is the same."""
        state = self.shard.slowest(), self.shard.done
        if state != self._state:
            self._state, waiting, self._waiting = state, self._waiting, []
            for ready, event in waiting:
                if ready():
                    event.succeed()
                else:
                    self._waiting.append((ready, event))


class Pusher(Trainer):
    """A worker and its client."""

    def __init__(self, cluster: Cluster, rank: int, problem: Problem, servers: list[Central]) -> None:
        calibration, config = cluster.engine.calibration, cluster.config
        rest = {"transfer": calibration.worker_rest.times(1 / 2)} if calibration else {}
        super().__init__(cluster, rank, problem, {**calibration.worker, **rest} if calibration else {})
        self._idle = calibration.idle.times(1 / 2) if calibration else Line()
        self._servers, each = servers, range(config.servers)
        self._encoders = [Encoder(config.push, seeds.push(config.seed, rank, index), UNTIMED) for index in each]
        self._decoders = [Decoder(UNTIMED) for _ in each]
        self._clocks, self._versions, self._done = [0 for _ in each], [0 for _ in each], [False for _ in each]

    def chat(self, kind: str, answers: list[Frames]) -> None:
        """Say something that takes no time: hello before the clock starts, bye after it has stopped."""
        for encoder, answer in zip(self._encoders, answers, strict=True):
            self.bytes_sent += size(encoder.encode(Message({"kind": kind, "worker": self.rank})))
            self.bytes_received += size(answer)

    def left_behind(self) -> None:
        """Give up a gradient whose round is over at every server."""
        if all(server.shard.rounds > clock for server, clock in zip(self._servers, self._clocks, strict=True)):
            self.give_up()

    def train(self) -> Way:
        try:
            yield from self._train()
        except NonFiniteError as error:
            if not any(self._versions):
                raise
            self._servers[0].diverge(at_step(max(self._clocks), self.rank, error))

    def _train(self) -> Way:
        params = yield from self._pull()
        travelling: simpy.Process | None = None
        while not all(self._done):
            read, clock = list(self._versions), max(self._clocks)
            finished = yield from self.think(clock)
            if all(server.shard.done for server in self._servers):
                break
            if finished:
                loss, gradients = self.gradient(params, clock)
            if travelling:
                params = yield travelling
                travelling = None
                if all(self._done):
                    return
            if not finished:
                for server in self._servers:
                    server.shard.skip(self.rank)
                params = yield from self._pull()
            elif self.config.overlap:
                travelling = self.process(self._push_pull(gradients, loss, read))
            else:
                params = yield from self._push_pull(gradients, loss, read)
        if travelling:
            yield travelling

    def _pull(self) -> Trip:
        message = Message({"kind": "pull", "worker": self.rank})
        return self._call([message for _ in self._servers], 0)

    def _push_pull(self, gradients: Tensors, loss: float, versions: list[int]) -> Trip:
        whole = {name: native(g) for name, g in gradients.items()}
        check_finite(whole, "The gradient of")
        header = {"kind": "push_pull", "worker": self.rank, "loss": float(loss)}
        messages = [
            Message({**header, "clock": clock, "version": version}, cut(whole, server.layout))
            for server, clock, version in zip(self._servers, self._clocks, versions, strict=True)
        ]
        step, self._clocks = max(self._clocks), [clock + 1 for clock in self._clocks]
        return self._call(messages, step)

    def _call(self, messages: list[Message], step: int) -> Trip:
        """One message to each server; the parameters of all their answers."""
        frames = [encoder.encode(message) for encoder, message in zip(self._encoders, messages, strict=True)]
        trips: list[Trip] = []
        for server, message, each in zip(self._servers, messages, frames, strict=True):
            yield from self.work((*ENCODE, "transfer") if message.tensors else ("transfer",), server.values, step)
            trips.append(self._trip(server, each, step))
        if len(trips) == 1:
            pieces = [(yield from trips[0])]
        else:
            processes = [self.process(trip) for trip in trips]
            yield self.env.all_of(processes)
            pieces = [cast(Tensors, process.value) for process in processes]
        return join(pieces, [server.layout for server in self._servers])

    def _trip(self, server: Central, frames: Frames, step: int) -> Trip:
        """The way of one message to a server, and of its answer back."""
        index, cluster, least_s = server.index, self.cluster, self._idle.at(server.values)
        began = self.env.now
        self.bytes_sent += size(frames)
        yield from cluster.travel(self, server, size(frames), least_s)
        cluster.record("transfer", self.who, began, step)
        answer = yield from server.answer(frames, step)
        began = self.env.now
        yield from cluster.travel(server, self, size(answer), least_s)
        cluster.record("transfer", self.who, began, step)
        self.bytes_received += size(answer)
        packet, stamp = unpack(answer, self.config.pull, UNTIMED)
        yield from self.work(("transfer", *DECODE), server.values, step)
        message = self._decoders[index].decode(packet)
        self._clocks[index] = max(self._clocks[index], stamp["clock"])
        self._versions[index], self._done[index] = message.header["version"], stamp["done"]
        return message.tensors
