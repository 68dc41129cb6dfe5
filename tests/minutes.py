"""The minutes of a lesson, by a rule: `python tests/minutes.py 05 08`, or all of them without a number.

words / 120 + lines of code / 10 + 2 for each prediction + 3 for each panel + 12 for each exercise + 3 for the quiz
+ the minutes that its cells run. Words are those of Markdown, without folded solutions; lines those of the code cells
that are not blank and not folded, and of what `lab.show` shows.
"""

import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
from rich.console import Console
from rich.table import Table

from minips.lab.course.lessons import arguments

LESSONS = Path(__file__).parents[1] / "lessons"
CORE_MIN, HOMEWORK_MIN = 35.0, 20.0
"""The most that a core and its homework may take."""
CORE_WORDS, CORE_LINES, FOLDED_LINES = 800, 55, 20
"""The most words and lines that a core asks a learner to read, and the most lines that a lesson folds."""
ALL_CORES_WORDS, ALL_WORDS = 19_600, 24_730
"""The most words of all cores together, and of all Markdown: 700 and 883 for each of 28 lessons."""
FOLDED = re.compile(r"<details>.*?</details>", re.DOTALL)
NEEDS_A_KERNEL = re.compile(r"needs a running kernel| of virtual time\. ")
"""What the text of a panel says, and that of the playground."""


class Minutes(NamedTuple):
    """The contents of a piece of a lesson, and its minutes."""

    words: int
    lines: int
    predictions: int
    panels: int
    exercises: int
    quizzes: int
    seconds: float
    """That its cells run."""
    folded: int = 0
    """Lines of cells that a learner finds folded; they are not among `lines`."""

    @property
    def minutes(self) -> float:
        """By the rule."""
        fixed = 2 * self.predictions + 3 * self.panels + 12 * self.exercises + 3 * self.quizzes
        return self.words / 120 + self.lines / 10 + fixed + self.seconds / 60


def of(cells: list[Any], seconds: float = 0.0) -> Minutes:
    """Of these cells, which run for so many seconds."""
    text = " ".join(FOLDED.sub("", cell.source) for cell in cells if cell.cell_type == "markdown")
    words = len(re.findall(r"[^\W_]+(?:['’.,-][^\W_]+)*", text))
    code = [cell for cell in cells if cell.cell_type == "code"]
    hidden = [cell for cell in code if cell.metadata.get("jupyter", {}).get("source_hidden")]
    folded = sum(len(filled(cell.source)) for cell in hidden)
    lines, panels = sum(len(filled(cell.source)) for cell in code) - folded, 0
    for cell in code:
        for output in cell.get("outputs", []):
            shown = output.get("data", {}).get("text/plain", "")
            lines += len(filled(shown)) - 1 if "text/markdown" in output.get("data", {}) else 0
            panels += bool(NEEDS_A_KERNEL.search(shown))
    counts = [sum(len(arguments(cell, name)) for cell in code) for name in ("predict", "check", "quiz")]
    return Minutes(words, lines, counts[0], panels, counts[1], counts[2], seconds, folded)


def filled(text: str) -> list[str]:
    """The lines that are not blank."""
    return [line for line in text.splitlines() if line.strip()]


def pieces(book: Any) -> tuple[list[Any], list[Any]]:
    """The cells of the core, and those of the homework; what stands under "Further" is in neither."""
    at = {}
    for number, cell in enumerate(book.cells):
        if cell.cell_type == "markdown" and (heading := re.match(r"## (Homework|Further)\b", cell.source)):
            at[heading[1]] = number
    further = at.get("Further", len(book.cells))
    homework = at.get("Homework", further)
    return book.cells[:homework], book.cells[homework:further]


def minutes(path: Path) -> tuple[Minutes, Minutes]:
    """Of a lesson's core and of its homework."""
    book: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    seconds = book.metadata.get("minips", {}).get("seconds", [0.0, 0.0])
    core, homework = pieces(book)
    return of(core, seconds[0]), of(homework, seconds[1])


if __name__ == "__main__":
    table = Table(
        "lesson", "words", "lines", "folded", "predictions", "panels", "exercises", "run s", "core min", "homework min"
    )
    for number in sys.argv[1:] or [""]:
        for path in sorted(LESSONS.glob(f"{number}*.ipynb")):
            core, homework = minutes(path)
            counts = [core.words, core.lines, core.folded, core.predictions, core.panels, core.exercises]
            times = [f"{core.seconds:.0f}", f"{core.minutes:.1f}", f"{homework.minutes:.1f}"]
            table.add_row(path.stem, *map(str, counts), *times)
    Console(width=120).print(table)
