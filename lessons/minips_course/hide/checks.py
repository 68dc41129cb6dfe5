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
    shares: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(120):
        failing = rng.choice(["refused", "cut", "lost"], size=int(rng.integers(0, 5))).tolist()
        fates = [*failing, ("answer", "error", "lost")[turn % 3]]
        attempts = int(rng.integers(1, len(fates) + (1 if fates[-1] == "lost" else 2)))
        with case(f"With attempts={attempts} and channels that end with {', '.join(fates[:attempts])}"):
            for number, share in enumerate(_breaks(function, fates, attempts, rng)):
                shares[number == 0].append(share)
    for which, found in (("the second try", shares[True]), ("later tries", shares[False])):
        ranged = f"the waits before {which} ranged from {min(found):.0%} to {max(found):.0%} of their bounds"
        wrong = f"In {len(found)} draws, {ranged}; they should range from 0% to 100%."
        refuse_if(min(found) > 0.4 or max(found) < 0.6, wrong)
    return "Right for 120 random failures: fresh channels, random waits, no needless tries, and every channel closed."


def _breaks(function: Callable[..., Any], fates: list[str], attempts: int, rng: np.random.Generator) -> list[float]:
    """Make one call over successive channels that end as ``fates`` says; return each wait divided by its bound."""
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
        refuse_if(any(channel.open for channel in made), f"{waited} while a channel was open.")
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
    refuse_if(another, f"it raised the ConnectionError of {got}, expected the one of attempt {tries}.")
    left_open = sum(channel.open for channel in made)
    refuse_if(left_open, f"it left {left_open} channels open. Use with.")
    again = any(channel.calls > 1 for channel in made)
    refuse_if(again, "it called again over a broken channel. Make a fresh channel for each try.")
    refuse_if(
        len(shares) != tries - 1, f"it waited {len(shares)} times, expected {tries - 1}: before each further try."
    )
    return shares


class _Fated(Channel):
    """A channel that ends as its ``fate`` says."""

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
    "Before it adds, the counter must know the number of this caller's last call, and the answer to that call.",
    "A dictionary with one entry for each caller is enough: each new call replaces the caller's last one.",
    "A number may be above the last one, equal to it, or below it. For a caller that is not in the dictionary yet, "
    "you could use a last number that is below all others.",
)
def count_once(cls: Any, rng: np.random.Generator) -> str:
    """Make the counter count a repeated call only once, and return the same answer again."""
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
    """Refuse a counter if this call gets a different answer, or leaves a different total."""
    got = counter.add(*call)
    refuse_if(counter.total != total, f"the total became {counter.total}, expected {total}.")
    refuse_if(got != answer, f"it was answered with {got!r}, expected {answer}.")


def _forgets(counter: Any) -> None:
    """Refuse a counter whose memory grows with the number of calls from one caller."""
    sizes = []
    for number in range(1000):
        counter.add("Caller 0", number, 1)
        if number in (99, 999):
            sizes.append(len(pickle.dumps(vars(counter))))
    grown = f"after 100 calls of one caller the counter holds {sizes[0]} bytes, after 1000 calls {sizes[1]}. "
    asked = "Which calls may still be retried, and so need to be remembered?"
    refuse_if(sizes[1] - sizes[0] > MOST_BYTES, grown + asked)
