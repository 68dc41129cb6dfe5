"""``python -m benchmarks cost``: seconds per step, predicted and measured, of configs not used for calibration.

Twelve configs run behind shaped links of 10, 100 and 1000 Mbit/s and 0, 1 and 10 ms: four codecs, each with one server,
with two and round a ring, so that every bandwidth is combined with every latency; then the same on the bare loopback.
The problem is softmax regression on the digits, lifted to random Fourier features; four worker processes under BSP use
TCP.

With ``--engine hosts``, 15 others run on a network of real hosts, and are simulated, too: four codecs, each with one
server at 20, with two at 50 and round a ring at 100 Mbit/s, and a tree at each rate. The problem is a linear regression
whose size grows with the rate, 20,000 values at 20 Mbit/s, so that the network matters in every step.

Each codec is calibrated once, with one worker, one server and no link; all predictions precede the runs.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from rich.table import Table

from benchmarks import base
from benchmarks.base import Chart, select
from benchmarks.retransmissions import Retransmissions
from minips import datasets
from minips.core.codec import Codec
from minips.core.collectives import RingAllReduce, TreeAllReduce
from minips.core.config import Config
from minips.core.exchange import PS, Exchange
from minips.cost import Prediction, Simulated, Star, calibrate, compare, predict
from minips.cost.noise import measure_quietly
from minips.engines.hosts import Hosts
from minips.lab.measure.turns import Spread, Watch
from minips.problems import LinearRegression, Problem, SoftmaxRegression
from minips.results.run import Run
from minips.stages.compressors import Lz4
from minips.stages.memories import ErrorFeedback
from minips.stages.optimizers import SGD
from minips.stages.quantizers import Exact, Float16, TopK, Uniform
from minips.stages.transports import Link
from minips.training.train import train

FEATURES, ROUNDS = 2_000, 3
HOST_BANDWIDTHS, MISS = (20e6, 50e6, 100e6), 0.1
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
    """One config: predicted seconds per step with the calibration's interval, measured ones with the rounds' quartiles,
    and the bytes of all the workers.
    """

    contender: str
    link: str
    predicted_s: Spread
    measured_s: Spread
    error: float
    """Predicted over measured, minus 1."""
    predicted_bytes: int
    measured_bytes: int
    note: str = ""
    """A sentence if other programs kept the machine busy during the calibration or the runs."""
    simulated_s: float | None = None
    """Seconds per step in virtual time, on a network of hosts."""
    miss: str = ""
    """For an error above ``MISS``: the span with most of it, the packets sent again, the limits of the model."""
    skipped: str = ""


def measure(
    features: int = FEATURES,
    rounds: int = ROUNDS,
    engine: str = "processes",
    watch: Watch = lambda text, share: None,
) -> Iterator[Row]:
    """A row for each config: those behind links, codec by codec, and then the bare ones; or those on hosts."""
    if select(("processes", "hosts"), [engine]) == ["hosts"]:
        plan = list(on_hosts())
        sizes = [int(10 * features * star.network.bandwidth_bps / HOST_BANDWIDTHS[0]) for _, _, star in plan]
        problems = {size: regression(size) for size in sizes}
        on = [(problems[size], star) for size, (_, _, star) in zip(sizes, plan, strict=True)]
        return compare_runs(problems[max(sizes)], [(name, config) for name, config, _ in plan], rounds, watch, on)
    problem = SoftmaxRegression(*datasets.fourier(datasets.digits(), features))
    return compare_runs(problem, list(configs()), rounds, watch)


def regression(values: int) -> LinearRegression:
    """A problem with ``values`` float32 parameters and 16 rows, whose gradient takes almost no time."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(16, values)).astype(np.float32), rng.normal(size=16).astype(np.float32)
    return LinearRegression(X / np.float32(values**0.5), y)


def compare_runs(
    problem: Problem,
    plan: Sequence[tuple[str, Config]],
    rounds: int,
    watch: Watch,
    on: Sequence[tuple[Problem, Hosts]] = (),
) -> Iterator[Row]:
    """A row for each config of the plan, which compares prediction and runs. They run in processes, or with the problem
    and the engine in ``on``; the calibration always uses the first ``problem``.
    """
    calibrations = {}
    for number, (name, config) in enumerate(plan):
        if config.push not in calibrations:
            watch(f"calibrating {name}", number / len(plan))
            calibrations[config.push] = calibrate(config, problem)
        calibration, (own, engine) = calibrations[config.push], on[number] if on else (problem, None)
        link = f"hosts, {engine.network.bandwidth_bps / 1e6:g} Mbit/s" if engine else _words(config.link)
        prediction = predict(own, config, calibration, engine=engine)
        simulated = engine and train(own, config, engine=Simulated(engine.network, calibration=calibration))
        shares = [(number + turn / rounds) / len(plan) for turn in range(rounds)]
        tell, lost = partial(watch, f"{name}, {link}"), Retransmissions()
        runs, note = measure_quietly(partial(_runs, own, config, shares, tell, engine, lost), attempts=2)
        measured = Spread.of(run.seconds_per_step for run in runs)
        predicted = Spread(prediction.seconds_per_step, *prediction.interval_s)
        yield Row(
            name,
            link,
            predicted,
            measured,
            error := predicted.median / measured.median - 1,
            prediction.bytes_sent,
            runs[-1].bytes_sent,
            note or prediction.note,
            simulated.seconds_per_step if simulated else None,
            _miss(prediction, runs, lost.counts) if engine and abs(error) > MISS else "",
        )


