"""The course of docs/own-course.md, built as it stands there and used: by a learner, by her teacher, from the shell."""

import csv
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pages
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from test_lessons import exercises

from minips.lab.course import EXERCISES

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "own-course.md").read_text(encoding="utf-8")
TEACH = (ROOT / "docs" / "teachers.md").read_text(encoding="utf-8")
STARTED = "def majority(votes): ..."
SOLVED = "def majority(votes):\n    return np.sign(votes.sum(axis=0))"
LEARNER = """
import os, signal
from minips import cli, lab
from minips.lab.course import jupyter, start

os.execv, signal.signal, jupyter.running = lambda *command: print(command[1]), lambda *_: None, lambda folder: None
print(cli.main(["lab", "--course", "mine", "--no-browser", "--allow-root"]))
print(lab.progress())
print(start.path("mine"))
guess = lab.predict("mine:votes.1")
guess.choice.value = "about as often"
guess.button.click()
guess.compare(share=0.68)
lab.say("mine:votes.1", share=0.68)
print(lab.check("mine:votes.1", lambda votes: votes[0]))
lab.hint("mine:votes.1")
print(lab.check("mine:votes.1", lambda votes: votes.sum(axis=0) // abs(votes.sum(axis=0))))
print(lab.progress())
print(start.path("mine").markdown())
print(lab.report())
for wrong in ABSENT:
    print(f"exit {cli.main(wrong)}")
"""
ABSENT = {
    (
        "check",
        "mine:votes.4",
        "x.ipynb",
    ): "There is no exercise 'mine:votes.4'. Known: mine:votes.1, mine:votes.2, mine",
    ("check", "mien:votes.1", "x.ipynb"): "There is no course 'mien': it is not installed. Known: minips, mine. Did",
    ("lab", "--course", "mien"): "There is no course 'mien': it is not installed. Known: minips, mine. Did you mean",
}
"""Commands that name what is not there, and what they say."""


def files_of_the_page() -> dict[str, str]:
    """The blocks of the page, by the file that the paragraph before them begins with; two of one file are one."""
    found: dict[str, str] = {}
    name = ""
    for paragraph in re.findall(r"^```.*?^```$|^(?!```)\S.*?(?=\n\n)", PAGE, flags=re.DOTALL | re.MULTILINE):
        if named := re.match(r"`(\w[\w./]*\.\w+)`", paragraph):
            name = named[1]
        elif block := re.fullmatch(r"```(?:python|toml)\n(.*)```", paragraph, flags=re.DOTALL):
            found[name] = found.get(name, "") + block[1]
    return found


def notebook(cells: str) -> Any:
    """The notebook of cells that are written below one another, each under ``# %%``."""
    made = []
    for kind, text in re.findall(r"^# %%(.*)\n((?:(?!# %%).*\n)*)", cells, flags=re.MULTILINE):
        text = text.strip("\n")
        prose = re.sub("^# ?", "", text, flags=re.MULTILINE)
        made.append(new_markdown_cell(prose) if "markdown" in kind else new_code_cell(text))
    return new_notebook(cells=made)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the package, as a teacher makes it."""
    folder = tmp_path_factory.mktemp("mine-course")
    for name, text in files_of_the_page().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".ipynb"):
            nbformat.write(notebook(text), folder / name)
        else:
            (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def site(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for Python's path, in which the package is installed: its wheel, unpacked."""
    wheels, site = tmp_path_factory.mktemp("wheels"), tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(wheels)]
    subprocess.run(build, cwd=package, check=True, capture_output=True, timeout=120)
    (wheel,) = wheels.iterdir()
    zipfile.ZipFile(wheel).extractall(site)
    return site


def ran(
    site: Path, folder: Path, *command: str, status: int = 0, errors: bool = True, stdin: str = "", **others: str
) -> str:
    """The output of a command of Python's, in this folder, with the course installed."""
    paths = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths, "XDG_STATE_HOME": str(folder), **others}
    options: dict[str, Any] = {"cwd": folder, "env": environment, "input": stdin, "capture_output": True}
    done = subprocess.run([sys.executable, *command], **options, text=True, timeout=120)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + (done.stderr if errors else "")


