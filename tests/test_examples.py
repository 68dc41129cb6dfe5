"""Every example runs as it stands, and says what it promises."""

import os
import re
import shutil
import stat
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pages
import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
WANT_TORCH = {"ddp_hooks.py", "torch_cnn.py", "torch_rpc.py"}
MOST_LINES = {
    "local_steps.py": 20,
    "sweep_pareto.py": 21,
    "two_terminals.py": 32,
    "torch_rpc_in_minips.py": 20,
    "ddp_hooks.py": 70,
    "torch_rpc.py": 100,
    "nano.py": 420,
}
"""All others have 40 at most. Two of the last three show what the same takes elsewhere; `test_nano` runs the last."""
wants_torch = pytest.mark.skipif(not find_spec("torch"), reason="torch is used where it is installed, and in .ci/run")


def files():
    return {
        path.relative_to(EXAMPLES).as_posix(): path
        for path in EXAMPLES.rglob("*")
        if path.suffix in (".py", ".toml") and path.parent.name != "race"  # entries, which stand in LEADERBOARD.md
    }


PLAIN = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}


def done(command, folder, *path):
    """All that a command prints, started in ``folder``."""
    ended = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=folder,
        env=PLAIN | {"PYTHONPATH": os.pathsep.join(map(str, [*path, ROOT]))},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture
def said(tmp_path):
    """``said(example, pattern)``: the groups of each match in what the example prints; numbers as such."""

    def run(example, pattern):
        text = done([EXAMPLES / example], tmp_path)
        found = re.findall(pattern, text)
        assert found, text
        return [tuple(map(number, one)) if isinstance(one, tuple) else number(one) for one in found]

    return run


def number(text):
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return text


def test_each_is_short_and_stands_in_the_list():
    rows = re.findall(r"^\| \[`(.+?)`\]\(\.\./examples/(.+?)\) \| .+ \|$", pages.text("docs/examples.md"), re.MULTILINE)
    assert sorted(name for name, _ in rows) == sorted(files())
    for name, target in rows:
        assert name == target
        assert files()[name].read_text().count("\n") <= MOST_LINES.get(name, 40)


@pytest.mark.soak
def test_mypy_accepts_them_all():
    scripts = [path for name, path in files().items() if path.suffix == ".py" and name not in WANT_TORCH]
    assert "no issues found" in done(["-m", "mypy", "--strict", *scripts], ROOT)


@pytest.mark.soak
def test_breast_cancer(said):
    ((right, same),) = said("breast_cancer.py", r"(\d+) of 114 new tumours[^~]+the same predictions: (\w+)")
    assert right >= 110
    assert same == "True"


def test_diabetes(said, tmp_path):
    pattern = r"after (\d+) of (\d+) steps[^~]+step (\d+): ([\d.]+); .*in one go: (\w+)[^~]+solution has ([\d.]+)\."
    ((stopped, steps, reached, loss, same, least),) = said("diabetes.py", pattern)
    assert stopped < steps == reached
    assert same == "True"
    assert loss == pytest.approx(least, abs=0.01)
    assert (tmp_path / "diabetes.csv").read_text().count("\n") == 1 + stopped / 10


def test_own_problem(said):
    ((found, truth),) = said("own_problem.py", r"w = \[(.+?)\] where the truth is \[(.+?)\]")
    assert [*map(float, found.split())] == pytest.approx([*map(float, truth.split())], abs=0.05)


@pytest.mark.soak
def test_sweep_pareto(said):
    front = said("sweep_pareto.py", r"(\d+) steps of (\d+)%: ([\d.]+) MB, loss ([\d.]+)")
    assert len(front) >= 3
    assert [size for *_, size, _ in front] == sorted(size for *_, size, _ in front)
    assert [loss for *_, loss in front] == sorted((loss for *_, loss in front), reverse=True)


@pytest.mark.soak
def test_local_steps(said):
    every, fedavg, diloco = said("local_steps.py", r"accuracy ([\d.]+), +([\d.]+) MB")
    for accuracy, sent in fedavg, diloco:
        assert accuracy > every[0] - 0.03
        assert sent == pytest.approx(every[1] / 10, rel=0.05)


def test_sparse_embedding(said):
    ((there, back, whole),) = said("sparse_embedding.py", r"(\d+) B there and (\d+) B back in a step; .* ([\d,]+) B")
    assert there + back < 2000 < whole / 1000


