"""The lessons of a course: their notebooks, their questions and exercises, and copies for the learner."""

import ast
import hashlib
import json
import platform
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from minips import files
from minips.lab.course.courses import Course, chosen, lesson_of
from minips.lab.course.exercises import EXERCISES

LEDGER = ".minips-lessons.json"
"""A file in a learner's folder. It stores a hash of each copy as made, so that a changed copy can be recognized."""
KIND = "kind"
"""The ledger's key for the kind of a class' copies, such as student."""
ASSISTANTS, RULES = "AGENTS.md", Path(__file__).with_name("for_assistants.md")
"""The file in which coding assistants look for their rules, and the file that has these rules."""
GLOSSARY, FURTHER = "GLOSSARY.md", "further-*.md"
"""The page of terms and their meanings, and the pages of further reading, to which the lessons link."""
LANGUAGE = {
    "codemirror_mode": {"name": "ipython", "version": sys.version_info.major},
    "file_extension": ".py",
    "mimetype": "text/x-python",
    "name": "python",
    "nbconvert_exporter": "python",
    "pygments_lexer": f"ipython{sys.version_info.major}",
    "version": platform.python_version(),
}
"""The kernel's description of its language, as notebooks store it. Asking ipykernel for it would affect all widgets."""

Pages = dict[str, bytes]
"""Maps file names to contents."""


class Lesson(NamedTuple):
    """One notebook."""

    path: Path
    word: str
    """The text with which its keys begin, see `Course.words`."""
    number: str
    """The lesson's two-digit number."""
    title: str
    questions: list[str]
    """The keys of its predictions."""
    exercises: list[str]
    """The keys of its exercises."""
    tasks: list[tuple[str, str]]
    """The kind and the key of the note that each task leaves, in the order of the cells; homework is last."""
    homework: list[tuple[str, str]]
    """The tasks that are homework."""
    question: str
    """What the lesson asks, from its first cell; empty if it does not say so there."""
    minutes: tuple[int, int] | None
    """How long the lesson and its homework take; None if its first cell does not say so."""

    @property
    def core(self) -> list[tuple[str, str]]:
        """The tasks with which the lesson is done: those that are neither homework nor an answer in words."""
        return [task for task in self.tasks if task not in self.homework and task[0] != "answer"]


TASKS = {"question": "predict", "answer": "answer", "exercise": "check", "quiz": "quiz"}
"""Maps the kind of a note to the function of `minips.lab` that leaves it."""
QUESTION = re.compile(r"\*\*The question\.\*\* (.+)")
MINUTES = re.compile(r"\*\*How long\.\*\* About (\d+) minutes(?:, and (\d+) )?")
"""The lines of a lesson's first cell that state its question and how long it takes."""


def lessons(course: Course | None = None) -> list[Lesson]:
    """Return the lessons of a course, in order. If no course is given, use the default one, see `chosen`."""
    course = course or chosen()
    return [_lesson(course, word, path) for word, path in course.paths().items()]


def _lesson(course: Course, word: str, path: Path) -> Lesson:
    cells = read(path)["cells"]
    first = source(cells[0]).strip()
    title = first.partition("\n")[0].lstrip("# ")
    questions = [key for cell in cells for key in arguments(cell, "predict")]
    keys = [key for key in EXERCISES if lesson_of(key) == word]
    said, took = QUESTION.search(first), MINUTES.search(first)
    minutes = (int(took[1]), int(took[2] or 0)) if took else None
    heading = next((i for i, cell in enumerate(cells) if re.match(r"## Homework\b", source(cell))), len(cells))
    core = _tasks(cells[:heading])
    homework = [task for task in _tasks(cells[heading:]) if task not in core]
    asks = said[1] if said else ""
    return Lesson(path, word, path.name[:2], title, questions, keys, [*core, *homework], homework, asks, minutes)


def _tasks(cells: list[Any]) -> list[tuple[str, str]]:
    """Return the tasks of these cells, each once."""
    calls = TASKS.items()
    return [*dict.fromkeys((kind, key) for cell in cells for kind, call in calls for key in arguments(cell, call))]


class Copied(NamedTuple):
    """File names. ``kept`` lists files that the learner changed and that differ from what would be copied today;
    ``earlier`` those among them that have another name today, as "14_old.ipynb (now 16_old.ipynb)".
    """

    new: list[str]
    renewed: list[str]
    kept: list[str]
    earlier: list[str]


