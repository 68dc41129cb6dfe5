"""The work that a class hands in: a folder for each student, with notebooks in it.

    class/
        ada/08_send_fewer_bits.ipynb
        ada/report.json
        bob/…

A notebook belongs to the lessons whose exercises its cells check, whatever its file is called. If a student has two of
one lesson, the newest counts. Everything here was written by students: a file may be huge, a link, or anything else.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from minips.lab.course import reports
from minips.lab.course.courses import Course, lesson_of
from minips.lab.course.exercises import EXERCISES
from minips.lab.course.questions import full_key
from minips.lab.course.slices import Check, Piece, checks, pieces

MOST_BYTES = 20 * 10**6
"""The largest notebook that is read."""
MOST_CODE = 200_000
"""The most characters of its code."""
CALL = re.compile(r"""lab\s*\.\s*check\(\s*["']([^"'\n]+)["']""")
"""Finds the keys of the checks in a cell that is not Python."""


@dataclass
class Notebook:
    """A notebook that could be read."""

    name: str
    digest: str
    """A hash of its file."""
    pieces: list[Piece]
    checks: dict[str, Check]
    """The last check of each exercise."""
    broken: dict[str, str]
    """Maps the exercises whose checks are in cells that are not Python to a sentence."""

    @property
    def keys(self) -> set[str]:
        """The exercises that it checks."""
        return {*self.checks, *self.broken}


@dataclass
class Student:
    """A student's folder."""

    name: str
    notebooks: dict[str, Notebook] = field(default_factory=dict)
    """Maps each lesson to its newest notebook."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """Maps the names of files that are not readable notebooks to sentences."""
    report: Path | None = None
    """The file that `lab.report` has written, if it was handed in."""
    notes: list[str] = field(default_factory=list)
    """Sentences about files that do not count."""


def students(folder: Path, course: Course) -> list[Student]:
    """Return the students of a class, by name. OSError if the folder cannot be read, ValueError if it has no students'
    folders.
    """
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is not a folder. Name the folder that has a folder for each student.")
    try:
        inside = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith((".", "__")))
    except OSError as error:
        raise OSError(f"{folder} cannot be read: {str(error.strerror).lower()}. Name another folder.") from None
    if not inside:
        raise ValueError(f"{folder} has no folders. It must have a folder for each student, with the notebooks in it.")
    return [_student(path, course) for path in inside]


def _student(folder: Path, course: Course) -> Student:
    student = Student(_name(folder))
    if folder.is_symlink():
        student.unreadable[student.name] = f"{student.name} is a link to another folder, and is not followed."
        return student
    try:
        paths = [path for path in folder.iterdir() if path.suffix == ".ipynb" and not path.name.startswith(".")]
        paths.sort(key=lambda path: (path.lstat().st_mtime_ns, path.name), reverse=True)
    except OSError as error:
        student.unreadable[student.name] = f"Its folder cannot be read: {str(error.strerror).lower()}."
        return student
    if os.path.lexists(folder / reports.DATA):
        student.report = folder / reports.DATA
    for path in paths:
        try:
            book = _notebook(path, course)
        except (OSError, ValueError) as error:
            student.unreadable[_name(path)] = str(error)
            continue
        for lesson in sorted({lesson_of(key) for key in book.keys}):
            if newer := student.notebooks.get(lesson):
                student.notes.append(f"{newer.name} counts for {lesson}: it is newer than {book.name}.")
            else:
                student.notebooks[lesson] = book
    return student


def _notebook(path: Path, course: Course) -> Notebook:
    """Read a notebook. ValueError and OSError say what is wrong in a sentence."""
    name = _name(path)
    if path.is_symlink() and not path.resolve().is_relative_to(path.parent.resolve()):
        raise ValueError(f"{name} is a link to a file outside the student's folder, and is not followed.")
    if not path.is_file():
        raise ValueError(f"{name} is not a file.")
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise OSError(f"{name} cannot be read: {str(error.strerror).lower()}.") from None
    if len(content) > MOST_BYTES:
        raise ValueError(f"{name} is larger than {MOST_BYTES // 10**6} MB, and is not read.")
    try:
        cells = [*_code(json.loads(content))]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError(f"{name} is not a notebook of the kind that JupyterLab writes (nbformat 4).") from None
    if sum(len(text) for _, text in cells) > MOST_CODE:
        raise ValueError(f"{name} has more than {MOST_CODE} characters of code, and is not read.")
    found = pieces(cells)
    known = {key: key for key in EXERCISES if course.prefix in ("", key[: len(course.prefix)])}
    last = {known[key]: check for check in checks(found) if (key := full_key(check.key)) in known}
    wrong = {piece.cell: piece.error for piece in found if piece.error}
    broken = {
        key: f"Cell {cell} is not Python: {wrong[cell]}."
        for cell, text in cells
        if cell in wrong
        for key in map(full_key, CALL.findall(text))
        if key in known and (key not in last or last[key].cell < cell)
    }
    return Notebook(name, hashlib.sha256(content).hexdigest(), found, last, broken)


def _name(path: Path) -> str:
    """Return the name of a file, with escapes for what a terminal would obey or could not show: no two are alike."""
    return "".join(
        one if one.isprintable() and one != "\\" else one.encode("unicode_escape").decode() for one in path.name
    )


def _code(book: Any) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each code cell. KeyError, TypeError or ValueError if it is not a notebook."""
    for number, cell in enumerate(book["cells"], 1):
        text = cell["source"]
        text = text if isinstance(text, str) else "".join(text)
        if cell["cell_type"] == "code":
            yield number, text
