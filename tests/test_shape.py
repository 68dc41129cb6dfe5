"""The shape of a lesson: objectives, a panel before the exercise, minutes, words and lines within the budget, five
lines to remember, a quiz, an answer in words about measurements, a program of the learner's own, homework, links on.
"""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import course_path
import pages
import pytest
from course_page import PAGE, with_tables
from minutes import (
    ALL_CORES_WORDS,
    ALL_WORDS,
    CORE_LINES,
    CORE_MIN,
    CORE_WORDS,
    FOLDED_LINES,
    HOMEWORK_MIN,
    NEEDS_A_KERNEL,
    Minutes,
    filled,
    minutes,
    pieces,
)
from test_lessons import LESSONS, exercises, headings, lesson

import minips_course
from minips.lab.course.lessons import arguments

SHORT, LONG, PROGRAM = 10, 16, 12
"""Lines of a cell, of one that defines a function or a class, and of a program of the learner's own."""
WORDS = dict(zip(LESSONS, minips_course.LESSONS, strict=True))
"""Maps each notebook to its lesson's name."""
each_lesson = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
"""Those of the third edition."""
OWN = "In your own program"
SCRIPT_S = 60
ALSO = {"lecture": ("torch",), "ddp": ("torch",)}
"""What else a lesson's program may import. Where it is missing, the program says so, and ends without an error."""
GLOSSARY = LESSONS[0].parent / "GLOSSARY.md"


@cache
def measured(path: Path) -> tuple[Minutes, Minutes]:
    return minutes(path)


def markdown(cells: list[Any]) -> str:
    return "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")


def section(book: Any, name: str) -> list[Any]:
    """The cells from this heading to the next one of its rank."""
    starts = [i for i, cell in enumerate(book.cells) if cell.cell_type == "markdown" and cell.source.startswith("## ")]
    (start,) = [i for i in starts if book.cells[i].source.splitlines()[0] == f"## {name}"]
    end = next((i for i in starts if i > start), len(book.cells))
    found: list[Any] = book.cells[start:end]
    return found


@each_lesson
def test_keeps_its_budget(path: Path) -> None:
    core, homework = measured(path)
    assert core.minutes <= CORE_MIN
    assert homework.minutes <= HOMEWORK_MIN
    assert core.seconds > 0
    assert core.predictions >= 1
    assert core.panels <= 1
    assert core.exercises == homework.exercises == 1
    assert core.folded + homework.folded <= FOLDED_LINES
    assert core.words <= CORE_WORDS
    assert core.lines <= CORE_LINES


def test_all_lessons_together_keep_their_budget() -> None:
    cores, homeworks = zip(*map(measured, LESSONS), strict=True)
    words = sum(core.words for core in cores)
    assert words <= ALL_CORES_WORDS
    assert words + sum(homework.words for homework in homeworks) <= ALL_WORDS


@each_lesson
def test_a_learner_tries_a_panel_before_the_exercise(path: Path) -> None:
    core, _ = pieces(lesson(path))
    texts = [[o.get("data", {}).get("text/plain", "") for o in c.get("outputs", [])] for c in core]
    shown = [any(map(NEEDS_A_KERNEL.search, found)) for found in texts]
    checks = [bool(cell.cell_type == "code" and arguments(cell, "check")) for cell in core]
    assert True in shown
    assert shown.index(True) < checks.index(True)
    assert re.search(r"^## Try it$", markdown(core), re.MULTILINE)


@each_lesson
def test_a_learner_writes_at_least_eight_lines(path: Path) -> None:
    (_, solution), *_ = exercises(lesson(path))
    assert len(filled(solution)) >= 8


def own_program(path: Path) -> str:
    """The code of a lesson's section "In your own program"."""
    (source,) = [cell.source for cell in section(lesson(path), OWN) if cell.cell_type == "code"]
    return str(source)


@each_lesson
def test_a_program_of_ones_own_is_short_and_needs_minips_alone(path: Path) -> None:
    source = own_program(path)
    assert 5 <= len(filled(source)) <= PROGRAM
    assert "import minips as ps" in source
    imported = {*re.findall(r"^\s*(?:import|from) (\w+)", source, re.MULTILINE)}
    assert imported <= {"minips", "numpy", *ALSO.get(WORDS[path], ())}
    assert not re.search(r"minips_course|\blab\b", source)


