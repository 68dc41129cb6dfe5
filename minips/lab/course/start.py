"""The start page of a course: a notebook with the playground and the path through the lessons.

minips writes it into a learner's folder whenever JupyterLab starts there. The page's text is the path with the ticks of
that moment, so that the page is complete before its one code cell is run. Running the cell starts the playground, and
shows the path with today's ticks in place of that text. JupyterLab selects a notebook's first cell: as the code is
first, one click on ▶ runs it.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from minips import files
from minips.lab.course import state
from minips.lab.course.courses import Course, chosen, named
from minips.lab.course.lessons import LANGUAGE, Lesson, lessons, read, source
from minips.results.tables import align

NAME = "START.ipynb"
CODE = """# Click ▶ above, or press Shift and Enter:
# a parameter server goes to work.
from minips import lab
from minips.lab.course import start

display(lab.playground(), start.path("{course}"))"""
"""The page's cell."""
ABOUT = (
    "In each lesson you predict a result, measure it, and solve an exercise that is checked at once. A lesson is done "
    "when its predictions, its exercise and its quiz are. Homework is extra, and takes the second number of minutes."
)
BAR = r"\|"
"""A bar in a cell of a table in Markdown."""
COVER = "<style>.minips-path {display: none}</style>"
"""Hides the page's text where its cell shows the same with today's ticks."""


class Standing(NamedTuple):
    """The progress through one lesson: how many of its tasks are done."""

    lesson: Lesson
    done: int

    @property
    def finished(self) -> bool:
        """True if all tasks are done; a lesson without tasks is never finished."""
        return self.done == len(self.lesson.core) > 0

    @property
    def tick(self) -> str:
        """The progress in a few characters."""
        if not self.done:
            return ""
        return "✓" if self.finished else f"{self.done}/{len(self.lesson.core)}"

    @property
    def minutes(self) -> str:
        """The minutes of the lesson and of its homework."""
        core, homework = self.lesson.minutes or (0, 0)
        return " + ".join(str(minutes) for minutes in (core, homework) if minutes)


class Way(NamedTuple):
    """A way through the course, and how many hours it takes without homework."""

    name: str
    lessons: str
    hours: float
    left: float
    """The hours of the lessons that are not finished yet."""


class CoursePath:
    """The path through a course: what comes next, the ways, and each lesson with its tick, question and minutes."""

    def __init__(self, course: Course) -> None:
        self.course = course
        noted = {kind: state.noted(kind) for kind in state.KINDS}
        self.standings = {
            lesson.word.removeprefix(course.prefix): Standing(
                lesson, sum(key in noted[kind] for kind, key in lesson.core)
            )
            for lesson in lessons(course)
        }
        """The progress through each lesson, by the lesson's name."""

    def ways(self) -> list[Way]:
        """Return the ways through the course."""
        return [self._way(name, [self.standings[word] for word in words]) for name, words in self.course.ways.items()]

    def _way(self, name: str, standings: list[Standing]) -> Way:
        minutes = [(one.lesson.minutes or (0, 0))[0] for one in standings]
        left = sum(one for one, standing in zip(minutes, standings, strict=True) if not standing.finished)
        return Way(name, range_words([one.lesson.number for one in standings]), sum(minutes) / 60, left / 60)

    def next(self) -> str:
        """Return a sentence about what comes next, as Markdown."""
        every = [*self.standings.values()]
        finished = sum(one.finished for one in every)
        todo = [one for one in every if one.lesson.core and not one.finished] or every[: not finished]
        if not todo:
            return (
                "You have finished the course. In a lesson, `lab.report()` writes your predictions, measurements and "
                "answers to one page. The homework and the playground are still open."
            )
        first = todo[0]
        so_far = f"You have finished {finished} of {len(every)} lessons. " if finished else ""
        begin = "Go on with" if finished or first.done else "Begin with"
        minutes = f", {first.lesson.minutes[0]} minutes" if first.lesson.minutes else ""
        return f"{so_far}{begin} {link(first.lesson)}{minutes}."

    def markdown(self) -> str:
        """Return the page's text."""
        return "\n".join(
            [f"# {self.course.title}", "", f"**{self.next()}**", "", ABOUT, "", *self._ways(), *self._lessons()]
        )

    def _ways(self) -> Iterator[str]:
        ways = self.ways()
        for way in ways:
            left = f", of which {way.left:.1f} are left" if way.left < way.hours else ""
            yield f"- **{way.name.capitalize()}**: {way.lessons}, {way.hours:.1f} hours{left}."
        yield from ("",) if ways else ()

    def _lessons(self) -> Iterator[str]:
        yield from ("| done | lesson | its question | minutes |", "|:---|:---|:---|:---|")
        for title, words in (self.course.parts or {"": self.course.lessons}).items():
            if title:
                yield f"| | **{title}** | | |"
            for one in map(self.standings.__getitem__, words):
                cells = (one.tick, link(one.lesson), one.lesson.question, one.minutes)
                yield f"| {' | '.join(cell.replace('|', BAR) for cell in cells)} |"

    def __repr__(self) -> str:
        rows = [("done", "lesson", "minutes")]
        rows += [(one.tick, name_of(one.lesson), one.minutes) for one in self.standings.values()]
        return "\n".join(line.rstrip() for line in align(rows, "<"))

    def _repr_markdown_(self) -> str:
        return f"{COVER}\n\n{self.markdown()}"


