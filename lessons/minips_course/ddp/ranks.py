"""Two processes, rank 0 and rank 1, that exchange gradients over a slow link, and run programs of torch."""

import os
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import numpy as np

from minips.engines import Processes
from minips.engines.shipping import ship, unship
from minips.engines.supervisor import ControlPipe, Supervisor
from minips.lab import Best, interval
from minips.lab.course.recorded import NotRunError, fingerprint, load, record
from minips.stage import Array
from minips_course import Gone, gone
from minips_course.ddp import nets, sweep

__getattr__ = gone(__name__)

LIMIT_S = 200.0
"""The most seconds that the start, or one call, may take."""
KEY = "ddp.torch"
WARM = 3
"""The first steps of each exchange, which are not timed."""
MISSING = "torch is missing, so this was not run here. It was recorded: {machine}, {date}. To run it: pip install torch"


class Ranks:
    """Two processes, which call functions with the same arguments."""

    def __init__(self) -> None:
        self._stack, self._children = ExitStack(), list[Any]()
        self.here = find_spec("torch") is not None
        self.values: dict[str, Any] = {}
        self._start()
        is_here = "torch is here." if self.here else "torch is not here."
        print(f"{is_here} Two processes of this machine are rank 0 and rank 1.")

    def steps(self, ways: Mapping[str, Callable[..., Any]], turns: int = 15, **link: float) -> dict[str, Any]:
        """Time whole steps of each exchange in turns, see `time_steps`. If torch is missing, recorded times at which
        gradients were ready replace its backward pass.
        """
        replay = None if self.here else load(KEY)["values"]["backward"]["found"]
        if replay:
            print("torch is missing, so backward is replaced by its recorded times, with random gradients.")
        found: dict[str, Any] = self._call(time_steps, {"ways": ways, "turns": turns, "replay": replay, **link})
        return found

    def run(self, name: str, program: Callable[..., Any], **parts: Any) -> Any:
        """Let both ranks run a program of torch, and return rank 0's result. If torch is missing, return what was
        recorded of this program with these parts under this name, and say so; NotRunError if there is nothing.
        """
        if isinstance(program, Gone):
            return program()
        if not self.here:
            return self.keep(name, program, **parts)
        found = self._call(program, parts)
        self.values[name] = {"of": _mark(program, parts), "found": found}
        return found

    def keep(self, name: str, program: Callable[..., Any], tell: bool = True, **parts: Any) -> Any:
        """Return what was recorded of this program with these parts, also where torch is installed; else `run` it."""
        if isinstance(program, Gone):
            return program()
        recorded: dict[str, Any] = {"values": {}}
        with suppress(ValueError):
            recorded = load(KEY)
        kept = recorded["values"].get(name, {})
        if kept.get("of") == _mark(program, parts):
            self.values[name] = kept
            if tell and not self.here:
                print(MISSING.format(**recorded))
            return kept["found"]
        if not self.here:
            raise NotRunError("torch")
        return self.run(name, program, **parts)

    def tell(self, name: str, program: Callable[..., Any], **parts: Any) -> None:
        """Print what `run` returns of `nets.learn`, or why it returns nothing."""
        try:
            for codec, rows in self.run(name, program, **parts).items():
                accuracy, sent = np.array(rows).T
                mean, half = interval(100 * accuracy) if len(rows) > 1 else (100 * accuracy[0], 0.0)
                print(f"{codec}: accuracy {mean:.1f}{f' ± {half:.1f}' * (half > 0)} %, {sent.mean() / 1e6:.2f} MB")
        except NotRunError as missing:
            print(missing)

    def best_of(self, wrap: Callable[..., Any], codecs: Mapping[str, Any], rates: Sequence[float]) -> Best:
        """Train with each codec at each rate, or show the recorded runs of the same hook and codecs."""
        parts = {"wrap": wrap, "codecs": codecs}
        return sweep.best_of({rate: self.keep(f"rate {rate}", nets.learn, False, rate=rate, **parts) for rate in rates})

    def close(self) -> None:
        """End the processes, and save the results if recording is on."""
        self._stack.close()
        self._children = []
        if self.here:
            record(KEY, self.values)

    def _start(self) -> None:
        folder = self._stack.enter_context(tempfile.TemporaryDirectory())
        self._supervisor = self._stack.enter_context(Supervisor(Processes().start))
        self._children = self._supervisor.start("rank 0", "rank 1")
        key = os.urandom(16)
        for rank, child in enumerate(self._children):
            child.assign(attend, {"rank": rank, "folder": Path(folder), "key": key, "torch_too": self.here})
        for child in self._children:
            self._supervisor.receive(child, "ready", LIMIT_S)

    def _call(self, function: Callable[..., Any], parts: Mapping[str, Any]) -> Any:
        if not self._children:
            self._start()
        what = ship((function, dict(parts)))
        for child in self._children:
            child.send("work", what)
        found, _ = (self._supervisor.receive(child, "done", LIMIT_S) for child in self._children)
        return found


def _mark(program: Callable[..., Any], parts: Mapping[str, Any]) -> str:
    """Return a hash of a program and of what it is called with, including the sources of functions and classes."""
    pieces = list[Any]()
    for name, part in sorted(parts.items()):
        pieces += [name, *(one for item in part.items() for one in item)] if isinstance(part, dict) else [name, part]
    return fingerprint(program, *pieces)


