"""``minips demo``: seven short runs in real processes, and a table of them.

The first three runs compare consistency rules while one of four workers computes five times slower. The other four
compare codecs over a link of 100 Mbit/s. Within each part, the rows differ in only one setting.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, groupby
from typing import Any

from rich.console import Console
from rich.table import Table

import minips as ps
from minips.cost import Calibration, calibrate, predict
from minips.cost.noise import measure_quietly
from minips.training.progress import Wait, showing

FEATURES = 2000
"""The number of random Fourier features. They give 20,010 parameters, 80 kB: enough for the link to matter."""


@dataclass(frozen=True)
class Row:
    """One run of the demo, and its prediction."""

    part: str
    name: str
    run: ps.Run
    predicted_s: float
    note: str = ""
    """A sentence if other programs kept the machine busy during the prediction or the run; otherwise empty."""

    def to_dict(self) -> dict[str, Any]:
        """The row as plain values, with times in seconds."""
        run = self.run
        return {
            "part": self.part,
            "name": self.name,
            "loss": run.validation_loss,
            "accuracy": run.accuracy,
            "diverged": run.diverged,
            "seconds": run.seconds,
            "bytes_sent": run.bytes_sent,
            "bytes_received": run.bytes_received,
            "updates": run.updates,
            "measured_s_per_step": run.seconds_per_step,
            "predicted_s_per_step": self.predicted_s,
            "note": self.note,
            "config": run.config.to_dict(),
        }


def experiments() -> Iterator[tuple[str, str, ps.Problem, ps.Config]]:
    """The part, the name, the problem and the config of each row."""
    data = ps.datasets.digits()
    small = ps.Config(workers=4, steps=100, optimizer=ps.SGD(lr=0.1), delays=ps.Delays(seconds=0.01, slow={1: 5.0}))
    for name, consistency in {"BSP": ps.BSP(), "SSP(2)": ps.SSP(staleness=2), "ASP": ps.ASP()}.items():
        yield "one slow worker", name, ps.SoftmaxRegression(*data), replace(small, consistency=consistency)
    lifted = ps.SoftmaxRegression(*ps.datasets.fourier(data, FEATURES))
    link = ps.Config(workers=4, steps=80, optimizer=ps.SGD(lr=16.0), link=ps.Link(bandwidth_bps=100e6, latency_s=1e-3))
    codecs = {
        "exact": ps.Codec(ps.Exact()),
        "float16": ps.Codec(ps.Float16()),
        "uniform, 8 bits": ps.Codec(ps.Uniform(bits=8)),
        "topk 1 %, feedback": ps.Codec(ps.TopK(fraction=0.01), ps.ErrorFeedback()),
    }
    for name, codec in codecs.items():
        yield "100 Mbit/s link", name, lifted, replace(link, push=codec)


def demo(console: Console) -> Iterator[Row]:
    """Run the experiments, and show their phases on bars; yield each row as soon as its run ends."""
    plan = list(experiments())
    calibrations: dict[ps.Codec, Calibration] = {}
    for number, (part, name, problem, config) in enumerate(plan):
        row, share = f"row {number + 1} of {len(plan)}", number / len(plan)
        with showing(True, console=console, first=Wait(row, share)) as show:
            if config.push not in calibrations:
                calibrations[config.push] = calibrate(config)
            show(f"{row} · {part}: {name}", share)
            say_again = partial(show, f"{row} · {name}, again, since other programs disturbed it", share)
            predicted_s, run, note = _predict_and_run(problem, config, calibrations[config.push], say_again)
        yield Row(part, name, run, predicted_s, note)


def _predict_and_run(
    problem: ps.Problem, config: ps.Config, calibration: Calibration, say_again: Callable[[], object]
) -> tuple[float, ps.Run, str]:
    """A predicted step time, a run and a note. If other programs kept the machine busy, predict and run once more,
    after ``say_again()``.
    """
    attempts = count()

    def measure() -> tuple[float, ps.Run]:
        if next(attempts):
            say_again()
        predicted = predict(problem, config, calibration).seconds_per_step
        return predicted, ps.train(problem, config, engine=ps.Processes())

    (predicted, run), note = measure_quietly(measure, attempts=2)
    return predicted, run, note or calibration.note


FIGURES: dict[str, Callable[[Row], str]] = {
    "held-out\nloss": lambda row: f"{row.run.validation_loss:.3f}",
    "held-out\naccuracy": lambda row: f"{row.run.accuracy:.3f}",
    "seconds": lambda row: f"{row.run.seconds:.2f}",
    "MB\npushed": lambda row: f"{row.run.bytes_sent / 1e6:.2f}",
    "MB\npulled": lambda row: f"{row.run.bytes_received / 1e6:.2f}",
    "ms/step\nmeasured": lambda row: f"{row.run.seconds_per_step * 1e3:.1f}",
    "ms/step\npredicted": lambda row: f"{row.predicted_s * 1e3:.1f}",
}
"""Maps the heading of each column after the name to a function that gives its figure."""


def table(rows: list[Row]) -> Table:
    """The rows as a table for the terminal."""
    title = "digits, softmax regression, 4 worker processes over TCP"
    shown = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    shown.add_column("", no_wrap=True)
    for heading in FIGURES:
        shown.add_column(heading, justify="right")
    for part, runs in groupby(rows, lambda row: row.part):
        shown.add_row(f"[bold]{part}[/bold]")
        for row in runs:
            name = f"  {row.name}" + (" (diverged)" if row.run.diverged else "")
            shown.add_row(name, *(figure(row) for figure in FIGURES.values()))
    return shown


def verdict(rows: list[Row]) -> str:
    """The table's conclusion, as text. Every number in the text is computed from the rows."""
    if diverged := [f"{row.name} diverged. {row.run.diverged}" for row in rows if row.run.diverged]:
        return " ".join(diverged)
    by_name = {row.name: row.run for row in rows}
    bsp, asp, exact, topk = (by_name[name] for name in ("BSP", "ASP", "exact", "topk 1 %, feedback"))
    loss = exact.accuracy - topk.accuracy if exact.accuracy is not None and topk.accuracy is not None else 0.0
    price = f"{abs(loss):.3f} {'less' if loss > 0 else 'more'} accuracy" if round(loss, 3) else "the same accuracy"
    return (
        f"Without waiting for the slow worker, ASP applied the same {asp.updates} updates "
        f"{_times(bsp.seconds / asp.seconds)} than BSP, from parameters that were up to {max(asp.staleness)} versions "
        f"old. Over the link, topk with error feedback pushed {topk.bytes_sent / exact.bytes_sent:.1%} of the bytes of "
        f"exact, for {price}, yet a step came only {_times(exact.seconds_per_step / topk.seconds_per_step)}: "
        f"the pulls, {topk.bytes_received / 1e6:.0f} MB, were sent as they are. "
        f"{_accuracy(rows)}"
    )


def _accuracy(rows: list[Row]) -> str:
    """Sentences on the prediction errors: the note of the worst row with a note, then the largest error without one."""
    off = [abs(row.predicted_s / row.run.seconds_per_step - 1) for row in rows if not row.note]
    busy = [row for row in rows if row.note]
    which = " of the other rows" if busy else ""
    sentences = [f"The predictions{which} were off by at most {max(off):.0%}."] if off else []
    if busy:
        worst = max(busy, key=lambda row: abs(row.predicted_s / row.run.seconds_per_step - 1))
        names = "; ".join(row.name for row in busy)
        about = f"About the row{'s' * (len(busy) > 1)} {names}: " if off else ""
        sentences = [f"{about}{worst.note}", *sentences]
    return " ".join(sentences)


def _times(ratio: float) -> str:
    return f"{ratio:.1f} times sooner" if ratio >= 1 else f"{1 / ratio:.1f} times later"
