"""Convert a trace's spans to the steps of one worker, or to the events of a Chrome trace."""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, NamedTuple


class Step(NamedTuple):
    """One step of one worker, in seconds: from the start of one gradient to the start of the next."""

    step: int
    start: float
    seconds: float
    spans: dict[str, float]
    """Seconds by span name. With several servers, or overlap, spans run in parallel; their sum may exceed the step."""
    served: float
    """Seconds in which the server worked for this worker: a message was neither travelling nor waiting."""
    unclaimed: float
    """Seconds outside all spans. The worker itself must have spent them."""


def steps_of(mine: list[Any], totals: Callable[[list[Any]], dict[str, float]]) -> list[Step]:
    """One worker's steps, made from its spans, without the last step. ``totals`` maps span names to seconds."""
    trips = sorted(
        (first.start, then.start + then.seconds)  # from the message's departure to the end of the wait for its answer
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
    """The seconds between ``start`` and ``stop`` that at least one of the intervals ``stretches`` covers."""
    total, end = 0.0, start
    for begin, over in sorted(stretches):
        total += max(0.0, min(over, stop) - max(begin, end))
        end = max(end, min(over, stop))
    return total


def chrome_events(spans: list[Any], messages: list[Any]) -> list[dict[str, object]]:
    """Events in the Trace Event format, with a row for each worker and server, and times in microseconds. An arrow
    stands for a message of which both ends are known.
    """
    arrows = [message for message in messages if None not in message[-2:]]
    parties = {span.who for span in spans} | {who for message in arrows for who in message[1:3]}
    rows = {who: row for row, who in enumerate(sorted(parties))}
    origin = min(row.start for row in (*spans, *arrows)) if rows else 0.0
    names = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": row, "args": {"name": who}} for who, row in rows.items()
    ]
    ends = [
        {
            **{"ph": "s", "name": message.kind, "cat": "message", "id": number, "pid": 0, "tid": rows[message.sender]},
            **{"ts": (message.start - origin) * 1e6, "args": {"clock": message.clock, "bytes": message.nbytes}},
        }
        for number, message in enumerate(arrows)
    ]
    ends += [
        {
            **{"ph": "f", "bp": "e", "name": message.kind, "cat": "message", "id": number, "pid": 0},
            **{"tid": rows[message.receiver], "ts": (message.end - origin) * 1e6},
        }
        for number, message in enumerate(arrows)
    ]
    return [*names, *ends] + [
        {
            **{"ph": "X", "name": span.name, "pid": 0, "tid": rows[span.who], "args": {"step": span.step}},
            **{"ts": (span.start - origin) * 1e6, "dur": span.seconds * 1e6},
        }
        for span in spans
    ]
