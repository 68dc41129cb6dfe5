"""The exercises of the lessons: what each one asks, how an answer is checked, and hints in steps.

A check tries an answer on inputs that it draws anew each time, so that nothing passes by accident. It raises `Refused`
with what failed and, by `case`, on which input; `check` turns that into a `Verdict`, and never stops a notebook. A
check that does not end is stopped after `LIMIT_S`.
"""

import html
import linecache
import math
import os
import signal
import sys
import sysconfig
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NamedTuple

import numpy as np

import minips as ps
from minips.lab.course import state
from minips.lab.course.courses import folders, installed
from minips.lab.course.questions import find
from minips.stage import Array, Tensors
from minips.testing import check as check_contract
from minips.testing.base import described, same_bits

LIMIT_S = 20.0
"""How long a check may take. Those of the lessons take a few seconds."""
PACKAGE = Path(__file__).parents[2]
"""The folder of minips."""


class Refused(Exception):  # noqa: N818, it is the outcome of a check and not an error
    """An answer's failure, with the input on which it failed."""


class Exercise(NamedTuple):
    """A task, the check of its answers, and its hints in the order in which they are given."""

    key: str
    task: str
    hints: tuple[str, ...]
    test: Callable[[Any], str]


Test = Callable[[Any, np.random.Generator], str]
"""Checks an answer on inputs drawn from the generator, and returns the words for a good one."""

EXERCISES: dict[str, Exercise] = {}
_hinted: dict[str, int] = {}


class Verdict:
    """The result of a check. True if the exercise is done."""

    def __init__(self, key: str, passed: bool, words: str) -> None:
        self.key, self.passed, self.words = key, passed, words

    def __bool__(self) -> bool:
        return self.passed

    def __repr__(self) -> str:
        return f"✓ {self.key} is done. {self.words}" if self.passed else f"✗ {self.key}: not yet. {self.words}"

    def _repr_html_(self) -> str:
        first, *rest = map(html.escape, repr(self).split("\n"))
        style = "max-width:70em;line-height:1.4;overflow-wrap:anywhere"
        return f"<div role='status' style='{style}'><b>{first}</b><br>{'<br>'.join(rest)}</div>"


VERDICTS: dict[str, Verdict] = {}
"""The last verdict on each exercise in this process."""


def check(key: str, thing: Any) -> Verdict:
    """Try ``thing`` as an answer to an exercise: what failed and on which input, and a hint, or that it is done."""
    asked = exercise(key)
    VERDICTS[asked.key] = verdict = _verdict(asked, thing)
    return verdict


def _verdict(asked: Exercise, thing: Any) -> Verdict:
    try:
        with limited():
            words = asked.test(thing)
        return done(asked.key, words)
    except Refused as refusal:
        words = str(refusal)
    except TooLong as error:
        words = f"{error}{_place(error.__traceback__)}"
    except KeyboardInterrupt as interrupt:
        said = f"{asked.key}: the check was interrupted."
        interrupt.args = (said,)
        vars(interrupt)["_render_traceback_"] = lambda: [said]  # what a notebook shows instead of a traceback
        raise
    except Exception as error:
        words = _stopped(error)
    return Verdict(asked.key, False, f'{words}\nA hint: lab.hint("{asked.key}")')


def done(key: str, words: str) -> Verdict:
    """A pass, which is noted."""
    return Verdict(key, True, "\n".join(filter(None, [words, state.note("exercise", key)])))


class TooLong(BaseException):
    """A time-out that passes an answer's own ``except Exception``."""


@contextmanager
def limited() -> Iterator[None]:
    """Raise `TooLong` in the main thread after `LIMIT_S`, if the system has such an alarm."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise TooLong(f"It was stopped after {LIMIT_S:g} seconds. Does a loop never end?")

    before, began = signal.signal(signal.SIGALRM, ring), time.monotonic()
    left, interval = signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, max(left - time.monotonic() + began, 0.001) if left else 0.0, interval)
        signal.signal(signal.SIGALRM, before)


def _stopped(error: Exception) -> str:
    return f"It stopped with {type(error).__name__}: {error}{_place(error.__traceback__)}"


def _place(trace: TracebackType | None) -> str:
    """The last line of the learner's own code on the way to an error, in words."""
    others = (*_ours(), *sysconfig.get_paths().values(), "<frozen")
    for frame in reversed(traceback.extract_tb(trace)):
        if not frame.filename.startswith(others):
            line = frame.line or linecache.getline(frame.filename, frame.lineno or 0).strip()
            return f"\nIn {frame.name}, line {frame.lineno} of your cell: {line}" if line else ""
    return ""


def _ours() -> tuple[str, ...]:
    """The folders of minips and of the courses, each with a separator at its end."""
    return tuple(f"{folder}{os.sep}" for folder in (PACKAGE, *folders()))


def hint(key: str) -> None:
    """Print the next hint of an exercise; after the last one, the first again."""
    asked = exercise(key)
    turn = _hinted.get(asked.key, 0) % len(asked.hints)
    _hinted[asked.key] = turn + 1
    print(f"Hint {turn + 1} of {len(asked.hints)} for {asked.key}: {asked.hints[turn]}")


def exercise(key: str) -> Exercise:
    """The exercise of this key. ValueError names the known ones and the nearest."""
    return find("exercise", EXERCISES, key)


