"""A step on paper: the least and the most that α and β allow, beside measured steps, and the queue that it needs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from minips.lab.charts import PENS, Chart, Drawing, Scale
from minips.lab.panels import Panel
from minips.stage import Array, Value, option

MOST_WORKERS = 32
FULL, OWN = 1514, 1448
"""The bytes of a full packet, and those of a message in it."""
WORKERS = np.arange(1, MOST_WORKERS + 1)
HERE = 4, 80.0, 100.0
"""The workers, the kB of a message and the Mbit/s of the measured steps."""
EXAMPLE: Mapping[float, float] = {4000: 0.046, 10: 0.17}
"""Round numbers, for a panel that gets no measured ones."""


@dataclass(frozen=True)
class Asked(Value):
    """The network, the workers, and what each of them pushes and gets."""

    megabits: float = option(HERE[2], "bandwidth of each link", minimum=1, maximum=100_000, unit="Mbit/s")
    milliseconds: float = option(0.0, "latency of a message, α", minimum=0, maximum=100, unit="ms")
    kilobytes: float = option(HERE[1], "size of a push and of an answer", minimum=1, maximum=10_000, unit="kB")
    workers: int = option(HERE[0], "workers that share one server", minimum=1, maximum=MOST_WORKERS, step=1)
    buffer: float = option(10.0, "what the switch can hold for each link", minimum=3, maximum=4000, unit="kB")


class Step(NamedTuple):
    """The least and the most seconds of a step for each number of `WORKERS`, and the kB of the longest queue."""

    asked: Asked
    least: Array
    most: Array
    queue: float

    @property
    def holds(self) -> bool:
        """Whether the buffer holds the longest queue."""
        return self.queue <= self.asked.buffer


class StepOnPaper(Panel[Asked, Step]):
    """Shows the least and the most seconds of a step on paper, for 1 to 32 workers, and the queue at the server's link.

    >>> StepOnPaper().find(Asked(workers=1)).holds
    True
    """

    title = "Step on paper"
    asks = Asked
    labels = {"megabits": "bandwidth", "milliseconds": "latency", "kilobytes": "message size"}

    def __init__(self, measured: Mapping[float, float] = EXAMPLE, **asked: Any) -> None:
        self.measured = measured
        """Maps the kB of a buffer to the seconds of a measured step."""
        super().__init__(**asked)

    def find(self, asked: Asked) -> Step:
        alpha, one = asked.milliseconds / 1e3, asked.kilobytes * 8e3 * FULL / OWN / (1e6 * asked.megabits)
        queue = (asked.workers - 1) * asked.kilobytes * FULL / OWN
        return Step(asked, 2 * alpha + (WORKERS + 1) * one, 2 * alpha + 2 * WORKERS * one, queue)

    def chart(self, found: Step, width: float) -> Drawing:
        asked = found.asked
        shown = self.measured if (asked.kilobytes, asked.megabits) == HERE[1:] else {}
        ms = 1e3 * np.array([*found.least, *found.most, *shown.values()])
        x = Scale("workers", 0, MOST_WORKERS + 1)
        chart = Chart(width, 300, x, Scale("time of a step (ms)", ms.min() / 1.5, ms.max() * 1.5, log=True))
        chart.line(WORKERS, 1e3 * found.least, PENS[0], "one message after another")
        chart.line(WORKERS, 1e3 * found.most, PENS[1], "messages share a link")
        for (buffer, seconds), pen in zip(shown.items(), PENS[2:], strict=False):
            chart.marks((HERE[0], 1e3 * seconds), pen, f"measured with {buffer:,g} kB", 6)
        for curve, pen in zip((found.least, found.most), PENS, strict=False):
            chart.marks((asked.workers, 1e3 * curve[asked.workers - 1]), pen)
        return chart.drawing()

    def words(self, found: Step) -> str:
        asked, at = found.asked, found.asked.workers - 1
        least, most = (_short(1e3 * curve[at]) for curve in (found.least, found.most))
        workers = "1 worker pushes" if asked.workers == 1 else f"{asked.workers} workers push"
        verdict = "fits in" if found.holds else "overflows"
        return (
            f"{workers} {asked.kilobytes:g} kB each over {asked.megabits:g} Mbit/s: a step of "
            f"{least} to {most} ms on paper. If all push at once, up to "
            f"{found.queue:,.0f} kB wait at the server's link. That {verdict} a buffer of {asked.buffer:,g} kB."
        )


def _short(number: float) -> str:
    """Return a number in three digits, without an exponent.

    >>> _short(3409.2), _short(0.40109)
    ('3,410', '0.401')
    """
    return f"{float(f'{number:.3g}'):,.10g}"
