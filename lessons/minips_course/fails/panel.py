"""See when a memory fails: walks to a minimum, with a memory, a rate, a threshold and a curvature of your choice."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from minips.lab.charts import LINE, PENS, Chart, Drawing, Scale
from minips.lab.panels import Panel
from minips.stage import Value, option
from minips.stages.memories import ErrorFeedback, Memory
from minips_course.fails.walks import LAST, SHOWN, Walk, walk

STEPS = 4000


@dataclass(frozen=True)
class Asked(Value):
    """The memory, and what a walk depends on."""

    memory: Memory = option(ErrorFeedback(), "what happens to the rest of a gradient")
    rate: float = option(0.1, "the learning rate", minimum=0.02, maximum=0.5, step=0.02)
    threshold: float = option(0.5, "t: +t, 0 or −t is sent", minimum=0.1, maximum=5, step=0.1)
    curvature: float = option(1.0, "λ: the gradient is λw", minimum=0.2, maximum=5, step=0.2)


class Walked(NamedTuple):
    """Walks, and what was asked."""

    walk: Walk
    asked: Asked

    @property
    def stops(self) -> float:
        """Where the gradient is as large as the threshold: t/λ."""
        return self.asked.threshold / self.asked.curvature

    @property
    def hop(self) -> float:
        """What one message moves w by: rate · t."""
        return self.asked.rate * self.asked.threshold


class ThresholdWalk(Panel[Asked, Walked]):
    """Walks to the minimum of λw²/2 with gradients sent as +t, 0 or −t: draws w from one of the 101 starts."""

    title = "A walk with a threshold"
    asks = Asked
    repeats = True

    def find(self, asked: Asked) -> Walked:
        return Walked(walk(asked.memory, asked.rate, asked.threshold, asked.curvature, STEPS), asked)

    def chart(self, found: Walked, width: float) -> Drawing:
        path = found.walk.path[:, SHOWN]
        settled = found.walk.settled(max(found.hop, found.stops))
        steps = min(len(path) - 1, max(100, int(1.5 * settled)))
        steps = steps if settled < STEPS else STEPS
        low, high = min(path.min(), -found.stops, -found.hop), max(path.max(), found.stops)
        margin = 0.05 * (high - low)
        chart = Chart(width, 280, Scale("step", 0, steps), Scale("w", low - margin, high + margin))
        chart.areas((0, steps), (-found.stops, found.stops), "dim", "within t/λ of the minimum", pale=True)
        for side in (-found.hop, found.hop):
            chart.line([0, steps], [side, side], LINE, "rate · t to each side" if side > 0 else "", 1)
        chart.line(np.arange(steps + 1), path[: steps + 1], PENS[0], "w, from 5.03")
        return chart.drawing()

    def words(self, found: Walked) -> str:
        walked = found.walk
        return (
            f"{found.asked.memory}: from around 5, walks go up to {walked.beyond:.2f} beyond the minimum. In the last "
            f"{LAST} of {STEPS} steps they are within {walked.end:.2f} of it; t/λ is {found.stops:.2f}, rate · t is "
            f"{found.hop:.2f}. The memory holds at most {walked.held:.0f}."
        )
