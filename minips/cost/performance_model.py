"""Model a run's time without its arithmetic: every worker's cycle, step by step, in virtual time.

A cycle is: compute, encode, cross the link, server or next worker, cross the link again, decode. The calibration gives
its seconds. A real run's `Shard`, or its schedule, decides which party waits for which. A process does one thing at a
time, but computes while messages travel. Processes share the cores, and messages queue on the nodes' links in the order
in which they are sent.
"""

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import count, groupby, takewhile
from math import isclose
from typing import Any

from minips import seeds
from minips.core.codec import Decoder
from minips.core.config import Config
from minips.core.exchange import Hop
from minips.core.limits import Expected
from minips.core.loop import Compute, train_served, train_together
from minips.core.message import Header, Message
from minips.core.protocol import PUSHES, ServerProtocol, ServerRecord, WorkerProtocol
from minips.core.reduction import all_reduce
from minips.core.sessions import Parcel, Send, Session
from minips.core.shard import Shard
from minips.cost.microbenchmarks import CROWD
from minips.cost.packets import Links, Queues
from minips.drivers.events import Cores, EventLoop, Signal, Task, Work, seldom_collected, unrecorded
from minips.drivers.virtual import Interconnect, Node, RankNode, ServedNode, TrainingNode, VirtualCluster
from minips.machines.calibration import Calibration, inner_s, rank_lines, server_lines, worker_lines
from minips.machines.fit import Line
from minips.machines.topology import Machines, hosts
from minips.results.trace import UNTIMED
from minips.stage import Tensors
from minips.stages.aggregators import Mean
from minips.stages.consistency import ASP, BSP, SSP
from minips.stages.optimizers import SGD

_MEAN, _SGD = Mean(), SGD()
MAX_STEPS, EVEN_STEPS = 200, 24
"""The most simulated steps, and the most if all are alike; further steps take the pace of the second half."""
LONGEST, ALIKE, KEPT = 24, 4, 2
"""The longest period of repeating steps; how many successive states must repeat; how many last steps always run."""


@dataclass(frozen=True)
class Declared:
    """A rank's part in an all-reduce, as sizes: bytes sent at each hop, and the number of values in each piece."""

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
    """The work of a step: the number of ``values`` in the model and of ``rows`` in a batch.

    With servers, ``pushed`` is the bytes of a push to one server, ``pulled`` those of a pull from it. With an
    all-reduce, ``pushed`` is the bytes of all pieces, and ``parts`` holds each worker's part.
    """

    values: float
    rows: float
    pushed: float = 0.0
    pulled: float = 0.0
    parts: tuple[Declared, ...] = ()


def _period(states: list[list[float]]) -> int:
    """Return the period, in steps, with which the last ``ALIKE`` states repeat; 0 if they do not."""
    near = partial(isclose, rel_tol=1e-9, abs_tol=1e-15)
    for period in range(1, min(len(states) - ALIKE, LONGEST + 1)):
        pairs = [(states[-back], states[-back - period]) for back in range(1, ALIKE + 1)]
        if all(len(state) == len(before) and all(map(near, state, before)) for state, before in pairs):
            return period
    return 0


