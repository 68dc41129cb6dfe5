"""``python -m benchmarks cost``: seconds per step, predicted and measured, of configs that nothing was calibrated on.

Twelve behind shaped links of 10, 100 and 1000 Mbit/s and 0, 1 and 10 ms: four codecs, each with one server, with two
and round a ring, in such a way that every bandwidth meets every latency. And the same on the bare loopback. Softmax
regression on the digits, lifted to random Fourier features; four worker processes under BSP, over TCP.

Each codec is calibrated once, with one worker and one server and without a link; the predictions are made before
anything is run.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from rich.table import Table

from benchmarks import base
from benchmarks.base import Chart
from minips import datasets
from minips.core.codec import Codec
from minips.core.collectives import RingAllReduce
from minips.core.config import Config
from minips.core.exchange import PS, Exchange
from minips.cost import calibrate, predict
from minips.cost.quiet import quietly
from minips.lab.measure.turns import Spread, Watch
from minips.problems import Problem, SoftmaxRegression
from minips.results.run import Run
from minips.stages.compressors import Lz4
from minips.stages.memories import ErrorFeedback
from minips.stages.optimizers import SGD
from minips.stages.quantizers import Exact, Float16, TopK, Uniform
from minips.stages.transports import Link
from minips.training.train import train

FEATURES, ROUNDS = 2_000, 3
BANDWIDTHS, LATENCIES = (10e6, 100e6, 1000e6), (0.0, 1e-3, 10e-3)
LINK_STEPS, BARE_STEPS = 20, 100
BARE = "bare"
CODECS = {
    "exact": Codec(Exact()),
    "float16": Codec(Float16()),
    "8 bits, lz4": Codec(Uniform(bits=8), compressor=Lz4()),
    "top 1 %": Codec(TopK(fraction=0.01), ErrorFeedback()),
}
EXCHANGES: dict[str, tuple[Exchange, int]] = {
    "1 server": (PS(), 1),
    "2 servers": (PS(), 2),
    "ring": (RingAllReduce(), 1),
}


@dataclass(frozen=True)
class Row:
    """One config: seconds per step, predicted with the calibration's interval, and measured with the rounds'
    quartiles; and the bytes of all the workers.
    """

    contender: str
    link: str
    predicted_s: Spread
    measured_s: Spread
    error: float
    """Predicted over measured, less one."""
    predicted_bytes: int
    measured_bytes: int
    note: str = ""
    """A sentence where other programs kept the machine busy, during the calibration or the runs."""
    skipped: str = ""


def measure(features: int = FEATURES, rounds: int = ROUNDS, watch: Watch = lambda text, share: None) -> Iterator[Row]:
    """A row for each config: those behind links, codec by codec, and then the bare ones."""
    return held(SoftmaxRegression(*datasets.fourier(datasets.digits(), features)), list(configs()), rounds, watch)


def held(problem: Problem, plan: Sequence[tuple[str, Config]], rounds: int, watch: Watch) -> Iterator[Row]:
    """A row for each config of the plan, in which prediction and runs are held against each other."""
    calibrations = {}
    for number, (name, config) in enumerate(plan):
        if config.push not in calibrations:
            watch(f"calibrating {name}", number / len(plan))
            calibrations[config.push] = calibrate(config, problem)
        link = _words(config.link)
        prediction = predict(problem, config, calibrations[config.push])
        shares = [(number + turn / rounds) / len(plan) for turn in range(rounds)]
        runs, note = quietly(partial(_runs, problem, config, shares, partial(watch, f"{name}, {link}")), attempts=2)
        measured = Spread.of(run.seconds_per_step for run in runs)
        predicted = Spread(prediction.seconds_per_step, *prediction.interval_s)
        error = predicted.median / measured.median - 1
        told = note or prediction.note
        yield Row(name, link, predicted, measured, error, prediction.bytes_sent, runs[-1].bytes_sent, told)


def _runs(problem: Problem, config: Config, shares: list[float], watch: Callable[[float], None]) -> list[Run]:
    """A run for each of the shares, of which ``watch`` is told before."""
    runs = []
    for share in shares:
        watch(share)
        runs.append(train(problem, config))
    return runs


def configs() -> Iterator[tuple[str, Config]]:
    """The configs by name, the bare ones last."""
    start = Config(workers=4, optimizer=SGD(lr=16.0))
    shaped, bare = [], []
    for i, (codec, push) in enumerate(CODECS.items()):
        for j, (exchange, (how, servers)) in enumerate(EXCHANGES.items()):
            name = f"{codec}, {exchange}"
            config = replace(start, push=push, exchange=how, servers=servers)
            link = Link(BANDWIDTHS[(i + j) % 3], LATENCIES[(2 * i + j + i // 3) % 3])
            shaped.append((name, replace(config, link=link, steps=LINK_STEPS)))
            bare.append((name, replace(config, steps=BARE_STEPS)))
    yield from shaped
    yield from bare


def _words(link: Link | None) -> str:
    return f"{link.bandwidth_bps / 1e6:g} Mbit/s, {link.latency_s * 1e3:g} ms" if link else BARE


def table(rows: Sequence[Row]) -> Table:
    """The rows for the terminal, and below the median and the worst error."""
    title = "ms per step: predicted, the calibration's interval; measured, quartiles"

    def cells(row: Row) -> list[str]:
        link = row.link.replace(" Mbit/s", "").replace(" ms", "")
        return [row.contender, link, _milliseconds(row.predicted_s), _milliseconds(row.measured_s), f"{row.error:+.0%}"]

    shown = base.table(title, ["Mbit/s,\nms", "predicted\n", "measured\n", "error\n"], rows, cells)
    shown.caption = "\n".join(verdict(rows))
    return shown


def verdict(rows: Sequence[Row]) -> list[str]:
    """Median and worst error behind links, and on the bare transport; below, the rows that are not among them."""
    lines = []
    for where, bare in (("behind links", False), ("on the bare loopback", True)):
        if errors := [abs(row.error) for row in rows if (row.link == BARE) == bare and not row.note]:
            lines.append(f"{where}: median error {statistics.median(errors):.1%}, worst {max(errors):.1%}")
    return [*lines, *(f"not counted: {row.contender}, {row.link}. {row.note}" for row in rows if row.note)]


def _milliseconds(spread: Spread) -> str:
    median, low, high = (f"{x * 1e3:.3g}" if x < 0.1 else f"{x * 1e3:.0f}" for x in spread)
    return f"{median} [{low}, {high}]"


def chart(rows: Sequence[Row]) -> Chart:
    """Predicted and measured milliseconds of each config."""

    def spreads(which: str) -> dict[str, Spread]:
        return {f"{row.contender}, {row.link}": Spread(*(1e3 * x for x in getattr(row, which))) for row in rows}

    return Chart({"predicted": spreads("predicted_s"), "measured": spreads("measured_s")}, "time per step (ms)")
