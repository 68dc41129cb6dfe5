"""A run's time without its arithmetic: every worker's cycle, step by step, in virtual time.

Compute, encode, the link, the server or the next worker, the link again, decode: the seconds are the calibration's, who
waits for whom is decided by the same `Shard`, or the same schedule, as in a run. A process does one thing at a time,
processes share the cores, and messages wait for each other on the nodes' links, in the order in which they are sent.
"""

from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isclose
from typing import Any, NamedTuple

from minips.core.allreduce_session import all_reduce, script
from minips.core.calibration import Calibration, rank_lines, update_lines
from minips.core.codec import Decoder, Encoder
from minips.core.collectives import Hop
from minips.core.config import Config
from minips.core.fit import Line
from minips.core.message import Header, Message
from minips.core.protocol import PUSHES, ServerLink, ServerSession, WorkerSession
from minips.core.sessions import Do, Receive, Send, Session, Until, nothing
from minips.core.shard import Shard
from minips.core.trace import Trace
from minips.cost.clockwork import Clockwork, Cores, Host, Signal, Task
from minips.cost.meters import CROWD
from minips.stage import Tensors
from minips.stages.aggregators import Mean
from minips.stages.optimizers import SGD

_NO_TRACE = Trace(limit=0)
MAX_STEPS, EVEN_STEPS, ALIKE = 200, 24, 4
"""The walk stops after so many steps, and goes on as in its second half: fewer where all steps are alike."""


_alike = partial(isclose, rel_tol=1e-9, abs_tol=1e-15)


@dataclass(frozen=True)
class Declared:
    """A rank's part of an all-reduce in sizes alone: the bytes that it sends at each hop, the values of each piece."""

    hops: Sequence[Hop]
    nbytes: Sequence[float]
    sizes: Sequence[float]

    def outgoing(self, number: int) -> float:
        """Bytes of what is sent at hop ``number``."""
        return self.nbytes[number]

    def incoming(self, number: int, nbytes: float) -> None:
        """Nothing becomes of it."""

    def mean(self) -> None:
        """There is none."""


@dataclass(frozen=True)
class Workload:
    """The work of a step: values of the whole model, rows of a batch; bytes of a push to and of a pull from
    each server, or each worker's part of the exchange.
    """

    values: float
    rows: float
    pushed: float = 0.0
    pulled: float = 0.0
    parts: tuple[Declared, ...] = ()


def walk(config: Config, calibration: Calibration, load: Workload) -> "Walk":
    """The walk of the config's exchange, at its end."""
    kind = AllReduceTimeline if load.parts else PSTimeline
    return kind(config, calibration, load)


