"""Model a run's time without its arithmetic: every worker's cycle, step by step, in virtual time.

A cycle is compute, encode, the link, the server or the next worker, the link again, decode. The calibration gives its
seconds. A real run's `Shard`, or its schedule, decides which party waits for which. A process does one thing at a time,
but computes while messages travel. Processes share the cores, and messages queue on the nodes' links in the order in
which they are sent.
"""

from abc import abstractmethod
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import count, groupby, takewhile
from math import isclose
from typing import Any, cast

from minips import seeds
from minips.core.codec import Decoder
from minips.core.config import Config
from minips.core.exchange import Hop
from minips.core.limits import Expected
from minips.core.loop import Compute, train_served, train_together
from minips.core.membership import ClientConnection
from minips.core.message import Header, Message
from minips.core.protocol import PUSHES, ServerProtocol, ServerRecord, WorkerProtocol
from minips.core.reduction import all_reduce
from minips.core.sessions import Receive, Send, Session, Until
from minips.core.shard import Shard
from minips.cost.microbenchmarks import CROWD
from minips.cost.packets import Queues
from minips.drivers.events import Cores, EventLoop, Processor, Signal, Task, Work, seldom_collected, unrecorded
from minips.drivers.virtual import Node, ServedNode, TrainingNode
from minips.machines.calibration import Calibration, inner_s, rank_lines, update_lines
from minips.machines.fit import Line
from minips.machines.topology import Machines
from minips.results.trace import UNTIMED
from minips.stage import Buffer, Tensors
from minips.stages.aggregators import Mean
from minips.stages.consistency import ASP, BSP, SSP
from minips.stages.optimizers import SGD
from minips.stages.transports import Link

_MEAN, _SGD = Mean(), SGD()
MAX_STEPS, EVEN_STEPS = 200, 24
"""The most simulated steps, and the most if all are alike; further steps take the pace of the second half."""
LONGEST, ALIKE, KEPT = 24, 4, 2
"""The longest period of repeating steps; how many successive states must repeat; how many last steps always run."""


@dataclass(frozen=True)
class Declared:
    """A rank's part of an all-reduce in sizes only: the bytes sent at each hop, and each piece's number of values."""

    hops: Sequence[Hop]
    nbytes: Sequence[float]
    sizes: Sequence[float]
    direct: bool = False

    def outgoing(self, number: int) -> float:
        """Return the bytes sent at hop ``number``."""
        return self.nbytes[number]

    def incoming(self, number: int, nbytes: float) -> None:
        """Accept a message, which has no content."""

    def mean(self) -> None:
        """Compute nothing."""


@dataclass(frozen=True)
class Workload:
    """The work of a step: the number of values in the model and of rows in a batch; the bytes of a push to each server
    and of a pull from it, or each worker's part of the all-reduce.
    """

    values: float
    rows: float
    pushed: float = 0.0
    pulled: float = 0.0
    parts: tuple[Declared, ...] = ()


class Sized:
    """A message reduced to its header and size, without frames."""

    __slots__ = ("header", "nbytes", "stamp")

    def __init__(self, header: Header, nbytes: float, stamp: Header | None = None) -> None:
        self.header, self.nbytes, self.stamp = header, nbytes, stamp or {}

    def __iter__(self) -> Iterator[Buffer]:
        return iter(())


class Port:
    """A machine's end of its link, which its processes share: first come, first served. It records when the link is
    free again in each direction.

    The link delays messages as `minips.stages.transports.link` does, and by another ``late`` seconds if a message had
    to wait. Messages between processes on the same port do not use the link.
    """

    def __init__(
        self, events: EventLoop, link: Link | None, late: float = 0, queues: Any = None, who: str = ""
    ) -> None:
        self._events, self._link, self._late, self._queues, self._who = events, link, late, queues, who
        self._outgoing = self._incoming = 0.0

    def cross(self, nbytes: float, to: "Port", flight_s: float) -> Task[Any]:
        """Move a message to another port; ``flight_s`` is the time it takes without any link's delay."""
        if self._queues:
            return (yield from self._queues.travel(self._who, to._who, nbytes, flight_s))
        start = self.depart(nbytes, to)
        yield flight_s
        yield start - self._events.now
        yield to.arrive(start, nbytes, self)

    def left(self) -> list[float]:
        """Seconds until the link is free each way."""
        now = self._events.now
        return [max(0.0, self._outgoing - now), max(0.0, self._incoming - now)]

    def depart(self, nbytes: float, to: "Port") -> float:
        """Return the time at which the first byte of a message that is sent now leaves."""
        if not self._link or to is self:
            return self._events.now
        start = self._events.later(self._outgoing, self._events.now)
        if nbytes:
            self._outgoing = start + nbytes * 8 / self._link.bandwidth_bps
        return start

    def arrive(self, start: float, nbytes: float, source: "Port") -> float:
        """Return the seconds until a message's last byte arrives, if its first byte left at ``start``."""
        if not self._link or source is self:
            return 0.0
        end = self._events.later(self._incoming, start) + nbytes * 8 / self._link.bandwidth_bps
        if nbytes:
            self._incoming = end
        left = end + self._link.latency_s - self._events.now
        return left + self._late if left > 0 else 0.0


