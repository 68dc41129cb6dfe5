"""The exercises of the lessons: each has a task, a check of the answers, and several hints.

A check tries an answer on newly drawn inputs, so that a wrong answer does not pass by accident. It raises `Refused`
with the failure and, inside `case`, the input. `check` turns this into a `Verdict`, and never stops a notebook. A check
that does not end is stopped after `LIMIT_S`. A check that uses a name that does not exist says that itself failed.
"""

import dataclasses
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
from types import FrameType, ModuleType
from typing import Any, NamedTuple

import numpy as np

import minips as ps
from minips.lab.course import state
from minips.lab.course.courses import PACKAGE, add, folders, installed
from minips.lab.course.questions import find, show_line, tells_if_retired
from minips.stage import Array, Tensors
from minips.testing import check as check_contract
from minips.testing.base import described, same_bits
from minips.training.progress import Wait, showing

LIMIT_S = 20.0
"""The most seconds that a check may take, or the most of the processor's time if other programs take a part of it. The
lessons' checks take a few seconds."""
IDLE = 0.01
"""A check that uses a smaller share of a processor is waiting, and not slowed down."""
HINTS_OFF = "MINIPS_HINTS", "off"
"""The environment variable, and its value, that turn the hints off, as in a class' challenge."""
MIRROR = str(Path(__file__).with_name("mirror"))
"""The folder of the stand-ins for a check's objects, which an answer in a sandbox calls."""


class Refused(Exception):  # noqa: N818, it is the outcome of a check and not an error
    """Raised by a check if an answer fails; names the failure and the input."""


class Exercise(NamedTuple):
    """A task, the check of its answers, and its hints in order."""

    key: str
    task: str
    hints: tuple[str, ...]
    test: "Test"
    beside: bool = False
    """True if the check must run in the answer's process: it changes a module that the answer uses, measures its time
    or memory, or calls it in several threads. Other checks can be applied from outside, see `minips.lab.course.mirror`.
    """


Test = Callable[[Any, np.random.Generator], str]
"""Checks an answer on inputs drawn from the generator, and returns the words for an answer that passes."""

EXERCISES: dict[str, Exercise] = {}
_hinted: dict[str, int] = {}


class Verdict:
    """The result of a check. Its truth value says whether the exercise is done."""

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
"""Maps each exercise's key to the last verdict in this process."""


@tells_if_retired
@showing(None, first=Wait("checking the answer"))
def check(key: str, thing: Any) -> Verdict:
    """Check ``thing`` as an answer to an exercise; the verdict says that it passes, or why and where it fails."""
    asked = exercise(key)
    VERDICTS[asked.key] = verdict = judge(asked, thing, np.random.default_rng())
    return verdict


def judge(asked: Exercise, thing: Any, rng: np.random.Generator) -> Verdict:
    """Return the verdict on an answer that is tried on inputs drawn from ``rng``."""
    try:
        with limited():
            words = asked.test(thing, rng)
        return done(asked.key, words)
    except Refused as refusal:
        words = str(refusal)
    except TooLong as error:
        words = f"{error}{where(error)}"
    except KeyboardInterrupt as interrupt:
        said = f"{asked.key}: the check was interrupted."
        interrupt.args = (said,)
        vars(interrupt)["_render_traceback_"] = lambda: [said]  # what a notebook shows instead of a traceback
        raise
    except Exception as error:
        words = stopped(error)
        if broken_at(error):
            return Verdict(asked.key, False, words)
    further = f'\nA hint: lab.hint("{asked.key}")' if asked.hints and not _are_hints_off() else ""
    return Verdict(asked.key, False, words + further)


def done(key: str, words: str) -> Verdict:
    """Return a passing verdict, and record the pass."""
    return Verdict(key, True, "\n".join(filter(None, [words, state.note("exercise", key)])))


class TooLong(BaseException):
    """Raised in a check after `LIMIT_S`. Not an `Exception`, so that an answer's ``except Exception`` misses it."""


@contextmanager
def limited() -> Iterator[None]:
    """Raise `TooLong` in the main thread after `LIMIT_S`, if the system has interval timers. While a busy machine
    slows the thread down, these are seconds of its processor.
    """
    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def ring(number: int, frame: FrameType | None) -> None:
        used = time.process_time() - used_before
        if IDLE * (time.monotonic() - began) < used < LIMIT_S:
            return
        raise TooLong(f"It was stopped after {LIMIT_S:g} seconds. Does a loop never end?")

    used_before = time.process_time()
    before, began = signal.signal(signal.SIGALRM, ring), time.monotonic()
    left, interval = signal.setitimer(signal.ITIMER_REAL, LIMIT_S, LIMIT_S / 20)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, max(left - time.monotonic() + began, 0.001) if left else 0.0, interval)
        signal.signal(signal.SIGALRM, before)


