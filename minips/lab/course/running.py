"""Run one exercise of one notebook in a sandbox, and judge its answer there, beside it.

    with Runner(modules) as runner:
        outcome = runner.graded("bits.2", cells, "Server", seed=7)

`Runner` has a `minips.sandbox.Sandbox` that sees Python, minips and the courses, and no other files. For each answer it
forks a process, in which `run` executes the cells that the answer needs, and `judge` applies the check to it, as this
process was before the cells ran: a change of minips, of a course, of NumPy or of the builtins is found by comparing,
and blocks the mark. A word that only the question to `judge` has must come back with the verdict.

Answer and check are in one process here. Whoever reaches around a check in a way that `minips.lab.course.reaching`
does not know, and restores what it changed, can still forge a verdict: read what is surprising.
"""

import builtins
import linecache
import os
import re
import secrets
import site
import sys
import sysconfig
import time
import types
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from minips import lab
from minips.lab.course import exercises
from minips.lab.course.courses import folders, installed
from minips.lab.course.exercises import PACKAGE, Exercise, Refused, TooLong, limited, stopped
from minips.sandbox import Limits, Sandbox, SandboxError
from minips.words import join_names

Kind = Literal["done", "not yet", "blocked", "missing"]
LIMITS = Limits(memory_bytes=2**31, cpu_s=40, answer_s=45, files=64, processes=64)
LONGEST_S = 50.0
"""The most seconds of wall-clock time for one exercise."""
ENVIRONMENT = {"MINIPS_AUTOPLAY": "1", "MPLBACKEND": "agg", "PYTHONDONTWRITEBYTECODE": "1"}
HERE = __name__
LONGEST_WORDS = 2000


@dataclass(frozen=True)
class Outcome:
    """The mark of an answer, the words of the verdict, and the seconds that it took."""

    mark: Kind
    words: str
    seconds: float = 0.0
    judged: Literal["outside", "beside", ""] = ""
    """Whether the check ran in the grader's process, or beside the answer; empty if it did not run."""


