"""``python -m benchmarks tune``: is the tuner's first choice a good one? Every candidate is run, on two links.

30 configs are ranked by the predicted seconds until 90 % of the held-out digits are classified correctly, and then all
are measured: softmax regression on the digits, lifted to random Fourier features, four worker processes under BSP.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table

from benchmarks import base
from benchmarks.base import Chart
from minips import datasets
from minips.core.config import Config
from minips.cost.tune import tune, words
from minips.lab.measure.turns import Spread, Watch
from minips.problems import SoftmaxRegression
from minips.stages.optimizers import SGD
from minips.stages.transports import Link

FEATURES, TARGET, STEPS = 500, 0.9, 300
LINKS = (Link(bandwidth_bps=20e6, latency_s=1e-3), Link(bandwidth_bps=500e6, latency_s=5e-3))


@dataclass(frozen=True)
class Row:
    """One candidate behind one link: its predicted rank, and the seconds until the accuracy is reached."""

    link: str
    place: int
    contender: str
    steps: int | None
    predicted_s: float | None
    measured_s: float | None
    over_best: float | None
    """Measured seconds over those of the fastest candidate."""
    skipped: str = ""


def measure(features: int = FEATURES, target: float = TARGET, watch: Watch = lambda text, share: None) -> Iterator[Row]:
    """A row for each candidate, link by link, in the predicted order."""
    problem = SoftmaxRegression(*datasets.fourier(datasets.digits(), features))
    start = Config(workers=4, steps=STEPS, optimizer=SGD(lr=16.0))
    for number, link in enumerate(LINKS):
        name = f"{link.bandwidth_bps / 1e6:g} Mbit/s, {link.latency_s * 1e3:g} ms"
        tell = base.part(watch, number, len(LINKS), name)
        choices = tune(problem, link, target, start=start, tried=STEPS, watch=tell).choices
        best = min((choice.measured_s for choice in choices if choice.measured_s is not None), default=None)
        for place, choice in enumerate(choices, 1):
            measured = choice.measured_s
            over = measured / best if measured is not None and best else None
            yield Row(name, place, words(choice.config), choice.steps, choice.predicted_s, measured, over)


def table(rows: Sequence[Row]) -> Table:
    """The rows for the terminal; below, how much longer the first choices took than the best."""
    title = f"seconds until {TARGET:.0%} of the held-out digits, in the predicted order"

    def cells(row: Row) -> list[str]:
        figures = [f"{x:.2f}" if x is not None else "–" for x in (row.predicted_s, row.measured_s, row.over_best)]
        return [f"{row.place:2} {short(row.contender)}", str(row.steps or f"> {STEPS}"), *figures]

    shown = base.table(title, ["steps", "predicted", "measured", "over best"], rows, cells, "link")
    shown.caption = "\n".join(verdict(rows))
    return shown


def short(contender: str) -> str:
    """A candidate's description, shortened."""
    for long, brief in _SHORTER.items():
        contender = contender.replace(long, brief)
    return contender


_SHORTER = {
    "ErrorFeedback(decay=1.0)": "EF",
    ", block=0": "",
    "()": "",
    "AllReduce": " all-reduce",
    "bits=": "",
    "fraction=": "",
}


def verdict(rows: Sequence[Row]) -> list[str]:
    """A sentence for each link."""
    firsts = {row.link: row.over_best for row in rows if row.place == 1 and row.over_best is not None}
    return [
        f"{link}: the first choice took {over - 1:.0%} longer than the best of all" for link, over in firsts.items()
    ]


def chart(rows: Sequence[Row]) -> Chart:
    """Predicted and measured seconds of each candidate."""

    def bars(which: str) -> dict[str, Spread]:
        values = {f"{short(row.contender)}, {row.link}": getattr(row, which) for row in rows}
        return {name: Spread(x, x, x) for name, x in values.items() if x is not None}

    return Chart({"predicted": bars("predicted_s"), "measured": bars("measured_s")}, "time to the accuracy (s)")
