"""Write the tables of lessons into the course's page: `python tests/course_page.py`, after a lesson has changed.

Each row says what the lesson's own first cell says, so that the page and the notebooks cannot differ.
"""

import re
from pathlib import Path
from typing import NamedTuple

import nbformat
from minutes import LESSONS

PAGE = LESSONS / "README.md"
PARTS = {
    "I. A parameter server": range(5),
    "II. Fewer bytes": range(5, 12),
    "III. Waiting and trust": range(12, 17),
    "IV. Cost": range(17, 21),
}
WAYS = {
    "an afternoon": [0, 1, 3, 8, 14, 17],
    "a week": [*range(17)],
    "all of it": [*range(21)],
}
BEGIN, END = "<!-- tests/course_page.py writes what follows -->", "<!-- and it ends here -->"
FIRST = re.compile(
    r"# (?P<title>.+)\n\n\*\*The question\.\*\* (?P<question>.+)\n(?s:.+)"
    r"\*\*What you need\.\*\* (?P<needs>.+)\n\n\*\*How long\.\*\* About (?P<core>\d+) minutes, and (?P<homework>\d+) "
)


class Row(NamedTuple):
    """A lesson's row."""

    path: Path
    title: str
    question: str
    needs: list[str]
    core: int
    homework: int

    @property
    def number(self) -> int:
        return int(self.path.name[:2])

    def __str__(self) -> str:
        needs = ", ".join(self.needs) or "nothing"
        link = f"[{self.path.name[:2]} {self.title}]({self.path.name})"
        return f"| {link} | {self.question} | {self.core} + {self.homework} | {needs} |"


def row(path: Path) -> Row:
    """What the first cell of a lesson says."""
    found = FIRST.match(nbformat.read(path, as_version=4).cells[0].source)
    assert found, path.name
    needs = sorted({*re.findall(r"\b\d\d\b", found["needs"])})
    return Row(path, found["title"], found["question"], needs, int(found["core"]), int(found["homework"]))


def tables() -> str:
    """All tables of the page."""
    rows = {one.number: one for one in map(row, sorted(LESSONS.glob("[0-9]*.ipynb")))}
    lines = ["| way | lessons | hours, without homework |", "|---|---|---|"]
    for way, numbers in WAYS.items():
        hours = sum(rows[number].core for number in numbers) / 60
        listed = f"{numbers[0]:02} to {numbers[-1]:02}"
        if numbers != [*range(numbers[0], numbers[-1] + 1)]:
            listed = ", ".join(f"{number:02}" for number in numbers)
        lines.append(f"| {way} | {listed} | {hours:.1f} |")
    for part, numbers in PARTS.items():
        lines += ["", f"### {part}", "", "| lesson | its question | minutes, and homework | builds on |"]
        lines += ["|---|---|---|---|", *(str(rows[number]) for number in numbers)]
    return "\n".join(lines)


def with_tables(page: str) -> str:
    """The page, with the tables as they should be."""
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert end, "the page has lost the marks between which the tables stand"
    return f"{before}{BEGIN}\n\n{tables()}\n\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
