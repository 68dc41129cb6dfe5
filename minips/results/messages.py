"""The messages of a run, joined from the rows of all parties' traces.

Sender and receiver each note their half of a message: a `TraceRow` with its kind, the other end, its clock and its
bytes. Both halves agree on these, so they are joined by them; several messages that are alike in all of these are
joined in order.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain, zip_longest
from math import inf, isnan, nan
from typing import Any, NamedTuple, Self

import numpy as np

AMONG_WORKERS = ("hop", "greeting")
"""The kinds of messages between workers. All others are between a worker and a server."""
MOST = 16
"""The most partners that a `Wait` names."""


class Message(NamedTuple):
    """One message of a run. Times are in seconds since the run's beginning, on one clock."""

    kind: str
    """As on the wire, such as ``push_pull``, ``reply`` or ``hop``; ``greeting`` opens a connection between workers."""
    sender: str
    """Such as ``worker 0`` or ``server 1``."""
    receiver: str
    clock: int | None
    """The step of a push or a hop; in a reply, the worker's next step. None for a message without one, as a pull."""
    nbytes: int
    """The bytes of its frames, as `Run.bytes_sent` counts them."""
    start: float | None
    """When it left its sender, encoded. None if the run has no row of that: a worker that died takes its rows along,
    workers started by hand keep theirs, and beyond its limit (``trace.until``) a trace keeps no more rows."""
    end: float | None
    """When its receiver had all of it and began to decode it. None if the message was lost, or if the run has no row of
    its arrival."""


class Wait(NamedTuple):
    """A worker's wait: the same interval as a span ``wait`` of the trace."""

    who: str
    start: float
    seconds: float
    step: int
    partners: tuple[str, ...]
    """For whom: the parties whose messages ended it, at most `MOST`, the last one, which decided, first. In an
    all-reduce, the neighbour, then those for whom the neighbour waited. The server itself, if it was paused or busy.
    Empty for a simulated worker that waited for its own processor, and in a file of an earlier release."""


class Joined(NamedTuple):
    """The messages and the waits of a loaded run. Its rows were not saved."""

    messages: tuple[Message, ...] = ()
    waits: tuple[Wait, ...] = ()

    @classmethod
    def of(cls, parts: Iterable["Joined"], origin: float) -> Self:
        """All that these parts have, with times measured from ``origin``."""
        messages, waits = zip(NOTHING, *parts, strict=True)
        return cls(
            tuple(
                one._replace(start=_since(one.start, origin), end=_since(one.end, origin))
                for one in chain.from_iterable(messages)
            ),
            tuple(one._replace(start=one.start - origin) for one in chain.from_iterable(waits)),
        )

    def columns(self) -> dict[str, Any]:
        """Columns of plain values and arrays, for a file; `from_columns` reads them. None becomes -1 or NaN."""
        kinds, senders, receivers, clocks, nbytes, starts, ends = _columns(self.messages, len(Message._fields))
        numbers = [-1 if clock is None else clock for clock in clocks]
        times = [np.array([nan if at is None else at for at in column]) for column in (starts, ends)]
        who, begins, seconds, steps, partners = _columns(self.waits, len(Wait._fields))
        messages = [kinds, senders, receivers, np.array(numbers, int), np.array(nbytes, int), *times]
        waits = [who, np.array(begins, float), np.array(seconds, float), np.array(steps, int), [*map(list, partners)]]
        return {"messages": messages, "waits": waits}

    @classmethod
    def from_columns(cls, messages: list[Any], waits: list[Any]) -> Self:
        """The messages and waits in these columns. Without columns, as in a file of an earlier release, none."""
        if not messages:
            return cls()
        *texts, clocks, nbytes, starts, ends = messages
        numbers = [None if clock < 0 else clock for clock in clocks.tolist()]
        times = [[None if isnan(at) else at for at in column.tolist()] for column in (starts, ends)]
        who, *spans, partners = waits
        return cls(
            tuple(map(Message, *texts, numbers, nbytes.tolist(), *times)),
            tuple(map(Wait, who, *(column.tolist() for column in spans), map(tuple, partners))),
        )


NOTHING = Joined()


def _since(at: float | None, origin: float) -> float | None:
    return None if at is None else at - origin


