"""The server's decisions: which worker has pushed at which clock, which update is due, and which worker may pull.

A shard is a state machine without thread, socket or wall clock. A server's sessions call it in real runs, simulations
and predictions; a test can call it in any order. Each call must end before the next one begins.

With rounds (BSP), the shard answers ``held`` immediately and holds the push until its round is complete: with its
quorum, or with a push of every live worker. Then it applies the round as one aggregate, in worker order. Without rounds
(SSP, ASP), it applies each push immediately, scaled by 1/workers. So under plain SGD, one clock of all the workers (n
applied pushes of n workers) moves the parameters as far as one round. With momentum, this holds once the velocity is
steady. Other steps do not scale with the gradient: with n workers, weight decay is applied n times in a clock, Adam
moves n times as far, Adagrad about √n times as far. Divide ``weight_decay`` or ``lr`` by that factor.

The shard does not apply an update that would make a parameter NaN or infinite: the run ends with the parameters before
that update. If an aggregator or an optimizer raises, the run has failed: the shard refuses all new pushes, since part
of the optimizer's state may have changed.
"""

import copy
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from math import inf, isfinite
from typing import Any, Literal, NamedTuple, Self, cast

import numpy as np

from minips.core.config import Config
from minips.core.message import ADVICE, AT_FIRST, NonFiniteError, check_finite, mismatch
from minips.core.parameters import Parameters
from minips.core.partition import native
from minips.core.rows import TableParameters
from minips.core.states import RunState
from minips.results.state import ExactState, ShardState
from minips.stage import ONE_THREAD, Array, Tensors
from minips.stages.aggregators import Aggregator, Contribution
from minips.stages.consistency import Consistency, PullView, takes_view
from minips.stages.optimizers import Optimizer
from minips.words import message_of

Outcome = Literal["applied", "held", "late", "duplicate", "over"]
"""The outcome of a push: applied; held until its round is complete; dropped as late for its round; a duplicate; over:
it came after the end of the run, or its update would have made parameters NaN or infinite."""

OUTSTANDING = 64
"""The number of late pushes that the shard remembers for each worker, so that a repetition gets the same outcome."""

_PAUSED, _STUCK, _FAILED = RunState.PAUSED, RunState.STUCK, RunState.FAILED  # read at each push
_MADE = ("held", "optimizer", "exact")  # parts of a state that are no attributes
_STATE = [name for name in ShardState.__annotations__ if name not in _MADE]


class Grant(NamedTuple):
    """A granted pull: the worker, its clock, and the slowest clock."""

    worker: int
    clock: int
    slowest: int


def check_gradients(gradients: Mapping[str, Any], params: Tensors) -> Tensors:
    """Return these gradients in the order of ``params`` and in this machine's byte order. ValueError if names, shapes
    or dtypes differ from the parameters'; NonFiniteError if a value is NaN or infinite.
    """
    if gradients.keys() != params.keys():
        raise ValueError(f"Expected gradients of {', '.join(params)}; got {', '.join(gradients) or 'none'}.")
    ordered: Tensors = {}
    for name, p in params.items():
        given = gradients[name]
        g = given if type(given) is np.ndarray and given.dtype.isnative else native(given, f"The gradient of {name!r}")
        if g.shape != p.shape or g.dtype != p.dtype:
            raise mismatch(name, g, p.dtype, p.shape)
        if g.size > ONE_THREAD or not isfinite(np.vdot(g, g)):  # a square of finite values may overflow
            check_finite({name: g}, "The gradient of")
        ordered[name] = g
    return ordered


