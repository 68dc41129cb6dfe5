"""The states of a member, a run, a resumption and a supervised run: one value each, with a table of its changes.

Each row has a state, and the states to which events lead from it; any other event raises. The reason for a state, its
time and a member's secret are values beside it. docs/reading.md shows the tables as pictures.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Self


class TransitionError(Exception):
    """An event that is not possible in this state: a mistake in minips, not in a peer's message."""


class State(Enum):
    """One of several states, with its row of the table: the next state for each event."""

    def __init__(self, word: str, row: Mapping[str, str]) -> None:
        self.word, self.row = word, row

    def after(self, event: str) -> Self:
        """The state after this event. TransitionError if the event is not in this state's row."""
        if event not in self.row:
            raise TransitionError(f"{self} allows {' and '.join(self.row) or 'no event'}; got {event!r}.")
        return type(self)[self.row[event].upper()]


class MemberState(State):
    """The session that holds a worker's number, or held it last, as the server sees it.

    Whether the others wait for the worker is another question: `Shard.live`. They also wait for a new one, and for a
    lost one until ``rejoin_s`` seconds have passed.
    """

    NEW = "new", {"hello": "present"}
    PRESENT = "present", {"hello": "present", "silence": "silent", "break": "lost", "bye": "parted"}
    SILENT = "silent", {"hello": "present", "push": "present", "break": "lost", "bye": "parted"}
    LOST = "lost", {"hello": "present"}
    PARTED = "parted", {"hello": "present"}


_ENDS = {"diverge": "diverged", "end": "over"}
_LATE = "pause", "go on", "strand", "fail", "diverge", "end"  # may come while a run ends, and then change nothing


class RunState(State):
    """A run at a server. A stuck one can continue if a worker comes back; a failed one refuses all pushes."""

    RUNNING = "running", {"pause": "paused", "go on": "running", "strand": "stuck", "fail": "failed", **_ENDS}
    PAUSED = "paused", {"pause": "paused", "go on": "running", "strand": "stuck", "fail": "failed", **_ENDS}
    STUCK = (
        "stuck",
        {"pause": "stuck", "go on": "stuck", "strand": "stuck", "update": "running", "fail": "failed"} | _ENDS,
    )
    FAILED = "failed", {"pause": "failed", "go on": "failed", "strand": "failed", **_ENDS}
    DIVERGED = "diverged", dict.fromkeys(_LATE, "diverged")
    OVER = "over", dict.fromkeys(_LATE, "over")

    def __init__(self, word: str, row: Mapping[str, str]) -> None:
        super().__init__(word, row)
        self.done = word in ("diverged", "over")
        """True once no update follows."""


class Resumption(State):
    """The use of a worker's state in a saved run: ``due`` until the worker's first push or pull."""

    FRESH = "fresh", {"hello": "fresh", "fetch": "fresh", "restore": "resuming"}
    RESUMING = "resuming", {"hello": "resuming", "fetch": "fetched", "resume": "resumed", "restart": "restarted"}
    FETCHED = "fetched", {"hello": "resuming", "fetch": "fetched", "resume": "resumed"}
    RESUMED = "resumed", {"hello": "resumed", "fetch": "resumed"}
    RESTARTED = "restarted", {"hello": "restarted", "fetch": "restarted"}

    def __init__(self, word: str, row: Mapping[str, str]) -> None:
        super().__init__(word, row)
        self.due = word in ("resuming", "fetched")


class Supervision(State):
    """A run as the supervisor of its children sees it. Only while it is ending may a child leave."""

    BRIEFING = "briefing", {"brief": "connecting"}
    CONNECTING = "connecting", {"go": "running", "end": "ending", "fail": "over", "lose a server": "over"}
    RUNNING = "running", {"end": "ending", "fail": "ending", "lose a server": "over"}
    ENDING = "ending", {"end": "ending", "report": "over"}
    OVER = "over", dict[str, str]()
