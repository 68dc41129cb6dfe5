"""Wait, or don't: shows a short run with a straggler, its timeline and staleness, under any consistency rule."""

from dataclasses import dataclass

import numpy as np

from minips import datasets
from minips.core.config import Config
from minips.core.local import Delays
from minips.engines import Threads
from minips.lab.charts import Chart, Drawing, Scale, beside
from minips.lab.panels.base import Panel
from minips.lab.plots import GROUPS
from minips.lab.source import code
from minips.problems import SoftmaxRegression
from minips.results.run import Run
from minips.stage import Value, option
from minips.stages.consistency import SSP, Consistency
from minips.training.train import train

WORKERS, STEPS, COMPUTE_S = 4, 20, 0.02
SHOWN_S = 0.3
"""The seconds of the run that the timeline shows."""
BARS = {
    "compute": ("a", 0.36),
    "encode": ("b", 0.28),
    "transfer": ("c", 0.1),
    "wait": ("d", 0.16),
    "decode": ("dim", 0.28),
    "update": ("text", 0.36),
}
"""Maps a group of spans to the ink and the height of its bars."""


@dataclass(frozen=True)
class Straggler(Value):
    """The consistency rule, and the straggler's slowness."""

    consistency: Consistency = option(SSP(staleness=2), "the rule of waiting")
    slower: float = option(4.0, "factor by which worker 3 is slower", minimum=1, maximum=10, step=1, unit="×")
    comes_and_goes: bool = option(False, "draw each step's time from an exponential distribution")


class Stragglers(Panel[Straggler, Run]):
    """Runs four workers in threads, with steps of 20 ms and a slower worker 3: shows waits and gradients' ages.

    >>> Stragglers(slower=1.0).form.value().consistency
    SSP(staleness=2)
    """

    title = "Four workers, one slow"
    asks = Straggler
    labels = {"slower": "worker 3 slower by", "comes_and_goes": "slowness comes and goes"}
    instant = False

    def find(self, asked: Straggler) -> Run:
        delays = Delays(COMPUTE_S, slow={WORKERS - 1: asked.slower}, exponential=asked.comes_and_goes)
        return train(
            SoftmaxRegression(*datasets.digits()),
            Config(workers=WORKERS, steps=STEPS, consistency=asked.consistency, delays=delays),
            engine=Threads(),
            progress=lambda progress: self.job.progress(progress.applied, progress.updates),
            stop=self.job.stopping,
        )

    def chart(self, found: Run, width: float) -> Drawing:
        start = max((found.seconds - SHOWN_S) / 2, 0.0)
        stop = start + SHOWN_S
        parties = sorted({span.who for span in found.trace}) or [""]
        spans = [span for span in found.trace if span.start + span.seconds > start and span.start < stop]
        time = Scale("time since the start (ms)", 1e3 * start, 1e3 * stop)
        lanes = Chart(width, 240, time, Scale("", len(parties) - 0.5, -0.5, places=parties))
        for group, (ink, thick) in BARS.items():
            mine = [span for span in spans if span.name in GROUPS[group]]
            begin = 1e3 * np.array([span.start for span in mine])
            row = np.array([parties.index(span.who) for span in mine])
            end = begin + 1e3 * np.array([span.seconds for span in mine])
            lanes.areas((begin, end), (row - thick, row + thick), ink, group)
        versions, counts = np.array(sorted(found.staleness.items()) or [(0, 0)]).T
        most = max(int(versions.max()), 3)
        places = tuple(map(str, range(most + 1))) if most < 20 else ()
        staleness = Scale("staleness (versions)", -0.6, most + 0.6, places=places)
        ages = Chart(width, 170, staleness, Scale("gradients", 0, 1.1 * max(counts.max(), 1)))
        ages.areas((versions - 0.4, versions + 0.4), (0, counts), "a")
        return beside(width, lanes.drawing(), ages.drawing())

    def words(self, found: Run) -> str:
        versions = list(found.staleness.elements())
        mean, most = sum(versions) / max(len(versions), 1), max(versions, default=0)
        late = f" {found.late} pushes came too late and were dropped." if found.late else ""
        return (
            f"{code(found.config.consistency, package=False)}: {found.updates} updates in {found.seconds:.2f} s. "
            f"Top: what each worker and server did when. Below: the gradients were {mean:.1f} versions old on average, "
            f"{most} at most."
            f"{late}"
        )