class Walk(ABC):
    """``seconds`` of the run, and ``spans``: seconds by name, of all the workers and servers, for one update."""

    def __init__(self, config: Config, calibration: Calibration, load: Workload) -> None:
        self.config, self.calibration, self.load = config, calibration, load
        even = config.delays is None and config.consistency.quorum(config.workers) == config.workers
        self.steps = min(config.steps, EVEN_STEPS if even else MAX_STEPS)
        gradient = calibration.gradient
        self._gradient_s = gradient.at(load.rows) * config.accumulate if gradient else 0.0
        self._totals: dict[str, float] = defaultdict(float)
        self._tasks: dict[tuple[int, tuple[str, ...], float], tuple[float, list[tuple[str, float]]]] = {}
        self.clockwork = Clockwork()
        self._cores = Cores(self.clockwork, calibration.cores, calibration.others)
        self.nodes = [self.node() for _ in range(config.workers)]
        self.begin()
        for worker in range(config.workers):
            self.clockwork.start(self._train(worker))
        ends = self._walk(repeats=even and not load.parts)
        half = self.steps // 2
        pace = (ends[self.steps] - ends[half]) / (self.steps - half)
        self.seconds = ends[self.steps] + pace * (config.steps - self.steps)
        updates = config.workers * self.steps
        self.spans = {name: seconds / updates for name, seconds in self._totals.items()}

    def _walk(self, repeats: bool) -> list[float]:
        """When each step ended, from the beginning on. Where steps may be expected to repeat themselves, and ``ALIKE``
        of them have taken the same time by every span and ended with the same left to do, those that follow do too.
        """
        ends, totals, spent, left, alike = [0.0], dict[str, float](), dict[str, float](), list[float](), 0
        while len(ends) <= self.steps:
            step = len(ends)
            self.clockwork.run(lambda: self.applied() >= step)  # noqa: B023 - it is called at once
            last, spent = spent, {name: seconds - totals.get(name, 0.0) for name, seconds in self._totals.items()}
            ends.append(self.clockwork.now)
            before, left = left, [*self.clockwork.left(), *self._cores.left()] if repeats else []
            same = len(before) == len(left) and all(map(_alike, before, left)) and last.keys() == spent.keys()
            alike = alike + 1 if left and same and all(_alike(last[name], spent[name]) for name in spent) else 0
            if alike == ALIKE:
                more = self.steps - step
                ends += [ends[-1] + (ends[-1] - ends[-2]) * number for number in range(1, more + 1)]
                for name in self._totals:
                    self._totals[name] += spent[name] * more
            totals = dict(self._totals)
        return ends

    @property
    def seconds_per_step(self) -> float:
        """Wall seconds for one clock of all the workers."""
        return self.seconds / self.config.steps

    @abstractmethod
    def begin(self) -> None:
        """Prepare what the workers share."""

    @abstractmethod
    def applied(self) -> float:
        """The steps that are in the parameters."""

    @abstractmethod
    def prepare(self, worker: int) -> Task:
        """A worker's way to its first step."""

    @abstractmethod
    def clock(self, worker: int) -> int | None:
        """The worker's clock; None where it has nothing more to do."""

    @abstractmethod
    def exchange(self, worker: int, clock: int) -> Task:
        """A worker's way from a gradient to the parameters that come of it."""

    def node(self) -> Host:
        """A process and its link."""
        return Host(self.clockwork, self._cores, self.config.link, self.calibration.late_s)

    def crowded(self, factor: float) -> float:
        """A crowd's factor for as many workers as there are."""
        return 1 + (factor - 1) * min(1.0, (self.config.workers - 1) / (CROWD - 1))

    def record(self, name: str, seconds: float) -> None:
        """Add to a span."""
        self._totals[name] += seconds

    def task(self, node: Host, lines: Mapping[str, Line], names: tuple[str, ...], values: float) -> Signal:
        """Work through spans of so many values, recorded by their names as long as they took."""
        key = id(lines), names, values
        if key not in self._tasks:
            spans = {name: lines[name].at(values) for name in names if name in lines}
            self._tasks[key] = sum(spans.values()), list(spans.items())
        seconds, shares = self._tasks[key]
        totals = self._totals

        def record(wall: float) -> None:
            if seconds:
                for name, part in shares:
                    totals[name] += wall * part / seconds

        return node.work(seconds, record)

    def work(
        self, node: Host, lines: Mapping[str, Line], spans: tuple[str, ...], values: float, transfer_s: float
    ) -> Generator[float | Signal, None, float]:
        """The work of a session; ``transfer``, its first span or its last, takes ``transfer_s``. When sending began."""
        first, last = len(spans) > 1 and spans[0] == "transfer", spans[-1:] == ("transfer",)
        if first:
            yield node.work(transfer_s)
        if named := spans[first : len(spans) - last]:
            yield self.task(node, lines, named, values)
        began = self.clockwork.now
        if last:
            yield node.work(transfer_s)
        return began

    def _train(self, worker: int) -> Task:
        config, node, clockwork = self.config, self.nodes[worker], self.clockwork
        travelling: Signal | None = None
        yield from self.prepare(worker)
        while (clock := self.clock(worker)) is not None:
            began = clockwork.now
            yield node.work(self._gradient_s)
            if config.delays:
                yield began + config.delays.of(worker, clock, config.seed) - clockwork.now
            self.record("compute", clockwork.now - began)
            if travelling:
                yield travelling
                clock = self.clock(worker)
            if clock is not None:
                travelling = clockwork.start(self.exchange(worker, clock))
            if not config.overlap and travelling:
                yield travelling
                travelling = None


