"""The marks of a class: what its students hand in is graded, whatever it tries, and nothing is left of it."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import pytest
from test_exercises import solution_of, source
from test_lessons import lesson

import minips_course.bits.cases as cases
from minips import cli
from minips.lab.course import marks
from minips.lab.course.courses import chosen, lesson_of
from minips.lab.course.graders import MOST_BYTES, Grader
from minips.lab.course.portfolio import Portfolio
from minips.lab.course.slices import checks, needed, pieces, program

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have limits only")

KEY, OTHER = "bits.2", "bits.3"


def lesson_given(key: str) -> str:
    """Return the cell of a lesson that an exercise's answer replaces: the one before its check."""
    cells = [cell.source for cell in lesson(chosen().paths()[lesson_of(key)]).cells if cell.cell_type == "code"]
    return str(next(before for before, cell in pairwise(cells) if f'lab.check("{key}"' in cell))


GIVEN = lesson_given(KEY)
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

LATE = (
    RIGHT.replace("parts = {}", "parts = {}\n        Server.kept.append(tensors)", 1)
    + """
Server.kept = []
class Server(Server):
    @staticmethod
    def decode(parts, like):
        for tensors in Server.kept:
            for x in tensors.values():
                x[...] = 0
        return {name: np.zeros_like(x) for name, x in like.items()}
"""
)
"""A wrong answer that later changes what it was given into what it decodes."""

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
        "not yet",
    ),
    "lists others": (
        "from pathlib import Path\nclass Server(Server):\n    assert [*Path({folder!r}).glob('*')], 'nobody'",
        "not yet",
    ),
    "reads the solution": ("from minips_course.bits.cases import RIGHT\n" + WRONG + "    RIGHT", "not yet"),
    "reads the environment": (does("from os import environ", "assert 'SECRET' not in environ"), "done"),
    "writes the progress": (does("open('progress', 'w').write('x')"), "not yet"),
    "a verdict": (
        forges("from minips.lab.course.exercises import VERDICTS, Verdict", f"VERDICTS[{KEY!r}] = Verdict(1, 1, '')"),
        "not yet",
    ),
    "patches the lab": (forges("lab.check = lambda *_: True"), "not yet"),
    "patches the judge": (
        forges("import minips.lab.course.exercises as ex", "ex.refuse_if = lambda *_: None", "Server.x = ex"),
        "not yet",
    ),
    "patches numpy": (forges("np.abs = lambda x: x * 0"), "not yet"),
    "patches it when called": (does("object.__setattr__(np, 'ab' 's', lambda x: x)"), "not yet"),
    "patches it unseen": (does("[*map(lambda s: s(np, 'abs', max), [type(np).__setattr__])]"), "not yet"),
    "prints a verdict": (forges('print(\'["answer", ["", "done", ""]]\')'), "not yet"),
    "writes everywhere": (f"Server.x = 1\n{EVERYWHERE}\nServer.y = json\n{GIVEN}", "not yet"),
    "writes everywhere when called": (does(*EVERYWHERE.splitlines()), "blocked"),
    "writes everywhere unseen": (does(*UNSEEN.splitlines()), "blocked"),
    "at exit": (forges("import atexit", "Server.x = atexit.register(print)"), "not yet"),
    "looks around": (does("import gc", "gc.get_objects()"), "done"),
    "looks up": (does("import sys", "sys._getframe(3)"), "done"),
    "equals everything": (
        RIGHT.replace("def decode", "def __class__(self): ...\n\n    @staticmethod\n    def decode"),
        "done",
    ),
    "changes what it got earlier": (LATE, "not yet"),
    "not Python": (RIGHT.replace("parts = {}", "parts = {", 1), "blocked"),
    "not Python elsewhere": (RIGHT + "\n# %%\nthis is no Python", "done"),
    "magic": ("%time\n" + RIGHT + "\n!ls", "done"),
}
"""What students put in place of the cell with the exercise, and the mark that they should get."""
FEW = ("right", "half done", "not Python", "patches numpy", "eats memory", "changes what it got earlier")
"""Those that are tried by default."""

