"""Which schedule is fast on which network: the time of a step over the size of a gradient, in virtual time."""

from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import minips as ps
from minips.cost import Topology
from minips.lab.charts import PENS, Chart, Drawing, Pen, Scale
from minips.lab.panels import Panel
from minips.stage import Array, Value, option
from minips_course.network import timing

SIZES = np.geomspace(1, 10_000, 41)
"""The sizes of the curves in kB."""
SIMULATED = 1, 20, 60, 1_000
"""The sizes, in kB, whose times are simulated; other times are on the straight lines through these."""
NUMBERINGS = ("in order", "in zigzag")


@dataclass(frozen=True)
class Place(Value):
    """A network, the workers on it, and a gradient."""

    topology: Topology = option(ps.Star(2e7, 5e-3), "the network")
    numbering: str = option("in order", "the numbers of the workers, from place to place", choices=NUMBERINGS)
    workers: int = option(8, "workers, each with a gradient", minimum=2, maximum=16, step=2)
    kilobytes: int = option(100, "size of a gradient", minimum=1, maximum=10_000, unit="kB", step=1)


class Costs(NamedTuple):
    """The seconds of a step by way."""

    asked: Place
    curves: dict[str, Array]
    """For each of `SIZES`."""
    here: dict[str, float]

    @property
    def first(self) -> str:
        """The fastest way."""
        return min(self.here, key=self.here.__getitem__)


class SchedulesOnNetworks(Panel[Place, Costs]):
    """Draws the time of a step over the size of the gradient, for servers and schedules on any network.

    >>> panel = SchedulesOnNetworks()
    >>> [panel.find(Place(kilobytes=size)).first for size in (1, 1_000)]
    ['servers', 'halving']
    """

    title = "Schedules on a network"
    asks = Place
    labels = {"kilobytes": "gradient size"}
    repeats = True

    def find(self, asked: Place) -> Costs:
        curves, here = {}, {}
        for way in timing.ways(asked.workers):
            with suppress(ValueError):  # this number of workers is not possible
                took = [_step_s(way, asked, size) for size in SIMULATED]
                here[way] = _step_s(way, asked, asked.kilobytes)
                beyond = took[-1] + (took[-1] - took[-2]) / (SIMULATED[-1] - SIMULATED[-2]) * (
                    SIZES[-1] - SIMULATED[-1]
                )
                curves[way] = np.interp(SIZES, (*SIMULATED, SIZES[-1]), (*took, beyond))
        return Costs(asked, curves, here)

    def chart(self, found: Costs, width: float) -> Drawing:
        times = 1e3 * np.array([*found.curves.values()])
        low, high = 10.0 ** np.floor(np.log10(times.min())), 10.0 ** np.ceil(np.log10(times.max()))
        x = Scale("size of a gradient (kB)", SIZES[0], SIZES[-1], log=True)
        chart = Chart(width, 320, x, Scale("time of a step (ms)", low, high, log=True))
        chart.line([found.asked.kilobytes] * 2, [low, high], Pen("dim", "cross"), "the gradient size", 1)
        for (way, curve), pen in zip(found.curves.items(), (*PENS, Pen("dim", "square")), strict=False):
            chart.line(SIZES, 1e3 * curve, pen, way)
            chart.marks((found.asked.kilobytes, 1e3 * found.here[way]), pen)
        return chart.drawing()

    def words(self, found: Costs) -> str:
        asked = found.asked
        times = ", ".join(f"{way} {1e3 * seconds:.1f}" for way, seconds in found.here.items())
        return (
            f"{asked.topology.name}, {asked.workers} workers {asked.numbering}, {asked.kilobytes} kB. Virtual ms of a "
            f"step: {times}. The fastest: {found.first}."
        )


def _step_s(way: str, asked: Place, kilobytes: int) -> float:
    """Return the seconds of a step in virtual time."""
    fields = timing.ways(asked.workers)[way]
    numbers = timing.zigzag(asked.workers) if asked.numbering == NUMBERINGS[1] else [*range(asked.workers)]
    graph = timing.placed(asked.topology, numbers, fields.get("servers", 0))
    return timing.virtual_s(fields, graph, 1_000 * kilobytes, asked.workers)
