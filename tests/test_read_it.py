"""The page docs/reading.md: its list is in order, closed, and no longer than it may be; and no page counts lines."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest
import sizes

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / sizes.PAGE).read_text(encoding="utf-8")
LISTED = sizes.reading()
CONTRACT = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
MOST = {"core": 16, "all": 33}
"""The most files. tests/sizes.json has the most lines."""
WAY = """
import sys, threading
from dataclasses import dataclass
import numpy as np
import minips as ps

@ps.register
@dataclass(frozen=True)
class Own(ps.MsgPack):
    name = "own"

    def dumps(self, packet):
        return super().dumps(packet)

    def loads(self, frames):
        return super().loads(frames)

entered = set()

def note(frame, event, arg):
    entered.add(frame.f_code.co_filename)

threading.setprofile(note), sys.setprofile(note)
problem = ps.SoftmaxRegression(np.eye(4, dtype="f4"), np.arange(4) % 2)
codec = ps.Codec(serializer=sys.argv[2])
config = ps.Config(workers=1, push=codec, pull=codec)
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


@cache
def imported(path):
    """The names of minips that this file uses, wherever in it they are imported, by the file where each is written."""
    found = defaultdict(set)
    for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "minips":
            for name in node.names:
                found[home(node.module, name.name).relative_to(ROOT).as_posix()].add(name.name)
        assert not (isinstance(node, ast.Import) and any(name.name.startswith("minips") for name in node.names))
    found.pop(path, None)
    return found


def left_out():
    return re.findall(r"^\| \[`.+?`\]\(\.\./(.+?)\) \| [\w`].+\. \|$", sizes.section(PAGE, "Left out"), re.MULTILINE)


def test_the_list_has_each_file_once_by_its_name_and_number():
    rows = re.findall(r"^\|(?: (\d+) \|)? \[`(.+?)`\]\(\.\./minips/(.+?)\) \| ", PAGE, re.MULTILINE)
    numbers = [int(number) for number, _, _ in rows if number]
    assert numbers == list(range(1, len(LISTED.numbered) + 1))
    assert [label for _, label, _ in rows] == [path for _, _, path in rows]
    paths = [f"minips/{path}" for _, _, path in rows]
    assert paths == [*LISTED.all, *left_out()]
    assert len(set(paths)) == len(paths)
    assert (len(LISTED.core) <= MOST["core"], len(LISTED.all) <= MOST["all"]) == (True, True)
    assert re.search(r"\(\.\./(examples/nano\.py)\)", PAGE)
    assert LISTED.core[-1] == "minips/core/loop.py"


def test_no_file_uses_a_later_one_but_for_the_names_that_the_page_explains():
    ahead = {
        (number, later): names
        for number, path in enumerate(LISTED.numbered, 1)
        for later, other in enumerate(LISTED.numbered, 1)
        if later > number and (names := imported(path).get(other))
    }
    rows = re.findall(
        r"^\| (\d+) \| (\d+) \| (`.+?`) \| \w.+\. \|$", sizes.section(PAGE, "Names that come before their file"), re.M
    )
    told = {(int(number), int(later)): set(re.findall(r"`(\w+)`", names)) for number, later, names in rows}
    assert told == ahead


def test_the_list_is_closed():
    used = set().union(*map(imported, LISTED.all))
    assert used - {*LISTED.all} == {*left_out()}
    assert {*LISTED.lookups} <= used


def test_the_core_uses_no_numbered_file_but_its_own():
    for path in LISTED.core:
        assert imported(path).keys() & {*LISTED.rest} == set(), path


def test_the_contracts_are_to_be_looked_up():
    bases = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("minips/stages/*/base.py")}
    assert bases | {"minips/stage.py", "minips/stages/consistency.py"} <= {*LISTED.lookups}


@pytest.mark.parametrize("serializer", ["msgpack", "own"], ids=["planned", "general"])
def test_a_gradient_enters_no_file_that_is_not_listed(serializer):
    done = subprocess.run(
        [sys.executable, "-c", WAY, str(ROOT / "minips"), serializer],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    entered, connecting = (
        {Path(name).relative_to(ROOT).as_posix() for name in row.split()} for row in done.stdout.splitlines()
    )
    assert "minips/stages/transports/auth.py" in connecting - {*LISTED.all}
    assert {"minips/core/shard.py", "minips/drivers/client.py"} <= entered
    planned = serializer == "msgpack"
    assert ("minips/stages/serializers/base.py" in entered) == (not planned)
    assert "minips/core/plan.py" in entered or not planned
    (also,) = re.findall(r"On the general path a gradient also enters\s+([^.]+(?:\.py[^.]+)+), or", PAGE)
    general = {f"minips/{name}" for name in re.findall(r"`(.+?)`", also)}
    assert general <= {*left_out()}
    assert entered - {*LISTED.all} == (set() if planned else general)


def test_the_layers_are_those_that_the_page_draws():
    (drawn,) = re.findall(r"^`(benchmarks → .*)`\.$", PAGE, flags=re.MULTILINE)
    (layers,) = [one["layers"] for one in CONTRACT if one["type"] == "layers"]
    rooms = [name.removeprefix("minips.") for layer in layers for name in layer.split(" : ")]
    assert [room for room in rooms if room in drawn.split(" → ")] == drawn.split(" → ")


ROUND = "(?:twen|thir|for|fif|six|seven|eigh|nine)ty|hundreds?|thousands?"
COUNT = re.compile(rf"(?:\d[\d,.]*k?|\b(?:{ROUND}))\s+(?:\w+\s+)?lines\b")


def prose():
    """The pages and the package's docstring, without the code in them: an example may print how many lines it has."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "lessons").glob("*.md")]
    for path in (*pages, ROOT / "minips/core/PROTOCOL.md"):
        if path.name != "CHANGELOG.md":  # which tells of what was
            text = path.read_text(encoding="utf-8")
            prose = re.sub(r"^ *(```+|~~~+).*?^ *\1|`[^`\n]*`", "…", text, flags=re.DOTALL | re.MULTILINE)
            yield path.name, prose.replace("*", "")
    yield "minips", importlib.import_module("minips").__doc__


def test_no_page_counts_lines_but_those_of_nano():
    counts = [(name, " ".join(count.split())) for name, text in prose() for count in COUNT.findall(text)]
    nano = (ROOT / "examples" / "nano.py").read_text(encoding="utf-8").count("\n")
    assert (Path(sizes.PAGE).name, f"{nano} lines") in counts
    assert {count for _, count in counts} == {f"{nano} lines"}
