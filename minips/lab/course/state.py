"""The notebooks of the lessons, and the learner's progress through them: exercises passed, predictions made, answers
written; lines of JSON in the user's state folder. Each has its key. Those of an edition whose keys had numbers have the
lesson's file name besides, by which they are read as notes on the lesson that it has become.

Nothing is noted in unattended runs (``MINIPS_AUTOPLAY=1``), and a folder that cannot be written is a sentence, never an
error.
"""

import itertools
import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from minips import files
from minips.lab.course.courses import chosen, lesson_of

KINDS = ("exercise", "question", "answer", "quiz")
"""What a note may be on; each has the key under its kind."""


def shelf() -> Path:
    """The folder of the course's notebooks. ImportError where no course is installed."""
    return chosen().notebooks


def notebooks() -> dict[str, Path]:
    """The notebooks by the words of their lessons, in their order. FileNotFoundError where there are none."""
    numbered = {path.name[:2]: path for path in shelf().glob("[0-9][0-9]_*.ipynb")}
    words = {f"{place:02}": word for place, word in enumerate(chosen().lessons)}
    found = {word: numbered[number] for number, word in words.items() if number in numbered}
    if not found:
        raise FileNotFoundError(f"There are no lessons in {shelf()}. Install minips again, or clone its repository.")
    return found


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
    """The last note on each thing of this kind, by its key: of the lessons that there are."""
    return {fact[kind]: fact for fact in facts() if _belongs(fact, kind)}


def set_aside() -> int:
    """The number of notes that belong to no lesson that there is: those of an earlier edition."""
    return sum(not any(_belongs(fact, kind) for kind in KINDS) for fact in facts())


def _belongs(fact: dict[str, str], kind: str) -> bool:
    """True for a note of this kind on a lesson that there is."""
    key = fact.get(kind)
    return "notebook" not in fact and isinstance(key, str) and lesson_of(key) in chosen().lessons


def reset() -> Path | None:
    """Begin anew. The notes so far are renamed; their new path, beside the old one, or None where there were none.

    OSError where that is not possible.
    """
    path = state_file().resolve()  # a symbolic link to it stays
    if not path.is_file():
        return None
    names = (path.with_name(f"{path.stem}-{number}{path.suffix}") for number in itertools.count(1))
    kept = next(name for name in names if not name.exists())
    path.rename(kept)
    return kept
