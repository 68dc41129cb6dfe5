"""For whom workers waited: read from the rows in which servers note their decisions, and workers their hops.

A server's row of an update says whose push of which clock (or whose departure) was the last that it needed. So the
clock for which others wait, as `Shard.slowest` defines it, is known after each update; the consistency model says at
which of its values a pull may go.
"""

from bisect import bisect_left, bisect_right, insort
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cached_property
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple

from minips.results.messages import MOST, Row, Wait, is_timed
from minips.stages.consistency import Consistency, takes_view

PUSHES = ("push", "push_pull")
WAITED = ("", "", "")
"""The names in the row of a simulated server that notes which worker's request has waited, and how long."""

Partners = tuple[str, ...]
Key = tuple[str, float, float]
"""Who waited, since when, and for how many seconds: no two waits for different servers are alike in all of these."""
_at = itemgetter(0)


class _Waited(NamedTuple):
    """A wait that a row notes: for a server's answer, or for a neighbour's hop."""

    who: str
    start: float
    end: float
    other: str
    clock: int | None
    """The worker's clock in the server's answer; None if another row has it."""
    key: Key


def waits_of(trace: Any, consistency: Consistency, workers: int) -> list[Wait]:
    """The workers' waits in a run's trace, in order of start, under this consistency model with so many workers."""
    known = {(wait.who, wait.start, wait.seconds): wait.partners for wait in trace.joined_before.waits}
    known |= partners_of(trace.rows(), consistency, workers)
    spans = (span for span in trace if span.name == "wait" and span.seconds > 0 and span.who.startswith("worker"))
    waits = [
        Wait(who, start, seconds, step, known.get((who, start, seconds), ())) for _, who, start, seconds, step in spans
    ]
    return sorted(waits, key=lambda wait: wait.start)


def partners_of(rows: Iterable[Row], consistency: Consistency, workers: int) -> dict[Key, Partners]:
    """The partners of each wait in a run with so many ``workers``."""
    servers: dict[str, _Decisions] = {}
    waits = []
    for who, origin, row in rows:
        if who.startswith("server") and row.partner is not None:
            if who not in servers:
                servers[who] = _Decisions(consistency, workers)
            servers[who].note(row, origin)
        if waited := _wait_of(who, origin, row):
            waits.append(waited)
    found: dict[Key, Partners] = {}
    last: dict[str, _Waited] = {}
    for wait in sorted(waits, key=lambda wait: wait.end):
        partners: Partners = ()
        if wait.other in servers:
            pushed = servers[wait.other].partners(wait)
            partners = tuple(f"worker {worker}" for worker in pushed) or (wait.other,)
        elif wait.other.startswith("worker"):
            before, last[wait.who] = last.get(wait.other), wait
            chain = found[before.key] if before and before.end > wait.start else ()
            partners = wait.other, *(other for other in chain if other != wait.who)
        found[wait.key] = partners[:MOST]
    return found


def _wait_of(who: str, origin: float, row: Any) -> _Waited | None:
    """The wait that a row notes, if any."""
    number, place = row.partner, 0
    if number is None:
        return None
    if row.names == WAITED:
        who, other, clock = f"worker {number}", who, None
    elif row.kind == "hop" and len(row.names) == 2:
        other, clock = f"worker {number}", row.clock
    elif row.kind == "reply" and is_timed(row):
        other, clock, place = f"server {number}", row.clock, 2
    else:
        return None
    start, end = row.moments[place : place + 2]
    key = who, start - origin, end - start
    return _Waited(who, start - origin, end - origin, other, clock, key) if end > start else None


class _Rise(NamedTuple):
    """A rise of the clock for which others wait: when, which worker raised it, and the new clock."""

    at: float
    by: int
    clock: int