class Runner:
    """A sandbox for one answer after another, made anew after one that was ended. Use it with ``with``."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = [*modules, f"{HERE}:prepare"]
        self._sandbox: Sandbox | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._sandbox:
            self._sandbox.close()

    def kill(self) -> None:
        """End what runs, from another thread."""
        if self._sandbox:
            self._sandbox.kill()

    def protections(self) -> list[str]:
        """Return the protections of the sandbox on this machine."""
        box = self._open()
        box.begin("", "empty.py")
        return list(map(str, box.ask("minips.sandbox", "sealed")))

    def graded(self, key: str, cells: Sequence[tuple[int, str]], answer: str, seed: int) -> Outcome:
        """Return the mark of an answer, an expression, after the cells that it needs."""
        began = time.monotonic()

        def left() -> float:
            return max(began + LONGEST_S - time.monotonic(), 0.01)

        try:
            box = self._open()
            began = time.monotonic()
            box.begin("", "notebook")
            failed = box.ask(HERE, "run", [[cell, text] for cell, text in cells], seconds=left())
            word = secrets.token_hex()
            said = box.ask(HERE, "judge", key, answer, seed, word, seconds=left())
            box.end()
            mark, words = _read(said, word, str(failed))
        except SandboxError as error:
            self._close()
            mark, words = "blocked", str(error)
        return Outcome(mark, _plain(words), time.monotonic() - began, "beside")

    def _open(self) -> Sandbox:
        if not self._sandbox:
            self._sandbox = Sandbox(
                LIMITS, "The notebook", shows=visible(), modules=self._modules, environment=ENVIRONMENT
            )
            self._sandbox.begin("", "empty.py")  # which waits for its imports
        return self._sandbox

    def _close(self) -> None:
        if self._sandbox:
            self._sandbox.close()
            self._sandbox = None


def _read(said: Any, word: str, failed: str) -> tuple[Kind, str]:
    """Return the mark and the words of an answer from the sandbox, which may be anything."""
    match said:
        case [known, "done" | "not yet" | "blocked" as mark, str(words)] if known == word:
            return mark, f"{failed}\n{words}".strip() if mark == "not yet" else words
    return "blocked", "The notebook wrote a verdict of its own."


def _plain(words: str) -> str:
    """Return the words without control characters, and not too many."""
    return re.sub(r"[^\n -~\u00a0-\uffff]", "?", words)[:LONGEST_WORDS]


def visible() -> list[Path]:
    """Return the folders of Python, of the shared libraries, of minips and of the courses, none inside another."""
    python = [sys.prefix, sys.base_prefix, *site.getsitepackages(), *sysconfig.get_paths().values()]
    if site.ENABLE_USER_SITE:
        python.append(site.getusersitepackages())
    system = ["/usr", "/lib", "/lib32", "/lib64", "/bin"]
    given = [Path(one).absolute() for one in (*python, *system, PACKAGE, *folders())]
    every = {*given, *(path.resolve() for path in given)}
    there = sorted(path for path in every if path.is_dir() and path != Path(path.anchor))
    return [path for path in there if not {*path.parents} & {*there}]


def lacking(applied: Sequence[str]) -> list[str]:
    """Return sentences about what the sandbox cannot hold on this machine."""
    promised = {
        "no files": "Notebooks may read files that the grader can read, other students' among them.",
        "no network": "Notebooks may use the network.",
        "no sight of other processes": "A notebook's processes may outlive it, for the seconds of their limit.",
        "no new privileges": "Notebooks may start programs with other rights.",
    }
    held = " ".join(applied)
    return [words for what, words in promised.items() if what not in held]


# In a sandbox: what follows.

_before: list[Any] = []
_forked: list[int] = []


def prepare() -> None:
    """Import the courses and what their cells use, which a sealed process may not find."""
    installed()
    getattr(lab, "check")  # noqa: B009, which imports the lab's face


def run(entry: Any, cells: list[Any]) -> str:
    """Execute cells, and return a sentence about the first error; an empty text without one."""
    os.register_at_fork(before=lambda: _forked.append(1), after_in_child=lambda: os._exit(1))
    _before[:] = [_snapshot(), dict(exercises.EXERCISES)]
    entry.__name__ = "__main__"
    sys.modules["__main__"] = entry
    entry.display = lambda *things, **options: None
    failed = ""
    for number, text in cells:
        file = f"cell {number}"
        linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file
        try:
            with limited():
                exec(compile(text, file, "exec"), vars(entry))
        except TooLong as error:
            raise Ended(f"Cell {number}: {error}") from None
        except BaseException as error:
            if why := _exhausted(error):
                raise Ended(f"Cell {number}: {why}") from None
            failed = failed or f"Cell {number} stopped with {type(error).__name__}: {error}"
    return failed


class Ended(Exception):  # noqa: N818, it is the end of an answer
    """Raised if an answer exceeds a limit."""


def judge(entry: Any, key: str, answer: str, seed: int, word: str) -> list[str]:
    """Return the word, the mark and the words of the check of an answer."""
    known, asked = _before
    if changed := _changes(known):
        return [word, "blocked", changed]
    mark, words = _tried(entry, asked[key], answer, np.random.default_rng([seed, zlib.crc32(key.encode())]))
    if _forked:
        return [word, "blocked", "It starts processes."]
    if changed := _changes(known):
        return [word, "blocked", changed]
    return [word, mark, words]


def _tried(entry: Any, asked: Exercise, answer: str, rng: np.random.Generator) -> tuple[Kind, str]:
    try:
        with limited():
            return "done", asked.test(eval(compile(answer, "the answer", "eval"), vars(entry)), rng)
    except TooLong as error:
        return "blocked", str(error)
    except BaseException as error:
        if why := _exhausted(error):
            return "blocked", why
        return "not yet", str(error) if isinstance(error, Refused) else stopped(error)


def _exhausted(error: BaseException) -> str:
    """Return a sentence if an error, or the one that led to it, says that a limit was exceeded."""
    cause: BaseException | None = error
    while cause:
        if isinstance(cause, MemoryError):
            return f"It needs more memory than the {LIMITS.memory_bytes / 2**30:g} GB that an answer may use."
        if isinstance(cause, BlockingIOError) or "can't start new thread" in str(cause):
            return f"It starts more than {LIMITS.processes} processes or threads."
        cause = cause.__context__
    return ""


Fact = tuple[Any, ...]


def _snapshot() -> dict[tuple[str, str], Fact]:
    """Map each name of the modules that judge to its value, and to what could be changed inside it."""
    first = {"minips", "numpy", "builtins", "math", "operator", "time", "signal", *map(_first, installed())}
    found: dict[tuple[str, str], Fact] = {}
    for module, there in [*sys.modules.items()]:
        if _first(module) in first and isinstance(there, types.ModuleType):
            hidden = {*dir(there)} | {*vars(builtins)}
            for name in hidden | {*vars(there)}:
                found[module, name] = _fact(vars(there).get(name, _fact))
            for name, value in _classes(module, there):
                found |= {(module, f"{name}.{inner}"): _fact(one) for inner, one in [*vars(value).items()]}
    return found


def _first(module: str) -> str:
    return module.partition(".")[0]


def _classes(module: str, there: types.ModuleType) -> Iterator[tuple[str, type]]:
    for name, value in [*vars(there).items()]:
        if isinstance(value, type) and value.__module__ == module:
            yield name, value


def _fact(value: Any) -> Fact:
    inner = getattr(value, "__func__", value)
    if isinstance(inner, types.FunctionType):
        return value, inner.__code__, inner.__defaults__, inner.__kwdefaults__
    return (value,)


def _changes(known: dict[tuple[str, str], Fact]) -> str:
    """Return a sentence that names what was changed since the snapshot."""
    changed = []
    for (module, name), fact in known.items():
        first, _, inner = name.partition(".")
        there: Any = vars(sys.modules[module]) if module in sys.modules else {}
        if inner:
            there = vars(there[first]) if isinstance(there.get(first), type) else {}
        now = _fact(there.get(inner or first, _fact))
        if len(now) != len(fact) or any(one is not other for one, other in zip(now, fact, strict=True)):
            changed.append(f"{module}.{name}")
    return (
        f"The notebook changed {join_names(sorted(changed)[:5])}, with which its answer is judged." if changed else ""
    )
