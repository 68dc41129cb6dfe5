"""A storm of retries with sliders: callers, waits, jitter, retries, and a server that knows the deadlines or not."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from minips.lab.panels import Panel
from minips.lab.panels.base import side_by_side
from minips.lab.plots import LOOKS
from minips.stage import Value, option
from minips_course.survive import storm
from minips_course.survive.pictures import step

UNTIL, BIN = 5_000, 100
"""Milliseconds: the end of the picture, and the width of a bar."""


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
    heights = (3.0, 5.4)

    def find(self, asked: Asked) -> Found:
        return Found(asked, asked.storm())

    def draw(self, found: Found, figure: Figure) -> None:
        left, right = side_by_side(figure)
        step(left, found.storm.came, UNTIL, **LOOKS[0].line | {"marker": ""})
        left.axhline(found.asked.callers, color="0.5", linestyle=":", linewidth=1)
        left.set(xlabel="time (s)", ylabel="callers", title="Have their answer", ylim=(0, 1.08 * found.asked.callers))
        edges = np.arange(0, UNTIL + BIN, BIN)
        useful, wasted = (np.histogram(times, edges)[0] for times in (found.storm.useful, found.storm.wasted))
        bars: dict[str, Any] = {"width": BIN / 1e3, "align": "edge"}
        right.bar(edges[:-1] / 1e3, useful, label="answered in time", **bars, **LOOKS[0].area)
        right.bar(edges[:-1] / 1e3, wasted, bottom=useful, label="for nobody", **bars, **LOOKS[1].area)
        right.set(xlabel="time (s)", ylabel="calls in 0.1 s", title="The server works on", ylim=(0, 105))
        right.set_xlim(0, UNTIL / 1e3)
        right.legend(loc="upper right")

    def words(self, found: Found) -> str:
        asked, (answered, useful, wasted) = found.asked, found.storm
        came = found.storm.came
        how = f"from {asked.wait:g} s on, {'drawn' if asked.jitter else 'doubled'}" if asked.wait else "none"
        last = f", the last one after {came.max() / 1e3:.2f} s" if came.size == answered.size else ""
        return (
            f"{asked.callers} callers, waits: {how}; {asked.retries} retries at most. After ten seconds {came.size} "
            f"have their answer{last}. The server worked on {useful.size + wasted.size} calls, on {wasted.size} of "
            "them for nobody."
        )
