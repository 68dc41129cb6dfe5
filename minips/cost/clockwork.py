"""Virtual time for a prediction: tasks that wait for each other, cores that are shared, links that are first come first
served.

Small on purpose: it knows nothing of gradients. A `Task` is a generator that yields the seconds that it sleeps, or a
`Signal` that it waits for.
"""

import heapq
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from itertools import count
from typing import Any

from minips.stages.transports import Link


class Signal:
    """An event that happens once; the tasks that wait for it go on then."""

    __slots__ = ("_waiting", "triggered", "value")

    def __init__(self) -> None:
        self.triggered = False
        self.value: Any = None
        self._waiting: list[Callable[[], None]] = []

    def then(self, call: Callable[[], None]) -> None:
        """Call when it has happened: at once where it has."""
        if self.triggered:
            call()
        else:
            self._waiting.append(call)

    def succeed(self, value: Any = None) -> None:
        """It happens, and has this value."""
        self.triggered, self.value = True, value
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()


Task = Generator["float | Signal", None, Any]


class Clockwork:
    """The time, and what is to happen when."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = count()
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self.order: list[int] = []
        """All that has happened, and which of two moments was the later one wherever that counted. Runs that agree in
        this are made of the same sums, so that their times are linear in all the seconds that they are made of.
        """

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Call when it is ``when``."""
        heapq.heappush(self._agenda, (when, next(self._order), call))

    def start(self, task: Task) -> Signal:
        """Begin a task; the signal is its end, with the value that it returns."""
        ended, proceed = Signal(), task.__next__

        def go() -> None:
            while True:
                try:
                    wanted = proceed()
                except StopIteration as end:
                    return ended.succeed(end.value)
                if isinstance(wanted, Signal):
                    if not wanted.triggered:
                        return wanted.then(go)
                elif wanted > 0:
                    return self.at(self.now + wanted, go)

        go()
        return ended

    def run(self, until: Callable[[], bool]) -> None:
        """Let time pass until ``until()`` holds, or nothing is left to happen."""
        while self._agenda and not until():
            self.now, number, call = heapq.heappop(self._agenda)
            self.order.append(number)
            call()

    def later(self, one: float, other: float) -> float:
        """The later of two moments."""
        self.order.append(one > other)
        return one if one > other else other

    def left(self) -> list[float]:
        """Seconds from now of all that is to happen, in order."""
        return sorted(when - self.now for when, _, _ in self._agenda)


class Cores:
    """Cores that all tasks at work share evenly; none has more than one. ``others`` want one all the time, too.

    With k at work each is served at ``min(1, cores / (k + others))``. Work is counted in how much each has been served
    since the beginning, so that the task that ends first is known at any time.
    """

    def __init__(self, clockwork: Clockwork, cores: int, others: float = 0.0) -> None:
        self._clockwork, self._cores, self._others = clockwork, cores, others
        self._served = self._at = self._rate = 0.0
        self._order = count()
        self._working: list[tuple[float, int, Signal]] = []
        self._turn = 0

    def work(self, seconds: float) -> Signal:
        """Work so long on a core of one's own, longer on a shared one; the signal is the end."""
        self._pass()
        done = Signal()
        heapq.heappush(self._working, (self._served + seconds, next(self._order), done))
        self._plan()
        return done

    def left(self) -> list[float]:
        """Seconds of work that are left, in order."""
        self._pass()
        return sorted(work - self._served for work, _, _ in self._working)

    def _pass(self) -> None:
        now = self._clockwork.now
        self._served += (now - self._at) * self._rate
        self._at = now

    def _plan(self) -> None:
        """Find the rate, and the moment at which the next task ends."""
        working, clockwork, self._turn = self._working, self._clockwork, self._turn + 1
        self._rate = min(1.0, self._cores / (len(working) + self._others)) if working else 0.0
        if working:
            left = max(0.0, working[0][0] - self._served)
            clockwork.at(clockwork.now + left / self._rate, partial(self._end, self._turn))

    def _end(self, turn: int) -> None:
        if turn != self._turn:
            return  # another task came in between, and the plan is another one now
        self._served, self._at = self._working[0][0], self._clockwork.now
        ended = []
        while self._working and self._working[0][0] <= self._served:
            ended.append(heapq.heappop(self._working)[2])
        self._plan()
        for done in ended:
            done.succeed()


class Port:
    """A machine's end of its link, which all of its processes share: when it is free again each way."""

    __slots__ = ("incoming", "link", "outgoing")

    def __init__(self, link: Link | None) -> None:
        self.link, self.outgoing, self.incoming = link, 0.0, 0.0


class Host:
    """A process and its port: its threads take turns at one interpreter, and what it sends and hears shares the link.

    The link does what `minips.stages.transports.link` does, ``late`` seconds later where a message had to wait for it.
    What processes with the same port say to each other does not pass it.
    """

    def __init__(self, clockwork: Clockwork, cores: Cores, port: Port, late: float) -> None:
        self.clockwork, self._cores, self._port, self._late = clockwork, cores, port, late
        self._began = 0.0
        self._queue: deque[tuple[float, Callable[[float], None], Signal]] = deque()

    def work(self, seconds: float, record: Callable[[float], None] = lambda wall: None) -> Signal:
        """Work when it is one's turn; ``record`` is told how long it took from then on."""
        done = Signal()
        if seconds <= 0:
            record(0.0)
            done.succeed()
        else:
            self._queue.append((seconds, record, done))
            if len(self._queue) == 1:
                self._begin()
        return done

    def _begin(self) -> None:
        self._began = self.clockwork.now
        self._cores.work(self._queue[0][0]).then(self._end)

    def _end(self) -> None:
        _, record, done = self._queue.popleft()
        record(self.clockwork.now - self._began)
        if self._queue:
            self._begin()
        done.succeed()

    def left(self) -> list[float]:
        """Tasks that wait for their turn, and seconds until the link is free each way."""
        now, port = self.clockwork.now, self._port
        return [len(self._queue), max(0.0, port.outgoing - now), max(0.0, port.incoming - now)]

    def depart(self, nbytes: float, to: "Host") -> float:
        """When the first byte of a message leaves that is sent now."""
        port = self._port
        if not port.link or to._port is port:
            return self.clockwork.now
        start = self.clockwork.later(port.outgoing, self.clockwork.now)
        if nbytes:
            port.outgoing = start + nbytes * 8 / port.link.bandwidth_bps
        return start

    def arrive(self, start: float, nbytes: float, source: "Host") -> float:
        """Seconds from now until the last byte is here of a message that left from ``start`` on."""
        port = self._port
        if not port.link or source._port is port:
            return 0.0
        end = self.clockwork.later(port.incoming, start) + nbytes * 8 / port.link.bandwidth_bps
        if nbytes:
            port.incoming = end
        left = end + port.link.latency_s - self.clockwork.now
        return left + self._late if left > 0 else 0.0