class _Decisions:
    """A server's decisions, from its rows: which update let which pull go."""

    def __init__(self, consistency: Consistency, workers: int) -> None:
        self._consistency, self._workers = consistency, workers
        self._changes: list[tuple[float, int, int | None, bool]] = []
        """When the workers' clocks here changed: whose, and the clock of its push or, with None, true if it left."""
        self._requests: dict[int, list[tuple[float, str]]] = defaultdict(list)
        """For each worker, when its pushes and pulls came."""
        self._pushes: dict[int, list[tuple[float, int]]] = defaultdict(list)
        """For each clock, when its pushes came, and from whom."""
        self._replies: dict[int, list[tuple[float, int]]] = defaultdict(list)
        """For each worker, when answers to it left, and its clock in them."""

    def note(self, row: Any, origin: float) -> None:
        """Keep what a row of this server says."""
        worker, at = row.partner, row.moments[0] - origin
        if row.kind is None and row.names != WAITED:
            self._changes.append((row.moments[-1] - origin, worker, row.clock, row.clock is None))
        elif row.kind == "hello":
            self._changes.append((at, worker, None, False))
        elif row.kind == "reply" and not row.names:
            insort(self._replies[worker], (at, row.clock))
        elif row.kind == "pull" or row.kind in PUSHES:
            insort(self._requests[worker], (at, row.kind))
            if row.kind in PUSHES:
                insort(self._pushes[row.clock], (at, worker))

    def partners(self, wait: _Waited) -> list[int]:
        """The workers whose pushes ended a wait, the last one first; none if the server itself was paused or busy."""
        who = int(wait.who.split()[1])
        left_at, clock = self._answer(who, wait)
        began = since = wait.start if wait.clock is None else left_at - (wait.end - wait.start)
        kind, requests = "pull", self._requests[who]
        if place := bisect_right(requests, began, key=_at):
            asked_at, kind = requests[place - 1]
            since = began if wait.clock is None else asked_at
        rise = self._decision(clock - (kind == "push"), left_at)
        if rise.at <= since or rise.by == who:
            return []
        pushes = self._pushes[rise.clock - 1]
        later = pushes[bisect_right(pushes, since, key=_at) : bisect_right(pushes, left_at, key=_at)]
        others = [worker for _, worker in reversed(later[-MOST:]) if worker != who]
        return [*dict.fromkeys([rise.by, *others])]

    def _answer(self, who: int, wait: _Waited) -> tuple[float, int]:
        """When the answer after a wait left, and the worker's clock in it."""
        replies = self._replies[who]
        place = bisect_right(replies, wait.end, key=_at)
        if wait.clock is None:  # the wait was noted here: the answer comes next
            place = bisect_left(replies, wait.end, key=_at)
            return wait.end, replies[place][1] if place < len(replies) else 0
        left = (at for at, clock in reversed(replies[:place]) if clock == wait.clock)
        return next(left, wait.end), wait.clock

    def _decision(self, clock: int, left_at: float) -> _Rise:
        """The rise that let a pull at this ``clock`` go. If none did (the model sees more than clocks, or the run was
        ending), the last update before its answer left.
        """
        if not takes_view(self._consistency):
            may_pull = self._consistency.may_pull
            place = bisect_left(self._rises, True, key=lambda rise: bool(may_pull(clock, rise.clock)))
            if place < len(self._rises):
                return self._rises[place]
        place = bisect_right(self._updates, left_at, key=_at)
        return self._updates[place - 1] if place else _Rise(-inf, -1, 0)

    @cached_property
    def _updates(self) -> list[_Rise]:
        """Each update as if it had raised the clock."""
        return [_Rise(at, worker, clock + 1) for at, worker, clock, _ in self._changes if clock is not None]

    @cached_property
    def _rises(self) -> list[_Rise]:
        """All rises of the clock for which others wait; the first is the run's beginning."""
        if self._consistency.quorum(self._workers) is not None:
            return [_Rise(-inf, -1, 0), *self._updates]
        first = {rise.by: rise.clock - 1 for rise in reversed(self._updates)}  # the clock of each worker's first push
        clocks = dict.fromkeys(range(self._workers), 0) | first
        live, at, slowest = {*clocks}, Counter(clocks.values()), min(clocks.values())
        rises = [_Rise(-inf, -1, slowest)]
        for when, worker, clock, leaves in self._changes:
            if worker in live:
                at[clocks[worker]] -= 1
            live.add(worker)
            clocks[worker] = max(clocks[worker], slowest if clock is None else clock + 1)
            at[clocks[worker]] += 1
            if leaves:
                live.remove(worker)
                at[clocks[worker]] -= 1
            while live and not at[slowest]:
                slowest += 1
            if slowest > rises[-1].clock:
                rises.append(_Rise(when, worker, slowest))
        return rises
