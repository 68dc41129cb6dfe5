"""The exercises of "Hide and survive"."""

import tracemalloc
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import numpy as np

from minips.lab.course.exercises import Refused, asks, case, raising, refuse_if
from minips.stage import Array, Frames
from minips.stages.transports import Channel

BASE_S = 0.4
CALLS, TRIES = 1500, 8
"""The calls whose waits are compared, and the tries of each."""
MOST_OFF, MOST_OFF_TOGETHER, MOST_RELATED = 0.1, 0.04, 0.2
"""The most by which the share of the waits below a level may be off, before one try and before all; and the most by
which two waits of a call may be related. By chance, 1 in 10¹² is more (Dvoretzky, Kiefer and Wolfowitz).
"""


@asks(
    "hide.1",
    "Write a loop over range(attempts). In it, use try and except ConnectionError, and return the answer if one came.",
    "On the last attempt let the error through: a bare raise within except does that. After any other attempt, wait, "
    "but only after the with block has ended: then its channel is closed.",
    "Put a try into the for. The try contains the with and a return; the except decides whether this was the last "
    "attempt. The loop ends with sleep(rng.uniform(0, bound)). What is the bound for attempt 0, 1, 2?",
)
def call_again(function: Any, rng: np.random.Generator) -> str:
    """Make call_again try at most `attempts` times: after a ConnectionError it waits for a random time, whose bound
    doubles each time, and tries again with a fresh channel.
    """
    refuse_if(not callable(function), f"Expected the function call_again, got {function!r}.")
    for turn in range(300):
        failing = rng.choice([*BROKEN_OFF], size=int(rng.integers(0, 5 if turn % 10 else 9))).tolist()
        fates = [*failing, ("answer", "error", "forbidden", *BROKEN_OFF)[turn % 6]]
        attempts = int(rng.integers(1, len(fates) + (1 if fates[-1] in BROKEN_OFF else 2)))
        with case(f"With attempts={attempts} and channels that end with {', '.join(fates[:attempts])}"):
            _Tries(fates, attempts, rng).make(function, rng)
    with case(f"With attempts={TRIES} and channels that all break:"):
        seeds = [*map(int, rng.integers(2**31, size=CALLS)), 7, 7]
        shares = [_Tries(["refused"] * TRIES, TRIES, rng).make(function, np.random.default_rng(seed)) for seed in seeds]
        refuse_if(shares[-1] != shares[-2], "two generators of the same seed give other waits. Draw from rng.")
        _are_spread(np.array(shares[:CALLS]))
    return "Right for 300 random failures: fresh channels, random waits, no needless tries, and every channel closed."


def _are_spread(shares: Array) -> None:
    """Refuse waits unless they are spread evenly from 0 to their bounds, and drawn one by one. ``shares`` has shape
    (calls, waits): the waits divided by their bounds.
    """
    waits = {f"before try {number}": (found, MOST_OFF) for number, found in enumerate(shares.T, 2)}
    for which, (found, most) in (waits | {"in all": (shares.ravel(), MOST_OFF_TOGETHER)}).items():
        levels = (np.arange(found.size) + 0.5) / found.size
        off = np.abs(np.sort(found) - levels)
        worst = int(off.argmax())
        below = f"{levels[worst]:.0%} of the waits {which} are below {np.sort(found)[worst]:.0%} of their bound"
        refuse_if(off[worst] > most, f"{below}; they should be spread evenly from 0% to 100% ({found.size} draws).")
    related = np.corrcoef(shares.T) - np.eye(shares.shape[1])
    refuse_if(np.abs(related).max() > MOST_RELATED, "the waits of one call depend on each other. Draw one for each.")