class Peer:
    """The connection to the other rank."""

    def __init__(self, rank: int, connection: "Connection[Any, Any]") -> None:
        self.rank, self._connection = rank, connection

    def swap(self, array: Array) -> Array:
        """Send an array, and return the other rank's array of this shape and type."""
        for sends in (self.rank == 0, self.rank == 1):
            if sends:
                self._connection.send_bytes(array.tobytes())
            else:
                other = np.frombuffer(self._connection.recv_bytes(), array.dtype).reshape(array.shape)
        return other


def attend(control: ControlPipe, *, rank: int, folder: Path, key: bytes, torch_too: bool) -> None:
    """Join the other rank, and call the functions that the supervisor sends."""
    with ExitStack() as stack:
        if torch_too:
            stack.enter_context(nets.group(rank, folder))
        peer = Peer(rank, stack.enter_context(_meet(rank, folder, key)))
        control.send("ready")
        while (message := control.wait("work"))[0] == "work":
            function, parts = unship(message[1])
            control.send("done", function(peer, **parts))


def _meet(rank: int, folder: Path, key: bytes) -> "Connection[Any, Any]":
    """Return a connection to the other rank. The supervisor ends a rank that waits too long."""
    place, written = folder / "place", folder / "written"
    if rank == 0:
        with Listener(authkey=key) as door:
            written.write_text(str(door.address))
            written.rename(place)
            return door.accept()
    until = time.monotonic() + LIMIT_S
    while not place.exists() and time.monotonic() < until:
        time.sleep(0.01)
    return Client(place.read_text(), authkey=key)


class Wire:
    """Runs all-reduces one after another over a slow link. Each takes at least ``latency_s + bytes / bytes_per_s``.
    ``spans`` contains the start and the end of each, and its bytes.
    """

    ranks = 2

    def __init__(self, peer: Peer, latency_s: float, bytes_per_s: float) -> None:
        self.latency_s, self.bytes_per_s = latency_s, bytes_per_s
        self.spans = list[tuple[float, float, int]]()
        self._peer, self._sender = peer, ThreadPoolExecutor(1)

    def start(self, array: Array) -> "Future[Array]":
        """Begin an all-reduce: it replaces the array by the sum over the ranks. The future's result is the array."""
        return self._sender.submit(self._sum, array)

    def _sum(self, array: Array) -> Array:
        began = time.perf_counter()
        array += self._peer.swap(array)
        until = began + self.latency_s + array.nbytes / self.bytes_per_s
        time.sleep(max(until - time.perf_counter(), 0.0))
        self.spans.append((began, time.perf_counter(), array.nbytes))
        return array

    def meet(self) -> None:
        """Wait until all that was started has ended, and the other rank is here, too."""
        self._sender.submit(self._peer.swap, np.zeros(1)).result(LIMIT_S)
        self.spans.clear()

    def __enter__(self) -> "Wire":
        return self

    def __exit__(self, *error: object) -> None:
        self._sender.shutdown()


def replayed(rank: int, values: Sequence[int], ready_ms: Sequence[float]) -> Iterator[Array]:
    """Yield random gradients at recorded times."""
    rng, began = np.random.default_rng(rank), time.perf_counter()
    for count, ms in zip(values, ready_ms, strict=True):
        gradient = rng.normal(size=count).astype("f4")
        time.sleep(max(began + ms / 1e3 - time.perf_counter(), 0.0))
        yield gradient


def time_steps(
    peer: Peer,
    ways: Mapping[str, Callable[..., Any]],
    latency_s: float,
    bytes_per_s: float,
    wait_s: float,
    turns: int,
    replay: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Time whole steps of each exchange, in turns. Return, for each, in milliseconds: all its steps; of the median one
    the times at which gradients were ready and all-reduces ran, with their bytes; and the largest error of the mean.
    """
    net = nets.Net(peer.rank, wait_s) if replay is None else None
    steps: dict[str, list[Any]] = {name: [] for name in ways}
    found: dict[str, Any] = {name: {"error": 0.0} for name in ways}

    def backward() -> Iterator[Array]:
        return net.gradients() if net else replayed(peer.rank, replay["values"], replay["ready_ms"])  # type: ignore[index]

    means = [(g + peer.swap(g)) / 2 for g in [*backward()]]
    with Wire(peer, latency_s, bytes_per_s) as wire:
        for _ in range(WARM + turns):
            for name, way in ways.items():
                seen, ready_ms = list[Array](), list[float]()
                wire.meet()
                began = time.perf_counter()
                gradients = _noting(backward(), seen, ready_ms, began)
                way(gradients, wire)
                deque(gradients, maxlen=0)  # the rest of a backward pass that nobody waited for
                ms = 1e3 * (time.perf_counter() - began)
                errors = [float(np.abs(g - mean).max()) for g, mean in zip(seen, means, strict=True)]
                found[name]["error"] = max(found[name]["error"], *errors)
                steps[name].append(
                    (ms, ready_ms, [[1e3 * (a - began), 1e3 * (b - began), n] for a, b, n in wire.spans])
                )
    for name, all_ in steps.items():
        timed = all_[WARM:]
        _, ready_ms, calls_ms = sorted(timed, key=lambda step: step[0])[len(timed) // 2]
        found[name] |= {"steps_ms": [ms for ms, _, _ in timed], "ready_ms": ready_ms, "calls_ms": calls_ms}
    return found


def _noting(gradients: Iterator[Array], seen: list[Array], ready_ms: list[float], began: float) -> Iterator[Array]:
    for gradient in gradients:
        seen.append(gradient)
        ready_ms.append(1e3 * (time.perf_counter() - began))
        yield gradient
