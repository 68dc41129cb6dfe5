"""A simulated cluster: the clock, the network, the trace, and the base of its nodes.

No time passes but by ``yield``. Between two of them a node works in no time, so there is no lock.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Any, cast

import simpy

from minips import seeds
from minips.core.collectives import AllReduce
from minips.core.fit import Line
from minips.core.message import DivergedError
from minips.core.run import Progress, Rows, Run
from minips.core.topology import Network
from minips.core.trace import Span, Trace
from minips.drivers.virtual import Party, Way
from minips.engines.base import TrainingJob
from minips.engines.simulated.flows import FlowNetwork
from minips.stage import Tensors, reason

UNTIMED = Trace(limit=0)
"""For the codec, whose spans are of the clock on the wall."""
MAX_SPANS = 1_000_000
NEWS_S = 0.1
"""Seconds of the wall clock between two reports of progress."""


class Simulation:
    """The clock (``env``), the network, the spans, and the reports of progress. ``engine`` is the `Simulated`."""

    def __init__(self, engine: Any, job: TrainingJob) -> None:
        self.engine, self.job, self.config, self.plain = engine, job, job.config, replace(job.config, delays=None)
        self.every = job.evaluation.every if job.evaluation else None
        self.ended = False
        """True where the evaluation, or a stop, has ended the run."""
        self.error: Exception | None = None
        """What the evaluation, or a report of progress, has raised."""
        self.env = simpy.Environment()
        self.halt = False
        """True once the run is stopped from outside."""
        self._over = self.env.event()
        """Happens when it diverges, and fails with what a node or the evaluation raised."""
        self.diverged: str | None = None
        self._spans: list[tuple[str, str, float, float, int]] = []  # tuples, which the garbage collector need not see
        self._until = inf
        self._told_at = time.monotonic()
        graph, rng, config = engine.network(job.config), seeds.loss(job.config.seed), job.config
        self._wire = None if graph is None else FlowNetwork(self.env, Network(graph), engine.traffic, rng)
        self._cores: dict[str, SharedCores] = {}
        if machines := engine.cluster:
            servers = 0 if isinstance(config.exchange, AllReduce) else config.servers
            of_each = [SharedCores(self.env, machines.cores) for _ in range(machines.machines)]
            self._cores = {who: of_each[place] for who, place in machines.places(config.workers, servers).items()}

    def run(self, processes: list[simpy.Process]) -> None:
        """Until all the processes have ended, or the run is over. RuntimeError where a worker failed."""
        self.env.run(until=self.env.any_of([self.env.all_of(processes), self._over]))

    def fail(self, who: str, error: Exception) -> None:
        """A node failed, which ends the run."""
        if not self._over.triggered:
            failure = RuntimeError(f"{who} failed: {type(error).__name__}: {reason(error)}")
            failure.__cause__ = error
            self._over.fail(failure)

    def evaluate(self, step: int, params: Tensors, losses: Rows) -> bool:
        """Nothing moves: evaluate the parameters; True where the run ends with them. What the call raises ends it
        too, as does a stop.
        """
        evaluation = self.job.evaluation
        try:
            self.ended = self.halt or (
                evaluation is not None and evaluation.call(step, params, losses, float(self.env.now))
            )
        except Exception as error:
            self.error, self.ended = error, True
        except BaseException as error:
            self._over.fail(cast(Exception, error))  # SimPy takes an interrupt, too
            return True
        return self.ended

    def finished(self, run: Run) -> Run:
        """The run; what a callback has raised carries it."""
        if self.error:
            self.error.run = run  # type: ignore[attr-defined]
            raise self.error
        return run

    def diverge(self, reason: str) -> None:
        """The run is over, with the parameters as they are."""
        if not self._over.triggered:
            self.diverged = reason
            self._over.succeed()

    def work(self, who: str, seconds: float) -> Way[None]:
        """The time of some work, for a process's ``yield from``: longer where others of its machine want the cores."""
        if cores := self._cores.get(who):
            yield from cores.work(seconds)
        else:
            yield self.env.timeout(seconds)

    def travel(self, source: "Node", target: "Node", nbytes: int, least_s: float, line: str | None = None) -> Way[None]:
        """The way of a message, for a process's ``yield from``; see `FlowNetwork.travel`. The transport itself takes
        ``least_s``.
        """
        began = self.env.now
        if self._wire:
            yield from self._wire.travel(source.who, target.who, nbytes, line)
        left = began + least_s - self.env.now
        if left > 0:
            yield self.env.timeout(left)

    def record(self, name: str, who: str, start: float, step: int, end: float | None = None) -> None:
        """Keep a span that ends now, or at ``end``, if it took any time."""
        seconds = (self.env.now if end is None else end) - start
        if seconds > 0 and len(self._spans) < MAX_SPANS:
            self._spans.append((name, who, start, seconds, step))
        elif seconds > 0:
            self._until = min(self._until, start)

    @property
    def trace(self) -> Trace:
        """The spans, by now."""
        return Trace(spans=map(Span._make, self._spans), until=self._until)

    def tell(self, applied: int, losses: Rows, last: bool = False) -> None:
        """The parameters have changed: report progress, now and then and at the ``last``; see whether to stop. What
        that raises stops the run.
        """
        try:
            if self.error is None:
                self.halt = self.halt or self.job.stop()
                if last or time.monotonic() - self._told_at > NEWS_S:
                    self._told_at = time.monotonic()
                    self.job.watch(Progress(applied, self.config.workers * self.config.steps, losses))
        except Exception as error:
            self.error, self.halt = error, True


