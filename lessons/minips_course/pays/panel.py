"""Which codec is the first at its aim: a slider of the bandwidth on the map of codecs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from minips.lab import interval
from minips.lab.charts import LINE, PENS, Chart, Drawing, Pen, Scale
from minips.lab.panels import Panel
from minips.stage import Array, Value, option
from minips_course.pays import timing
from minips_course.pays.timing import Way

Costs = Mapping[int, Mapping[str, Sequence[Way]]]
"""Maps a number of features to the ways to train, and each of those to what it takes, by seed."""
FEW, MANY = 2_000, 20_000
"""The numbers of features whose codecs are measured; between them, times and bytes are interpolated."""
LEAST, MOST = 0.1, 10.0
"""The ends of the axis of speed-ups."""
RATES = np.geomspace(1, 100_000, 101)
"""Bandwidths in Mbit/s."""
EXAMPLE: Costs = {
    FEW: {
        "exact": [Way(steps, 7e-5, 2e-5, 80_135, 1e-5, 3e-5, 80_135) for steps in (26, 28, 30)],
        "8 bits": [Way(steps, 7e-5, 1e-4, 20_261, 9e-5, 2e-4, 20_261) for steps in (27, 29, 30)],
    },
    MANY: {
        "exact": [Way(steps, 5e-4, 4e-5, 800_135, 2e-5, 6e-5, 800_135) for steps in (26, 28, 30)],
        "8 bits": [Way(steps, 5e-4, 3e-4, 200_263, 2e-4, 4e-4, 200_263) for steps in (27, 29, 30)],
    },
}
"""Round numbers, for a panel that gets no measured ones."""


@dataclass(frozen=True)
class Network(Value):
    """The links, the gradient, and the workers."""

    megabits: float = option(100.0, "bandwidth of each link", minimum=1, maximum=100_000, unit="Mbit/s")
    features: int = option(FEW, "features of a digit: ten values each", minimum=FEW, maximum=MANY, step=1000)
    workers: int = option(4, "workers that share the server's link", minimum=1, maximum=16, step=1)


class Race(NamedTuple):
    """The seconds until 90 % are read, by way and seed, at the bandwidth and at those of the curves."""

    asked: Network
    here: dict[str, Array]
    curves: dict[str, Array]
    """How many times as soon as with exact gradients, on average, for each of `RATES`."""

    @property
    def first(self) -> str:
        """The way with the fewest seconds on average."""
        return min(self.here, key=lambda name: float(self.here[name].mean()))


class CodecRace(Panel[Network, Race]):
    """Draws how many times as soon each codec is at its aim as exact gradients, against the bandwidth.

    >>> panel = CodecRace()
    >>> [panel.find(Network(megabits=rate)).first for rate in (100, 100_000)]
    ['8 bits', 'exact']
    """

    title = "Which codec is first"
    asks = Network
    labels = {"megabits": "bandwidth"}
    repeats = True

    def __init__(self, costs: Costs = EXAMPLE, **asked: Any) -> None:
        self.costs = costs
        super().__init__(**asked)

    def find(self, asked: Network) -> Race:
        share = (asked.features - FEW) / (MANY - FEW)
        ways = {
            name: [
                Way(*(few + share * (many - few) for few, many in zip(*pair, strict=True)))
                for pair in zip(self.costs[FEW][name], self.costs[MANY][name], strict=True)
            ]
            for name in self.costs[FEW]
        }
        seconds = {
            name: np.array([timing.until(some, 1e6 * rate, asked.workers) for rate in (*RATES, asked.megabits)])
            for name, some in ways.items()
        }
        means = {name: table.mean(axis=1) for name, table in seconds.items()}
        curves = {name: (means["exact"] / one)[:-1] for name, one in means.items() if name != "exact"}
        return Race(asked, {name: table[-1] for name, table in seconds.items()}, curves)

    def chart(self, found: Race, width: float) -> Drawing:
        x = Scale("bandwidth of each link (Mbit/s)", RATES[0], RATES[-1], log=True)
        chart = Chart(width, 300, x, Scale("times as soon as exact gradients", LEAST, MOST, log=True))
        chart.line([RATES[0], RATES[-1]], [1, 1], LINE, "exact gradients", 1)
        chart.line([found.asked.megabits] * 2, [LEAST, MOST], Pen("dim", "cross"), "the bandwidth", 1)
        for (name, curve), pen in zip(found.curves.items(), PENS, strict=False):
            chart.line(RATES, curve, pen, name)
            chart.marks((found.asked.megabits, found.here["exact"].mean() / found.here[name].mean()), pen)
        return chart.drawing()

    def words(self, found: Race) -> str:
        asked = found.asked
        values = 10 * asked.features + 10
        seconds = "; ".join("{} {:.2g} ± {:.1g} s".format(name, *interval(one)) for name, one in found.here.items())
        workers = "1 worker" if asked.workers == 1 else f"{asked.workers} workers"
        return (
            f"{asked.megabits:g} Mbit/s, {values} values, {workers}: first is {found.first}. Until 90 % are read: "
            f"{seconds} (means of the seeds, with 95 % intervals)."
        )