class Shard:
    """Parameters, and the rules by which pushes change them.

    ``updates`` counts pushes, not versions: the run ends after this number of pushes, which includes those that rounds
    lack because workers have left. None: it has no end. ``now()`` is the time that a consistency model sees. The shard
    pauses after every ``every`` applied pushes (with rounds: workers × rounds). Pushes and, with rounds, pulls then
    wait for `go_on`, so that an engine can read unchanging parameters.
    """

    def __init__(
        self,
        params: Mapping[str, Array],
        *,
        workers: int,
        aggregator: Aggregator,
        consistency: Consistency,
        optimizer: Optimizer,
        updates: int | None = None,
        now: Callable[[], float] = lambda: 0.0,
        every: float = inf,
        tables: Collection[str] = (),
    ) -> None:
        self.workers, self.updates, self.now, self.every = workers, updates, now, every
        self.aggregator, self.consistency, self.optimizer = aggregator, consistency, optimizer
        self.quorum = consistency.quorum(workers)
        self._least = aggregator.least
        stages = aggregator, optimizer, now
        self.parameters = TableParameters(tables, params, *stages) if tables else Parameters(params, *stages)
        self.version = 0
        """The number of updates."""
        self.rounds = 0
        """With rounds, the complete ones: as many as updates, except in a run resumed from one without rounds."""
        self.applied = 0
        """The number of pushes applied."""
        self.made = 0
        """Applied pushes, plus those that complete rounds lacked of their quorum because workers had left."""
        self._counted = 0
        """The count for pauses: applied pushes or, with rounds, workers × complete rounds. All servers complete the
        same rounds, even if a worker was lost between two of them.
        """
        self.pause_at = every
        """The next count at which the shard pauses."""
        self.late = 0
        self.duplicates = 0
        self.clocks = [0] * workers
        self._missed = [range(0)] * workers
        """For each worker, the clocks that it skipped while away; the shard has not seen the pushes of these clocks."""
        self._dropped = [deque[int](maxlen=OUTSTANDING) for _ in range(workers)]
        """The clocks of each worker's last late pushes, to recognize repetitions."""
        self._over = [0] * workers
        """For each worker, the clocks by which pushes with the outcome ``over`` have advanced it."""
        self.live = set(range(workers))
        self._slowest: int | None = None
        self.staleness: Counter[int] = Counter()
        self.grants: list[Grant] = []
        self.losses: list[tuple[int, float]] = []
        self.run = RunState.RUNNING
        self.stuck = ""
        """The reason why no further round can be completed: too few workers are left, some did not come in time, or a
        stage has raised an error.
        """
        self.diverged: str | None = None
        """The reason why the run ended before its updates were applied."""
        self._held: dict[int, Contribution] = {}
        self._due: tuple[list[Contribution], Contribution | None] = [], None
        """The contributions of the update that is due, and the push that completed it."""
        self.recent_losses: list[float] = []
        """The losses of the contributions since the last complete clock of all the workers."""
        self.sees_time = takes_view(consistency)
        """True if the consistency model accepts a `PullView`, which contains the time."""
        self._pushed_at = [now()] * workers
        self.policy_state: dict[str, Any] = {}
        """The consistency model's own state, from one pull to the next."""

    @classmethod
    def of(cls, config: Config, params: Mapping[str, Array], **others: Any) -> Self:
        """A shard with a config's stages and workers; ``others`` are further arguments, or replace the config's."""
        stages = {"aggregator": config.aggregator, "consistency": config.consistency, "optimizer": config.optimizer}
        return cls(params, **{"workers": config.workers, **stages, **others})

    @property
    def missing(self) -> int:
        """The number of pushes by which complete rounds fell short of their quorum because workers had left."""
        return self.made - self.applied

    @property
    def params(self) -> Tensors:
        """The current parameters, read-only. Updates write to other arrays."""
        return self.parameters.lend()

    @property
    def at_border(self) -> bool:
        """True between two updates, while no push waits for its round and the run has not failed."""
        return not self._held and self.run is not _FAILED

    def state(self, exact: bool = False) -> ShardState:
        """The state for a saved run, without the parameters; see `restore`. It contains the pushes that wait for their
        round, but none that arrived after the end. An ``exact`` state also says where each worker is.
        """
        clocks = [at - self._over[worker] - (worker in self._held) for worker, at in enumerate(self.clocks)]
        kept = {name: getattr(self, name) for name in _STATE}
        held = [tuple(contribution) for contribution in self._held.values()]
        state = cast(ShardState, {**kept, "clocks": clocks, "held": held, "optimizer": self.parameters.states})
        if exact:
            state["exact"] = ExactState(
                run=self.run.word,
                diverged=self.diverged,
                pause_at=self.pause_at,
                counted=self._counted,
                late=self.late,
                duplicates=self.duplicates,
                live=sorted(self.live),
                clocks=[*self.clocks],
                missed=[[clocks.start, clocks.stop] for clocks in self._missed],
                dropped=[[*clocks] for clocks in self._dropped],
                over=[*self._over],
                staleness=dict(self.staleness),
            )
        return state

    def restore(self, state: ShardState) -> None:
        """Resume from the state of a saved run: at its round, with all workers or, from an exact state, where each one
        was. ValueError if the optimizer's state has other blocks.
        """
        kept: Any = {"made": state["applied"], **state}  # earlier files lack it
        for name in _STATE:
            setattr(self, name, copy.deepcopy(kept[name]))
        if self.quorum is not None:  # workers begin at the current round; a run without rounds has counted none
            self.rounds = max(self.rounds, self.made // self.workers)
            self.clocks = [self.rounds] * self.workers
        self._counted = self.applied if self.quorum is None else self.rounds * self.workers
        self.parameters.restore(state["optimizer"])
        if exact := state.get("exact"):
            self._restore_place(exact)
            return
        if self.updates is not None and self.made >= self.updates:
            self.end()
        for contribution in state.get("held", ()):
            self.push(Contribution(*contribution), checked=True)
        self.go_on()

    def _restore_place(self, place: ExactState) -> None:
        """Continue where each worker was. A run that was stopped goes on."""
        self.late, self.duplicates, self._counted = place["late"], place["duplicates"], place["counted"]
        self.live, self.clocks, self._over = {*place["live"]}, [*place["clocks"]], [*place["over"]]
        self._missed = [range(*clocks) for clocks in place["missed"]]
        self._dropped = [deque(clocks, OUTSTANDING) for clocks in place["dropped"]]
        self.staleness, self._slowest = Counter(place["staleness"]), None
        self.pause_at, self.diverged = place["pause_at"], place["diverged"]
        if self.diverged is not None:
            self.run = RunState.DIVERGED
        elif self.updates is not None and self.made >= self.updates:
            self.run = RunState.OVER
        else:
            self.run = RunState.PAUSED if place["run"] == _PAUSED.word else RunState.RUNNING

    @property
    def done(self) -> bool:
        """True once the run is over: all its updates have been made, it has diverged, or `end` was called."""
        return self.run.final

    @property
    def paused(self) -> bool:
        """True while pushes, and with rounds also pulls, wait for `go_on`."""
        return self.run is RunState.PAUSED

    def pause(self, at: float | None = None) -> float:
        """Pause at this count; for None, at the next clock of all the workers, unless sooner. Returns the count."""
        soon = (self._counted // self.workers + 1) * self.workers
        self.pause_at = min(self.pause_at, soon) if at is None else at
        self.run = self.run.after("pause" if self._counted >= self.pause_at else "go on")
        return self.pause_at

    def go_on(self) -> None:
        """End the current pause."""
        self.pause((self._counted // self.every + 1) * self.every)

    def end(self) -> None:
        """End the run with the current parameters; the state keeps the pushes that wait for their round."""
        self.run = self.run.after("end")

    def diverge(self, reason: str) -> None:
        """End the run as diverged, with the current parameters."""
        if not self.run.final:
            self.diverged = reason
        self.run = self.run.after("diverge")

    def strand(self, reason: str) -> None:
        """Note the reason why no round can be completed, until an update is made after all."""
        self.stuck = reason
        self.run = self.run.after("strand")

    def fail(self, reason: str) -> None:
        """Refuse all new pushes from now on, for this reason."""
        self.run, self.stuck = self.run.after("fail"), reason

    def slowest(self) -> int:
        """The clock for which other workers wait: the complete rounds or, without rounds, the slowest live worker's."""
        if self.quorum is not None:
            return self.rounds
        if self._slowest is None:  # it is read many times between two pushes
            live = self.clocks if len(self.live) == self.workers else [self.clocks[worker] for worker in self.live]
            self._slowest = min(live, default=max(self.clocks))
        return self._slowest

    def is_new(self, worker: int, clock: int) -> bool:
        """True for a push that the shard has not seen yet: the worker's next push, or one that it skipped while away.
        ValueError if earlier pushes of the worker are missing. After the end, they may be: no journal has them.
        """
        at = self.clocks[worker]
        if clock > at:
            if self.run.final:
                return True
            raise ValueError(
                f"Worker {worker} pushed at clock {clock}, but its clock here is {at}: pushes are missing between."
            )
        return clock == at or clock in self._missed[worker]

    def repeated(self, worker: int, clock: int) -> Outcome:
        """The outcome of a push that the shard has seen before: ``late`` if it was dropped, else ``duplicate``."""
        self.duplicates += 1
        return "late" if clock in self._dropped[worker] else "duplicate"

    def may_push(self, clock: int) -> bool:
        """False while a push of this clock must wait for the previous round, or for the end of a pause."""
        run = self.run
        return run.final or (run is not _PAUSED and (self.quorum is None or clock <= self.rounds))

    def push(self, contribution: Contribution, checked: bool = False) -> Outcome:
        """Take a push, and make the update that it completes, if any. ValueError, with nothing changed, if the push
        does not fit the parameters or is not finite. RuntimeError if a stage raises: the run has then failed.

        ``checked``: the caller has already called `is_new`, `may_push` and `check`.
        """
        return self.take(contribution, checked) or self.apply()

    def take(self, contribution: Contribution, checked: bool = False) -> Outcome | None:
        """Take a push as `push` does. Returns None if an update is due; the next call must then be `apply`."""
        worker, clock = contribution.worker, contribution.clock
        if not checked:
            if not self.is_new(self.validate_worker(worker), clock):
                return self.repeated(worker, clock)
            if not self.may_push(clock):
                raise ValueError(f"Worker {worker} pushed at clock {clock}, but round {self.rounds} is not complete.")
            self.check(contribution.gradients)
        if self.run is _FAILED:
            raise RuntimeError(self.stuck)
        if worker not in self.live:
            self.join(worker)
        if self.run.final:
            return self._record(contribution, "over")
        if self.quorum is None:
            self._due = [contribution], contribution
            return None
        if clock < self.rounds:
            self.late += 1
            self._dropped[worker].append(clock)
            return self._record(contribution, "late")
        self._held[worker] = contribution
        return None if self._complete_round(contribution) else self._record(contribution, "held")

    def apply(self) -> Outcome:
        """Make the update that is due, with its contributions as one aggregate. Returns the outcome of the push that
        completed it: ``over`` if the run has diverged instead.
        """
        (contributions, last), self._due = self._due, ([], None)
        in_rounds, aged = self.quorum is not None, []
        for contribution in contributions:
            staleness = self.version - contribution.version
            aged.append(contribution._replace(staleness=staleness) if staleness else contribution)
        try:
            lost = self.parameters.update(aged, 1.0 if in_rounds else 1 / self.workers, self.made // self.workers)
        except Exception as error:
            self.fail(
                f"Update {self.version + 1} failed and was not applied: {type(error).__name__}: {message_of(error)} "
                f"(with {self.aggregator!r} and {self.optimizer!r})."
            )
            if in_rounds and last:  # its worker gets the error; the others' pushes were acknowledged, and are kept
                del self._held[last.worker]
            raise RuntimeError(self.stuck) from error
        if lost is not None:
            self.diverge(
                f"Update {self.version + 1} would make the parameter {lost!r} NaN or infinite, so it was not "
                f"applied. {ADVICE}"
            )
            if in_rounds and last:  # it will not be applied, so a saved run does not hold it
                del self._held[last.worker]
            return self._record(last, "over") if last else "over"
        for contribution in aged:
            self.staleness[contribution.staleness] += 1
            self.recent_losses.append(contribution.loss)
        self.version += 1
        self.applied += len(contributions)
        self.made += len(contributions)
        self._counted = self.applied
        if self.quorum is not None:
            self._held = {}
            self.rounds += 1
            self._counted = self.rounds * self.workers
            if lacking := max(self.quorum - len(aged), 0):
                self.made += lacking
                self.recent_losses += [sum(self.recent_losses[-len(aged) :]) / len(aged)] * lacking
        if self.run is _STUCK:
            self.stuck, self.run = "", self.run.after("update")
        if self.updates is not None and self.made >= self.updates:
            self.end()
        elif self._counted >= self.pause_at:
            self.run = self.run.after("pause")
        while len(self.recent_losses) >= self.workers:
            mean = sum(self.recent_losses[: self.workers]) / self.workers
            self.losses.append((self.made // self.workers, mean))
            self.recent_losses = self.recent_losses[self.workers :]
        return self._record(last, "applied") if last else "applied"

    def _record(self, contribution: Contribution, outcome: Outcome) -> Outcome:
        """Record a push's outcome, and advance its worker's clock."""
        worker, clock = contribution.worker, contribution.clock
        if outcome == "over":
            self._over[worker] += max(clock + 1 - self.clocks[worker], 0)
        if clock in self._missed[worker]:
            self._missed[worker] = range(clock + 1, self._missed[worker].stop)
        self.clocks[worker] = max(self.clocks[worker], clock + 1, self.rounds if outcome == "late" else 0)
        self._slowest = None
        if self.sees_time:
            self._pushed_at[worker] = self.now()
        return outcome

    def skip(self, worker: int) -> None:
        """Move a worker to the current round, after it abandoned a gradient whose round was completed without it."""
        if self.quorum is not None and self.clocks[self.validate_worker(worker)] < self.rounds:
            self.late += 1
            self.clocks[worker] = self.rounds

    def may_pull(self, worker: int) -> bool:
        """True if the server may answer this worker's pull now. After the end of the run, it may answer every pull.

        During a pause with rounds, it may not answer any. Without rounds, a pause does not delay pulls: only pushes
        change the parameters, and other servers may need this worker's next push to reach their own pauses.
        """
        if self.run.final or (self.quorum is not None and self.run is _PAUSED):
            return self.run.final
        if not self.sees_time:
            slowest = self.rounds if self.quorum is not None else self.slowest()
            return self.consistency.may_pull(self.clocks[worker], slowest)
        clocks, pushed_at = tuple(self.clocks), tuple(self._pushed_at)
        view = PullView(worker, clocks, self.slowest(), pushed_at, self.now(), self.policy_state)
        return self.consistency.may_pull(view)

    def pull(self, worker: int) -> Tensors:
        """Return the parameters to a worker that may pull."""
        if not self.run.final:
            slowest = self.rounds if self.quorum is not None else self.slowest()
            self.grants.append(Grant(worker, self.clocks[worker], slowest))
        return self.parameters.lend()

    def join(self, worker: int) -> int:
        """Count a departed worker again. At first every worker is counted, whether connected or not. Returns its clock.

        It continues at the slowest other worker's clock, or at its own if that is later, so no worker waits for it.
        """
        if self.validate_worker(worker) not in self.live:
            at, missed = self.clocks[worker], self._missed[worker]
            self.clocks[worker] = max(at, self.slowest())
            # A push of a skipped clock may still arrive. Clocks skipped in an earlier absence are kept if they adjoin.
            self._missed[worker] = range(missed.start if missed and missed.stop == at else at, self.clocks[worker])
            self.live.add(worker)
            self._slowest = None
        return self.clocks[worker]

    def leave(self, worker: int) -> None:
        """Stop counting a worker: the others no longer wait for it. Its earlier pushes still count."""
        if self.depart(worker):
            with suppress(RuntimeError):  # no push can be refused; `stuck` tells waiting workers why
                self.apply()

    def depart(self, worker: int) -> bool:
        """Stop counting a worker, as `leave` does. Returns True if this makes an update due; then call `apply`."""
        self.live.discard(self.validate_worker(worker))
        self._slowest = None
        return self.quorum is not None and self._complete_round(None)

    def validate_worker(self, worker: Any) -> int:
        """Return ``worker``. ValueError if there is no such worker."""
        if not isinstance(worker, int) or not 0 <= worker < self.workers:
            raise ValueError(f"There are workers 0 to {self.workers - 1}; got worker {worker!r}.")
        return worker

    def check(self, gradients: Tensors) -> None:
        """ValueError if the gradients do not fit the parameters, or are not finite. Safe to call at any time."""
        try:
            check_gradients(gradients, self.parameters.arrays)
        except NonFiniteError as error:
            raise NonFiniteError(f"{error} {ADVICE if self.version else AT_FIRST}") from None

    def _complete_round(self, last: Contribution | None) -> bool:
        """True if the round has its quorum, or a push of every live worker; ``last`` is the newest push."""
        assert self.quorum is not None
        arrived = 0 if self.run is _FAILED or self.run.final else len(self._held)
        if not arrived or (arrived < self.quorum and not self.live <= self._held.keys()):
            return False
        if arrived < self._least:
            self.strand(
                f"{len(self.live)} workers are left, and {self.aggregator!r} needs {self.aggregator.least} "
                "contributions at once, so no round can be completed any more."
            )
            return False
        self._due = list(map(self._held.__getitem__, sorted(self._held))), last
        return True
