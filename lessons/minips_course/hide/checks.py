"""The exercises of "Hide the latency"."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np

from minips.lab.course.exercises import Refused, asks, case, refuse_if
from minips.stage import Array, Frames
from minips.stages.transports import Channel


class _Taken(Future[Any]):
    """A future that reports when its result is asked for, and then has it."""

    def __init__(self, outcome: Any, taken: Callable[[], None]) -> None:
        super().__init__()
        self._outcome, self._taken = outcome, taken

    def end(self) -> None:
        """Let the call end; its result may be taken later."""
        if self.done():
            return
        if isinstance(self._outcome, Exception):
            self.set_exception(self._outcome)
        else:
            self.set_result(self._outcome)

    def result(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise Refused("it waits for an answer without a time-out. A server may never answer.")
        refuse_if(timeout < 1, f"it waits for an answer for {timeout} s. A server may take longer.")
        self._taken()
        self.end()
        return super().result(timeout)


@asks(
    "hide.3",
    "Keep the futures of the calls that are under way in a collections.deque, in the order of the messages.",
    "Go through the messages. If `most` futures are in the deque, there is no place for a call: first take the oldest "
    "one, popleft(), and yield its result.",
    "After the last message some futures are still in the deque. A while loop yields their results. An error needs no "
    "code of yours: result raises it.",
)
def window(function: Any, rng: np.random.Generator) -> str:
    """Make answers keep `most` calls under way, and yield the answers in the order of their messages."""
    refuse_if(not callable(function), f"Expected the function answers, got {function!r}.")
    for turn in range(80):
        most, count = int(rng.integers(1, 10)), None if turn % 5 == 0 else int(rng.integers(0, 30))
        ends = 40 if count is None else count
        failing = set(rng.integers(0, ends, size=2).tolist()) if turn % 3 == 0 and ends else set()
        told = f"most={most}, {'endless' if count is None else count} messages"
        with case(f"With {told}{f', call {min(failing)} of which fails' if failing else ''}:"):
            pair = [_Window(most, count, failing, rng) for _ in range(1 + turn % 2)]
            for one in pair:
                one.start(function)
            while any([one.step() for one in pair if not one.over]):
                pass
    return "Order, errors and endless messages are right, and as many calls are under way as may be."


class _Window(Channel):
    """A channel to a server whose answers come in any order, and the messages for it."""

    def __init__(self, most: int, count: int | None, failing: set[int], rng: np.random.Generator) -> None:
        self.most, self.count, self.rng, self.over = most, count, rng, False
        self.drawn = self.taken = self.received = 0
        self.futures: list[_Taken] = []
        self.outcomes: list[Any] = []
        self.failing = failing

    def messages(self) -> Iterator[Frames]:
        while self.count is None or self.drawn < self.count:
            ahead = self.drawn - len(self.futures)
            refuse_if(ahead > 0, f"it has drawn {self.drawn + 1} messages, and made {len(self.futures)} calls.")
            self.drawn += 1
            yield self._message(self.drawn - 1)

    def _message(self, number: int) -> Frames:
        return [b"message", b"%d" % number]

    def call(self, frames: Frames) -> "Future[Frames]":
        number = len(self.futures)
        refuse_if(number >= self.drawn, f"it made {number + 1} calls for {self.drawn} messages.")
        refuse_if([*frames] != self._message(number), f"call {number} carries {frames!r}.")
        under_way = number + 1 - self.taken
        refuse_if(under_way > self.most, f"{under_way} calls are under way. Take an answer first.")
        outcome: Any = [self.rng.bytes(3) for _ in range(int(self.rng.integers(3)))]  # it may be empty
        if number in self.failing:
            outcome = (ValueError, ConnectionError, KeyError)[number % 3](f"call {number}")
        self.outcomes.append(outcome)
        self.futures.append(_Taken(outcome, lambda: self._take(number)))
        for one in self.rng.permutation(len(self.futures))[:1].tolist():
            self.futures[one].end()
        return self.futures[-1]

    def _take(self, number: int) -> None:
        if number < self.taken:
            return
        refuse_if(number > self.taken, f"it takes answer {number} before answer {self.taken}.")
        early = "it takes a second answer before it has yielded the first. Yield each answer at once."
        refuse_if(self.taken > self.received, early)
        left = self.most if self.count is None else min(self.most, self.count - self.taken)
        under_way = len(self.futures) - self.taken
        refuse_if(under_way < left, f"it takes answer {number} with {under_way} calls under way, not {left}.")
        self.taken += 1

    def start(self, function: Callable[..., Any]) -> None:
        self.got = iter(function(self, self.messages(), self.most))

    def step(self) -> bool:
        """Take the next answer; return False after the last one."""
        number = self.received
        answer: Any = None
        error: Exception | None = None
        try:
            answer = next(self.got)
        except StopIteration:
            self.over = True
        except Refused:
            raise
        except Exception as raised:
            self.over, error = True, raised
        if self.count == number:
            told = f"yielded {answer!r}" if error is None else f"raised {error!r}"
            refuse_if(not self.over or error, f"it {told} after the last answer.")
            refuse_if(len(self.futures) != self.count, f"it made {len(self.futures)} calls, expected {self.count}.")
            return False
        refuse_if(self.over and error is None, f"it ended after {number} answers.")
        refuse_if(number >= len(self.outcomes), f"it ended with {error!r} before call {number} was made.")
        wanted, fails = self.outcomes[number], isinstance(self.outcomes[number], Exception)
        same = error is wanted if fails else error is None and answer == wanted
        told = f"answer {number} was {answer!r}" if error is None else f"call {number} raised {error!r}"
        refuse_if(not same, f"{told}, expected {f'to raise {wanted!r}' if fails else repr(wanted)}.")
        self.received += 1
        self.over = self.over or (self.count is None and self.received == 40)
        return not self.over

    def close(self) -> None:
        """There is nothing to close."""


@asks(
    "hide.4",
    "Keep the future of the push that is under way in a variable. Before the first push there is none: None.",
    "In each step, first compute the gradient from the parameters that you have. Then take the answer to the push that "
    "is under way: these parameters are for the next step's gradient. Then push.",
    "After the loop one push is still under way. Its answer is the result; if there was no step, the first parameters "
    "are.",
)
def overlapped(function: Any, rng: np.random.Generator) -> str:
    """Make train compute a gradient while the push before it is under way."""
    refuse_if(not callable(function), f"Expected the function train, got {function!r}.")
    for count in (0, 1, 2, 3, *rng.integers(4, 20, size=12).tolist()):
        with case(f"With steps={count}:"):
            _Steps(count, None, rng).make(function)
    for count in rng.integers(2, 12, size=6).tolist():
        bad = int(rng.integers(count))
        with case(f"With steps={count} and an error as answer to push {bad}:"):
            _Steps(count, bad, rng).make(function)
    return "Each gradient is computed while the push before it is under way, and one version old at most."


class _Steps:
    """A server and a gradient that note what a loop does."""

    def __init__(self, count: int, bad: int | None, rng: np.random.Generator) -> None:
        self.count, self.bad, self.rng = count, bad, rng
        self.versions: list[Array] = [rng.normal(size=4)]
        self.gradients: list[Array] = []
        self.pushed = self.taken = 0
        self.error = ConnectionError("the server is gone")

    def gradient(self, params: Array) -> Array:
        number = len(self.gradients)
        refuse_if(number >= self.count, f"it computes gradient {number}; the last one is {self.count - 1}.")
        refuse_if(self.pushed != number, f"it computes gradient {number} after {self.pushed} pushes, not {number}.")
        wanted = max(number - 1, 0)
        early = f"push {number - 1} is not under way while it computes gradient {number}: its answer has been taken."
        refuse_if(self.taken > wanted, early)
        names = {0: "the first parameters"} | {at: f"the answer to push {at - 1}" for at in range(1, number + 1)}
        same = isinstance(params, np.ndarray) and np.array_equal(params, self.versions[wanted])
        refuse_if(not same, f"gradient {number} is not of {names[wanted]}.")
        self.gradients.append(self.rng.normal(size=4))
        return self.gradients[-1].copy()

    def ask(self, gradients: Array) -> "Future[Array]":
        number, under_way = self.pushed, self.pushed - self.taken
        refuse_if(number >= len(self.gradients), f"it pushes {number + 1} times after {len(self.gradients)} gradients.")
        refuse_if(not np.array_equal(gradients, self.gradients[number]), f"push {number} is not gradient {number}.")
        refuse_if(under_way, f"push {number} begins while another push is under way.")
        self.pushed += 1
        self.versions.append(self.versions[-1] - gradients)
        future = _Taken(self.error if number == self.bad else self.versions[-1].copy(), lambda: self._take(number))
        if self.rng.random() < 0.5:
            future.end()
        return future

    def _take(self, number: int) -> None:
        self.taken = max(self.taken, number + 1)

    def make(self, function: Callable[..., Any]) -> None:
        first = self.versions[0].copy()
        try:
            got: Any = function(self.ask, self.gradient, first, self.count)
        except ConnectionError as error:
            got = error
        if self.bad is not None:
            refuse_if(got is not self.error, f"it returned {got!r}, and not the push's {type(self.error).__name__}.")
            return
        refuse_if(self.pushed != self.count, f"it made {self.pushed} pushes, expected {self.count}.")
        last = f"the answer to push {self.count - 1}" if self.count else "the first parameters"
        same = isinstance(got, np.ndarray) and np.array_equal(got, self.versions[-1])
        refuse_if(not same, f"it returned {got!r}, expected {last}.")
        refuse_if(not np.array_equal(first, self.versions[0]), "it changed the first parameters in place.")
