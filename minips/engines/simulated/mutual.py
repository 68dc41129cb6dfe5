"""Workers that add up their gradients among themselves in virtual time.

`SimRank` executes `minips.core.reduction.all_reduce` in virtual time; `Replica` makes the steps.
"""

from collections import Counter
from typing import cast

from minips.core.loop import Compute, train_together
from minips.core.reduction import AllReduceState
from minips.core.sessions import Session, Until
from minips.drivers.events import Signal, Task
from minips.drivers.peer import greeting_of
from minips.drivers.virtual import RankNode
from minips.engines.replica import Replica, check_replicas, contribute, requantization_error
from minips.engines.simulated.simulation import Simulation, Trainer
from minips.machines.calibration import rank_lines
from minips.machines.fit import Line
from minips.results.run import Rows, Run
from minips.results.state import WorkerState, state_of
from minips.results.trace import UNTIMED
from minips.stage import Frames
from minips.stages.aggregators import Contribution
from minips.stages.transports.framing import size

SENT_AT_BYTES = 8
"""The bytes of the frame in which a real message carries its sending time."""


class Team:
    """The workers, by rank, and their common progress."""

    def __init__(self, simulation: Simulation) -> None:
        job, count = simulation.job, simulation.config.workers
        kept = job.state["workers"] if job.state else [None] * count
        self.simulation, self.changed_at = simulation, 0.0
        self.losses: Rows = []
        self.workers: list[SimRank] = []
        self.workers += [self.rank(rank, kept[rank]) for rank in range(count)]
        for worker in self.workers:
            worker.greet()
        self.applied = sum(worker.replica.shard.applied for worker in self.workers)
        self._began, self.updates = self.applied // count, simulation.config.clocks * count
        self.decided = Signal()
        """Signals the end of the next pause."""

    def rank(self, number: int, state: WorkerState | None) -> "SimRank":
        """Create a worker."""
        return SimRank(self, number, state)

    def begin(self) -> list[Signal]:
        """Start the workers. Returns the signals of their ends."""
        return [worker.start(worker.train()) for worker in self.workers]

    def result(self) -> Run:
        """Return the results at the run's end."""
        simulation, workers = self.simulation, self.workers
        reports = [worker.replica.report() for worker in workers]
        states = [worker.replica.state(worker.reduction, worker.seen) for worker in workers]
        digests, shard = [report["digest"] for report in reports], reports[0]["shard"]
        check_replicas(digests)
        simulation.report(self.applied, self.updates, self.losses, last=True)
        return Run(
            config=simulation.config,
            params=dict(reports[0]["params"]),
            seconds=self.changed_at,
            losses=self.losses,
            updates=self.applied,
            state=None if simulation.failure else state_of([], [{**kept, "replica": shard} for kept in states]),
            stopped=simulation.diverged is None and reports[0]["applied"] < simulation.config.clocks,
            diverged=simulation.diverged,
            bytes_sent=sum(worker.bytes_sent for worker in workers),
            bytes_received=sum(worker.bytes_received for worker in workers),
            staleness=sum((report["staleness"] for report in reports), Counter()),
            grants=[grant for report in reports for grant in report["grants"]],
            trace=simulation.trace,
            requantization_error=requantization_error([report["samples"] for report in reports]),
            replicas=digests,
            events=simulation.happened,
        )

    def stepped(self) -> None:
        """Count a worker's step; the slowest worker's step adds a row of losses."""
        self.applied, self.changed_at = self.applied + 1, self.simulation.events.now
        step = self.applied // len(self.workers)
        made = step - self._began
        if made > len(self.losses) and all(len(worker.replica.losses) >= made for worker in self.workers):
            losses = [worker.replica.losses[made - 1][2] for worker in self.workers]
            self.losses.append((self.changed_at, step * self.simulation.config.local_steps, sum(losses) / len(losses)))
            self.simulation.report(self.applied, self.updates, self.losses)

    def paused(self) -> Session[bool]:
        """Run the session of a worker's pause, until the last worker has reached it. Return True if the run ends."""
        decided = self.decided
        if all(worker.replica.shard.paused for worker in self.workers):
            self.decided = Signal()
            shard = self.workers[0].replica.shard
            decided.succeed(self.simulation.evaluate(shard.applied, shard.params, self.losses))
        yield Until(lambda: decided.triggered, 0)
        return cast(bool, decided.value)


class SimRank(RankNode, Trainer):
    """A worker with its replica of the parameters."""

    def __init__(self, team: Team, rank: int, state: WorkerState | None) -> None:
        simulation, config, params = team.simulation, team.simulation.config, team.simulation.job.params
        calibration = simulation.engine.calibration
        super().__init__(simulation, rank, rank_lines(calibration, config) if calibration else {})
        self._team, self.ranks = team, team.workers
        self.idle = calibration.hop_idle if calibration else Line()
        self.reduction = AllReduceState(config, rank, params, UNTIMED)
        self.replica = Replica(params, config, rank, UNTIMED, simulation.every)
        self.seen = self.replica.restore(state, self.reduction) if state else None

    def greet(self) -> None:
        """Count the bytes of this worker's greetings to its targets. They take no time: the clock has not started."""
        nbytes, now = size(greeting_of(self.rank)), self.events.now
        for rank in self.reduction.targets:
            self.bytes_sent += nbytes
            self.ranks[rank].bytes_received += nbytes
            self.trace.laps(("",), (now,) * 2, "greeting", rank, None, nbytes)
            self.ranks[rank].trace.laps(("", ""), (now,) * 3, "greeting", self.rank, None, nbytes)

    def train(self) -> Task[None]:
        seen = self.seen if self.config.overlap else None
        clocks = range(self.replica.shard.version, self.config.clocks)
        self.seen = yield from self.carry_out(
            train_together(self.replica.copy, self._exchange, clocks, self.config.overlap, seen)
        )

    def compute(self, need: Compute, step: None) -> Task[tuple[Contribution, str]]:
        yield from self.gradient_time(need.clock)
        return contribute(self.problem, self._plain, self.replica, need.clock, need.seen)

    def _exchange(self, clock: int, computed: tuple[Contribution, str]) -> Session[bool]:
        return self.replica.exchange(
            self.reduction, *computed, self.simulation.halt, self._team.paused, self._team.stepped
        )

    def until(self, wanted: Until, step: int) -> Task[None]:
        if not wanted.ready():
            yield self._team.decided

    def nbytes(self, parcel: Frames) -> int:
        return super().nbytes(parcel) + SENT_AT_BYTES
