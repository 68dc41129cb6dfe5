"""A claim that cannot fail says nothing: in a copy of minips one thing that a lesson measures is broken, and the
lesson's run has to notice it, in a comparison or a sentence.

The ``cases`` of each lesson have one change: what it breaks, the file, what stands there, and what instead.
"""

import os
import shutil
from importlib import import_module
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from test_lessons import LESSONS, lesson

import minips_course
from minips.lab.course.grading import with_a_kernel

HERE = Path(__file__).parent
SOAK = ("03", "05", "06", "20")
"""The four that run in the soak; the others take longer, and run by hand."""
OTHERWISE = "it came out otherwise"
"""What a comparison or a sentence says of a run that disagrees with the lesson."""


def mutant(path: Path) -> tuple[str, str, str, str]:
    """What is broken for a lesson, in which file, what stands there and what instead."""
    word = minips_course.LESSONS[LESSONS.index(path)]
    found: tuple[str, str, str, str] = import_module(f"minips_course.{word}.cases").MUTANT
    return found


def disagreements(book: Any) -> list[str]:
    """What comparisons and sentences said of a run that disagrees with them."""
    found = []
    for cell in book.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error" and output.ename == "Disagreement":
                found.append(output.evalue)
            text = output.get("data", {}).get("text/plain", "")
            if OTHERWISE in text:
                found.append(text)
    return found


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_the_saved_run_agrees_with_the_lesson(path: Path) -> None:
    assert disagreements(lesson(path)) == []


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_what_a_mutant_changes_stands_there_once(path: Path) -> None:
    _, file, old, new = mutant(path)
    assert old != new
    assert (HERE.parent / file).read_text().count(old) == 1


@pytest.mark.outside
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=pytest.mark.soak if path.stem[:2] in SOAK else pytest.mark.campaign) for path in LESSONS],
    ids=lambda path: path.stem,
)
def test_a_lesson_notices_what_is_broken(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    what, file, old, new = mutant(path)
    shutil.copytree(HERE.parent / "minips", tmp_path / "minips", ignore=shutil.ignore_patterns("__pycache__"))
    broken = tmp_path / file
    broken.write_text(broken.read_text().replace(old, new))
    book = nbformat.from_dict(lesson(path))
    book.cells.insert(0, nbformat.v4.new_code_cell("import minips\nprint(minips.__file__)"))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "MINIPS_AUTOPLAY": "1"}
    (tmp_path / "run").mkdir()
    client = NotebookClient(book, timeout=300, allow_errors=True, resources={"metadata": {"path": tmp_path / "run"}})
    with_a_kernel(client.execute, env=environment)
    assert str(tmp_path) in book.cells[0].outputs[0].text
    found = disagreements(book)
    assert found, f"no comparison and no sentence noticed that {what}"
    print(f"{path.stem}: {what}: {len(found)} noticed it, first: {found[0]}")
