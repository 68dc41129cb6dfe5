"""The simulation of a run: the time, the network, the trace, and the common parts of its nodes.

Time passes only at a ``yield``. A node's work between two yields takes no time, so no lock is needed.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

from minips import seeds
from minips.core.faults import Faults
from minips.core.message import DivergedError
from minips.drivers.events import EventLoop, Signal, Task, seldom_collected
from minips.drivers.virtual import Interconnect, Node, TrainingNode, VirtualCluster
from minips.engines.base import TrainingJob
from minips.engines.simulated.flows import FlowNetwork
from minips.engines.worker import shards_of
from minips.machines.calibration import inner_s
from minips.machines.fit import Line
from minips.machines.topology import Network
from minips.results.run import Progress, Rows
from minips.results.trace import Moments, Names, Span, Trace
from minips.stage import Frames, Tensors
from minips.stages.transports.framing import size
from minips.words import message_of

MAX_SPANS, MAX_ROWS = 1_000_000, 2_000_000
"""The most spans that a simulation keeps, and the most rows of messages."""
NEWS_S = 0.1
"""Seconds of wall-clock time between two reports of progress."""


class Simulation(VirtualCluster):
    """The time, the network, the spans, and the reports of progress. ``engine`` is the `Simulated` instance."""

    def __init__(self, engine: Any, job: TrainingJob) -> None:
        super().__init__(job.config, EventLoop(), engine.cluster)
        self.engine, self.job, self.plain = engine, job, replace(job.config, delays=None)
        self.every = job.evaluation.every if job.evaluation else None
        self.shard = shards_of(job.problem, job.config)
        self.ended = False
        """True if an evaluation or a stop has ended the run."""
        self.error: BaseException | None = None
        """The exception raised by an evaluation or by a report of progress."""
        self.halt = False
        """True once the run was stopped from outside."""
        self._over = Signal()
        """Signals the run's end: all tasks have ended, the run has diverged, or a node has failed."""
        self.faults = job.faults or Faults()
        self.happened: list[tuple[float, str]] = []
        """What faults did: each time, and a sentence."""
        self.never = Signal()
        """Never happens: the tasks of a party that has died wait for it."""
        self.failure: RuntimeError | None = None
        """The error of a failed node."""
        self.diverged: str | None = None
        self._spans: list[tuple[str, str, float, float, int]] = []  # tuples: the garbage collector skips them
        self._until = inf
        self._notes: list[Trace] = []
        self.room = MAX_ROWS
        """The number of rows that may still be kept of messages."""
        self._reported_at = time.monotonic()
        graph, rng = engine.network(job.config), seeds.loss(job.config.seed)
        self.network = Interconnect()
        if graph is not None:
            self.network = FlowNetwork(self.events, Network(graph), engine.traffic, rng)

    def begin(self, ends: Sequence[Signal]) -> None:
        """End the run once all of these signals have happened."""

        def last() -> Task[None]:
            yield from ends
            self._over.succeed()

        self.events.start(last())

    def run(self, until: Callable[[], bool] = lambda: False) -> None:
        """Let time pass until ``until()`` holds or the run has ended. Raise RuntimeError if a node failed."""
        with seldom_collected():
            self.events.run(lambda: self._over.triggered or until())
        if self.failure:
            raise self.failure
        if not (self._over.triggered or until()):
            raise RuntimeError("The simulated nodes wait for each other, and no event is left.")

    def fail(self, who: str, error: BaseException) -> None:
        """End the run because the node ``who`` failed."""
        if not self._over.triggered:
            self.failure = RuntimeError(f"{who} failed: {type(error).__name__}: {message_of(error)}")
            self.failure.__cause__ = error
            self._over.succeed()

    def lose(self, who: str) -> None:
        """End the run because the party ``who``, which others need, was killed."""
        if not self._over.triggered:
            self.failure = RuntimeError(f"{who} ended before its work was done: its process was killed by SIGKILL.")
            self._over.succeed()

    def note(self, text: str) -> None:
        """Keep what a fault did just now, for the events of the run."""
        self.happened.append((self.events.now, text))

    def evaluate(self, step: int, params: Tensors, losses: Rows) -> bool:
        """Evaluate the parameters in a pause. Return True if an evaluation, its error, or a stop ends the run."""
        evaluation = self.job.evaluation
        try:
            self.ended = self.halt or (
                evaluation is not None and evaluation.call(step, params, losses, self.events.now)
            )
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.error, self.ended = error, True
        return self.ended

    def diverge(self, reason: str) -> None:
        """End the run with the current parameters."""
        if not self._over.triggered:
            self.diverged = reason
            self._over.succeed()

    def record(self, name: str, who: str, start: float, step: int, end: float | None = None) -> None:
        """Keep a span that ends now, or at ``end``, unless it took no time."""
        seconds = (self.events.now if end is None else end) - start
        if seconds > 0 and len(self._spans) < MAX_SPANS:
            self._spans.append((name, who, start, seconds, step))
        elif seconds > 0:
            self._until = min(self._until, start)

    def trace_of(self, who: str) -> Trace:
        self._notes.append(_Notes(who, self))
        return self._notes[-1]

    @property
    def trace(self) -> Trace:
        """Return the spans and messages recorded so far."""
        return Trace.joined([Trace(spans=map(Span._make, self._spans), until=self._until), *self._notes])

    def report(self, applied: int, updates: int, losses: Rows, last: bool = False) -> None:
        """Report progress at intervals, and at the ``last`` call; check for a stop. An error ends the run."""
        try:
            if self.error is None:
                self.halt = self.halt or self.job.stop()
                if last or time.monotonic() - self._reported_at > NEWS_S:
                    self._reported_at = time.monotonic()
                    self.job.watch(Progress.of(self.config, applied, updates, losses))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self.error, self.halt = error, True


