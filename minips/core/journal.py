"""The journal of a server: what has changed it, in the order in which that was applied.

A server with a journal first keeps a record, then applies it, and only then acknowledges it. After a crash, a new
server applies the same records again, through the same decoders and the same shard. So waiting pushes, the receiver's
half of a memory, the optimizer's state and the losses come back to the bit. A push's record holds the request's own
frames, and nothing decoded.
"""

from collections.abc import Callable
from typing import NamedTuple

import msgpack

from minips.core.message import Header
from minips.stage import Frames

KINDS = ("hello", "resume", "push", "bye", "leave", "diverge", "end", "go on")
"""The kinds of records: of a worker up to ``leave``, and of the run."""


class JournalRecord(NamedTuple):
    """One change: its kind, its worker (-1: the run), the time, plain values, and a push's or a goodbye's frames."""

    kind: str
    worker: int
    at: float
    """The time in seconds, on the clock of the shard."""
    fields: Header
    frames: Frames


Keep = Callable[[JournalRecord], None]
"""A function that keeps a record. When it returns, the record is kept; if it raises OSError, nothing is kept."""


def to_frames(record: JournalRecord) -> Frames:
    """Convert a record into frames, of which the first describes it."""
    return [msgpack.packb([*record[:4]]), *record.frames]


def from_frames(frames: Frames) -> JournalRecord:
    """The record that `to_frames` converted. ValueError for other frames."""
    try:
        kind, worker, at, fields = msgpack.unpackb(frames[0])
        fits = kind in KINDS and type(worker) is int and type(at) is float and type(fields) is dict
    except (IndexError, TypeError, ValueError, msgpack.UnpackException) as error:
        raise ValueError("The first frame of this record does not describe it.") from error
    if not fits:
        raise ValueError(f"A record is one of {', '.join(KINDS)}; got {kind!r:.99}.")
    return JournalRecord(kind, worker, at, fields, [*frames[1:]])
