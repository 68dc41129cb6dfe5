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
from minips.results.messages import Message, Row, Wait, in_order, join_messages
from minips.results.steps import Step, chrome_events, steps_of
from minips.results.waits import partners_of
from minips.stages.consistency import Consistency

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
    its kind, the number of the worker or server at the other end (None: several), its clock or step, and its size.
    """

    names: Names
    step: int
    kind: str | None
    partner: int | None
    clock: int | None
    nbytes: int
    moments: Moments


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
        messages: Iterable[Message] = (),
        waits: Iterable[Wait] = (),
    ) -> None:
        self.who, self.step, self.limit, self.until = who, 0, limit, until
        """``until`` is the start of the first span that was not kept: no span that starts earlier is missing."""
        self.now = now
        """The clock used to record spans."""
        self._earlier, self._planned = list(spans), Counter(planned)
        self._messages, self._waits = list(messages), list(waits)
        self._joined: list[tuple[str, float, list[Any]]] = []
        """For each trace that this one joins, its party, the origin of its moments, and its rows."""
        self._rows: list[Any] = []
        """The fields of each row, its moments last, appended in one operation because threads share a trace."""
        self._room = limit - len(self._earlier)

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Record how long a block takes, even if it raises an error."""
        start = self.now()
        try:
            yield
        finally:
            self.add(name, start, self.now() - start)

    def laps(
        self,
        names: Names,
        moments: Moments,
        kind: Any = None,
        partner: Any = None,
        clock: Any = None,
        nbytes: int = 0,
        *reply: Any,
    ) -> None:
        """Record a `TraceRow`: successive spans, and the message to which they belong. ``reply`` is the row, without
        spans, of the message that answered it: its fields, then its moment.
        """
        room = self._room - len(names)
        if room >= 0:
            self._room = room
            self._rows += names, self.step, kind, partner, clock, nbytes, *moments, *reply
        else:
            self.until = min(self.until, moments[0])

    def add(self, name: str, start: float, seconds: float) -> None:
        """Record a span that was measured elsewhere. After ``limit`` spans, no further spans are kept."""
        self.laps((name,), (start, start + seconds))

    @property
    def spans(self) -> list[Span]:
        """All recorded spans."""
        return [*self]

    @property
    def planned(self) -> Counter[str]:
        """The number of messages with arrays that a plan wrote, by party. Beyond ``limit`` spans, none are counted."""
        return self._planned + Counter({self.who: self._rows.count(PLANNED)})

    @property
    def messages(self) -> list[Message]:
        """All messages of which a row is kept, in order of start."""
        return in_order([*self._messages, *join_messages(self._read(), self.until)])

    def waits(self, consistency: Consistency, workers: int) -> list[Wait]:
        """The workers' waits, in order of start, in a run with this consistency model and so many workers."""
        known = {(wait.who, wait.start): wait.partners for wait in self._waits}
        known |= partners_of(self._read(), consistency, workers)
        waits = (span for span in self if span.name == "wait" and span.who.startswith("worker"))
        found = [Wait(*span[1:], known.get(span[1:3], ())) for span in waits if span.seconds > 0]
        return sorted(found, key=lambda wait: wait.start)

    def seconds(self, who: str = "") -> dict[str, float]:
        """Total seconds by span name, for all parties or for those whose name starts with ``who``."""
        return totals(span for span in self if span.who.startswith(who))

    def steps(self, who: str) -> list[Step]:
        """The steps of one worker, except its last step, whose end is unknown.

        With one server and without overlap, a step's spans, ``served`` and ``unclaimed`` add up to its seconds.
        """
        return steps_of([span for span in self if span.who == who], totals)

    def to_chrome(self, path: str | Path) -> None:
        """Write Trace Event JSON for Perfetto or chrome://tracing, with a row for each worker and server."""
        files.write(path, json.dumps({"traceEvents": chrome_events([*self])}))

    def since(self, origin: float) -> "Trace":
        """The same spans, with starts measured from ``origin``."""
        return Trace._join(self.who, [self], origin)

    def __add__(self, other: "Trace") -> "Trace":
        return Trace.joined([self, other])

    @staticmethod
    def joined(traces: Sequence["Trace"]) -> "Trace":
        """One trace with the spans of all these traces."""
        return Trace._join("", traces)

    @staticmethod
    def _join(who: str, traces: Sequence["Trace"], origin: float = 0.0) -> "Trace":
        until = min((trace.until for trace in traces), default=inf) - origin
        planned = sum((trace.planned for trace in traces), Counter[str]())
        earlier = map(Span._make, chain.from_iterable(trace._earlier for trace in traces))
        spans = (span._replace(start=span.start - origin) for span in earlier)
        whole = [_moved(trace._messages, origin, "start", "end") for trace in traces]
        waits = [_moved(trace._waits, origin, "start") for trace in traces]
        limit, parts = sum(trace.limit for trace in traces), (chain.from_iterable(whole), chain.from_iterable(waits))
        joined = Trace(who, spans, limit, until, planned=planned, messages=parts[0], waits=parts[1])
        joined._joined = [(who, began + origin, rows) for trace in traces for who, began, rows in trace._parts()]
        joined._room = sum(trace._room for trace in traces)
        return joined

    def _parts(self) -> list[tuple[str, float, list[Any]]]:
        return [*self._joined, (self.who, 0.0, self._rows[:])]

    def _read(self) -> Iterator[Row]:
        """Yield each row with its party and the origin of its moments."""
        for who, origin, rows in self._parts():
            rest = iter(rows)
            for names in rest:
                yield who, origin, TraceRow._make([names, *islice(rest, 5), tuple(islice(rest, len(names) + 1))])

    def __iter__(self) -> Iterator[Span]:
        yield from map(Span._make, self._earlier)
        for who, origin, row in self._read():
            for name, (start, stop) in zip(row.names, pairwise(row.moments), strict=True):
                if name:
                    yield Span(name, who, start - origin, stop - start, row.step)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<Trace of {len(self)} spans>"


def _moved(rows: Iterable[Any], origin: float, *times: str) -> list[Any]:
    """The rows with these times measured from ``origin``, where they have them."""
    return [
        row._replace(**{name: at - origin for name in times if (at := getattr(row, name)) is not None}) for row in rows
    ]


def totals(spans: Iterable[Span]) -> dict[str, float]:
    """Seconds by span name, in the order of `SPANS`."""
    totals: dict[str, float] = defaultdict(float)
    for span in spans:
        totals[span.name] += span.seconds
    return {name: totals[name] for name in SPANS if name in totals}


UNTIMED = Trace(limit=0, now=lambda: 0.0)
"""A trace that keeps nothing, for parties without a wall clock."""
