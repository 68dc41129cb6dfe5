"""The exercises of "Hide and survive"."""

import pickle
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np

from minips.lab.course.exercises import asks, case, raising, refuse_if
from minips.stage import Frames
from minips.stages.transports import Channel

BASE_S = 0.4


@asks(
    "hide.1",
    "Write a loop over range(attempts), with try and except ConnectionError in it. Return on success.",
    "On the last attempt let the error through: a bare raise within except does that. After any other, wait: when the "
    "with has ended, its channel is closed.",
    "A for with a try in it: the try holds the with and a return, the except decides whether this was the last "
    "attempt. Last in the loop comes sleep(rng.uniform(0, bound)); what is the bound for attempt 0, 1, 2?",
)
def call_again(function: Any, rng: np.random.Generator) -> str:
    """Make call_again try again after a ConnectionError, with a fresh channel and after a random wait whose bound
    doubles, at most `attempts` times in all.
    """
    refuse_if(not callable(function), f"Expected the function call_again, got {function!r}.")
    shares: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(120):
        failing = rng.choice(["refused", "cut", "lost"], size=int(rng.integers(0, 5))).tolist()
        fates = [*failing, ("answer", "error", "lost")[turn % 3]]
        attempts = int(rng.integers(1, len(fates) + (1 if fates[-1] == "lost" else 2)))
        with case(f"With attempts={attempts} and channels that end with {', '.join(fates[:attempts])}"):
            for number, share in enumerate(_breaks(function, fates, attempts, rng)):
                shares[number == 0].append(share)
    for which, found in (("the second try", shares[True]), ("later tries", shares[False])):
        within = f"the waits before {which} were {min(found):.0%} to {max(found):.0%} of their bounds"
        refuse_if(min(found) > 0.4 or max(found) < 0.6, f"Of {len(found)} draws {within}; 0 to 100% is asked for.")
    return "Right for 120 random mishaps: fresh channels, random waits, no try too many, and every channel closed."


def _breaks(function: Callable[..., Any], fates: list[str], attempts: int, rng: np.random.Generator) -> list[float]:
    """One call whose channels break as the fates say, one after the other; the waits, as shares of their bounds."""
    made: list[_Fated] = []
    shares: list[float] = []

    def connect() -> Channel:
        fate = fates[len(made)] if len(made) < len(fates) else "answer"
        refuse_if(len(shares) < len(made), f"it tried again without a wait, after try {len(made)}.")
        made.append(_Fated(fate, ConnectionError(f"attempt {len(made) + 1}")))
        return made[-1].opened()

    def sleep(seconds: float) -> None:
        bound = BASE_S * 2 ** len(shares)
        waited = f"wait {len(shares) + 1} was {seconds:.3f} s"
        refuse_if(not 0 <= seconds <= bound, f"{waited}, expected 0 to {bound:g} s.")
        refuse_if(any(channel.open for channel in made), f"{waited}, and a channel was open meanwhile.")
        shares.append(seconds / bound)
        refuse_if(len(shares) > len(made), f"it waited {len(shares)} times for {len(made)} tries.")

    try:
        got: Any = function(connect, [b"frame"], attempts, sleep, rng)
    except (ConnectionError, TimeoutError) as error:
        got = error
    tries = min(attempts, len(fates))
    refuse_if(len(made) != tries, f"it tried {len(made)} times, expected {tries}.")
    wanted = {"answer": "the answer", "error": "TimeoutError"}.get(fates[tries - 1], "ConnectionError")
    came = "the answer" if got == [b"answer"] else type(got).__name__
    refuse_if(came != wanted, f"it ended with {came}, expected {wanted}.")
    another = isinstance(got, ConnectionError) and str(got) != f"attempt {tries}"
    refuse_if(another, f"the ConnectionError of {got} came out, expected that of attempt {tries}.")
    left_open = sum(channel.open for channel in made)
    refuse_if(left_open, f"it left {left_open} channels open. Use with.")
    again = any(channel.calls > 1 for channel in made)
    refuse_if(again, "it called again over a channel that had broken. Make a fresh one.")
    refuse_if(
        len(shares) != tries - 1, f"it waited {len(shares)} times, expected {tries - 1}: before each further try."
    )
    return shares


