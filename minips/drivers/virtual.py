"""The driver in virtual time: nodes that carry out their sessions with tasks of `minips.drivers.events`, not threads.

A simulation sends real arrays; a prediction sends sizes instead. Both derive their nodes from those here. They differ
in the network, and in how a node calculates and accounts for time.
"""

from abc import abstractmethod
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from minips.core.config import Config
from minips.core.exchange import AllReduce
from minips.core.loop import Await, Begin, Call, Compute
from minips.core.membership import ClientConnection
from minips.core.sessions import Do, Parcel, Receive, Send, Session, Until
from minips.drivers.events import Cores, EventLoop, Processor, Signal, Task, unrecorded
from minips.machines.fit import Line
from minips.machines.topology import Machines
from minips.results.trace import UNTIMED, Trace
from minips.results.waits import WAITED
from minips.words import as_error

T = TypeVar("T")
_METHODS = {kind: kind.__name__.lower() for kind in (Send, Receive, Until, Compute, Call, Begin)}


class Interconnect:
    """The network between nodes. This one is infinitely fast: a message takes only the transport's own time."""

    def travel(
        self, source: str, target: str, nbytes: float, least_s: float = 0.0, queue: str = ""
    ) -> Iterable[float | Signal]:
        """Carry out a message's trip, for a task's ``yield from``. The trip ends when the last byte has arrived.

        It takes at least ``least_s``, the transport's own time. Messages of one ``queue`` (empty: of one source and
        target) leave one after the other, if they share links.
        """
        return (least_s,)

    def left(self) -> list[float]:
        """For each link and direction, the seconds until it is free again."""
        return []


class VirtualCluster:
    """The parts that a run's nodes share: the clock, the network, the cores of their machines, and the record of their
    time. Without ``machines``, each node has its own core.
    """

    network: Interconnect

    def __init__(self, config: Config, events: EventLoop, machines: Machines | None) -> None:
        self.config, self.events = config, events
        self.running = ""
        """The node whose session, work or gradient is being computed."""
        self.places: dict[str, int] = {}
        self.cores: dict[str, Cores] = {}
        """Each node's machine, and that machine's cores."""
        if machines:
            servers = 0 if isinstance(config.exchange, AllReduce) else config.servers
            self.places = machines.places(config.workers, servers)
            of_each = [Cores(events, machines.cores) for _ in range(machines.machines)]
            self.cores = {who: of_each[place] for who, place in self.places.items()}

    def trace_of(self, who: str) -> Trace:
        """The trace in which a node notes its messages. This one keeps nothing."""
        return UNTIMED

    @abstractmethod
    def record(self, name: str, who: str, start: float, step: Any, end: float | None = None) -> None:
        """Record a span that ends now, or at ``end``, unless it took no time."""