def asks(key: str, *hints: str) -> Callable[[Test], Test]:
    """Decorator: the function that follows checks the answers to exercise ``key``; its docstring is the task."""

    def add(test: Test) -> Test:
        EXERCISES[key] = Exercise(key, test.__doc__ or "", hints, lambda thing: test(thing, np.random.default_rng()))
        return test

    return add


def refuse_if(failed: Any, words: str) -> None:
    """Refuse with these words if ``failed``."""
    if failed:
        raise Refused(words)


@contextmanager
def case(what: str) -> Iterator[None]:
    """One input: a refusal within begins with ``what``, and an error within becomes a refusal that names it as well."""
    try:
        yield
    except Refused as refusal:
        raise Refused(f"{what} {refusal}") from None
    except Exception as error:
        raise Refused(f"{_stopped(error)}\n{what.rstrip(':,.')}.") from None


@contextmanager
def raising(kind: type[Exception]) -> Iterator[None]:
    """Refuse a block that raises nothing, or an error of another ``kind``."""
    try:
        yield
    except kind:
        return
    except Exception as error:
        raise Refused(f"expected a {kind.__name__}, got {type(error).__name__}: {error}") from None
    raise Refused(f"expected a {kind.__name__}, and nothing was raised.")


def number(got: Any) -> float:
    """An answer's value as a float; Refused if it is not a single number."""
    if not isinstance(got, int | float | np.number | np.ndarray) or np.ndim(got):
        raise Refused(f"it returned {got!r}; expected a number.")
    return float(got)


def equals(got: Any, wanted: float, unit: str = "") -> None:
    """Refuse an answer other than the number ``wanted``, but for rounding."""
    near = math.isclose(number(got), wanted, rel_tol=1e-9)
    refuse_if(not near, f"it returned {float(got):.9g}{unit}, expected {wanted:.9g}{unit}.")


def distance(got: Tensors, wanted: Tensors) -> float:
    """The largest difference of two values; NaN if there is one."""
    return float(np.max([np.abs(got[name] - x).max() for name, x in wanted.items()]))


def unaided(function: Any, *arguments: float) -> Any:
    """The function's result; Refused if it calls a function of minips, by whatever name."""
    ours = _ours()

    def called(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(ours):
            raise Refused(f"it calls minips' own {frame.f_code.co_name}. Write the arithmetic yourself.")

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        return function(*arguments)
    finally:
        sys.setprofile(before)


def are_two(pair: Any, first: str, second: str) -> None:
    """Refuse a ``pair`` that is not two functions."""
    if not (isinstance(pair, tuple) and len(pair) == 2 and all(map(callable, pair))):
        raise Refused(f"Expected the pair ({first}, {second}), got {pair!r}.")


def round_trip(pair: Any, name: str, array: Array) -> int:
    """The number of bytes that ``pair[0]``, called ``name``, makes from an array; ``pair[1]`` must turn them back."""
    before = array.copy()
    data = pair[0](array)
    refuse_if(not isinstance(data, bytes | bytearray), f"{name} returned a {type(data).__name__}, not bytes.")
    got = pair[1](bytes(data))
    refuse_if(not same_bits(array, before), f"{name} changed the array.")
    refuse_if(not isinstance(got, np.ndarray), f"un{name} returned a {type(got).__name__}, not an array.")
    refuse_if(not same_bits(got, array), f"it came back as {described(got)}, not the same to the bit.")
    return len(data)


def is_own(thing: Any, kind: type[ps.Stage], example: str) -> None:
    """Refuse a ``thing`` that is not a stage of this kind, or is one of minips' own."""
    refuse_if(not isinstance(thing, kind), f"Expected an instance of your class, such as {example}, got {thing!r}.")
    ours = tuple(f"{package}." for package in ("minips", *installed()))
    refuse_if(type(thing).__module__.startswith(ours), f"{thing!r} is minips' own. Write yours.")


def keeps(contract: Callable[..., None], thing: Any, **options: Any) -> None:
    """Refuse a ``thing`` that breaks a contract of `minips.testing`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # values that a contract cannot compare: an exercise does
            contract(thing, **options)
    except AssertionError as error:
        raise Refused(str(error)) from None


def conforms(thing: Any, kind: type[ps.Stage], example: str) -> None:
    """Refuse a ``thing`` that is not a stage of this kind, is one of minips' own, or breaks its kind's contract."""
    is_own(thing, kind, example)
    keeps(check_contract, thing)


def trains(codec: ps.Codec, rng: np.random.Generator) -> None:
    """Refuse a ``codec`` with which two spawned workers end with other parameters than with the default one."""
    problem, seed = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=120, features=6, classes=3)), drawn_seed(rng)
    run = ps.train(problem, ps.Config(workers=2, steps=5, seed=seed, push=codec, pull=codec), engine=ps.Processes())
    wanted = ps.train(problem, ps.Config(workers=2, steps=5, seed=seed), engine=ps.Threads())
    alike = all(same_bits(run.params[name], p) for name, p in wanted.params.items())
    refuse_if(not alike, f"Two spawned workers ended with other parameters than with the default codec, seed {seed}.")


def drawn_seed(rng: np.random.Generator) -> int:
    """A seed for a run."""
    return int(rng.integers(1, 2**31))
