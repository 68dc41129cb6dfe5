"""For whom workers waited: read from the rows in which servers note their decisions, and workers their hops.

A server's row of an update says whose push of which clock (or whose departure) was the last that it needed. So the
clock for which others wait, as `Shard.slowest` defines it, is known after each update; the consistency model says at
which of its values a pull may go.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cached_property
from math import inf
from typing import Any, NamedTuple

from minips.results.messages import MOST, Row, is_timed
from minips.stages.consistency import Consistency, takes_view

PUSHES = ("push", "push_pull")
WAITED = ("", "", "")
"""The names in the row of a simulated server that notes which worker's request has waited, and how long."""

Partners = tuple[str, ...]


class _Waited(NamedTuple):
    """A wait that a row notes: for a server's answer, or for a neighbour's hop."""

    who: str
    start: float
    end: float
    other: str
    clock: int | None
    """The worker's clock in the server's answer; None if another row has it."""


def partners_of(rows: Iterable[Row], consistency: Consistency, workers: int) -> dict[tuple[str, float], Partners]:
    """The partners of each wait, by who waited and since when, in a run with so many ``workers``."""
    servers: dict[str, _Decisions] = {}
    waits = []
    for who, origin, row in rows:
        if who.startswith("server") and row.partner is not None:
            if who not in servers:
                servers[who] = _Decisions(consistency, workers)
            servers[who].note(row, origin)
        if waited := _waited(who, origin, row):
            waits.append(waited)
    found: dict[tuple[str, float], Partners] = {}
    last: dict[str, _Waited] = {}
    for wait in sorted(waits, key=lambda wait: wait.end):
        partners: Partners = ()
        if wait.other in servers:
            partners = tuple(f"worker {worker}" for worker in servers[wait.other].partners(wait))
        elif wait.other.startswith("worker"):
            before, last[wait.who] = last.get(wait.other), wait
            chain = found[before[:2]] if before and before.end > wait.start else ()
            partners = wait.other, *(other for other in chain if other != wait.who)
        found[wait[:2]] = partners[:MOST]
    return found


def _waited(who: str, origin: float, row: Any) -> _Waited | None:
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
    return _Waited(who, start - origin, end - origin, other, clock) if end > start else None


class _Decisions:
    """A server's decisions, from its rows in their order: which update let which pull go."""

    def __init__(self, consistency: Consistency, workers: int) -> None:
        self._consistency, self._workers = consistency, workers
        self._changes: list[tuple[float, int, int | None, bool]] = []
        """When the clocks here changed, and of which worker; the clock of its push or, with None, true if it left."""
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
            self._replies[worker].append((at, row.clock))
        elif row.kind == "pull" or row.kind in PUSHES:
            self._requests[worker].append((at, row.kind))
            if row.kind in PUSHES:
                self._pushes[row.clock].append((at, worker))

    def partners(self, wait: _Waited) -> list[int]:
        """The workers whose pushes a wait ended with, the last one first."""
        who = int(wait.who.split()[1])
        began, ended, clock = self._times(who, wait)
        requests = self._requests[who]
        place = bisect_right(requests, began, key=lambda request: request[0]) - 1
        asked_at, kind = requests[max(place, 0)] if requests else (began, "pull")
        decided_at, last, level = self._decided(clock - (kind == "push"), ended)
        if decided_at <= asked_at:
            return []
        pushes = self._pushes[level - 1]
        later = pushes[bisect_right(pushes, asked_at, key=lambda push: push[0]) :]
        others = [worker for at, worker in reversed(later[-MOST:]) if at <= ended]
        return [worker for worker in dict.fromkeys([last, *others]) if worker != who]

    def _times(self, who: int, wait: _Waited) -> tuple[float, float, int]:
        """When a wait began and ended on this server's clock, and the worker's clock in the answer."""
        replies = self._replies[who]
        if wait.clock is None:
            place = bisect_left(replies, wait.end, key=lambda reply: reply[0])
            return wait.start, wait.end, replies[place][1] if place < len(replies) else 0
        left = [at for at, clock in replies if clock == wait.clock]
        place = bisect_right(left, wait.end) - 1
        ended = left[max(place, 0)] if left else wait.end
        return ended - (wait.end - wait.start), ended, wait.clock

    def _decided(self, clock: int, ended: float) -> tuple[float, int, int]:
        """The rise that let a pull at this ``clock`` go: see `_rises`. If none did (the model sees more than clocks, or
        the run was ending), the last update before the wait's end.
        """
        if not takes_view(self._consistency):
            may_pull, levels = self._consistency.may_pull, [level for _, _, level in self._rises]
            place = bisect_left(levels, True, key=lambda level: bool(may_pull(clock, level)))
            if place < len(levels):
                return self._rises[place]
        place = bisect_right(self._changes, ended, key=lambda change: change[0])
        updates = [(at, worker, clock + 1) for at, worker, clock, _ in self._changes[:place] if clock is not None]
        return updates[-1] if updates else (-inf, -1, 0)

    @cached_property
    def _rises(self) -> list[tuple[float, int, int]]:
        """When the clock for which others wait has risen, the worker that raised it, and the new clock. The first is
        the run's beginning.
        """
        updates = [(at, worker, clock) for at, worker, clock, _ in self._changes if clock is not None]
        if self._consistency.quorum(self._workers) is not None:
            return [(-inf, -1, 0), *((at, worker, clock + 1) for at, worker, clock in updates)]
        first = {worker: clock for _, worker, clock in reversed(updates)}  # that of each worker's first push
        clocks = dict.fromkeys(range(self._workers), 0) | first
        live, at, slowest = {*clocks}, Counter(clocks.values()), min(clocks.values())
        rises = [(-inf, -1, slowest)]
        for when, worker, clock, leaves in self._changes:
            if worker in live:
                at[clocks[worker]] -= 1
            live.add(worker)
            clocks[worker] = max(clocks[worker], slowest if clock is None else clock + 1)
            at[clocks[worker]] += 1
            if leaves:
                live.remove(worker)
                at[clocks[worker]] -= 1
            before = slowest
            while live and not at[slowest]:
                slowest += 1
            if slowest > before:
                rises.append((when, worker, slowest))
        return rises