class Sized(NamedTuple):
    """A message of sizes alone."""

    header: Header
    nbytes: float
    stamp: Header = {}


class _DeclaredLink(ServerLink):
    """A worker's link over which sizes travel."""

    def __init__(self, walk: "PSTimeline", worker: int, index: int) -> None:
        super().__init__(walk.config, worker, index, _NO_TRACE)
        self.values, self._pushed = walk.share, walk.load.pushed

    def encode(self, message: Message) -> Sized:
        return Sized(message.header, self._pushed if message.kind in PUSHES else 0.0)

    def decode(self, sized: Sized) -> tuple[Message, Header]:
        return Message(sized.header), sized.stamp


class _DeclaredSessions(ServerSession):
    """A server's sessions in which sizes stand in for arrays."""

    def __init__(self, server: "_ServerHost", walk: "PSTimeline", index: int) -> None:
        super().__init__(server.shard, walk.config, index, {}, _NO_TRACE, server.changed, nothing, 0.0)
        self.values, self._pulled = walk.share, walk.load.pulled

    def decode(self, sized: Sized, decoder: Decoder) -> Tensors:
        return {}

    def encode(self, message: Message, encoder: Encoder, shared: bool) -> Sized:
        return Sized(message.header, self._pulled)


class PSTimeline(Walk):
    """Workers push to servers and pull from them."""

    def begin(self) -> None:
        config, calibration = self.config, self.calibration
        self.share = self.load.values / config.servers
        """Values of each server."""
        self._servers = [_ServerHost(self, index) for index in range(config.servers)]
        self._sessions = [
            WorkerSession(worker, [_DeclaredLink(self, worker, index) for index in range(config.servers)])
            for worker in range(config.workers)
        ]
        self._rest = calibration.worker_rest.at(self.share) / 2 * self.crowded(calibration.worker_crowd)
        self._flight = calibration.idle.at(self.share) / 2

    def applied(self) -> float:
        return min(server.applied for server in self._servers) / self.config.workers

    def prepare(self, worker: int) -> Task:
        return self._call(worker, self._sessions[worker].pull(), pushes=False)

    def clock(self, worker: int) -> int | None:
        return None if all(server.shard.done for server in self._servers) else self._sessions[worker].clock

    def exchange(self, worker: int, clock: int) -> Task:
        return self._call(worker, self._sessions[worker].push({}, 0.0, None, pulls=True), pushes=True)

    def _call(self, worker: int, session: Session[Any], pushes: bool) -> Task:
        """Carry out a worker's session."""
        node, answer = self.nodes[worker], None
        trips: list[deque[_Trip]] = [deque() for _ in self._servers]
        while True:
            try:
                need = session.send(answer)
            except StopIteration:
                return
            answer = None
            if type(need) is Do:
                yield from self.work(node, self.calibration.worker, need.spans, need.values, self._rest)
                answer = need.call()
            elif type(need) is Send:
                yield node.work(self._rest)
                trip = _Trip(self, worker, self._servers[need.to], need.parcel, pushes)
                trips[need.to].append(trip)
            else:
                trip = trips[need.source].popleft()
                yield trip.over
                answer = trip.answer


class _Trip:
    """A message's way to a server, what the server does with it, and the answer's way back."""

    def __init__(self, walk: PSTimeline, worker: int, server: "_ServerHost", message: Sized, timed: bool) -> None:
        self.answer: Sized | None = None
        self.over = walk.clockwork.start(self._make(walk, walk.nodes[worker], server, message, timed))

    def _make(self, walk: PSTimeline, node: Host, server: "_ServerHost", message: Sized, timed: bool) -> Task:
        clockwork = walk.clockwork
        began = clockwork.now
        start = node.depart(message.nbytes)
        yield walk._flight
        yield server.node.arrive(start, message.nbytes)
        came = clockwork.now
        answer, waited, left = yield from server.answer(message)
        start = server.node.depart(answer.nbytes)
        yield walk._flight
        yield node.arrive(start, answer.nbytes)
        if timed:
            walk.record("transfer", clockwork.now - began - (left - came))
            walk.record("wait", waited)
        self.answer = answer


