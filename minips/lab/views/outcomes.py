"""Finished runs as the playground shows them: curves, bars, messages on their way, waits, times of stages, a sentence.

Every function returns plain values for the page. Times are in seconds from a run's beginning, so that two runs have one
clock.
"""

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from statistics import median
from typing import Any

from minips.core.config import Config
from minips.core.exchange import AllReduce
from minips.cost import Prediction
from minips.cost.traffic import count_bytes
from minips.engines.worker import compute, shards_of
from minips.lab.results import predicted_step
from minips.lab.views.base import format_bytes, format_seconds
from minips.lab.views.pipeline import differences
from minips.problems import Problem
from minips.results.run import Progress, Rows, Run
from minips.results.steps import Step
from minips.seeds import init
from minips.words import join_names

MOST_MESSAGES = 3_000
"""The most messages that the page moves; of a run with more, it moves those of the first workers."""
SPAN_OF = {
    "memory": "compensate",
    "quantizer": "quantize",
    "serializer": "serialize",
    "compressor": "compress",
    "transport": "transfer",
    "aggregator": "aggregate",
    "optimizer": "apply",
    "workers": "compute",
}
"""Maps a box to the span of its stage."""
SAME = 0.03
"""Two times within this share of each other count as equal in a sentence."""
MOST_WORKERS = 8
"""The most workers whose work is shown."""
LEAST = 0.005
"""The least share of a time that words name."""
PUSHED, ANSWERED, PASSED_ON = range(3)
"""The ways of a message: from a worker to a server, back, and from worker to worker."""


@dataclass(frozen=True)
class PlayedRun:
    """A run of one side, and what was expected of it."""

    run: Run
    measured: bool = False
    """True if its seconds are real."""
    expected_bytes: float | None = None
    """The bytes that the workers send, as counted before the run; None if they cannot be counted."""
    expected_s: float | None = None
    """The predicted seconds of a step; None without a prediction."""
    prediction: Prediction | None = None

    def with_run(self, run: Run) -> "PlayedRun":
        """Return the outcome of a run for real; without a prediction, the simulation is what was expected."""
        expected = self.expected_s if self.prediction or self.measured else self.run.seconds_per_step
        return dataclasses.replace(self, run=run, measured=True, expected_s=expected)

    @cached_property
    def movement(self) -> dict[str, Any]:
        """The run's messages, as `movement_of` returns them."""
        return movement_of(self.run)

    @cached_property
    def activity(self) -> list[dict[str, Any]]:
        """The workers' work and waits, as `activity_of` returns them."""
        return activity_of(self.run)

    @cached_property
    def usual_bytes(self) -> dict[str, float]:
        """The median bytes of the run's messages of each kind, such as ``push_pull``."""
        sizes: dict[str, list[int]] = defaultdict(list)
        for message in self.run.messages:
            sizes[message.kind].append(message.nbytes)
        return {kind: median(found) for kind, found in sizes.items()}

    @cached_property
    def steps(self) -> list[Step]:
        """The steps of all workers that took time."""
        workers = range(self.run.config.workers)
        return [step for one in workers for step in self.run.trace.steps(f"worker {one}") if step.seconds > 0]


def expected_bytes(problem: Problem, config: Config) -> float | None:
    """Return the bytes that all workers of a run will send, without running it; None for a problem with tables."""
    if problem.tables:
        return None
    config = dataclasses.replace(config.for_rows(problem.rows), delays=None)
    params, part = problem.init(init(config.seed)), shards_of(problem, config)(0)
    _, gradients = compute(part, config, params, 0, 0)
    return float(count_bytes(config, params, gradients, min(config.batch_size or part.rows, part.rows)).sent)


def curve(losses: Rows, side: str) -> dict[str, Any]:
    """Return the finite training losses against seconds."""
    losses = [row for row in losses if isfinite(row[2])]
    return {
        "side": side,
        "seconds": [round(seconds, 6) for seconds, _, _ in losses],
        "losses": [round(loss, 5) for _, _, loss in losses],
    }


def bars(outcomes: Mapping[str, PlayedRun], under_way: Mapping[str, Progress]) -> list[dict[str, Any]]:
    """Return two groups of bars, the bytes that the workers sent and the time of a step, each with its outline: what
    was expected. An unfinished run has only a part of its bytes.
    """
    sent = {side: (outcome.run.bytes_sent, outcome.expected_bytes) for side, outcome in outcomes.items()}
    for side, progress in under_way.items():
        whole = sent[side][1] or sent[side][0]
        sent[side] = round(whole * progress.applied / max(progress.updates, 1)), whole
    took = {side: (outcome.run.seconds_per_step, outcome.expected_s) for side, outcome in outcomes.items()}
    groups: list[tuple[str, Callable[[float], str], Mapping[str, tuple[float, float | None]]]] = [
        ("sent by the workers", format_bytes, sent),
        ("time of a step", format_seconds, took),
    ]
    found = []
    for title, words, rows in groups:
        most = max((each for row in rows.values() for each in row if each is not None), default=0.0) or 1.0
        shown = [
            {
                "side": side,
                "grows": rows is sent,
                "share": round(float(value / most), 4),
                "outline": None if outline is None else round(float(outline / most), 4),
                "text": words(value),
                "expected": None if outline is None else f"expected {words(outline)}",
            }
            for side, (value, outline) in rows.items()
        ]
        found.append({"title": title, "rows": shown})
    return found


