"""Run one exercise of one notebook in a sandbox, and judge its answer.

    with Runner(modules) as runner:
        outcome = runner.grade("bits.2", cells, "Server", seed=7)

`Runner` has a `minips.sandbox.Sandbox` that sees Python, minips and the courses, and no other files. For each answer it
forks a process, in which `run` executes the cells that the answer needs. Then the check is applied

- **outside**, in this process, to a stand-in for the answer, see `minips.lab.course.mirror`. Nothing that the notebook
  does in its process reaches the check;
- **beside** the answer, in its process, if the exercise says that it must. `judge` applies the check as it was before
  the cells ran: a change of minips, of a course, of NumPy or of the builtins is found by comparing, and blocks the
  mark. A word that only the question to `judge` has must come back with the verdict. An answer that reaches
  around the check in a way that `minips.lab.course.reaching` does not know can still forge its mark.
"""

import builtins
import gc
import linecache
import os
import secrets
import site
import sys
import sysconfig
import time
import types
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from minips import lab
from minips.lab.course import exercises
from minips.lab.course.courses import PACKAGE, folders, installed
from minips.lab.course.exercises import Exercise, Refused, TooLong, broken_at, limited, stopped
from minips.lab.course.mirror import Outside
from minips.sandbox import NO_FILES, NO_NETWORK, NO_PRIVILEGES, NO_SIGHT, SHOWN, Limits, Sandbox, SandboxError, sealed
from minips.words import join_names, printable

Kind = Literal["done", "not yet", "blocked", "missing"]
LIMITS = Limits(memory_bytes=2**31, cpu_s=40, answer_s=45, files=128, processes=64, file_bytes=2**20)
LONGEST_S = 50.0
"""The most seconds of wall-clock time for one exercise."""
ENVIRONMENT = {"MINIPS_AUTOPLAY": "1", "MPLBACKEND": "agg", "PYTHONDONTWRITEBYTECODE": "1"}
"""What the sandbox's environment has beside the paths of programs and libraries."""
HERE = __name__
LONGEST_WORDS = 2000
"""The most characters of a verdict."""
FORKED = "It starts processes."
FORGED = "The notebook wrote a verdict of its own."


@dataclass(frozen=True)
class Marked:
    """The mark of an answer, the words of the verdict, and the seconds that it took."""

    mark: Kind
    words: str
    seconds: float = 0.0
    judged: Literal["outside", "beside", ""] = ""
    """Whether the check ran in the grader's process, or beside the answer; empty if it did not run."""


