"""The learner's progress through the lessons of all courses: exercises passed, predictions made, answers
written; lines of JSON in the user's state folder. Each has its key. Those of an edition whose keys had numbers have the
lesson's file name besides, by which they are read as notes on the lesson that it has become.

Nothing is noted in unattended runs (``MINIPS_AUTOPLAY=1``), and a folder that cannot be written is a sentence, never an
error.
"""

import itertools
import json
import os
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from minips import files
from minips.lab.course import courses
from minips.lab.course.courses import Course, chosen, lesson_of

KINDS = ("exercise", "question", "answer", "quiz")
"""What a note may be on; each has the key under its kind."""


def state_file() -> Path:
    """The file of the learner's progress, under ``XDG_STATE_HOME`` or, where that is not set, in the usual place."""
    if os.environ.get("XDG_STATE_HOME"):
        base = Path(os.environ["XDG_STATE_HOME"])
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library/Application Support"
    else:
        base = Path.home() / ".local/state"
    return base / "minips" / "progress.jsonl"


def autoplay() -> bool:
    """True in unattended runs: predictions answer themselves, and nothing is noted."""
    return os.environ.get("MINIPS_AUTOPLAY") == "1"


def note(kind: str, key: str, **said: str) -> str:
    """Keep what is ``said`` of an exercise, a question, an answer or a quiz, under its key; the last note on the same
    thing counts. A sentence where that cannot be done, else nothing.
    """
    fact = {kind: key, **said}
    before = [known for known in facts() if known.get(kind) == key]
    if autoplay() or before[-1:] == [fact]:
        return ""
    path = state_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.append(path, json.dumps(fact) + "\n")
    except OSError as error:
        why = str(error).rstrip(".")
        return f"Your progress could not be noted: {why}. Set XDG_STATE_HOME to a folder that can be written."
    return ""


def facts() -> list[dict[str, str]]:
    """All that was noted, the oldest first. What cannot be read is left out."""
    if not state_file().is_file():  # nor a pipe, which is only written to
        return []
    try:
        lines = state_file().read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        with suppress(ValueError):
            if isinstance(fact := json.loads(line), dict):
                found.append(_by_word(fact))
    return found


def _by_word(fact: dict[str, str]) -> dict[str, str]:
    """A note; one of an edition whose keys had numbers, as it would be made today."""
    name = str(fact.get("notebook"))
    if (word := chosen().numbered.get(name)) is None:
        return fact
    others = {field: value for field, value in fact.items() if field != "notebook"}
    keys = {kind: str(others[kind]) for kind in KINDS if kind in others}
    return others | {kind: word + key[2:] for kind, key in keys.items() if key[:2] == name[:2]}


def noted(kind: str) -> dict[str, dict[str, str]]:
    """The last note on each thing of this kind, by its key: of the lessons of the courses that are installed."""
    return {fact[kind]: fact for fact in facts() if _lesson(fact, kind) in _words()}


def set_aside() -> int:
    """The number of notes that belong to no lesson of a course that is installed."""
    return sum(not _is_on(fact, _words()) for fact in facts())


def begun() -> list[Course]:
    """The courses of which something is noted; all that are installed, where there is none."""
    there = [*courses.installed().values()]
    return [course for course in there if any(_is_on(fact, course.words) for fact in facts())] or there


def _words() -> set[str]:
    return {word for course in courses.installed().values() for word in course.words}


def _is_on(fact: dict[str, str], lessons: Collection[str]) -> bool:
    """True for a note on one of these lessons."""
    return any(_lesson(fact, kind) in lessons for kind in KINDS)


def _lesson(fact: dict[str, str], kind: str) -> str:
    """The lesson that a note of this kind is on, or nothing."""
    key = fact.get(kind)
    return lesson_of(key) if "notebook" not in fact and isinstance(key, str) else ""


def reset(course: Course | None = None) -> Path | None:
    """Begin anew, in all courses or in this one. The notes so far are renamed; their new path, beside the old one, or
    None where there were none.

    OSError where that is not possible.
    """
    others = [fact for fact in facts() if course and not _is_on(fact, course.words)]
    path = state_file().resolve()  # a symbolic link to it stays
    if not path.is_file():
        return None
    names = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in itertools.count(1))
    kept = next(name for name in names if not name.exists())
    path.rename(kept)
    if others:
        files.write(path, "".join(f"{json.dumps(fact)}\n" for fact in others))
    return kept
