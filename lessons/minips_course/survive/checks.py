"""The exercises of "Survive a lost answer"."""

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
SHORT_S, MOST_SHORT = 0.3, 0.08
"""Seconds until a deadline that a quarter of first waits would miss, and the most by which that share may be off."""
MOST_OFF, MOST_OFF_TOGETHER, MOST_RELATED = 0.1, 0.04, 0.2
"""The most by which the share of the waits below a level may be off, before one try and before all; and the most by
which two waits of a call may be related. By chance, 1 in 10¹² is more (Dvoretzky, Kiefer and Wolfowitz).
"""
FAR_S = 1e6
"""Seconds until a deadline that no call comes to."""


@asks(
    "survive.1",
    "Note the deadline first: time.monotonic() + seconds. Then write a loop that only a return or a raise can leave.",
    "A try waits for its answer until its patience or the deadline ends, whichever is sooner. If it fails, draw the "
    "wait, and see whether it would end after the deadline. If so, a bare raise within except lets the error through.",
    "Put a try into a while True. The try contains the with and a return; the except draws the wait, and raises or "
    "goes on. The loop ends with time.sleep and a doubled bound. Why must time.sleep come after the with block?",
    beside=True,
)
def call_again(function: Any, rng: np.random.Generator) -> str:
    """Make call_again repeat a call after a ConnectionError or a TimeoutError, with random waits whose bound doubles,
    until its deadline.
    """
    refuse_if(not callable(function), f"Expected the function call_again, got {function!r}.")
    for turn in range(240):
        failing = rng.choice(RETRIED, size=int(rng.integers(0, 5 if turn % 10 else 9))).tolist()
        fates = [*failing, ENDS[turn % len(ENDS)]]
        patience = float(rng.choice([0.05, 0.1, 1.0, 10.0]))
        seconds = float(rng.choice([rng.uniform(0.02, 3), rng.uniform(1, 30), FAR_S]))
        tries = _Tries(fates, patience, seconds, rng)
        with case(f"With patience={patience:g}, seconds={seconds:.4g} and tries that end with {', '.join(fates)}:"):
            tries.make(function, rng)
    with case(f"With seconds={FAR_S:g} and {TRIES} channels that break:"):
        seeds = [*map(int, rng.integers(2**31, size=CALLS)), 7, 7]
        fates = [*["refused"] * TRIES, "answer"]
        shares = [_Tries(fates, 1.0, FAR_S, rng).make(function, np.random.default_rng(seed)) for seed in seeds]
        refuse_if(shares[-1] != shares[-2], "two generators of the same seed give other waits. Draw from rng.")
        _are_spread(np.array(shares[:CALLS]))
    with case(f"With seconds={SHORT_S} and a first channel that breaks at once:"):
        fates = ["cut", "answer"]
        firsts = [_Tries(fates, 1.0, SHORT_S, rng).make(function, np.random.default_rng(seed)) for seed in seeds]
        waited, wanted = float(np.mean([bool(first) for first in firsts])), SHORT_S / BASE_S
        refuse_if(
            abs(waited - wanted) > MOST_SHORT,
            f"of {len(firsts)} calls {waited:.0%} waited for a second try, expected about {wanted:.0%}. A call gives "
            "up if the wait that it has drawn would end after the deadline, and only then.",
        )
        _are_spread(np.array([first for first in firsts if first]) / wanted)
    return "Right for 240 random calls: fresh channels, random waits, numbers kept, and nothing after the deadline."


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
    """One call over successive channels that end as ``fates`` says, at virtual times."""

    def __init__(self, fates: list[str], patience: float, seconds: float, rng: np.random.Generator) -> None:
        self.fates, self.patience, self.seconds = fates, patience, seconds
        self.frames: Frames = [rng.bytes(int(rng.integers(9))) for _ in range(int(rng.integers(1, 4)))]
        self.answer: Frames = [rng.bytes(4) for _ in range(int(rng.integers(3)))]  # may be empty
        self.kinds = [*map(int, rng.integers(len(BREAKS), size=len(fates)))]
        self.took = [*map(float, rng.uniform(0, 0.04, size=len(fates)))]
        self.made: list[_Fated] = []
        self.shares: list[float] = []
        self.clock = _Time(self, float(rng.uniform(0, 1e4)))
        self.deadline = self.clock.now + seconds

    def connect(self) -> Channel:
        number = len(self.made)
        refuse_if(len(self.shares) < number, f"it tried again without a wait, after try {number}.")
        refuse_if(
            number and not (self.made[-1].late or self.made[-1].fate in RETRIED),
            f"it tried again, though try {number} was the last.",
        )
        late = self.clock.now - self.deadline
        refuse_if(late > 0, f"it began try {number + 1} {late:.3g} s after its deadline.")
        fate = self.fates[number] if number < len(self.fates) else "answer"
        broken = BREAKS[self.kinds[number % len(self.kinds)]](f"try {number + 1}")
        self.made.append(_Fated(self, fate, broken, self.took[number % len(self.took)]))
        return self.made[-1].opened()

    def sleep(self, seconds: float) -> None:
        bound = BASE_S * 2 ** len(self.shares)
        waited = f"wait {len(self.shares) + 1} was {seconds:.3f} s"
        refuse_if(not 0 <= seconds <= bound, f"{waited}, expected 0 to {bound:g} s.")
        refuse_if(any(channel.open for channel in self.made), f"{waited} while a channel was open.")
        refuse_if(
            self.clock.now + seconds > self.deadline + 1e-9,
            f"{waited}, with {self.deadline - self.clock.now:.3f} s left until the deadline. Let the error through.",
        )
        self.shares.append(float(seconds) / bound)
        tries = len(self.made)
        refuse_if(len(self.shares) > tries, f"it waited {len(self.shares)} times for {tries} tries.")
        self.clock.now += float(seconds)

    def waits(self, timeout: float | None) -> float:
        """Return the seconds that a future waits; refuse a caller that would wait too long, or not long enough."""
        if timeout is None:
            raise Refused("it waits for an answer without a time-out. A server may never answer.")
        left = self.deadline - self.clock.now
        wanted = min(self.patience, left)
        refuse_if(
            abs(timeout - wanted) > 1e-6,
            f"it waits for an answer for {timeout:.4g} s, expected {wanted:.4g} s: patience is {self.patience:g} s, "
            f"and {left:.4g} s are left.",
        )
        return timeout

    def make(self, function: Callable[..., Any], rng: np.random.Generator) -> list[float]:
        """Make the call; return each wait divided by its bound."""
        given = self.frames.copy()
        try:
            got: Any = function(self.connect, given, self.patience, self.seconds, self.clock, rng)
        except (OSError, ArithmeticError) as error:
            got = error
        refuse_if(not self.made, "it never called connect().")
        last, tries = self.made[-1], len(self.made)
        refuse_if(last.error is None, f"it did not ask for the answer of try {tries}.")
        wanted = self.answer if last.fate in ANSWERED and not last.late else last.error
        same = got == wanted if isinstance(wanted, list) else got is wanted
        told = [f"{type(one).__name__}: {one}" if isinstance(one, Exception) else repr(one) for one in (got, wanted)]
        refuse_if(not same, f"it ended with {told[0]}, expected {told[1]} of try {tries}.")
        if last.late or last.fate in RETRIED:
            bound = BASE_S * 2 ** len(self.shares)
            left = self.deadline - self.clock.now
            refuse_if(bound < left, f"it gave up after try {tries}, {left:.4g} s before its deadline.")
        refuse_if(given != self.frames, "it changed the list of frames.")
        left_open = sum(channel.open for channel in self.made)
        refuse_if(left_open, f"it left {left_open} channels open. Use with.")
        again = any(channel.calls > 1 for channel in self.made)
        refuse_if(again, "it called again over a broken channel. Make a fresh channel for each try.")
        waits = len(self.shares)
        refuse_if(waits != tries - 1, f"it waited {waits} times, expected {tries - 1}: before each further try.")
        return self.shares