@pytest.mark.skipif(not shutil.which("openssl"), reason="the example makes its certificate with openssl")
def test_two_terminals(tmp_path):
    script = EXAMPLES / "two_terminals.py"
    (make,) = re.findall("^openssl .+$", script.read_text(), re.MULTILINE)
    subprocess.run(make.split(), cwd=tmp_path, check=True, capture_output=True, timeout=60)
    with subprocess.Popen(
        [sys.executable, script], cwd=tmp_path, env=PLAIN, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            address = re.search(r"tcp://127\.0\.0\.1:\d+", server.stdout.readline())[0]
            assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600
            with ThreadPoolExecutor(2) as terminals:
                workers = [terminals.submit(done, [script, address], tmp_path) for _ in range(2)]
                assert sorted(re.search(r"Worker (\d) has pushed 100", one.result(60))[1] for one in workers) == [
                    "0",
                    "1",
                ]
            summary, _ = server.communicate(timeout=60)
        finally:
            server.kill()
    assert server.returncode == 0
    assert float(re.search(r"accuracy +([\d.]+)", summary)[1]) > 0.9


def test_cluster_question(said):
    rows = (
        r"[^~]+ 1 Gbit/s: two servers +(\d+) ms, a ring +(\d+) ms[^~]+100 Gbit/s: two servers +(\d+) ms, a ring +(\d+)"
    )
    (found,) = said("cluster_question.py", r"The fastest: ring with uniform, (\d+) ms" + rows)
    assert found == (89, 1080, 431, 90, 84)


def test_own_quantizer(said):
    exact, eight_bits, rows = said("own_quantizer.py", r"([\d.]+) MB sent, validation loss ([\d.]+)")
    assert eight_bits[0] < rows[0] < exact[0] / 2
    assert rows[1] == pytest.approx(exact[1], abs=0.005)


def test_own_aggregator(said):
    mean, median, geometric = said("own_aggregator.py", r"accuracy ([\d.]+)")
    assert mean < 0.5 < 0.9 < min(median, geometric)


def test_own_optimizer(said):
    assert min(said("own_optimizer.py", r"accuracy ([\d.]+)")) > 0.88


@pytest.mark.soak
def test_own_transport(said):
    assert said("own_transport.py", r"accuracy +([\d.]+)")[0] > 0.9


def test_own_serializer(said):
    msgpack, npz = said("own_serializer.py", r"(\d+) B for a gradient of 8000 B")
    assert 8000 < msgpack < npz < 9000


def test_own_consistency(said):
    strict, dynamic, loose = said("own_consistency.py", r"([\d.]+) s, gradients ([\d.]+) versions old")
    assert strict[0] > dynamic[0] > loose[0]
    assert strict[1] < dynamic[1] < loose[1]


def test_own_stages_on_the_command_line(tmp_path):
    load = [word for name in sorted(files()) if name.startswith("own_") for word in ("--load", EXAMPLES / name)]
    stages = "--quantizer rowint8 --aggregator geometricmedian --optimizer lion --consistency dynssp --serializer npz"
    short = "--data synthetic --workers 2 --steps 5 --engine threads"
    summary = done(["-m", "minips", *load, "train", *stages.split(), *short.split()], tmp_path)
    assert re.search("consistency +DynSSP", summary)
    assert re.search(r"push +RowInt8\(\), Npz\(\)", summary)


def test_a_package_brings_a_stage(tmp_path):
    done(["-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], EXAMPLES / "package")
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    short = "train --data synthetic --workers 2 --steps 5 --engine threads --compressor lzma:preset=2"
    assert "Lzma(preset=2)" in done(["-m", "minips", *short.split()], tmp_path, tmp_path / "installed")
    assert "All is well." in done([EXAMPLES / "package" / "minips_lzma.py"], tmp_path)


@wants_torch
@pytest.mark.soak
def test_torch_cnn(said):
    (accuracy,) = said("torch_cnn.py", r"accuracy +([\d.]+)")
    assert accuracy > 0.95


@wants_torch
@pytest.mark.soak
def test_torch_rpc_and_minips_reach_the_same_loss(said):
    ((theirs, gradients),) = said("torch_rpc.py", r"loss ([\d.e-]+) after (\d+) gradients")
    ((ours, same),) = said("torch_rpc_in_minips.py", r"loss ([\d.e-]+) after (\d+) gradients")
    assert theirs == pytest.approx(ours, rel=1e-5)
    assert gradients == same == 60


@wants_torch
@pytest.mark.soak
def test_ddp_hooks(said):
    rows = said("ddp_hooks.py", r"(.+?) +([\d.]+)% of the bytes, accuracy ([\d.]+)")
    share, accuracy = ({row[0]: row[column] for row in rows} for column in (1, 2))
    plain = accuracy["all-reduce"]
    assert share["all-reduce"] == 100
    assert plain > 0.95
    assert 100 < share["exact"] < 101
    assert share["torch's fp16_compress"] == 50
    for name, most in {"float16": 55, "uniform, 8 bits": 30, "top 2 %, error feedback": 5, "exact": 101}.items():
        assert share[name] <= most
        assert accuracy[name] >= plain - 0.02
