"""The list of files in docs/reading.md: closed, in order, and no longer than one reads."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "reading.md").read_text(encoding="utf-8")
CONTRACT = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
MOST = {"core": (16, 3_600), "all": (32, 6_200)}
"""The most files, and their lines."""
CONTRACTS = ("minips/stage.py", "minips/seeds.py", "minips/stages/consistency.py", "minips/stages/*/base.py")
"""The only files of the second part that the core uses: a stage, the draws, and each kind's contract."""
LEFT_OUT = {
    ".": ("files", "halves", "intake", "literals", "words"),
    "drivers": ("starting",),
    "core": ("alone", "fields", "limits", "local", "membership", "rows", "tables"),
    "results": ("run", "saved", "status", "steps"),
    "stages": ("schedules", "shards"),
    "stages/memories": ("feedback",),
    "stages/quantizers": ("casts", "sparse"),
    "stages/serializers": ("wellformed",),
    "stages/transports": ("tcp", "link", "patience"),
}
"""Words, codecs alone, data as it is given, writing, checks, limits, delays, tables, results, stages: files that the
list uses.
"""
WAY = """
import sys, threading
import numpy as np
import minips as ps

entered = set()

def note(frame, event, arg):
    entered.add(frame.f_code.co_filename)

threading.setprofile(note), sys.setprofile(note)
problem = ps.SoftmaxRegression(np.eye(4, dtype="f4"), np.arange(4) % 2)
config = ps.Config(workers=1)
with ps.Server(problem.init(np.random.default_rng(0)), config).serve() as server:
    with ps.connect(server.address, config, token=server.token) as client:
        params = client.pull().result(10)
        connecting = set(entered)
        for step in range(4):  # of the first messages a plan is learned
            entered.clear()
            loss, gradient = problem.loss_and_gradient(params)
            params = client.push_pull(gradient, loss=loss).result(10)
        ways = set(entered)
sys.setprofile(None)
for names in (ways, connecting):
    print(*sorted(name for name in names if name.startswith(sys.argv[1])))
"""


@cache
def listed():
    """The files of both parts by their numbers, and those of the first."""
    core, besides = PAGE.split("What one gradient meets besides")
    rows = [
        {
            int(number): path
            for number, path in re.findall(r"^\| (\d+) \| \[`.+?`\]\(\.\./(minips/.+?)\) \|", part, re.M)
        }
        for part in (core, besides)
    ]
    return rows[0] | rows[1], set(rows[0].values())


def lines(paths):
    return sum((ROOT / path).read_text(encoding="utf-8").count("\n") for path in paths)


def home(module, name):
    """The file of minips in which a name is written that is imported from this module."""
    try:
        return home(f"{module}.{name}", None) if name else Path(importlib.import_module(module).__file__)
    except ImportError:
        place = importlib.import_module(module)
        if Path(place.__file__).name == "__init__.py":  # which passes on what is written elsewhere
            written = [
                f"{place.__name__}.{node.module.removeprefix(place.__name__ + '.')}"
                for node in ast.parse(Path(place.__file__).read_text(encoding="utf-8")).body
                if isinstance(node, ast.ImportFrom) and name in [one.name for one in node.names]
            ]
            return Path(importlib.import_module(written[0]).__file__)
        return Path(place.__file__)


def imported(path):
    """The files of minips whose names this one uses, wherever in it they are imported."""
    found = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "minips":
            found |= {str(home(node.module, name.name).relative_to(ROOT)) for name in node.names}
        assert not (isinstance(node, ast.Import) and any(name.name.startswith("minips") for name in node.names))
    return found


def left_out(path):
    room = str(Path(path).parent.relative_to("minips"))
    return Path(path).stem in LEFT_OUT.get(room, ())


def test_the_list_is_no_longer_than_one_reads():
    files, core = listed()
    assert sorted(files) == list(range(1, len(files) + 1))
    assert len(set(files.values())) == len(files)
    for part, most in ((core, MOST["core"]), (files.values(), MOST["all"])):
        assert (len(part) <= most[0], lines(part) <= most[1]) == (True, True), (len(part), lines(part))
    told = int(re.search(r"one file of (\d+) lines", PAGE)[1])
    assert told == pytest.approx(lines(["examples/nano.py"]), rel=0.005)


def test_the_list_is_closed_and_no_file_uses_a_later_one():
    files, core = listed()
    seen = set()
    for number in sorted(files):
        used = imported(files[number]) - {files[number]}
        later = {path for path in used - seen if not left_out(path)}
        assert later == set(), f"{files[number]} uses what is not listed before it"
        if files[number] in core:
            outside = {path for path in used & seen - core if not any(fnmatch(path, one) for one in CONTRACTS)}
            assert outside == set(), f"{files[number]} of the core uses another file than its own and the contracts"
        seen.add(files[number])
    contracts = {number for number, path in files.items() if any(fnmatch(path, one) for one in CONTRACTS)}
    assert contracts == set(range(1, 11))
    assert files[max(files)] == "minips/core/loop.py"
    assert imported("minips/core/loop.py") <= {files[number] for number in range(1, 24)}


def test_the_layers_are_those_that_the_page_draws():
    (drawn,) = re.findall(r"^`(benchmarks → .*)`\.$", PAGE, flags=re.MULTILINE)
    (layers,) = [one["layers"] for one in CONTRACT if one["type"] == "layers"]
    rooms = [name.removeprefix("minips.") for layer in layers for name in layer.split(" : ")]
    assert [room for room in rooms if room in drawn.split(" → ")] == drawn.split(" → ")


def test_what_is_left_out_is_used():
    files, _ = listed()
    used = set().union(*map(imported, files.values())) - set(files.values())
    assert used == {str(Path("minips", where, f"{name}.py")) for where, names in LEFT_OUT.items() for name in names}


def test_a_gradient_enters_no_file_that_is_not_listed():
    done = subprocess.run(
        [sys.executable, "-c", WAY, str(ROOT / "minips")], capture_output=True, text=True, check=True, timeout=60
    )
    entered, connecting = (
        {str(Path(name).relative_to(ROOT)) for name in row.split()} for row in done.stdout.splitlines()
    )
    assert "minips/stages/transports/endpoints.py" in connecting - set(listed()[0].values())
    assert {"minips/core/shard.py", "minips/drivers/client.py"} <= entered
    assert entered - set(listed()[0].values()) == set()
