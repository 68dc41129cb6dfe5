"""Times the calls of one caller, and of many, for each contender. One process serves all contenders; others call.

In each round, every contender has one turn, which is a single call. In a burst, many callers at the same time make as
many calls as they can in a given time; each caller has its own connection and its own thread, and the threads are
spread over the calling processes. Only one contender is called at a time; the others' servers wait for a message.
"""

import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from typing import Any, Self

import numpy as np

from minips.engines import Processes
from minips.engines.supervisor import ControlPipe, Supervisor
from minips.lab.measure import pairs
from minips.lab.measure.pairs import Contender, Trip, lacking, numbers, over_transports, silence
from minips.lab.measure.turns import START_S, TURN_S, Spread, over, rota, take_turns
from minips.machines.fit import Line
from minips.stages.transports.network import loopback
from minips.words import message_of
from minips_course.move import trips

TRANSPORTS = ("tcp", "shm", "zmq", "http", "grpc", "pyro", "thrift")
"""The transports of minips in a lecture's table, and two more: bare TCP and shared memory."""
CALLING = 4
"""The number of calling processes."""
BURST_S = 0.12
TEXT, TEXT_BYTES = ("aiohttp-json", "pyro-serpent"), 2_000_000
"""Contenders that write numbers or bytes as text, and the smallest frame, in bytes, for which they are skipped."""
HELD_OUT = (30_000, 10_000_000)
"""The frames, in bytes, that test a line: one between the sizes that it knows, and one far beyond."""
KNOWN_BYTES = 1_000_000
"""The largest frame that a line is fitted to."""
Calls = Mapping[int, Mapping[str, Mapping[int, float]]]
"""Maps a frame's bytes to seconds of a call, or a number of callers to calls per second, by contender and round."""


def alone(
    contenders: Sequence[Contender], rounds: Mapping[int, int]
) -> tuple[dict[int, dict[str, dict[int, float]]], dict[str, str]]:
    """Time one caller, turn by turn. Return the seconds of a call by frame size in bytes, contender and round, and the
    reasons why contenders were skipped. ``rounds`` maps each frame size to its number of rounds.
    """
    with Crowd(contenders, processes=1) as crowd:
        calls = {
            nbytes: crowd.turns(nbytes, count, [one for one in crowd.names if nbytes < TEXT_BYTES or one not in TEXT])
            for nbytes, count in rounds.items()
        }
        return calls, crowd.skipped


def together(
    contenders: Sequence[Contender], nbytes: int, callers: Sequence[int], rounds: int, seconds: float = BURST_S
) -> tuple[dict[int, dict[str, dict[int, float]]], dict[str, str]]:
    """Return the calls per second of all callers together, by number of callers, contender and round, and the reasons
    why contenders were skipped. A burst takes ``seconds``.
    """
    with Crowd(contenders) as crowd:
        return crowd.rates(nbytes, callers, rounds, seconds), crowd.skipped


def transports(names: Sequence[str] = TRANSPORTS) -> list[Contender]:
    """Return minips' transports as contenders."""
    return over_transports(names, pairs.frames, pairs.frames_server, applies=False)


def rest() -> Contender:
    """Return REST as it is often written: a POST over aiohttp whose body is a list of numbers in JSON."""
    return Contender(
        "aiohttp-json", trips.json, trips.json_server, {"applies": False}, skipped=lacking(["aiohttp"], "transports")
    )


def pyros() -> list[Contender]:
    """Return Pyro without minips, with its own serializer and with MessagePack."""
    return [bare_pyro("serpent"), bare_pyro("msgpack")]


def bare_pyro(serializer: str) -> Contender:
    """Return Pyro without minips: a method that returns its bytes, with a serializer and Pyro's own pool of threads."""
    skipped = lacking(["Pyro5", "serpent", "msgpack"], "transports")
    return Contender(f"pyro-{serializer}", _pyro, _pyro_server, {"serializer": serializer}, skipped=skipped)


def fitted(calls: Calls, most: int = KNOWN_BYTES) -> dict[str, Line]:
    """Return α and β for each contender: the line of a message's seconds, one way, which are half of a call's. It is
    fitted to the `faster_half` of the calls of at most ``most`` bytes, apart from those that are `HELD_OUT`.
    """
    sizes = [size for size in calls if size <= most and size not in HELD_OUT]
    return {
        name: Line.fit([(size, s / 2) for size in sizes for s in faster_half(calls[size][name])])
        for name in calls[sizes[0]]
        if all(name in calls[size] for size in sizes)
    }


