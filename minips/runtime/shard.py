"""The server's decisions: who pushed what at which clock, what is ready to be applied, who may pull.

A shard is a state machine without a thread, a socket or a clock on the wall. The server drives it from sockets, a
simulation can drive it in virtual time, and a test can drive it in any order. Whoever drives it sees to it that one
call ends before the next.

With rounds (BSP) a push waits in the shard until its round has its quorum; the round is then applied as one aggregate,
in worker order. Without rounds (SSP, ASP) each push is applied at once, scaled by 1/workers, so that under plain SGD
one clock of all the workers moves the parameters as far as one round does. With momentum it does so once the velocity
is steady. Other steps do not shrink with the gradient: with n workers, weight decay is applied n times in a clock, Adam
moves n times as far, Adagrad about √n times. Divide ``weight_decay`` or ``lr`` by that.

An update that would make a parameter NaN or infinite is not applied: the run ends there, with the parameters before it.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, NamedTuple

import numpy as np

from minips.runtime.message import ADVICE, check_finite
from minips.stage import Array, Tensors, is_finite
from minips.stages.aggregators import Aggregator, Contribution
from minips.stages.consistency import Consistency
from minips.stages.optimizers import Optimizer

Outcome = Literal["applied", "held", "late", "duplicate", "over"]
"""What became of a push: applied; held until its round is complete; too late for its round and dropped; seen before;
after the end of the run, which it may have brought about: an update that would make parameters NaN or infinite is not
applied."""


STRETCH = 2**18
"""Values that are aggregated and applied at a time, so that what lies between the two stays in a core's cache."""


class Grant(NamedTuple):
    """A pull that was granted: whose, at which clock, and where the slowest was."""

    worker: int
    clock: int
    slowest: int


