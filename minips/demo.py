"""``minips demo``: seven short runs on real processes, and the table that they make.

First three ways to wait, with one worker in four that computes five times slower; then four ways to send fewer bytes,
over a link of 100 Mbit/s. One thing changes from row to row.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console
from rich.table import Table

from minips import datasets
from minips.core.codec import Codec
from minips.core.config import Config, Delays
from minips.cost import calibrate, predict
from minips.engines import Processes, Run
from minips.engines.progress import bars
from minips.engines.train import train
from minips.problems import Problem, SoftmaxRegression
from minips.stages.consistency import ASP, BSP, SSP
from minips.stages.memories import ErrorFeedback
from minips.stages.optimizers import SGD
from minips.stages.quantizers import Exact, Float16, TopK, Uniform
from minips.stages.transports import Link

FEATURES = 2000
"""Random Fourier features: 20,010 parameters, 80 kB, so that the link shows."""


@dataclass(frozen=True)
class Row:
    """One run of the demo, and what was predicted of it."""

    part: str
    name: str
    run: Run
    predicted_s: float

    def to_dict(self) -> dict[str, Any]:
        """The row as plain values; times in seconds."""
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
            "config": run.config.to_dict(),
        }


def experiments() -> Iterator[tuple[str, str, Problem, Config]]:
    """Part, name, problem and config of each row."""
    data = datasets.digits()
    small = Config(workers=4, steps=100, optimizer=SGD(lr=0.1), delays=Delays(seconds=0.01, slow={1: 5.0}))
    for consistency in (BSP(), SSP(staleness=2), ASP()):
        name = {"bsp": "BSP", "ssp": "SSP(2)", "asp": "ASP"}[consistency.name]
        yield "one slow worker", name, SoftmaxRegression(*data), replace(small, consistency=consistency)
    lifted = SoftmaxRegression(*datasets.fourier(data, FEATURES))
    link = Config(workers=4, steps=80, optimizer=SGD(lr=16.0), link=Link(bandwidth_bps=100e6, latency_s=1e-3))
    codecs = {
        "exact": Codec(Exact()),
        "float16": Codec(Float16()),
        "uniform, 8 bits": Codec(Uniform(bits=8)),
        "topk 1 %, feedback": Codec(TopK(fraction=0.01), ErrorFeedback()),
    }
    for name, codec in codecs.items():
        yield "100 Mbit/s link", name, lifted, replace(link, push=codec)


def demo(console: Console, on_row: Callable[[Row], None] = lambda row: None) -> list[Row]:
    """Run the rows with a progress bar and print the table. Each row goes to ``on_row`` as soon as it is there."""
    rows: list[Row] = []
    plan = list(experiments())
    with bars(console) as shown:
        everything = shown.add_task("all runs", total=len(plan))
        calibrations: dict[Codec, Any] = {}
        for part, name, problem, config in plan:
            task = shown.add_task(f"{part}: {name}", total=config.workers * config.steps)
            if config.push not in calibrations:
                calibrations[config.push] = calibrate(config)
            predicted = predict(problem, config, calibrations[config.push]).seconds_per_step
            run = train(
                problem,
                config,
                engine=Processes(),
                progress=lambda now, task=task: shown.update(task, completed=now.applied),  # type: ignore[misc]
            )
            shown.remove_task(task)
            shown.advance(everything)
            rows.append(Row(part, name, run, predicted))
            on_row(rows[-1])
    return rows


def table(rows: list[Row]) -> Table:
    """The rows as a table for the terminal."""
    title = "digits, softmax regression, 4 worker processes over TCP"
    shown = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    measures = (
        "held-out\nloss",
        "held-out\naccuracy",
        "seconds",
        "MB\npushed",
        "MB\npulled",
        "ms/step\nmeasured",
        "ms/step\npredicted",
    )
    for heading in ("", *measures):
        shown.add_column(heading, justify="right" if heading else "left", no_wrap=not heading)
    part = ""
    for row in rows:
        if row.part != part:
            part = row.part
            shown.add_row(f"[bold]{part}[/bold]")
        run = row.run
        shown.add_row(
            f"  {row.name}" + (" (diverged)" if run.diverged else ""),
            f"{run.validation_loss:.3f}",
            f"{run.accuracy:.3f}",
            f"{run.seconds:.2f}",
            f"{run.bytes_sent / 1e6:.2f}",
            f"{run.bytes_received / 1e6:.2f}",
            f"{run.seconds_per_step * 1e3:.1f}",
            f"{row.predicted_s * 1e3:.1f}",
        )
    return shown


def verdict(rows: list[Row]) -> str:
    """What the table supports, in words; every number in it comes from the rows."""
    if diverged := [f"{row.name} diverged. {row.run.diverged}" for row in rows if row.run.diverged]:
        return " ".join(diverged)
    by_name = {row.name: row.run for row in rows}
    bsp, asp, exact, topk = (by_name[name] for name in ("BSP", "ASP", "exact", "topk 1 %, feedback"))
    off = max(abs(row.predicted_s / row.run.seconds_per_step - 1) for row in rows)
    loss = exact.accuracy - topk.accuracy if exact.accuracy is not None and topk.accuracy is not None else 0.0
    price = f"{abs(loss):.3f} {'less' if loss > 0 else 'more'} accuracy" if round(loss, 3) else "the same accuracy"
    return (
        f"Without waiting for the slow worker, ASP applied the same {asp.updates} updates "
        f"{_times(bsp.seconds / asp.seconds)} than BSP, from parameters that were up to {max(asp.staleness)} versions "
        f"old. Over the link, topk with error feedback pushed {topk.bytes_sent / exact.bytes_sent:.1%} of the bytes of "
        f"exact, for {price}, yet a step came only {_times(exact.seconds_per_step / topk.seconds_per_step)}: "
        f"the pulls, {topk.bytes_received / 1e6:.0f} MB, were sent as they are. "
        f"The predictions were off by at most {off:.0%}."
    )


def _times(ratio: float) -> str:
    return f"{ratio:.1f} times sooner" if ratio >= 1 else f"{1 / ratio:.1f} times later"
