"""The race: honest entries get one verdict everywhere; cheats get a sentence and no place, and nothing is left."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

import minips as ps
from benchmarks.race.table import PAGE, section
from minips import sandbox
from minips.cli import main
from minips.racing import TRACKS, Verdict, judge
from minips.racing.rules import MOST_CHARACTERS, MOST_NUMBERS, EntryError, check
from minips.racing.tracks import HIDDEN, SHARD_ROWS, calibration_of, problem_of
from minips.racing.verdicts import Lap
from minips.sandbox import Limits, Sandbox, SandboxError
from minips.stage import names

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a sandbox needs the limits of Linux or macOS")
ENTRIES = sorted((Path(__file__).parents[1] / "examples" / "race").glob("*.py"))
QUICK_ENTRIES = {"defaults", "four_bits"}
QUICK = "import minips as ps\nconfig = ps.Config(optimizer=ps.SGD(lr=0.5))\n"
OWN = '''
"""Half floats, and descent with momentum, as stages of one's own."""
from dataclasses import dataclass

import numpy as np
import minips as ps


@ps.register
@dataclass(frozen=True)
class Half(ps.Quantizer):
    name = "half"

    def encode(self, x, rng):
        return {"values": x.astype(np.float16)}

    def decode(self, parts):
        return parts["values"].astype(np.float32)


@ps.register
@dataclass(frozen=True)
class Heavy(ps.Optimizer):
    name = "heavy"
    lr: float = ps.option(0.3, "learning rate")

    def step(self, params, grads, state):
        for name, p in params.items():
            v = state.setdefault("v", {}).setdefault(name, np.zeros_like(p))
            v *= 0.5
            v += grads[name]
            p -= self.lr * v


config = ps.Config(push=ps.Codec(Half(), ps.ErrorFeedback()), optimizer=Heavy(lr=0.3))
'''
DESCENT = OWN.replace(
    "push=ps.Codec(Half(), ps.ErrorFeedback()), optimizer=Heavy(lr=0.3)", "steps=2, optimizer=Heavy()"
)
OTHERS = '''
"""An aggregator, a memory and a schedule of one's own."""
from dataclasses import dataclass

import numpy as np
import minips as ps


@ps.register
@dataclass(frozen=True)
class Average(ps.Aggregator):
    name = "average"

    def combine(self, contributions):
        first = contributions[0].gradients
        total = {name: first[name] + contributions[1].gradients[name] for name in first}
        for one in contributions[2:]:
            for name, g in one.gradients.items():
                total[name] += g
        return {name: (x / np.float32(len(contributions))) for name, x in total.items()}


@ps.register
@dataclass(frozen=True)
class Remembered(ps.Memory):
    name = "remembered"

    def compensate(self, x, state):
        return x - state["all"] if "all" in state else x

    def update(self, p, sent, state):
        state["all"] = state["all"] + sent if "all" in state else sent

    def restore(self, received, state):
        state["all"] = state["all"] + received if "all" in state else received
        return state["all"]


@ps.register
@dataclass(frozen=True)
class Halved(ps.schedules.Schedule):
    name = "halved"

    def factor(self, clock):
        return 0.5


