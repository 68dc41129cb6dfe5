"""What a lesson shows where a library is missing: recorded values of the very program, and of no other."""

import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell
from test_lessons import LESSONS, code_cells, exercises, lesson

import minips as ps
from minips import lab
from minips.engines import hosts
from minips.lab.course import recorded
from minips.lab.course.grading import with_a_kernel
from minips.lab.course.recorded import NotRunError, fingerprint
from minips_course.ddp import nets, ranks
from minips_course.hosts import Network
from minips_course.lecture import programs
from minips_course.links import placing
from minips_course.network import timing

HIDE = """import importlib.util as _util
_there = _util.find_spec
_util.find_spec = lambda name, *package: None if name == "torch" else _there(name, *package)"""
"""A cell that hides torch from the kernel; with another name, another library."""
NO_HOSTS = "Hosts cannot be made here: a container forbids it. Use engine=Processes()."
HIDE_HOSTS = f"from minips.engines import hosts as _hosts\n_hosts.lacking = lambda: {NO_HOSTS!r}"
"""A cell after which the kernel allows no hosts."""


def twice(x: float) -> float:
    return 2 * x


def thrice(x: float) -> float:
    return 3 * x


class TestAFingerprint:
    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (["program"], ["program "]),
            ([0.002], [0.003]),
            ([(1, 2)], [[1, 2]]),
            ([twice, "x", 1], [twice, "x", 2]),
            ([twice], [nets.learn]),
            ([], [None]),
        ],
    )
    def test_differs_where_the_program_or_a_part_of_it_does(self, one: list[Any], other: list[Any]) -> None:
        assert fingerprint(*one) == fingerprint(*one) != fingerprint(*other) == fingerprint(*other)

    @pytest.mark.outside
    def test_is_that_of_the_source_in_a_notebook(self) -> None:
        """One function with other words and empty lines, with another body and indentation, and classes."""
        also = 'def f(x):\n    """Twice, in\n    words."""\n\n    # a comment\n    return 2 * x'
        sources = ["def f(x):\n    return 2 * x", also, "def f(x):\n    return 3 * x"]
        sources += ["def f(x):\n  return 2 * x"]
        sources += [f"class f:\n    def rate(self):\n        return {rate}" for rate in (1, 2)]
        sources += ["class f:\n    rate = 1"] * 2  # a class without methods has no source
        tell = "from minips.lab.course.recorded import fingerprint\nprint(fingerprint(f))"
        book = nbformat.v4.new_notebook(cells=[new_code_cell(one) for source in sources for one in (source, tell)])
        with_a_kernel(NotebookClient(book, timeout=60).execute)
        same, also, *others = (cell.outputs[0].text for cell in book.cells[1::2])
        assert same == also
        assert len({same, *others}) == 7


def test_a_value_is_shown_for_the_function_that_computed_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(recorded, "_file", lambda key: tmp_path / key)
    monkeypatch.setenv("MINIPS_RECORD", "1")
    lab.record("bits.torch", {"bits": 16}, of=twice)
    assert lab.recorded("bits.torch", of=thrice) == {"bits": 16}  # both are of this module
    assert "torch is not here. The values were recorded elsewhere" in capsys.readouterr().out
    lab.record("bits.torch", {"bits": 16}, of=nets.learn)
    with pytest.raises(NotRunError, match=r"^This program was not run: torch is not here, .* pip install torch$"):
        lab.recorded("bits.torch", of=twice)
    lab.record("bits.torch", {"bits": 16})
    with pytest.raises(NotRunError):
        lab.recorded("bits.torch", of=twice)
    assert not capsys.readouterr().out


def solved(number: str) -> Any:
    """A lesson with the solutions pasted in."""
    (path,) = [path for path in LESSONS if path.name.startswith(number)]
    book: Any = nbformat.read(path, as_version=4)
    given = [cell for cell in code_cells(book) if "lab.check(" in cell.source]
    for check, (_, solution) in zip(given, exercises(book), strict=True):
        before = book.cells[book.cells.index(check) - 1]
        before.source = solution
    return book


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (programs, ranks):
        monkeypatch.setattr(module, "find_spec", lambda name: None)


