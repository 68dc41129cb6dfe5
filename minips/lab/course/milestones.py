"""Milestones of the learner's own server: what a paper's parameter server could do, and whether ``server.py`` can.

    lab.milestone()         # lists the milestones, and which are passed
    lab.milestone("ssp")    # runs server.py, and says that it passes, or what is missing

A milestone runs the server of the lessons before its `Milestone.until`. What no lesson builds has a section of its own
in ``server.py``, under a comment such as ``# Milestone ps``: a class ``Server(Server)`` with the methods that the task
names. `reaches` adds a milestone; a course defines its own in the module ``milestones`` of its package.

The server runs in a process of its own, under the limits of `lab.check`. A pass is noted with the learner's progress.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, overload

import numpy as np

from minips import files
from minips.lab.course import own, state
from minips.lab.course.courses import installed
from minips.lab.course.exercises import LIMIT_S, Refused, TooLong, Verdict, limited, stopped, where
from minips.lab.course.lessons import lessons
from minips.results.tables import align, html_rows
from minips.training.progress import Wait, showing
from minips.words import suggestion

Test = Callable[[type, np.random.Generator], str]
"""Checks a learner's class on inputs drawn from the generator. Returns the words for one that passes, and raises
`Refused` otherwise."""
PATIENCE_S = 3 * LIMIT_S
"""The most seconds that the process of a milestone may take, with its start."""
TOLD = "verdict.json"
CHILD = "import sys; from minips.lab.course.milestones import run; run(*sys.argv[1:])"


class Milestone(NamedTuple):
    """A paper, what its server does, and the check of a server that should do so."""

    key: str
    paper: str
    link: str
    lesson: str
    """The lesson that teaches it."""
    until: str
    """The first lesson whose section of ``server.py`` is not used."""
    task: str
    test: Test

    @property
    def note(self) -> str:
        """The key of its note, which begins with its lesson."""
        return f"{self.lesson}.{self.key}"


MILESTONES: dict[str, Milestone] = {}


def reaches(key: str, paper: str, link: str, *, lesson: str, until: str) -> Callable[[Test], Test]:
    """Decorate the function that checks a server for a milestone; its docstring is the task. See `Milestone`."""

    def add(test: Test) -> Test:
        MILESTONES[key] = Milestone(key, paper, link, lesson, until, test.__doc__ or "", test)
        return test

    return add


def milestones() -> dict[str, Milestone]:
    """Map each key to its milestone."""
    installed()
    return MILESTONES


def passed() -> list[str]:
    """Return the keys of the milestones that the learner has passed."""
    noted = state.noted("milestone")
    return [key for key, one in milestones().items() if one.note in noted]


class Milestones:
    """The list of milestones, which a notebook shows as a table."""

    def __init__(self) -> None:
        done, numbers = passed(), {one.word: one.number for one in lessons()}
        self.rows = [("passed", "milestone", "paper", "lesson", "what your server does")]
        for key, one in milestones().items():
            self.rows.append(("✓" if key in done else "", key, one.paper, numbers[one.lesson], one.task.split("\n")[0]))

    def __repr__(self) -> str:
        return "\n".join(line.rstrip() for line in align(self.rows, "<"))

    def _repr_html_(self) -> str:
        head, *body = self.rows
        left = "text-align:left"
        return f"<table>{html_rows([head], 5, left)}{html_rows(body, 0, left)}</table>"


@overload
def milestone() -> Milestones: ...
@overload
def milestone(key: str) -> Verdict: ...
@showing(None, first=Wait("running your server"))
def milestone(key: str = "") -> Milestones | Verdict:
    """Run the learner's ``server.py`` for a milestone; the verdict says that it passes, or what is missing. Without a
    key, list the milestones. ValueError for an unknown key.
    """
    if not key:
        return Milestones()
    known = milestones()
    if key not in known:
        raise ValueError(f"There is no milestone {key!r}. {suggestion(key, known)}")
    asked, path = known[key], Path(own.FILE)
    if not path.is_file():
        return Verdict(key, False, f"There is no {own.FILE} in {Path.cwd()}. In lesson 03, lab.keep(Server) writes it.")
    ok, words = judge(asked, path)
    if not ok:
        return Verdict(key, False, f"{words}\nThe milestone: {asked.task}\n{asked.paper}, {asked.link}")
    said = [words, f"{asked.paper}, {asked.link}", _given(asked, path), state.note("milestone", asked.note)]
    return Verdict(key, True, "\n".join(filter(None, said)))


def judge(asked: Milestone, path: Path) -> tuple[bool, str]:
    """Return whether the server in a file passes, and the words for it, from a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / TOLD
        settings = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OPENBLAS_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD, asked.key, str(path.resolve()), str(told)],
            cwd=path.resolve().parent,
            env={**os.environ, **settings, "MINIPS_AUTOPLAY": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            return False, f"It was stopped after {PATIENCE_S:g} seconds. Does a loop never end?"
        finally:
            _end(process)
        try:
            ok, words = json.loads(told.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False, f"Your server ended its process with the status {process.returncode}, before the verdict."
    return ok, words


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process, and those that it has left behind."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.wait(LIMIT_S)


def run(key: str, path: str, told: str) -> None:
    """Check the server in a file for a milestone, and write the verdict to another file: the work of the process."""
    files.write(Path(told), json.dumps(_verdict(milestones()[key], Path(path), np.random.default_rng())))


def _verdict(asked: Milestone, path: Path, rng: np.random.Generator) -> tuple[bool, str]:
    try:
        with limited(), np.errstate(all="ignore"):
            return True, asked.test(own.load(path, asked.until, asked.key), rng)
    except Refused as refusal:
        return False, str(refusal)
    except SyntaxError as error:
        return False, f"{path.name} is no program: {error.msg}, line {error.lineno}."
    except SystemExit as error:
        return False, f"{path.name} ends the process. It may not call exit.{where(error)}"
    except TooLong as error:
        return False, f"{error}{where(error)}"
    except Exception as error:
        return False, stopped(error)


def _given(asked: Milestone, path: Path) -> str:
    """Return a sentence that names the given sections among those used; an empty text if there are none."""
    ready, mine = own.sections(own.given()), own.sections(path)
    same = [title for title, text in mine.items() if ready.get(title) == text]
    used = [title for title in same if own.is_used(title, asked.until, asked.key)]
    return f"These sections of {path.name} are the given ones, not yours: {', '.join(used)}." if used else ""
