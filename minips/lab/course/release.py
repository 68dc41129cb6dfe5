"""The release of a course to a class: three kinds of copies of its lessons, made from the same notebooks.

``student`` has no outputs and no ``<details>`` blocks, in which the lessons fold their solutions. ``challenge`` is the
same with less help: no hints, and of an exercise's starting code only the signatures. ``instructor`` is complete, and
has a page with the predictions' outcomes, model answers and the quizzes' right answers.

A folder's ledger notes the kind, so that ``minips lab FOLDER`` renews the lessons there without adding solutions.
"""

import ast
import re
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from minips.lab.course.courses import Course, chosen, installed, lesson_of
from minips.lab.course.exercises import HINTS_OFF
from minips.lab.course.lessons import (
    Copied,
    Lesson,
    Pages,
    arguments,
    blank,
    copies,
    copy_to,
    dumped,
    for_assistants,
    kind_of,
    lessons,
    read,
    source,
    update,
)
from minips.lab.course.questions import PROMPTS, QUESTIONS, QUIZZES, Estimate, Item, Prompt, Question

ANSWERS, RUBRIC = "ANSWERS.md", "RUBRIC.md"
"""The instructor's pages. The second one is what a course's function ``rubric.markdown`` returns."""
FOLD = re.compile(r"<(/?)details\b[^>]*>", re.IGNORECASE)
"""The tags around a folded block."""
BOOK_METADATA, CELL_METADATA = ("kernelspec", "language_info"), ("jupyter", "tags")
"""The metadata that a learner's copy keeps: what Jupyter needs to run a notebook, and to fold a cell's code."""
NO_HINTS = f"# This copy is a challenge: it gives no hints.\n%env {'='.join(HINTS_OFF)}"
"""The source of the cell that is added to a challenge."""


class Kind(NamedTuple):
    """The contents of a class' folder, in words and as pages."""

    about: str
    pages: Callable[[Course], Pages]


def release(folder: Path, course: Course) -> dict[str, Copied]:
    """Write each of the `KINDS` into a folder of its name. OSError if a folder cannot be written."""
    return {name: update(folder / name, course, one.pages(course), name) for name, one in KINDS.items()}


def copy_lessons(folder: Path, course: Course | None = None, *, outputs: bool = False) -> Copied:
    """Copy a course's lessons as `copy_to` does; renew a class' folder with the same kind.

    ValueError if ``outputs`` are asked for in a class' folder. OSError if the folder cannot be written.
    """
    course, name = course or chosen(), kind_of(folder)
    if name not in KINDS:
        return copy_to(folder, course, outputs=outputs)
    if outputs:
        raise ValueError(f"{folder} has the {name} copies of a class. Name another folder for --outputs.")
    return update(folder, course, KINDS[name].pages(course), name)


def learners(course: Course, reduce: Callable[[dict[str, Any]], object] | None = None) -> Pages:
    """Return the copies without outputs and solutions; ``reduce`` may take more from each notebook."""

    def notebook(path: Path) -> bytes:
        book = blank(read(path))
        remove_solutions(book)
        if reduce:
            reduce(book)
        return dumped(book)

    def page(path: Path) -> bytes:
        return without_folded(path.read_text(encoding="utf-8")).encode()

    return copies(course, notebook, page) | for_assistants()


def instructors(course: Course) -> Pages:
    """Return the complete copies, the page of answers and, if the course has a module ``rubric``, its page."""
    pages = copies(course, Path.read_bytes) | {ANSWERS: answers(course).encode()}
    package = next((package for package, known in installed().items() if known is course), None)
    if package and find_spec(f"{package}.rubric"):
        pages[RUBRIC] = import_module(f"{package}.rubric").markdown().encode()
    return pages


def remove_solutions(book: dict[str, Any]) -> None:
    """Remove from a notebook the folded blocks, their pictures, and all metadata that it can do without. A cell that
    contains nothing else is removed, too.
    """
    kept = []
    for cell in book["cells"]:
        if cell["cell_type"] != "code":
            text = without_folded(source(cell))
            if not text and source(cell):
                continue
            cell["source"] = text.splitlines(keepends=True)
            pictures = cell.pop("attachments", {})
            if shown := {name: data for name, data in pictures.items() if f"attachment:{name}" in text}:
                cell["attachments"] = shown
        cell["metadata"] = _only(CELL_METADATA, cell["metadata"])
        kept.append(cell)
    book["cells"], book["metadata"] = kept, _only(BOOK_METADATA, book["metadata"])


def _only(names: tuple[str, ...], metadata: dict[str, Any]) -> dict[str, Any]:
    return {name: metadata[name] for name in names if name in metadata}


def without_folded(text: str) -> str:
    r"""Return a text without its ``<details>`` blocks. A block that is not closed reaches to the end.

    >>> without_folded("Add them.\n\n<details><summary>A solution</summary>\n\nsum(x)\n</details>\n\nNext:")
    'Add them.\n\nNext:'
    """
    kept, depth, end = [], 0, 0
    for tag in FOLD.finditer(text):
        if not depth:
            kept.append(text[end : tag.start()])
        depth, end = max(0, depth + (-1 if tag[1] else 1)), tag.end()
    if not end:
        return text
    if not depth:
        kept.append(text[end:])
    return "\n\n".join(part.strip("\n") for part in kept if part.strip())


