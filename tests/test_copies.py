"""Copies of the lessons for a learner, and the wheel that carries them."""

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from minips.lab import panels
from minips.lab.course import courses, lessons, start

ROOT = Path(__file__).parents[1]
NAMES = [lesson.path.name for lesson in lessons.lessons()]
SHELF = courses.chosen().notebooks
PAGES = [lessons.GLOSSARY, *sorted(page.name for page in SHELF.glob(lessons.FURTHER))]
FILES = [*NAMES, *PAGES, lessons.ASSISTANTS]


PANEL = re.compile(rf"lab\.({'|'.join(['Workbench', *(name for name in panels.__all__ if name != 'Panel')])})\(")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert lessons.copy_to(tmp_path / "mine") == lessons.Copied(new=FILES, renewed=[], kept=[], earlier=[])
    return tmp_path / "mine"


def test_a_second_time_there_is_nothing_to_do(folder: Path) -> None:
    assert lessons.copy_to(folder) == lessons.Copied([], [], [], [])


def test_what_was_changed_is_kept_and_what_is_gone_comes_back(folder: Path) -> None:
    first, second = (folder / name for name in NAMES[:2])
    first.write_text(first.read_text() + "\n")
    mine = first.read_bytes()
    second.unlink()
    assert lessons.copy_to(folder) == lessons.Copied(new=[second.name], renewed=[], kept=[], earlier=[])
    assert first.read_bytes() == mine


def test_an_untouched_copy_is_renewed_and_a_changed_one_is_named(folder: Path) -> None:
    ledger = json.loads((folder / lessons.LEDGER).read_text())
    for name in NAMES[:2]:  # as if an older version of minips had made them
        (folder / name).write_text("an older lesson")
        ledger[name] = lessons._hash(b"an older lesson")
    (folder / lessons.LEDGER).write_text(json.dumps(ledger))
    (folder / NAMES[1]).write_text("an older lesson, and what the learner did")
    assert lessons.copy_to(folder) == lessons.Copied(new=[], renewed=[NAMES[0]], kept=[NAMES[1]], earlier=[])
    assert (folder / NAMES[0]).read_bytes() == lessons.blanked(SHELF / NAMES[0])
    assert "what the learner did" in (folder / NAMES[1]).read_text()


def test_a_copy_under_an_earlier_name_goes_unless_it_was_changed(folder: Path) -> None:
    ledger = json.loads((folder / lessons.LEDGER).read_text())
    untouched, changed = "12_move_frames.ipynb", "14_wait_or_dont.ipynb"
    for name in (untouched, changed):
        (folder / name).write_text("an older lesson")
        ledger[name] = lessons._hash(b"an older lesson")
    (folder / lessons.LEDGER).write_text(json.dumps(ledger))
    (folder / changed).write_text("an older lesson, and what the learner did")
    (folder / "19_do_without_a_server.ipynb").write_text("of which nothing is known")
    copied = lessons.copy_to(folder)
    assert copied.earlier == [
        "14_wait_or_dont.ipynb (now 16_wait_or_dont.ipynb)",
        "19_do_without_a_server.ipynb (now 21_do_without_a_server.ipynb)",
    ]
    assert not (folder / untouched).exists()
    assert "what the learner did" in (folder / changed).read_text()


def test_where_nothing_is_known_of_the_copies_all_stay(folder: Path) -> None:
    (folder / NAMES[0]).write_text("mine")
    for nonsense in ("nonsense", "[1]"):
        (folder / lessons.LEDGER).write_text(nonsense)
        assert lessons.copy_to(folder).kept == [NAMES[0]]
    assert (folder / NAMES[0]).read_text() == "mine"


def test_copies_have_no_outputs_unless_they_are_asked_for(tmp_path: Path, folder: Path) -> None:
    for name in NAMES:
        book, saved = lessons.read(folder / name), lessons.read(SHELF / name)
        assert [cell["source"] for cell in book["cells"]] == [cell["source"] for cell in saved["cells"]]
        assert not any(cell.get("outputs") or cell.get("execution_count") for cell in book["cells"])
        assert any(cell.get("outputs") for cell in saved["cells"])
        assert book["metadata"]["language_info"]["version"] == platform.python_version()
    assert lessons.copy_to(tmp_path / "whole", outputs=True).new == FILES
    assert all((tmp_path / "whole" / name).read_bytes() == (SHELF / name).read_bytes() for name in [*NAMES, *PAGES])
    assert lessons.copy_to(folder, outputs=True).renewed == NAMES


def test_the_lessons_themselves_are_left_alone() -> None:
    assert lessons.copy_to(SHELF, outputs=True) == lessons.Copied([], [], [], [])
    assert not (SHELF / lessons.LEDGER).exists()


def test_every_question_and_every_exercise_is_found() -> None:
    for lesson in lessons.lessons():
        text = "\n".join(
            lessons.source(cell) for cell in lessons.read(lesson.path)["cells"] if cell["cell_type"] == "code"
        )
        assert len(lesson.questions) == text.count("lab.predict(")
        assert lesson.exercises
        assert lesson.title


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"cells": []}', '{"cells": [1]}'])
def test_what_is_no_notebook_is_a_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.ipynb").write_text(text)
    with pytest.raises(ValueError, match=r"x\.ipynb is not a notebook"):
        lessons.read(tmp_path / "x.ipynb")


@pytest.mark.soak
def test_a_plain_install_of_the_wheel_carries_the_lessons(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (wheel,) = tmp_path.glob("*.whl")
    install = ["install", "--quiet", "--no-deps", "--no-index", "--target", str(tmp_path / "site"), str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", *install], check=True, capture_output=True, timeout=120)
    views = {path.name for path in (ROOT / "minips/lab/views").iterdir() if path.suffix in (".js", ".css")}
    assert views <= {path.name for path in (tmp_path / "site/minips/lab/views").iterdir()}
    for path in (ROOT / "minips/lab/course/settings").rglob("*.*"):
        assert (tmp_path / "site" / path.relative_to(ROOT)).is_file(), path
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    words = """
from pathlib import Path
from minips.lab.course import courses, lessons, start
print(*lessons.copy_to(Path("mine")).new)
assert start.write(Path("mine"), courses.chosen())
"""
    done = subprocess.run(
        [sys.executable, "-c", words], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.split() == FILES, done.stderr
    assert sorted(path.name for path in (tmp_path / "mine").glob("*.ipynb")) == [*NAMES, start.NAME]
