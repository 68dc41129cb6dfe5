"""The milestones of a learner's own server: right servers pass, wrong ones are refused, all in plain sentences."""

import json
import linecache
import re
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pages
import pytest

from minips import lab
from minips.lab.course import milestones, own, state
from minips.lab.course.exercises import Refused

GIVEN = own.given().read_text(encoding="utf-8")
SECTIONS = own.sections(own.given())
BUILT_BY = {"ps": "wire", "ssp": "wait", "onebit": "remember", "lies": "remember"}
"""The last lesson whose section a milestone needs, besides its own."""
RIGHT = {
    "ps": """
class Server(Server):
    @staticmethod
    def split(tensors, servers):
        ends = [sum(x.size for x in tensors.values()) * i // servers for i in range(servers + 1)]
        pieces, key = [{} for _ in range(servers)], 0
        for name, x in tensors.items():
            for value in x.ravel():
                home = next(i for i in range(servers) if ends[i] <= key < ends[i + 1])
                pieces[home].setdefault(name, []).append(value)
                key += 1
        return [{name: np.array(values, tensors[name].dtype) for name, values in piece.items()} for piece in pieces]

    @staticmethod
    def join(pieces, like):
        flat = np.concatenate([x for piece in pieces for x in piece.values()])
        ends = np.cumsum([0] + [x.size for x in like.values()])
        return {name: flat[a:b].reshape(like[name].shape) for name, a, b in zip(like, ends, ends[1:])}
""",
    "ssp": """
class Server(Server):  # delays pulls, and answers pushes at once
    def __init__(self, params, workers, lr):
        super().__init__(params, workers, lr)
        self.asking = []

    def handle(self, worker, message):
        kind, tensors = message
        answers = []
        if kind == "push":
            for name, p in self.params.items():
                p -= self.lr / self.workers * tensors[name]
            self.clocks[worker] += 1
            answers.append((worker, ("applied", {})))
        else:
            self.asking.append(worker)
        free = [one for one in self.asking if self.clocks[one] <= min(self.clocks) + self.staleness]
        self.asking = [one for one in self.asking if one not in free]
        return answers + [(one, ("params", self.params)) for one in free]
""",
    "onebit": """
class Server(Server):  # as Seide et al.: the mean of each column's values on either side of zero
    @staticmethod
    def encode(tensors):
        parts = {}
        for name, x in tensors.items():
            up, count = x > 0, np.maximum((x > 0).sum(axis=0), 1)
            down = np.maximum((~up).sum(axis=0), 1)
            parts[name + " bits"] = np.packbits(up)
            parts[name + " up"] = ((x * up).sum(axis=0) / count).astype("f4")
            parts[name + " down"] = ((x * ~up).sum(axis=0) / down).astype("f4")
        return parts

    @staticmethod
    def decode(parts, like):
        found = {}
        for name, x in like.items():
            up = np.unpackbits(parts[name + " bits"], count=x.size).reshape(x.shape).astype(bool)
            found[name] = np.where(up, parts[name + " up"], parts[name + " down"]).astype(x.dtype)
        return found
""",
    "lies": """
class Server(Server):  # Krum, as Blanchard et al.
    def handle(self, worker, message):
        kind, tensors = message
        if kind == "pull":
            return [(worker, ("params", self.params))]
        self.held[worker] = tensors
        if len(self.held) < self.workers:
            return []
        far = lambda a, b: sum(((a[name] - b[name]).astype(float) ** 2).sum() for name in a)
        score = lambda a: sum(sorted(far(a, b) for b in self.held.values())[1 : self.workers - 3])
        best = min(self.held.values(), key=score)
        for name, p in self.params.items():
            p -= self.lr * best[name]
        self.held = {}
        return [(one, ("applied", {})) for one in range(self.workers)]
""",
}
MEDIAN = "np.median([push[name] for push in self.held.values()], axis=0)"
WRONG = [
    (
        "ps",
        "total * j // servers - start for j in (i, i + 1)",
        "total * (j > 0) - start for j in (i, i + 1)",
        "server 0",
    ),
    ("ps", "for i, piece in enumerate(pieces):", "for i, piece in enumerate(pieces[::-1]):", "server 0 must hold"),
    ("ps", "np.concatenate([*parts[name],", "np.concatenate([*parts[name][::-1],", "join does not|differ"),
    ("ssp", "self.clocks[one] - min(self.clocks) <= self.staleness", "True", "the bound is"),
    ("ssp", "<= self.staleness}", "<= self.staleness + 1}", "the bound is"),
    ("ssp", "<= self.staleness}", "<= 0}", "earlier than they must"),
    ("ssp", "self.clocks[one] - min(self.clocks)", "max(self.clocks) - self.clocks[one]", "the bound is|for ever"),
    ("ssp", "self.lr / self.workers * tensors[name]", "0 * tensors[name]", "the bound is|its own are"),
    ("onebit", "x + memory.get(name, 0)", "x", "add up"),
    ("onebit", "x - sent[name]", "0.9 * (x - sent[name])", "add up"),
    ("onebit", "np.packbits(x > 0)", "(x > 0)", "bits of each value|stopped|Error"),
    ("onebit", "np.packbits(x > 0)", "np.packbits(x < 0)", "Three runs"),
    ("lies", MEDIAN, "np.mean([push[name] for push in self.held.values()], axis=0)", "read"),
    ("lies", MEDIAN, "np.sort([push[name] for push in self.held.values()], axis=0)[1:-1].mean(axis=0)", "read"),
    ("lies", MEDIAN, "self.held[0][name]", "read"),
    ("lies", MEDIAN, "np.mean([self.held[one][name] for one in range(5)], axis=0)", "read"),
]
SEEDS = [pytest.param(range(1), id="once"), pytest.param(range(1, 20), id="19 times", marks=pytest.mark.campaign)]


