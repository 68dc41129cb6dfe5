"""The learner's progress through the lessons: a table, and a page (one HTML file) of all predictions, measurements and
answers, with the same as JSON beside it, see `minips.lab.course.portfolio`.
"""

import html
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from minips import files
from minips.lab.course import state
from minips.lab.course.lessons import Lesson, lessons
from minips.lab.course.milestones import passed
from minips.lab.course.portfolio import LessonWork, Portfolio
from minips.lab.course.questions import NONE, QUESTIONS
from minips.lab.course.verdicts import CSS as PICTURES
from minips.lab.course.verdicts import result
from minips.results.tables import align, html_rows
from minips.words import check_type

FILE, DATA = "report.html", "report.json"
CSS = """
:root {color-scheme: light dark}
body {font: 15px/1.5 system-ui, sans-serif; max-width: 50em; margin: 2em auto; padding: 0 1em;
    background: light-dark(#fff, #16181c); color: light-dark(#1b1f24, #e3e6ea)}
h2 {margin-top: 1.6em} h3 {margin: 2em 0 .6em; padding-top: .6em; border-top: 1px solid light-dark(#d0d5db, #3a3f46)}
.minips-result {margin: 0 0 1.4em}
.minips-result.minips-result {max-width: none}
pre {overflow-x: auto; padding: .6em; background: light-dark(#f3f5f7, #22262c)}
blockquote {margin: .5em 0 1.5em; padding-left: 1em; border-left: 4px solid light-dark(#0072b2, #56b4e9)}
small {color: light-dark(#57606a, #9aa4ae)}
input {font: inherit; color: inherit; width: 20em; max-width: 70%; padding: .2em 0; border: 0; background: none;
    border-bottom: 1px solid light-dark(#6b747e, #8b95a0)}
h2, h3, small {break-after: avoid}
@media print {
    :root {color-scheme: light} body {margin: 0; max-width: none; font-size: 11pt} pre {white-space: pre-wrap}}
"""


class Written:
    """The files that were written; a notebook shows links to them."""

    def __init__(self, path: Path, data: Path) -> None:
        self.path, self.data = path, data

    def __repr__(self) -> str:
        return f"Your report is in {self.path}, and as data in {self.data}."

    def _repr_html_(self) -> str:
        return f"<p>Your report is in {_link(self.path)}, and as data in {_link(self.data)}.</p>"


def _link(path: Path) -> str:
    way = quote(Path(os.path.relpath(path)).as_posix())  # the path relative to the notebook
    return f"<a href='{way}' target='_blank'>{html.escape(str(path))}</a>"


