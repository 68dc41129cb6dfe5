"""The start page: a notebook with the path through a course, its ticks, minutes and ways."""

import json
import re
from pathlib import Path

import nbformat
import pytest

from minips import cli
from minips.lab.course import courses, lessons, start, state
from minips.lab.course.lessons import Lesson

COURSE = courses.chosen()
LESSONS = {lesson.word: lesson for lesson in lessons.lessons()}


@pytest.fixture(autouse=True)
def learner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One who has done nothing yet. The lessons' notebooks are read once."""
    monkeypatch.setattr(
        start, "lessons", lambda course: [*LESSONS.values()] if course is COURSE else lessons.lessons(course)
    )
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("MINIPS_AUTOPLAY", raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine").mkdir()
    assert start.write(tmp_path / "mine", COURSE)
    return tmp_path / "mine"


def do(lesson: Lesson, *, tasks: int | None = None) -> None:
    """Do so many tasks of a lesson's core, by default all."""
    for kind, key in lesson.core[:tasks]:
        assert state.note(kind, key) == ""


def text(folder: Path) -> str:
    source: str = nbformat.read(folder / start.NAME, as_version=4).cells[1].source
    return source


def row(words: str, word: str) -> list[str]:
    """The cells of a lesson's row."""
    (line,) = [line for line in words.splitlines() if f"]({LESSONS[word].path.name}) |" in line]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_it_is_a_notebook_whose_one_code_cell_is_first_so_that_one_click_runs_it(folder: Path) -> None:
    book = nbformat.read(folder / start.NAME, as_version=4)
    nbformat.validate(book)
    assert [cell.cell_type for cell in book.cells] == ["code", "markdown"]
    assert "lab.playground()" in book.cells[0].source
    assert book.metadata.kernelspec.name == "python3"


def test_its_facts_are_those_of_the_lessons_and_of_the_course(folder: Path) -> None:
    words = text(folder)
    assert f"# {COURSE.title}\n" in words
    for word, lesson in LESSONS.items():
        first = lessons.source(lessons.read(lesson.path)["cells"][0])
        tick, link, question, minutes = row(words, word)
        assert (tick, link) == ("", f"[{lesson.number} {lesson.title}]({lesson.path.name})")
        assert f"**The question.** {question}\n" in first
        core, homework = minutes.split(" + ")
        assert f"About {core} minutes, and {homework} for the homework." in first
    titles = [*re.findall(r"^\| \| \*\*(.+?)\*\*", words, re.MULTILINE)]
    assert titles == [*COURSE.parts]
    page = (COURSE.notebooks / "README.md").read_text(encoding="utf-8")
    for way, numbers, hours in re.findall(r"^\| (\w[\w ]+) \| ([\d, to]+) \| ([\d.]+) \|$", page, re.MULTILINE):
        assert f"- **{way.capitalize()}**: {numbers}, {hours} hours." in words


def test_ticks_are_right_when_the_page_is_written_again(folder: Path) -> None:
    assert "**Begin with [00 Train in a minute](00_train_in_a_minute.ipynb), " in text(folder)
    do(LESSONS["train"], tasks=1)
    assert start.write(folder, COURSE)
    assert row(text(folder), "train")[0] == f"1/{len(LESSONS['train'].core)}"
    assert "**Go on with [00 Train in a minute]" in text(folder)
    do(LESSONS["train"])
    do(LESSONS["split"])
    assert start.write(folder, COURSE)
    words = text(folder)
    assert [row(words, word)[0] for word in ("train", "split", "batch")] == ["✓", "✓", ""]
    assert f"**You have finished 2 of {len(LESSONS)} lessons. Go on with [02 A small batch" in words
    left = re.search(r"An afternoon\*\*: .*?, ([\d.]+) hours, of which ([\d.]+) are left", words)
    assert left
    minutes = [LESSONS[word].minutes for word in ("train", "split")]
    assert float(left[1]) - float(left[2]) == pytest.approx(sum(one[0] for one in minutes if one) / 60, abs=0.11)


def test_a_lesson_is_done_without_its_homework_and_not_without_its_quiz() -> None:
    for lesson in LESSONS.values():
        kinds = [kind for kind, _ in lesson.core]
        assert kinds.count("exercise") == kinds.count("quiz") == 1
        assert kinds.count("question") == len(lesson.questions)
    do(LESSONS["train"], tasks=-1)
    assert start.path().standings["train"].tick == "3/4"
    do(LESSONS["train"])
    assert start.path().standings["train"].finished


def test_who_has_finished_is_not_told_to_begin(folder: Path) -> None:
    for lesson in LESSONS.values():
        do(lesson)
    assert start.write(folder, COURSE)
    words = text(folder)
    assert "**You have finished the course. In a lesson, `lab.report()` writes" in words
    assert "Begin with" not in words
    assert words.count("| ✓ |") == len(LESSONS)
    assert "of which 0.0 are left" in words


def test_the_cells_output_shows_todays_ticks_in_place_of_the_pages_text(folder: Path) -> None:
    before = text(folder)
    do(LESSONS["train"])
    shown = start.path(COURSE.name)._repr_markdown_()
    assert row(before, "train")[0] == ""
    assert row(shown, "train")[0] == "✓"
    covered = re.search(r"\.([\w-]+) \{display: none\}", shown)
    assert covered
    assert f'<div class="{covered[1]}">' in before
    assert re.search(r"^✓ +00 Train in a minute +\d+ \+ \d+$", repr(start.path()), re.MULTILINE)


def test_a_page_that_was_run_is_written_again_and_one_that_was_changed_stays(folder: Path) -> None:
    page = folder / start.NAME
    book = nbformat.read(page, as_version=4)
    book.cells[0].execution_count = 1
    book.cells[0].outputs = [nbformat.v4.new_output("stream", text="moved")]
    book.cells.append(nbformat.v4.new_code_cell(""))
    nbformat.write(book, page)
    assert start.write(folder, COURSE)
    assert nbformat.read(page, as_version=4).cells[0].outputs == []
    book.cells[0].source += "\n1 + 1"
    nbformat.write(book, page)
    mine = page.read_bytes()
    for _ in range(2):
        assert not start.write(folder, COURSE)
    for foreign in ("not a notebook", '{"cells": [{"source": ""}]}', '{"cells": [{"source": ""}], "metadata": {}}'):
        page.write_text(foreign)
        assert not start.write(folder, COURSE)
        assert page.read_text() == foreign
    page.write_bytes(mine)
    page.unlink()
    assert start.write(folder, COURSE)


def test_minips_lab_opens_it_and_says_what_it_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = []
    monkeypatch.setattr("minips.lab.course.jupyter.running", lambda folder: None)
    monkeypatch.setattr("minips.lab.course.jupyter.start", lambda *said: opened.append(said[:2]))
    folder = tmp_path / "mine"
    assert cli.main(["lab", str(folder), "--outputs"]) == 0
    assert opened.pop() == (folder, start.NAME)
    assert start.NAME not in capsys.readouterr().err
    links = re.findall(r"\]\((\w+\.ipynb)\)", text(folder))
    assert {*links} == {path.name for path in folder.glob("[0-9]*.ipynb")}
    do(LESSONS["train"])
    assert cli.main(["lab", str(folder), "--course", "minips"]) == 0
    assert row(text(folder), "train")[0] == "✓"
    assert cli.main(["lab", "--reset", "--yes"]) == 0
    assert cli.main(["lab", str(folder)]) == 0
    assert row(text(folder), "train")[0] == ""
    book = json.loads((folder / start.NAME).read_text())
    book["cells"][0]["source"] = "mine = 3"
    (folder / start.NAME).write_text(json.dumps(book))
    capsys.readouterr()
    assert cli.main(["lab", str(folder)]) == 0
    assert re.search(r"^Kept with your changes; .*: START\.ipynb$", capsys.readouterr().err, re.MULTILINE)
    assert opened[-1] == (folder, start.NAME)


def test_a_page_that_is_open_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "mine"
    monkeypatch.setattr("minips.lab.course.jupyter.start", lambda *said: None)
    monkeypatch.setattr("minips.lab.course.jupyter.running", lambda folder: None)
    assert cli.main(["lab", str(folder)]) == 0
    before = (folder / start.NAME).read_bytes()
    do(LESSONS["train"])
    monkeypatch.setattr("minips.lab.course.jupyter.running", lambda folder: "http://localhost:8888/lab?token=x")
    assert cli.main(["lab", str(folder), "--no-browser"]) == 0
    assert (folder / start.NAME).read_bytes() == before


def test_the_folder_of_the_lessons_themselves_gets_none() -> None:
    assert start.write(COURSE.notebooks, COURSE)
    assert not (COURSE.notebooks / start.NAME).exists()
    assert start.page(COURSE.notebooks, COURSE) == LESSONS["train"].path.name


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"parts": {"I": ("a",)}}, r"parts contain each of its lessons once; got \{'I': \('a',\)\}"),
        ({"parts": {"I": ("a", "b"), "II": ("b",)}}, "parts contain each of its lessons once"),
        ({"ways": {"short": ("a", "c")}}, "ways lead through its lessons; got c"),
    ],
)
def test_a_course_whose_parts_or_ways_are_wrong_is_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        courses.Course(**{"name": "x", "title": "X", "notebooks": Path(), "lessons": ("a", "b")} | changes)  # type: ignore[arg-type]


def test_a_course_without_minutes_parts_and_ways_has_a_page(tmp_path: Path) -> None:
    cells = [nbformat.v4.new_markdown_cell("# Votes | of five"), nbformat.v4.new_markdown_cell("Read this.")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), tmp_path / "00_votes.ipynb")
    course = courses.Course("x", "Choices", tmp_path, ("votes",))
    words = start.CoursePath(course).markdown()
    assert r"| [00 Votes \| of five](00_votes.ipynb) |  |  |" in words
    assert "**Begin with [00 Votes" in words
    assert "✓" not in words
