"""Grading from the shell: the notebook's cells run in a fresh kernel, up to the check."""

from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from minips import cli

SOLVED = """def bytes_per_push(run):
    return run.bytes_sent / run.updates"""
IMPORTS = "from minips import lab"
CHECK = 'lab.check("00.3", bytes_per_push)'


def notebook(path: Path, *cells: str) -> str:
    book = new_notebook(cells=[new_markdown_cell("# A lesson"), *map(new_code_cell, cells)])
    nbformat.write(book, path / "mine.ipynb")
    return str(path / "mine.ipynb")


@pytest.mark.outside
def test_a_solved_exercise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    after = "open('after.txt', 'w')"
    guess = "guess = lab.predict('Which?', ['this', 'that'])\nguess.require()"
    path = notebook(tmp_path, IMPORTS, guess, SOLVED, "%time 1 / 0", CHECK, after)
    assert cli.main(["check", "0.3", path]) == 0
    assert capsys.readouterr().out.startswith("✓ 00.3 is done.")
    assert not (tmp_path / "after.txt").exists()


@pytest.mark.outside
@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ([IMPORTS, SOLVED.replace("updates", "seconds"), CHECK], "✗ 00.3: not yet. For "),
        ([IMPORTS, CHECK], "Cell 3 stopped with NameError: name 'bytes_per_push'"),
        ([IMPORTS, "import os; os._exit(1)", CHECK], "The kernel died"),
    ],
    ids=["wrong", "not reached", "dead kernel"],
)
def test_an_exercise_that_is_not_solved(
    cells: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", "00.3", notebook(tmp_path, *cells)]) == 1
    said = capsys.readouterr()
    assert words in said.out + said.err
    assert "Traceback" not in said.out + said.err


@pytest.mark.parametrize(
    ("key", "file", "words"),
    [
        ("0.9", "mine.ipynb", "Did you mean 00."),
        ("00.1", "mine.ipynb", 'no cell with lab.check("00.1", …)'),
        ("00.3", "nowhere.ipynb", "nowhere.ipynb"),
        ("00.3", "text.ipynb", "not a notebook"),
    ],
)
def test_what_cannot_be_graded_is_one_sentence(
    key: str, file: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook(tmp_path, IMPORTS, SOLVED, CHECK)
    (tmp_path / "text.ipynb").write_text("# no notebook")
    assert cli.main(["check", key, str(tmp_path / file)]) == 1
    error = capsys.readouterr().err
    assert words in error
    assert len(error.strip().splitlines()) == 1