def _period(states: list[list[float]]) -> int:
    """Return the number of steps after which the last ``ALIKE`` states repeated; 0 if they did not."""
    near = partial(isclose, rel_tol=1e-9, abs_tol=1e-15)
    for period in range(1, min(len(states) - ALIKE, LONGEST + 1)):
        pairs = [(states[-back], states[-back - period]) for back in range(1, ALIKE + 1)]
        if all(len(state) == len(before) and all(map(near, state, before)) for state, before in pairs):
            return period
    return 0


class PerformanceModel:
    """A modelled run: its ``seconds``, and its ``pace``, which is the seconds of a step in the second half. Without a
    ``cluster``, all processes are on the calibrated machine: each behind the config's link or, on hosts, in ``net``.
    """

    @seldom_collected()
    def __init__(
        self, config: Config, calibration: Calibration, load: Workload, cluster: Machines | None = None, net: Any = None
    ) -> None:
        self.config, self.calibration, self.load = config, calibration, load
        even = config.delays is None and config.consistency.quorum(config.workers) == config.workers
        self.steps = min(config.clocks, EVEN_STEPS if even else MAX_STEPS)
        self.last = self.steps
        """The clock at which the workers stop."""
        self.share = load.values / config.servers
        """The values on each server."""
        self.totals: dict[str, float] = defaultdict(float)
        self.events = EventLoop(at_once=True, remembered=True)
        self.queues = None if net is None else Queues(self.events, net, ahead=2 if load.parts else 1)
        servers = 0 if load.parts else config.servers
        self._places = cluster.places(config.workers, servers) if cluster else {}
        self._machines: list[tuple[Cores, Port]] = []
        if cluster:
            machines = range(cluster.machines)
            self._machines = [(Cores(self.events, cluster.cores), self._port(cluster.link)) for _ in machines]
        self.cores = Cores(self.events, calibration.cores, calibration.others)
        """The cores of the calibrated machine, which all processes share without a cluster."""
        self.servers = [_Server(self, index) for index in range(servers)]
        kind: type[_Rank | _Worker] = _Rank if load.parts else _Worker
        self.workers = [kind(self, worker) for worker in range(config.workers)]
        self._progress = [0] * len(self.servers or self.workers)
        self._applied = 0
        for worker in self.workers:
            self.events.start(worker.train())
        ends, self._spent = self._ends()
        half = self.steps // 2
        clock_s = (ends[self.steps] - ends[half]) / (self.steps - half)
        self.pace = clock_s / config.local_steps
        """Seconds of a gradient step, after the first ones."""
        self.seconds = ends[self.steps] + clock_s * (config.clocks - self.steps)

    @cached_property
    def spans(self) -> dict[str, float]:
        """Seconds by span name for one gradient step of all workers and servers. As in a run's trace, they include the
        first pulls, and the last answers, which arrive after the run's end.
        """
        self.events.run(lambda: False)
        half = self.steps // 2
        before, then = self._spent[half], self._spent[self.steps]
        more = (self.config.clocks - self.steps) / (self.steps - half)
        updates = self.config.workers * self.config.steps
        return {
            name: (seconds + more * (then.get(name, 0.0) - before.get(name, 0.0))) / updates
            for name, seconds in self.totals.items()
        }

    @property
    def seconds_per_step(self) -> float:
        """Wall seconds for one gradient step of all workers."""
        return self.seconds / self.config.steps

    def machine(self, who: str) -> tuple[Cores, Port]:
        """Return the cores and the port of a worker or a server."""
        return self._machines[self._places[who]] if self._places else (self.cores, self._port(self.config.link, who))

    def _port(self, link: Link | None, who: str = "") -> Port:
        return Port(self.events, link, self.calibration.late_s, self.queues, who)

    def contention(self, factor: float, worker: str = "") -> float:
        """Return the crowd's factor for all workers, or for those on one ``worker``'s machine."""
        crowd = self.config.workers
        if worker and self._places:
            crowd = sum(
                place == self._places[worker] for who, place in self._places.items() if who.startswith("worker")
            )
        return 1 + (factor - 1) * min(1.0, (crowd - 1) / (CROWD - 1))

    def record_progress(self, which: int, step: int) -> None:
        """Record the steps that the parameters of a server, or of a rank, include."""
        before, self._progress[which] = self._progress[which], step
        if before == self._applied < step:
            self._applied = min(self._progress)

    def _ends(self) -> tuple[list[float], list[dict[str, float]]]:
        """Return the end of each step, and the totals by then. Once steps repeat, all but the last ones are skipped."""
        ends, skipped, skipped_s = [0.0], 0, 0.0
        delays, kind = self.config.delays, type(self.config.consistency)
        # If nothing depends on the clock, steps that have repeated will always repeat.
        regular = not (delays and delays.exponential) and kind in (BSP, SSP, ASP) and not self.queues
        states: list[list[float]] = [[]]
        totals: list[dict[str, float]] = [{}]
        while len(ends) <= self.steps:
            step = len(ends) - skipped
            self.events.run(lambda: self._applied >= step)  # noqa: B023 - it is called immediately
            if self._applied < step:
                raise RuntimeError("The predicted nodes wait for each other, and no event is left.")
            ends.append(self.events.now + skipped_s)
            totals.append(dict(self.totals))
            if skipped or not regular:
                continue
            spent = [seconds - totals[-2].get(name, 0.0) for name, seconds in self.totals.items()]
            states.append([*spent, *self.events.left(), *self.cores.left()])
            for cores, _ in self._machines:
                states[-1] += cores.left()
            for process in (*self.servers, *self.workers):
                states[-1] += [process.queue, *process.port.left(), *process.ahead(step)]
            if period := _period(states):
                cycles = max(0, self.last - step - KEPT) // period
                skipped, cycle_s = cycles * period, ends[-1] - ends[-1 - period]
                skipped_s, self.last = cycles * cycle_s, self.last - skipped
                cycle = {name: seconds - totals[-1 - period].get(name, 0.0) for name, seconds in totals[-1].items()}
                for _ in range(skipped):
                    ends.append(ends[-period] + cycle_s)
                    totals.append({name: totals[-period].get(name, 0.0) + more for name, more in cycle.items()})
                for name, more in cycle.items():
                    self.totals[name] += cycles * more
                for server in self.servers:
                    server.shard.updates = self.config.workers * self.last
        return ends, totals