BREAKS = (ConnectionError, ConnectionResetError, ConnectionRefusedError, BrokenPipeError, ConnectionAbortedError)
"""The errors of a connection that breaks."""
RETRIED = ("refused", "cut", "lost", "silent")
"""The fates of a channel that are worth another try: an error of ``connect``, of ``call`` or of the future, or no
answer at all.
"""
ANSWERED = ("answer", "slow")
ENDS = (*ANSWERED, "error", "forbidden", *RETRIED)


class _Time:
    """Stands for the module time."""

    def __init__(self, tries: "_Tries", now: float) -> None:
        self.tries, self.now = tries, now

    def monotonic(self) -> float:
        return self.now

    time = perf_counter = monotonic

    def sleep(self, seconds: float) -> None:
        self.tries.sleep(seconds)


class _Fated(Channel):
    """A channel that ends as its ``fate`` says, after so many seconds."""

    def __init__(self, tries: _Tries, fate: str, broken: ConnectionError, took: float) -> None:
        self.tries, self.fate, self.broken, self.took = tries, fate, broken, took
        self.error: Exception | None = None
        """What it raised, or `LookupError` if it answered; None while nobody has asked."""
        self.late, self.calls, self.open = False, 0, False

    def ends(self, error: Exception) -> Exception:
        self.error = error
        return error

    def opened(self) -> Channel:
        if self.fate in ("refused", "forbidden"):
            self.tries.clock.now += self.took
            raise self.ends(self.broken if self.fate == "refused" else PermissionError("a wrong token"))
        self.open = True
        return self

    def call(self, frames: Frames) -> "Future[Frames]":
        self.calls += 1
        refuse_if(not self.open, "it called over a channel that is closed.")
        wanted = self.tries.frames
        refuse_if([*frames] != wanted, f"it sent {frames!r}, expected {wanted!r}.")
        if self.fate == "cut":
            raise self.ends(self.broken)
        return _Patient(self)

    def close(self) -> None:
        self.open = False


class _Patient(Future[Frames]):
    """A future whose answer comes, or does not come, at virtual times."""

    def __init__(self, channel: _Fated) -> None:
        super().__init__()
        self.channel = channel

    def result(self, timeout: float | None = None) -> Frames:
        channel, clock = self.channel, self.channel.tries.clock
        patient = channel.tries.waits(timeout)
        refuse_if(not channel.open, "it asks for an answer after it has closed the channel.")
        comes = channel.took * (5 if channel.fate == "slow" else 1)
        if channel.fate == "silent" or comes > patient:
            clock.now += patient
            channel.late = True
            raise channel.ends(TimeoutError("no answer came in time"))
        clock.now += comes
        if channel.fate == "lost":
            raise channel.ends(channel.broken)
        if channel.fate == "error":
            raise channel.ends(ZeroDivisionError("the handler's own error"))
        channel.ends(LookupError("it answered"))
        return channel.tries.answer.copy()


MANY, TIMES, MOST_BYTES = 2500, 4, 300
"""After so many calls of each caller a counter's memory is measured, so often, and by so much it may grow each time."""


@asks(
    "survive.2",
    "Before it adds, the counter must know the number of this caller's last call, and the answer to that call.",
    "A dictionary with one entry for each caller is enough: each new call replaces the caller's last one.",
    "A number may be above the last one, equal to it, or below it. For a caller that is not in the dictionary yet, "
    "you could use a last number that is below all others.",
    beside=True,
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