class Shard:
    """Parameters, and the rules by which they change.

    ``updates`` is how many applied pushes end the run; None for a shard that serves until it is closed. ``span(name)``
    is entered around aggregating and applying, so that whoever drives the shard can time them.
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
        span: Callable[[str], AbstractContextManager[Any]] = lambda name: nullcontext(),
    ) -> None:
        self.workers, self.updates, self._span = workers, updates, span
        self.aggregator, self.consistency, self.optimizer = aggregator, consistency, optimizer
        self.quorum = consistency.quorum(workers)
        self.version = 0
        self.rounds = 0
        self.applied = 0
        self.late = 0
        self.duplicates = 0
        self.clocks = [0] * workers
        self._missed = [range(0)] * workers
        self.live = set(range(workers))
        self._slowest: int | None = None
        self.staleness: Counter[int] = Counter()
        self.grants: list[Grant] = []
        self.losses: list[tuple[int, float]] = []
        self.stuck = ""
        """Why no round can be completed any more, where too many workers have left for the aggregator."""
        self.diverged: str | None = None
        """Why the run has ended before its updates were applied."""
        check_finite(dict(params), "The parameter")
        self._params = {name: x.copy() for name, x in params.items()}
        self._loans: dict[str, weakref.ref[Array]] = {}
        self._spare: tuple[Tensors, dict[str, weakref.ref[Array]]] = {}, {}
        """The arrays of the parameters before these, and what was lent of them: the next update goes there."""
        self._held: dict[int, Contribution] = {}
        in_pieces = aggregator.elementwise and optimizer.elementwise
        self._stretches = [*_stretches(self._params)] if in_pieces else [{name: slice(None) for name in params}]
        self._states: list[dict[str, Any]] = [{} for _ in self._stretches]
        self._recent: list[float] = []
        np.empty(4 * STRETCH)  # freed at once: from now on glibc keeps blocks of a stretch instead of unmapping them

    @property
    def params(self) -> Tensors:
        """The parameters as they are now, read-only. They stay as they are: an update goes to other arrays, and these
        are used again once nobody holds them, or a part of them.
        """
        lent = {}
        for name, p in self._params.items():
            loan = self._loans[name]() if name in self._loans else None
            if loan is None:
                loan = np.frombuffer(p.data, p.dtype) if p.size else p[...]  # alive for as long as any view of it
                loan.flags.writeable = False
                self._loans[name] = weakref.ref(loan)
            lent[name] = loan.reshape(p.shape)
        return lent

    @property
    def done(self) -> bool:
        """True once the run's updates have been applied, or it has diverged."""
        return self.diverged is not None or (self.updates is not None and self.applied >= self.updates)

    def diverge(self, reason: str) -> None:
        """End the run with the parameters as they are; what waits for its round is dropped."""
        if not self.done:
            self.diverged, self._held = reason, {}

    def slowest(self) -> int:
        """The clock that others wait for: the completed rounds or, without rounds, that of the slowest live worker."""
        if self.quorum is not None:
            return self.rounds
        if self._slowest is None:  # many ask between two pushes
            live = self.clocks if len(self.live) == self.workers else [self.clocks[worker] for worker in self.live]
            self._slowest = min(live, default=max(self.clocks))
        return self._slowest

    def seen(self, worker: int, clock: int) -> bool:
        """True for a push that has been taken before: a retry, to be acknowledged and forgotten."""
        if clock > self.clocks[self.known(worker)]:
            raise ValueError(
                f"Worker {worker} pushed at clock {clock}, but its clock here is {self.clocks[worker]}: "
                "pushes are missing between."
            )
        return clock < self.clocks[worker]

    def known_outcome(self, worker: int, clock: int) -> Outcome | None:
        """What has become of a push that was seen before, or of one that its worker missed while it was away; None for
        a new one.
        """
        if not self.seen(worker, clock):
            return None
        if clock in self._missed[worker]:
            self.late += 1
            return "late"
        self.duplicates += 1
        return "duplicate"

    def may_push(self, clock: int) -> bool:
        """False while a push of this clock has to wait for the round before it."""
        return self.quorum is None or clock <= self.rounds or self.done

    def push(self, contribution: Contribution, checked: bool = False) -> Outcome:
        """Take a push. ValueError, with nothing changed, where it does not fit the parameters or is not finite.

        ``checked``: `check` has seen the gradients already.
        """
        worker, clock = contribution.worker, contribution.clock
        if outcome := self.known_outcome(worker, clock):
            return outcome
        if not self.may_push(clock):
            raise ValueError(f"Worker {worker} pushed at clock {clock}, but round {self.rounds} is not complete.")
        if not checked:
            self.check(contribution.gradients)
        self.clocks[worker] = max(self.join(worker), clock + 1)
        self._slowest = None
        if self.done:
            return "over"
        if self.quorum is None:
            return "applied" if self._apply([contribution], 1 / self.workers) else "over"
        if clock < self.rounds:
            self.late += 1
            self.clocks[worker] = self.rounds
            return "late"
        self._held[worker] = contribution
        rounds = self.rounds
        self._complete_round()
        if self.diverged:
            return "over"
        return "applied" if self.rounds > rounds else "held"

    def skip(self, worker: int) -> None:
        """A worker gives up a gradient whose round was completed without it, and goes on with the round under way."""
        if self.quorum is not None and self.clocks[self.known(worker)] < self.rounds:
            self.late += 1
            self.clocks[worker] = self.rounds

    def may_pull(self, worker: int) -> bool:
        """True where a pull of this worker is to be answered now. After the end of the run, everybody's is."""
        return self.done or self.consistency.may_pull(self.clocks[self.known(worker)], self.slowest())

    def pull(self, worker: int) -> Tensors:
        """The parameters, for a worker that may pull."""
        if not self.done:
            self.grants.append(Grant(worker, self.clocks[worker], self.slowest()))
        return self.params

    def join(self, worker: int) -> int:
        """A worker is here, for the first time or again. Returns its clock.

        One that comes back goes on where the slowest of the others is, so that nobody waits for what it missed.
        """
        if self.known(worker) not in self.live:
            self._missed[worker] = range(self.clocks[worker], max(self.clocks[worker], self.slowest()))
            self.clocks[worker] = max(self.clocks[worker], self.slowest())
            self.live.add(worker)
            self._slowest = None
        return self.clocks[worker]

    def leave(self, worker: int) -> None:
        """A worker is gone: nobody waits for it any longer. What it has pushed counts."""
        self.live.discard(self.known(worker))
        self._slowest = None
        if self.quorum is not None:
            self._complete_round()

    def known(self, worker: Any) -> int:
        """``worker``, or ValueError where there is no such worker."""
        if not isinstance(worker, int) or not 0 <= worker < self.workers:
            raise ValueError(f"There are workers 0 to {self.workers - 1}; got worker {worker!r}.")
        return worker

    def check(self, gradients: Tensors) -> None:
        """ValueError where these are no gradients of the parameters, or not finite. Safe to call at any time."""
        if gradients.keys() != self._params.keys():
            raise ValueError(f"Expected gradients of {', '.join(self._params)}; got {', '.join(gradients) or 'none'}.")
        for name, p in self._params.items():
            g = gradients[name]
            if g.shape != p.shape or g.dtype != p.dtype:
                raise ValueError(
                    f"The gradient of {name!r} must be {p.dtype} of shape {p.shape}; got {g.dtype} of {g.shape}."
                )
        check_finite(gradients, "The gradient of")

    def _complete_round(self) -> None:
        assert self.quorum is not None
        arrived = len(self._held)
        if self._held and (arrived >= self.quorum or self.live <= self._held.keys()):
            if arrived < self.aggregator.least:
                self.stuck = (
                    f"{len(self.live)} workers are left, and {self.aggregator!r} needs {self.aggregator.least} "
                    "contributions at once, so no round can be completed any more."
                )
                return
            if self._apply([self._held[worker] for worker in sorted(self._held)], 1.0):
                self._held = {}
                self.rounds += 1

    def _apply(self, contributions: Sequence[Contribution], scale: float) -> bool:
        """Aggregate and step, into other arrays than those of today, which take their place if all of it is finite."""
        before, after = self._params, self._room()
        for stretch, state in zip(self._stretches, self._states, strict=True):
            with np.errstate(over="ignore", invalid="ignore"):
                with self._span("aggregate"):
                    gradients = self.aggregator.combine([self._piece(one, stretch) for one in contributions])
                with self._span("apply"):
                    if scale != 1.0:
                        gradients = {name: np.asarray(g * scale) for name, g in gradients.items()}
                    old = {name: _some(before[name], where) for name, where in stretch.items()}
                    new = {name: _some(after[name], where) for name, where in stretch.items()}
                    self.optimizer.step_into(new, old, gradients, state)
            for name, p in new.items():
                if not is_finite(p):
                    self.diverge(
                        f"Update {self.version + 1} would make the parameter {name!r} NaN or infinite, so it was not "
                        f"applied. {ADVICE}"
                    )
                    return False
        self._spare = before, self._loans
        self._params, self._loans = after, {}
        for one in contributions:
            self.staleness[self.version - one.version] += 1
        self.version += 1
        self.applied += len(contributions)
        self._recent += [one.loss for one in contributions]
        while len(self._recent) >= self.workers:
            mean = sum(self._recent[: self.workers]) / self.workers
            self.losses.append((self.applied // self.workers, mean))
            self._recent = self._recent[self.workers :]
        return True

    def _room(self) -> Tensors:
        """Arrays for the next parameters, values unknown: those before these, if no reader holds them any more."""
        spare, loans = self._spare
        if spare and all(loan() is None for loan in loans.values()):
            return spare
        return {name: np.empty_like(p) for name, p in self._params.items()}

    def _piece(self, one: Contribution, stretch: dict[str, slice]) -> Contribution:
        """A stretch of a contribution, and how old it is by now."""
        gradients = {name: _some(one.gradients[name], where) for name, where in stretch.items()}
        return one._replace(staleness=self.version - one.version, gradients=gradients)


def _stretches(params: Tensors) -> Iterator[dict[str, slice]]:
    """All of the parameters, cut into stretches of at most ``STRETCH`` values; small tensors share one."""
    stretch: dict[str, slice] = {}
    room = STRETCH
    for name, p in params.items():
        if p.size > STRETCH:
            for start in range(0, p.size, STRETCH):
                yield {name: slice(start, min(start + STRETCH, p.size))}
            continue
        if p.size > room:
            yield stretch
            stretch, room = {}, STRETCH
        stretch[name] = slice(None)
        room -= p.size
    if stretch:
        yield stretch


def _some(x: Array, where: slice) -> Array:
    """A view of a stretch of the flattened values; a whole tensor keeps its shape."""
    return x if where == slice(None) else x.reshape(-1)[where]
