"""A course's release to a class: nothing in a learner's copy gives an answer away, and nothing else is missing."""

import ast
import json
import re
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
import numpy as np
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from test_lessons import exercises

from minips import cli
from minips.lab import Course
from minips.lab.course import PROMPTS, QUESTIONS, QUIZZES, lessons, release
from minips.lab.course.courses import chosen
from minips.lab.course.exercises import Exercise, Refused, hint, judge
from minips.lab.course.questions import Item, Prompt
from minips_course import rubric

LEARNERS = ("student", "challenge")
TASKS = ("predict", "say", "check", "answer", "quiz")
LESSONS = lessons.lessons()
BY_NAME = pytest.mark.parametrize("name", [lesson.path.name for lesson in LESSONS])
LEAST = 20
"""A line with fewer characters is no solution."""
SHOWN_LATER = {
    "for _ in range(steps):",
    "def compensate(self, x, state):",
    "def update(self, p, sent, state):",
    'state["error"] = p - sent',
    "x = rng.normal(size=size).astype(np.float32)",
}
"""Lines of solutions that a later cell or lesson shows in another class or function."""


@cache
def pages(kind: str) -> dict[str, str]:
    """A copy's files, as text."""
    return {name: page.decode() for name, page in release.KINDS[kind].pages(chosen()).items()}


@cache
def original(name: str) -> Any:
    return nbformat.read(chosen().notebooks / name, as_version=4)


def book(kind: str, name: str) -> Any:
    return nbformat.reads(pages(kind)[name], as_version=4)


def code(book: Any) -> list[str]:
    return [cell.source for cell in book.cells if cell.cell_type == "code"]


class Hidden(NamedTuple):
    """A folded block, and what the course shows before it."""

    lesson: str
    block: str
    text: str
    functions: frozenset[str]

    def lines(self) -> set[str]:
        """The lines of code and text that nothing before them shows."""
        lines = {line.strip() for line in self.block.splitlines()}
        return {line for line in lines if len(line) >= LEAST and line not in self.text}


@cache
def hidden() -> list[Hidden]:
    text, known, found = "", frozenset[str](), []
    for lesson in LESSONS:
        for cell in original(lesson.path.name).cells:
            for block in re.findall(r"<details>.*?</summary>(.*?)</details>", cell.source, re.DOTALL):
                found.append(Hidden(lesson.path.name, block, text, known))
            text += re.sub(r"<details>.*?</details>", "", cell.source, flags=re.DOTALL)
            known |= functions(cell.source).keys() if cell.cell_type == "code" else set()
    return found


def functions(source: str) -> dict[str, str]:
    """What the functions in Python code do, without docstrings, by what they look like as trees."""
    try:
        tree = ast.parse("\n".join(line for line in source.splitlines() if not line.startswith("%")))
    except SyntaxError:
        return {}
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            body = node.body[ast.get_docstring(node) is not None :]
            found["".join(map(ast.dump, body))] = ast.unparse(node)
    return found


def as_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


@pytest.mark.parametrize("kind", LEARNERS)
def test_no_line_of_a_solution_is_in_a_learners_copy(kind: str) -> None:
    """Nor in its metadata and outputs: the files are searched as they are stored."""
    lines = {line for one in hidden() for line in one.lines()}
    assert len(hidden()) == sum(len(lesson.exercises) for lesson in LESSONS)
    assert all(one.lines() for one in hidden())
    everything = "\n".join(pages(kind).values())
    found = {line for line in lines if line in everything or as_json(line) in everything}
    assert found <= SHOWN_LATER
    assert "details>" not in everything


@pytest.mark.parametrize("kind", LEARNERS)
def test_no_solution_is_there_in_other_words(kind: str) -> None:
    """As a tree, without names of files, spaces, comments and quotation marks."""
    looked_for = {
        tree: text
        for one in hidden()
        for solution in re.findall(r"```python\n(.*?)```", one.block, re.DOTALL)
        for tree, text in functions(solution).items()
        if tree not in one.functions
    }
    assert len(looked_for) > 60
    blocks = [cell for lesson in LESSONS for cell in code(book(kind, lesson.path.name))]
    for page in pages(kind).values():
        blocks += re.findall(r"```python\n(.*?)```", page.replace("\\n", "\n"), re.DOTALL)
    shown = {tree for block in blocks for tree in functions(block)}
    found = {looked_for[tree] for tree in looked_for.keys() & shown}
    assert found <= {"def update(self, p, sent, state):\n    state['error'] = p - sent"}  # lesson 11 begins with it


