"""The learner's progress through the lessons of all courses: passed exercises and milestones, predictions, answers and
quizzes.

Each note is a line of JSON in the user's state folder, with its key. Notes from an edition whose keys had numbers also
contain the notebook's file name, which shows the lesson that they belong to today. Unattended runs
(``MINIPS_AUTOPLAY=1``) note nothing. If the folder is not writable, the learner sees a sentence, never an error.
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
from minips.training.progress import autoplay as autoplay

KINDS = ("exercise", "question", "answer", "quiz", "milestone")
"""The kinds of notes. In a note, the kind is the name under which the key is stored."""


def state_file() -> Path:
    """The file of the learner's progress, under ``XDG_STATE_HOME`` or, if that is not set, in the usual place."""
    if os.environ.get("XDG_STATE_HOME"):
        base = Path(os.environ["XDG_STATE_HOME"])
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData/Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library/Application Support"
    else:
        base = Path.home() / ".local/state"
    return base / "minips" / "progress.jsonl"


def note(kind: str, key: str, **said: str) -> str:
    """Note what is ``said`` under a key of one of the `KINDS`. The last note on a key counts. Returns a sentence if the
    note could not be written, and an empty text otherwise.
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
    """Return all notes, the oldest first, without lines that cannot be read."""
    if not state_file().is_file():  # false for a pipe too, which is only written to
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
    """Convert a note from an edition whose keys had numbers into today's form; return other notes unchanged."""
    name = str(fact.get("notebook"))
    if (word := chosen().numbered.get(name)) is None:
        return fact
    others = {field: value for field, value in fact.items() if field != "notebook"}
    keys = {kind: str(others[kind]) for kind in KINDS if kind in others}
    return others | {kind: word + key[2:] for kind, key in keys.items() if key[:2] == name[:2]}


def noted(kind: str) -> dict[str, dict[str, str]]:
    """Map each key of this kind to its last note, for the lessons of installed courses."""
    return {fact[kind]: fact for fact in facts() if _lesson(fact, kind) in _words()}


def set_aside() -> int:
    """Count the notes that do not belong to a lesson of an installed course."""
    return sum(not _is_on(fact, _words()) for fact in facts())


def begun() -> list[Course]:
    """Return the courses that have notes, or all installed courses if none has notes."""
    there = [*courses.installed().values()]
    return [course for course in there if any(_is_on(fact, course.words) for fact in facts())] or there


def _words() -> set[str]:
    return {word for course in courses.installed().values() for word in course.words}


def _is_on(fact: dict[str, str], lessons: Collection[str]) -> bool:
    """Return True for a note on one of these lessons."""
    return any(_lesson(fact, kind) in lessons for kind in KINDS)


def _lesson(fact: dict[str, str], kind: str) -> str:
    """Return the lesson of a note of this kind; an empty text if it has none."""
    key = fact.get(kind)
    return lesson_of(key) if "notebook" not in fact and isinstance(key, str) else ""


def reset(course: Course | None = None) -> Path | None:
    """Forget the progress in all courses, or in one. Renames the file of notes and returns its new path, in the same
    folder; None if there was no file. OSError if renaming is not possible.
    """
    others = [fact for fact in facts() if course and not _is_on(fact, course.words)]
    path = state_file().resolve()  # if the file is a symbolic link, the link stays
    if not path.is_file():
        return None
    names = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in itertools.count(1))
    kept = next(name for name in names if not name.exists())
    path.rename(kept)
    if others:
        files.write(path, "".join(f"{json.dumps(fact)}\n" for fact in others))
    return kept