def movement_of(run: Run) -> dict[str, Any]:
    """Return the messages that travelled, as columns: start, end, bytes, way and worker; and a note on which they are.

    The worker is the one that sends or, on the way back, the one that receives.
    """
    ways = {("worker", "server"): PUSHED, ("server", "worker"): ANSWERED, ("worker", "worker"): PASSED_ON}
    rows = []
    for message in run.messages:
        if message.start is None or message.end is None or message.start < 0:
            continue
        parties = [who.partition(" ") for who in (message.sender, message.receiver)]
        way = ways.get((parties[0][0], parties[1][0]))
        if way is not None:
            worker = int(parties[way == ANSWERED][2])
            rows.append((round(message.start, 6), round(message.end, 6), message.nbytes, way, worker))
    each = max(len(rows) // run.config.workers, 1)
    first = max(MOST_MESSAGES // each, 1)
    some = [row for row in rows if row[-1] < first]
    whose = "of the run" if len(some) == len(rows) else f"of workers 0 to {first - 1}" if first > 1 else "of worker 0"
    start, end, nbytes, way_of, of = map(list, zip(*some, strict=True)) if some else ([], [], [], [], [])
    return {
        **{"start": start, "end": end, "bytes": nbytes, "way": way_of, "worker": of},
        "note": f"Every dot is a message {whose}.",
    }


def activity_of(run: Run) -> list[dict[str, Any]]:
    """Return the first workers' stretches of work and waiting, as columns; a wait names the partner that ended it."""
    rows: dict[str, list[tuple[float, float, str]]] = {
        f"worker {worker}": [] for worker in range(min(run.config.workers, MOST_WORKERS))
    }
    for span in run.trace:
        if span.name == "compute" and span.who in rows:
            rows[span.who].append((span.start, span.seconds, ""))
    for wait in run.waits:
        if wait.who in rows:
            rows[wait.who].append((wait.start, wait.seconds, next(iter(wait.partners), "others")))
    return [_stretches(who, sorted(mine), run.seconds or 1.0) for who, mine in rows.items()]


def _stretches(who: str, rows: Sequence[tuple[float, float, str]], whole: float) -> dict[str, Any]:
    """Return one worker's stretches, and the shares of the ``whole`` run for computing, messages and waiting."""
    computes, waits = (
        min(sum(seconds for _, seconds, partner in rows if bool(partner) is waiting) / whole, 1.0)
        for waiting in (False, True)
    )
    return {
        "who": who,
        "start": [round(start, 6) for start, _, _ in rows],
        "seconds": [round(seconds, 6) for _, seconds, _ in rows],
        "waits": [partner for _, _, partner in rows],
        "shares": [round(each, 4) for each in (computes, max(1 - computes - waits, 0.0), waits)],
        "words": f"computes {computes:.0%}" + (f", waits {waits:.0%}" if waits >= LEAST else ""),
    }


def stage_seconds(outcome: PlayedRun | None) -> dict[str, str]:
    """Return the time of each box's stage in the median step, in words: measured, or "≈" and the prediction's.

    A simulated run without a prediction has none.
    """
    if outcome and outcome.measured:
        steps = outcome.steps
        middle = sorted(steps, key=lambda step: step.seconds)[len(steps) // 2].spans if steps else {}
        served = {name: _usual(outcome.run, name) for name in ("aggregate", "apply")}
        measured = {**served, **middle}
        return {box: format_seconds(measured[name]) for box, name in SPAN_OF.items() if measured.get(name) is not None}
    if outcome and outcome.prediction:
        expected = outcome.prediction.spans
        return {box: f"≈ {format_seconds(expected[name])}" for box, name in SPAN_OF.items() if expected.get(name)}
    return {}


def _usual(run: Run, name: str) -> float | None:
    """Return the median of a server's spans with this name."""
    found = [span.seconds for span in run.trace if span.name == name and span.who.startswith("server")]
    return median(found) if found else None


def sentence(outcomes: Mapping[str, PlayedRun]) -> str:
    """Return what is seen, in words."""
    if not outcomes:
        return "Nothing has run yet."
    parts = [*map(_ending, outcomes.items())]
    if len(outcomes) == 1:
        (outcome,) = outcomes.values()
        parts.append(_describe_one(outcome))
    else:
        parts += _describe_both(*outcomes.values())
    for side, outcome in outcomes.items():
        if outcome.prediction and outcome.measured:
            words = predicted_step(outcome.prediction, outcome.run)
            parts.append(f"In {side}, {words}.")
    return " ".join(filter(None, parts))


def _describe_one(outcome: PlayedRun) -> str:
    run = outcome.run
    config = run.config
    who = "1 worker sends" if config.workers == 1 else f"{config.workers} workers send"
    time = "" if outcome.measured else " of virtual time"
    if not run.seconds:
        hint = "Nothing takes time here: limit the link, or let the workers compute for some ms."
        return f"{who} {format_bytes(run.bytes_sent)}. {hint} {_results({'': run})}"
    words = f"{who} {format_bytes(run.bytes_sent)} in {format_seconds(run.seconds)}{time}. "
    words += f"A step takes {format_seconds(run.seconds_per_step)}"
    computes, waits = _share(outcome, "compute"), _share(outcome, "wait")
    if computes is not None:
        words += f"; a worker computes for {computes:.0%} of it"
        if waits and waits >= LEAST:
            words += f", and waits for others for {waits:.0%}"
    return f"{words}. {_results({'': run})}"


def _describe_both(a: PlayedRun, b: PlayedRun) -> Iterable[str]:
    one, other = a.run, b.run
    differ = differences({"A": one.config, "B": other.config})
    yield f"A and B differ in {join_names(differ)}." if differ else "A and B are alike."
    sent, took = _ratio(other.bytes_sent, one.bytes_sent), _ratio(other.seconds_per_step, one.seconds_per_step)
    if a.measured is b.measured:
        yield f"B sends {sent:.2f} × A's bytes, and its step takes {took:.2f} × A's time."
    else:
        real = "A" if a.measured else "B"
        yield f"B sends {sent:.2f} × A's bytes. Only {real}'s time is measured: run both for real to compare times."
    if a.measured is b.measured and abs(sent - 1) > 0.1 and abs(took - 1) <= SAME:
        yield "So bytes do not decide here: the link is fast enough. Make it slower."
    shares = [_share(outcome, "compute") for outcome in (a, b)]
    if None not in shares and abs(took - 1) > SAME:
        yield f"A worker computes for {shares[0]:.0%} of a step in A, and for {shares[1]:.0%} in B."
    oldest = [max(run.staleness, default=0) for run in (one, other)]
    if oldest[0] != oldest[1]:
        yield f"The oldest parameters that a gradient came from: {oldest[0]} versions in A, {oldest[1]} in B."
    yield _results({"A": one, "B": other})


def _share(outcome: PlayedRun, name: str) -> float | None:
    """Return the median share of a worker's step that a span takes; None without a trace."""
    shares = [step.spans.get(name, 0.0) / step.seconds for step in outcome.steps]
    return median(shares) if shares else None


def _results(runs: Mapping[str, Run]) -> str:
    accuracies = {side: run.accuracy for side, run in runs.items() if run.accuracy is not None}
    if len(accuracies) == len(runs):
        return f"Accuracy: {', '.join(f'{each:.3f} {_in(side)}'.strip() for side, each in accuracies.items())}."
    losses = {side: run.losses[-1][2] for side, run in runs.items() if run.losses}
    return f"Loss: {', '.join(f'{each:.4f} {_in(side)}'.strip() for side, each in losses.items())}." if losses else ""


def _in(side: str) -> str:
    return f"in {side}" if side else ""


def _ending(item: tuple[str, PlayedRun]) -> str:
    side, outcome = item
    run = outcome.run
    return f"{side} diverged. {run.diverged}" if run.diverged else f"{side} was stopped early." if run.stopped else ""


def _ratio(one: float, other: float) -> float:
    return one / other if other else float(one == other) or float("inf")


def way_words(config: Config, outcome: PlayedRun | None) -> dict[str, str]:
    """Return the words at the way back, and those about both ways: the median messages."""
    usual = outcome.usual_bytes if outcome else {}
    push, hop, back = (format_bytes(usual.get(kind)) for kind in ("push_pull", "hop", "reply"))
    if isinstance(config.exchange, AllReduce):
        words = f"No server: each message to another worker takes {hop}."
        return {"back": "No way back: each worker has the sum, and takes the step itself.", "way": words}
    link = config.link
    speed = f"{link.bandwidth_bps / 1e6:g} Mbit/s, {link.latency_s * 1e3:g} ms" if link else "no limit"
    words = f"A push takes {push}, the new parameters {back}; link: {speed}."
    return {"back": f"{back} of new parameters", "way": words}


def box_words(box: str, nbytes: float | None, times: Mapping[str, str]) -> str:
    """Return the words under a box: the bytes after its stage, and the stage's time, "–" if that was not measured."""
    known = [] if nbytes is None else [format_bytes(nbytes)]
    return " · ".join([*known, times.get(box, "–")]) if box in SPAN_OF else ""