BESIDE = "stranger.2"
"""An exercise whose check runs beside the answer."""
INFLATE = solution_of(BESIDE)[1]
SLOW = "def inflate(data, limit):\n    inflated = zlib.decompress(data)"
"""The beginning of a wrong answer."""
HANDED_IN_BESIDE: dict[str, tuple[str, str]] = {
    "right": (INFLATE, "done"),
    "given": (lesson_given(BESIDE), "not yet"),
    **{
        what: (f"{code}\n{lesson_given(BESIDE)}", "blocked")
        for what, code in {
            "looks around": "import gc\nzlib.x = gc",
            "patches zlib": "zlib.decompressobj = zlib.decompress",
            "patches the judge": "import minips.lab.course.exercises as ex\nex.refuse_if = print\nzlib.x = ex",
        }.items()
    },
    **{
        what: (INFLATE.replace("limit):", f"limit):\n    {code}", 1), "blocked")
        for what, code in {
            "looks up": "import sys; sys._getframe(2)",
            "writes everywhere": "import os; os.write(4, b'x')",
            "writes everywhere unseen": "[open(i, 'wb', closefd=False).write(b'x' * 99) for i in range(3, 9)]",
            "patches minips unseen": "type(ps).__setattr__(ps, 'Sign', 1)",
            "patches a check unseen": "m = Known.__init__.__globals__",
            "forks": "import os; os.fork()",
            "forks unseen": "import shutil; vars(shutil.os)['fo' + 'rk']()",
            "ends": "import shutil; vars(shutil.os)['_ex' + 'it'](0)",
            "hangs": "while True: pass",
            "eats memory": "bytearray(2**33)",
            "looks for answers": "from minips_course.stranger import cases",
            "runs text": "exec('')",
        }.items()
    },
}


def hand_in(folder: Path, name: str, code: str, key: str = KEY) -> Path:
    """Write a student's notebook with this answer; a line ``# %%`` begins another cell."""
    book = json.loads(json.dumps(lesson(chosen().paths()[lesson_of(key)])))
    place = next(i for i, cell in enumerate(book["cells"]) if cell["source"] == lesson_given(key))
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


def check_class(found: dict[str, Any], expected: dict[str, str], key: str = KEY) -> None:
    got = {name: found["students"][name]["marks"][key] for name in expected}
    wrong = {name: mark for name, mark in got.items() if mark["mark"] != expected[name]}
    assert not wrong, json.dumps(wrong, indent=1)
    assert all(mark["seconds"] < 60 for mark in got.values())
    assert all(mark["words"] for mark in got.values())