def test_a_learner_opens_it_predicts_answers_and_reports(site: Path, tmp_path: Path) -> None:
    environment = {"MINIPS_AUTOPLAY": "", "JUPYTER_TOKEN": "secret"}
    said = ran(site, tmp_path, "-W", "error", "-c", f"ABSENT = {[*ABSENT]!r}\n{LEARNER}", **environment)
    assert f"The lessons are in {tmp_path / 'mine-lessons'}." in said
    assert "/lab/tree/START.ipynb" in said
    page = nbformat.read(tmp_path / "mine-lessons" / "START.ipynb", as_version=4)
    assert 'start.path("mine")' in page.cells[0].source
    assert "# Who is right?\n\n**Begin with [00 Ask five](00_votes.ipynb).**" in page.cells[1].source
    copy = nbformat.read(tmp_path / "mine-lessons" / "00_votes.ipynb", as_version=4)
    assert [cell.source for cell in copy.cells] == [cell.source for cell in the_lesson().cells]
    for words in (
        "serve.py', '--notebook-dir', 'mine-lessons'",
        "The majority is right in 68% of the votes.",
        "✗ mine:votes.1: not yet. Of 3 voters: the majority is another.",
        "Hint 1 of 2 for mine:votes.1: Votes are numbers: add them.",
        "✓ mine:votes.1 is done. A server does this",
        "Your report is in report.html, and as data in report.json.",
    ):
        assert words in said, said
    before, after = said.split("Hint 1 of 2")
    assert re.search(r"^A parameter server, taken apart", before, flags=re.MULTILINE)
    assert re.search(r"^ +00 Ask five$", before, flags=re.MULTILINE)
    assert "# Who is right?\n\n**You have finished the course." in after
    assert "| ✓ | [00 Ask five](00_votes.ipynb) |  |  |" in after
    assert re.search(r"^Who is right\? *\n00 Ask five +0 of 3 +0 of 1", before, flags=re.MULTILINE)
    assert re.search(r"^00 Ask five +1 of 3 \(mine:votes.1\) +1 of 1, 0 came true$", after, flags=re.MULTILINE)
    assert "taken apart" not in after
    report = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<h2>Who is right?</h2>\n<h3>00 Ask five</h3>" in report
    assert "You predicted: about as often. Measured: more often." in report
    assert "Exercises: mine:votes.1 done, of 3." in report
    for words in ABSENT.values():
        assert f"minips: {words}" in said
    assert said.count("exit 2") == len(ABSENT)


def the_lesson() -> Any:
    return notebook(files_of_the_page()["mine_course/notebooks/00_votes.ipynb"])


def handed_in(folder: Path, **answers: str) -> Iterator[str]:
    """The notebooks of learners, by their names, with their answers to the exercise."""
    for name, answer in answers.items():
        book = the_lesson()
        (cell,) = (cell for cell in book.cells if cell.source.startswith("def majority"))
        cell.source = answer
        nbformat.write(book, folder / f"{name}.ipynb")
        yield f"{name}.ipynb"


TRIED = """
import sys, json
for begun, solved, others, check in json.load(sys.stdin):
    for answer in (begun, solved, *others):
        names = {}
        exec("import numpy as np; from minips import lab; from mine_course.votes.given import trimmed", names)
        exec(answer, names)
        print(repr(eval(check, names)).replace("\\n", " "))
"""
WRONG = {
    "mine:votes.1": [
        "def majority(votes): return votes[0]",
        "def majority(votes): return votes.mean(axis=0)",
        "def majority(votes): return -np.sign(votes.sum(axis=0))",
    ],
    "mine:votes.2": ["votes = np.ones(9) / 2", "votes = 'aaabbbccc'", "votes = np.array([1, -1, 1])"],
    "mine:votes.3": [
        "defence = np.median\ndef attack(honest): return [np.nan, np.nan]",
        "defence = np.median\ndef attack(honest): return [100]",
        "defence = np.mean\ndef attack(honest): return [100, 100]",
        "defence = max\ndef attack(honest): return [-100, -100]",
        "def defence(marks): return 5.5\ndef attack(honest): return [100, 100]",
        "attack = defence = None",
    ],
}
"""Answers that the checks refuse, besides what the learner begins with."""


def test_the_exercises_take_the_model_answers_and_no_others(site: Path, tmp_path: Path) -> None:
    cells = [cell.source for cell in the_lesson().cells]
    asked = []
    for key, wrong in WRONG.items():
        (at,) = (i for i, cell in enumerate(cells) if cell.startswith(f'lab.check("{key}"'))
        (solved,) = re.findall(
            r"<details><summary>A solution</summary>\n\n```python\n(.*?)```", cells[at + 1], re.DOTALL
        )
        asked.append((cells[at - 1], solved, wrong, cells[at]))
    said = ran(site, tmp_path, "-W", "error", "-c", TRIED, stdin=json.dumps(asked)).splitlines()
    for key, wrong in WRONG.items():
        verdicts = [line for line in said if key in line]
        assert len(verdicts) == 2 + len(wrong)
        assert [line[0] for line in verdicts] == ["✗", "✓", *"✗" * len(wrong)], verdicts