class SharedCores:
    """A machine's cores, which all at work share evenly; none has more than one."""

    def __init__(self, env: simpy.Environment, cores: int) -> None:
        self._env, self._cores = env, cores
        self._left: dict[simpy.Event, float] = {}
        self._at, self._turn = 0.0, 0

    def work(self, seconds: float) -> Way[None]:
        """Until so many seconds of a core have been had. An interrupt gives the rest up."""
        done = self._env.event()
        self._pass()
        self._left[done] = seconds
        self._plan()
        try:
            yield done
        finally:
            if done in self._left:
                self._pass()
                del self._left[done]
                self._plan()

    @property
    def _rate(self) -> float:
        return min(1.0, self._cores / max(1, len(self._left)))

    def _pass(self) -> None:
        """Take off what has been worked since the last time."""
        worked, self._at = (self._env.now - self._at) * self._rate, self._env.now
        for done in self._left:
            self._left[done] -= worked

    def _plan(self) -> None:
        """Find the moment at which the next one is done."""
        self._turn += 1
        if self._left:
            turn, seconds = self._turn, max(0.0, min(self._left.values())) / self._rate
            self._env.timeout(seconds).callbacks.append(lambda _: self._end(turn))

    def _end(self, turn: int) -> None:
        if turn != self._turn:
            return  # others have come or gone in between, and the plan is another one now
        self._pass()
        least = min(self._left.values())
        for done in [one for one, left in self._left.items() if left <= least + 1e-12]:
            del self._left[done]
            done.succeed()
        self._plan()


class Node(Party):
    """A host: its name, and its processor, which does one thing at a time.

    ``times`` are calibrated, by span name and number of values; ``transfer`` is what sending or receiving a message
    takes of the processor.
    """

    def __init__(self, cluster: Simulation, who: str, times: Mapping[str, Line]) -> None:
        self.cluster, self.env, self.config, self.who, self._times = cluster, cluster.env, cluster.config, who, times
        self._processor = simpy.Resource(self.env)

    def event(self) -> simpy.Event:
        return self.env.event()

    def spend(self, spans: tuple[str, ...], values: float, step: int) -> Way[None]:
        """Until the processor is free, that is a wait."""
        times = [(name, self._times[name].at(values)) for name in spans if name in self._times]
        if not times:
            return
        began = self.env.now
        with self._processor.request() as turn:
            yield turn
            self.cluster.record("wait", self.who, began, step)
            for name, seconds in times:
                began = self.env.now
                yield from self.cluster.work(self.who, seconds)
                self.cluster.record(name, self.who, began, step)


class Trainer(Node):
    """A worker: a shard of the problem, and a gradient after a while."""

    def __init__(self, cluster: Simulation, rank: int, times: Mapping[str, Line]) -> None:
        super().__init__(cluster, f"worker {rank}", times)
        self.rank, self.problem = rank, cluster.job.problem.shard(rank, self.config.workers)
        self.bytes_sent = self.bytes_received = 0
        self._plain = cluster.plain
        self._rows = min(self.config.batch_size or self.problem.rows, self.problem.rows)
        self._computing = False
        self._process: simpy.Process | None = None

    def start(self) -> simpy.Process:
        """Begin to train."""
        self._process = self.process(self.train())
        return self._process

    def process(self, steps: Way[Any]) -> simpy.Process:
        """Begin something that goes on beside the rest. What goes wrong in it ends the run."""
        return self.env.process(self._guard(steps))

    def train(self) -> Way[None]:
        """The training loop."""
        raise NotImplementedError

    def compute_delay(self, clock: int) -> Way[bool]:
        """The time of one gradient; False where this worker gave it up."""
        began, self._computing = self.env.now, True
        engine, delays = self.cluster.engine, self.config.delays
        with suppress(simpy.Interrupt):
            if engine.cluster:
                yield from self.cluster.work(self.who, engine.seconds(self._plain, self.rank, clock, self._rows))
                least = delays.of(self.rank, clock, self.config.seed) if delays else 0.0
                yield self.env.timeout(max(0.0, began + least - self.env.now))
            else:
                yield self.env.timeout(engine.seconds(self.config, self.rank, clock, self._rows))
        self.cluster.record("compute", self.who, began, clock)
        finished, self._computing = self._computing, False
        return finished

    def give_up(self) -> None:
        """Leave the gradient that is being computed, if one is."""
        if self._computing and self._process:
            self._computing = False
            self._process.interrupt()

    def _guard(self, steps: Way[Any]) -> Way[Any]:
        try:
            return (yield from steps)
        except DivergedError as error:
            self.cluster.diverge(str(error))
            yield self.env.event()
        except Exception as error:
            self.cluster.fail(self.who, error)
            yield self.env.event()  # that never happens: nothing waits for this in vain, as the run is over
