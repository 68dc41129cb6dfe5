"""Virtual time: a clock, tasks that wait for each other, shared cores, and processes that do one thing at a time.

Nothing here depends on gradients. A `Task` is a generator that yields the seconds to sleep, or a `Signal` to wait for,
whose value it then receives. A task does not pause at a signal that has happened, or for zero seconds.
`EventLoop.run` raises a task's exception; `EventLoop.start` does so if the task has not waited yet.

Events of one instant happen in the order in which they were scheduled. A new task runs immediately, up to its first
wait. In a simulation, a signal schedules the tasks that it wakes, after earlier events of the instant: the caller of
``succeed`` may be in the middle of a change. In a prediction, without arrays, they run immediately.
"""

import gc
import heapq
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any, TypeVar

COLLECTED = 200_000
"""The garbage collector's threshold, in new objects, while many tasks exist."""


class Signal:
    """An event that happens once and then wakes the tasks that wait for it."""

    __slots__ = ("triggered", "value", "waiting")

    def __init__(self) -> None:
        self.triggered = False
        self.value: Any = None
        self.waiting: list[Callable[[], object]] = []

    def then(self, call: Callable[[], object]) -> None:
        """Call ``call`` when the event happens, or immediately if it has happened."""
        if self.triggered:
            call()
        else:
            self.waiting.append(call)

    def succeed(self, value: Any = None) -> None:
        """Let the event happen, with this value. Only the first call counts."""
        if not self.triggered:
            self.triggered, self.value = True, value
            waiting, self.waiting = self.waiting, []
            for call in waiting:
                call()


T = TypeVar("T")
Task = Generator["float | Signal", Any, T]


class EventLoop:
    """The clock, and the agenda of events. Signals run tasks ``at_once`` or later: see the module's docstring."""

    def __init__(self, at_once: bool = False, remembered: bool = False) -> None:
        self.now, self._at_once = 0.0, at_once
        self._numbers = count()
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self.order = deque[int](maxlen=None if remembered else 0)
        """The run's order, if ``remembered``: the number of each event that has happened, and the outcome of each
        comparison by `later`. Runs of the same order add up the same durations, so their times are linear in these.
        """

    def turn(self) -> int:
        """Return the next turn: among calls at the same time, those with earlier turns come first."""
        return next(self._numbers)

    def at(self, when: float, call: Callable[[], None], turn: int | None = None) -> None:
        """Call ``call`` at the time ``when``, in this turn or, for None, in the next one."""
        heapq.heappush(self._agenda, (when, next(self._numbers) if turn is None else turn, call))

    def start(self, task: Task[Any]) -> Signal:
        """Begin a task. Returns a signal that happens when the task ends; its value is the task's result."""
        ended, proceed = Signal(), task.send
        wanted: Any = None

        def go() -> None:
            nonlocal wanted
            while True:
                try:
                    wanted = proceed(wanted.value if type(wanted) is Signal else None)
                except StopIteration as end:
                    return ended.succeed(end.value)
                if type(wanted) is Signal:
                    if not wanted.triggered:
                        return wanted.then(wake)
                elif wanted > 0:
                    return self.at(self.now + wanted, go)

        wake = go if self._at_once else lambda: self.at(self.now, go)
        go()
        return ended

    def run(self, until: Callable[[], bool]) -> None:
        """Let time pass until ``until()`` is true or no event is left."""
        while self._agenda and not until():
            self.now, number, call = heapq.heappop(self._agenda)
            self.order.append(number)
            call()

    def later(self, first: float, second: float) -> float:
        """Return the later of two times."""
        self.order.append(first > second)
        return first if first > second else second

    def left(self) -> list[float]:
        """The seconds from now until each event on the agenda, in order."""
        return sorted(when - self.now for when, _, _ in self._agenda)