class PerformanceModel(VirtualCluster):
    """A modelled run: its ``seconds``, and its ``pace``, which is the seconds of a step in the second half. Without a
    ``cluster``, all processes are on the calibrated machine: each behind the config's link or, on hosts, in ``net``.
    """

    @seldom_collected()
    def __init__(
        self, config: Config, calibration: Calibration, load: Workload, cluster: Machines | None = None, net: Any = None
    ) -> None:
        super().__init__(config, EventLoop(at_once=True, remembered=True), cluster)
        self.calibration, self.load = calibration, load
        even = config.delays is None and config.consistency.quorum(config.workers) == config.workers
        self.steps = min(config.clocks, EVEN_STEPS if even else MAX_STEPS)
        self.last = self.steps
        """The clock at which the workers stop."""
        self.share = load.values / config.servers
        """The values on each server."""
        self.totals: dict[str, float] = defaultdict(float)
        if not cluster:
            calibrated = Cores(self.events, calibration.cores, calibration.others)
            self.cores = dict.fromkeys(hosts(config.workers, config.servers), calibrated)
        self.network = Interconnect()
        if net is not None:
            self.network = Queues(self.events, net, ahead=2 if load.parts else 1)
        elif link := cluster.link if cluster else config.link:
            self.network = Links(self.events, link, calibration.late_s, self.places)
        self.servers = [] if load.parts else [_Server(self, index) for index in range(config.servers)]
        self.workers: list[Any] = []
        if load.parts:
            times, idle = rank_lines(calibration, config), calibration.hop_idle
            self.workers += [_Rank(self, rank, times, idle) for rank in range(config.workers)]
        else:
            times, idle = worker_lines(calibration), calibration.idle.times(1 / 2)
            self.workers += [_Worker(self, rank, times, idle) for rank in range(config.workers)]
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

    def record(self, name: str, who: str, start: float, step: Any, end: float | None = None) -> None:
        if type(step) is not _Trip:
            self.totals[name] += max(0.0, (self.events.now if end is None else end) - start)
        elif name == "transfer":
            step.transfer += self.events.now - step.since
        else:
            step.wait += self.events.now - start

    def contention(self, factor: float, worker: str = "") -> float:
        """Return the crowd's factor for all workers, or for the workers on the machine of ``worker``."""
        crowd, places = self.config.workers, self.places
        if worker and places:
            crowd = sum(place == places[worker] for who, place in places.items() if who.startswith("worker"))
        return 1 + (factor - 1) * min(1.0, (crowd - 1) / (CROWD - 1))

    def record_progress(self, which: int, step: int) -> None:
        """Record the steps that the parameters of a server, or of a rank, include."""
        before, self._progress[which] = self._progress[which], step
        if before == self._applied < step:
            self._applied = min(self._progress)

    def _ends(self) -> tuple[list[float], list[dict[str, float]]]:
        """Return each step's end and the totals by then. Once steps repeat, all but the last few are extrapolated."""
        ends, skipped, skipped_s = [0.0], 0, 0.0
        delays, kind = self.config.delays, type(self.config.consistency)
        # If nothing depends on the clock, steps that have repeated will always repeat.
        regular = not ((delays and delays.exponential) or isinstance(self.network, Queues)) and kind in (BSP, SSP, ASP)
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
            states.append([*spent, *self.events.left(), *self.network.left()])
            for cores in dict.fromkeys(self.cores.values()):
                states[-1] += cores.left()
            for process in (*self.servers, *self.workers):
                states[-1] += [process.queue, *process.ahead(step)]
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


@dataclass(slots=True)
class _Trip:
    """The current stage of a message's trip. ``since`` is when the message left or, at the server, the last work began.
    Its spans are counted when the answer has arrived.
    """

    since: float
    transfer: float = 0.0
    wait: float = 0.0


class _SizedNode(Node):
    """A worker or a server of a model."""

    cluster: PerformanceModel
    crowd = 1.0
    """The factor on the processor time of messages that several workers cause."""

    def spend(self, spans: tuple[str, ...], values: float, step: Any) -> Iterable[Signal]:
        works = self._works(spans, values)
        return (self._begin_work(works[0], step),) if len(works) == 1 else self._one_by_one(works, step)

    def _one_by_one(self, works: list[Work], step: Any) -> Iterator[Signal]:
        for work in works:
            yield self._begin_work(work, step)

    def _begin_work(self, work: Work, step: Any) -> Signal:
        if type(step) is _Trip:
            step.since = self.events.now
        return self.work(work)

    @cached_property
    def _works(self) -> Callable[[tuple[str, ...], float], list[Work]]:
        """The spans' work for this many values: ``transfer`` separately, the other spans together."""
        return cache(lambda spans, values: list(self._split(spans, values)))

    def _split(self, spans: tuple[str, ...], values: float) -> Iterator[Work]:
        for transfer, names in groupby(spans, lambda name: name == "transfer"):
            times = {name: self.times[name].at(values) for name in names if name in self.times}
            if transfer and not isinstance(self, RankNode):
                yield times["transfer"] * self.crowd, unrecorded  # the trip's span includes it
            elif seconds := sum(times.values()):
                yield seconds, partial(self._record, times, seconds)

    def _record(self, times: Mapping[str, float], seconds: float, wall: float) -> None:
        """Divide the wall seconds of a piece of work among its spans."""
        for name, part in times.items():
            self.cluster.totals[name] += wall * part / seconds

    @abstractmethod
    def ahead(self, step: int) -> Iterator[int]:
        """Yield the lead of each of this party's counters over a step."""