class _Tries:
    """One call over successive channels that end as ``fates`` says."""

    def __init__(self, fates: list[str], attempts: int, rng: np.random.Generator) -> None:
        self.fates, self.attempts = fates, attempts
        self.frames: Frames = [rng.bytes(int(rng.integers(9))) for _ in range(int(rng.integers(1, 4)))]
        self.answer: Frames = [rng.bytes(4) for _ in range(int(rng.integers(3)))]  # may be empty
        self.kinds = [*map(int, rng.integers(len(BREAKS), size=len(fates)))]
        self.made: list[_Fated] = []
        self.shares: list[float] = []

    def connect(self) -> Channel:
        number = len(self.made)
        fate = self.fates[number] if number < len(self.fates) else "answer"
        refuse_if(len(self.shares) < number, f"it tried again without a wait, after try {number}.")
        broken = BREAKS[self.kinds[number % len(self.kinds)]](f"attempt {number + 1}")
        self.made.append(_Fated(fate, broken, self.frames.copy(), self.answer))
        return self.made[-1].opened()

    def sleep(self, seconds: float) -> None:
        bound = BASE_S * 2 ** len(self.shares)
        waited = f"wait {len(self.shares) + 1} was {seconds:.3f} s"
        refuse_if(not 0 <= seconds <= bound, f"{waited}, expected 0 to {bound:g} s.")
        refuse_if(any(channel.open for channel in self.made), f"{waited} while a channel was open.")
        self.shares.append(float(seconds) / bound)
        tries = len(self.made)
        refuse_if(len(self.shares) > tries, f"it waited {len(self.shares)} times for {tries} tries.")

    def make(self, function: Callable[..., Any], rng: np.random.Generator) -> list[float]:
        """Make the call; return each wait divided by its bound."""
        given = self.frames.copy()
        try:
            got: Any = function(self.connect, given, self.attempts, self.sleep, rng)
        except (ConnectionError, TimeoutError, PermissionError) as error:
            got = error
        made, tries = self.made, min(self.attempts, len(self.fates))
        refuse_if(len(made) != tries, f"it tried {len(made)} times, expected {tries}.")
        wanted = self.answer if self.fates[tries - 1] == "answer" else made[-1].error
        same = got == wanted if isinstance(wanted, list) else got is wanted
        told = [f"{type(one).__name__}: {one}" if isinstance(one, Exception) else repr(one) for one in (got, wanted)]
        refuse_if(not same, f"it ended with {told[0]}, expected {told[1]} of attempt {tries}.")
        refuse_if(given != self.frames, "it changed the list of frames.")
        left_open = sum(channel.open for channel in made)
        refuse_if(left_open, f"it left {left_open} channels open. Use with.")
        again = any(channel.calls > 1 for channel in made)
        refuse_if(again, "it called again over a broken channel. Make a fresh channel for each try.")
        waits = len(self.shares)
        refuse_if(waits != tries - 1, f"it waited {waits} times, expected {tries - 1}: before each further try.")
        return self.shares


BREAKS = (ConnectionError, ConnectionResetError, ConnectionRefusedError, BrokenPipeError, ConnectionAbortedError)
"""The errors of a connection that breaks."""
BROKEN_OFF = ("refused", "cut", "lost")
"""The fates of a channel with such an error: it is raised by ``connect``, by ``call`` and by the future."""


class _Fated(Channel):
    """A channel that ends as its ``fate`` says."""

    def __init__(self, fate: str, broken: ConnectionError, frames: Frames, answer: Frames) -> None:
        self.error: Exception = broken
        if fate == "forbidden":
            self.error = PermissionError("a wrong token")
        elif fate == "error":
            self.error = TimeoutError("the handler's own error")
        self.fate, self.frames, self.answer, self.calls, self.open = fate, frames, answer, 0, False

    def opened(self) -> Channel:
        if self.fate in ("refused", "forbidden"):
            raise self.error
        self.open = True
        return self

    def call(self, frames: Frames) -> "Future[Frames]":
        self.calls += 1
        refuse_if(not self.open, "it called over a channel that is closed.")
        refuse_if([*frames] != self.frames, f"it sent {frames!r}, expected {self.frames!r}.")
        if self.fate == "cut":
            raise self.error
        future = _Patient()
        if self.fate == "answer":
            future.set_result(self.answer.copy())
        else:
            future.set_exception(self.error)
        return future

    def close(self) -> None:
        self.open = False


class _Patient(Future[Frames]):
    """A future that shows whether its caller would wait for ever."""

    def result(self, timeout: float | None = None) -> Frames:
        if timeout is None:
            raise Refused("it waits for an answer without a time-out. A server may never answer.")
        refuse_if(timeout < 1, f"it waits for an answer for {timeout} s. A server may take longer.")
        return super().result(timeout)


MANY, TIMES, MOST_BYTES = 2500, 4, 300
"""After so many calls of each caller a counter's memory is measured, so often, and by so much it may grow each time."""