class Runner:
    """A sandbox for one answer after another, made anew after one that was ended. Use it with ``with``."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = [*modules, "minips.lab.course.mirror.inside", f"{HERE}:prepare"]
        self._sandbox: Sandbox | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._sandbox:
            self._sandbox.close()

    def protections(self) -> list[str]:
        """Return the protections of the sandbox on this machine."""
        box = self._open()
        box.begin("", "empty.py")
        return list(map(str, box.ask("minips.sandbox", "sealed")))

    def grade(self, key: str, cells: Sequence[tuple[int, str]], answer: str, seed: int) -> Marked:
        """Return the mark of an answer, an expression, after the cells that it needs. RuntimeError if the sandbox does
        not start.
        """
        asked, box, began = exercises.EXERCISES[key], self._open(), time.monotonic()
        failed = ""

        def ask(function: str, *arguments: Any) -> Any:
            return box.ask(HERE, function, *arguments, seconds=max(began + LONGEST_S - time.monotonic(), 0.01))

        try:
            box.begin("", "notebook")
            match ask("run", [[cell, text] for cell, text in cells], asked.beside):
                case ["", str(words)] if words:
                    mark: Kind = "blocked"
                case [str(failed), ""] if asked.beside:
                    word = secrets.token_hex()
                    mark, words = _read(ask("judge", key, answer, seed, word), word)
                case [str(failed), ""]:
                    mark, words = _from_outside(asked, box, answer, seed, began + LONGEST_S - time.monotonic())
                    if ask("has_forked"):
                        mark, words = "blocked", FORKED
                case _:
                    mark, words = "blocked", FORGED
            if mark == "not yet":
                words = f"{failed}\n{words}".strip()
            box.end()
        except SandboxError as error:
            self._close()
            mark, words = "blocked", str(error)
        return Marked(
            mark, printable(words[:LONGEST_WORDS]), time.monotonic() - began, "beside" if asked.beside else "outside"
        )

    def _open(self) -> Sandbox:
        if self._sandbox:
            return self._sandbox
        packages = os.pathsep.join({str(folder.parent) for folder in (PACKAGE, *folders())})
        environment = {**ENVIRONMENT, "PYTHONPATH": packages}  # for the processes that a check starts
        given: dict[str, Any] = {"modules": self._modules, "environment": environment}
        given |= {"shows": visible(), "hides": [*solutions()], "copies": [PACKAGE, *folders()]}
        self._sandbox = Sandbox(LIMITS, "The notebook", **given)
        try:
            self._sandbox.begin("", "empty.py")  # which waits for its imports
        except SandboxError as error:
            self._close()
            raise RuntimeError(f"The sandbox of the notebooks did not start. {error}") from None
        return self._sandbox

    def _close(self) -> None:
        if self._sandbox:
            self._sandbox.close()
            self._sandbox = None


def _from_outside(asked: Exercise, box: Sandbox, answer: str, seed: int, seconds: float) -> tuple[Kind, str]:
    """Return the mark and the words of a check that is applied here. SandboxError if the answer's process ends."""
    with Outside(box, seconds) as outside:
        try:
            mark, words = _tried(asked, lambda: outside.answer(answer), seed, Exception)
        except Exception as error:  # such as one that the answer's words cause
            mark, words = "blocked", f"Its check could not be applied: {type(error).__name__}."
    if outside.error:
        raise SandboxError(words if mark == "blocked" else str(outside.error))
    return mark, words


def _read(said: Any, word: str) -> tuple[Kind, str]:
    """Return the mark and the words of an answer from the sandbox, which may be anything."""
    match said:
        case [known, "done" | "not yet" | "blocked" as mark, str(words)] if known == word:
            return mark, words
    return "blocked", FORGED


def visible() -> list[Path]:
    """Return the folders of Python, of the shared libraries, of minips and of the courses, none inside another."""
    python = [sys.prefix, sys.base_prefix, *site.getsitepackages(), *sysconfig.get_paths().values()]
    if site.ENABLE_USER_SITE:
        python.append(site.getusersitepackages())
    system = ["/usr", "/lib", "/lib32", "/lib64", "/bin"]
    given = [*map(Path, (*python, *system)), PACKAGE, *folders()]
    every = {*given, *(path.resolve() for path in given)}
    there = sorted(path for path in every if path.is_dir() and path != Path(path.anchor))
    return [path for path in there if not {*path.parents} & {*there}]


def solutions() -> Iterator[Path]:
    """Yield the files of the courses' packages that have solutions: the checks, the test cases, and the notebooks."""
    for folder in folders():
        for name in ("cases", "checks"):
            yield from folder.rglob(f"{name}.py")
            yield from folder.rglob(f"__pycache__/{name}.*.pyc")
    for course in installed().values():
        yield from course.notebooks.glob("*.ipynb")


