"""A rule, a learning rate, a momentum, constant or random times: when is the loss at its goal?"""

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

import minips as ps
from minips.lab.charts import PENS, Chart, Drawing, Pen, Scale
from minips.lab.panels import Panel
from minips.stage import Array, Value, option
from minips_course.stale import borders

TIMES = {"constant": ps.Delays(seconds=0.01), "random": ps.Delays(seconds=0.01, exponential=True)}
GOAL, STEPS, LAST_S = 0.001, 120, 2.5
"""The loss above its minimum that counts as there, the steps of a run, and the end of the axis."""
LOWEST, HIGHEST = 1e-5, 10.0


@dataclass(frozen=True)
class Asked(Value):
    """A rule, and what it trains with."""

    rule: ps.Consistency = option(ps.ASP(), "who waits for whom")
    rate: float = option(1.9, "lr · λ", minimum=0.1, maximum=6, step=0.1)
    momentum: float = option(0.0, "share of the velocity that is kept", minimum=0, maximum=0.9, step=0.1)
    times: str = option("random", "whether a step's time is drawn", choices=tuple(TIMES))


class Curve(NamedTuple):
    """A run's loss above its minimum, and its border."""

    asked: Asked
    at: Array
    """Virtual seconds."""
    above: Array
    border: float
    waits: tuple[Array, Array]
    """The same curve of BSP without momentum, at lr · λ = 1.9."""

    @property
    def there_s(self) -> float:
        """When the loss is within `GOAL` of its minimum; infinite if it never is."""
        return float(next((at for at, above in zip(self.at, self.above, strict=True) if above <= GOAL), np.inf))


@cache
def _curve(rule: ps.Consistency, rate: float, momentum: float, times: str) -> tuple[Array, Array]:
    rows = np.array(borders.train(rate, rule, TIMES[times], momentum, steps=STEPS).losses)
    return rows[:, 0], np.nan_to_num(rows[:, 2] - borders.LEAST, nan=np.inf)


class OldGradients(Panel[Asked, Curve]):
    """Draws the loss above its minimum against virtual seconds: four workers, all with the same rows.

    >>> OldGradients().find(Asked(rule=ps.ASP(), rate=1.9)).there_s < 2
    True
    """

    title = "A rule at its own rate"
    asks = Asked
    labels = {"rate": "lr · λ"}
    repeats = True

    def find(self, asked: Asked) -> Curve:
        border = borders.border(asked.rule, TIMES[asked.times], asked.momentum, seeds=1)
        curve = _curve(asked.rule, asked.rate, asked.momentum, asked.times)
        return Curve(asked, *curve, border, _curve(ps.BSP(), 1.9, 0.0, asked.times))

    def chart(self, found: Curve, width: float) -> Drawing:
        y = Scale("loss above its minimum", LOWEST, HIGHEST, log=True)
        chart = Chart(width, 300, Scale("virtual seconds", 0, LAST_S), y)
        chart.line([0, LAST_S], [GOAL, GOAL], Pen("text", "plus", "2 3"), "the goal", 1.5)
        chart.line(*_inside(*found.waits), Pen("dim", "circle"), "BSP without momentum, lr · λ = 1.9")
        chart.line(*_inside(found.at, found.above), PENS[0], "your choice")
        if found.there_s <= LAST_S:
            chart.marks((found.there_s, GOAL), PENS[0])
        return chart.drawing()

    def words(self, found: Curve) -> str:
        asked = found.asked
        grows = found.above[-1] > found.above[0]
        end = "the loss grows" if grows else f"the goal is not reached in {STEPS} steps"
        there = f"at the goal after {found.there_s:.2f} virtual s" if np.isfinite(found.there_s) else end
        return (
            f"{asked.rule}, lr · λ = {asked.rate:g}, momentum {asked.momentum:g}, {asked.times} times: {there}. "
            f"The border is {found.border:.2f} with this one seed."
        )


def _inside(at: Array, above: Array) -> tuple[Array, Array]:
    """What lies on the chart's axes."""
    shown = (at <= LAST_S) & (above >= LOWEST) & (above <= HIGHEST)
    return at[shown], above[shown]