def test_a_few_students(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("MINIPS_AUTOPLAY")
    monkeypatch.setenv("SECRET", "word")
    folder = tmp_path / "class"
    for name in FEW:
        hand_in(folder, name, HANDED_IN[name][0])
    found = graded(folder)
    check_class(found, {name: HANDED_IN[name][1] for name in FEW})
    assert all(student["marks"][OTHER]["mark"] == "not yet" for student in found["students"].values())
    assert not (tmp_path / "state").exists()
    assert not [*temporary.iterdir()]


@pytest.mark.soak
def test_answers_beside_which_their_check_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a minute."""
    monkeypatch.setattr(marks, "EXERCISES", {BESIDE: marks.EXERCISES[BESIDE]})
    folder = tmp_path / "class"
    for name, (code, _) in HANDED_IN_BESIDE.items():
        hand_in(folder, name, code, BESIDE)
    found = graded(folder)
    check_class(found, {name: mark for name, (_, mark) in HANDED_IN_BESIDE.items()}, BESIDE)
    judged = {name: one["marks"][BESIDE]["judged"] for name, one in found["students"].items()}
    assert (judged["right"], judged["looks around"]) == ("beside", "")


@pytest.mark.soak
def test_a_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute on a quiet machine; an answer that hangs is stopped after twenty seconds."""
    monkeypatch.setenv("SECRET", "word")
    monkeypatch.setattr(marks, "EXERCISES", {KEY: marks.EXERCISES[KEY]})
    folder = tmp_path / "class"
    for name, (code, _) in HANDED_IN.items():
        hand_in(folder, name, code)
    expected = {name: mark for name, (_, mark) in HANDED_IN.items()}
    check_class(graded(folder), expected)


@pytest.mark.soak
def test_what_a_check_computes_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marks, "EXERCISES", {OTHER: marks.EXERCISES[OTHER]})
    folder, names = tmp_path / "class", []
    for name, line in {
        "from": "from minips_course.bits.checks import _most as busiest",
        "import": "import minips_course.bits.checks as checks\nbusiest = checks._most",
        "package": "import minips_course.bits\nbusiest = minips_course.bits.checks._most",
        "modules": "import sys\nbusiest = sys.modules['minips_course.bits.checks']._most",
        "garbage": "import gc\nbusiest = [f for f in gc.get_objects() if getattr(f, '__name__', '') == '_most'][0]",
        "exercises": "from minips.lab.course import EXERCISES\nbusiest = EXERCISES['bits.3'].test.__globals__['_most']",
        "file": "import minips_course\nbusiest = {}\n"
        "exec(open(minips_course.__path__[0] + '/bits/checks.py').read(), busiest)\nbusiest = busiest['_most']",
    }.items():
        names.append(name)
        hand_in(folder, name, line, OTHER)
    check_class(graded(folder), dict.fromkeys(names, "not yet"), OTHER)


def test_a_process_that_grades_has_a_limit_of_memory() -> None:
    with Grader([]) as grader:
        assert grader.protections()
        limit, _ = psutil.Process(grader._process.pid).rlimit(psutil.RLIMIT_AS)
    assert limit == MOST_BYTES


