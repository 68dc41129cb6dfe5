"""Measures on the engine `Hosts`, networks of this machine's kernel; where it allows none, shows what was recorded."""

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import minips as ps
from minips.engines import hosts
from minips.engines.supervisor import ControlPipe, Supervisor
from minips.lab.course.recorded import NotRunError, fingerprint, load, record

LIMIT_S = 60.0
"""The most seconds that a host may take to start, or to time its calls."""
WATCH_S, SHOWN_S, BEFORE_S = 0.001, 0.8, 0.25
"""The seconds between two readings of the queues, those of a run that are shown, and those of them before its slowest
step."""
WARM = 20
"""The calls of the longest size before any is timed: a young TCP connection sends little at once."""


link_end = hosts.HostNetwork.plug
"""The engine's code that sets up one end of a link."""


class NotMadeError(NotRunError):
    """Raised where no hosts can be made, if nothing was recorded of what is asked. IPython shows its sentence alone."""

    def __init__(self) -> None:
        ValueError.__init__(
            self,
            "This was not run: no hosts can be made here, and what was recorded is of other configs. "
            "On a Linux machine with pip install 'minips[hosts]', the same cell runs yours.",
        )


@dataclass(frozen=True)
class Unmade:
    """Stands for a `Hosts` that this machine does not allow."""

    topology: Any
    buffer_bytes: int = 4_000_000
    congestion: str = "reno"
    host_buffer_bytes: int | None = None


class Runs(NamedTuple):
    """The seconds per step of several runs, and the packets that TCP sent again in each."""

    seconds: list[float]
    again: list[int]

    @property
    def median(self) -> float:
        """The seconds per step of the median run."""
        return statistics.median(self.seconds)

    @property
    def resent(self) -> float:
        """The packets sent again in the median run."""
        return statistics.median(self.again)


class Watched(NamedTuple):
    """The steps of a run whose queues were read once in a millisecond."""

    steps: list[float]
    """The seconds of each step but the first, in which the connections are young."""
    idle: float
    """The longest time of the slowest step in which no byte was in any queue, in seconds."""
    dropped: int
    """The packets that all queues dropped."""
    ends: list[float]
    """The seconds at which steps ended, in a time of `SHOWN_S` around the slowest step."""
    waiting: dict[str, list[float]]
    """The seconds at which queues were read and had changed, in that time, and the bytes in all of them."""

    @property
    def median(self) -> float:
        """The seconds of the median step."""
        return statistics.median(self.steps)

    @property
    def slowest(self) -> float:
        """The seconds of the slowest step."""
        return max(self.steps)


class Prediction(NamedTuple):
    """The seconds per step that `minips.cost.predict` says, and what it says of its limits."""

    seconds: float
    limits: list[str]

    def __str__(self) -> str:
        return " ".join([f"minips says {self.seconds:.4f} s.", *self.limits])


class Network:
    """Times calls and training on hosts. ``key`` is the lesson's word and ``.hosts``.

    If this machine allows no hosts, the same questions are answered with what was recorded; any other question raises
    `NotMadeError`.
    """

    def __init__(self, key: str) -> None:
        self._key, self._values = key, dict[str, Any]()
        self.why_not = hosts.lacking()
        """Why no hosts can be made here, as a sentence; empty if they can."""
        self.here = not self.why_not
        """Whether hosts can be made here."""
        if self.here:
            print("This machine allows hosts: what follows is measured here.")
        else:
            kept = load(key)
            self._values = kept["values"]
            print(f"{self.why_not}\nThe values were recorded elsewhere: {kept['machine']}, {kept['date']}.")

    def hosts(self, topology: Any, **options: Any) -> Any:
        """Return `Hosts` on this network, or what stands for them if they cannot be made here."""
        return (ps.Hosts if self.here else Unmade)(topology, **options)

    def calls(self, engine: Any, sizes: Sequence[int], times: int = 15) -> dict[int, list[float]]:
        """Return the seconds of calls from one host to another, by bytes there; the answer is empty."""
        found = self._found(
            partial(_calls, engine, tuple(sizes), times), ("calls", *_network(engine), tuple(sizes), times)
        )
        return {int(size): seconds for size, seconds in found.items()}

    def runs(self, problem: ps.Problem, config: ps.Config, engine: Any, times: int = 3) -> Runs:
        """Train several times."""
        own = [type(part) for part in (problem, config.exchange) if type(part).__module__ == "__main__"]
        what = ("runs", problem, config, *_network(engine), times, *own)
        return Runs(*self._found(partial(_runs, problem, config, engine, times), what))

    def watched(self, problem: ps.Problem, config: ps.Config, engine: Any) -> Watched:
        """Train once, and read the queues all the time."""
        found = self._found(partial(_watched, problem, config, engine), ("watched", problem, config, *_network(engine)))
        return Watched(*found)

    def predicted(self, problem: ps.Problem, config: ps.Config, engine: Any) -> Prediction:
        """Calibrate this machine, and predict what `runs` measures."""
        what = ("says", problem, config, *_network(engine))
        return Prediction(*self._found(partial(_predicted, problem, config, engine), what))

    def _found(self, measure: Any, what: tuple[Any, ...]) -> Any:
        mark = fingerprint(*what)
        if self.here:
            self._values[mark] = measure()
            record(self._key, self._values)
        if mark not in self._values:
            raise NotMadeError
        return self._values[mark]