config = ps.Config(
    push=ps.Codec(memory=Remembered()),
    aggregator=Average(),
    optimizer=ps.SGD(lr=1.0, schedule=Halved()),
)
'''
SHORT = Limits(cpu_s=1, answer_s=4.0)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The process groups of all sandboxes; at the end, none of them has a process."""
    groups: list[int] = []
    popen = subprocess.Popen

    def noted(*arguments: object, **more: object) -> subprocess.Popen[bytes]:
        process = popen(*arguments, **more)
        groups.append(process.pid)
        return process

    monkeypatch.setattr(sandbox.subprocess, "Popen", noted)
    yield groups
    deadline = time.monotonic() + 10
    while any(map(_lives, groups)):
        assert time.monotonic() < deadline, "A sandbox has left a process."
        time.sleep(0.02)


def _lives(group: int) -> bool:
    """True if a process of this group runs. One that has ended, and that the system has yet to clear, does not."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                return True
    return False


def in_encode(body: str) -> str:
    """An entry whose quantizer does this before it encodes."""
    return OWN.replace("        return {", f"        {body}\n        return {{", 1)


def test_an_entry_is_placed_with_the_same_digest_each_time(started: list[int]) -> None:
    first, second = judge(TRACKS["office"], QUICK), judge(TRACKS["office"], QUICK)
    assert first.placed
    assert first.digest == second.digest
    assert len(first.laps) == 5
    assert all(lap.right[-1] >= 0.9 * lap.rows > lap.right[-2] for lap in first.laps)
    assert judge(TRACKS["office"], QUICK, salt="another").digest != first.digest
    assert judge(TRACKS["office"], QUICK, hopeless=lambda laps: len(laps) == 2).laps == first.laps[:2]


def test_the_command_prints_the_figures_or_says_why_not(
    tmp_path: Path, started: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = tmp_path / "good.py", tmp_path / "bad.py"
    good.write_text(QUICK)
    bad.write_text("import os\n")
    assert main(["race", "office", str(good)]) == 0
    assert judge(TRACKS["office"], QUICK).digest in capsys.readouterr().out
    for track in TRACKS:
        assert main(["race", track, str(bad)]) == 1
        assert "No place: bad.py, line 1: it imports os" in capsys.readouterr().err
    assert main(["race", "office", str(tmp_path / "none.py")]) == 2


def test_own_stages_do_what_the_same_stages_of_minips_do(started: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minips.racing.verdicts.seeds_of", lambda text, salt: [7])
    own = judge(TRACKS["home"], OWN)
    codec = "ps.Codec(ps.Float16(), ps.ErrorFeedback())"
    same = f"import minips as ps\nconfig = ps.Config(push={codec}, optimizer=ps.SGD(lr=0.3, momentum=0.5))\n"
    known = judge(TRACKS["home"], same)
    assert own.laps[0].right == known.laps[0].right

    assert len(started) == 1 + 8 + 1 + 1  # the config's, eight workers, a server; the second entry's config
    assert "half" not in names("quantizer")


@pytest.mark.soak
def test_each_kind_of_own_stage_works(started: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minips.racing.verdicts.seeds_of", lambda text, salt: [7])
    own = judge(TRACKS["office"], OTHERS)
    same = "import minips as ps\nconfig = ps.Config(push=ps.Codec(memory=ps.Delta()), optimizer=ps.SGD(lr=0.5))\n"
    assert own.placed
    assert own.laps[0].right == judge(TRACKS["office"], same).laps[0].right


def test_an_own_stage_is_charged_as_the_slowest() -> None:
    @dataclass(frozen=True)
    class Mine(ps.Float16):
        name = "mine"

    def seconds(quantizer: ps.Quantizer) -> float:
        return calibration_of(ps.Config(push=ps.Codec(quantizer))).worker["quantize"].fixed_s

    assert seconds(Mine()) == max(seconds(ps.build("quantizer", name)) for name in names("quantizer"))
    assert seconds(Mine()) > seconds(ps.Float16())


CHEATS = {
    "reads held-out rows": ("import minips as ps\nrows = ps.datasets.digits()\nconfig = ps.Config()", "datasets"),
    "patches the simulator": (
        QUICK + "ps.Config.for_rows = lambda config, rows: config",
        "it changes ps.Config.for_rows, which is not its own",
    ),
    "stops virtual time": (
        "import minips as ps\nconfig = ps.Config(delays={'seconds': 0.0})",
        "The track sets delays",
    ),
    "sends nothing": (
        OWN.replace("@ps.register", "KEPT = {}\n\n\n@ps.register", 1)
        .replace(
            'return {"values": x.astype(np.float16)}',
            'KEPT["x"] = x\n        return {"like": np.empty((0, *x.shape), x.dtype)}',
        )
        .replace('parts["values"].astype(np.float32)', 'KEPT["x"]')
        .replace("ps.ErrorFeedback()", "ps.NoMemory()"),
        "as server 0, failed: KeyError",
    ),
    "detects seeds": (
        DESCENT.replace("for name, p in", "known = {0.125: 1.0}\n        for name, p in").replace(
            "p -= self.lr * v", "p[...] = known.get(float(grads[name].sum()), 0.0)"
        ),
        "No place: 5 of 5 runs",
    ),
    "returns constants": (DESCENT.replace("p -= self.lr * v", "p[...] = 0.5"), "No place: 5 of 5 runs"),
    "writes its own verdict": (
        QUICK.replace("SGD(lr=0.5)", "SGD(lr=0.001), steps=2")
        + "print('seconds 0.0')\nverdict = 'placed'\nplaced = True",
        "No place: 5 of 5 runs",
    ),
    "changes a shape": (DESCENT.replace("p -= self.lr * v", "params[name] = p[:1]"), "step, for U, gave float32 of"),
    "forks": ("import os\nos.fork()\n" + QUICK, "it imports os"),
    "allocates 8 GB": (in_encode("np.ones(2**33, np.uint8)"), "more memory than the sandbox gives"),
    "opens a socket": ("import socket\nsocket.socket()\n" + QUICK, "it imports socket"),
    "imports torch": ("import torch\n" + QUICK, "it imports torch"),
    "never ends": (in_encode("while True: pass"), "gave no answer|was killed"),
    "ends the process": (in_encode("raise SystemExit"), "SystemExit"),
}


SLOW = ("detects seeds", "returns constants", "writes its own verdict")
"""The cheats that train on all five seeds."""


@pytest.mark.parametrize(
    "cheat", [pytest.param(cheat, marks=pytest.mark.soak if cheat in SLOW else ()) for cheat in CHEATS]
)
def test_a_cheat_gets_a_sentence_and_no_place(cheat: str, started: list[int]) -> None:
    text, sentence = CHEATS[cheat]
    try:
        verdict = judge(TRACKS["home"], text, limits=SHORT)
    except (ValueError, TypeError, RuntimeError) as error:
        said = str(error)
    else:
        assert not verdict.placed
        said = str(verdict)
    assert any(part in said for part in sentence.split("|")), said


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("x = ().__class__", "underscore"),
        ("getattr(1, 'real')", "getattr"),
        ("f = '{0.__class__}'", "two underscores"),
        ("import numpy as np\nnp.load('x')", "load"),
        ("from minips import lab", "lab"),
        ("from minips.core import shard", "imports from minips.core"),
        ("import minips.engines", "imports minips.engines"),
        (f"t = {[1] * 201}", "table"),
        (f"t = '{'a' * 301}'", "301 characters"),
        ("match ():\n    case object(__class__=c):\n        pass", "reads __class__ in a pattern"),
        ("x = 1 +", "not Python"),
        ("#" * 20_001, "at most 20000"),
    ],
)
def test_the_rules_name_what_an_entry_may_not(text: str, sentence: str) -> None:
    with pytest.raises(EntryError, match=sentence):
        check(text, "entry.py")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have limits only")
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("import os\nos.fork()", "temporarily unavailable"),
        ("import numpy as np\nnp.ones(2**33, 'u1')", "more memory"),
        ("import torch", "torch"),
        ("while True: pass", "computed for more than 1 seconds|no answer"),
        ("import os\nos._exit(0)", "ended its process"),
        ("open('/etc/passwd')", "No such file|denied"),
        ("open('made', 'w')", "Permission denied|Read-only|No such file"),
        ("import socket\nsocket.socket().connect(('127.0.0.1', 9))", "unreachable|not permitted"),
        ("import os\nos.kill(1, 0)\nos.execv('/bin/sh', ['sh'])", "No such file|not permitted"),
    ],
)
def test_a_sandbox_holds_without_the_rules(text: str, sentence: str, started: list[int]) -> None:
    with pytest.raises(SandboxError, match=sentence), Sandbox(SHORT) as box:
        box.begin(text, "entry.py")


def test_a_sandbox_begins_anew_without_what_was_before(started: list[int]) -> None:
    with Sandbox() as box:
        for _ in range(2):
            box.begin("import numpy\nassert not hasattr(numpy, 'mark')\nnumpy.mark = 1\nprint('noise')", "entry.py")
            assert "limits of memory, time, files and processes" in box.ask("minips.sandbox", "sealed")
    assert "limits of memory, time, files and processes" in sandbox.protections()


def test_exact_gradients_do_not_depend_on_the_order_of_sums() -> None:
    problem = problem_of(3)
    params = problem.init(np.random.default_rng(0))
    order = np.random.default_rng(1).permutation(64)
    other = permuted(problem, order)
    moved = {**params, "U": params["U"][order]}
    loss, gradients = problem.loss_and_gradient(params)
    again, shuffled = other.loss_and_gradient(moved)
    assert loss == again
    assert (gradients["U"][order] == shuffled["U"]).all()
    assert (gradients["W"] == shuffled["W"]).all()


def permuted(problem: ps.MLP, order: np.ndarray) -> ps.MLP:
    """The problem with its pixels in another order, and its rows too."""
    rows = np.random.default_rng(2).permutation(problem.rows)
    return type(problem)(problem.X[rows][:, order], problem.y[rows], classes=10, hidden=32)


@pytest.mark.parametrize(
    "track", [pytest.param(track, marks=pytest.mark.soak if track == "office" else ()) for track in TRACKS]
)
def test_a_track_runs_with_its_faults(track: str, started: list[int]) -> None:
    verdict = judge(TRACKS[track], QUICK)
    assert verdict.placed
    assert json.loads(json.dumps(verdict.to_dict()))["digest"] == verdict.digest


@pytest.mark.parametrize(
    "field", [{"workers": 5}, {"servers": 5}, {"seed": 3}, {"link": ps.Link(1e9)}, {"steps": 2000}, {"epochs": 400}]
)
def test_a_track_sets_its_machines(field: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(field))):
        TRACKS["office"].config_for(ps.Config(**field), 0)


def test_an_all_reduce_is_refused_where_faults_would_end_it() -> None:
    with pytest.raises(ValueError, match="would end RingAllReduce"):
        TRACKS["racks"].config_for(ps.Config(exchange="ring"), 0)


def test_the_page_tells_what_is_given() -> None:
    page = " ".join((Path(__file__).parents[1] / "docs" / "race.md").read_text().split())
    problem, track = problem_of(0), TRACKS["office"]
    values = sum(x.size for x in problem.init(np.random.default_rng(0)).values())
    assert f"eight workers, a perceptron with {HIDDEN} hidden units ({values:,} values), and up to four servers" in page
    assert (track.workers, track.most_servers) == (8, 4)
    assert f"at most {MOST_CHARACTERS:,} characters and {MOST_NUMBERS} numbers" in page
    assert "1 ms and 50 µs for each row" in page
    for batch, rows in ((20, 20), (None, SHARD_ROWS)):
        config = track.config_for(ps.Config(batch_size=batch), 0)
        assert config.delays
        assert config.delays.seconds == pytest.approx(1e-3 + 50e-6 * rows)
    assert problem.shard(0, track.workers).rows == SHARD_ROWS


def test_steps_stand_for_epochs() -> None:
    config = TRACKS["office"].config_for(ps.Config(epochs=2, batch_size=50), 0)
    assert (config.steps, config.epochs) == (8, None)  # four batches of 180 rows in each epoch


def test_the_digest_covers_track_config_and_what_happened() -> None:
    lap = Lap(True, 8, 0.5, 100, (3, 9), 10)
    verdict = Verdict("office", ps.Config(), (lap,))
    others = [replace(verdict, track="home"), replace(verdict, config=ps.Config(steps=9))]
    for changed in ({"steps": 9}, {"seconds": 0.6}, {"nbytes": 101}, {"right": (4, 9)}):
        others.append(replace(verdict, laps=(lap._replace(**changed),)))
    assert len({one.digest for one in (verdict, *others)}) == 1 + len(others)


def test_a_race_ends_by_the_wall_clock(started: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("minips.racing.verdicts.MOST_S", 0.0)
    with pytest.raises(TimeoutError, match="too long by the wall clock"):
        judge(TRACKS["office"], QUICK)


@pytest.mark.parametrize(
    "track", [pytest.param(one, marks=pytest.mark.soak if one == "home" else pytest.mark.campaign) for one in TRACKS]
)
def test_the_leaderboard_holds_what_the_judge_says(track: str) -> None:
    assert section(TRACKS[track]) in PAGE.read_text()


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=pytest.mark.soak if path.stem in QUICK_ENTRIES else pytest.mark.campaign, id=path.stem)
        for path in ENTRIES
    ],
)
def test_one_digest_on_every_processor(path: Path) -> None:
    kinds = ({"OPENBLAS_CORETYPE": core} for core in ("Prescott", "Haswell", "SkylakeX"))
    others = (
        {"OPENBLAS_NUM_THREADS": "1"},
        {"OPENBLAS_NUM_THREADS": "2"},
        {"PYTHONHASHSEED": "1"},
        {"PYTHONHASHSEED": "2"},
    )
    digests = set()
    for changed in (*kinds, *others):
        run = [sys.executable, "-m", "minips", "race", "home", str(path), "--json", "-"]
        done = subprocess.run(
            run, env={**os.environ, **changed}, capture_output=True, text=True, timeout=300, check=True
        )
        digests.add(done.stdout)
    assert len(digests) == 1
