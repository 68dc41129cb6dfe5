"""Stages and problems of one's own: from a file, from a function, from an installed package."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

STAGES = """
    from dataclasses import dataclass
    import numpy as np
    import minips as ps

    @ps.register
    @dataclass(frozen=True)
    class Rounded(ps.Exact):
        name = "rounded"

        def encode(self, x, rng):
            return {"values": np.round(x, 3)}

    def make_problem():
        return ps.SoftmaxRegression(*ps.datasets.synthetic(rows=60, features=4, classes=3))

    def nothing():
        return 5
"""


def minips(*arguments, folder, **environment):
    return subprocess.run(
        [sys.executable, "-P", "-m", "minips", *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mystages.py").write_text(textwrap.dedent(STAGES))
    return tmp_path


SHORT = ("--workers", "2", "--steps", "3", "--quantizer", "rounded", "--problem", "mystages:make_problem")


@pytest.mark.parametrize("engine", ["processes", "threads"])
def test_a_file_and_a_function(folder, engine):
    done = minips("--load", "mystages.py", "train", *SHORT, "--engine", engine, "--json", "run.json", folder=folder)
    assert done.returncode == 0, done.stderr
    assert json.loads((folder / "run.json").read_text())["config"]["push"]["quantizer"] == {"name": "rounded"}


def test_an_installed_package_brings_its_stages(folder):
    told = folder / "mine-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text("[minips.stages]\nmine = mystages\nbroken = missing_module\n")
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    done = minips("train", *SHORT, folder=folder, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    assert "The stages of missing_module cannot be loaded: ModuleNotFoundError" in done.stderr
    assert "rounded" in minips("stages", "quantizer", folder=folder, PYTHONPATH=path).stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--load", "none.py", "stages"],
            "--load takes an existing Python file that defines stages, FILE.py; got none.py.",
        ),
        (
            ["--load", "broken.py", "stages"],
            "The module broken cannot be imported: ZeroDivisionError: division by zero (broken.py, line 1)",
        ),
        (["--load", "json.py", "stages"], "there is another module named json"),
        (
            ["train", "--problem", "mystages"],
            "--problem takes MODULE:FUNCTION; mystages is not a function of mystages.",
        ),
        (["train", "--problem", "mystages:nothing"], "mystages:nothing returned 5, which is not a ps.Problem."),
        (["train", "--problem", "absent:make"], "The module absent cannot be imported: ModuleNotFoundError"),
    ],
)
def test_what_cannot_be_loaded_is_a_sentence(folder, arguments, said):
    (folder / "broken.py").write_text("1 / 0\n")
    (folder / "json.py").write_text("")
    done = minips(*arguments, folder=folder)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
