"""Who waits for whom: any rule, four to sixteen workers, one of them slow or all of them at times, played back."""

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import minips as ps
from minips.stage import Value, option
from minips_course.server import panel

COMPUTE_S, STEPS = 0.02, 20
SLOWNESS = {
    "always": ps.Delays(COMPUTE_S, slow={3: 4.0}),
    "comes and goes": ps.Delays(COMPUTE_S, exponential=True),
}


@dataclass(frozen=True)
class Asked(Value):
    """The rule, the kind of slowness, and the number of workers."""

    rule: ps.Consistency = option(ps.SSP(staleness=2), "whose pull waits")
    slowness: str = option("always", "worker 3 is always 4 times slower, or all are slow at times", choices=SLOWNESS)
    workers: int = option(4, "the number of workers", minimum=4, maximum=16, step=4)


@dataclass(frozen=True)
class Outcome(panel.Outcome):
    """A run under a rule, and the seconds of the same run under BSP."""

    bsp_s: float

    @property
    def waited(self) -> float:
        """The share of the workers' time in which they waited for other workers."""
        waits = sum(span.seconds for span in self.run.trace if span.name == "wait")
        return waits / (self.run.config.workers * self.run.seconds)


def simulate(rule: ps.Consistency, slowness: str = "always", workers: int = 4) -> Outcome:
    """Simulate a run in which only computing takes time."""
    config = ps.Config(workers=workers, steps=STEPS, consistency=rule, delays=SLOWNESS[slowness])
    run = ps.train(ps.SoftmaxRegression(*ps.datasets.digits()), config, engine=ps.Simulated(abandon=False))
    return Outcome(type(rule).__name__, run, run.seconds if rule == ps.BSP() else _bsp_s(slowness, workers))


@cache
def _bsp_s(slowness: str, workers: int) -> float:
    return simulate(ps.BSP(), slowness, workers).run.seconds


class WhoWaits(panel.ServerRules):
    """Plays a run under a rule back, and tells its time as a share of BSP's.

    >>> WhoWaits(rule=ps.ASP()).find(Asked(rule=ps.ASP())).waited
    0.0
    """

    title = "Who waits, and for how long"
    asks: ClassVar[Any] = Asked
    labels = {}
    heights = (3.6, 3.6)

    def find(self, asked: Any) -> Outcome:
        return simulate(asked.rule, asked.slowness, asked.workers)

    def words(self, found: Any) -> str:
        run, rule = found.run, found.run.config.consistency
        late = f" The server dropped {run.late} late pushes." if run.late else ""
        return (
            f"{rule}, {run.config.workers} workers: {run.updates} updates in {run.seconds:.2f} virtual s, "
            f"{run.seconds / found.bsp_s:.0%} of BSP's time. The workers waited {found.waited:.0%} of their time.{late}"
        )