def faster_half(seconds: Mapping[int, float]) -> list[float]:
    """Return the shorter half of these calls. The others also waited for whatever else the machine did."""
    return sorted(seconds.values())[: (len(seconds) + 1) // 2]


def order(lines: Mapping[str, Line]) -> dict[str, str]:
    """Return the contenders' names by α and by β, the least first."""
    by_alpha, by_beta = (sorted(lines, key=key) for key in (lambda n: lines[n].fixed_s, lambda n: lines[n].each_s))
    return {"by_alpha": ", ".join(by_alpha), "by_beta": ", ".join(by_beta)}


def held_out(lines: Mapping[str, Line], calls: Calls) -> dict[str, Any]:
    """Return the lines' times as shares of the measured ones, at the sizes that are `HELD_OUT`."""
    between, beyond = (
        [
            2 * line.at(size) / np.median(faster_half(calls[size][name]))
            for name, line in lines.items()
            if name in calls[size]
        ]
        for size in HELD_OUT
    )
    return {"between": Spread.of(between), "beyond": Spread.of(beyond), "least": min(beyond)}


def bytes_of_pyro(lines: Mapping[str, Line]) -> dict[str, float]:
    """Return β of Pyro with each serializer, and as minips uses it, as multiples of β of Tcp."""
    names = {"serpent": "pyro-serpent", "msgpack": "pyro-msgpack", "ours": "pyro"}
    return {short: lines[name].each_s / lines["tcp"].each_s for short, name in names.items()}


def gains(rates: Calls) -> dict[str, Any]:
    """Return how many times as many calls a second 16 callers get as one: over Tcp, and the least and the most."""
    found = {name: over({"one": rates[1][name], "many": rates[16][name]}, "many", "one") for name in rates[1]}
    tcp, medians = found["tcp"], [gain.median for gain in found.values() if gain]
    assert tcp
    longer, rounds = 16 / tcp.median, len(rates[1]["tcp"])
    return {"times": tcp, "rounds": rounds, "longer": longer, "least": min(medians), "most": max(medians)}


def in_turns(lines: Mapping[str, Line], rates: Calls, nbytes: int = 1_000) -> dict[str, float]:
    """Return the time of a call over Tcp by α and β, as a multiple of that of a call in the quickest burst."""
    return {"times": 2 * lines["tcp"].at(nbytes) * max(rates[1]["tcp"].values())}


def yours(lines: Mapping[str, Line], rates: Calls) -> dict[str, float]:
    """Return the frame over Tcp, in kB, whose bytes take as long as α, and the gain of 16 callers."""
    tcp = lines["tcp"]
    twice = tcp.fixed_s / max(tcp.each_s, 1e-15) / 1e3
    return {"twice": twice, "times": gains(rates)["times"].median}


def table(lines: Mapping[str, Line], rates: Calls) -> str:
    """Return a row for each contender: α, β and, where they were measured, the calls a second of 1 and 16 callers."""
    rows = [f"{'':14}{'α (µs)':>10}{'β (ns a byte)':>16}{'1 caller':>12}{'16 callers':>12}"]
    for name, line in lines.items():
        row = f"{name:14}{1e6 * line.fixed_s:10.0f}{1e9 * line.each_s:16.2f}"
        if name in rates[1]:
            row += "".join(f"{Spread.of(rates[count][name].values()).median:12.0f}" for count in (1, 16))
        rows.append(row)
    return "\n".join([*rows, "(The callers: calls of 1 kB a second, all together.)"])


class Crowd:
    """Starts, in a ``with``, a process that serves all contenders and processes that call them.

    ``skipped`` maps a contender's name to the reason why it was skipped.
    """

    def __init__(self, contenders: Sequence[Contender], processes: int = CALLING) -> None:
        self.skipped = {one.name: one.skipped for one in contenders if one.skipped}
        self._contenders = [one for one in contenders if not one.skipped]
        self._processes, self._stack = processes, ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._supervisor = stack.enter_context(Supervisor(Processes().start))
            callers = [f"calling side {number}" for number in range(self._processes)]
            server, *self._callers = self._supervisor.start("serving side", *callers)
            server.assign(serve_all, {"contenders": self._contenders})
            addresses, failed = self._supervisor.receive(server, "ready", START_S)
            self.skipped |= failed
            for caller in self._callers:
                caller.assign(call_all, {"contenders": self._contenders, "addresses": addresses})
            for caller in self._callers:
                self._supervisor.receive(caller, "ready", START_S)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    @property
    def names(self) -> list[str]:
        """The names of the contenders that are not skipped."""
        return [one.name for one in self._contenders if one.name not in self.skipped]

    def turns(self, nbytes: int, rounds: int, names: Sequence[str]) -> dict[str, dict[int, float]]:
        """Return the seconds of a call by contender and round. A round has one turn of each contender, in random order.

        The first process calls. Contenders that would take too long have fewer turns, see `take_turns`.
        """
        ready = [name for name in names if self._open(name, nbytes, 1)]
        calls = {name: partial(self._ask, 0, "turn", name, nbytes) for name in ready}
        return take_turns(calls, {name: call() for name, call in calls.items()}, rounds, lambda text, share: None)

    def rates(
        self, nbytes: int, callers: Sequence[int], rounds: int, seconds: float
    ) -> dict[int, dict[str, dict[int, float]]]:
        """Return the calls per second by number of callers, contender and round, measured in a random order."""
        for name in self.names:
            for count in callers:
                self._open(name, nbytes, count)
        bursts = {f"{name} {count}": (name, count) for name in self.names for count in callers}
        found: dict[int, dict[str, dict[int, float]]] = {count: {name: {} for name in self.names} for count in callers}
        for number, key in rota(dict.fromkeys(bursts, rounds), rounds):
            name, count = bursts[key]
            found[count][name][number] = self._burst(name, nbytes, count, seconds)
        return found

    def _open(self, name: str, nbytes: int, callers: int) -> bool:
        """Connect this many callers; return False, and skip the contender, if that fails."""
        for process, count in enumerate(self._spread(callers)):
            if name not in self.skipped and (why := self._ask(process, "open", name, nbytes, count)):
                self.skipped[name] = f"skipped: {why}"
        return name not in self.skipped

    def _burst(self, name: str, nbytes: int, callers: int, seconds: float) -> float:
        calling = [(self._callers[i], count) for i, count in enumerate(self._spread(callers)) if count]
        for caller, count in calling:
            caller.send("burst", (name, nbytes, count, seconds))
        counted = [self._supervisor.receive(caller, "done", TURN_S) for caller, _ in calling]
        return float(sum(calls / took for calls, took in counted))

    def _spread(self, callers: int) -> list[int]:
        """Return the number of callers in each process."""
        whole, more = divmod(callers, len(self._callers))
        return [whole + (number < more) for number in range(len(self._callers))]

    def _ask(self, process: int, word: str, *what: Any) -> Any:
        self._callers[process].send(word, what)
        return self._supervisor.receive(self._callers[process], "done", START_S + TURN_S)


def serve_all(control: ControlPipe, *, contenders: Sequence[Contender]) -> None:
    """Serve all contenders until the supervisor says stop."""
    silence()
    addresses, failed = dict[str, Any](), dict[str, str]()
    with ExitStack() as stack:
        for one in contenders:
            assert one.serve
            try:
                addresses[one.name] = stack.enter_context(one.serve(values=1, **one.parts))
            except Exception as error:
                failed[one.name] = f"skipped: {message_of(error)}"
        control.send("ready", (addresses, failed))
        control.wait()


def call_all(control: ControlPipe, *, contenders: Sequence[Contender], addresses: dict[str, Any]) -> None:
    """Connect, or make a call or a burst of calls, whenever the supervisor says so."""
    silence()
    ways = {one.name: one for one in contenders}
    opened: dict[tuple[str, int], list[Trip]] = defaultdict(list)
    with ExitStack() as stack:
        control.send("ready")
        while (message := control.wait("open", "turn", "burst"))[0] != "stop":
            word, (name, nbytes, *more) = message
            ready = opened[name, nbytes]
            if word == "turn":
                control.send("done", _seconds(ready[0]))
            elif word == "burst":
                control.send("done", _burst(ready[: more[0]], more[1]))
            else:
                try:
                    while len(ready) < more[0]:
                        ready.append(_opened(stack, ways[name], addresses[name], nbytes // 4))
                    control.send("done", "")
                except Exception as error:
                    control.send("done", message_of(error))


def _opened(stack: ExitStack, way: Contender, address: Any, values: int) -> Trip:
    """Return a connection that has made one call and got the right answer."""
    trip: Trip = stack.enter_context(way.trip(address, values=values, **way.parts))
    if not np.array_equal(trip(), numbers(values)):
        raise RuntimeError("the first answer is not what was sent, so its time would mean nothing")
    return trip


def _seconds(trip: Trip) -> float:
    began = time.perf_counter()
    trip()
    return time.perf_counter() - began


def _burst(ready: Sequence[Trip], seconds: float) -> tuple[int, float]:
    """Return the number of calls that these callers made, each in its thread and at least one, and the seconds."""
    began = time.perf_counter()

    def call_on(trip: Trip) -> int:
        calls = 0
        while not calls or time.perf_counter() < began + seconds:
            trip()
            calls += 1
        return calls

    with ThreadPoolExecutor(len(ready)) as pool:
        return sum(pool.map(call_on, ready)), time.perf_counter() - began


@contextmanager
def _pyro_server(*, serializer: str, values: int) -> Iterator[str]:
    from Pyro5.api import Daemon, expose

    serpent = import_module("serpent")

    class Returning:
        @expose  # type: ignore[untyped-decorator, unused-ignore]
        def back(self, frame: Any) -> bytes:
            return frame if isinstance(frame, bytes) else bytes(serpent.tobytes(frame))

    with Daemon(host=loopback()) as daemon:
        thread = threading.Thread(target=daemon.requestLoop, daemon=True)
        thread.start()
        yield str(daemon.register(Returning(), f"returning-{secrets.token_hex(4)}"))
        daemon.shutdown()


@contextmanager
def _pyro(address: str, *, serializer: str, values: int) -> Iterator[Trip]:
    from Pyro5.api import Proxy

    serpent = import_module("serpent")

    frame = numbers(values).tobytes()
    with Proxy(address) as remote:
        remote._pyroSerializer = serializer

        def call() -> Any:
            remote._pyroClaimOwnership()
            answer = remote.back(frame)
            return np.frombuffer(answer if isinstance(answer, bytes) else serpent.tobytes(answer), np.float32)

        try:
            yield call
        finally:
            remote._pyroClaimOwnership()  # the last call may have come from another thread
