"""The learner's progress through the lessons: a table, and a page (one HTML file) of all predictions, measurements and
answers.
"""

import datetime
import html
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from minips import files
from minips.lab.course import state
from minips.lab.course.courses import lesson_of
from minips.lab.course.lessons import Lesson, lessons
from minips.lab.course.milestones import passed
from minips.lab.course.questions import NONE, QUESTIONS
from minips.lab.course.verdicts import CSS as PICTURES
from minips.lab.course.verdicts import from_note, result
from minips.results.tables import align, html_rows

FILE = "report.html"
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
    """The file that was written; a notebook shows a link to it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"Your report is in {self.path}."

    def _repr_html_(self) -> str:
        way = quote(Path(os.path.relpath(self.path)).as_posix())  # the path relative to the notebook
        return f"<p>Your report is in <a href='{way}' target='_blank'>{html.escape(str(self.path))}</a>.</p>"


def report(folder: str | Path = ".", *, name: str = "") -> Written:
    """Write ``report.html``, a page of all predictions, measurements and answers so far, into a folder. ``name`` is the
    learner's; the page has a field for it, which is printed as it is filled in.
    """
    path = Path(folder) / FILE
    files.write(path, "\n".join(_page(name)))
    return Written(path)


def _page(name: str) -> Iterator[str]:
    yield "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>minips: my report</title>"
    yield f"<meta name='viewport' content='width=device-width'><style>{PICTURES}{CSS}</style></head><body><main>"
    yield f"<h1>My report</h1><p><label>Name: <input value='{html.escape(name, quote=True)}'></label></p>"
    yield f"<p><small>{datetime.date.today():%d %B %Y}</small></p>"
    kinds = {kind: state.noted(kind) for kind in state.KINDS}
    begun = state.begun() if any(kinds.values()) else []
    if not begun:
        yield "<p>Nothing was predicted or answered yet.</p>"
    for course in begun:
        yield f"<h2>{html.escape(course.title)}</h2>"
        for lesson in lessons(course):
            own = {
                kind: {key: fact for key, fact in noted.items() if lesson_of(key) == lesson.word}
                for kind, noted in kinds.items()
            }
            if any(own.values()):
                yield f"<h3>{lesson.number} {html.escape(lesson.title)}</h3>"
                yield from _lesson(lesson.exercises, own)
    yield from (f"<p>{words}</p>" for words in _milestones())
    yield from (f"<p><small>{words}</small></p>" for words in _aside())
    yield "</main></body></html>"


def _aside() -> list[str]:
    """Return a sentence that counts the notes of no installed lesson; an empty list if every note has a lesson."""
    count = state.set_aside()
    notes = "1 note belongs" if count == 1 else f"{count} notes belong"
    return [f"{notes} to no lesson of a course that is installed, and is left out here."] if count else []


def _milestones() -> list[str]:
    """Return a sentence that names the milestones that the learner's own server has passed; an empty list if none."""
    done = passed()
    return [f"Milestones of your own server: {', '.join(done)}."] if done else []


def _lesson(exercises: list[str], own: dict[str, dict[str, dict[str, str]]]) -> Iterator[str]:
    for key, fact in own["question"].items():
        if asked := QUESTIONS.get(key):
            predicted, measured = fact.get("predicted", ""), fact.get("measured", "")
            yield result(asked, predicted, measured, from_note(fact.get("values", "")))
    for fact in own["answer"].values():
        yield f"<p><b>{html.escape(fact.get('task', ''))}</b></p>"
        yield f"<pre tabindex='0'>{html.escape(fact.get('table', ''))}</pre>"
        yield f"<blockquote>{html.escape(fact.get('text', ''))}</blockquote>"
    done = [key for key in exercises if key in own["exercise"]]
    yield f"<p>Exercises: {', '.join(done) or 'none'} done, of {len(exercises)}.</p>"
    for fact in own["quiz"].values():
        yield f"<p>Quiz: {html.escape(fact.get('right', ''))} right at the first answer.</p>"


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
        return "\n".join([*align(self.table(), "<"), *_milestones(), *_aside()])

    def _repr_html_(self) -> str:
        (head, *body), left = self.table(), "text-align:left"
        aside = "".join(f"<p>{words}</p>" for words in (*_milestones(), *_aside()))
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