class Cores:
    """Cores that all working tasks share evenly, at most one each. ``others`` counts further tasks that always work.

    With k working tasks, each is served at the rate ``min(1, cores / (k + others))``. Since the rate is the same for
    all, one sum of the service since the beginning tells which task ends first, and when.
    """

    def __init__(self, events: EventLoop, cores: int, others: float = 0.0) -> None:
        self._events, self._cores, self._others = events, cores, others
        self._served = self._at = self._rate = 0.0
        self._numbers = count()
        self._working: list[tuple[float, int, Signal]] = []
        self._plans = 0
        self._ending: int | None = None
        """The turn of the next plan, while tasks learn of their ends: most tasks begin something new immediately."""

    def work(self, seconds: float) -> Signal:
        """Begin work that takes ``seconds`` on an unshared core, or longer on a shared one. Returns its end signal."""
        self._pass()
        done = Signal()
        heapq.heappush(self._working, (self._served + seconds, next(self._numbers), done))
        self._plan_anew()
        return done

    def leave(self, done: Signal) -> None:
        """Abandon the rest of the work whose end is the signal ``done``."""
        self._pass()
        self._working = [(work, number, end) for work, number, end in self._working if end is not done]
        heapq.heapify(self._working)
        self._plan_anew()

    def left(self) -> list[float]:
        """The remaining seconds of each piece of work, in order."""
        self._pass()
        return sorted(work - self._served for work, _, _ in self._working)

    def _pass(self) -> None:
        now = self._events.now
        self._served += (now - self._at) * self._rate
        self._at = now

    def _plan_anew(self) -> None:
        if self._ending is None:
            self._plan()
        else:
            self._ending = self._events.turn()

    def _plan(self, turn: int | None = None) -> None:
        """Compute the current rate, and the time at which the next task ends."""
        working, events, self._plans = self._working, self._events, self._plans + 1
        self._rate = min(1.0, self._cores / (len(working) + self._others)) if working else 0.0
        if working:
            left = max(0.0, working[0][0] - self._served)
            events.at(events.now + left / self._rate, partial(self._end, self._plans), turn)

    def _end(self, plan: int) -> None:
        if plan != self._plans:
            return  # a task has begun or left since, so a newer plan applies
        self._served, self._at = self._working[0][0], self._events.now
        ended = []
        while self._working and self._working[0][0] <= self._served:
            ended.append(heapq.heappop(self._working)[2])
        self._ending = self._events.turn()
        for done in ended:
            done.succeed()
        turn, self._ending = self._ending, None
        self._plan(turn)


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Run the block with fewer garbage collections, each of which scans thousands of tasks."""
    before = gc.get_threshold()
    gc.set_threshold(COLLECTED)
    try:
        yield
    finally:
        gc.set_threshold(*before)


Work = tuple[float, Callable[[float], object]]
"""The seconds of work, and a function to call with the seconds that it took, which include the wait for cores."""


def unrecorded(wall: float) -> None:
    """Keep no record of the work's time."""


class Processor:
    """A process that does one thing at a time, on a machine's ``cores`` or, for None, on its own core."""

    def __init__(self, events: EventLoop, cores: Cores | None) -> None:
        self.events, self._cores = events, cores
        self._began, self._done = 0.0, 0
        self._queue: deque[tuple[tuple[Work, ...], Signal]] = deque()

    def work(self, *works: Work) -> Signal:
        """Queue consecutive pieces of work. Returns the signal of their end. A single empty piece ends immediately."""
        done = Signal()
        if len(works) == 1 and works[0][0] <= 0:
            works[0][1](0.0)
            done.succeed()
        else:
            self._queue.append((works, done))
            if len(self._queue) == 1:
                self._begin()
        return done

    def beside(self, seconds: float) -> Signal:
        """Begin work beside the queue, at the same time. Returns a signal that happens at its end."""
        if self._cores:
            return self._cores.work(seconds)
        done = Signal()
        self.events.at(self.events.now + seconds, done.succeed)
        return done

    @property
    def queue(self) -> int:
        """The number of entries under way or queued."""
        return len(self._queue)

    def _begin(self) -> None:
        self._began, seconds = self.events.now, self._queue[0][0][self._done][0]
        if seconds <= 0:
            self._end()
        else:
            self.beside(seconds).then(self._end)

    def _end(self) -> None:
        works, done = self._queue[0]
        works[self._done][1](self.events.now - self._began)
        self._done += 1
        if self._done < len(works):
            return self._begin()
        self._queue.popleft()
        self._done = 0
        if self._queue:
            self._begin()
        done.succeed()
