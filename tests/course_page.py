"""Write the tables of lessons into the course's page, and the picture of the path: `python tests/course_page.py`, after
a lesson has changed.

Each row says what the lesson's own first cell says, so that the page and the notebooks cannot differ.
"""

import re
from typing import NamedTuple

import course_path
from minutes import LESSONS

from minips.lab.course import start
from minips.lab.course.lessons import Lesson, read, source
from minips_course import course

PAGE = LESSONS / "README.md"
BEGIN, END = "<!-- tests/course_page.py writes what follows -->", "<!-- and it ends here -->"
AFTERWARDS = {
    "an afternoon": "say what travels in a training step, write a server's round, and choose who waits for whom",
    "a week": "write every stage of a parameter server, compare schemes fairly, and train beside slow or lying workers",
    "all of it": "predict a run's cost, do without a server, put a codec into DDP, and train through whatever dies",
}
"""What a learner can do after each way."""
NEEDS = re.compile(r"\*\*What you need\.\*\* (.+)\n")


class Row(NamedTuple):
    """A lesson's row."""

    lesson: Lesson
    needs: list[str]

    @property
    def core(self) -> int:
        assert self.lesson.minutes, self.lesson.path.name
        return self.lesson.minutes[0]

    @property
    def homework(self) -> int:
        assert self.lesson.minutes, self.lesson.path.name
        return self.lesson.minutes[1]

    def __str__(self) -> str:
        assert self.lesson.question, self.lesson.path.name
        needs = ", ".join(self.needs) or "nothing"
        return f"| {start.link(self.lesson)} | {self.lesson.question} | {self.core} + {self.homework} | {needs} |"


def rows() -> dict[str, Row]:
    """What the first cell of each lesson says, by the lesson's word."""
    found = {}
    for word, standing in start.path().standings.items():
        needs = NEEDS.search(source(read(standing.lesson.path)["cells"][0]))
        assert needs, word
        found[word] = Row(standing.lesson, sorted({*re.findall(r"\b\d\d\b", needs[1])}))
    return found


def tables() -> str:
    """All tables of the page."""
    every = rows()
    lines = ["| way | lessons | hours, without homework | afterwards you can |", "|---|---|---|---|"]
    lines += [
        f"| {way.name} | {way.lessons} | {way.hours:.1f} | {AFTERWARDS[way.name]} |" for way in start.path().ways()
    ]
    for part, words in course.parts.items():
        lines += ["", f"### {part}", "", "| lesson | its question | minutes, and homework | builds on |"]
        lines += ["|---|---|---|---|", *(str(every[word]) for word in words)]
    return "\n".join(lines)


def with_tables(page: str) -> str:
    """The page, with the tables as they should be."""
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert end, "the page has lost the marks between which the tables stand"
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"


if __name__ == "__main__":
    course_path.PICTURE.write_text(course_path.drawn(), encoding="utf-8")
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