def _network(engine: Any) -> tuple[Any, ...]:
    own = [engine.host_buffer_bytes] if engine.host_buffer_bytes else []
    return engine.topology, engine.buffer_bytes, engine.congestion, *own


def _predicted(problem: ps.Problem, config: ps.Config, engine: ps.Hosts) -> tuple[float, list[str]]:
    prediction = ps.cost.predict(problem, config, ps.cost.calibrate(config), engine=engine)
    return prediction.seconds_per_step, [*prediction.limits]


def _runs(problem: ps.Problem, config: ps.Config, engine: ps.Hosts, times: int) -> list[list[Any]]:
    found: list[list[Any]] = [[], []]
    for _ in range(times):
        again = dict[str, int]()

        def count(_: Any, again: dict[str, int] = again) -> None:
            again.update(hosts.retransmissions())

        run = ps.train(problem, config, engine=engine, progress=count)
        found[0].append(run.seconds_per_step)
        found[1].append(sum(again.values()))
    return found


def _watched(problem: ps.Problem, config: ps.Config, engine: ps.Hosts) -> list[Any]:
    run = ps.train(problem, config, engine=replace(engine, watch_s=WATCH_S))
    steps = [*pairwise(at for at, _, _ in run.losses)]
    begin, end = max(steps, key=lambda step: step[1] - step[0])
    changes = sorted((at, queue, nbytes) for queue, rows in run.queues.items() for at, nbytes, _ in rows)
    now, waiting = dict[str, int](), dict[float, int]()
    for at, queue, nbytes in changes:
        now[queue] = nbytes
        waiting[at] = sum(now.values())
    first = begin - BEFORE_S
    shown = {round(at - first, 4): nbytes for at, nbytes in waiting.items() if 0 <= at - first <= SHOWN_S}
    return [
        [after - before for before, after in steps],
        _idle(waiting, begin, end),
        sum(rows[-1][2] for rows in run.queues.values()),
        [round(after - first, 4) for _, after in steps if 0 <= after - first <= SHOWN_S],
        {"at": [*shown], "nbytes": [*shown.values()]},
    ]


def _idle(waiting: Mapping[float, int], begin: float, end: float) -> float:
    """Return the longest time between ``begin`` and ``end`` in which nothing waited."""
    rows = pairwise([*waiting.items(), (end, 0)])
    return max([0.0, *(min(after, end) - max(at, begin) for (at, nbytes), (after, _) in rows if not nbytes)])


def _calls(engine: ps.Hosts, sizes: Sequence[int], times: int) -> dict[str, list[float]]:
    with Supervisor(partial(engine.start, "tcp")) as supervisor:
        children = supervisor.start("server 0", "worker 0")
        for child in children:
            supervisor.receive(child, "host", LIMIT_S)
        server, worker = children
        server.assign(_serve, {"address": server.address})
        worker.assign(_call, {"address": supervisor.receive(server, "serves", LIMIT_S), "sizes": sizes, "times": times})
        timed: dict[str, list[float]] = supervisor.receive(worker, "timed", LIMIT_S)
        return timed


def _serve(control: ControlPipe, *, address: str) -> None:
    """Answer calls with an empty frame until the supervisor says stop."""
    with ps.Tcp().serve(lambda frames: [b""], address=address, token="hosts") as endpoint:
        control.send("serves", endpoint.address)
        control.wait("stop")


def _call(control: ControlPipe, *, address: str, sizes: Sequence[int], times: int) -> None:
    """Time calls of each size, the sizes in turns."""
    timed: dict[str, list[float]] = {str(size): [] for size in sizes}
    with ps.Tcp().connect(address, "hosts") as channel:
        for _ in range(WARM):
            channel.call([bytes(max(sizes))]).result(LIMIT_S)
        for _ in range(times):
            for size in sizes:
                began = time.perf_counter()
                channel.call([bytes(size)]).result(LIMIT_S)
                timed[str(size)].append(time.perf_counter() - began)
    control.send("timed", timed)
    control.wait("stop")