def tried(key: str, text: str, tmp_path: Path, seed: int) -> str:
    """What a milestone says of a ``server.py`` with this text. Raises `Refused` as its check does."""
    path = tmp_path / "server.py"
    path.write_text(text, encoding="utf-8")
    asked = milestones.milestones()[key]
    with np.errstate(all="ignore"):
        return asked.test(own.load(path, asked.until, key), np.random.default_rng(seed))


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("key", BUILT_BY)
def test_two_right_servers_pass_whatever_is_drawn(key: str, seeds: range, tmp_path: Path) -> None:
    other = GIVEN.partition(f"# Milestone {key}\n")[0] + f"\n# Milestone {key}\n{RIGHT[key]}"
    for seed in seeds:
        assert tried(key, GIVEN, tmp_path, seed)
        assert tried(key, other, tmp_path, seed)


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize(("key", "old", "new", "words"), WRONG)
def test_a_wrong_server_is_refused(key: str, old: str, new: str, words: str, seeds: range, tmp_path: Path) -> None:
    assert old in GIVEN
    for seed in seeds:
        with pytest.raises(Refused, match=words):
            tried(key, GIVEN.replace(old, new), tmp_path, seed)


def test_two_servers_that_share_their_parameters_are_refused(tmp_path: Path) -> None:
    old = "self.params, self.workers, self.lr = params, workers, lr"
    shared = GIVEN.replace(old, "Server.params, self.workers, self.lr = params, workers, lr")
    with pytest.raises(Refused, match="With four workers and two servers"):
        tried("ps", shared, tmp_path, 0)


def test_a_milestone_is_passed_after_the_lesson_that_builds_it_and_refused_before(tmp_path: Path) -> None:
    words = [*own.GROWTH]
    for key, built_by in BUILT_BY.items():
        section = SECTIONS.get(f"Milestone {key}", "")
        for word in words:
            parts = [f"# Lesson {one}\n{SECTIONS[f'Lesson {one}']}" for one in words[: words.index(word) + 1]]
            ready = words.index(word) >= words.index(built_by)
            text = "\n\n".join([*parts, f"# Milestone {key}\n{section}" if section and ready else ""])
            if ready:
                assert tried(key, text, tmp_path, 0), (key, word)
                continue
            with pytest.raises(Refused, match=r"Your server has no|the held-out digits"):
                tried(key, text, tmp_path, 0)
        if section:
            with pytest.raises(Refused, match=f"under the comment # Milestone {key}"):
                tried(key, GIVEN.replace(f"# Milestone {key}\n{section}", ""), tmp_path, 0)


def test_lessons_do_not_use_the_sections_of_milestones_and_keep_leaves_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MINIPS_AUTOPLAY")
    moved = GIVEN.replace("# Lesson bits\n", f"# Milestone ps\n{SECTIONS['Milestone ps']}\n\n# Lesson bits\n", 1)
    Path("server.py").write_text(moved, encoding="utf-8")
    for _, later in pairwise([*own.GROWTH, "stale"]):
        assert not hasattr(lab.own("server", lesson=later), "split")
    lab.keep(own_class("wait"))
    kept = own.sections(Path("server.py"))
    assert [title for title in kept if title.startswith("Milestone")] == [
        "Milestone ps",
        "Milestone onebit",
        "Milestone lies",
    ]
    assert [*kept][: len(own.GROWTH)] == [f"Lesson {word}" for word in own.GROWTH]