class _SizedNode(Processor, Node):
    """A worker or a server. ``lines`` are the times of its spans, by values; ``transfer_s`` is a message's processor
    time at this end, recorded with the span of its trip.
    """

    def __init__(
        self, model: PerformanceModel, who: str, number: int, lines: Mapping[str, Line], transfer_s: float = 0.0
    ) -> None:
        cores, self.port = model.machine(who)
        super().__init__(model.events, cores)
        self.model, self.number, self.totals = model, number, model.totals
        self._lines, self._transfer_s = lines, transfer_s
        self._works: dict[tuple[tuple[str, ...], float], list[Work]] = {}

    def spend(self, spans: tuple[str, ...], values: float, times: "_SessionTimes") -> Iterable[Signal]:
        works = self._works.get((spans, values))
        if works is None:
            works = self._works[spans, values] = list(self._split(spans, values))
        if len(works) != 1:
            return self._one_by_one(works, times)
        times.ready = self.events.now
        return (self.work(works[0]),)

    def _one_by_one(self, works: list[Work], times: "_SessionTimes") -> Iterator[Signal]:
        for work in works:
            times.ready = self.events.now
            yield self.work(work)

    def _split(self, spans: tuple[str, ...], values: float) -> Iterator[Work]:
        """Yield the spans' work for this many values: ``transfer`` separately, the other spans together."""
        for transfer, names in groupby(spans, lambda name: name == "transfer"):
            times = {} if transfer else {name: self._lines[name].at(values) for name in names if name in self._lines}
            seconds = self._transfer_s if transfer else sum(times.values())
            if seconds or transfer:
                yield seconds, partial(self._record, times, seconds)

    def _record(self, times: Mapping[str, float], seconds: float, wall: float) -> None:
        """Divide the wall seconds of a piece of work among its spans."""
        for name, part in times.items():
            self.totals[name] += wall * part / seconds

    @abstractmethod
    def ahead(self, step: int) -> Iterator[int]:
        """Yield the lead of each of this party's counters over a step."""


