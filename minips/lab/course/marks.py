"""Grade the exercises of a class: a mark for each student and exercise, as a table and with all reasons.

`read_class` says what is graded: each student's answer to each exercise of the lessons of which somebody handed in a
notebook. A mark is one of

- ``done``: the check accepted the answer;
- ``not yet``: it refused the answer; the words say why;
- ``blocked``: the answer could not be judged, and a person should look: it is not Python, exceeds a limit, changes or
  reaches around its check, or its notebook cannot be read;
- ``missing``: there is no notebook of the lesson, or no cell with ``lab.check("key", …)`` in it.

All students get the same inputs, drawn from the seed and the exercise's key. `Ledger` is the JSON file, which keeps
each mark as soon as there is one: an interrupted command goes on where it was, and a changed notebook is graded anew.
"""

import ast
import csv
import hashlib
import inspect
import io
import json
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from minips import __version__, files
from minips.lab.course.class_report import class_report
from minips.lab.course.courses import Course, installed, lesson_of
from minips.lab.course.exercises import EXERCISES
from minips.lab.course.graders import Grader
from minips.lab.course.handed_in import Student, students
from minips.lab.course.lessons import read, source
from minips.lab.course.reaching import reaches
from minips.lab.course.running import Marked, missing_protections
from minips.lab.course.slices import needed, pieces, program

AT_A_TIME = 2
"""The exercises that run at the same time."""
SAVE_S = 1.0
"""Seconds between two writes of the ledger."""
FORMAT = "minips marks 1"
DRAWN = 2**31
"""Seeds are drawn below it."""

Report = Callable[[int, int, str], None]
"""Takes the number of marks, the number of them at the end, and what is graded now."""


@dataclass(frozen=True)
class Task:
    """A student's answer to an exercise."""

    student: str
    key: str
    cells: list[tuple[int, str]]
    """The texts that the answer needs, by their cells."""
    answer: str
    notebook: str
    digest: str


class Ledger:
    """The marks in a JSON file, which an interrupted command left. A file of another kind is replaced."""

    def __init__(self, path: Path, seed: int | None) -> None:
        self.path = path
        before: dict[str, Any] = {}
        with suppress(OSError, ValueError, RecursionError):
            found = json.loads(path.read_text(encoding="utf-8"))
            before = found if isinstance(found, dict) and found.get("format") == FORMAT else {}
        unfinished = before.get("seed") if before.get("complete") is False else None
        seeds = (one for one in (seed, unfinished, secrets.randbelow(DRAWN)) if one is not None)
        self.seed: int = next(seeds)
        self.protections: list[str] = before.get("protections", [])
        """Those of the sandbox that gave the marks."""
        self._kept: dict[str, Any] = {}
        for marks in before.get("students", {}).values():
            for mark in marks.get("marks", {}).values():
                if mark.get("kept"):
                    self._kept[mark["kept"]] = mark

    def key(self, task: Task) -> str:
        """Return what a mark depends on, as a hash."""
        test = EXERCISES[task.key].test
        parts = [task.digest, task.key, str(self.seed), __version__, _digest(test)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]

    def known(self, task: Task) -> dict[str, Any] | None:
        """Return the mark that was kept for this answer."""
        mark: dict[str, Any] | None = self._kept.get(self.key(task))
        return mark


def _digest(test: Any) -> str:
    """Return a hash of the module of an exercise's check."""
    file = inspect.getsourcefile(inspect.unwrap(test))
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""