def stopped(error: BaseException) -> str:
    """Return a sentence for an error that ended a check."""
    if place := broken_at(error):
        return f"The check itself failed: {error}, in {place}. Tell your teacher."
    return f"It stopped with {type(error).__name__}: {error}{where(error)}"


def where(error: BaseException) -> str:
    """Return a phrase for the last line of the learner's own code, in a cell or in a file, in an error's traceback."""
    if (elsewhere := getattr(error, "where", None)) is not None:  # it comes from a sandbox
        return str(elsewhere)
    if not (own := _learners(traceback.extract_tb(error.__traceback__))):
        return ""
    frame = own[-1]
    line = frame.line or linecache.getline(frame.filename, frame.lineno or 0).strip()
    file = Path(frame.filename).name if Path(frame.filename).is_file() else "your cell"
    return f"\nIn {frame.name}, line {frame.lineno} of {file}: {line}" if line else ""


def broken_at(error: BaseException) -> str:
    """Return the file and the line of a course that uses an unknown name while none of the learner's code runs; an
    empty text for other errors. A wrong answer can cause those, even an UnboundLocalError, by an empty loop.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if type(error) is not NameError or hasattr(error, "where") or _learners(frames):
        return ""
    path = Path(frames[-1].filename)
    packages = [folder for folder in folders() if path.is_relative_to(folder)]
    return f"{path.relative_to(packages[0].parent).as_posix()}, line {frames[-1].lineno}" if packages else ""


def _learners(frames: traceback.StackSummary) -> list[traceback.FrameSummary]:
    """Return the frames of the learner's own code."""
    others = (*_ours(), *sysconfig.get_paths().values(), "<frozen")
    return [frame for frame in frames if not frame.filename.startswith(others)]


def _ours() -> tuple[str, ...]:
    """Return the folders of minips and of the courses, each with a separator at its end."""
    return tuple(f"{folder}{os.sep}" for folder in (PACKAGE, *folders()))


@tells_if_retired
def hint(key: str) -> None:
    """Show the next hint of an exercise; after the last hint, start again with the first."""
    asked = exercise(key)
    if _are_hints_off():
        return show_line("There are no hints here: this copy of the lesson is a challenge.")
    if not asked.hints:
        return show_line(f"There is no hint for {asked.key}.")
    turn = _hinted.get(asked.key, 0) % len(asked.hints)
    _hinted[asked.key] = turn + 1
    show_line(f"Hint {turn + 1} of {len(asked.hints)} for {asked.key}: {asked.hints[turn]}")


def _are_hints_off() -> bool:
    name, off = HINTS_OFF
    return os.environ.get(name) == off


def exercise(key: str) -> Exercise:
    """Return the exercise with this key. The ValueError for another key names the known keys and the nearest one."""
    return find("exercise", EXERCISES, key)


def asks(key: str, *hints: str, beside: bool = False) -> Callable[[Test], Test]:
    """Decorate the function that checks answers to exercise ``key``; its docstring is the task. ``beside`` says that
    the check must run in the answer's process, see `Exercise`. ValueError for a check without a docstring.
    """

    def added(test: Test) -> Test:
        if not test.__doc__:
            raise ValueError(f"{key}: the check {test.__name__} has no docstring. Write the task there.")
        add("exercise", EXERCISES, key, Exercise(key, test.__doc__, hints, test, beside))
        return test

    return added


def refuse_if(failed: Any, words: str) -> None:
    """Raise `Refused` with these words if ``failed`` is true."""
    if failed:
        raise Refused(words)


@contextmanager
def case(what: str) -> Iterator[None]:
    """Name the input that a ``with`` block tries. Refusals in the block begin with ``what``; errors become refusals,
    except those that are the check's own, see `broken_at`.
    """
    try:
        yield
    except Refused as refusal:
        raise Refused(f"{what} {refusal}") from None
    except Exception as error:
        if broken_at(error):
            raise
        raise Refused(f"{stopped(error)}\n{what.rstrip(':,.')}.") from None


@contextmanager
def raising(kind: type[Exception]) -> Iterator[None]:
    """Raise `Refused` unless the code in the ``with`` block raises an error of this ``kind``."""
    try:
        yield
    except kind:
        return
    except Exception as error:
        raise Refused(f"expected a {kind.__name__}, got {type(error).__name__}: {error}") from None
    raise Refused(f"expected a {kind.__name__}, and nothing was raised.")