class Node(Processor):
    """A process in virtual time, whose processor does one thing at a time.

    ``times`` maps each span to its calibrated line: time by number of values. That of ``transfer`` is the processor's
    time for sending or receiving a message. A ``step`` is a driver's own data about a session, such as its clock.
    """

    def __init__(self, cluster: VirtualCluster, who: str, times: Mapping[str, Line]) -> None:
        super().__init__(cluster.events, cluster.cores.get(who))
        self.cluster, self.config, self.who, self.times = cluster, cluster.config, who, times
        self.trace = cluster.trace_of(who)
        self._waiting: list[tuple[Until, Signal]] = []
        self._alone: Signal | None = None
        """The end of work that a session does alone; until then, no other session of this node runs."""

    def carry_out(self, session: Session[T], step: Any = None) -> Task[T]:
        """Carry out a session or a training loop. Returns its result. The methods that meet its needs have the names of
        the needs' kinds.
        """
        answer, error, over = None, None, None
        while True:
            while self._alone and self._alone is not over:
                yield self._alone
            self.cluster.running = self.who
            try:
                need = session.send(answer) if error is None else session.throw(error)
            except StopIteration as end:
                result: T = end.value
                return result
            finally:
                if over:  # after the session itself has used the outcome of its work
                    self._alone = None
                    over.succeed()
                    over = None
            answer, error = None, None
            if type(need) is Do:
                if need.alone:
                    self._alone = over = Signal()
                yield from self.spend(need.spans, need.values, step)
                self.cluster.running = self.who
                try:
                    answer = need.call()
                except KeyboardInterrupt:
                    raise
                except BaseException as raised:
                    error = as_error(raised)
            elif type(need) is Await:
                answer = yield need.begun
            else:
                answer = yield from getattr(self, _METHODS[type(need)])(need, step)

    @abstractmethod
    def spend(self, spans: tuple[str, ...], values: float, step: Any) -> Iterable[Signal]:
        """Spend the time that these spans take for this number of values."""

    def until(self, wanted: Until, step: Any) -> Task[None]:
        """Wait for a condition, until `wake` finds that it holds."""
        if not wanted.ready():
            began, event = self.events.now, Signal()
            self._waiting.append((wanted, event))
            yield event
            self.cluster.record("wait", f"worker {wanted.worker}", began, step)
            now = self.events.now
            self.trace.laps(WAITED, (began, now, now, now), None, wanted.worker, None, 0)

    def wake(self) -> None:
        """Wake the sessions whose conditions hold."""
        waiting, self._waiting = self._waiting, []
        for wanted, event in waiting:
            if wanted.ready():
                event.succeed()
            else:
                self._waiting.append((wanted, event))


class TrainingNode(Node):
    """A worker. Its training loop computes; its sessions send messages, which are idle for ``idle`` on their way."""

    idle: Line

    def __init__(self, cluster: VirtualCluster, rank: int, times: Mapping[str, Line]) -> None:
        super().__init__(cluster, f"worker {rank}", times)
        self.rank = rank
        self.clock = 0
        """The clock of the last gradient, and of the sessions that follow it."""
        self.bytes_sent = self.bytes_received = 0
        self._computing: Signal | None = None
        """Signals the end of the gradient that is being computed."""
        self._sent = Signal()
        """Signals that all messages of the last session are sent, if the loop waits for that."""
        self._sent.succeed()

    @abstractmethod
    def gradient_s(self, step: int) -> float:
        """Return the seconds of this worker's gradient at a step, without the config's delays."""

    def gradient_time(self, clock: int) -> Task[bool]:
        """Spend the time of a clock's gradient, or of its local steps. Return False if the worker abandoned it."""
        self.clock, each, finished = clock, self.config.local_steps, True
        for step in range(clock * each, (clock + 1) * each):
            finished = finished and (yield from self._step_time(step))
        return finished

    def _step_time(self, step: int) -> Task[bool]:
        began, delays = self.events.now, self.config.delays
        computing = work = self.beside(self.gradient_s(step))
        if delays:
            computing, least = Signal(), began + delays.of(self.rank, step, self.config.seed)
            work.then(lambda: self.events.at(max(least, self.events.now), computing.succeed))
        self._computing = computing
        yield computing
        finished, self._computing = self._computing is not None, None
        if not finished and self._cores:
            self._cores.leave(work)
        self.cluster.record("compute", self.who, began, self.clock)
        self.cluster.running = self.who
        return finished

    def give_up(self) -> None:
        """Abandon the gradient that is being computed, if any."""
        if computing := self._computing:
            self._computing = None
            computing.succeed()

    def call(self, need: Call | Begin, step: None) -> Task[Any]:
        """Carry out a session of this worker. Returns its result."""
        return self.carry_out(need.session, self.clock)

    def begin(self, need: Begin, step: None) -> Task[Signal]:
        """Begin a session beside the loop. Once its messages are sent, returns the signal of its end."""
        begun = self.start(self.call(need, step))
        if not begun.triggered:
            yield self._sent
        return begun

    def start(self, steps: Task[Any]) -> Signal:
        """Begin a task that runs at the same time as the others. Returns the signal of its end."""
        return self.events.start(steps)

    @abstractmethod
    def nbytes(self, parcel: Parcel) -> Any:
        """Return the bytes of a message on the network."""