def missing_protections(applied: Sequence[str]) -> list[str]:
    """Return sentences about what the sandbox cannot hold on this machine."""
    promised = {
        SHOWN: "Notebooks see no files of Python. An answer that needs one is blocked.",
        NO_FILES: "Notebooks may read files that the grader can read, other students' among them.",
        NO_NETWORK: "Notebooks may use the network.",
        NO_SIGHT: "A notebook's processes may outlive it, for the seconds of their limit.",
        NO_PRIVILEGES: "Notebooks may start programs with other rights.",
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


def run(entry: Any, cells: list[Any], beside: bool) -> list[str]:
    """Execute cells. Return a sentence about the first error, and one about a limit that was exceeded; each is empty
    if there is none. If the check comes ``beside`` them, remember what they must not change.
    """
    os.register_at_fork(before=lambda: _forked.append(1), after_in_child=lambda: os._exit(1))
    if beside:
        _before[:] = [_snapshot(), dict(exercises.EXERCISES)]
    else:
        _forget_checks()
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
            return ["", f"Cell {number}: {error}"]
        except BaseException as error:
            if why := _of_sandbox(error):
                return ["", f"Cell {number}: {why}"]
            failed = failed or f"Cell {number} stopped with {type(error).__name__}: {error}"
    return [failed, ""]


def _forget_checks() -> None:
    """Remove the modules that check, and with them the right answers that they compute, from this process."""
    exercises.EXERCISES.clear()
    for module in [one for one in sys.modules if _first(one) in installed() and one.endswith(".checks")]:
        package, _, name = module.rpartition(".")
        vars(sys.modules[package]).pop(name, None)
        vars(sys.modules.pop(module)).clear()
    gc.collect()


def judge(entry: Any, key: str, answer: str, seed: int, word: str) -> list[str]:
    """Return the word, the mark and the words of the check of an answer."""
    known, asked = _before
    if changed := _changes(known):
        return [word, "blocked", changed]
    mark, words = _tried(asked[key], lambda: eval(compile(answer, "the answer", "eval"), vars(entry)), seed)
    if _forked:
        return [word, "blocked", FORKED]
    if changed := _changes(known):
        return [word, "blocked", changed]
    return [word, mark, words]


def has_forked(entry: Any) -> bool:
    """Return True if the answer has tried to start a process."""
    return bool(_forked)


def _tried(
    asked: Exercise, answer: Callable[[], Any], seed: int, caught: type[BaseException] = BaseException
) -> tuple[Kind, str]:
    """Apply a check to what ``answer`` returns, on inputs drawn from the seed and the exercise's key."""
    rng = np.random.default_rng([seed, zlib.crc32(asked.key.encode())])
    try:
        with limited():
            return "done", asked.test(answer(), rng)
    except TooLong as error:
        return "blocked", str(error)
    except caught as error:
        if why := _of_sandbox(error):
            return "blocked", why
        words = str(error) if isinstance(error, Refused) else stopped(error)
        return "blocked" if broken_at(error) else "not yet", words


def _of_sandbox(error: BaseException) -> str:
    """Return a sentence if an error, or the one that led to it, comes from the sandbox and not from the answer."""
    applied = sealed(None)  # nothing outside of a sandbox
    cause: BaseException | None = error
    while cause:
        if isinstance(cause, MemoryError):
            return f"It needs more memory than the {LIMITS.memory_bytes / 2**30:g} GB that an answer may use."
        if isinstance(cause, BlockingIOError) or "can't start new thread" in str(cause):
            return f"It starts more than {LIMITS.processes} processes or threads."
        if isinstance(cause, ImportError | FileNotFoundError) and applied and SHOWN not in applied:
            return f"It needs a file that the sandbox on this machine cannot show: {cause}."
        cause = cause.__context__
    return ""


Fact = tuple[Any, ...]


def _absent() -> None:
    """Stands for a name that a module does not have."""


def _snapshot() -> dict[tuple[str, str], Fact]:
    """Map each name of the modules that judge to its value, and to what could be changed inside it."""
    first = {"minips", "numpy", "builtins", "math", "operator", "time", "signal", *map(_first, installed())}
    found: dict[tuple[str, str], Fact] = {}
    for module, there in [*sys.modules.items()]:
        if _first(module) in first and isinstance(there, types.ModuleType):
            hidden = {*dir(there)} | {*vars(builtins)}
            for name in hidden | {*vars(there)}:
                found[module, name] = _fact(vars(there).get(name, _absent))
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
        now = _fact(there.get(inner or first, _absent))
        if fact[0] is _absent and now[0] is sys.modules.get(f"{module}.{name}"):
            continue  # a module that was imported meanwhile
        if len(now) != len(fact) or any(one is not other for one, other in zip(now, fact, strict=True)):
            changed.append(f"{module}.{name}")
    return (
        f"The notebook changed {join_names(sorted(changed)[:5])}, with which its answer is judged." if changed else ""
    )
