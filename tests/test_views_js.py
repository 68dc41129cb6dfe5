"""The JavaScript of the views, by the node that playwright's wheel brings: it computes the same as Python."""

import json
import os
import subprocess
from pathlib import Path

import playwright
import pytest
from node_tools import TOOLS, needs_tools

from minips.lab.views.base import format_bytes, format_seconds, module_text

ROOT = Path(__file__).parents[1]
VIEWS = ROOT / "minips" / "lab" / "views"
NAMES = sorted(path.stem for path in VIEWS.glob("*.js") if path.stem != "common")
LINE = ROOT / "minips" / "lab" / "waits.js"
"""The line below a running cell, which is not a view."""
NODE = Path(playwright.__file__).parent / "driver" / ("node.exe" if os.name == "nt" else "node")
UNITS = sorted((ROOT / "tests" / "js").glob("*.test.mjs"))


@pytest.fixture(scope="module")
def modules(tmp_path_factory):
    """A folder with the module of each view, as the page gets it."""
    folder = tmp_path_factory.mktemp("views")
    for name in NAMES:
        (folder / f"{name}.mjs").write_text(module_text(name), encoding="utf-8")
    return folder


def node(*arguments, modules, **options):
    environment = os.environ | {"MINIPS_VIEWS": modules.as_uri()}
    return subprocess.run([NODE, *arguments], env=environment, capture_output=True, text=True, timeout=60, **options)


@pytest.mark.parametrize("file", UNITS, ids=lambda file: file.name.partition(".")[0])
def test_what_the_page_computes(file, modules):
    done = node("--test", str(file), modules=modules)
    assert done.returncode == 0, done.stdout + done.stderr


DIGITS = 1, 1.005, 2.345, 2.3456, 9.994, 9.995, 9.9951
NUMBERS = [0, 12.5, 304, 999.5, 999_499, 999_500, 1.23e15]
NUMBERS += [10.0**power * digits for power in range(-12, 4) for digits in DIGITS]


def test_figures_have_the_same_words_in_the_page_as_in_python(modules):
    program = """
        const {formatBytes, formatSeconds} = await import(process.env.MINIPS_VIEWS + "/race.mjs")
        const numbers = [...JSON.parse(process.argv[1]), null]
        console.log(JSON.stringify(numbers.map(one => [formatBytes(one && 1e9 * one), formatSeconds(one)])))
    """
    done = node("--input-type=module", "-e", program, json.dumps(NUMBERS), modules=modules)
    assert done.returncode == 0, done.stderr
    said = [[format_bytes(one and 1e9 * one), format_seconds(one)] for one in [*NUMBERS, None]]
    assert json.loads(done.stdout) == said


def run_tool(script, *arguments, **options):
    needs_tools()
    command = [NODE, f"node_modules/{script}", *arguments]
    done = subprocess.run(command, cwd=TOOLS, capture_output=True, text=True, timeout=60, **options)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", [*NAMES, "waits"])
def test_the_linter_finds_nothing(name):
    arguments = ["--max-warnings=0", "--stdin", "--stdin-filename", f"{name}.js"]
    text = LINE.read_text(encoding="utf-8") if name == "waits" else module_text(name)
    run_tool("eslint/bin/eslint.js", *arguments, input=text)


def test_the_formatter_changes_nothing():
    run_tool("prettier/bin/prettier.cjs", "--config", ".prettierrc.json", "--check", VIEWS, LINE, "../js", ".")


def test_the_javascript_is_short():
    lines = {path.name: path.read_text(encoding="utf-8").count("\n") for path in (*VIEWS.glob("*.js"), LINE)}
    small = {"panel.js", "slider.js", "waits.js"}
    assert sum(lines[name] for name in lines if name not in small) <= 1_200, lines  # of the pictures that move
    assert sum(lines[name] for name in small) <= 110, lines
