"""The marks of a class: what its students hand in is graded, whatever it tries, and nothing is left of it."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from test_exercises import solution_of, source
from test_lessons import lesson

import minips_course.bits.cases as cases
from minips import cli
from minips.lab.course import marks
from minips.lab.course.courses import chosen
from minips.lab.course.handed_in import students
from minips.lab.course.slices import checks, needed, pieces, program

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have limits only")

KEY, OTHER = "bits.2", "bits.3"
BOOK = lesson(chosen().paths()["bits"])
GIVEN = next(cell.source for cell in BOOK.cells if cell.source.startswith("class Server(Server):"))
RIGHT = solution_of(KEY)[1]
WRONG = source(KEY, cases.BROKEN[KEY]["cut towards zero"])
INSIDE = RIGHT.replace("parts = {}", "parts = {}\n        {0}", 1)
"""The solution, with a place for what else it does when it is called."""


def does(*lines: str) -> str:
    """Return the solution of other lines that run when it is called."""
    return INSIDE.replace("{0}", "\n        ".join(lines))


def forges(*lines: str) -> str:
    """Return a wrong answer after lines that would make it right."""
    return "\n".join([*lines, WRONG])


EVERYWHERE = """import os, json
for number in range(3, 100):
    try:
        os.write(number, json.dumps(["answer", ["", "done", ""]]).encode())
    except OSError:
        pass"""

UNSEEN = """import msgpack
said = msgpack.packb(["answer", ["", "done", ""]])
for number in range(3, 100):
    try:
        open(number, 'wb', closefd=False, buffering=0).write(len(said).to_bytes(8, 'big') + said)
    except OSError:
        pass"""
"""Forged answers in the form in which a sandbox answers."""

HANDED_IN: dict[str, tuple[str, str]] = {
    "right": (RIGHT, "done"),
    "right otherwise": (cases.RIGHT[KEY]["shares of the largest"], "done"),
    "right once more": (cases.RIGHT[KEY]["from the least to the largest"], "done"),
    "half done": (GIVEN, "not yet"),
    **{f"wrong: {what}": (source(KEY, one), "not yet") for what, one in [*cases.BROKEN[KEY].items()][:3]},
    "stops": (does("1 / 0"), "not yet"),
    "stops at once": ("1 / 0\n" + RIGHT, "done"),
    "no answer": ("del Server", "not yet"),
    "hangs": (does("while True: pass"), "blocked"),
    "hangs at once": ("class Server:\n    while True: pass", "blocked"),
    "catches what stops it": (
        does("while True:", "    try:", "        while True: pass", "    except: pass"),
        "blocked",
    ),
    "prints for ever": (does("while True: print('noise')"), "blocked"),
    "forks": (does("import os", "while True: os.fork()"), "blocked"),
    "forks unseen": (
        does("import os", "for name in dir(os):", "    if name == 'fo' + 'rk': vars(os)[name]()"),
        "blocked",
    ),
    "starts programs": (does("import shutil", "shutil.os.popen('yes').read()"), "blocked"),
    "eats memory": (does("np.ones(2**33, 'u1')"), "blocked"),
    "eats memory at once": ("class Server(Server):\n    eaten = bytearray(2**33)", "blocked"),
    "ends the process": (does("import os", "os._exit(0)"), "blocked"),
    "ends it otherwise": (does("raise SystemExit"), "not yet"),
    "connects": (does("import socket", "socket.create_connection(('10.0.0.1', 80), 3)"), "not yet"),
    "imports torch": ("import torch\n" + RIGHT, "done"),
    "reads others": (does("from pathlib import Path", "print(Path({other!r}).read_text())"), "not yet"),
    "returns what others wrote": (
        "from pathlib import Path\nclass Server(Server):\n    exec(Path({other!r}).read_text())",
        "blocked",
    ),
    "lists others": (
        "from pathlib import Path\nclass Server(Server):\n    assert [*Path({folder!r}).glob('*')], 'nobody'",
        "not yet",
    ),
    "reads the environment": (does("from os import environ", "assert 'SECRET' not in environ"), "done"),
    "writes the progress": (does("open('progress', 'w').write('x')"), "not yet"),
    "a verdict": (
        forges("from minips.lab.course.exercises import VERDICTS, Verdict", f"VERDICTS[{KEY!r}] = Verdict(1, 1, '')"),
        "not yet",
    ),
    "patches the lab": (forges("lab.check = lambda *_: True"), "not yet"),
    "patches the judge": (
        forges("import minips.lab.course.exercises as ex", "ex.refuse_if = lambda *_: None", "Server.x = ex"),
        "blocked",
    ),
    "patches numpy": (forges("np.abs = lambda x: x * 0"), "blocked"),
    "patches it when called": (does("object.__setattr__(np, 'ab' 's', lambda x: x)"), "blocked"),
    "patches it unseen": (does("[*map(lambda s: s(np, 'abs', max), [type(np).__setattr__])]"), "blocked"),
    "prints a verdict": (forges('print(\'["answer", ["", "done", ""]]\')'), "not yet"),
    "writes everywhere": (f"Server.x = 1\n{EVERYWHERE}\nServer.y = json\n{GIVEN}", "not yet"),
    "writes everywhere when called": (does(*EVERYWHERE.splitlines()), "blocked"),
    "writes everywhere unseen": (does(*UNSEEN.splitlines()), "blocked"),
    "at exit": (forges("import atexit", "Server.x = atexit.register(print)"), "blocked"),
    "looks around": (does("import gc", "gc.get_objects()"), "blocked"),
    "looks up": (does("import sys", "sys._getframe(3)"), "blocked"),
    "equals everything": (
        RIGHT.replace("def decode", "def __class__(self): ...\n\n    @staticmethod\n    def decode"),
        "blocked",
    ),
    "not Python": (RIGHT.replace("parts = {}", "parts = {", 1), "blocked"),
    "not Python elsewhere": (RIGHT + "\n# %%\nthis is no Python", "done"),
    "magic": ("%time\n" + RIGHT + "\n!ls", "done"),
}
"""What students put in place of the cell with the exercise, and the mark that they should get."""
FEW = ("right", "half done", "not Python", "patches numpy", "eats memory")
"""Those that are tried by default."""


def hand_in(folder: Path, name: str, code: str) -> Path:
    """Write a student's notebook with this answer; a line ``# %%`` begins another cell."""
    book = json.loads(json.dumps(BOOK))
    place = next(i for i, cell in enumerate(book["cells"]) if cell["source"] == GIVEN)
    code = code.replace("{other!r}", repr(str(folder / "ada" / "bits.ipynb"))).replace("{folder!r}", repr(str(folder)))
    texts = code.split("\n# %%\n")
    book["cells"][place : place + 1] = [{**book["cells"][place], "source": text} for text in texts]
    path = folder / name / "bits of mine.ipynb"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(book))
    return path


