"""Contenders that make round trips: each has a process that calls and, most of them, a process that serves."""

import importlib.util
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from minips.engines import Processes
from minips.engines.supervisor import Supervisor
from minips.lab.measure.trips import Way, attend, travel
from minips.lab.measure.turns import START_S, TURN_S, Turn, Watch, take_turns
from minips.stage import names, stage_class
from minips.words import suggestion


@dataclass(frozen=True)
class Contender:
    """A way there and back (see `trips`), the keywords that both its sides take, and why it is skipped, if it is.

    ``applies``: it pushes and pulls, so that minus the learning rate times the first gradient comes back; otherwise
    what was sent does.
    """

    name: str
    trip: Way
    serve: Way | None = None
    parts: dict[str, Any] = field(default_factory=dict)
    applies: bool = True
    skipped: str = ""


def lacking(modules: Sequence[str], extra: str) -> str:
    """Why a contender is skipped; empty where all the modules that it needs are installed."""
    absent = [module for module in modules if importlib.util.find_spec(module) is None]
    return f'skipped: install {", ".join(absent)} with pip install "minips[{extra}]"' if absent else ""


def over_transports(chosen: Sequence[str] | None, trip: Way, serve: Way, applies: bool) -> list[Contender]:
    """A contender for each transport that joins two processes, or for those chosen; its keyword is ``transport``."""
    known = [name for name in names("transport") if name != "inproc"]
    contenders = []
    for name in known if chosen is None else chosen:
        if name not in known:
            raise ValueError(f"There is no transport {name!r} that joins two processes. {suggestion(name, known)}")
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
    """Round trips of ``values`` float32, one contender after the other; all of them stand ready all the time.

    They start one by one, for some give up on a machine that starts everything at once. Who fails to start is skipped.
    """
    skipped, first_s = {one.name: one.skipped for one in contenders if one.skipped}, dict[str, float]()
    supervisors, turns = list[Supervisor](), dict[str, Turn]()
    with ExitStack() as stack:
        for one in contenders:
            if one.skipped:
                continue
            watch(f"{one.name} starts", 0.0)
            supervisors.append(stack.enter_context(Supervisor(Processes().start)))
            try:
                first_s[one.name], turns[one.name] = _start(supervisors[-1], one, values)
            except RuntimeError as error:
                skipped[one.name] = f"skipped: {error}"
        for supervisor in supervisors:
            stack.callback(supervisor.stop)  # all of them before the first is waited for
        return Race(take_turns(turns, first_s, rounds, watch), skipped)


def _start(supervisor: Supervisor, one: Contender, values: int) -> tuple[float, Turn]:
    """Both sides in their processes; the seconds of a first trip, and how to make another."""
    parts = {"values": values, **one.parts}
    names = [f"{one.name}'s server"] if one.serve else []
    *servers, caller = supervisor.start(*names, f"{one.name}'s caller")
    address = None
    for server in servers:
        server.brief(attend, {"serve": one.serve, "parts": parts})
        address = supervisor.hear(server, "ready", START_S)
    caller.brief(travel, {"trip": one.trip, "address": address, "applies": one.applies, "parts": parts})
    first_s = float(supervisor.hear(caller, "ready", START_S + TURN_S))

    def turn() -> float:
        caller.say("turn")
        return float(supervisor.hear(caller, "took", TURN_S))

    return first_s, turn
