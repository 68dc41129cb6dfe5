"""Virtual time: a clock, tasks that wait for each other, cores that are shared, processes that do one thing at a time.

It knows nothing of gradients. A `Task` is a generator that yields the seconds that it sleeps, or a `Signal` that it
waits for, whose value it is given. What has happened already, or takes no time, holds it up no longer. What it raises
leaves through `Clockwork.run`, or through `Clockwork.start` where it has not waited yet.

What falls into one instant happens in the order in which it was asked for. A new task goes on at once, to where it
first waits. Those that a signal wakes go on after all that was asked for before, in a simulation: whoever calls
``succeed`` may be in the middle of a change. In a prediction, which has no arrays to change, they go on at once.
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
"""How many objects more there are between two looks of the garbage collector, while many tasks live."""


class Signal:
    """An event that happens once; the tasks that wait for it go on then."""

    __slots__ = ("_waiting", "triggered", "value")

    def __init__(self) -> None:
        self.triggered = False
        self.value: Any = None
        self._waiting: list[Callable[[], object]] = []

    def then(self, call: Callable[[], object]) -> None:
        """Call when it happens: at once where it has."""
        if self.triggered:
            call()
        else:
            self._waiting.append(call)

    def succeed(self, value: Any = None) -> None:
        """It happens, and has this value. Of several calls the first one counts."""
        if not self.triggered:
            self.triggered, self.value = True, value
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                call()


Task = Generator["float | Signal", Any, Any]


class Clockwork:
    """The time, and what is to happen when. Signals wake tasks ``at_once``, or in turn; see above."""

    def __init__(self, at_once: bool = False, remembered: bool = False) -> None:
        self.now, self._at_once = 0.0, at_once
        self._numbers = count()
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self.order = deque[int](maxlen=None if remembered else 0)
        """All that has happened, if it is ``remembered``, and which of two moments was the later one wherever that
        counted. Runs that agree in this are made of the same sums, so that their times are linear in all the seconds
        that they are made of.
        """

    def turn(self) -> int:
        """The next turn: of what is to happen at one moment, earlier turns come first."""
        return next(self._numbers)

    def at(self, when: float, call: Callable[[], None], turn: int | None = None) -> None:
        """Call when it is ``when``, in this turn or (None) in the next one."""
        heapq.heappush(self._agenda, (when, next(self._numbers) if turn is None else turn, call))

    def start(self, task: Task) -> Signal:
        """Begin a task; the signal is its end, with the value that it returns."""
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
        self._numbers = count()
        self._working: list[tuple[float, int, Signal]] = []
        self._plans = 0
        self._ending: int | None = None
        """The turn of the next plan, while tasks are told of their ends: most of them begin something new at once."""

    def work(self, seconds: float) -> Signal:
        """Work so long on a core of one's own, longer on a shared one; the signal is the end."""
        self._pass()
        done = Signal()
        heapq.heappush(self._working, (self._served + seconds, next(self._numbers), done))
        self._plan_anew()
        return done

    def leave(self, done: Signal) -> None:
        """Give up what is left of some work, if anything is."""
        self._pass()
        self._working = [one for one in self._working if one[2] is not done]
        heapq.heapify(self._working)
        self._plan_anew()

    def left(self) -> list[float]:
        """Seconds of work that are left, in order."""
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
            return  # another task came in between, and the plan is another one now
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
    """Within, the garbage collector runs seldom: of thousands of tasks it would look at all again and again."""
    before = gc.get_threshold()
    gc.set_threshold(COLLECTED)
    try:
        yield
    finally:
        gc.set_threshold(*before)


Work = tuple[float, Callable[[float], object]]
"""Seconds, and the function that is told how long they took."""


def unrecorded(wall: float) -> None:
    """For work whose time nobody keeps."""


class Processor:
    """A process that does one thing at a time, on a machine's ``cores`` (None: on a core of its own)."""

    def __init__(self, clockwork: Clockwork, cores: Cores | None) -> None:
        self.clockwork, self._cores = clockwork, cores
        self._began, self._done = 0.0, 0
        self._queue: deque[tuple[tuple[Work, ...], Signal]] = deque()

    def work(self, *works: Work) -> Signal:
        """Do one thing after the other, in turn; the signal is the end. A single one of no time waits for no turn."""
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
        """Work beside all that is done in turn; the signal is the end."""
        if self._cores:
            return self._cores.work(seconds)
        done = Signal()
        self.clockwork.at(self.clockwork.now + seconds, done.succeed)
        return done

    @property
    def queue(self) -> int:
        """The works that are under way or wait for their turn."""
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
