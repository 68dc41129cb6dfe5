"""Average rounded gradients: the error that is left, against the number of workers."""

from dataclasses import dataclass
from typing import NamedTuple

from minips.lab.charts import PENS, Chart, Drawing, Pen, Scale
from minips.lab.panels import Panel
from minips.stage import Array, Value, option
from minips_course.rounding import average

LEAST, LARGEST = 0.005, 5.0
"""The ends of the axis of errors."""
NAMES = {"nearest": "nearest rounding", "at_random": "random rounding", "unrounded": "no rounding"}


@dataclass(frozen=True)
class Rounded(Value):
    """What the workers hold, and the grid to which they round it."""

    workers: int = option(256, "workers that are averaged", minimum=1, maximum=average.MOST, step=1)
    levels: int = option(8, "levels from the smallest to the largest value", minimum=3, maximum=32, step=1)
    held: str = option("32 rows each", "what each worker computes its gradient of", choices=tuple(average.ROWS))
    grid: str = option("own", "levels of each gradient's own, or the same levels for all", choices=average.GRIDS)
    shift: float = option(0.0, "steps by which the common grid is moved", minimum=0, maximum=0.875, step=0.125)


class Left(NamedTuple):
    """The errors of the average, by the way of rounding."""

    curves: dict[str, Array]
    """For 1, 2, 4, … 1024 workers."""
    here: dict[str, float]
    """For the number that was asked for."""
    asked: Rounded


class RoundedAverage(Panel[Rounded, Left]):
    """Draws how far the mean of n gradients is from the true one: rounded to the nearest level, at random, and not.

    >>> here = RoundedAverage().find(Rounded(workers=256)).here
    >>> here["unrounded"] < here["nearest"] < here["at_random"]
    True
    """

    title = "Average of rounded gradients"
    asks = Rounded
    labels = {"held": "gradients", "shift": "shift of the common grid"}
    repeats = True

    def find(self, asked: Rounded) -> Left:
        counts = (*average.COUNTS, asked.workers)
        found = average.errors(asked.held, asked.grid, asked.levels, asked.shift, counts)
        curves = {way: errors[:-1] for way, errors in found.items()}
        return Left(curves, {way: float(errors[-1]) for way, errors in found.items()}, asked)

    def chart(self, found: Left, width: float) -> Drawing:
        x = Scale("workers that are averaged", 1, average.MOST, log=True)
        chart = Chart(width, 300, x, Scale("relative error of the average", LEAST, LARGEST, log=True))
        chart.line([found.asked.workers] * 2, [LEAST, LARGEST], Pen("dim", "circle"), "the number of workers", 1)
        for (way, curve), pen in zip(found.curves.items(), (*PENS[:2], Pen("text", "plus", "2 3")), strict=True):
            if curve.max() > 0:
                chart.line(average.COUNTS, curve, pen, NAMES[way])
                chart.marks((found.asked.workers, found.here[way]), pen)
        return chart.drawing()

    def words(self, found: Left) -> str:
        asked, here = found.asked, found.here
        workers = "1 worker" if asked.workers == 1 else f"{asked.workers} workers"
        grids = (
            "a grid of its own for each" if asked.grid == "own" else f"one common grid, moved by {asked.shift:g} steps"
        )
        held = "the same gradient" if asked.held == "the same" else asked.held
        return (
            f"{workers}, {held}, {asked.levels} levels, {grids}: nearest rounding errs by {here['nearest']:.3f}, "
            f"random rounding by {here['at_random']:.3f}, no rounding by {here['unrounded']:.3f}."
        )