@dataclass(slots=True)
class _SessionTimes:
    """The times of a session: its step, the seconds it has waited, and when its last work began."""

    step: int
    waited: float = 0.0
    ready: float = 0.0


class _Trainer(_SizedNode, TrainingNode):
    """A training worker."""

    @property
    @abstractmethod
    def clock(self) -> int | None:
        """The steps that this worker has made; None once it has made them all."""

    def ahead(self, step: int) -> Iterator[int]:
        if (clock := self.clock) is not None:
            yield clock - step

    def compute(self, need: Compute) -> Task[tuple[float, Tensors]]:
        model, events = self.model, self.events
        config, calibration, load = model.config, model.calibration, model.load
        began, inner = events.now, inner_s(calibration, config, load.values)
        for step in range(need.clock * config.local_steps, (need.clock + 1) * config.local_steps):
            start, gradient = events.now, calibration.gradient_of(step, config)
            if seconds := inner + (gradient.at(load.rows) * config.accumulate if gradient else 0.0):
                yield self.beside(seconds)
            if config.delays:
                yield start + config.delays.of(self.number, step, config.seed) - events.now
        self.totals["compute"] += events.now - began
        return 0.0, {}

    def step(self) -> _SessionTimes:
        return _SessionTimes(self.clock or 0)

    def start(self, steps: Task[Any]) -> Signal:
        return self.events.start(steps)


class _Worker(ServedNode, _Trainer):
    """A worker that pushes to servers and pulls from them."""

    def __init__(self, model: PerformanceModel, number: int) -> None:
        config, calibration = model.config, model.calibration
        who = f"worker {number}"
        rest_s = calibration.worker_rest.at(model.share) / 2 * model.contention(calibration.worker_crowd, who)
        super().__init__(model, who, number, calibration.worker, rest_s)
        self._flight_s, self._connection = calibration.idle.at(model.share) / 2, ClientConnection()
        self._trips: list[deque[Signal]] = [deque() for _ in model.servers]
        self._protocol = WorkerProtocol(
            number, [_DeclaredRecord(model, number, index) for index in range(config.servers)]
        )
        for server in model.servers:
            server.protocol.membership.admit(self._connection, {"worker": number})

    @property
    def clock(self) -> int | None:
        return None if all(server.shard.done for server in self.model.servers) else self._protocol.clock

    def train(self) -> Task[Any]:
        return self.carry_out_loop(train_served(self._protocol, self.model.config.overlap))

    def trip(self, server: int, parcel: Sized, step: _SessionTimes) -> Task[Any]:
        events, target, message, times = self.events, self.model.servers[server], parcel, _SessionTimes(0)
        began = events.now
        yield from self.port.cross(message.nbytes, target.port, self._flight_s)
        arrival = events.now
        answer = yield from target.carry_out(target.protocol.answer(message, self._connection, arrival), times)
        yield from target.port.cross(answer.nbytes, self.port, self._flight_s)
        self.totals["transfer"] += events.now - began - (times.ready - arrival)
        self.totals["wait"] += times.waited
        return cast(Sized, answer)