class _Notes(Trace):
    """The messages and decisions that a node notes. `Simulation.record` keeps its spans."""

    def __init__(self, who: str, simulation: Simulation) -> None:
        super().__init__(who, now=lambda: simulation.events.now)
        self._simulation = simulation

    def laps(self, names: Names, moments: Moments, *message: Any) -> None:
        if message:
            self._room = self._simulation.room
            super().laps(*((("",), moments[:1] * 2) if any(names) else (names, moments)), *message)
            self._simulation.room = self._room


class SimNode(Node):
    """A simulated node, whose spans are all recorded in the trace."""

    def spend(self, spans: tuple[str, ...], values: float, step: int) -> Iterable[Signal]:
        """Spend the time of these spans. The time until the processor is free is recorded as a wait."""
        times = [(name, self.times[name].at(values)) for name in spans if name in self.times]
        if not times:
            return ()
        began = self.events.now
        turn = 0.0, lambda _: self.cluster.record("wait", self.who, began, step)
        return (self.work(turn, *((seconds, partial(self._record, name, step)) for name, seconds in times)),)

    def _record(self, name: str, step: int, seconds: float) -> None:
        self.cluster.record(name, self.who, self.events.now - seconds, step)

    def nbytes(self, parcel: Frames) -> int:
        return size(parcel)


class Trainer(SimNode, TrainingNode):
    """A worker: its shard of the problem, and the time that its gradients take."""

    def __init__(self, simulation: Simulation, rank: int, times: Mapping[str, Line]) -> None:
        super().__init__(simulation, rank, times)
        self.simulation, self.problem = simulation, simulation.shard(rank)
        self._plain = simulation.plain
        self._rows = min(self.config.batch_size or self.problem.rows, self.problem.rows)
        calibration, values = simulation.engine.calibration, sum(p.size for p in simulation.job.params.values())
        self._inner_s = inner_s(calibration, self.config, values) if calibration else 0.0

    def gradient_s(self, step: int) -> float:
        seconds: float = self.simulation.engine.seconds(self.config, self.rank, step, self._rows)
        return seconds + self._inner_s

    def start(self, steps: Task[Any]) -> Signal:
        """Start a task beside the others. An exception in it ends the run."""
        return super().start(self._guard(steps))

    def _guard(self, steps: Task[Any]) -> Task[Any]:
        try:
            return (yield from steps)
        except DivergedError as error:
            self.simulation.diverge(str(error))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # including user code's SystemExit, which would end a real process
            self.simulation.fail(self.who, error)
            if isinstance(error, GeneratorExit):  # a closed generator must not continue
                return None
        yield Signal()  # never happens, so that the task does not seem to succeed