def copy_to(folder: Path, course: Course | None = None, *, outputs: bool = False) -> Copied:
    """Copy a course's lessons for a learner, by default without ``outputs``, since these would reveal the answers. The
    folder is updated as in `update`.
    """
    course = course or chosen()
    return update(folder, course, {**copies(course, Path.read_bytes if outputs else blanked), **for_assistants()})


def copies(course: Course, notebook: Callable[[Path], bytes], page: Callable[[Path], bytes] = Path.read_bytes) -> Pages:
    """Map the name of each lesson and each page to what a copy contains: what ``notebook`` or ``page`` makes of it."""
    shelf = course.notebooks
    found = {lesson.path.name: notebook(lesson.path) for lesson in lessons(course)}
    return found | {path.name: page(path) for path in [*shelf.glob(GLOSSARY), *sorted(shelf.glob(FURTHER))]}


def for_assistants() -> Pages:
    """The page with the rules for a learner's coding assistant, under the name by which assistants find it."""
    return {ASSISTANTS: RULES.read_bytes()}


def update(folder: Path, course: Course, pages: Mapping[str, bytes], kind: str = "") -> Copied:
    """Write pages of a course, by file name, into a folder, and note the ``kind`` of a class' copies, see `kind_of`.

    A copy that the learner has changed stays as it is; an unchanged copy is renewed if its original has changed, and
    removed if its original has another name today. OSError if the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    copied = Copied([], [], [], [])
    if folder.resolve() == course.notebooks.resolve():
        return copied
    made = _ledger(folder)
    for name, fresh in pages.items():
        there = _hash((folder / name).read_bytes()) if (folder / name).is_file() else None
        if there in (None, made.get(name), _hash(fresh)):
            if there != _hash(fresh):
                (copied.renewed if there else copied.new).append(name)
                files.write(folder / name, fresh)
            made[name] = _hash(fresh)
        elif made.get(name) != _hash(fresh):
            copied.kept.append(name)
    paths = course.paths()
    for name, word in course.numbered.items():
        today, copy = paths[word].name, folder / name
        if name == today or not copy.is_file():
            continue
        if _hash(copy.read_bytes()) == made.get(name):
            copy.unlink()
        else:
            copied.earlier.append(f"{name} (now {today})")
    files.write(folder / LEDGER, json.dumps(made | ({KIND: kind} if kind else {}), indent=1))
    return copied


def kind_of(folder: Path) -> str:
    """Return the kind of the class' copies in a folder, such as student; empty for a learner's own copies."""
    return str(_ledger(folder).get(KIND, ""))


def _ledger(folder: Path) -> dict[str, str]:
    """Return what is known of a folder's copies; without a record, each counts as changed, and is kept."""
    ledger = folder / LEDGER
    try:
        return dict(json.loads(ledger.read_text() if ledger.is_file() else "{}"))
    except (ValueError, TypeError):
        return {}


def blanked(path: Path) -> bytes:
    """Return a notebook without outputs, formatted as JupyterLab does, so that saving alone changes no copy."""
    return dumped(blank(read(path)))


def blank(book: dict[str, Any]) -> dict[str, Any]:
    """Remove the outputs from a notebook, and what its widgets showed."""
    book["metadata"].pop("widgets", None)
    book["metadata"]["language_info"] = LANGUAGE
    for cell in book["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    return book


def dumped(book: dict[str, Any]) -> bytes:
    """Return a notebook's bytes, formatted as JupyterLab does."""
    return (json.dumps(book, indent=1, ensure_ascii=False) + "\n").encode()


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def read(path: Path) -> dict[str, Any]:
    """Return the notebook's JSON as a dict. ValueError if the file is not a notebook."""
    try:
        book: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        book["cells"][0]["source"]
    except (ValueError, KeyError, IndexError, TypeError):
        raise ValueError(f"{path} is not a notebook of the kind that JupyterLab writes (nbformat 4).") from None
    return book


def source(cell: Any) -> str:
    """Return the text of a cell."""
    return "".join(cell["source"])


def arguments(cell: Any, function: str) -> list[str]:
    """Return the first argument of each call ``lab.<function>("…")`` in a code cell; none if its syntax is invalid."""
    if cell["cell_type"] != "code":
        return []
    lines = [line for line in source(cell).splitlines() if not line.lstrip().startswith(("%", "!"))]
    try:
        tree = ast.parse("\n".join(lines))
    except SyntaxError:
        return []
    return [
        str(node.args[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == f"lab.{function}"
        and node.args
        and isinstance(node.args[0], ast.Constant)
    ]
