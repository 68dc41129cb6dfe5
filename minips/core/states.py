"""The states of a member, a run, a resumption and a supervised run, each with a table of the allowed changes.

A row of a table has a state, and the states to which events lead from it; any other event raises. The reason for a
state, its time and a member's secret are stored outside it. docs/reading.md shows the tables as pictures.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Self


class State(Enum):
    """One of several states. ``row`` maps each event to the next state; no event leads out of a ``final`` state."""

    def __init__(self, word: str, row: Mapping[str, str]) -> None:
        self.word, self.row, self.final = word, row, {*row.values()} <= {word}

    def after(self, event: str) -> Self:
        """The state after this event. AssertionError if the event is not in this state's row: a mistake in minips."""
        if event not in self.row:
            raise AssertionError(f"{self} allows {' and '.join(self.row) or 'no event'}; got {event!r}.")
        return type(self)[self.row[event].upper()]


class MemberState(State):
    """The session that holds a worker's number, or held it last. `Shard.live` says for which workers others wait:
    among them are new workers and, for ``rejoin_s`` seconds, lost ones.
    """

    NEW = "new", {"hello": "present"}
    PRESENT = "present", {"hello": "present", "push": "present", "silence": "silent", "break": "lost", "bye": "parted"}
    SILENT = "silent", {"hello": "present", "push": "present", "break": "lost", "bye": "parted"}
    LOST = "lost", {"hello": "present"}
    PARTED = "parted", {"hello": "present"}


_ENDS = {"diverge": "diverged", "end": "over"}
_CALLS = "pause", "go on", "strand"  # these may arrive even when they can change nothing


class RunState(State):
    """A run at a server. A stuck one continues once an update is made; a failed one refuses all pushes."""

    RUNNING = "running", {"pause": "paused", "go on": "running", "strand": "stuck", "fail": "failed", **_ENDS}
    PAUSED = "paused", {"pause": "paused", "go on": "running", "strand": "stuck", "fail": "failed", **_ENDS}
    STUCK = "stuck", dict.fromkeys(_CALLS, "stuck") | {"update": "running", "fail": "failed"} | _ENDS
    FAILED = "failed", dict.fromkeys(_CALLS, "failed") | _ENDS
    DIVERGED = "diverged", dict.fromkeys((*_CALLS, "fail", *_ENDS), "diverged")
    OVER = "over", dict.fromkeys((*_CALLS, "fail", *_ENDS), "over")


class Resumption(State):
    """The use of a worker's part of a saved run, up to its first push or pull: "resume" or "restart"."""

    FRESH = "fresh", {"hello": "fresh", "fetch": "fresh", "restore": "resuming"}
    RESUMING = "resuming", {"hello": "resuming", "fetch": "fetched", "resume": "resumed", "restart": "restarted"}
    FETCHED = "fetched", {"hello": "resuming", "fetch": "fetched", "resume": "resumed"}
    RESUMED = "resumed", {"hello": "resumed", "fetch": "resumed"}
    RESTARTED = "restarted", {"hello": "restarted", "fetch": "restarted"}


class Supervision(State):
    """A run as the supervisor of its children sees it. Only while it is ending may a child leave."""

    BRIEFING = "briefing", {"brief": "connecting"}
    CONNECTING = "connecting", {"go": "running", "end": "ending", "fail": "over", "lose a server": "over"}
    RUNNING = "running", {"end": "ending", "fail": "ending", "lose a server": "over", "begin again": "briefing"}
    ENDING = "ending", {"end": "ending", "report": "over"}
    OVER = "over", dict[str, str]()
