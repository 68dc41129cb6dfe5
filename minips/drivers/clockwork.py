"""Virtual time: a clock, tasks that wait for each other, shared cores, processes that do one thing at a time.

Nothing here is about gradients. A `Task` is a generator that yields the seconds that it sleeps, or a `Signal` that it
waits for, and gets the signal's value. A signal that has happened, or a sleep of no time, does not suspend the task. An
exception of a task passes through `Clockwork.run`, or through `Clockwork.start` where the task has not waited yet.

Events of one instant happen in the order in which they were planned. A new task runs at once, up to its first wait. In
a simulation, the tasks that a signal wakes run after all events planned before, since the caller of ``succeed`` may be
in the middle of a change. In a prediction, which has no arrays to change, they run at once.
"""

import gc
import heapq
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import Any

COLLECTED = 200_000
"""The garbage collector's threshold while many tasks live: new objects between two collections."""


class Signal:
    """An event that happens once, and wakes the tasks that wait for it."""

    __slots__ = ("_waiting", "triggered", "value")

    def __init__(self) -> None:
        self.triggered = False
        self.value: Any = None
        self._waiting: list[Callable[[], object]] = []

    def then(self, call: Callable[[], object]) -> None:
        """Call this when the signal happens, or at once where it has happened."""
        if self.triggered:
            call()
        else:
            self._waiting.append(call)

    def succeed(self, value: Any = None) -> None:
        """Let the signal happen, with this value. Of several calls the first one counts."""
        if not self.triggered:
            self.triggered, self.value = True, value
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call()


Task = Generator["float | Signal", Any, Any]


class Clockwork:
    """The virtual time and the agenda of events. Signals wake tasks ``at_once``, or in turn; see above."""

    def __init__(self, at_once: bool = False, remembered: bool = False) -> None:
        self.now, self._at_once = 0.0, at_once
        self._numbers = count()
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self.order = deque[int](maxlen=None if remembered else 0)
        """The numbers of all past events, if ``remembered``, and the result of each comparison of two moments. Runs
        with the same order add up the same seconds, so that their times are linear in these seconds.
        """

    def turn(self) -> int:
        """The next turn: of the calls at one time, earlier turns come first."""
        return next(self._numbers)

    def at(self, when: float, call: Callable[[], None], turn: int | None = None) -> None:
        """Call this at the time ``when``, in this turn or (None) in the next one."""
        heapq.heappush(self._agenda, (when, next(self._numbers) if turn is None else turn, call))

    def start(self, task: Task) -> Signal:
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
        """Let time pass until ``until()`` holds, or the agenda is empty."""
        while self._agenda and not until():
            self.now, number, call = heapq.heappop(self._agenda)
            self.order.append(number)
            call()

    def later(self, one: float, other: float) -> float:
        """The later of two moments."""
        self.order.append(one > other)
        return one if one > other else other

    def left(self) -> list[float]:
        """Seconds from now until each event of the agenda, in order."""
        return sorted(when - self.now for when, _, _ in self._agenda)


class Cores:
    """Cores that all working tasks share evenly; a task has at most one. ``others`` always want one each, too.

    With k working tasks, each gets ``min(1, cores / (k + others))`` of a core. The seconds of service that a task gets
    are counted from the beginning of time, so that the task that ends first is always known.
    """

    def __init__(self, clockwork: Clockwork, cores: int, others: float = 0.0) -> None:
        self._clockwork, self._cores, self._others = clockwork, cores, others
        self._served = self._at = self._rate = 0.0
        self._numbers = count()
        self._working: list[tuple[float, int, Signal]] = []
        self._plans = 0
        self._ending: int | None = None
        """The turn of the next plan, while tasks are told of their ends: most of them begin something new at once."""

    def work(self, seconds: float) -> Signal:
        """Work ``seconds`` of a whole core, longer on a shared one. Returns the signal of the end."""
        self._pass()
        done = Signal()
        heapq.heappush(self._working, (self._served + seconds, next(self._numbers), done))
        self._plan_anew()
        return done

    def leave(self, done: Signal) -> None:
        """Give up the rest of the work with this signal, if any is left."""
        self._pass()
        self._working = [work for work in self._working if work[2] is not done]
        heapq.heapify(self._working)
        self._plan_anew()

    def left(self) -> list[float]:
        """The remaining seconds of each work, in order."""
        self._pass()
        return sorted(work - self._served for work, _, _ in self._working)

    def _pass(self) -> None:
        now = self._clockwork.now
        self._served += (now - self._at) * self._rate
        self._at = now

    def _plan_anew(self) -> None:
        if self._ending is None:
            self._plan()
        else:
            self._ending = self._clockwork.turn()

    def _plan(self, turn: int | None = None) -> None:
        """Find the rate, and the moment at which the next task ends."""
        working, clockwork, self._plans = self._working, self._clockwork, self._plans + 1
        self._rate = min(1.0, self._cores / (len(working) + self._others)) if working else 0.0
        if working:
            left = max(0.0, working[0][0] - self._served)
            clockwork.at(clockwork.now + left / self._rate, partial(self._end, self._plans), turn)

    def _end(self, plan: int) -> None:
        if plan != self._plans:
            return  # a task has begun or left since, so there is another plan now
        self._served, self._at = self._working[0][0], self._clockwork.now
        ended = []
        while self._working and self._working[0][0] <= self._served:
            ended.append(heapq.heappop(self._working)[2])
        self._ending = self._clockwork.turn()
        for done in ended:
            done.succeed()
        turn, self._ending = self._ending, None
        self._plan(turn)


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Within, the garbage collector runs seldom: it would traverse thousands of tasks again and again."""
    before = gc.get_threshold()
    gc.set_threshold(COLLECTED)
    try:
        yield
    finally:
        gc.set_threshold(*before)


Work = tuple[float, Callable[[float], object]]
"""Seconds of work, and a function that gets the time that they took."""


def unrecorded(wall: float) -> None:
    """The function of a `Work` whose time is not recorded."""


class Processor:
    """A process that does one thing at a time, on a machine's ``cores`` (None: on a core of its own)."""

    def __init__(self, clockwork: Clockwork, cores: Cores | None) -> None:
        self.clockwork, self._cores = clockwork, cores
        self._began, self._done = 0.0, 0
        self._queue: deque[tuple[tuple[Work, ...], Signal]] = deque()

    def work(self, *works: Work) -> Signal:
        """Queue these works, done one after the other. Returns the signal of the end. A single work of no time is done
        at once.
        """
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
        self.clockwork.at(self.clockwork.now + seconds, done.succeed)
        return done

    @property
    def queue(self) -> int:
        """The number of queued calls of `work`, with the one under way."""
        return len(self._queue)

    def _begin(self) -> None:
        self._began, seconds = self.clockwork.now, self._queue[0][0][self._done][0]
        if seconds <= 0:
            self._end()
        else:
            self.beside(seconds).then(self._end)

    def _end(self) -> None:
        works, done = self._queue[0]
        works[self._done][1](self.clockwork.now - self._began)
        self._done += 1
        if self._done < len(works):
            return self._begin()
        self._queue.popleft()
        self._done = 0
        if self._queue:
            self._begin()
        done.succeed()