def own_class(word: str) -> Any:
    """The given class of a lesson, with its source."""
    source = f"import numpy as np\n{SECTIONS[f'Lesson {word}']}\n"
    names: dict[str, Any] = {"__name__": "__main__", "Server": own.load(own.given(), word)}
    linecache.cache["<given>"] = (len(source), None, source.splitlines(keepends=True), "<given>")
    exec(compile(source, "<given>", "exec"), names)
    return names["Server"]


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A learner's folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MINIPS_AUTOPLAY")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def test_a_pass_is_noted_and_shown(notebook: Path) -> None:
    assert "Milestones" not in repr(lab.progress())
    Path("server.py").write_text(GIVEN, encoding="utf-8")
    verdict = lab.milestone("ssp")
    assert verdict
    assert (
        "are the given ones, not yours: Lesson server, Lesson wire, Lesson bits, Lesson remember, Lesson wait."
        in repr(verdict)
    )
    assert "https://proceedings.neurips.cc" in repr(verdict)
    assert state.noted("milestone") == {"wait.ssp": {"milestone": "wait.ssp"}}
    assert state.set_aside() == 0
    assert "Milestones of your own server: ssp." in repr(lab.progress())
    assert [line.split()[:2] for line in repr(lab.milestone()).splitlines()[1:]] == [
        ["ps", "Li"],
        ["✓", "ssp"],
        ["onebit", "Seide"],
        ["lies", "Blanchard"],
    ]
    lab.report()
    assert "Milestones of your own server: ssp." in Path("report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no class Server in the lessons before stale"),
        ("class Server(:\n", r"server\.py is no program: invalid syntax, line 1\."),
        ("\0", r"server\.py is no program|ValueError|SyntaxError"),
        ("Server = 3\n", "Your server has no `staleness`|class"),
        (
            "import nothing_like_it\n",
            r"ModuleNotFoundError: .*nothing_like_it.*\nIn <module>, line 1 of server\.py: import nothing",
        ),
        ("raise SystemExit\n", r"ends the process.*\nIn <module>, line 1 of server\.py: raise"),
        (
            GIVEN.replace("self.clocks[worker] += 1", "1 / 0"),
            r"ZeroDivisionError.*\nIn handle, line \d+ of server\.py: 1 / 0",
        ),
        (GIVEN.replace("return [(one, (", "return [(one + 99, ("), "worker 1?0?\\d+ got|waits for nothing|IndexError"),
    ],
)
def test_what_cannot_run_is_a_sentence(tmp_path: Path, text: str, words: str) -> None:
    path, told = tmp_path / "server.py", tmp_path / "verdict.json"
    path.write_text(text, encoding="utf-8")
    milestones.run("ssp", str(path), str(told))
    ok, said = json.loads(told.read_text(encoding="utf-8"))
    assert not ok
    assert re.search(words, said), said
    assert "Traceback" not in said


def test_without_a_file_or_an_end_the_verdict_is_a_sentence(notebook: Path) -> None:
    verdict = lab.milestone("ssp")
    assert re.search(r"There is no server\.py in .*In lesson 03", verdict.words)
    Path("server.py").write_text("import os\nos._exit(3)\n", encoding="utf-8")
    verdict = lab.milestone("ssp")
    assert "ended its process with the status 3, before the verdict" in verdict.words
    assert not verdict
    assert not state.noted("milestone")


def test_a_server_of_an_old_edition_runs(notebook: Path) -> None:
    numbers = {"server": "03", "wire": "05", "bits": "08", "remember": "10", "wait": "14"}
    old = GIVEN.partition("# Milestone")[0]
    for word, number in numbers.items():
        old = old.replace(f"# Lesson {word}\n", f"# Lesson {number}\n")
    Path("server.py").write_text(old, encoding="utf-8")
    assert lab.milestone("ssp")
    assert "split and no join" not in lab.milestone("ssp").words
    assert "no split and no join" in lab.milestone("ps").words


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for a process in /proc")
@pytest.mark.soak
def test_a_server_that_never_ends_is_stopped_with_its_children(notebook: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(milestones, "PATIENCE_S", 10.0)
    sleeping = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']).pid"
    Path("server.py").write_text(
        f"import subprocess, sys\nopen('child', 'w').write(str({sleeping}))\nwhile True:\n    pass\n", encoding="utf-8"
    )
    verdict = lab.milestone("ssp")
    assert not verdict
    assert "stopped after 10 seconds" in verdict.words
    status = Path("/proc") / Path("child").read_text() / "status"
    deadline = time.monotonic() + 10
    while status.exists() and "State:\tZ" not in status.read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not status.exists() or "State:\tZ" in status.read_text()


def test_the_page_has_the_paper_and_the_task_of_each_milestone() -> None:
    section = pages.section("lessons/README.md", "Milestones of your own server")
    rows = re.findall(r"^\| `(\w+)` \| \[(.+?)\]\((.+?)\) \| (.+?) \|", section, re.MULTILINE)
    known = milestones.milestones().values()
    assert rows == [(one.key, one.paper.rpartition(",")[0], one.link, one.task) for one in known]


def test_an_unknown_milestone_is_a_sentence() -> None:
    with pytest.raises(
        ValueError, match=r"There is no milestone 'sspp'\. Known: ps, ssp, onebit, lies\. Did you mean ssp"
    ):
        lab.milestone("sspp")