@pytest.mark.parametrize("kind", LEARNERS)
def test_no_model_answer_and_no_word_of_a_quiz_is_in_a_learners_copy(kind: str) -> None:
    everything = "\n".join(pages(kind).values())
    words = [prompt.example for prompt in PROMPTS.values()]
    for item in (item for quiz in QUIZZES.values() for item in quiz):
        words += [item.text, *item.explained.values()]
    for question in QUESTIONS.values():
        words += [one.because for one in getattr(question, "choices", [question])]
    sentences = {one for text in words for one in re.split(r"(?<=[.!?]) ", text) if len(one) >= LEAST}
    assert len(sentences) > 1000
    assert not [one for one in sentences if one in everything or as_json(one) in everything]


def test_the_instructors_copy_has_it_all() -> None:
    instructor = pages("instructor")
    for lesson in LESSONS:
        assert instructor[lesson.path.name] == lesson.path.read_text(encoding="utf-8")
    assert all(as_json(line) in instructor[one.lesson] for one in hidden() for line in one.lines())
    answers = instructor[release.ANSWERS]
    for prompt in PROMPTS.values():
        assert f"**`{prompt.key}`** {prompt.task}\n\n> {prompt.example}" in answers
    for item in (item for quiz in QUIZZES.values() for item in quiz):
        assert f"{item.text}\n\n- ✓ **{item.right}** {item.explained[item.right]}\n- ✗ **" in answers
        assert all(f"**{option}** {why}" in answers for option, why in item.explained.items())
    for question in QUESTIONS.values():
        assert f"**`{question.key}`** {question.text}\n\n> **" in answers
    assert instructor[release.RUBRIC] == rubric.markdown()
    assert lessons.ASSISTANTS not in instructor
    assert not any(release.RUBRIC in pages(kind) for kind in LEARNERS)


@BY_NAME
def test_a_students_notebook_is_the_lesson_without_outputs_and_folded_blocks(name: str) -> None:
    student, whole = book("student", name), original(name)
    nbformat.validate(student)
    assert code(student) == code(whole)
    texts = [cell.source for cell in whole.cells if cell.cell_type == "markdown"]
    texts = [re.sub(r"\n*<details>.*?</details>\n*", "\n\n", text, flags=re.DOTALL).strip("\n") for text in texts]
    assert [cell.source for cell in student.cells if cell.cell_type == "markdown"] == [*filter(None, texts)]
    for cell in student.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
        assert cell.metadata.keys() <= {"tags", "jupyter"}
        assert "attachments" not in cell
    assert student.metadata.keys() == {"kernelspec", "language_info"}


@BY_NAME
def test_a_challenge_has_all_tasks_and_only_the_signatures_of_starting_code(name: str) -> None:
    challenge, whole = book("challenge", name), original(name)
    nbformat.validate(challenge)
    assert challenge.cells[1].source == release.NO_HINTS
    assert "lab.hint" not in pages("challenge")[name]
    given, left = code(whole), code(challenge)[1:]
    assert len(left) == len(given)
    checks = [i for i, cell in enumerate(given) if "lab.check(" in cell]
    for i, (before, after) in enumerate(zip(given, left, strict=True)):
        if i + 1 not in checks:
            assert after == before
            continue
        assert functions(after).keys() <= {ast.dump(ast.parse("...").body[0]), ""}
        assert outline(after) == outline(before)
    for task in TASKS:
        keys = [[lessons.arguments(cell, task) for cell in one.cells] for one in (whole, challenge)]
        assert sum(keys[0], []) == sum(keys[1], [])  # noqa: RUF017, of a few lists


