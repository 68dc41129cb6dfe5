"""The messages of a run, joined from the rows of all parties' traces.

Sender and receiver each note their half of a message: a `TraceRow` with its kind, the other end, its clock and its
bytes. Both halves agree on these, so they are joined by them; several messages that are alike in all of these are
joined in order.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any, NamedTuple

AMONG_WORKERS = ("hop", "greeting")
"""The kinds of messages between workers. All others are between a worker and a server."""
MOST = 16
"""The most partners that a `Wait` names."""


class Message(NamedTuple):
    """One message of a run. Times are in seconds since the run's beginning, on one clock."""

    kind: str
    """As on the wire, such as ``push_pull``, ``reply`` or ``hop``; ``greeting`` opens a connection between workers."""
    sender: str
    receiver: str
    clock: int | None
    """The worker's clock, or the step of a hop; None for a message without one, such as a pull."""
    nbytes: int
    """The bytes of its frames, as `Run.bytes_sent` counts them."""
    start: float | None
    """When it left its sender. None if the sender's trace lacks it."""
    end: float | None
    """When its receiver had all of it and began to decode it. None if it was lost, or if the receiver's trace lacks it:
    that of a worker that died, or one that had no room left (``trace.until``)."""


class Wait(NamedTuple):
    """A worker's wait: the same interval as a span ``wait`` of the trace."""

    who: str
    start: float
    seconds: float
    step: int
    partners: tuple[str, ...]
    """For whom: the parties whose messages ended it, at most `MOST`, the last one, which decided, first. Empty if no
    other party did, as at the end of a pause. In an all-reduce, the neighbour, then those for whom it waited itself."""


Row = tuple[str, float, Any]
"""A party, the origin of its times, and its `TraceRow`."""
Key = tuple[str, str, str, int | None, int]
"""What both halves of a message know: its kind, sender, receiver, clock and bytes."""


class _Half(NamedTuple):
    """One end's part of a message."""

    key: Key
    sends: bool
    at: float


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
    return bool(row.names[:1] == ("transfer",))


def join_messages(rows: Iterable[Row], until: float) -> list[Message]:
    """The messages that these rows note, in order of start. From the time ``until`` on, rows may be missing."""
    sent: dict[Key, list[float]] = defaultdict(list)
    came: dict[Key, list[float]] = defaultdict(list)
    asked: dict[tuple[str, str], list[float]] = defaultdict(list)
    for who, origin, row in rows:
        if half := _half_of(who, origin, row):
            (sent if half.sends else came)[half.key].append(half.at)
            if is_timed(row) and row.kind == "reply":
                asked[who, half.key[1]].append(row.moments[0] - origin)
    left = _departures(sent, asked)
    messages = []
    for key in {**sent, **came}:
        kind, sender, receiver, clock, nbytes = key
        starts = sorted(left.get((sender, receiver, at), at) for at in sent.get(key, ()))
        for start, end in _pairs(kind, starts, sorted(came.get(key, ())), until):
            messages.append(Message(kind, sender, receiver, clock, nbytes, start, end))
    return in_order(messages)


def in_order(messages: Iterable[Message]) -> list[Message]:
    """The messages by their start or, without one, by their end."""
    return sorted(messages, key=lambda message: message.end if message.start is None else message.start)  # type: ignore[arg-type,return-value]


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
    else:  # a request that came again over another connection is the same message
        number = 0
        for end in ends:
            if number < len(starts) and starts[number] <= end:
                yield starts[number], end
                number += 1
            elif end >= until:
                yield None, end
        yield from ((start, None) for start in starts[number:])