def remove_help(book: dict[str, Any]) -> None:
    """Reduce the starting code of a notebook's exercises to its signatures, and turn the hints off."""
    for cell in starting_code(book["cells"]):
        cell["source"] = signatures(source(cell)).splitlines(keepends=True)
    for cell in book["cells"]:
        if cell["cell_type"] == "markdown":
            parts = [part for part in source(cell).split("\n\n") if "lab.hint(" not in part]
            cell["source"] = "\n\n".join(parts).splitlines(keepends=True)
    book["cells"] = [cell for cell in book["cells"] if cell["cell_type"] == "code" or source(cell)]
    added: dict[str, Any] = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    if "id" in book["cells"][0]:
        added["id"] = "no-hints"
    book["cells"].insert(1, {**added, "source": NO_HINTS.splitlines(keepends=True)})


def starting_code(cells: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the cells that a learner completes: of each exercise, the cell with the check, and the cell before it if
    that is code which is not tagged ``given``.
    """
    for before, cell in zip([None, *cells], cells, strict=False):
        if arguments(cell, "check"):
            if before and before["cell_type"] == "code" and "given" not in before["metadata"].get("tags", []):
                yield before
            yield cell


def signatures(code: str) -> str:
    r"""Return code with ``...`` in place of what its functions do. Their docstrings stay; other code does, too.

    >>> print(signatures("class Server:\n    staleness = 2\n\n    def handle(self, message):\n        return []"))
    class Server:
        staleness = 2
    <BLANKLINE>
        def handle(self, message):
            ...
    """
    try:
        tree = ast.parse(code)
    except SyntaxError:  # a cell with a magic, say
        return code
    lines = code.splitlines()
    for function in reversed([*_functions(tree)]):
        body = function.body[ast.get_docstring(function) is not None :]
        if not body:
            continue
        first = body[0]
        head = lines[first.lineno - 1].encode()[: first.col_offset].decode()  # the offset counts bytes
        start = min([first.lineno, *(one.lineno for one in getattr(first, "decorator_list", []))]) - 1
        while not head.strip() and (not lines[start - 1].strip() or lines[start - 1].lstrip().startswith("#")):
            start -= 1
        lines[start : body[-1].end_lineno] = [f"{head}..."]
    return "\n".join(lines)


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions and methods in order, without those inside another one."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        else:
            yield from _functions(node)


def answers(course: Course) -> str:
    """Return the instructor's page: for each lesson, its predictions' outcomes, its model answers and its quiz."""
    return "\n\n".join([f"# Answers: {course.title}", ABOUT, *(text for one in lessons(course) for text in _of(one))])


ABOUT = (
    "For teachers. The lessons' text assumes these outcomes of the predictions. The timed ones depend on the "
    "machine. A model answer is one good answer, and others are right, too. The notebooks beside this page have the "
    "exercises' solutions, folded in."
)


def _of(lesson: Lesson) -> Iterator[str]:
    questions = [question for key, question in QUESTIONS.items() if lesson_of(key) == lesson.word]
    prompts = [prompt for key, prompt in PROMPTS.items() if lesson_of(key) == lesson.word]
    quiz = QUIZZES.get(lesson.word, ())
    if questions or prompts or quiz:
        yield f"## {lesson.number} {lesson.title}"
    yield from _section("Predictions", [*map(_outcome, questions)])
    yield from _section("Model answers", [*map(_model, prompts)])
    yield from _section("Quiz", [*map(_explained, quiz)])


def _section(title: str, texts: list[str]) -> list[str]:
    return [f"### {title}", *texts] if texts else []


def _outcome(asked: Question | Estimate) -> str:
    if isinstance(asked, Estimate):
        outcome, why = f"from {asked.expected[0]:g} to {asked.expected[1]:g} {asked.unit}".rstrip(), asked.because
    else:
        outcome, why = next((one.text, one.because) for one in asked.choices if one.text == asked.expected)
    return f"**`{asked.key}`** {asked.text}\n\n> **{outcome}**{' (timed)' if asked.timed else ''}: {why}"


def _model(prompt: Prompt) -> str:
    return f"**`{prompt.key}`** {prompt.task}\n\n> {prompt.example}"


def _explained(item: Item) -> str:
    rows = [f"- {'✓' if one == item.right else '✗'} **{one}** {why}" for one, why in item.explained.items()]
    return "\n".join([f"{item.text}\n", *rows])


KINDS = {
    "student": Kind("without outputs and solutions: hand out this one", learners),
    "instructor": Kind(
        f"complete; {ANSWERS} has the predictions' outcomes, model answers and right answers", instructors
    ),
    "challenge": Kind(
        "as student, with less help: starting code is reduced to signatures, and there are no hints",
        partial(learners, reduce=remove_help),
    ),
}
"""The kinds of copies, by the names of their folders."""
