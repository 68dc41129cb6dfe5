"""Contenders that make round trips: each has a process that calls and, most of them, a process that serves."""

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from minips.bench.base import START_S, TURN_S, Company, Watch, lacking, take_turns
from minips.bench.trips import Trip, attend, travel
from minips.stage import names, nearest, stage_class


@dataclass(frozen=True)
class Contender:
    """A way there and back (see `trips`), the keywords that both its sides take, and why it is skipped, if it is.

    ``applies``: it pushes and pulls, so that minus the learning rate times the first gradient comes back; otherwise
    what was sent does. ``optional``: where it cannot start, the others race without it.
    """

    name: str
    trip: Callable[..., AbstractContextManager[Trip]]
    serve: Callable[..., AbstractContextManager[Any]] | None = None
    parts: dict[str, Any] = field(default_factory=dict)
    applies: bool = True
    optional: bool = False
    skipped: str = ""


def over_transports(
    chosen: Sequence[str] | None,
    trip: Callable[..., AbstractContextManager[Trip]],
    serve: Callable[..., AbstractContextManager[Any]],
    applies: bool,
) -> list[Contender]:
    """A contender for each transport that joins two processes, or for those chosen; its keyword is ``transport``."""
    known = [name for name in names("transport") if name != "inproc"]
    contenders = []
    for name in known if chosen is None else chosen:
        if name not in known:
            raise ValueError(f"There is no transport {name!r} that joins two processes. {nearest(name, known)}")
        cls: Any = stage_class("transport", name)
        skipped = lacking(cls.requires, cls.extra)
        if name == "shm" and sys.platform != "linux":
            skipped = "skipped: needs Linux"
        parts = {} if skipped else {"transport": cls()}
        contenders.append(Contender(name, trip, serve, parts, applies, skipped=skipped))
    return contenders


class Race(NamedTuple):
    """Seconds of one round trip by contender and round, and why some could not take part."""

    seconds: dict[str, dict[int, float]]
    skipped: dict[str, str]


def race(contenders: Sequence[Contender], values: int, rounds: int, watch: Watch) -> Race:
    """Round trips of ``values`` float32, one contender after the other; all of them stand ready all the time."""
    skipped = {one.name: one.skipped for one in contenders if one.skipped}
    racing = {one.name: one for one in contenders if not one.skipped}
    with ExitStack() as stack:
        companies = {name: stack.enter_context(Company()) for name in racing}
        for company in companies.values():
            stack.callback(company.stop)  # all of them before the first is waited for
        pairs = {name: _Pair(companies[name], one, values) for name, one in racing.items()}
        first_s = dict[str, float]()
        for step in ("serving", "calling"):
            for name in list(pairs):
                watch(f"{name} starts {step}", 0.0)
                try:
                    first_s[name] = getattr(pairs[name], step)()
                except RuntimeError as error:
                    if not racing[name].optional:
                        raise
                    skipped[name] = f"skipped: {error}"
                    del pairs[name]
        turns = {name: pair.turn for name, pair in pairs.items()}
        return Race(take_turns(turns, first_s, rounds, watch), skipped)


class _Pair:
    """One contender's processes: all start at once, and then meet."""

    def __init__(self, company: Company, contender: Contender, values: int) -> None:
        self._company, self._contender = company, contender
        self._parts = {"values": values, **contender.parts}
        self._server = company.start(f"{contender.name}'s server") if contender.serve else None
        self._caller = company.start(f"{contender.name}'s caller")
        if self._server:
            self._server.brief(attend, {"serve": contender.serve, "parts": self._parts})

    def serving(self) -> None:
        """Wait for the serving side, and send the calling side on its way."""
        one = self._contender
        address = self._company.hear(self._server, "ready", START_S) if self._server else None
        parts = {"trip": one.trip, "address": address, "applies": one.applies, "parts": self._parts}
        self._caller.brief(travel, parts)

    def calling(self) -> float:
        """Wait for the calling side; the seconds of its first trip."""
        return float(self._company.hear(self._caller, "ready", START_S + TURN_S))

    def turn(self) -> float:
        """One trip; its seconds."""
        self._caller.say("turn")
        return float(self._company.hear(self._caller, "took", TURN_S))
