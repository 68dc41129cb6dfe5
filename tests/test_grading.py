"""Grading from the shell: the notebook's cells run in a fresh kernel, up to the check."""

import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
import pytest
from jupyter_client.provisioning.local_provisioner import LocalPortCache
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from minips import cli
from minips.lab.course import state

SOLVED = """def bytes_per_push(run):
    return run.bytes_sent / run.updates"""
IMPORTS = "from minips import lab"
CHECK = 'lab.check("train.3", bytes_per_push)'


def notebook(path: Path, *cells: str) -> str:
    book = new_notebook(cells=[new_markdown_cell("# A lesson"), *map(new_code_cell, cells)])
    nbformat.write(book, path / "mine.ipynb")
    return str(path / "mine.ipynb")


@pytest.mark.outside
def test_a_solved_exercise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    after = "open('after.txt', 'w')"
    guess = "guess = lab.predict('trust.1')\nguess.require()"
    path = notebook(tmp_path, IMPORTS, guess, SOLVED, "%time 1 / 0", CHECK, after)
    assert cli.main(["check", "0.3", path]) == 0
    assert capsys.readouterr().out.startswith("✓ train.3 is done.")
    assert not (tmp_path / "after.txt").exists()


@pytest.mark.outside
def test_grading_marks_nobodys_progress_and_takes_several_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("MINIPS_AUTOPLAY")
    assert state.note("exercise", "train.1") == ""
    before = state.facts()
    good, none = notebook(tmp_path, IMPORTS, SOLVED, CHECK), str(tmp_path / "none.ipynb")
    assert cli.main(["check", "0.3", none, good]) == 2
    said = capsys.readouterr()
    assert said.out.startswith(f"{good}: ✓ train.3 is done.")
    assert said.err == f"minips: {none} cannot be read: no such file or directory. Name your copy of the lesson.\n"
    assert state.facts() == before


@pytest.mark.soak
@pytest.mark.outside
def test_a_copy_of_an_edition_whose_keys_were_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = notebook(tmp_path, IMPORTS, SOLVED, CHECK.replace("train.3", "00.3"))
    for key in ("train.3", "00.3"):
        assert cli.main(["check", key, path]) == 0
        assert capsys.readouterr().out.startswith("✓ train.3 is done.")


@pytest.mark.soak
@pytest.mark.outside
def test_a_port_that_another_process_has_taken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    find, told = LocalPortCache.find_available_port, []
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]

        def found(self: LocalPortCache, ip: str) -> int:
            told.append(find(self, ip) if told else taken)
            return told[-1]

        monkeypatch.setattr(LocalPortCache, "find_available_port", found)
        assert cli.main(["check", "0.3", notebook(tmp_path, IMPORTS, SOLVED, CHECK)]) == 0
    assert told[0] == taken
    assert len(told) == 10  # of two kernels


@pytest.mark.outside
@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ([IMPORTS, SOLVED.replace("run.updates", "(run.updates + 1)"), CHECK], "✗ train.3: not yet. For "),
        ([IMPORTS, CHECK], "Cell 3 stopped with NameError: name 'bytes_per_push'"),
        pytest.param([IMPORTS, "import os; os._exit(1)", CHECK], "The kernel died", marks=pytest.mark.soak),
    ],
    ids=["wrong", "not reached", "dead kernel"],
)
def test_an_exercise_that_is_not_solved(
    cells: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", "train.3", notebook(tmp_path, *cells)]) == 1
    said = capsys.readouterr()
    assert words in said.out + said.err
    assert "Traceback" not in said.out + said.err


@pytest.mark.parametrize(
    ("number", "where", "name", "code"),
    [
        pytest.param(signal.SIGINT, "in a cell", "Ctrl-C", 130, marks=pytest.mark.soak),
        pytest.param(signal.SIGTERM, "as the kernel starts", "SIGTERM", 143, marks=pytest.mark.soak),
    ],
    ids=["Ctrl-C in a cell", "SIGTERM as the kernel starts"],
)
def test_a_check_that_is_stopped_ends_with_one_sentence_and_no_kernel_left(
    number: int, where: str, name: str, code: int, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    path = notebook(tmp_path, f"import time\nopen({str(begun)!r}, 'w')\ntime.sleep(60)", CHECK)
    command = [sys.executable, "-m", "minips", "check", "train.3", path]
    check = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        deadline = time.monotonic() + 30
        while not (kernels := psutil.Process(check.pid).children()) or (where == "in a cell" and not begun.exists()):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        check.send_signal(number)
        said, _ = check.communicate(timeout=30)
    finally:
        check.kill()
    assert (check.returncode, said) == (code, f"Stopped by {name}; everything that was started has ended.\n")
    _, alive = psutil.wait_procs(kernels, timeout=10)
    assert not alive


def test_a_kernel_that_is_not_installed_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = notebook(tmp_path, IMPORTS, SOLVED, CHECK)
    book = nbformat.read(path, as_version=4)
    book.metadata["kernelspec"] = {"name": "my-own", "display_name": "My own", "language": "python"}
    nbformat.write(book, path)
    assert cli.main(["check", "train.3", path]) == 1
    assert capsys.readouterr().err == (
        f"minips: {path} needs the kernel 'my-own', which is not installed here. Choose another in JupyterLab and save "
        "it.\n"
    )


@pytest.mark.parametrize(
    ("key", "file", "words"),
    [
        ("0.9", "mine.ipynb", "Did you mean train."),
        ("train.4", "mine.ipynb", 'no cell with lab.check("train.4", …)'),
        ("train.3", "nowhere.ipynb", "nowhere.ipynb"),
        ("train.3", "text.ipynb", "not a notebook"),
    ],
)
def test_what_cannot_be_graded_is_one_sentence(
    key: str, file: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook(tmp_path, IMPORTS, SOLVED, CHECK)
    (tmp_path / "text.ipynb").write_text("# no notebook")
    assert cli.main(["check", key, str(tmp_path / file)]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert len(error.strip().splitlines()) == 1
