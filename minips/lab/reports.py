"""The learner's page: predictions, measurements, answers and verdicts of all lessons, in one file of HTML."""

import datetime
import html
from collections.abc import Iterator
from pathlib import Path

from minips.core.tables import html_rows
from minips.lab import state
from minips.lab.course.questions import QUESTIONS, Estimate
from minips.lab.lessons import lessons

FILE = "report.html"
CSS = """
:root {color-scheme: light dark}
body {font: 15px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em;
    background: light-dark(#fff, #16181c); color: light-dark(#1b1f24, #e3e6ea)}
table {border-collapse: collapse; width: 100%; margin: .5em 0 1.5em}
th, td {text-align: left; vertical-align: top; padding: .35em .8em .35em 0;
    border-bottom: 1px solid light-dark(#d0d5db, #3a3f46)}
pre {overflow-x: auto; padding: .6em; background: light-dark(#f3f5f7, #22262c)}
blockquote {margin: .5em 0 1.5em; padding-left: 1em; border-left: 4px solid light-dark(#0072b2, #56b4e9)}
small {color: light-dark(#57606a, #9aa4ae)}
"""


class Written:
    """The file that was written; a notebook shows a link to it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"Your report is in {self.path.name}."

    def _repr_html_(self) -> str:
        return f"<p>Your report is in <a href='{html.escape(self.path.name)}' target='_blank'>{self.path.name}</a>.</p>"


def report(folder: str | Path = ".") -> Written:
    """Write ``report.html`` beside the notebooks, a page of all that was predicted, measured and answered so far."""
    path = Path(folder) / FILE
    path.write_text("\n".join(_page()), encoding="utf-8")
    return Written(path)


def _page() -> Iterator[str]:
    yield "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>minips: my report</title>"
    yield f"<meta name='viewport' content='width=device-width'><style>{CSS}</style></head><body>"
    yield f"<h1>My report</h1><p><small>{datetime.date.today():%d %B %Y}</small></p>"
    kinds = {kind: state.noted(kind) for kind in ("question", "answer", "exercise", "quiz")}
    if not any(kinds.values()):
        yield "<p>Nothing was predicted or answered yet.</p>"
    for lesson in lessons():
        own = {
            kind: {key: fact for key, fact in noted.items() if key[:2] == lesson.number}
            for kind, noted in kinds.items()
        }
        if any(own.values()):
            yield f"<h2>{lesson.number} {html.escape(lesson.title)}</h2>"
            yield from _lesson(lesson.exercises, own)
    if (aside := state.set_aside()) > 0:
        yield f"<p><small>{aside} older notes belong to no lesson that there is, and are left out.</small></p>"
    yield "</body></html>"


def _lesson(exercises: list[str], own: dict[str, dict[str, dict[str, str]]]) -> Iterator[str]:
    rows = []
    for key, fact in own["question"].items():
        if asked := QUESTIONS.get(key):
            unit = f" {asked.unit}" if isinstance(asked, Estimate) else ""
            predicted = f"{fact.get('predicted', '')}{unit}"
            measured = fact.get("measured", "not yet")
            rows.append((asked.text, predicted, measured, fact.get("values", ""), fact.get("verdict", "")))
    if rows:
        head = ("Question", "I predicted", "Measured", "Values", "Verdict")
        yield f"<table>{html_rows([head], len(head))}{html_rows(rows, 0)}</table>"
    for fact in own["answer"].values():
        yield f"<p><b>{html.escape(fact.get('task', ''))}</b></p><pre>{html.escape(fact.get('table', ''))}</pre>"
        yield f"<blockquote>{html.escape(fact.get('text', ''))}</blockquote>"
    done = [key for key in exercises if key in own["exercise"]]
    yield f"<p>Exercises: {', '.join(done) or 'none'} done, of {len(exercises)}.</p>"
    for fact in own["quiz"].values():
        yield f"<p>Quiz: {html.escape(fact.get('right', ''))} right at the first answer.</p>"