def outline(source: str) -> list[str]:
    """The heads of a cell's functions, their docstrings, and all that is outside of functions."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.body = node.body[: ast.get_docstring(node) is not None] + ast.parse("...").body
    return ast.unparse(tree).splitlines()


@pytest.mark.parametrize(
    ("source", "left"),
    [
        ("def majority(votes): ...", "def majority(votes): ..."),
        ("def f(x): return 2 * x  # twice\ny = 1", "def f(x): ...\ny = 1"),
        (
            'def é(x):\n    """Twice."""\n\n    # add\n    return (\n        x + x\n    )',
            'def é(x):\n    """Twice."""\n    ...',
        ),
        ("def f(x):\n    @cache\n    def g(): ...\n\n    return g", "def f(x):\n    ..."),
        ("class A:\n    n = 3\n\n    async def f(self):\n        pass\n\n    def g(self): ...", None),
        ("%time f()\ndef f(): return 1", "%time f()\ndef f(): return 1"),
        ('"""é"""; f = lambda x: x', '"""é"""; f = lambda x: x'),
    ],
)
def test_signatures(source: str, left: str | None) -> None:
    left = left or "class A:\n    n = 3\n\n    async def f(self):\n        ...\n\n    def g(self): ..."
    assert release.signatures(source) == left


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("as it is\n", "as it is\n"),
        ("one\n\n<details open><summary>x</summary>\ny\n</details>\n\ntwo", "one\n\ntwo"),
        ("<DETAILS>a<details>b</details>c</DETAILS>", ""),
        ("a\n<details>b</details>\n<details>c</details>\nd", "a\n\nd"),
        ("a\n<details>\nb", "a"),
        ("a</details>\nb", "a\n\nb"),
    ],
)
def test_folded_blocks(text: str, left: str) -> None:
    assert release.without_folded(text) == left


def test_hints_are_off_where_the_environment_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def test(answer: Any, rng: np.random.Generator) -> str:
        raise Refused("it is not.")

    asked = Exercise("train.3", "", ("Divide.",), test)
    assert 'A hint: lab.hint("train.3")' in judge(asked, None, np.random.default_rng(0)).words
    monkeypatch.setenv(*release.NO_HINTS.partition("%env ")[2].split("="))
    assert judge(asked, None, np.random.default_rng(0)).words == "it is not."
    hint("train.3")
    assert capsys.readouterr().out == "There are no hints here: this copy of the lesson is a challenge.\n"


PICTURE = {"image/png": "iVBORw0KGgo="}
SECRET = "eleven of twelve"


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Course:
    """A course of one's own, in which the secret is wherever a notebook can have one."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    cells = [
        new_markdown_cell("# Ask five\n\n![votes](attachment:votes.png)"),
        new_code_cell("from minips import lab"),
        new_code_cell("def majority(votes):\n    return votes[0]", metadata={"solution": SECRET, "tags": ["mine"]}),
        new_code_cell("lab.check('mine:votes.1', majority)", outputs=[new_output("stream", text=SECRET)]),
        new_markdown_cell(f"<details>{SECRET} ![](attachment:secret.png)</details>\n\nNext:"),
    ]
    cells[0]["attachments"] = {"votes.png": PICTURE}
    cells[-1]["attachments"] = {"secret.png": {"image/png": SECRET}}
    state = {"application/vnd.jupyter.widget-state+json": {"state": {SECRET: {}}, "version_major": 2}}
    nbformat.write(new_notebook(cells=cells, metadata={"widgets": state, "x": SECRET}), shelf / "00_votes.ipynb")
    (shelf / "GLOSSARY.md").write_text(f"# Words\n\n<details>{SECRET}</details>\n")
    course = Course("mine", "Who is right?", shelf, ("votes",))
    monkeypatch.setattr("minips.lab.course.courses.named", {"mine": course}.__getitem__)
    monkeypatch.setitem(PROMPTS, "mine:votes.1", Prompt("mine:votes.1", "Why?", f"In {SECRET}."))
    monkeypatch.setitem(QUIZZES, "mine:votes", (Item("How often?", {SECRET: "Count.", "never": "Look again."}),))
    return course


def release_it(folder: Path) -> int:
    return cli.main(["lab", "--class", str(folder), "--course", "mine"])