@pytest.mark.soak
@pytest.mark.outside
def test_her_teacher_grades_it(site: Path, tmp_path: Path) -> None:
    files = handed_in(tmp_path, ada=SOLVED, bob=STARTED)
    said = ran(site, tmp_path, "-m", "minips", "check", "mine:votes.1", *files, status=1)
    assert said.startswith("ada.ipynb: ✓ mine:votes.1 is done. ")
    assert "\nbob.ipynb: ✗ mine:votes.1: not yet. Of 1 voters: the majority is another.\n" in said
    assert list(tmp_path.glob("minips/*")) == []


def marks(folder: Path) -> list[list[str]]:
    """The rows of the table of marks, which the last command shows."""
    (show,) = {line for page in ("docs/teachers.md", "docs/own-course.md") for line in typed(page, "cat ")}
    shown = subprocess.run(shlex.split(show), cwd=folder, check=True, capture_output=True, text=True).stdout
    return [*csv.reader(shown.splitlines())]


def typed(page: str, begins: str) -> list[str]:
    """The commands of a page that begin so."""
    return [line for line in pages.commands(page) if line.startswith(begins)]


def as_module(command: str) -> list[str]:
    return ["-m", *shlex.split(command)]


@pytest.mark.soak
@pytest.mark.outside
def test_five_commands_lead_to_the_marks_of_a_class(tmp_path: Path) -> None:
    """The page's commands after the installation. Three students answer in the copies that were released to them."""
    page = "docs/teachers.md"
    (release,), (grade,) = typed(page, "minips lab --class"), typed(page, "minips grade")
    ran(tmp_path, tmp_path, *as_module(release))
    name = "08_send_fewer_bits.ipynb"
    solutions = dict(exercises(nbformat.read(tmp_path / "class" / "instructor" / name, as_version=4)))
    answers: dict[str, dict[str, str]] = {
        "ada": solutions,
        "bob": {},
        "eve": {
            check: f"{solution}\n{'Server.eaten = bytearray(2**33)' * ('Server' in check)}"
            for check, solution in solutions.items()
        },
    }
    for student, given in answers.items():
        book = nbformat.read(tmp_path / "class" / "student" / name, as_version=4)
        for at, cell in reversed([*enumerate(book.cells)]):
            if answer := given.get(cell.source):
                book.cells.insert(at, new_code_cell(answer))
        (tmp_path / "handed-in" / student).mkdir(parents=True)
        nbformat.write(book, tmp_path / "handed-in" / student / name)
    ran(tmp_path, tmp_path, *as_module(grade))
    assert marks(tmp_path) == [
        ["student", "bits.2", "bits.3", "done"],
        ["ada", "done", "done", "2"],
        ["bob", "not yet", "not yet", "0"],
        ["eve", "blocked", "done", "1"],
    ]
    assert json.loads((tmp_path / "marks.json").read_text())["seed"] == 7


@pytest.mark.soak
@pytest.mark.outside
def test_the_same_commands_release_and_grade_a_course_of_ones_own(site: Path, tmp_path: Path) -> None:
    page = "docs/own-course.md"
    (release,), (grade,) = typed(page, "minips lab --course mine --class"), typed(page, "minips grade")
    ran(site, tmp_path, *as_module(release))
    for kind, lines in (("student", 0), ("instructor", 3)):
        copy = (tmp_path / "class" / kind / "00_votes.ipynb").read_text(encoding="utf-8")
        assert copy.count("A solution") == lines
    answers = {"ada": {"def majority": SOLVED, "votes =": "votes = np.array([1, 1, -1] * 2 + [-1] * 3)"}, "bob": {}}
    for student, given in answers.items():
        book = nbformat.read(tmp_path / "class" / "student" / "00_votes.ipynb", as_version=4)
        for cell in book.cells:
            cell.source = next((text for begins, text in given.items() if cell.source.startswith(begins)), cell.source)
        (tmp_path / "handed-in" / student).mkdir(parents=True)
        nbformat.write(book, tmp_path / "handed-in" / student / "00_votes.ipynb")
    ran(site, tmp_path, *as_module(grade))
    keys = [f"mine:votes.{number}" for number in (1, 2, 3)]
    rows = [["ada", "done", "done", "not yet", "2"], ["bob", "not yet", "not yet", "not yet", "0"]]
    assert marks(tmp_path) == [["student", *keys, "done"], *rows]