def write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def test_what_is_no_notebook_and_what_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Few answers run here."""
    folder = tmp_path / "class"
    old = hand_in(folder, "two of them", "1 +")
    new = old.with_name("newer.ipynb")
    kernel = json.loads(old.read_text()) | {"metadata": {"kernelspec": {"name": "not-installed"}}}
    texts = {GIVEN: RIGHT, '"bits.3"': '"bits.99"'}
    for cell in kernel["cells"]:
        cell["source"] = texts.get(cell["source"], cell["source"].replace('"bits.3"', '"bits.99"'))
        if cell["source"] == "1 +":
            cell["source"] = RIGHT
    write(new, json.dumps(kernel))
    os.utime(old, (1, 1))
    write(folder / "=1+1" / "a.ipynb", "not JSON")
    write(folder / "list" / "a.ipynb", "[]")
    write(folder / "cells" / "a.ipynb", json.dumps({"cells": [{"cell_type": "code", "source": 3}]}))
    write(folder / "deep" / "a.ipynb", "[" * 10**5)
    write(folder / "huge" / "a.ipynb", b" " * (20 * 10**6 + 1))
    write(folder / "of another lesson" / "a.ipynb", json.dumps({"cells": []}))
    for name, answer in {"nested": "-" * 3000 + "1", "long": "+".join("1" * 3000), "surrogates": "'\ud800'"}.items():
        cell = {"cell_type": "code", "source": f"lab.check({KEY!r}, {answer})"}
        write(folder / name / "a.ipynb", json.dumps({"cells": [cell]}))
    os.mkdir(os.fsencode(folder) + b"/\xff")
    (folder / "a\x1b[2J").mkdir()
    (folder / "nothing").mkdir()
    (folder / "linked").mkdir()
    (folder / "linked" / "mine.ipynb").symlink_to(new)
    (folder / "a link").symlink_to(folder / "two of them")
    (folder / "pipe").mkdir()
    os.mkfifo(folder / "pipe" / "a.ipynb")
    write(folder / "a file", "")
    write(folder / "nothing" / "report.json", json.dumps(Portfolio.of_notes("Ada").to_dict()))
    write(folder / "list" / "report.json", "no JSON")
    whole = graded(folder)
    found = whole["students"]
    assert whole["questions"]["students"] == 1
    assert [Path(path).parent.name for path in whole["questions"]["unread"]] == ["list"]
    assert {name: [mark["mark"] for mark in one["marks"].values()] for name, one in found.items()} == {
        "=1+1": ["blocked"] * 2,
        "\\udcff": ["missing"] * 2,
        "a\\x1b[2J": ["missing"] * 2,
        "a link": ["blocked"] * 2,
        "long": ["blocked", "missing"],
        "nested": ["blocked", "missing"],
        "surrogates": ["blocked", "missing"],
        "cells": ["blocked"] * 2,
        "deep": ["blocked"] * 2,
        "huge": ["blocked"] * 2,
        "linked": ["blocked"] * 2,
        "list": ["blocked"] * 2,
        "nothing": ["missing"] * 2,
        "of another lesson": ["missing"] * 2,
        "pipe": ["blocked"] * 2,
        "two of them": ["done", "missing"],
    }
    assert found["two of them"]["notes"] == ["newer.ipynb counts for bits: it is newer than bits of mine.ipynb."]
    for name, words in {
        "huge": "larger than 20 MB",
        "linked": "a link to a file outside",
        "pipe": "not a file",
    }.items():
        assert words in found[name]["marks"][KEY]["words"]
    assert "'=1+1,blocked,blocked,0" in (tmp_path / "marks.csv").read_text().splitlines()


@pytest.mark.soak
def test_a_changed_notebook_is_graded_anew_and_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "class"
    hand_in(folder, "ada", RIGHT)
    changed = hand_in(folder, "bob", GIVEN)
    before = graded(folder)["students"]
    changed.unlink()
    changed.parent.rmdir()
    hand_in(folder, "bob", RIGHT)
    after = graded(folder)["students"]
    assert after["ada"] == before["ada"]
    assert (before["bob"]["marks"][KEY]["mark"], after["bob"]["marks"][KEY]["mark"]) == ("not yet", "done")
    assert all(after["bob"]["marks"][key]["kept"] != before["bob"]["marks"][key]["kept"] for key in (KEY, OTHER))


@pytest.mark.soak
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_an_interrupted_command_goes_on_where_it_was(number: int, tmp_path: Path) -> None:
    folder = tmp_path / "class"
    for i, code in enumerate([RIGHT, GIVEN, WRONG, RIGHT]):
        hand_in(folder, f"student {i}", code)
    whole = graded(folder)
    expected = (tmp_path / "marks.csv").read_bytes()
    table, temporary = tmp_path / "again.csv", tmp_path / "temporary"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    command = [sys.executable, "-m", "minips", "grade", str(folder), "--csv", str(table)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    first = subprocess.Popen([*command, "--seed", "7"], env=environment, **pipes)
    try:
        deadline = time.monotonic() + 60
        while not (kept := marks_in(table.with_suffix(".json"))):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        children = psutil.Process(first.pid).children(recursive=True)
        first.send_signal(number)
        _, said = first.communicate(timeout=30)
    finally:
        first.kill()
    assert first.returncode == 128 + number
    assert said.splitlines()[-1].endswith("everything that was started has ended.")
    assert not psutil.wait_procs(children, timeout=10)[1]
    assert not table.exists()
    assert not [*temporary.iterdir()]
    left = json.loads(table.with_suffix(".json").read_text())
    assert not left["complete"]
    assert len(kept) < 8
    subprocess.run(command, check=True, timeout=120, capture_output=True)  # with the seed of the first
    assert table.read_bytes() == expected
    after = json.loads(table.with_suffix(".json").read_text())
    assert (after["seed"], after["complete"], after["exercises"]) == (7, True, whole["exercises"])
    for name, key in kept:
        assert after["students"][name]["marks"][key] == left["students"][name]["marks"][key]


def marks_in(path: Path) -> list[tuple[str, str]]:
    """The students and exercises of the marks in a JSON file, which may not be there yet."""
    if not path.exists():
        return []
    return [(name, key) for name, one in json.loads(path.read_text())["students"].items() for key in one["marks"]]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (
            ["nowhere", "--csv", "m.csv"],
            2,
            "nowhere is not a folder. Name the folder that has a folder for each student",
        ),
        (["empty", "--csv", "m.csv"], 2, "empty has no folders. It must have a folder for each student"),
        (["class", "--csv", "m.csv"], 2, "No notebook in class checks an exercise of the course 'minips'."),
        (["class"], 2, "--csv"),
        (["class", "--csv", "no/m.csv"], 2, "There is no folder"),
        (["class", "--csv", "m.json"], 2, "cannot both be in m.json"),
        (["class", "--csv", "m.csv", "--json", "m.csv"], 2, "cannot both be in m.csv"),
        (["class", "--csv", "m.csv", "--seed", "-1"], 2, "expected a whole number from 0 on; got '-1'"),
        (["class", "--csv", "m.csv", "--seed", "x"], 2, "expected a whole number from 0 on; got 'x'"),
        (["class", "--csv", "m.csv", "--course", "minps"], 2, "Did you mean minips"),
    ],
)
def test_wrong_arguments_are_sentences(
    arguments: list[str],
    status: int,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("class/ada").mkdir(parents=True)
    try:
        got = cli.main(["grade", *arguments])
    except SystemExit as end:
        got = int(str(end.code))
    said = capsys.readouterr().err
    assert (got, words in said) == (status, True), said
    assert "Traceback" not in said


def needs(answer: str, *cells: str) -> str:
    """What runs for an answer, after these cells."""
    found = pieces([*enumerate([*cells, f"lab.check({KEY!r}, {answer})"], 1)])
    return "\n".join(text for _, text in program(needed(found, checks(found)[-1])))


@pytest.mark.parametrize(
    ("cells", "answer", "expected"),
    [
        (["x = 1\ny = 2", "run = train(x)"], "y", "\ny = 2"),
        (["x = 1", "x = 2", "y = 3"], "x", "x = 2"),
        (["x = 1", "x += 1", "print(x)"], "x", "x = 1\nx += 1"),
        (["import numpy as np\nx = np.ones(2)", "np.random.seed(0)", "x[0] = 3"], "x", None),
        (["x = []", "x.append(1)", "lab.say(x)", "del x[0]"], "x", "x = []\nx.append(1)\ndel x[0]"),
        (["def f():\n    return g()", "g = 1", "def g():\n    return 2"], "f", None),
        (["seen = set()", "def see():\n    seen.add(1)", "for _ in range(3): see()", "see"], "seen", None),
        (["class S: pass", "class S(S):\n    a = 1", "class T(S): pass"], "S", "class S: pass\nclass S(S):\n    a = 1"),
        (["if 1:\n    x = 1", "x = 2"], "x", "x = 2"),
        (["x = 2", "if 1:\n    x = 1"], "x", "x = 2\nif 1:\n    x = 1"),
        (["from math import *", "x = pi"], "x", "from math import *\nx = pi"),
        (["y = [x for x in range(3)]", "x = train()"], "y", "y = [x for x in range(3)]"),
        (["a = 1; b = 2; c = 3"], "(a, c)", "a = 1; c = 3"),
        (["%matplotlib inline\nx = 1\n!ls\nx?"], "x", "\nx = 1"),
        (["%%time\nx = 1", "%%bash\nx = 2"], "x", "\nx = 1"),
        (["@decorated\ndef f(): pass", "def decorated(f): return f"], "f", "@decorated\ndef f(): pass"),
    ],
)
def test_only_what_an_answer_needs_runs(cells: list[str], answer: str, expected: str | None) -> None:
    every = "\n".join(cell for cell in cells if not cell.startswith(("g = ", "np.random", "see")) or "seen" in cell)
    if expected is None:
        expected = every
    assert needs(answer, *cells) == expected