def _runs(
    problem: Problem,
    config: Config,
    shares: list[float],
    watch: Callable[[float], None],
    engine: Hosts | None,
    lost: Retransmissions,
) -> list[Run]:
    """A run for each share of the progress, which ``watch`` gets beforehand."""
    runs = []
    for share in shares:
        watch(share)
        with lost.of_a_run():
            runs.append(train(problem, config, engine=engine, progress=lost.look if engine else False))
    return runs


def _miss(prediction: Prediction, runs: Sequence[Run], lost: Sequence[int]) -> str:
    """The span with most of the difference from the run of median time, and other figures and known limits."""
    run = sorted(runs, key=lambda run: run.seconds_per_step)[len(runs) // 2]
    *spans, (_, whole, took) = compare(prediction, run).counted
    name, predicted, measured = max(spans, key=lambda row: (row[2] - row[1]) * (1 if took > whole else -1))
    steps = [run.seconds_per_step * 1e3 for run in runs]
    return " ".join(
        (
            f"most of it in {name}, predicted {predicted * 1e3:.1f} ms, measured {measured * 1e3:.1f};",
            f"runs between {min(steps):.1f} and {max(steps):.1f} ms a step;",
            f"{statistics.median(lost):g} packets sent again in a run.",
            *prediction.limits,
        )
    )


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


def on_hosts() -> Iterator[tuple[str, Config, Hosts]]:
    """The configs on hosts by name, with their engines, whose buffers are deep enough to lose no packet."""
    start = Config(workers=4, optimizer=SGD(lr=0.1), steps=LINK_STEPS)
    codecs = {**CODECS, "8 bits": Codec(Uniform(bits=8))}
    stars = [Hosts(Star(bits, 0.0)) for bits in HOST_BANDWIDTHS]
    for codec in ("exact", "float16", "8 bits", "top 1 %"):
        for (exchange, (how, servers)), star in zip(EXCHANGES.items(), stars, strict=True):
            yield f"{codec}, {exchange}", replace(start, push=codecs[codec], exchange=how, servers=servers), star
    for star in stars:
        yield "exact, tree", replace(start, exchange=TreeAllReduce()), star


def _words(link: Link | None) -> str:
    return f"{link.bandwidth_bps / 1e6:g} Mbit/s, {link.latency_s * 1e3:g} ms" if link else BARE


def table(rows: Sequence[Row]) -> Table:
    """The rows for the terminal; below, the median and the worst error."""
    title = "ms per step: predicted, the calibration's interval; measured, quartiles"

    def cells(row: Row) -> list[str]:
        link = row.link.replace(" Mbit/s", "").replace(" ms", "")
        said = [f"{row.simulated_s * 1e3:.3g}"] if row.simulated_s else []
        times = [_milliseconds(row.predicted_s), *said, _milliseconds(row.measured_s)]
        return [row.contender, link.removeprefix("hosts, "), *times, f"{row.error:+.0%}"]

    said = ["simulated\n"] if any(row.simulated_s for row in rows) else []
    shown = base.table(title, ["Mbit/s,\nms", "predicted\n", *said, "measured\n", "error\n"], rows, cells)
    shown.caption = "\n".join(verdict(rows))
    return shown


def verdict(rows: Sequence[Row]) -> list[str]:
    """The median and the worst error behind links and on the bare transport, then the rows not counted in them."""
    lines = []
    places: dict[str, list[float]] = {"behind links": [], "on the bare loopback": [], "on hosts": []}
    for row in rows:
        if not row.note:
            where = "on hosts" if row.simulated_s else "on the bare loopback" if row.link == BARE else "behind links"
            places[where].append(abs(row.error))
    for where, errors in places.items():
        if errors:
            lines.append(f"{where}: median error {statistics.median(errors):.1%}, worst {max(errors):.1%}")
    lines += [f"{row.contender}, {row.link}, {row.error:+.0%}: {row.miss}" for row in rows if row.miss]
    return [*lines, *(f"not counted: {row.contender}, {row.link}. {row.note}" for row in rows if row.note)]


def _milliseconds(spread: Spread) -> str:
    median, low, high = (f"{x * 1e3:.3g}" if x < 0.1 else f"{x * 1e3:.0f}" for x in spread)
    return f"{median} [{low}, {high}]"


def chart(rows: Sequence[Row]) -> Chart:
    """Predicted and measured milliseconds of each config."""

    def spreads(which: str) -> dict[str, Spread]:
        return {f"{row.contender}, {row.link}": Spread(*(1e3 * x for x in getattr(row, which))) for row in rows}

    return Chart({"predicted": spreads("predicted_s"), "measured": spreads("measured_s")}, "time per step (ms)")
