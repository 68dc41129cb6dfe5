"""A storm of retries with sliders: callers, waits, jitter, retries, and a server that knows the deadlines or not."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from minips.lab.charts import LINE, PENS, Chart, Drawing, Scale, beside, half
from minips.lab.panels import Panel
from minips.stage import Array, Value, option
from minips_course.survive import storm

UNTIL = 5_000
"""The end of the picture, in milliseconds."""
EDGES = np.arange(0, UNTIL + 100, 100)
"""The edges of its bars."""


@dataclass(frozen=True)
class Asked(Value):
    """The callers, and how they wait."""

    callers: int = option(200, "callers that call at the same moment", minimum=50, maximum=400, step=50)
    wait: float = option(0.0, "before the first retry, then doubled; 0: at once", minimum=0, maximum=0.8, step=0.05)
    jitter: bool = option(False, "draw each wait at random below its bound")
    retries: int = option(200, "after which a caller gives up for good", minimum=0, maximum=200, step=10)
    told: bool = option(False, "the server is told when a caller gives up, and drops its call then")

    def storm(self) -> storm.Storm:
        """Simulate it."""
        rule = (storm.drawn if self.jitter else storm.doubled)(1e3 * self.wait)
        return storm.storm(rule, self.callers, told=self.told, retries=self.retries)


class Found(NamedTuple):
    """The setting, and what came of it."""

    asked: Asked
    storm: storm.Storm


class RetryStorm(Panel[Asked, Found]):
    """Draws how many callers have their answer against time, and for whom the server works.

    >>> panel = RetryStorm()
    >>> [len(panel.find(Asked(wait=wait, jitter=True)).storm.came) for wait in (0, 0.4)]
    [50, 200]
    """

    title = "A storm of retries"
    asks = Asked
    labels = {"wait": "base wait", "told": "deadlines sent along"}
    repeats = True

    def find(self, asked: Asked) -> Found:
        return Found(asked, asked.storm())

    def chart(self, found: Found, width: float) -> Drawing:
        many, came = found.asked.callers, np.sort(found.storm.came[found.storm.came <= UNTIL]) / 1e3
        seconds, end = Scale("time (s)", 0, UNTIL / 1e3), UNTIL / 1e3
        left = Chart(half(width), 250, seconds, Scale("callers with their answer", 0, 1.05 * many))
        left.line([0, end], [many] * 2, LINE, "all callers", 1)
        at, counts = np.repeat(came, 2), np.repeat(np.arange(came.size + 1), 2)
        left.line([0, *at, end], counts, PENS[0], "answered")
        right = Chart(half(width), 250, seconds, Scale("calls worked on, in 0.1 s", 0, 105))
        useful, wasted = (_in_bins(times) for times in (found.storm.useful, found.storm.wasted))
        for low, high, pen, name in (
            (0 * useful, useful, PENS[0], "answered in time"),
            (useful, useful + wasted, PENS[1], "for nobody"),
        ):
            (some,) = np.nonzero(high - low)
            sides = (EDGES[some] / 1e3, EDGES[some + 1] / 1e3)
            right.areas(sides, (low[some], high[some]), pen.ink, name, pale=low is useful)
        return beside(width, left.drawing(), right.drawing())

    def words(self, found: Found) -> str:
        asked, (answered, useful, wasted) = found.asked, found.storm
        came = found.storm.came
        bounds = f"{'drawn below ' * asked.jitter}{asked.wait:g} s, {2 * asked.wait:g} s and so on"
        how = bounds if asked.wait else "none"
        last = f", the last one after {came.max() / 1e3:.2f} s" if came.size == answered.size else ""
        told = " knew the deadlines, and" if asked.told else ""
        return (
            f"{asked.callers} callers, waits: {how}; at most {asked.retries} retries. After ten seconds {came.size} "
            f"have their answer{last}. The server{told} worked on {useful.size + wasted.size} calls, on {wasted.size} "
            "of them for nobody."
        )


def _in_bins(times: Array) -> Array:
    return np.histogram(times[times < UNTIL], EDGES)[0]
