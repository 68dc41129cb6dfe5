"""Overlap, switched on and off: workers in virtual time, with any latency and any time of computing."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

import minips as ps
from minips.lab.charts import Chart, Drawing, Scale
from minips.lab.panels import Panel
from minips.stage import Array, Value, option
from minips_course.hide import calls

STEPS, SHOWN = 20, 5
"""The steps of a run, and the steps without overlap whose time the picture shows."""
ROWS = {"transfer": ("messages", "b"), "compute": ("computing", "a")}
"""Maps the name of a span to the name of its row and to its ink."""


@dataclass(frozen=True)
class Asked(Value):
    """Whether workers overlap, and the times of a message and of a gradient."""

    overlap: bool = option(False, "compute the next gradient while the last one travels")
    latency_ms: int = option(20, "time that each message travels", minimum=0, maximum=100, step=5, unit="ms")
    compute_ms: int = option(40, "time that each gradient takes", minimum=5, maximum=200, step=5, unit="ms")


class Steps(NamedTuple):
    """A run, the seconds of its median step, and of the same step without overlap."""

    run: ps.Run
    asked: Asked
    step_s: float
    plain_s: float

    @property
    def gain(self) -> float:
        """How many times as fast a step is as without overlap."""
        return self.plain_s / self.step_s

    @property
    def stale(self) -> int:
        """The largest staleness of a gradient, in versions."""
        return max(self.run.staleness)

    def spans(self, name: str) -> Array:
        """Return start and end (s) of each span of worker 0 with this name, shape (2, spans)."""
        mine = [one for one in self.run.trace if (one.who, one.name) == ("worker 0", name)]
        starts = np.array([one.start for one in mine])
        return np.stack([starts, starts + [one.seconds for one in mine]])


@cache
def simulate(asked: Asked) -> ps.Run:
    """Simulate two workers with links of 1 Gbit/s."""
    link, delays = ps.Link(1e9, asked.latency_ms / 1e3), ps.Delays(seconds=asked.compute_ms / 1e3)
    config = ps.Config(workers=2, steps=STEPS, link=link, delays=delays, overlap=asked.overlap)
    return ps.train(ps.SoftmaxRegression(*ps.datasets.digits()), config, engine=ps.Simulated())


def compare(asked: Asked) -> Steps:
    """Compare a run with the one without overlap."""
    run, plain = simulate(asked), simulate(Asked(False, asked.latency_ms, asked.compute_ms))
    return Steps(run, asked, *(float(np.median(calls.steps(one))) for one in (run, plain)))


def gains(compute_ms: Iterable[int], latency_ms: int = 20) -> list[float]:
    """Return, for each of these times of computing, how many times as fast a step is with overlap as without."""
    return [compare(Asked(True, latency_ms, each)).gain for each in compute_ms]


class Overlap(Panel[Asked, Steps]):
    """Draws when worker 0 computes and when its messages travel, with overlap and without.

    >>> found = Overlap().find(Asked(overlap=True, latency_ms=20, compute_ms=40))
    >>> round(found.gain, 1), found.stale
    (2.0, 1)
    """

    title = "Compute while a message travels"
    asks = Asked
    labels = {"latency_ms": "latency", "compute_ms": "computing"}
    repeats = True

    def find(self, asked: Asked) -> Steps:
        return compare(asked)

    def chart(self, found: Steps, width: float) -> Drawing:
        end_s = SHOWN * found.plain_s
        rows = Scale("", -0.5, len(ROWS) - 0.5, places=[label for label, _ in ROWS.values()])
        chart = Chart(width, 150, Scale("virtual time of worker 0 (s)", 0, end_s), rows)
        for place, (name, (_, ink)) in enumerate(ROWS.items()):
            starts, ends = found.spans(name)
            shown = starts < end_s
            if shown.any():
                chart.areas((starts[shown], ends[shown]), (place - 0.35, place + 0.35), ink, pale=True)
        return chart.drawing()

    def words(self, found: Steps) -> str:
        asked, step = found.asked, f"{found.step_s:.3g} virtual s"
        took = f"With overlap a step takes {step}, {found.gain:.2f} times as fast as without"
        took = took if asked.overlap else f"Without overlap a step takes {step}"
        age = f"is at most {found.stale} version stale" if found.stale else "is never stale"
        there_and_back = f"messages travel for {2 * asked.latency_ms / 1e3:g} s, there and back"
        times = f"In a step computing takes {asked.compute_ms / 1e3:g} s, and {there_and_back}"
        return f"{took}. {times}. A gradient {age}."
