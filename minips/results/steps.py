"""A trace's spans as the steps of one worker, and as the events of a Chrome trace."""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, NamedTuple


class Step(NamedTuple):
    """One step of one worker, from the beginning of one gradient to that of the next, in seconds."""

    step: int
    start: float
    seconds: float
    spans: dict[str, float]
    """By name; with several servers, or overlap, spans run in parallel and may add up to more than the step."""
    served: float
    """Seconds in which a message was neither travelling nor waiting: the server worked for this worker."""
    unclaimed: float
    """Seconds outside all spans, which the worker itself must have spent."""


def steps_of(mine: list[Any], totals: Callable[[list[Any]], dict[str, float]]) -> list[Step]:
    """One worker's steps, except the last, from its spans. ``totals`` gives the seconds of spans by name."""
    trips = sorted(
        (first.start, then.start + then.seconds)  # from the departure of a message to the end of its answer's wait
        for first, then in pairwise(mine)
        if (first.name, then.name) == ("transfer", "wait")
    )
    mine = sorted(mine, key=lambda span: span.start)
    firsts = [i for i, span in enumerate(mine) if span.name == "compute"]
    steps = []
    for i, j in pairwise(firsts):
        start, stop, own = mine[i].start, mine[j].start, mine[i:j]
        recorded = [(span.start, span.start + span.seconds) for span in own]
        near = trips[bisect_left(trips, (start - (stop - start),)) : bisect_left(trips, (stop,))]
        known = covered_s([*recorded, *near], start, stop)
        served = known - covered_s(recorded, start, stop)
        steps.append(Step(mine[i].step, start, stop - start, totals(own), served, stop - start - known))
    return steps


def covered_s(stretches: Iterable[tuple[float, float]], start: float, stop: float) -> float:
    """Seconds between ``start`` and ``stop`` that any of the stretches covers."""
    total, end = 0.0, start
    for begin, over in sorted(stretches):
        total += max(0.0, min(over, stop) - max(begin, end))
        end = max(end, min(over, stop))
    return total


def chrome_events(spans: list[Any]) -> list[dict[str, object]]:
    """Events in the Trace Event format, with a row for each worker and server; times in microseconds."""
    rows = {who: row for row, who in enumerate(sorted({span.who for span in spans}))}
    origin = min((span.start for span in spans), default=0.0)
    names = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": row, "args": {"name": who}} for who, row in rows.items()
    ]
    return names + [
        {
            **{"ph": "X", "name": span.name, "pid": 0, "tid": rows[span.who], "args": {"step": span.step}},
            **{"ts": (span.start - origin) * 1e6, "dur": span.seconds * 1e6},
        }
        for span in spans
    ]