def test_a_course_of_ones_own(mine: Course, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "class"
    assert release_it(folder) == 0
    said = capsys.readouterr()
    assert re.match(rf"The lessons of 'Who is right\?' are in {folder}:\n  student ", said.out)
    assert said.out.count("\n") == 1 + len(release.KINDS)
    assert said.err == ""
    for kind in LEARNERS:
        files = {path.name: path.read_text() for path in (folder / kind).iterdir()}
        assert files.keys() == {"00_votes.ipynb", "GLOSSARY.md", lessons.ASSISTANTS, lessons.LEDGER}
        assert not [name for name, text in files.items() if SECRET in text]
        copy = nbformat.reads(files["00_votes.ipynb"], as_version=4)
        nbformat.validate(copy)
        assert copy.cells[0].attachments == {"votes.png": PICTURE}
        assert copy.cells[-1].source == "Next:"
        assert ("return votes[0]" in files["00_votes.ipynb"]) == (kind == "student")
    whole = folder / "instructor"
    assert (whole / "00_votes.ipynb").read_bytes() == (mine.notebooks / "00_votes.ipynb").read_bytes()
    answers = (whole / release.ANSWERS).read_text()
    assert f"## 00 Ask five\n\n### Model answers\n\n**`mine:votes.1`** Why?\n\n> In {SECRET}." in answers
    assert f"### Quiz\n\nHow often?\n\n- ✓ **{SECRET}** Count.\n- ✗ **never** Look again." in answers


def test_a_second_time_what_was_changed_is_kept_and_named(
    mine: Course, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "class"
    assert release_it(folder) == 0
    first = capsys.readouterr().out
    assert release_it(folder) == 0
    assert capsys.readouterr().out == first
    changed = folder / "student" / "00_votes.ipynb"
    changed.write_text("what the teacher did")
    lesson = mine.notebooks / "00_votes.ipynb"
    lesson.write_text(lesson.read_text().replace("Ask five", "Ask seven"))
    assert release_it(folder) == 0
    said = capsys.readouterr().out
    assert "Kept in student with your changes; rename one to get a fresh copy: 00_votes.ipynb\n" in said
    assert "Updated in challenge, as you had not changed them: 00_votes.ipynb\n" in said
    assert f"Updated in instructor, as you had not changed them: 00_votes.ipynb, {release.ANSWERS}\n" in said
    assert changed.read_text() == "what the teacher did"
    assert "Ask seven" in (folder / "challenge" / "00_votes.ipynb").read_text()


def test_minips_lab_opens_a_class_folder_without_adding_the_solutions(
    mine: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("minips.lab.course.jupyter.start", lambda *said: None)
    monkeypatch.setattr("minips.lab.course.jupyter.running", lambda folder: None)
    assert release_it(tmp_path) == 0
    for kind in release.KINDS:
        before = {path.name: path.read_bytes() for path in (tmp_path / kind).iterdir()}
        assert cli.main(["lab", str(tmp_path / kind), "--course", "mine"]) == 0
        assert before.items() <= {path.name: path.read_bytes() for path in (tmp_path / kind).iterdir()}.items()
    capsys.readouterr()
    assert cli.main(["lab", str(tmp_path / "student"), "--course", "mine", "--outputs"]) == 2
    assert "has the student copies of a class. Name another folder for" in capsys.readouterr().err
    plain = tmp_path / "plain"
    assert cli.main(["lab", str(plain), "--course", "mine"]) == 0
    (plain / lessons.ASSISTANTS).write_text("my own rules")
    assert cli.main(["lab", str(plain), "--course", "mine"]) == 0
    assert (plain / lessons.ASSISTANTS).read_text() == "my own rules"
    assert SECRET in (plain / "00_votes.ipynb").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mine"], "leave out FOLDER."),
        (["--outputs", "--port", "0"], "leave out --port and --outputs."),
        (["--reset", "--yes"], "leave out --reset and --yes."),
        (["--no-browser"], "leave out --no-browser."),
        (["--ServerApp.ip=x"], "leave out --ServerApp.ip=x."),
        (["--class", "file"], "The class' folders cannot be written to file: not a directory. Name another folder."),
        (["--class", "file/below"], "The class' folders cannot be written to file/below: not a directory."),
        (["--course", "absent"], "There is no course 'absent': it is not installed."),
    ],
)
def test_wrong_arguments(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    assert cli.main(["lab", "--class", "class", *arguments]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.out == ""
    assert [*tmp_path.iterdir()] == [tmp_path / "file"]


def test_a_folder_that_cannot_be_written(
    mine: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def mkdir(path: Path, **options: bool) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", mkdir)
    assert release_it(tmp_path / "class") == 2
    words = f"The class' folders cannot be written to {tmp_path / 'class'}: permission denied. Name another folder."
    assert words in capsys.readouterr().err


def test_the_rules_for_assistants_are_short() -> None:
    rules = pages("student")[lessons.ASSISTANTS]
    assert rules == pages("challenge")[lessons.ASSISTANTS]
    assert len(rules.splitlines()) < 60
    for name in ("checks.py", "cases.py", "questions.py"):
        assert name in rules
    assert len(re.findall(r"^## A \w+ dialogue$", rules, re.MULTILINE)) == 2


@pytest.mark.soak
@pytest.mark.outside
def test_minips_check_grades_both_learners_copies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With the code that is given, and with the solution pasted in."""
    name, key = LESSONS[1].path.name, "split.3"
    solution = next(code for check, code in exercises(original(name)) if key in check)
    for kind, further in zip(LEARNERS, (True, False), strict=True):
        copy = book(kind, name)
        cells = [cell for cell in copy.cells if cell.cell_type == "code"]
        (check,) = (i for i, cell in enumerate(cells) if lessons.arguments(cell, "check") == [key])
        nbformat.write(copy, tmp_path / name)
        assert cli.main(["check", key, str(tmp_path / name)]) == 1
        said = capsys.readouterr().out
        assert said.startswith(f"✗ {key}: not yet. ")
        assert ("A hint" in said) == further
        cells[check - 1].source = solution
        nbformat.write(copy, tmp_path / name)
        assert cli.main(["check", key, str(tmp_path / name)]) == 0
        assert capsys.readouterr().out.startswith(f"✓ {key} is done.")
