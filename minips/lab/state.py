"""The learner's progress: exercises passed, predictions made; lines of JSON in the user's state folder.

Nothing is noted in unattended runs (``MINIPS_AUTOPLAY=1``), and a folder that cannot be written is a sentence, never an
error.
"""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path


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


def note(**fact: str) -> str:
    """Keep a fact, ``exercise="02.1"`` or ``question=…, predicted=…, measured=…``; the last one about the same exercise
    or question counts. A sentence where that cannot be done, else nothing.
    """
    about = next(iter(fact.items()))
    before = [known for known in facts() if about in known.items()]
    if autoplay() or before[-1:] == [fact]:
        return ""
    path = state_file()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(fact) + "\n")
    except OSError as error:
        return f"Your progress could not be noted: {error}. Set XDG_STATE_HOME to a folder that can be written."
    return ""


def facts() -> list[dict[str, str]]:
    """All that was noted, the oldest first. What cannot be read is left out."""
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


def predicted() -> dict[str, str]:
    """The last prediction by question."""
    return {fact["question"]: fact["predicted"] for fact in facts() if {"question", "predicted"} <= fact.keys()}


def reset() -> bool:
    """Forget everything; False where there was nothing. OSError where the file cannot be removed."""
    there = state_file().exists()
    state_file().unlink(missing_ok=True)
    return there