@pytest.mark.soak
def test_her_teacher_releases_it_to_a_class(site: Path, tmp_path: Path) -> None:
    said = ran(site, tmp_path, "-m", "minips", "lab", "--class", "class", "--course", "mine")
    assert said.startswith(f"The lessons of 'Who is right?' are in {tmp_path / 'class'}:\n  student ")
    pages = {path.relative_to(tmp_path / "class").as_posix() for path in tmp_path.glob("class/*/*[a-zA-Z]")}
    further = {"student/AGENTS.md", "challenge/AGENTS.md", "instructor/ANSWERS.md"}
    assert pages - {f"{one.partition('/')[0]}/.minips-lessons.json" for one in pages} == further | {
        f"{kind}/00_votes.ipynb" for kind in ("student", "instructor", "challenge")
    }
    assert "> **more often**: Three err together" in (tmp_path / "class/instructor/ANSWERS.md").read_text()


@pytest.mark.skipif(sys.platform == "win32", reason="a sandbox needs the limits of Linux or macOS")
def test_her_teacher_grades_a_class(site: Path, tmp_path: Path) -> None:
    for name, answer in {"ada": SOLVED, "bob": STARTED}.items():
        (tmp_path / "class" / name).mkdir(parents=True)
        assert [*handed_in(tmp_path / "class" / name, votes=answer)]
    ran(site, tmp_path, "-m", "minips", "grade", "class", "--csv", "m.csv", "--seed", "7", "--course", "mine")
    found = json.loads((tmp_path / "m.json").read_text())["students"]
    marks = {name: student["marks"]["mine:votes.1"] for name, student in found.items()}
    assert {name: (one["mark"], one["judged"]) for name, one in marks.items()} == {
        "ada": ("done", "outside"),
        "bob": ("not yet", "outside"),
    }


@pytest.mark.soak
@pytest.mark.outside
def test_it_runs_to_its_end_where_pip_installs_it(package: Path, tmp_path: Path) -> None:
    """Without ``-e``, for which hatchling needs a library that only pip's isolation fetches."""
    pip = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    command = [sys.executable, *pip, "--target", str(tmp_path / "site"), str(package)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    code = textwrap.dedent(
        """
        import json, sys
        import nbformat
        from nbclient import NotebookClient
        from mine_course import course
        book = nbformat.read(course.notebooks / "00_votes.ipynb", as_version=4)
        NotebookClient(book, timeout=100).execute()
        print(json.dumps(book))
        """
    )
    book = json.loads(ran(tmp_path / "site", tmp_path, "-c", code, errors=False, MINIPS_AUTOPLAY="1"))
    said = json.dumps([cell.get("outputs") for cell in book["cells"]], ensure_ascii=False)
    for words in ("The majority is right in 69% of the votes.", "✗ mine:votes.1: not yet.", "<Votes: "):
        assert words in said


@pytest.mark.soak
@pytest.mark.outside
def test_the_command_of_the_page_runs_the_notebook_and_stops_at_a_wrong_key(site: Path, tmp_path: Path) -> None:
    (line,) = (line for line in pages.commands("docs/own-course.md") if "jupyter execute" in line)
    setting, *command = shlex.split(line)
    book = tmp_path / command[-1]
    book.parent.mkdir(parents=True)
    for key, status in (("mine:votes.2", 0), ("mine:votes.4", 1)):
        nbformat.write(notebook(files_of_the_page()[command[-1]].replace('"mine:votes.2"', f'"{key}"')), book)
        before = book.read_bytes()
        said = ran(site, tmp_path, "-m", *command, status=status, **dict([setting.split("=")]))
        assert ("There is no exercise 'mine:votes.4'" in said) == bool(status)
        assert book.read_bytes() == before
        assert [*tmp_path.rglob("*.*")] == [book]


def test_each_of_its_parts_is_ten_lines() -> None:
    for block in re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE):
        code = [line for line in block.splitlines() if line and not line.startswith(("#", "import", "from", "@"))]
        assert len(code) <= 12, block


def test_the_page_counts_the_exercises_that_are_judged_beside_their_answers() -> None:
    beside = sum(asked.beside for asked in EXERCISES.values() if ":" not in asked.key)
    assert beside == 14
    assert f"Fourteen of the {sum(':' not in key for key in EXERCISES)} exercises are judged `beside`" in TEACH
