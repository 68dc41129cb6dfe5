"""The exercises of the lessons: what each one asks, how an answer is checked, and hints in steps.

A check tries an answer on inputs that are drawn anew each time, so that nothing passes by accident. It raises `Refused`
with what failed and on which input; `check` makes a `Verdict` of that, and never stops a notebook. An answer that does
not come to its end is stopped after `LIMIT_S`.
"""

import html
import linecache
import signal
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NamedTuple

import numpy as np

from minips.lab import state
from minips.stage import Stage, nearest
from minips.testing import check as check_contract

LIMIT_S = 60.0
"""How long a check may take. Those of the lessons take a few seconds."""
OURS = (str(Path(__file__).parents[2]), *sysconfig.get_paths().values())
"""Where code lies that no learner wrote."""


class Refused(Exception):  # noqa: N818, it is the outcome of a check and not an error
    """What failed, and on which input."""


class Exercise(NamedTuple):
    """What is asked, how an answer is checked, and the hints in the order in which they are given."""

    key: str
    task: str
    hints: tuple[str, ...]
    test: Callable[[Any], str]


EXERCISES: dict[str, Exercise] = {}
_hinted: dict[str, int] = {}


class Verdict:
    """What a check found. True where the exercise is done."""

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
        with _limited():
            words = asked.test(thing)
        return Verdict(asked.key, True, "\n".join(filter(None, [words, state.note(exercise=asked.key)])))
    except Refused as refusal:
        words = str(refusal)
    except _TooLong as error:
        words = f"It was stopped after {LIMIT_S:g} seconds. Does a loop never end?{_place(error.__traceback__)}"
    except KeyboardInterrupt as interrupt:
        said = f"{asked.key}: the check was interrupted."
        interrupt.args = (said,)
        vars(interrupt)["_render_traceback_"] = lambda: [said]  # what a notebook shows instead of a traceback
        raise
    except Exception as error:
        words = f"It stopped with {type(error).__name__}: {error}{_place(error.__traceback__)}"
    return Verdict(asked.key, False, f'{words}\nA hint: lab.hint("{asked.key}")')


class _TooLong(BaseException):
    """Past an answer's own ``except Exception``."""


@contextmanager
def _limited() -> Iterator[None]:
    """Raise `_TooLong` in the main thread after `LIMIT_S`, where the system has such an alarm."""
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        raise _TooLong

    before, began = signal.signal(signal.SIGALRM, ring), time.monotonic()
    left, interval = signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, max(left - time.monotonic() + began, 0.001) if left else 0.0, interval)
        signal.signal(signal.SIGALRM, before)


def _place(trace: TracebackType | None) -> str:
    """The last line of the learner's own code on the way to an error, in words."""
    for frame in reversed(traceback.extract_tb(trace)):
        if not (frame.filename.startswith(OURS) or frame.filename.startswith("<frozen")):
            line = frame.line or linecache.getline(frame.filename, frame.lineno or 0).strip()
            return f"\nIn {frame.name}, line {frame.lineno} of your cell: {line}" if line else ""
    return ""


def hint(key: str) -> None:
    """Print the next hint of an exercise; after the last one, the first again."""
    asked = exercise(key)
    turn = _hinted.get(asked.key, 0) % len(asked.hints)
    _hinted[asked.key] = turn + 1
    print(f"Hint {turn + 1} of {len(asked.hints)} for {asked.key}: {asked.hints[turn]}")


def exercise(key: str) -> Exercise:
    """The exercise of this key. ValueError names the known ones and the nearest."""
    full = full_key(key)
    if full not in EXERCISES:
        raise ValueError(f"There is no exercise {key!r}. {nearest(full, EXERCISES)}")
    return EXERCISES[full]


def full_key(key: Any) -> str:
    """The key with the lesson's number in two digits.

    >>> full_key("5.2")
    '05.2'
    """
    lesson, dot, number = str(key).partition(".")
    return f"{lesson:0>2}{dot}{number}"


def asks(key: str, task: str, *hints: str) -> Callable[[Callable[[Any], str]], Callable[[Any], str]]:
    """Decorator: the function that follows checks the answers to exercise ``key``. It returns what to say of a good
    one.
    """

    def add(test: Callable[[Any], str]) -> Callable[[Any], str]:
        EXERCISES[key] = Exercise(key, task, hints, test)
        return test

    return add


def refuse_if(failed: Any, words: str) -> None:
    """Refused, with these words, where ``failed``."""
    if failed:
        raise Refused(words)


def conforms(thing: Any, kind: type[Stage], example: str) -> None:
    """Refused where ``thing`` is no stage of this kind, is one of minips' own, or breaks the contract of its kind."""
    refuse_if(not isinstance(thing, kind), f"Expected an instance of your class, such as {example}, got {thing!r}.")
    refuse_if(type(thing).__module__.startswith("minips."), f"{thing!r} is minips' own. Write yours.")
    try:
        check_contract(thing)
    except AssertionError as error:
        raise Refused(str(error)) from None


def fresh_seed() -> int:
    """A seed that cannot be known in advance."""
    return int(np.random.default_rng().integers(1, 2**31))
