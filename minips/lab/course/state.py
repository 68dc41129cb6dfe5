"""The notebooks of the lessons, and the learner's progress through them: exercises passed, predictions made, answers
written; lines of JSON in the user's state folder. Each has the file name of its lesson: one that is renumbered later
begins anew.

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
from minips.lab.course.courses import chosen


def shelf() -> Path:
    """The folder of the course's notebooks. ImportError where no course is installed."""
    return chosen().notebooks


def notebooks() -> list[Path]:
    """The notebooks of the lessons, in their order. FileNotFoundError where there are none."""
    paths = sorted(shelf().glob("[0-9][0-9]_*.ipynb"))
    if not paths:
        raise FileNotFoundError(f"There are no lessons in {shelf()}. Install minips again, or clone its repository.")
    return paths


def notebook(key: str) -> str:
    """The file name of the lesson that a key belongs to, under which the learner's progress is kept.

    >>> notebook("16.1")
    '16_trust_nobody.ipynb'
    """
    return next((path.name for path in notebooks() if path.name[:2] == key[:2]), key[:2])


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
    """Keep what is ``said`` of an exercise, a question, an answer or a quiz, under the notebook's name and its key; the
    last note on the same thing counts. A sentence where that cannot be done, else nothing.
    """
    fact = {"notebook": notebook(key), kind: key, **said}
    before = [known for known in facts() if known.items() >= {"notebook": fact["notebook"], kind: key}.items()]
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
                found.append(fact)
    return found


def noted(kind: str) -> dict[str, dict[str, str]]:
    """The last note on each thing of this kind, by its key: of the lessons that there are."""
    keyed = [(fact[kind], fact) for fact in facts() if isinstance(fact.get(kind), str)]
    return {key: fact for key, fact in keyed if fact.get("notebook") == notebook(key)}


def set_aside() -> int:
    """The number of notes that belong to no lesson that there is: those of an earlier edition."""
    names = {path.name for path in notebooks()}
    return sum(fact.get("notebook") not in names for fact in facts())


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