@each_lesson
@pytest.mark.soak
def test_a_program_of_ones_own_runs_as_a_script(path: Path, tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(own_program(path))
    command = [sys.executable, "-W", "error", str(script)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=SCRIPT_S)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert [*tmp_path.iterdir()] == [script]


@each_lesson
def test_begins_with_question_objectives_needs_and_minutes(path: Path) -> None:
    first = lesson(path).cells[0].source
    parts = re.fullmatch(
        r"# (.+)\n\n\*\*The question\.\*\* (.+)\n\n\*\*Afterwards you can\*\*\n\n((?:- .+\n)+)\n"
        r"\*\*What you need\.\*\* (.+)\n\n\*\*How long\.\*\* About (\d+) minutes, and (\d+) for the homework\.",
        first.strip(),
    )
    assert parts, first
    assert 3 <= len(parts[3].strip().splitlines()) <= 5
    for number in re.findall(r"\b(\d\d)\b", parts[4]):
        assert number < path.stem[:2], f"lesson {number} comes later"
    for told, counted in zip(parts.groups()[4:], measured(path), strict=True):
        assert abs(int(told) - counted.minutes) <= 3, (told, counted.minutes)


@each_lesson
def test_ends_with_five_lines_a_quiz_homework_and_further(path: Path) -> None:
    book = lesson(path)
    order = [name for name in re.findall(r"^## (.+)$", markdown(book.cells), re.MULTILINE)]
    assert len(re.findall(r"^- .+", markdown(section(book, "Remember")), re.MULTILINE)) == 5
    assert [key for cell in section(book, "Quiz") for key in arguments(cell, "quiz")] == [WORDS[path]]
    last = markdown(book.cells).strip().splitlines()[-1]
    assert order[-4:] == ["Remember", "Quiz", OWN, "Homework"]
    assert re.search(r"\(further-[a-z-]+\.md#\S+\)", last), "no link to the part's page of further reading"
    if path == LESSONS[-1]:
        return
    assert (link := re.search(r"Next: \[lesson (\d\d)\]\((\d\d_\w+\.ipynb)\)", last)), last
    assert link[1] == link[2][:2] > path.stem[:2]


@each_lesson
def test_asks_for_something_measured_in_two_sentences(path: Path) -> None:
    book = lesson(path)
    core, homework = pieces(book)
    assert [key for cell in [*core, *homework] for key in arguments(cell, "answer")]


@each_lesson
def test_each_comparison_with_a_prediction_is_shown(path: Path) -> None:
    cells = [cell.source for cell in lesson(path).cells if cell.cell_type == "code" and ".compare(" in cell.source]
    for source in cells:
        last = ast.parse(source).body[-1]
        assert isinstance(last, ast.Expr), source
        assert ".compare(" in ast.unparse(last), source
    assert cells


@each_lesson
def test_no_cell_is_longer_than_one_reads(path: Path) -> None:
    core, homework = pieces(lesson(path))
    for cell in [*core, *homework]:
        if cell.cell_type == "code":
            defines = re.search(r"^(def|class|@)", cell.source, re.MULTILINE)
            most = LONG if defines else PROGRAM if cell.source == own_program(path) else SHORT
            assert len(filled(cell.source)) <= most, cell.source


@each_lesson
def test_each_picture_has_its_caption_as_alternative_text(path: Path) -> None:
    for cell in lesson(path).cells:
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                assert len(output.metadata.get("image/png", {}).get("alt", "")) > 40, cell.source


@each_lesson
def test_its_links_lead_somewhere(path: Path) -> None:
    """To lessons that there are, and to entries of the glossary, one at least."""
    terms = headings_of(GLOSSARY)
    text = markdown(lesson(path).cells)
    for name, anchor in re.findall(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)", text):
        target = path.parent / (name or path.name)
        assert target.exists(), name
        if target == GLOSSARY:
            assert anchor in terms, anchor
        elif anchor and target.suffix == ".md":
            assert anchor in {re.sub(r"[^\w-]", "", one.lower()) for one in headings_of(target)}, anchor
        elif anchor:
            assert anchor in headings(lesson(target)), anchor
    assert "](GLOSSARY.md#" in text


def headings_of(page: Path) -> set[str]:
    """The anchors of a page."""
    return {name.strip().replace(" ", "-") for name in re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)}