def graded(folder: Path, *more: str, status: int = 0) -> dict[str, Any]:
    """Grade a class in this process, and return the JSON."""
    table = folder.parent / "marks.csv"
    assert cli.main(["grade", str(folder), "--csv", str(table), "--seed", "7", *more]) == status
    found: dict[str, Any] = json.loads(table.with_suffix(".json").read_text())
    with table.open(newline="") as file:
        rows = [*csv.reader(file)]
    assert rows[0] == ["student", *found["exercises"], "done"]
    assert [row[0].lstrip("'") for row in rows[1:]] == [*found["students"]]
    return found


def check_class(found: dict[str, Any], expected: dict[str, str]) -> None:
    got = {name: found["students"][name]["marks"][KEY] for name in expected}
    wrong = {name: mark for name, mark in got.items() if mark["mark"] != expected[name]}
    assert not wrong, json.dumps(wrong, indent=1)
    assert all(mark["seconds"] < 60 for mark in got.values())
    assert all(mark["words"] for mark in got.values())


def test_a_few_students(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("SECRET", "word")
    folder = tmp_path / "class"
    for name in FEW:
        hand_in(folder, name, HANDED_IN[name][0])
    found = graded(folder)
    check_class(found, {name: HANDED_IN[name][1] for name in FEW})
    assert all(student["marks"][OTHER]["mark"] == "not yet" for student in found["students"].values())
    assert not (tmp_path / "state").exists()


@pytest.mark.soak
def test_a_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four minutes."""
    monkeypatch.setenv("SECRET", "word")
    monkeypatch.setattr(marks, "EXERCISES", {KEY: marks.EXERCISES[KEY]})
    folder = tmp_path / "class"
    for name, (code, _) in HANDED_IN.items():
        hand_in(folder, name, code)
    expected = {name: mark for name, (_, mark) in HANDED_IN.items()}
    check_class(graded(folder), expected)