def number(got: Any) -> float:
    """Return an answer's value as a float. Raises `Refused` if it is not a single number."""
    if not isinstance(got, int | float | np.number | np.ndarray) or np.ndim(got):
        raise Refused(f"it returned {got!r}; expected a number.")
    return float(got)


def equals(got: Any, wanted: float, unit: str = "") -> None:
    """Raise `Refused` unless an answer returned the number ``wanted``, up to rounding."""
    near = math.isclose(number(got), wanted, rel_tol=1e-9)
    refuse_if(not near, f"it returned {float(got):.9g}{unit}, expected {wanted:.9g}{unit}.")


def distance(got: Tensors, wanted: Tensors) -> float:
    """Return the largest difference between two values; NaN if any difference is NaN."""
    return float(np.max([np.abs(got[name] - x).max() for name, x in wanted.items()]))


def unaided(function: Any, *arguments: Any, helpers: ModuleType | None = None) -> Any:
    """Return the function's result. Raises `Refused` if it calls any function of minips, under any name, except those
    of the module ``helpers``.
    """
    if elsewhere := getattr(function, "_unaided", None):  # a function in a sandbox, where the same is done
        return elsewhere(function, *arguments, helpers=helpers.__name__ if helpers else "")
    ours, allowed = _ours(), helpers and helpers.__file__

    def called(frame: FrameType, event: str, argument: Any) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(ours) and file != allowed and not file.startswith(MIRROR):
            raise Refused(f"it calls minips' own {frame.f_code.co_name}. Write the arithmetic yourself.")

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        return function(*arguments)
    finally:
        sys.setprofile(before)


def are_two(pair: Any, first: str, second: str) -> None:
    """Raise `Refused` unless ``pair`` is a pair of functions."""
    if not (isinstance(pair, tuple) and len(pair) == 2 and all(map(callable, pair))):
        raise Refused(f"Expected the pair ({first}, {second}), got {pair!r}.")


def round_trip(pair: Any, name: str, array: Array) -> int:
    """Return the number of bytes that ``pair[0]``, named ``name``, makes of an array; ``pair[1]`` must restore it."""
    before = array.copy()
    data = pair[0](array)
    refuse_if(not isinstance(data, bytes | bytearray), f"{name} returned a {type(data).__name__}, not bytes.")
    got = pair[1](bytes(data))
    refuse_if(not same_bits(array, before), f"{name} changed the array.")
    refuse_if(not isinstance(got, np.ndarray), f"un{name} returned a {type(got).__name__}, not an array.")
    refuse_if(not same_bits(got, array), f"it came back as {described(got)}, not the same to the bit.")
    return len(data)


def is_own(thing: Any, kind: type[ps.Stage], example: str) -> None:
    """Raise `Refused` unless ``thing`` is a stage of this kind from outside minips and the courses."""
    refuse_if(
        isinstance(thing, kind) and not dataclasses.is_dataclass(thing),
        f"{type(thing).__name__} is not a dataclass. Put @dataclass(frozen=True) above the class.",
    )
    refuse_if(not isinstance(thing, kind), f"Expected an instance of your class, such as {example}, got {thing!r}.")
    ours = tuple(f"{package}." for package in ("minips", *installed()))
    refuse_if(type(thing).__module__.startswith(ours), f"{thing!r} is minips' own. Write yours.")


def keeps(contract: Callable[..., None], thing: Any, **options: Any) -> None:
    """Raise `Refused` if ``thing`` breaks a contract of `minips.testing`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the exercise itself compares what a contract cannot
            contract(thing, **options)
    except AssertionError as error:
        raise Refused(str(error)) from None


def conforms(thing: Any, kind: type[ps.Stage], example: str) -> None:
    """Raise `Refused` unless ``thing`` is the learner's own stage of this kind, and keeps the contract of its kind."""
    is_own(thing, kind, example)
    keeps(check_contract, thing)


def trains(codec: ps.Codec, rng: np.random.Generator) -> None:
    """Raise `Refused` unless two spawned workers give the same parameters with ``codec`` and the default codec."""
    problem, seed = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=120, features=6, classes=3)), drawn_seed(rng)
    run = ps.train(problem, ps.Config(workers=2, steps=5, seed=seed, push=codec, pull=codec), engine=ps.Processes())
    wanted = ps.train(problem, ps.Config(workers=2, steps=5, seed=seed), engine=ps.Threads())
    alike = all(same_bits(run.params[name], p) for name, p in wanted.params.items())
    refuse_if(not alike, f"Two spawned workers ended with other parameters than with the default codec, seed {seed}.")


def drawn_seed(rng: np.random.Generator) -> int:
    """Draw a seed for a run."""
    return int(rng.integers(1, 2**31))
