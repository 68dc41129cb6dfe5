"""No folder is larger than its ceiling, and pytest says how large each is."""

import json
import os
import subprocess
import sys

import pytest
import sizes

RECORD = json.loads(sizes.RECORD.read_text(encoding="utf-8"))


def test_nothing_is_larger_than_its_ceiling():
    now = sizes.now()
    assert {"minips", "minips/lab", "the list to read", "the list's core"} <= RECORD["ceilings"].keys() <= now.keys()
    over = {name: now[name] - most for name, most in RECORD["ceilings"].items() if now[name] > most}
    assert over == {}, "so many lines too many: delete some, or raise the ceiling in tests/sizes.json and say why"


def test_the_recorded_sizes_are_those_of_the_commit():
    try:
        then = sizes.at(RECORD["since"])
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("git does not know the commit here")
    assert {name: RECORD["sizes"][name] for name in sizes.FOLDERS} == {name: then[name] for name in sizes.FOLDERS}


@pytest.mark.parametrize(("tests", "options"), [(sizes.MANY, []), (sizes.MANY + 1, ["-p", "xdist.plugin", "-n", "1"])])
def test_pytest_prints_them_after_many_tests(tmp_path, tests, options):
    (tmp_path / "test_many.py").write_text(
        f"import pytest\n\n@pytest.mark.parametrize('n', range({tests}))\ndef test_one(n):\n    assert n >= 0\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "sizes", *options, "--rootdir", tmp_path, "-c", os.devnull]
    paths = os.pathsep.join([str(sizes.ROOT / "tests"), str(sizes.ROOT)])
    done = subprocess.run(
        [*command, tmp_path],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": paths, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, f"{tests} passed" in done.stdout) == (0, True), done.stdout + done.stderr
    table = sizes.table()
    assert [row for row in done.stdout.splitlines() if row in table] == (table if tests > sizes.MANY else [])
