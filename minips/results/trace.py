"""Spans of time, measured around the stages and never inside them.

A span has a name from `SPANS`, the party that spent the time, its start (seconds on ``time.monotonic``, which all
processes of a machine share), its duration in seconds, and its step. Cost predictions use the same names. A trace keeps
a `TraceRow` for each message that a party encodes, and one or (without a plan) two for each that it receives; the spans
are made when they are read.
"""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice, pairwise
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from minips import files
from minips.results.messages import NOTHING, Joined, Row, messages_of
from minips.results.steps import Step, chrome_events, steps_of

ENCODE = ("compensate", "quantize", "serialize", "compress")
DECODE = ("decompress", "deserialize", "dequantize")
UPDATE = ("aggregate", "apply")
"""`ENCODE`, `DECODE` and `UPDATE` name the spans of an outgoing message, an incoming message, and a round."""
ANSWER = ("transfer", "", "wait", *DECODE)
"""The spans of a timed call after its request has been encoded; the gap is the server's work."""
PLANNED = ENCODE[1:3]
"""The spans that only a message with arrays written by a plan has (`minips.core.codec`)."""
SPANS = ("compute", *ENCODE, "transfer", "wait", *DECODE, *UPDATE)
"""All span names, in the order in which data passes through them."""


class Span(NamedTuple):
    """An interval of one process's time, in seconds."""

    name: str
    who: str
    start: float
    seconds: float
    step: int


Names = tuple[str, ...]
Moments = tuple[float, ...]


class TraceRow(NamedTuple):
    """Successive spans of one process, each from one moment to the next; "" is a gap. If they are a message's stages,
    its kind, the number of the worker or server at the other end (None: several), its clock or step, and its size. An
    update has no kind, but the worker and the clock of its last push.
    """

    names: Names
    step: int
    moments: Moments
    kind: str | None
    partner: int | None
    clock: int | None
    nbytes: int


_NO_MESSAGE = (None, None, None, 0)


class Trace:
    """The spans of one process or, combined, of a whole run.

    >>> trace = Trace("worker 0")
    >>> with trace.span("compute"):
    ...     pass
    >>> [span.name for span in trace]
    ['compute']
    """

    def __init__(
        self,
        who: str = "",
        spans: Iterable[tuple[str, str, float, float, int]] = (),
        limit: int = 200_000,
        until: float = inf,
        now: Callable[[], float] = time.monotonic,
        planned: Mapping[str, int] | None = None,
        joined_before: Joined = NOTHING,
    ) -> None:
        self.who, self.step, self.limit, self.until = who, 0, limit, until
        """``until`` is the start of the first span that was not kept: no span that starts earlier is missing."""
        self.now = now
        """The clock used to record spans."""
        self._earlier, self._planned, self.joined_before = list(spans), Counter(planned), joined_before
        self._joined: list[tuple[str, float, list[Any]]] = []
        """For each trace that this one joins, its party, the origin of its moments, and its rows."""
        self._rows: list[Any] = []
        """The fields of each row, appended in one operation because threads share a trace."""
        self._room = limit - len(self._earlier)

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Record how long a block takes, even if it raises an error."""
        start = self.now()
        try:
            yield
        finally:
            self.add(name, start, self.now() - start)

    def laps(self, names: Names, moments: Moments, *message: Any) -> None:
        """Record a `TraceRow`: successive spans and, from its kind on, the message to which they belong. All fields of
        a second row may follow: that of the answer.
        """
        room = self._room - len(names)
        if room >= 0:
            self._room = room
            self._rows += names, self.step, *moments, *(message or _NO_MESSAGE)
        else:
            self.until = min(self.until, moments[0])

    def add(self, name: str, start: float, seconds: float) -> None:
        """Record a span that was measured elsewhere. After ``limit`` spans, no further spans are kept."""
        self.laps((name,), (start, start + seconds))

    def forget(self) -> None:
        """Drop all rows."""
        self._rows.clear()
        self._room = self.limit - len(self._earlier)

    @property
    def spans(self) -> list[Span]:
        """All recorded spans."""
        return [*self]

    @property
    def planned(self) -> Counter[str]:
        """The number of messages with arrays that a plan wrote, by party. Beyond ``limit`` spans, none are counted."""
        return self._planned + Counter({self.who: self._rows.count(PLANNED)})

    def seconds(self, who: str = "") -> dict[str, float]:
        """Total seconds by span name, for all parties or for those whose name starts with ``who``."""
        return totals(span for span in self if span.who.startswith(who))

    def steps(self, who: str) -> list[Step]:
        """The steps of one worker, except its last step, whose end is unknown.

        With one server and without overlap, a step's spans, ``served`` and ``unclaimed`` add up to its seconds.
        """
        return steps_of([span for span in self if span.who == who], totals)

    def to_chrome(self, path: str | Path) -> None:
        """Write Trace Event JSON for Perfetto or chrome://tracing: rows of workers and servers, arrows for messages."""
        files.write(path, json.dumps({"traceEvents": chrome_events([*self], messages_of(self))}))

    def since(self, origin: float, ahead: Mapping[str, float] | None = None) -> "Trace":
        """The same rows, with times measured from ``origin``, and by clocks that are ``ahead`` by seconds, by party."""
        return Trace._join(self.who, [self], origin, ahead or {})

    def __add__(self, other: "Trace") -> "Trace":
        return Trace.joined([self, other])

    @staticmethod
    def joined(traces: Sequence["Trace"]) -> "Trace":
        """One trace with the spans of all these traces."""
        return Trace._join("", traces, 0.0, {})

    @staticmethod
    def _join(who: str, traces: Sequence["Trace"], origin: float, ahead: Mapping[str, float]) -> "Trace":
        until = min((trace.until for trace in traces), default=inf) - origin
        planned = sum((trace.planned for trace in traces), Counter[str]())
        earlier = map(Span._make, chain.from_iterable(trace._earlier for trace in traces))
        spans = (span._replace(start=span.start - origin) for span in earlier)
        before = Joined.of((trace.joined_before for trace in traces), origin)
        joined = Trace(who, spans, sum(trace.limit for trace in traces), until, planned=planned, joined_before=before)
        parts = (part for trace in traces for part in trace._parts())
        joined._joined = [(who, began + origin + ahead.get(who, 0.0), rows) for who, began, rows in parts]
        joined._room = sum(trace._room for trace in traces)
        return joined

    def _parts(self) -> list[tuple[str, float, list[Any]]]:
        return [*self._joined, (self.who, 0.0, self._rows[:])]

    def rows(self) -> Iterator[Row]:
        """Yield each row with its party and the origin of its moments."""
        for who, origin, rows in self._parts():
            rest = iter(rows)
            for names in rest:
                step, moments = next(rest), tuple(islice(rest, len(names) + 1))
                yield who, origin, TraceRow(names, step, moments, *islice(rest, 4))

    def __iter__(self) -> Iterator[Span]:
        yield from map(Span._make, self._earlier)
        for who, origin, row in self.rows():
            for name, (start, stop) in zip(row.names, pairwise(row.moments), strict=True):
                if name:
                    yield Span(name, who, start - origin, stop - start, row.step)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<Trace of {len(self)} spans>"


def totals(spans: Iterable[Span]) -> dict[str, float]:
    """Seconds by span name, in the order of `SPANS`."""
    totals: dict[str, float] = defaultdict(float)
    for span in spans:
        totals[span.name] += span.seconds
    return {name: totals[name] for name in SPANS if name in totals}


UNTIMED = Trace(limit=0, now=lambda: 0.0)
"""A trace that keeps nothing, for parties without a wall clock."""