def test_each_term_of_the_glossary_is_linked_from_a_lesson_and_explained() -> None:
    linked = {
        term for path in LESSONS for term in re.findall(r"\(GLOSSARY\.md#([^)]+)\)", markdown(lesson(path).cells))
    }
    entries = re.findall(r"^### (.+)\n\n(.+)", GLOSSARY.read_text(), re.MULTILINE)
    assert len({name for name, _ in entries}) == len(entries)
    assert {name.replace(" ", "-") for name, _ in entries} == linked
    assert all(len(words) > 40 for _, words in entries)


SYMBOLS = ("α", "β", "B", "S", "n", "b")
"""Those of the formulas that several lessons share."""


def symbols_of(text: str) -> set[str]:
    """The symbols in a text: Greek letters, letters in italics, and letters in formulas between dollar signs."""
    text = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)", " ", text, flags=re.DOTALL)
    formulas = " ".join(re.findall(r"\$+(.+?)\$+", text, re.DOTALL))
    formulas = re.sub(r"\\text\{.*?\}|\\[a-z]+", " ", formulas)
    found = {*re.findall("[αβ]", text), *re.findall(r"(?<![A-Za-z])[A-Za-z](?![A-Za-z])", formulas)}
    return found | {letter for letter in re.findall(r"(?<!\*)\*([A-Za-z])′?\*(?!\*)", text)}


@pytest.mark.parametrize("symbol", SYMBOLS)
def test_the_glossary_lists_the_lessons_with_each_symbol(symbol: str) -> None:
    """So an author who uses one of them in another lesson looks up what it means, and adds the lesson to the table."""
    rows = re.findall(r"^\| \*?(\w)\*? \| (.+?) \| .*? ?\| ([\d, ]+) \|$", GLOSSARY.read_text(), re.MULTILINE)
    assert [name for name, _, _ in rows] == [*SYMBOLS]
    (lessons,) = [listed for name, _, listed in rows if name == symbol]
    using = [path.stem[:2] for path in LESSONS if symbol in symbols_of(markdown(lesson(path).cells))]
    assert lessons == ", ".join(using)


def test_symbols_are_found_in_italics_and_formulas_alone() -> None:
    text = (
        "A message of *S* bytes, $\\frac{8 B}{t}$, α*n*, *S′*, **b**, `b`, A and B, *see* [B](b.md), and ```\n*b*\n```"
    )
    assert symbols_of(text) == {"S", "B", "t", "α", "n"}


def test_the_courses_page_says_what_the_lessons_say() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_tables(page), "write its tables again: python tests/course_page.py"


def test_the_picture_of_the_path_has_the_lessons_of_today() -> None:
    assert course_path.PICTURE.read_text(encoding="utf-8") == course_path.drawn(), (
        "write it: python tests/course_page.py"
    )


@each_lesson
def test_the_courses_page_calls_it_by_its_title(path: Path) -> None:
    title = lesson(path).cells[0].source.splitlines()[0].removeprefix("# ")
    assert f"| [{path.stem[:2]} {title}]({path.name}) |" in PAGE.read_text(encoding="utf-8")


def test_the_readme_has_a_line_for_each_part_of_the_course() -> None:
    assert re.findall(r"^\| \[(.+?)\]\(lessons/README\.md#", pages.text("README.md"), re.MULTILINE) == [
        *minips_course.PARTS
    ]


def test_what_the_page_says_is_not_here_no_lesson_runs() -> None:
    elsewhere = re.compile(r"\b(horovod|byteps|nccl|cuda|ibverbs)\b", re.IGNORECASE)
    code = "\n".join(cell.source for path in LESSONS for cell in lesson(path).cells if cell.cell_type == "code")
    assert not elsewhere.search(code)
