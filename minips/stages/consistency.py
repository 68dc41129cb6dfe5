"""Consistency: when a worker waits for the others.

A worker's clock counts its completed pushes. A consistency model answers two questions:
- ``quorum(workers)``: how many pushes of one clock complete a round? A round is applied as one aggregate. If the answer
  is None, there are no rounds: each push is applied when it arrives, scaled by 1/workers.
- ``may_pull(clock, slowest)``: may a worker at ``clock`` read now, if the slowest live worker is at ``slowest``?
  With rounds, ``slowest`` is the number of complete rounds. A model that needs more information declares one argument
  instead, a `PullView`.
"""

import inspect
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from minips.stage import Stage, option, register

__all__ = ["ASP", "BSP", "SSP", "Consistency", "PullView"]


class PullView(NamedTuple):
    """The state of a run when a worker asks to pull, as a consistency model sees it."""

    worker: int
    clocks: Sequence[int]
    """The number of completed pushes of each worker."""
    slowest: int
    pushed_at: Sequence[float]
    """The time of each worker's last push (until its first: the run's start), in seconds on the clock of ``now``."""
    now: float
    state: dict[str, Any]
    """The model's own state: a dict that starts empty and is kept for the whole run."""


class Consistency(Stage):
    """The contract."""

    kind: ClassVar[str] = "consistency"

    @abstractmethod
    def quorum(self, workers: int) -> int | None:
        """The number of pushes that complete a round; None: no rounds. Raises ValueError for too few ``workers``."""

    @abstractmethod
    def may_pull(self, *args: Any, **kwargs: Any) -> bool:
        """``may_pull(clock, slowest)`` or ``may_pull(view)``: True if a pull may return now."""


def takes_view(consistency: Consistency) -> bool:
    """True if the model's ``may_pull`` accepts a `PullView`, False if it accepts a clock and the slowest clock."""
    return len(inspect.signature(consistency.may_pull).parameters) == 1


@register
@dataclass(frozen=True)
class BSP(Consistency):
    """Bulk synchronous parallel: all workers step together, and parameters change only between rounds.

    With ``backup`` workers a round needs that many fewer pushes; a later push is counted and dropped. Sources: Valiant
    1990, "A Bridging Model for Parallel Computation"; Chen et al. 2016, "Revisiting Distributed Synchronous SGD".
    """

    name = "bsp"
    backup: int = option(0, "pushes of a round that it does not wait for", minimum=0, step=1)

    def quorum(self, workers: int) -> int:
        if self.backup >= workers:
            raise ValueError(f"BSP(backup={self.backup}) needs more than {self.backup} workers, got {workers}.")
        return workers - self.backup

    def may_pull(self, clock: int, slowest: int) -> bool:
        return slowest >= clock


@register
@dataclass(frozen=True)
class SSP(Consistency):
    """Stale synchronous parallel: a worker reads at most ``staleness`` clocks ahead of the slowest one.

    A pull at clock c sees every update stamped c − staleness − 1 or earlier.
    Source: Ho et al. 2013, "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server", sec. 2.
    """

    name = "ssp"
    staleness: int = option(2, "clocks that a worker may be ahead", minimum=0, step=1)

    def quorum(self, workers: int) -> None:
        return None

    def may_pull(self, clock: int, slowest: int) -> bool:
        return slowest >= clock - self.staleness


@register
@dataclass(frozen=True)
class ASP(Consistency):
    """Asynchronous parallel: no worker waits. Source: Recht et al. 2011, "Hogwild!"; Dean et al. 2012, "DistBelief"."""

    name = "asp"

    def quorum(self, workers: int) -> None:
        return None

    def may_pull(self, clock: int, slowest: int) -> bool:
        return True
