"""The JavaScript of the views, by the node that playwright's wheel brings: it computes the same as Python."""

import os
import subprocess
from pathlib import Path

import playwright
import pytest

from minips.lab.views.base import module_text

ROOT = Path(__file__).parents[1]
VIEWS = ROOT / "minips" / "lab" / "views"
NAMES = sorted(path.stem for path in VIEWS.glob("*.js") if path.stem != "common")
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