@pytest.fixture
def given(no_torch: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """The names of lesson 04, run as given up to its last program."""
    monkeypatch.setenv("MINIPS_AUTOPLAY", "1")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    names: dict[str, Any] = {}
    for cell in code_cells(lesson(LESSONS[4])):
        exec(cell.source, names)
        if cell.id == "mended":
            break
    return names


@pytest.mark.soak
def test_lesson_04_tells_of_its_own_programs_on_torch_alone(
    given: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    pair, program = given["pair"], given["program"]
    told = pair.beside_torch()
    assert (told["same"], told["count"]) == (6, 6)
    pair.run(program.replace("0.5", "0.25"), "without the mark")
    pair.run(program, "mine")
    capsys.readouterr()
    assert pair.beside_torch()["count"] == 5
    assert capsys.readouterr().out.count("This program was not run: torch is not here") == 2


@pytest.mark.usefixtures("no_torch")
@pytest.mark.soak
def test_an_edited_program_of_lesson_04_runs_without_torch(given: dict[str, Any]) -> None:
    pair, program = given["pair"], given["program"]
    assert pair.run(program).numbers == [-0.5, -0.5]
    assert pair.run(program.replace("0.5", "0.25")).numbers == [-0.25, -0.25]
    assert pair.run("raise SystemExit('my edit')", "mine") == ("my edit", "my edit", "")
    with pytest.raises(ValueError, match="The program has no 'lambda: global_ps_rref', which this step replaces"):
        pair.mend(program, "a function of the module")


def wrapped(net: Any, codec: Any) -> Any:
    """A hook that was never recorded."""


@pytest.mark.usefixtures("no_torch")
def test_lesson_23_tells_of_its_own_programs_and_parts_alone(capsys: pytest.CaptureFixture[str]) -> None:
    two = ranks.Ranks()
    assert two.run("DDP", nets.ddp_step, wait_s=0.006)["begin"] > 0
    assert "torch is missing, so this was not run here. It was recorded:" in capsys.readouterr().out
    calls: list[tuple[str, Callable[..., Any], dict[str, Any]]] = [
        ("DDP", nets.ddp_step, {"wait_s": 0.007}),
        ("DDP", twice, {"wait_s": 0.006}),
        ("once", nets.learn, {"wrap": wrapped, "codecs": {"exact": ps.Codec()}, "rate": 0.4, "seeds": 1}),
        ("unheard of", nets.ddp_step, {"wait_s": 0.006}),
    ]
    for name, program, parts in calls:
        with pytest.raises(NotRunError):
            two.run(name, program, **parts)
    two.tell("once", nets.learn, wrap=wrapped, codecs={}, rate=0.4)
    assert "This program was not run: torch is not here" in capsys.readouterr().out
    two.close()


def test_a_network_without_hosts_tells_of_its_own_questions_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hosts, "lacking", lambda: NO_HOSTS)
    network = Network("cost.hosts")
    said = capsys.readouterr().out
    assert NO_HOSTS in said
    assert "recorded elsewhere: 2 cores, Linux" in said
    star, sizes = ps.Star(bandwidth_bps=100e6), (10_000, 30_000, 100_000, 300_000, 1_000_000)
    deep = network.hosts(star)
    shallow = network.hosts(star, buffer_bytes=10_000, host_buffer_bytes=4_000_000)
    model, config = ps.SoftmaxRegression(*ps.datasets.fourier(ps.datasets.digits(), 2000)), ps.Config(steps=20)
    assert [len(seconds) for seconds in network.calls(deep, sizes).values()] == 5 * [15]
    usual, slower = (network.runs(model, config, buffers) for buffers in (deep, shallow))
    assert usual.resent < slower.resent
    assert network.predicted(model, config, shallow).limits
    asked: list[Callable[[], Any]] = [
        lambda: network.calls(deep, sizes[:-1]),
        lambda: network.calls(shallow, sizes),
        lambda: network.runs(model, config, deep, times=4),
        lambda: network.runs(model, ps.Config(steps=21), deep),
        lambda: network.runs(model, config, network.hosts(ps.Star(bandwidth_bps=50e6))),
        lambda: network.predicted(model, ps.Config(workers=2, steps=20), deep),
    ]
    for ask in asked:
        with pytest.raises(NotRunError, match="no hosts can be made here, and what was recorded is of other configs"):
            ask()


@pytest.mark.skipif(bool(hosts.lacking()), reason="no hosts can be made here")
def test_a_network_measures_where_hosts_can_be_made(capsys: pytest.CaptureFixture[str]) -> None:
    """The values are not compared: a busy machine makes any."""
    network = Network("cost.hosts")
    assert "measured here" in capsys.readouterr().out
    small, config = ps.LinearRegression(np.eye(4), np.ones(4)), ps.Config(workers=2, steps=3)
    engine = network.hosts(ps.Star(bandwidth_bps=20e6))
    assert [*network.calls(engine, (100, 1000), times=2)] == [100, 1000]
    runs = network.runs(small, config, engine, times=1)
    assert runs.median == runs.seconds[0] > 0
    watched = network.watched(small, ps.Config(workers=2, steps=8), engine)
    assert len(watched.steps) == 7
    assert watched.slowest >= watched.median > 0 == watched.dropped
    assert len(watched.waiting["at"]) == len(watched.waiting["nbytes"])


@pytest.mark.soak
@pytest.mark.outside
@pytest.mark.parametrize("hidden", [HIDE_HOSTS, HIDE.replace("torch", "pyroute2")], ids=["forbidden", "pyroute2"])
@pytest.mark.parametrize(("number", "name"), [("19", "network"), ("25", "real")])
def test_a_learner_without_hosts_finds_what_was_recorded(
    number: str, name: str, hidden: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the solutions pasted in; then another network, of which nothing was recorded."""
    monkeypatch.setenv("MINIPS_AUTOPLAY", "1")
    book = solved(number)
    book.cells.insert(0, new_code_cell(hidden))
    ask = f"{name}.calls({name}.hosts(ps.Star(bandwidth_bps=50e6)), sizes=(10, 100))"
    book.cells.append(new_code_cell(ask, metadata={"tags": ["raises-exception"]}))
    with_a_kernel(NotebookClient(book, timeout=120, resources={"metadata": {"path": tmp_path}}).execute)
    *told, last = [repr(cell.outputs) for cell in code_cells(book)]
    assert "was not run" in last
    assert not [said for said in told if "was not run" in said or "'error'" in said or "otherwise" in said]
    assert sum("recorded elsewhere" in said for said in told) == 1


def test_places_are_scored_in_virtual_time_where_no_hosts_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the same ratio, and the best ones are as good as they can be."""
    monkeypatch.setattr(hosts, "lacking", lambda: NO_HOSTS)
    config, room = ps.Config(workers=4, servers=4, steps=6), (6, 2)
    servers_here = placing.score(Network("links.hosts"), config, room, placing.hosts(2, 4))
    assert servers_here["how"] == "in virtual time"
    assert servers_here["mine"] / servers_here["best"] == pytest.approx(servers_here["virtual"])
    assert servers_here["virtual"] == pytest.approx(2 / 0.75, rel=0.01)
    assert placing.best(config, room).count("1") == 2


def test_a_watched_run_without_hosts_is_the_recorded_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "lacking", lambda: NO_HOSTS)
    network, config = Network("links.hosts"), ps.Config(workers=4, servers=4, steps=40)
    problem, star = timing.only_exchange(200_000, 4), ps.Star(bandwidth_bps=100e6, latency_s=0.0)
    shallow = network.hosts(star, buffer_bytes=50_000, host_buffer_bytes=4_000_000)
    run = network.watched(problem, config, shallow)
    assert len(run.steps) == 39
    assert run.dropped > 0
    assert len(run.waiting["at"]) == len(run.waiting["nbytes"]) > 100
    assert 0 < run.idle < run.slowest
    with pytest.raises(NotRunError):
        network.watched(problem, config, network.hosts(star, buffer_bytes=50_000))


def naive(gradients: Any, wire: Any) -> None:
    for g in list(gradients):
        wire.start(g).result()
        g /= wire.ranks


@pytest.mark.parametrize("here", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_lesson_23_exchanges_gradients_between_processes_with_torch_and_without(
    here: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if here:
        pytest.importorskip("torch")
    else:
        monkeypatch.setattr(ranks, "find_spec", lambda name: None)
    two, link = ranks.Ranks(), {"latency_s": 0.001, "bytes_per_s": 1e9, "wait_s": 0.0}
    found = two.steps({"naive": naive, "never": lambda gradients, wire: None}, turns=3, **link)
    two.close()
    assert [len(way["steps_ms"]) for way in found.values()] == [3, 3]
    assert [len(way["calls_ms"]) for way in found.values()] == [8, 0]
    assert found["naive"]["error"] < 1e-6 < found["never"]["error"]
    assert found["naive"]["calls_ms"][0][0] >= found["naive"]["ready_ms"][-1]


@pytest.mark.parametrize(
    "hidden", ["", pytest.param("import sys; sys.modules['torch'] = None; ", marks=pytest.mark.soak)]
)
def test_the_program_of_lesson_23_runs_with_torch_and_says_without_what_is_missing(hidden: str, tmp_path: Path) -> None:
    (path,) = [path for path in LESSONS if path.name.startswith("23")]
    (cell,) = [cell for cell in code_cells(lesson(path)) if cell.id == "own"]
    command = [sys.executable, "-W", "error", "-c", f"{hidden}exec({cell.source!r})"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    here = find_spec("torch") and not hidden
    assert re.fullmatch(
        r"\d+ of 4004 bytes" if here else r"Not run: .*\. To install it: pip install torch", done.stdout.strip()
    )
    assert not [*tmp_path.iterdir()]


@pytest.mark.soak
@pytest.mark.outside
@pytest.mark.parametrize(("number", "unrun"), [("04", {"torch"}), ("23", {"remembering"})])
def test_a_learner_without_torch_is_told_what_was_not_run(
    number: str, unrun: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the solutions pasted in, and the last program of lesson 04 changed."""
    monkeypatch.setenv("MINIPS_AUTOPLAY", "1")
    book = solved(number)
    for cell in code_cells(book):
        if number == "04" and cell.id == "mended":
            cell.source = 'program = pair.mend(program.replace("0.5", "0.25"), "without the mark")'
    book.cells.insert(0, new_code_cell(HIDE))
    options = {"timeout": 120, "resources": {"metadata": {"path": tmp_path}}}
    with_a_kernel(NotebookClient(book, **options).execute)
    told = {cell.id: repr(cell.outputs) for cell in code_cells(book)}
    assert {name for name, said in told.items() if "was not run: torch is not here" in said} == unrun
    assert not [name for name, said in told.items() if "'error'" in said]