class _Fated(Channel):
    """A channel that ends as it is fated to."""

    def __init__(self, fate: str, error: ConnectionError) -> None:
        self.fate, self.error, self.calls, self.open = fate, error, 0, False

    def opened(self) -> Channel:
        if self.fate == "refused":
            raise self.error
        self.open = True
        return self

    def call(self, frames: Frames) -> "Future[Frames]":
        self.calls += 1
        if self.fate == "cut":
            raise self.error
        future: Future[Frames] = Future()
        if self.fate == "answer":
            future.set_result([b"answer"])
        else:
            future.set_exception(self.error if self.fate == "lost" else TimeoutError("the handler's own error"))
        return future

    def close(self) -> None:
        self.open = False


CALLERS, MOST_BYTES = 5, 200


@asks(
    "hide.2",
    "Before it adds, the counter has to know the last number of this caller, and its answer.",
    "A dictionary with one entry for each caller is enough: a new number takes the place of the one before it.",
    "There are three cases: a number above the last one, the last one itself, one below. For a caller that is not in "
    "the dictionary, assume a number below all others.",
)
def count_once(cls: Any, rng: np.random.Generator) -> str:
    """Make the counter count a repeated call once, and give it the same answer again."""
    lacks = not isinstance(cls, type) or not callable(getattr(cls, "add", None))
    refuse_if(lacks, f"Expected your class Counter with the method add, got {cls!r}.")
    for _ in range(20):
        counter: Any = cls()
        total, numbers = 0, [-1] * CALLERS
        last: list[tuple[Any, ...]] = [()] * CALLERS
        for _ in range(int(rng.integers(5, 60))):
            caller = int(rng.integers(CALLERS))
            name, deed = f"Caller {caller}", rng.random()
            if deed < 0.3 and last[caller]:
                number, amount, answer = last[caller]
                with case(f"{name} has repeated its call {number}:"):
                    _answers(counter, (name, number, amount), answer, total)
            elif deed < 0.4 and numbers[caller] > 0:
                number = int(rng.integers(numbers[caller]))
                late = f"{name} has called with number {numbers[caller]}. A copy of its call {number} comes late:"
                with case(late), raising(ValueError):
                    counter.add(name, number, 3)
                refuse_if(counter.total != total, f"{late} the total became {counter.total}, expected {total}.")
            else:
                numbers[caller] += 1
                amount = int(rng.integers(0, 10))
                total += amount
                last[caller] = (numbers[caller], amount, total)
                with case(f"Call {numbers[caller]} of {name}, a new one:"):
                    _answers(counter, (name, numbers[caller], amount), total, total)
    _forgets(cls())
    return "New calls count, repeated ones are answered again, late copies are refused, and the memory stays small."


def _answers(counter: Any, call: tuple[str, int, int], answer: int, total: int) -> None:
    """Refuse a call with another answer than this, or with another total after it."""
    got = counter.add(*call)
    refuse_if(counter.total != total, f"the total became {counter.total}, expected {total}.")
    refuse_if(got != answer, f"it was answered with {got!r}, expected {answer}.")


def _forgets(counter: Any) -> None:
    """Refuse a memory that grows with the calls of one caller."""
    sizes = []
    for number in range(1000):
        counter.add("Caller 0", number, 1)
        if number in (99, 999):
            sizes.append(len(pickle.dumps(vars(counter))))
    grown = f"after 100 calls of one caller the counter holds {sizes[0]} bytes, after 1000 calls {sizes[1]}"
    refuse_if(sizes[1] - sizes[0] > MOST_BYTES, f"{grown}. Which calls can still be repeated?")