@dataclass
class Marks:
    """The marks of a class: by student, and then by exercise, what stands in the JSON."""

    seed: int
    exercises: list[str]
    students: dict[str, dict[str, Any]]
    protections: list[str]
    questions: dict[str, Any]
    """The statistics of the class' predictions, quizzes and answers, see `class_report`."""
    complete: bool = False

    @property
    def lacking(self) -> list[str]:
        """Sentences about what the sandbox does not hold on this machine; none if no answer ran."""
        return missing_protections(self.protections) if self.protections else []

    def rows(self) -> Iterator[list[str]]:
        """Yield the rows of the table: a head, and a row for each student."""
        yield ["student", *self.exercises, "done"]
        for name, student in self.students.items():
            marks = [student["marks"].get(key, {}).get("mark", "") for key in self.exercises]
            yield [_text(name), *marks, str(marks.count("done"))]

    def csv(self) -> str:
        """Return the table as CSV."""
        written = io.StringIO()
        csv.writer(written, lineterminator="\n").writerows(self.rows())
        return written.getvalue()

    def to_dict(self) -> dict[str, Any]:
        """Return what stands in the JSON."""
        return {
            "format": FORMAT,
            "minips": __version__,
            "complete": self.complete,
            "seed": self.seed,
            "exercises": self.exercises,
            "protections": self.protections,
            "lacking": self.lacking,
            "students": self.students,
            "questions": self.questions,
        }

    def summary(self) -> str:
        """Return a sentence with the numbers of the marks."""
        every = [mark["mark"] for student in self.students.values() for mark in student["marks"].values()]
        counts = [f"{every.count(kind)} {kind}" for kind in ("done", "not yet", "blocked", "missing")]
        return f"Students: {len(self.students)}, exercises: {len(self.exercises)}; marks: {', '.join(counts)}."

    def save(self, path: Path) -> None:
        """Write the JSON."""
        files.write(path, json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n")


def _text(cell: str) -> str:
    """Return the text of a cell that a spreadsheet does not take for a formula."""
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


@dataclass(frozen=True)
class Class:
    """The work of a class, and the exercises in which its students get marks."""

    course: Course
    students: list[Student]
    exercises: list[str]

    @property
    def lessons(self) -> set[str]:
        """The lessons of which somebody handed in a notebook."""
        return {lesson for student in self.students for lesson in student.notebooks}


def read_class(folder: Path, course: Course) -> Class:
    """Read the notebooks of a class. OSError and ValueError if there is nothing to grade, or it cannot be read."""
    class_ = Class(course, students(folder, course), [])
    for word in course.words:
        if word in class_.lessons:
            class_.exercises.extend(key for key in EXERCISES if lesson_of(key) == word)
    if not class_.exercises:
        raise ValueError(
            f"No notebook in {folder} checks an exercise of the course {course.name!r}. Name the folder that has a "
            "folder for each student, or another course with --course."
        )
    return class_


def grade(class_: Class, ledger: Ledger, report: Report) -> Marks:
    """Grade the exercises of a class, and write the marks to the ledger's file as they come.
    RuntimeError if the sandbox does not start.
    """
    keys = class_.exercises
    reports = class_report(student.report for student in class_.students if student.report)
    marks = Marks(ledger.seed, keys, {}, ledger.protections, reports.to_dict())
    todo: list[Task] = []
    for student in class_.students:
        found: dict[str, Any] = {}
        for key in keys:
            task = _task(student, key)
            known = ledger.known(task) if isinstance(task, Task) else None
            if isinstance(task, Marked):
                found[key] = _entry(task)
            elif known:
                found[key] = known
            else:
                todo.append(task)
        marks.students[student.name] = {
            "notebooks": {lesson: book.name for lesson, book in sorted(student.notebooks.items())},
            "notes": [*student.notes, *student.unreadable.values()],
            "marks": found,
        }
    total = len(class_.students) * len(keys)
    report(total - len(todo), total, "")
    _run(todo, [*_modules(class_)], marks, ledger, report)
    for student in class_.students:
        entry = marks.students[student.name]
        entry["marks"] = {key: entry["marks"][key] for key in keys}
        entry["done"] = sum(mark["mark"] == "done" for mark in entry["marks"].values())
    marks.complete = True
    marks.save(ledger.path)
    return marks


def _task(student: Student, key: str) -> Task | Marked:
    """Return what runs for a student's answer, or its mark if nothing does."""
    book = student.notebooks.get(lesson_of(key))
    if book is None:
        if student.unreadable:
            return Marked("blocked", " ".join(student.unreadable.values()))
        return Marked("missing", f"There is no notebook of the lesson {lesson_of(key)}.")
    if key in book.broken:
        return Marked("blocked", f"{book.broken[key]} It is the cell of the check.")
    if key not in book.checks:
        return Marked("missing", f'{book.name} has no cell with lab.check("{key}", …).')
    check = book.checks[key]
    chosen = needed(book.pieces, check)
    for piece in chosen:
        if piece.error:
            return Marked("blocked", f"Cell {piece.cell}, which the answer needs, is not Python: {piece.error}.")
    if EXERCISES[key].beside and (why := reaches(chosen, check.answer, [*installed()])):
        return Marked("blocked", why)
    try:
        answer = ast.unparse(check.answer)
    except RecursionError:
        return Marked("blocked", f"Cell {check.cell} is nested too deeply.")
    return Task(student.name, key, program(chosen), answer, book.name, book.digest)


def _entry(outcome: Marked, task: Task | None = None, kept: str = "") -> dict[str, Any]:
    entry: dict[str, Any] = {**asdict(outcome), "seconds": round(outcome.seconds, 2)}
    if task:
        entry |= {"notebook": task.notebook, "cells": [cell for cell, _ in task.cells], "kept": kept}
    return entry


def _modules(class_: Class) -> Iterator[str]:
    """Yield the modules that the original notebooks of the lessons import, and that are installed."""
    named: set[str] = set()
    for word, path in class_.course.paths().items():
        if word in class_.lessons:
            cells = [(i, source(cell)) for i, cell in enumerate(read(path)["cells"]) if cell["cell_type"] == "code"]
            for piece in pieces(cells):
                match piece.node:
                    case ast.Import(names=aliases):
                        named.update(alias.name for alias in aliases)
                    case ast.ImportFrom(module=str(module)):
                        named.add(module)
    yield from (name for name in sorted(named) if find_spec(name.partition(".")[0]))


def _run(todo: Sequence[Task], modules: Sequence[str], marks: Marks, ledger: Ledger, report: Report) -> None:
    """Grade what is left, some at a time, and write down each mark as it comes."""
    tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
    ended: queue.SimpleQueue[tuple[Task, Marked] | Exception] = queue.SimpleQueue()
    for task in todo:
        tasks.put(task)

    def work(grader: Grader) -> None:
        try:
            marks.protections = grader.protections()
            with suppress(queue.Empty):
                while True:
                    task = tasks.get_nowait()
                    ended.put((task, grader.grade(task.key, task.cells, task.answer, ledger.seed)))
        except Exception as error:
            ended.put(error)

    total, saved = len(marks.students) * len(marks.exercises), time.monotonic()
    threads = []
    try:
        with ExitStack() as stack:
            for _ in range(min(AT_A_TIME, len(todo))):
                grader = stack.enter_context(Grader(modules))
                threads.append(threading.Thread(target=work, args=(grader,), daemon=True))
                threads[-1].start()
            for number in range(len(todo)):
                came = ended.get()
                if isinstance(came, Exception):
                    raise came
                task, outcome = came
                marks.students[task.student]["marks"][task.key] = _entry(outcome, task, ledger.key(task))
                report(total - len(todo) + number + 1, total, f"{task.student} {task.key}")
                if time.monotonic() > saved + SAVE_S:
                    marks.save(ledger.path)
                    saved = time.monotonic()
    finally:
        for thread in threads:
            thread.join()
        marks.save(ledger.path)