def report(folder: str | Path = ".", *, name: str = "") -> Written:
    """Write ``report.html``, a page of all predictions, measurements and answers so far, into a folder, and
    ``report.json``, the same as data, see `minips.lab.course.portfolio` for its fields. Both list what is missing in
    the lessons that were begun. ``name`` is the learner's; the page has a field for it, which is printed as it is
    filled in. OSError if a file cannot be written, and then neither is.
    """
    check_type("lab.report(name=…)", name, str, "a text: the learner's name")
    work = Portfolio.of_notes(name)
    written = Written(Path(folder) / FILE, Path(folder) / DATA)
    for path in (written.path, written.data):
        files.check(path)  # so that neither is written if one cannot be
    files.write(written.path, "\n".join(_page(work)))
    files.write(written.data, json.dumps(work.to_dict(), indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    return written


def _page(work: Portfolio) -> Iterator[str]:
    yield "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>minips: my report</title>"
    yield f"<meta name='viewport' content='width=device-width'><style>{PICTURES}{CSS}</style></head><body><main>"
    yield f"<h1>My report</h1><p><label>Name: <input value='{html.escape(work.name, quote=True)}'></label></p>"
    yield f"<p><small>{work.date:%d %B %Y}</small></p>"
    if not work.courses:
        yield "<p>Nothing was predicted or answered yet.</p>"
    for course in work.courses:
        yield f"<h2>{html.escape(course.title)}</h2>"
        for lesson in course.lessons:
            yield f"<h3>{lesson.number} {html.escape(lesson.title)}</h3>"
            yield from _lesson(lesson)
    yield from (f"<p>{words}</p>" for words in _milestones(work.milestones))
    yield "<h2>Incomplete</h2>"
    missing = "".join(f"<li>{html.escape(words)}</li>" for words in work.incomplete)
    yield f"<ul>{missing}</ul>" if missing else "<p>Nothing is missing in the lessons that were begun.</p>"
    yield from (f"<p><small>{words}</small></p>" for words in _aside(work.left_out))
    yield "</main></body></html>"


def _lesson(work: LessonWork) -> Iterator[str]:
    for one in work.predictions:
        yield result(one.asked, one.predicted, one.measured, one.values)
    for answer in work.answers:
        yield f"<p><b>{html.escape(answer.task)}</b></p>"
        yield f"<pre tabindex='0'>{html.escape(answer.evidence)}</pre>"
        yield f"<blockquote>{html.escape(answer.text)}</blockquote>"
    yield f"<p>Exercises: {', '.join(work.done) or 'none'} done, of {len(work.done) + len(work.open)}.</p>"
    if work.quiz:
        yield f"<p>Quiz: {work.quiz.right} of {work.quiz.of} right at the first answer.</p>"


def _aside(count: int) -> list[str]:
    """Return a sentence that counts the notes of no installed lesson; an empty list if every note has a lesson."""
    notes = "1 note belongs" if count == 1 else f"{count} notes belong"
    return [f"{notes} to no lesson of a course that is installed, and is left out here."] if count else []


def _milestones(done: list[str]) -> list[str]:
    """Return a sentence that names the milestones that the learner's own server has passed; an empty list if none."""
    return [f"Milestones of your own server: {', '.join(done)}."] if done else []


class Row(NamedTuple):
    """The progress through one lesson."""

    lesson: Lesson
    passed: list[str]
    predictions: int
    right: int


class Transcript:
    """A table with a row for each lesson: the exercises passed, the predictions made, and how many came true. If there
    are several courses, each course's title is above its lessons. Below, the milestones passed and the notes left out.
    """

    def __init__(self) -> None:
        passed, guessed = state.noted("exercise"), state.noted("question")
        self.set_aside = state.set_aside()
        self.courses: list[tuple[str, list[Row]]] = []
        """Each course's title, and the rows of its lessons."""
        for course in state.begun():
            rows: list[Row] = []
            self.courses.append((course.title, rows))
            for lesson in lessons(course):
                guesses = [guessed[question] for question in lesson.questions if question in guessed]
                right = sum(came_true(guess) for guess in guesses)
                done = [key for key in lesson.exercises if key in passed]
                rows.append(Row(lesson, done, len(guesses), right))

    def table(self) -> list[tuple[str, str, str]]:
        """Return the rows as text, under their headings."""
        rows = [("lesson", "exercises", "predictions")]
        for title, of_course in self.courses:
            rows += [(title, "", "")] if len(self.courses) > 1 else []
            rows += map(_as_text, of_course)
        return rows

    def __repr__(self) -> str:
        return "\n".join([*align(self.table(), "<"), *_milestones(passed()), *_aside(self.set_aside)])

    def _repr_html_(self) -> str:
        (head, *body), left = self.table(), "text-align:left"
        aside = "".join(f"<p>{words}</p>" for words in (*_milestones(passed()), *_aside(self.set_aside)))
        return f"<table>{html_rows([head], 3, left)}{html_rows(body, 0, left)}</table>{aside}"


def _as_text(row: Row) -> tuple[str, str, str]:
    lesson, passed, predictions, right = row
    done = f"{len(passed)} of {len(lesson.exercises)}"
    named = f" ({', '.join(passed)})" if passed else ""
    came_true = f", {right} came true" if predictions else ""
    title = f"{lesson.number} {lesson.title}".strip()
    return title, done + named, f"{predictions} of {len(lesson.questions)}{came_true}"


def came_true(guess: dict[str, str]) -> bool:
    """Return True if the note of a prediction says that it came true."""
    asked = QUESTIONS.get(guess["question"])
    return asked is not None and asked.agrees(guess.get("predicted", ""), guess.get("measured", NONE))


def progress() -> Transcript:
    """Return the progress through each lesson."""
    return Transcript()