def _columns(rows: tuple[Any, ...], count: int) -> list[list[Any]]:
    return [[*column] for column in zip(*rows, strict=True)] or [[] for _ in range(count)]


Row = tuple[str, float, Any]
"""A party, the origin of its times, and its `TraceRow`."""
Key = tuple[str, str, str, int | None, int]
"""What both halves of a message know: its kind, sender, receiver, clock and bytes."""


class _Half(NamedTuple):
    """One end's part of a message."""

    key: Key
    sends: bool
    at: float


def messages_of(trace: Any) -> list[Message]:
    """All messages of which a trace has a row, in order of start."""
    return sorted([*trace.joined_before.messages, *join_messages(trace.rows(), trace.until)], key=_time)


def _time(message: Message) -> float:
    at = message.end if message.start is None else message.start
    return inf if at is None else at


def join_messages(rows: Iterable[Row], until: float) -> Iterator[Message]:
    """The messages that these rows note. From the time ``until`` on, rows may be missing."""
    sent: dict[Key, list[float]] = defaultdict(list)
    came: dict[Key, list[float]] = defaultdict(list)
    asked: dict[tuple[str, str], list[float]] = defaultdict(list)
    for who, origin, row in rows:
        if half := _half_of(who, origin, row):
            (sent if half.sends else came)[half.key].append(half.at)
            if is_timed(row):
                asked[who, half.key[1]].append(row.moments[0] - origin)
    left = _departures(sent, asked)
    for key in {**sent, **came}:
        kind, sender, receiver, clock, nbytes = key
        starts = sorted(left.get((sender, receiver, at), at) for at in sent.get(key, ()))
        for start, end in _pairs(kind, starts, sorted(came.get(key, ())), until):
            yield Message(kind, sender, receiver, clock, nbytes, start, end)


def _half_of(who: str, origin: float, row: Any) -> _Half | None:
    """The half of a message that a row notes, if it does. The row of a reply's encoding, which may be shared by several
    workers, does not: each reply has its own row.
    """
    kind, number, moments = row.kind, row.partner, row.moments
    if kind is None or number is None or number < 0:
        return None
    if kind in AMONG_WORKERS:
        other, sends = f"worker {number}", len(row.names) == 1
        at = moments[0] if sends else moments[-1]
    elif who.startswith("server"):
        other, sends, at = f"worker {number}", kind == "reply", moments[0]
        if sends and row.names:
            return None
    else:
        other, sends = f"server {number}", kind != "reply"
        at = moments[-1] if sends else moments[3 if is_timed(row) else 0]
    ends = (who, other) if sends else (other, who)
    return _Half((kind, *ends, row.clock, row.nbytes), sends, at - origin)


def is_timed(row: Any) -> bool:
    """True for the row of a timed call's answer, which begins when the request was sent."""
    return bool(row.kind == "reply" and row.names[:1] == ("transfer",))


def _departures(
    sent: dict[Key, list[float]], asked: dict[tuple[str, str], list[float]]
) -> dict[tuple[str, str, float], float]:
    """Maps a request's ends and the time at which it was encoded to the time at which it left. A call encodes its
    messages to all servers first, and one thread at a time calls; so what leaves is what was encoded last.
    """
    encoded: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (_, sender, receiver, *_), times in sent.items():
        if (sender, receiver) in asked:
            encoded[sender, receiver] += times
    left = {}
    for ends, times in encoded.items():
        times.sort()
        for at in asked[ends]:
            if place := bisect_right(times, at):
                left[*ends, times[place - 1]] = at
    return left


def _pairs(
    kind: str, starts: list[float], ends: list[float], until: float
) -> Iterator[tuple[float | None, float | None]]:
    """Join the halves of messages that are alike."""
    if len(starts) == len(ends) or kind in AMONG_WORKERS or not starts:
        yield from zip_longest(starts, ends)
    elif len(starts) > len(ends):  # some were lost: each that came is the last that had left by then
        for start in reversed(starts):
            yield start, ends.pop() if ends and start <= ends[-1] else None
        yield from ((None, end) for end in ends)
    else:  # a request that came again, over another connection, is the same message
        number = 0
        for end in ends:
            if number < len(starts) and starts[number] <= end:
                yield starts[number], end
                number += 1
            elif end >= until:
                yield None, end
        yield from ((start, None) for start in starts[number:])