class _Server(_SizedNode):
    """A server: a shard and the sessions of its requests."""

    def __init__(self, model: PerformanceModel, number: int) -> None:
        config, calibration = model.config, model.calibration
        rest_s = calibration.server_rest.at(model.share) / 2 * model.contention(calibration.server_crowd)
        lines = {**calibration.server, **update_lines(calibration, config)}
        super().__init__(model, f"server {number}", number, lines, rest_s)
        updates, now = config.workers * model.steps, lambda: self.events.now
        self.shard = Shard.of(config, {}, aggregator=_MEAN, optimizer=_SGD, updates=updates, now=now)
        self.protocol = _DeclaredProtocol(self)
        self._changed, self._order = Signal(), seeds.wake(config.seed, number)

    def wait(self, wanted: Until, times: _SessionTimes) -> Iterator[Signal]:
        began = self.events.now
        while not wanted.ready():
            yield self._changed
        times.waited += self.events.now - began

    def ahead(self, step: int) -> Iterator[int]:
        yield self.shard.made - step * self.shard.workers
        yield from (clock - step for clock in self.shard.clocks)

    def changed(self) -> None:
        """Record that the shard has changed and its update has ended."""
        self.model.record_progress(self.number, self.shard.made // self.shard.workers)
        changed, self._changed = self._changed, Signal()
        if self.model.queues:  # the threads of servers on hosts wake in any order
            self._order.shuffle(changed.waiting)
        changed.succeed()


class _Rank(_Trainer):
    """A worker of an all-reduce."""

    clock: int | None = 0

    def __init__(self, model: PerformanceModel, number: int) -> None:
        super().__init__(model, f"worker {number}", number, rank_lines(model.calibration, model.config))
        self._part = model.load.parts[number]
        self._boxes: dict[tuple[int, int], Signal] = defaultdict(Signal)

    def train(self) -> Task[Any]:
        clocks = takewhile(lambda clock: clock < self.model.last, count())
        return self.carry_out_loop(train_together(lambda: None, self._exchange, clocks, self.model.config.overlap))

    def _exchange(self, clock: int, computed: Any) -> Session[bool]:
        yield from all_reduce(self._part)
        self.clock = clock + 1 if clock + 1 < self.model.last else None
        self.model.record_progress(self.number, clock + 1)
        return self.clock is None

    def send(self, message: Send, times: _SessionTimes) -> Task[None]:
        rest_s = self.model.calibration.hop_rest.at(message.values) / 2
        yield self.work((rest_s, partial(self._record, {"transfer": 1.0}, 1.0)))
        peer = self.model.workers[message.to]
        assert isinstance(peer, _Rank)
        self.events.start(self._deliver(message, peer, peer._boxes[message.number, times.step], rest_s))

    def _deliver(self, message: Send, peer: "_Rank", box: Signal, rest_s: float) -> Task[None]:
        sent = self.events.now
        yield from self.port.cross(message.parcel, peer.port, self.model.calibration.hop_idle.at(message.values))
        yield peer.work((rest_s, unrecorded))
        box.succeed(sent)

    def receive(self, wanted: Receive, times: _SessionTimes) -> Task[None]:
        """Wait for a message. The time until it is sent counts as ``wait``, and the rest as ``transfer``."""
        began, key = self.events.now, (wanted.number, times.step)
        sent = max(began, (yield self._boxes[key]))
        del self._boxes[key]
        self.totals["wait"] += sent - began
        self.totals["transfer"] += self.events.now - sent


class _DeclaredRecord(ServerRecord):
    """A worker's link that carries sizes."""

    def __init__(self, model: PerformanceModel, worker: int, index: int) -> None:
        super().__init__(model.config, worker, index, UNTIMED)
        self.values, pushed = model.share, model.load.pushed
        self.encode = lambda message: Sized(message.header, pushed if message.kind in PUSHES else 0.0)

    def decode(self, sized: Sized, expected: Expected | None = None) -> tuple[Message, Header]:
        return Message(sized.header), sized.stamp


class _DeclaredProtocol(ServerProtocol):
    """A server's sessions, with sizes in place of arrays."""

    def __init__(self, server: _Server) -> None:
        model = server.model
        super().__init__(server.shard, model.config, server.number, {}, UNTIMED, server.changed)
        self.values, pulled = model.share, model.load.pulled
        self.unpack = lambda sized: (sized, {})
        self.encode = lambda encoder, message: Sized(message.header, pulled)
        self.wrap = lambda stamp, answer: Sized(answer.header, answer.nbytes, stamp)

    def decode(self, sized: Sized, decoder: Decoder) -> Tensors:
        return {}