class _Server(_SizedNode):
    """A server: a shard and the sessions of its requests."""

    def __init__(self, model: PerformanceModel, number: int) -> None:
        config, calibration = model.config, model.calibration
        super().__init__(model, f"server {number}", server_lines(calibration, config))
        self.number, self.crowd = number, model.contention(calibration.server_crowd)
        updates, now = config.workers * model.steps, lambda: self.events.now
        self.shard = Shard.of(config, {}, aggregator=_MEAN, optimizer=_SGD, updates=updates, now=now)
        self.protocol = _DeclaredProtocol(self)
        self._order = seeds.wake(config.seed, number)

    def ahead(self, step: int) -> Iterator[int]:
        yield self.shard.made - step * self.shard.workers
        yield from (clock - step for clock in self.shard.clocks)

    def changed(self) -> None:
        """Record that the shard has changed and its update has ended."""
        self.cluster.record_progress(self.number, self.shard.made // self.shard.workers)
        if isinstance(self.cluster.network, Queues):  # the threads of servers on hosts wake in any order
            self._order.shuffle(self._waiting)
        self.wake()


class _Trainer(_SizedNode, TrainingNode):
    """A training worker, which computes nothing."""

    def gradient_s(self, step: int) -> float:
        calibration, load = self.cluster.calibration, self.cluster.load
        gradient = calibration.gradient_of(step, self.config)
        seconds = gradient.at(load.rows) * self.config.accumulate if gradient else 0.0
        return seconds + inner_s(calibration, self.config, load.values)

    def compute(self, need: Compute, step: None) -> Task[tuple[float, Tensors]]:
        yield from self.gradient_time(need.clock)
        return 0.0, {}


class _Worker(ServedNode, _Trainer):
    """A worker that pushes to servers and pulls from them."""

    def __init__(self, model: PerformanceModel, rank: int, times: Mapping[str, Line], idle: Line) -> None:
        super().__init__(model, rank, times)
        self.servers, self.idle = model.servers, idle
        self.crowd = model.contention(model.calibration.worker_crowd, self.who)
        records = [_DeclaredRecord(model, rank, server.number) for server in model.servers]
        self._protocol = WorkerProtocol(rank, records)
        for server in model.servers:
            server.protocol.membership.admit(self.connection, {"worker": rank})

    def ahead(self, step: int) -> Iterator[int]:
        if not all(server.shard.done for server in self.servers):
            yield self._protocol.clock - step

    def train(self) -> Task[Any]:
        return self.carry_out(train_served(self._protocol, self.config.overlap))

    def trip(self, message: Send, step: int) -> Task[Parcel]:
        trip = _Trip(self.events.now)
        answer = yield from super().trip(message, trip)
        self.cluster.totals["transfer"] += trip.transfer
        self.cluster.totals["wait"] += trip.wait
        return answer

    def nbytes(self, parcel: Parcel) -> float:
        kind, load = parcel[0]["kind"], self.cluster.load
        return load.pulled if kind == "reply" else load.pushed if kind in PUSHES else 0.0


class _Rank(RankNode, _Trainer):
    """A worker of an all-reduce."""

    def __init__(self, model: PerformanceModel, rank: int, times: Mapping[str, Line], idle: Line) -> None:
        super().__init__(model, rank, times)
        self.ranks, self.idle, self._part = model.workers, idle, model.load.parts[rank]
        self._made = 0

    def ahead(self, step: int) -> Iterator[int]:
        if self._made < self.cluster.last:
            yield self._made - step

    def train(self) -> Task[Any]:
        clocks = takewhile(lambda clock: clock < self.cluster.last, count())
        return self.carry_out(train_together(lambda: None, self._exchange, clocks, self.config.overlap))

    def _exchange(self, clock: int, computed: Any) -> Session[bool]:
        yield from all_reduce(self._part)
        self._made = clock + 1
        self.cluster.record_progress(self.rank, clock + 1)
        return clock + 1 >= self.cluster.last

    def nbytes(self, parcel: float) -> float:
        return parcel


class _DeclaredRecord(ServerRecord):
    """A worker's link. A message is reduced to its header, the only one of its frames."""

    def __init__(self, model: PerformanceModel, worker: int, index: int) -> None:
        super().__init__(model.config, worker, index, UNTIMED)
        self.values = model.share
        self.encode = lambda message: [message.header]

    def decode(self, parcel: Parcel, expected: Expected | None = None) -> tuple[Message, Header]:
        return Message(parcel[0]), {}


class _DeclaredProtocol(ServerProtocol):
    """A server's sessions, with headers only."""

    def __init__(self, server: _Server) -> None:
        model = server.cluster
        super().__init__(server.shard, model.config, server.number, {}, UNTIMED, server.changed)
        self.values = model.share
        self.unpack = lambda parcel: (Message(parcel[0]), {})
        self.encode = lambda encoder, message: [message.header]
        self.wrap = lambda stamp, parcel: [parcel[0] | stamp]

    def decode(self, packet: Message, decoder: Decoder) -> Tensors:
        return {}
