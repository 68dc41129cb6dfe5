"""Is the simulation right? The same configs in virtual time and for real, one worker slower than the others."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from minips.core.calibration import Calibration
from minips.core.config import Config, Delays
from minips.cost.calibrate import calibrate
from minips.engines import Engine, Processes
from minips.engines.simulated.engine import Simulated
from minips.engines.train import train
from minips.problems import Problem
from minips.stages.consistency import ASP, BSP, SSP, Consistency

SLOW = Delays(seconds=0.05, slow={1: 4.0})


class Row(NamedTuple):
    """Seconds per step under one consistency."""

    consistency: Consistency
    simulated_s: float
    measured_s: float

    @property
    def ratio(self) -> float:
        """Simulated over measured."""
        return self.simulated_s / self.measured_s


def against_measured(
    problem: Problem,
    config: Config | None = None,
    *,
    engine: Engine | None = None,
    calibration: Calibration | None = None,
    report: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Seconds per step under BSP, SSP, ASP and BSP with a backup worker: simulated, and measured on ``engine`` (None:
    `Processes`).

    ``config`` (None: four workers, of which one computes four times slower, and 20 steps) says everything else. A real
    straggler cannot give up, so the simulated ones do not either. ``report`` is called after each row, of which the
    default takes a few seconds.
    """
    config = config or Config(workers=4, steps=20, delays=SLOW)
    simulated = Simulated(calibration=calibration or calibrate(config, problem), abandon=False)
    rows = []
    for consistency in (BSP(), SSP(), ASP(), BSP(backup=1)):
        same = replace(config, consistency=consistency)
        runs = [train(problem, same, engine=one) for one in (simulated, engine or Processes())]
        rows.append(Row(consistency, *(run.seconds_per_step for run in runs)))
        report(rows[-1])
    return rows