def path(course: str = "") -> CoursePath:
    """Return the path through the course with this name; "" is the default course. ValueError as in `named`."""
    return CoursePath(named(course) if course else chosen())


def name_of(lesson: Lesson) -> str:
    """Return the lesson's number and title."""
    return f"{lesson.number} {lesson.title}"


def link(lesson: Lesson) -> str:
    """Return a link to a lesson beside the page, as Markdown."""
    return f"[{name_of(lesson)}]({lesson.path.name})"


def range_words(numbers: list[str]) -> str:
    """Return lessons' numbers in words.

    >>> range_words(["00", "01", "03"]), range_words(["00", "01", "02", "03"])
    ('00, 01, 03', '00 to 03')
    """
    in_a_row = [int(number) - int(numbers[0]) for number in numbers] == [*range(len(numbers))]
    return f"{numbers[0]} to {numbers[-1]}" if in_a_row and len(numbers) > 3 else ", ".join(numbers)


def write(folder: Path, course: Course) -> bool:
    """Write the start page with today's ticks into a learner's folder. False if the learner has changed the page's
    cells: it stays as it is. The lessons' own folder gets no page. OSError if it cannot be written.
    """
    file = folder / NAME
    if folder.resolve() == course.notebooks.resolve():
        return True
    if file.exists() and not is_untouched(file):
        return False
    files.write(file, (json.dumps(notebook(course), indent=1, ensure_ascii=False) + "\n").encode())
    return True


def page(folder: Path, course: Course) -> str:
    """Return the name of the page to open in a folder: the start page or, if it has none, the first lesson."""
    return NAME if (folder / NAME).is_file() else lessons(course)[0].path.name


def notebook(course: Course) -> dict[str, Any]:
    """Return the start page as the JSON of a notebook."""
    text = f'<div class="minips-path">\n\n{CoursePath(course).markdown()}\n\n</div>'
    code: dict[str, Any] = {"cell_type": "code", "execution_count": None, "outputs": []}
    cells = [
        {**code, "id": "start", "metadata": {}, "source": CODE.format(course=course.name)},
        {"cell_type": "markdown", "id": "path", "metadata": {}, "source": text},
    ]
    metadata = {
        "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
        "language_info": LANGUAGE,
        "minips": {"start": _hash(cells)},
    }
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def is_untouched(file: Path) -> bool:
    """Return True for a start page whose cells are still those that minips wrote, whether they were run or not."""
    try:
        book = read(file)
        return bool(book["metadata"]["minips"]["start"] == _hash(book["cells"]))
    except (ValueError, KeyError, TypeError):
        return False


def _hash(cells: list[Any]) -> str:
    """Return a hash of the cells' texts. Blank cells do not count: JupyterLab adds one when the last cell is run."""
    texts = [source(cell) for cell in cells if source(cell).strip()]
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()