class ServedNode(TrainingNode):
    """A worker with servers. Each message travels to a server, and its answer travels back. The worker receives a
    server's answers in the order of its requests.
    """

    servers: Sequence[Any]

    def __init__(self, cluster: Any, rank: int, times: Mapping[str, Line]) -> None:
        super().__init__(cluster, rank, times)
        self.connection = ClientConnection()
        self._trips: dict[int, deque[Signal]] = defaultdict(deque)
        """For each server, the trips whose answers the worker has not received yet."""

    def call(self, need: Call | Begin, step: None) -> Task[Any]:
        self._sent = Signal()
        return super().call(need, step)

    def send(self, message: Send, step: Any) -> Task[None]:
        """Begin a message's trip."""
        yield from self.spend(("transfer",), message.values, step)
        self._trips[message.to].append(self.start(self.trip(message, step)))
        if message.to == len(self.servers) - 1:
            self._sent.succeed()

    def receive(self, wanted: Receive, step: Any) -> Task[Parcel]:
        """Wait for a server's next answer, and return it."""
        return (yield self._trips[wanted.source].popleft())

    def trip(self, message: Send, step: Any) -> Task[Parcel]:
        """Carry a message to a server, let the server carry out its session, and return the answer."""
        server, cluster, least_s = self.servers[message.to], self.cluster, self.idle.at(message.values)
        nbytes, began = self.nbytes(message.parcel), self.events.now
        self.bytes_sent += nbytes
        yield from cluster.network.travel(self.who, server.who, nbytes, least_s)
        cluster.record("transfer", self.who, began, step)
        session = server.protocol.answer(message.parcel, self.connection, self.events.now)
        answer = yield from server.carry_out(session, step)
        nbytes, began = self.nbytes(answer), self.events.now
        yield from cluster.network.travel(server.who, self.who, nbytes, least_s)
        cluster.record("transfer", self.who, began, step)
        self.bytes_received += nbytes
        return answer


class RankNode(TrainingNode):
    """A worker of an all-reduce among ``ranks``, with a box for each hop's message."""

    ranks: Sequence["RankNode"]

    def __init__(self, cluster: Any, rank: int, times: Mapping[str, Line]) -> None:
        super().__init__(cluster, rank, times)
        self._boxes: dict[tuple[int, int], Signal] = defaultdict(Signal)

    def send(self, message: Send, step: int) -> Task[None]:
        """Send a message, and go on while it travels."""
        yield from self.spend(("transfer",), message.values, step)
        nbytes = self.nbytes(message.parcel)
        self.bytes_sent += nbytes
        self.trace.laps(("",), (self.events.now,) * 2, "hop", message.to, step, nbytes)
        self.start(self._deliver(message, self.ranks[message.to], step))

    def _deliver(self, message: Send, peer: "RankNode", step: int) -> Task[None]:
        """Carry a message into its box. All of a worker's messages leave in one queue, even if their targets differ."""
        sent, box = self.events.now, peer._boxes[message.number, step]
        nbytes, least_s = self.nbytes(message.parcel), self.idle.at(message.values)
        yield from self.cluster.network.travel(self.who, peer.who, nbytes, least_s, queue=self.who)
        if line := peer.times.get("transfer"):
            yield peer.work((line.at(message.values), unrecorded))  # the span is recorded by `receive`
        box.succeed((sent, message.parcel))

    def receive(self, wanted: Receive, step: int) -> Task[Parcel]:
        """Wait for a message. The time until it is sent counts as ``wait``, and the rest as ``transfer``."""
        began, key = self.events.now, (wanted.number, step)
        sent, parcel = yield self._boxes[key]
        del self._boxes[key]
        self.cluster.record("wait", self.who, began, step, end=sent)
        self.cluster.record("transfer", self.who, max(began, sent), step)
        nbytes = self.nbytes(parcel)
        self.bytes_received += nbytes
        moments = began, max(began, sent), self.events.now
        self.trace.laps(("", ""), moments, "hop", wanted.source, step, nbytes)
        return parcel
