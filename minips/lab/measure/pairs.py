"""Contenders that make round trips. Each has a process that calls, and most also have a process that serves.

A way is two context managers. ``serve(…)`` opens the serving side and yields its address; ``trip(address, …)``
opens the calling side and yields a function that makes one round trip and returns the answer. Both accept ``values``,
the number of float32 values in a message. A way that can either echo a message or push and pull also accepts
``applies``: if true, the server subtracts ``LR`` times the message from its parameters and answers with them.

`attend` and `travel` open the two sides, each in its own process.
"""

import importlib.util
import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from minips.engines import Processes
from minips.engines.supervisor import ControlPipe, Supervisor
from minips.lab.measure.turns import START_S, TURN_S, Turn, Watch, take_turns
from minips.stage import Array, names, stage_class
from minips.stages.optimizers import SGD
from minips.stages.transports import Transport
from minips.words import suggestion

LR = 2.0**-10
WAIT_S = 300.0
"""The most seconds that one round trip may take; JSON is slow."""

Trip = Callable[[], Any]
Way = Callable[..., AbstractContextManager[Any]]


@dataclass(frozen=True)
class Contender:
    """A contender's two sides, the keywords that both accept, and the reason if the contender is skipped.

    With ``applies`` it pushes and pulls, so the first answer is minus the learning rate times the first gradient.
    Without ``applies``, the server answers with the message itself.
    """

    name: str
    trip: Way
    serve: Way | None = None
    parts: dict[str, Any] = field(default_factory=dict)
    applies: bool = True
    skipped: str = ""


def lacking(modules: Sequence[str], extra: str) -> str:
    """Return the reason to skip a contender that needs these modules; empty if all of them are installed."""
    absent = [module for module in modules if importlib.util.find_spec(module) is None]
    return f'skipped: install {", ".join(absent)} with pip install "minips[{extra}]"' if absent else ""


def over_transports(chosen: Sequence[str] | None, trip: Way, serve: Way, applies: bool) -> list[Contender]:
    """Return a contender for each of the ``chosen`` transports between processes (None: for all of them)."""
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
    """The seconds of one round trip by contender and round, and the reasons why contenders were skipped."""

    seconds: dict[str, dict[int, float]]
    skipped: dict[str, str]


def race(contenders: Sequence[Contender], values: int, rounds: int, watch: Watch) -> Race:
    """Time round trips of ``values`` float32 values, one contender after another; all stay ready during the race.

    They start one by one, since some fail on a machine that starts all of them at the same time. A contender that fails
    to start is skipped.
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
            stack.callback(supervisor.stop)  # stop all of them before waiting for the first
        return Race(take_turns(turns, first_s, rounds, watch), skipped)


def _start(supervisor: Supervisor, one: Contender, values: int) -> tuple[float, Turn]:
    """Start both sides in processes; return the seconds of a first trip, and a function that times another one."""
    parts = {"values": values, **one.parts}
    names = [f"{one.name}'s server"] if one.serve else []
    *servers, caller = supervisor.start(*names, f"{one.name}'s caller")
    address = None
    for server in servers:
        server.assign(attend, {"serve": one.serve, "parts": parts})
        address = supervisor.receive(server, "ready", START_S)
    caller.assign(travel, {"trip": one.trip, "address": address, "applies": one.applies, "parts": parts})
    first_s = float(supervisor.receive(caller, "ready", START_S + TURN_S))

    def turn() -> float:
        caller.send("turn")
        return float(supervisor.receive(caller, "took", TURN_S))

    return first_s, turn


def numbers(values: int) -> Array:
    """Return the gradient that every contender sends."""
    return np.random.default_rng(0).normal(size=values).astype(np.float32)


def answering(values: int, applies: bool) -> Callable[[Array], Array]:
    """Return the function that computes the serving side's answer to a message."""
    params, state = {"w": np.zeros(values, np.float32)}, dict[str, Any]()

    def step(gradient: Array) -> Array:
        SGD(lr=LR).step(params, {"w": gradient}, state)
        return params["w"]

    return step if applies else lambda same: same


def attend(control: ControlPipe, *, serve: Way, parts: dict[str, Any]) -> None:
    """Open the serving side, and keep it open until the supervisor says stop."""
    silence()
    with serve(**parts) as address:
        control.send("ready", address)
        control.wait()


def travel(control: ControlPipe, *, trip: Way, address: Any, applies: bool, parts: dict[str, Any]) -> None:
    """Open the calling side, check the answer to a first trip, and make another trip when the supervisor says so."""
    silence()
    x = numbers(parts["values"])
    with trip(address, **parts) as make:

        def timed() -> tuple[float, Any]:
            began = time.perf_counter()
            got = make()
            return time.perf_counter() - began, got

        first_s, got = timed()
        if not np.array_equal(got, -np.float32(LR) * x if applies else x):
            raise RuntimeError("the first answer is not the right one, so its time would mean nothing")
        control.send("ready", first_s)
        del got
        while control.wait("turn")[0] == "turn":
            control.send("took", timed()[0])


def silence() -> None:
    """Suppress the text that libraries write to the terminal's file descriptors. Errors are still raised."""
    with open(os.devnull, "wb") as nowhere:
        for descriptor in (1, 2):
            os.dup2(nowhere.fileno(), descriptor)


@contextmanager
def frames_server(*, transport: Transport, values: int) -> Iterator[tuple[str, str]]:
    """Serve a bare transport that sends back the frames that it receives."""
    token = secrets.token_hex(16)
    with transport.serve(lambda frames: frames, token=token) as endpoint:
        yield endpoint.address, token


@contextmanager
def frames(address: tuple[str, str], *, transport: Transport, values: int) -> Iterator[Trip]:
    """Yield a function that sends one frame and returns the frame in the answer."""
    frame = numbers(values).data.cast("B")
    with transport.connect(*address) as channel:
        yield lambda: np.frombuffer(channel.call([frame]).result(WAIT_S)[0], np.float32)
