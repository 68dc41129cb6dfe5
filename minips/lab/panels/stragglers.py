"""Wait, or don't: shows a short run with a straggler, its timeline and staleness, under any consistency rule."""

from dataclasses import dataclass

from matplotlib.figure import Figure

from minips import datasets
from minips.core.config import Config
from minips.core.local import Delays
from minips.engines import Threads
from minips.lab import plots
from minips.lab.panels.base import Panel
from minips.lab.source import code
from minips.problems import SoftmaxRegression
from minips.results.run import Run
from minips.stage import Value, option
from minips.stages.consistency import SSP, Consistency
from minips.training.train import train

WORKERS, STEPS, COMPUTE_S = 4, 20, 0.02
SHOWN_S = 0.3
"""The seconds of the run that the timeline shows."""


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

    title = "Stragglers"
    asks = Straggler
    instant = False
    heights = (5.2, 5.6)

    def find(self, asked: Straggler) -> Run:
        delays = Delays(COMPUTE_S, slow={WORKERS - 1: asked.slower}, exponential=asked.comes_and_goes)
        return train(
            SoftmaxRegression(*datasets.digits()),
            Config(workers=WORKERS, steps=STEPS, consistency=asked.consistency, delays=delays),
            engine=Threads(),
            progress=lambda progress: self.job.progress(progress.applied, progress.updates),
            stop=self.job.stopping,
        )

    def draw(self, found: Run, figure: Figure) -> None:
        top, below = figure.subplots(2, 1, height_ratios=(5, 3))
        start = max((found.seconds - SHOWN_S) / 2, 0.0)
        plots.timeline(found, seconds=(start, start + SHOWN_S), ax=top)
        plots.staleness(found, ax=below)

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
