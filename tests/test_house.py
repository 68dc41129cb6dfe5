"""The house in order: style, types, layers, files."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

import grimp
import networkx
import pages
import pytest
import yaml

import minips as ps

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA_NAMES = {"msgpack": "msgpack-python"}


def tracked():
    if not (ROOT / ".git").exists():
        pytest.skip("only a git checkout knows what is tracked")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).exists()]


@pytest.mark.parametrize(
    "command",
    [
        ["-m", "ruff", "check", "."],
        ["-m", "ruff", "format", "--check", "."],
        ["-m", "mypy"],
        ["-c", "from importlinter.cli import lint_imports_command as lint; lint()"],
    ],
    ids=["ruff check", "ruff format", "mypy", "lint-imports"],
)
def test_the_house_is_in_order(command):
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_modules_import_each_other_in_a_circle():
    """The package itself is left out: it lists the public names, and the lab is written with them."""
    graph = grimp.build_graph("minips", "benchmarks", "minips_course", cache_dir=None)
    arrows = networkx.DiGraph()
    for module in graph.modules - {"minips"}:
        arrows.add_edges_from((module, other) for other in graph.find_modules_directly_imported_by(module))
    arrows.remove_nodes_from(["minips"])
    assert [sorted(one) for one in networkx.strongly_connected_components(arrows) if len(one) > 1] == []


ROOMS = ("core", "drivers", "engines", "stages", "cost")
FILES = ("problems.py", "stage.py", "seeds.py", "datasets.py", "demo.py")


def trees(*more):
    for room in (*ROOMS, *more):
        place = ROOT / room if room == "benchmarks" else ROOT / "minips" / room
        for path in [place] if place.suffix else sorted(place.rglob("*.py")):
            yield path.relative_to(ROOT), ast.parse(path.read_text(encoding="utf-8"))


def test_a_class_has_its_name_for_itself():
    places = defaultdict(list)
    for path, tree in trees("lab"):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and path.name != "given_server.py":  # as a learner's file has it
                places[node.name].append(str(path))
    assert {name: where for name, where in places.items() if len(where) > 1 and name != "Row"} == {}  # of a table


def test_docstrings_begin_with_the_subject():
    kinds = ast.Module, ast.ClassDef, ast.FunctionDef
    found = []
    openings = {"What", "Who", "Whoever", "Whose", "Nobody", "Somebody", "How", "Which", "Where", "Whether"}
    for path, tree in trees("lab", "testing", "benchmarks", *FILES):
        for node in ast.walk(tree):
            words = (ast.get_docstring(node) or "").split() if isinstance(node, kinds) else []
            if words and words[0] in openings:
                found.append(f"{path}: {' '.join(words[:8])}")
    assert found == []


def test_the_conda_environment_wants_what_the_project_wants():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    lab = [one for one in PROJECT["optional-dependencies"]["lab"] if not one.startswith("minips[")]  # pip's part
    wanted = [*PROJECT["dependencies"], *lab]
    names = [re.match(r"[\w-]+", one)[0] for one in wanted]
    renamed = [one.replace(name, CONDA_NAMES.get(name, name), 1) for name, one in zip(names, wanted, strict=True)]
    *conda, pip = environment["dependencies"]
    assert environment["name"] == "minips"
    assert environment["channels"] == ["conda-forge"]
    assert conda == [f"python{PROJECT['requires-python']}", "pip", *renamed]
    assert pip == {"pip": ["-e .[lab]"]}


HOUSE = {"minips", "benchmarks", "lessons", "tests", "examples", "docs"}


def test_there_are_no_other_rooms():
    rooms = {path.relative_to(ROOT).parts[0] for path in tracked() if path.parent != ROOT}
    assert {room for room in rooms if not room.startswith(".")} <= HOUSE


def test_no_lesson_imports_the_benchmarks():
    lessons = sorted((ROOT / "lessons").glob("*.ipynb"))
    assert len(lessons) > 10
    code = re.compile(r"^\s*\"?\s*(?:import|from)\s+benchmarks\b", re.MULTILINE)
    assert [path.name for path in lessons if code.search(path.read_text(encoding="utf-8"))] == []


def test_no_file_knows_the_machine_that_it_was_written_on():
    somewhere = re.compile(r"(?<![\w.:/])/(home|Users|root|work|private/var)/\w|[A-Z]:\\Users\\")
    found = []
    for path in tracked():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a picture
        found += [f"{path.relative_to(ROOT)}: {line.strip()}" for line in text.splitlines() if somewhere.search(line)]
    assert found == []


def test_every_public_name_is_there():
    import minips

    assert sorted(minips.__all__, key=str.casefold) == sorted(set(minips.__all__), key=str.casefold)
    assert [name for name in minips.__all__ if not hasattr(minips, name)] == []
    assert minips.__version__ == PROJECT["version"]


def test_the_readme_lists_what_is_registered():
    rows = re.findall(r"^\| (\w+) \| (.+) \|$", pages.text("README.md"), flags=re.MULTILINE)
    listed = {kind: re.findall(r"[a-z0-9]+", re.sub(r"\(.*?\)|,? each .*", "", said)) for kind, said in rows}
    for kind in (
        "quantizer",
        "memory",
        "serializer",
        "compressor",
        "transport",
        "aggregator",
        "consistency",
        "optimizer",
        "shards",
        "exchange",
        "engine",
        "topology",
    ):
        assert sorted(listed[kind]) == sorted(ps.names(kind))


@pytest.mark.usefixtures("registry")
def test_the_readmes_own_stage_passes_the_checks_as_it_says():
    (stage,) = (block for block in pages.blocks("README.md", "python") if "ps.testing.check(" in block)
    exec(stage, {"__name__": "__main__"})