@asks(
    "hide.2",
    "Before it adds, the counter must know the number of this caller's last call, and the answer to that call.",
    "A dictionary with one entry for each caller is enough: each new call replaces the caller's last one.",
    "A number may be above the last one, equal to it, or below it. For a caller that is not in the dictionary yet, "
    "you could use a last number that is below all others.",
)
def count_once(cls: Any, rng: np.random.Generator) -> str:
    """Make the counter count a repeated call only once, and return the same answer again."""
    lacks = not isinstance(cls, type) or not callable(getattr(cls, "add", None))
    refuse_if(lacks, f"Expected your class Counter with the method add, got {cls!r}.")
    for turn in range(20):
        callers = _callers(rng, (1, 5, 40)[turn % 3])
        pair = _Calls(cls(), callers), _Calls(cls(), callers)
        for _ in range(int(rng.integers(5, 60 + 5 * len(callers)))):
            pair[int(rng.integers(2))].call(rng)
    quiet = _Calls(cls(), ["quiet", "b", "c"])
    quiet.new("quiet", 3)
    for _ in range(500):
        quiet.call(rng, ["b", "c"])
    quiet.repeat("quiet")
    _forgets(cls())
    return "New calls count, repeated ones are answered again, late copies are refused, and the memory stays small."


def _callers(rng: np.random.Generator, count: int) -> list[str]:
    """Return names of callers, many of which begin or end alike."""
    ends = ["", *map(str, rng.permutation(100)[:count])]
    return list(dict.fromkeys(f"{rng.choice([*'abA'])}{rng.choice(ends)}{rng.choice([*'xyX'])}" for _ in range(count)))


class _Calls:
    """The calls of several callers to one counter."""

    def __init__(self, counter: Any, callers: list[str]) -> None:
        self.counter, self.callers, self.total = counter, callers, 0.0
        self.last: dict[str, tuple[int, float, float]] = {}  # of each caller its number, amount and answer

    def call(self, rng: np.random.Generator, callers: list[str] | None = None) -> None:
        """Make a call of one of these callers: a new one, its last one again, or a copy of an earlier one."""
        caller, deed = str(rng.choice(callers or self.callers)), rng.random()
        if deed < 0.3 and caller in self.last:
            self.repeat(caller)
        elif deed < 0.4 and self.last.get(caller, (0,))[0] > 0:
            self.late(caller, int(rng.integers(self.last[caller][0])))
        else:  # now and then the total is 0 again, which is an answer, too
            whole = int(rng.integers(-9, 10))
            self.new(caller, float(rng.choice([0, 0 - self.total, whole, whole / 8])))

    def new(self, caller: str, amount: float) -> None:
        number = self.last.get(caller, (-1,))[0] + 1
        self.total += amount
        self.last[caller] = number, amount, self.total
        with case(f"Call {number} of caller {caller}, a new one, of {amount:g}:"):
            self._answers(caller)

    def repeat(self, caller: str) -> None:
        with case(f"Caller {caller} has repeated its call {self.last[caller][0]}:"):
            self._answers(caller)

    def late(self, caller: str, number: int) -> None:
        late = f"Caller {caller} has called with number {self.last[caller][0]}. A copy of its call {number} comes late:"
        with case(late), raising(ValueError):
            self.counter.add(caller, number, 3)
        total = self.counter.total
        refuse_if(total != self.total, f"{late} the total became {total}, expected {self.total:g}.")

    def _answers(self, caller: str) -> None:
        """Refuse a counter if a caller's last call gets a different answer, or leaves a different total."""
        number, amount, answer = self.last[caller]
        got, total = self.counter.add(caller, number, amount), self.counter.total
        refuse_if(total != self.total, f"the total became {total}, expected {self.total:g}.")
        refuse_if(got != answer, f"it was answered with {got!r}, expected {answer:g}.")


def _forgets(counter: Any) -> None:
    """Refuse a counter if the memory grows with the number of calls from two callers."""
    traced, held = tracemalloc.is_tracing(), []
    tracemalloc.start()
    try:
        for number in range(MANY * (TIMES + 1)):
            for caller in ("a", "b"):
                counter.add(caller, number, 1)
                counter.add(caller, number, 1)
                if number % 8 == 7:
                    with suppress(ValueError):
                        counter.add(caller, number - 7, 1)
            if number % MANY == MANY - 1:
                held.append(tracemalloc.get_traced_memory()[0])
    finally:
        if not traced:
            tracemalloc.stop()
    more = (
        f"{held[-1] - held[0]} bytes more are held after {number + 1} calls of each of two callers than after {MANY}. "
    )
    asked = "Which calls may still be retried, and so need to be remembered?"
    refuse_if(min(np.diff(held)) > MOST_BYTES, more + asked)  # another thread's memory does not grow each time
