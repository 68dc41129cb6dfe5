"""Virtual time: a clock, tasks that wait for each other, shared cores, processes that do one thing at a time.

Nothing here knows gradients. A `Task` is a generator that yields the seconds to sleep, or a `Signal` to wait for, and
gets the signal's value. A signal that has happened, or a sleep of zero seconds, does not suspend it. A task's exception
leaves through `EventLoop.run`, or through `EventLoop.start` where the task has not waited yet.

Events of one instant happen in the order in which they were scheduled. A new task runs at once, up to its first wait.
In a simulation a signal schedules the tasks that it wakes, behind earlier events of the instant, because the caller of
``succeed`` may be in the middle of a change. In a prediction, which has no arrays to change, they run at once.
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
"""The threshold of the garbage collector, in new objects, while many tasks live."""


class Signal:
    """An event that happens once and wakes the tasks that wait for it."""

    __slots__ = ("triggered", "value", "waiting")

    def __init__(self) -> None:
        self.triggered = False
        self.value: Any = None
        self.waiting: list[Callable[[], object]] = []

    def then(self, call: Callable[[], object]) -> None:
        """Call ``call`` when the event happens, or at once if it has."""
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
    """The clock, and the agenda of events. Signals wake tasks ``at_once``, or in turn: see the module's docstring."""

    def __init__(self, at_once: bool = False, remembered: bool = False) -> None:
        self.now, self._at_once = 0.0, at_once
        self._numbers = count()
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self.order = deque[int](maxlen=None if remembered else 0)
        """The order of the run, if it is ``remembered``: the number of each event that has happened, and the outcome of
        each comparison by `later`. Runs of the same order add up the same durations, so their times are linear in them.
        """

    def turn(self) -> int:
        """The next turn: among calls at the same time, earlier turns come first."""
        return next(self._numbers)

    def at(self, when: float, call: Callable[[], None], turn: int | None = None) -> None:
        """Call this at the time ``when``, in this turn or (None) in the next one."""
        heapq.heappush(self._agenda, (when, next(self._numbers) if turn is None else turn, call))

    def start(self, task: Task[Any]) -> Signal:
        """Begin a task. Returns the signal of its end, whose value is the task's result."""
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
        """Let time pass until ``until()`` holds or no event is left."""
        while self._agenda and not until():
            self.now, number, call = heapq.heappop(self._agenda)
            self.order.append(number)
            call()

    def later(self, first: float, second: float) -> float:
        """The later of two moments."""
        self.order.append(first > second)
        return first if first > second else second

    def left(self) -> list[float]:
        """Seconds from now of all events on the agenda, in order."""
        return sorted(when - self.now for when, _, _ in self._agenda)


class Cores:
    """Cores that all working tasks share evenly, at most one each. ``others`` counts further tasks that always work.

    With k tasks at work each is served at the rate ``min(1, cores / (k + others))``. As the rate is the same for all,
    one sum of service since the beginning says which task ends first, and when.
    """

    def __init__(self, events: EventLoop, cores: int, others: float = 0.0) -> None:
        self._events, self._cores, self._others = events, cores, others
        self._served = self._at = self._rate = 0.0
        self._numbers = count()
        self._working: list[tuple[float, int, Signal]] = []
        self._plans = 0
        self._ending: int | None = None
        """The turn of the next plan, while tasks learn of their ends: most of them begin something new at once."""

    def work(self, seconds: float) -> Signal:
        """Work that takes ``seconds`` on a core of its own, longer on a shared one. Returns the signal of its end."""
        self._pass()
        done = Signal()
        heapq.heappush(self._working, (self._served + seconds, next(self._numbers), done))
        self._plan_anew()
        return done

    def leave(self, done: Signal) -> None:
        """Give up the rest of the work that ends with the signal ``done``."""
        self._pass()
        self._working = [(work, number, end) for work, number, end in self._working if end is not done]
        heapq.heapify(self._working)
        self._plan_anew()

    def left(self) -> list[float]:
        """The remaining seconds of each work, in order."""
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
        """Find the rate, and the moment at which the next task ends."""
        working, events, self._plans = self._working, self._events, self._plans + 1
        self._rate = min(1.0, self._cores / (len(working) + self._others)) if working else 0.0
        if working:
            left = max(0.0, working[0][0] - self._served)
            events.at(events.now + left / self._rate, partial(self._end, self._plans), turn)

    def _end(self, plan: int) -> None:
        if plan != self._plans:
            return  # a task has begun or left since, so another plan holds
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
    """Run the block with a lazy garbage collector; an eager one would scan thousands of tasks again and again."""
    before = gc.get_threshold()
    gc.set_threshold(COLLECTED)
    try:
        yield
    finally:
        gc.set_threshold(*before)


Work = tuple[float, Callable[[float], object]]
"""Seconds of work, and a function to call with the seconds that it took, including the wait for cores."""


def unrecorded(wall: float) -> None:
    """Keep no record of the work's time."""


class Processor:
    """A process that does one thing at a time, on a machine's ``cores`` or (None) on a core of its own."""

    def __init__(self, events: EventLoop, cores: Cores | None) -> None:
        self.events, self._cores = events, cores
        self._began, self._done = 0.0, 0
        self._queue: deque[tuple[tuple[Work, ...], Signal]] = deque()

    def work(self, *works: Work) -> Signal:
        """Queue works that follow each other. Returns the signal of their end. A single empty one ends at once."""
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
        """Work beside the queue. Returns the signal of the end."""
        if self._cores:
            return self._cores.work(seconds)
        done = Signal()
        self.events.at(self.events.now + seconds, done.succeed)
        return done

    @property
    def queue(self) -> int:
        """The number of works under way or queued."""
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