class _ServerHost:
    """A node with a shard, and the sessions of its requests."""

    def __init__(self, walk: PSTimeline, index: int) -> None:
        config, calibration = walk.config, walk.calibration
        self._walk, self.node = walk, walk.node()
        self.shard = Shard.of(
            config,
            {},
            aggregator=Mean(),
            optimizer=SGD(),
            updates=config.workers * walk.steps,
            now=lambda: walk.clockwork.now,
        )
        self.applied = 0
        """Pushes that are in the parameters; the shard knows of them a little earlier, before the work is done."""
        self._lines = {**calibration.server, **update_lines(calibration, config)}
        self._rest = calibration.server_rest.at(walk.share) / 2 * walk.crowded(calibration.server_crowd)
        self._session = _DeclaredSessions(self, walk, index)
        self._changed = Signal()
        self._alone: Signal | None = None

    def answer(self, message: Sized) -> Generator[float | Signal, None, tuple[Sized, float, float]]:
        """Carry out the session of a request: the answer, how long it has waited, and when it was ready to be sent."""
        session, clockwork = self._session.answer(message.header, message), self._walk.clockwork
        waited = ready = 0.0
        answer = None
        while True:
            while self._alone:
                yield self._alone
            try:
                need = session.send(answer)
            except StopIteration as end:
                stamp, sized = end.value
                return Sized(sized.header, sized.nbytes, stamp), waited, ready
            answer = None
            if type(need) is Until:
                began = clockwork.now
                while not need.ready():
                    yield self._changed
                waited += clockwork.now - began
                continue
            over = self._alone = Signal() if need.alone else self._alone
            ready = yield from self._walk.work(self.node, self._lines, need.spans, need.values, self._rest)
            if over and need.alone:
                self._alone = None
                over.happen()
            answer = need.call()

    def changed(self) -> None:
        """The shard has changed, and the time of an update is over."""
        self.applied = self.shard.applied
        changed, self._changed = self._changed, Signal()
        changed.happen()


class AllReduceTimeline(Walk):
    """Workers add up their gradients by an all-reduce."""

    def begin(self) -> None:
        calibration = self.calibration
        self._done = [0] * self.config.workers
        self._boxes: dict[tuple[int, int, int], Signal] = defaultdict(Signal)
        self._sent: dict[tuple[int, int, int], float] = {}
        self._lines = rank_lines(calibration, self.config)
        self._scripts = [script(all_reduce(part)) for part in self.load.parts]

    def applied(self) -> float:
        return min(self._done)

    def prepare(self, worker: int) -> Task:
        yield 0.0

    def clock(self, worker: int) -> int | None:
        return self._done[worker] if self._done[worker] < self.steps else None

    def exchange(self, worker: int, clock: int) -> Task:
        node = self.nodes[worker]
        for need in self._scripts[worker]:
            match need:
                case Do(spans, values):
                    yield self.task(node, self._lines, spans, values)
                case Send(_, _, values):
                    yield node.work(self._rest(values), lambda wall: self.record("transfer", wall))
                    self.clockwork.start(self._message(worker, need, clock))
                case Receive(_, number):
                    yield from self._receive(worker, number, clock)
        self._done[worker] += 1

    def _message(self, source: int, message: Send, clock: int) -> Task:
        key = message.to, message.number, clock
        self._sent[key] = self.clockwork.now
        start = self.nodes[source].depart(message.parcel)
        yield self.calibration.hop_idle.at(message.values)
        yield self.nodes[message.to].arrive(start, message.parcel)
        yield self.nodes[message.to].work(self._rest(message.values))
        self._boxes[key].happen()

    def _rest(self, values: float) -> float:
        """Processor time of a message of so many values at one of its ends."""
        return self.calibration.hop_rest.at(values) / 2

    def _receive(self, worker: int, number: int, clock: int) -> Task:
        """Of the time until a message is here, that before it was sent is a wait."""
        began, key = self.clockwork.now, (worker, number, clock)
        yield self._boxes[key]
        del self._boxes[key]
        sent = max(began, self._sent.pop(key))
        self.record("wait", sent - began)
        self.record("transfer", self.clockwork.now - sent)
