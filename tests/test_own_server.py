"""The learner's own server: its checks, its file, and its way through the lessons in which it grows."""

import linecache
import os
import pickle
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minips as ps
from minips import lab
from minips.lab.course import exercises, own
from minips.lab.course.exercises import Refused
from minips_course import given_server, own_server

PARTS = {
    "server": """
class Server:
    def __init__(self, params, workers, lr):
        self.params, self.workers, self.lr, self.held = params, workers, lr, {}

    def handle(self, worker, message):
        kind, tensors = message
        if kind == "pull":
            return [(worker, ("params", self.params))]
        self.held[worker] = tensors
        if len(self.held) < self.workers:
            return []
        for name, p in self.params.items():
            p -= self.lr * np.mean([self.held[one][name] for one in sorted(self.held)], axis=0)
        answers = [(one, ("applied", {})) for one in self.held]
        self.held = {}
        return answers
""",
    "wire": """
class Server(Server):
    @staticmethod
    def pack(tensors):
        heads = [struct.pack("<I", len(tensors))]
        for name, x in tensors.items():
            head = repr((name, x.dtype.str, x.shape)).encode()
            heads.append(struct.pack("<I", len(head)) + head)
        return b"".join(heads + [x.tobytes() for x in tensors.values()])

    @staticmethod
    def unpack(data):
        (count,), at, heads, tensors = struct.unpack_from("<I", data), 4, [], {}
        for _ in range(count):
            (size,) = struct.unpack_from("<I", data, at)
            heads.append(ast.literal_eval(data[at + 4 : at + 4 + size].decode()))
            at += 4 + size
        for name, dtype, shape in heads:
            tensors[name] = np.frombuffer(data, dtype, int(np.prod(shape)), at).reshape(shape)
            at += tensors[name].nbytes
        return tensors
""",
    "bits": """
class Server(Server):
    @staticmethod
    def encode(tensors):
        signs = {f"{name} signs": np.packbits(x > 0) for name, x in tensors.items()}
        return signs | {f"{name} size": np.abs(x).mean().astype("f4") for name, x in tensors.items()}

    @staticmethod
    def decode(parts, like):
        found = {}
        for name, x in like.items():
            bits = np.unpackbits(parts[f"{name} signs"], count=x.size).reshape(x.shape)
            found[name] = ((2.0 * bits - 1) * parts[f"{name} size"]).astype(x.dtype)
        return found
""",
    "remember": """
class Server(Server):
    @staticmethod
    def compensate(tensors, memory):
        return {name: x + memory[name] if memory else x for name, x in tensors.items()}

    @staticmethod
    def remember(compensated, sent):
        return {name: compensated[name] - sent[name] for name in sent}
""",
    "wait": """
class Server(Server):
    staleness = 1

    def __init__(self, params, workers, lr):
        super().__init__(params, workers, lr)
        self.done, self.owed = np.zeros(workers, int), []

    def handle(self, worker, message):
        if message[0] == "pull":
            return super().handle(worker, message)
        for name, gradient in message[1].items():
            self.params[name] -= self.lr * gradient / self.workers
        self.done[worker] += 1
        self.owed.append(worker)
        free = [one for one in self.owed if self.done[one] <= self.done.min() + self.staleness]
        self.owed = [one for one in self.owed if one not in free]
        return [(one, ("applied", {})) for one in free]
""",
    "plug": """
class Server(Server):
    def __init__(self, params, workers, lr):
        super().__init__(params, workers, lr)
        self.counted = [(-1, False)] * workers

    def deliver(self, worker, clock, message):
        last, answered = self.counted[worker]
        if message[0] == "push" and clock == last:
            return [(worker, ("applied", {}))] if answered else []
        if message[0] == "push":
            self.counted[worker] = clock, False
        answers = self.handle(worker, message)
        for to, (said, _) in answers:
            if said == "applied":
                self.counted[to] = self.counted[to][0], True
        return answers
""",
}


@pytest.fixture
def notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names of a learner's notebook, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MINIPS_AUTOPLAY")
    return {"__name__": "__main__"}


def written(notebook: dict[str, Any], source: str, tmp_path: Path, word: str) -> Any:
    """The class of a cell, which has a file name, as in a notebook."""
    name = f"<cell {word} {len(source)}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec("import ast, struct\nimport numpy as np", notebook)
    exec(compile(source, name, "exec"), notebook)
    return notebook["Server"]


def test_a_learners_server_grows_from_lesson_to_lesson_and_trains_the_digits(
    notebook: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for word, source in PARTS.items():
        if word != "server":
            notebook["Server"] = lab.own("server", lesson=word)
            assert capsys.readouterr().out == "Your own server, from server.py.\n"
        lab.keep(written(notebook, source, tmp_path, word))
        capsys.readouterr()
    in_rounds, mine = lab.own("server", lesson="wait"), lab.own("server", lesson="stale")
    assert capsys.readouterr().out == "Your own server, from server.py.\n" * 2
    assert not hasattr(in_rounds, "staleness")
    assert mine.staleness == 1  # type: ignore[attr-defined]
    problem = ps.SoftmaxRegression(*ps.datasets.digits())
    exact = lab.train_own(own.load(own.given(), "bits"), problem, steps=150)
    for one in (in_rounds, mine):
        run = lab.train_own(one, problem, steps=150)
        assert run.accuracy > 0.9
        assert run.bytes_sent < exact.bytes_sent / 5
        assert len(run.log) == 4 * 150 * 2
    assert [*tmp_path.iterdir()] == [tmp_path / "server.py"]


@pytest.mark.parametrize("word", own.GROWTH)
def test_the_given_server_passes(word: str) -> None:
    later, name = dict(pairwise(own.GROWTH)).get(word), own.GROWTH[word].name
    last = next(cls for cls in given_server.Server.__mro__ if name in vars(cls))  # behind it are those of milestones
    server = own.load(own.given(), later) if later else last
    for seed in range(5):
        own.GROWTH[word].check(server, np.random.default_rng(seed))


def grown(notebook: dict[str, Any], tmp_path: Path, word: str, old: str = "", new: str = "") -> Any:
    """The server of `PARTS` up to a lesson, with a change in that lesson's part."""
    for known in [*PARTS][: [*PARTS].index(word) + 1]:
        source = PARTS[known].replace(old, new) if known == word else PARTS[known]
        server = written(notebook, source, tmp_path, known)
    return server


@pytest.mark.parametrize(
    "word", [pytest.param(word, marks=[pytest.mark.soak] * (word in ("wait", "plug"))) for word in own.GROWTH]
)
def test_a_right_server_passes_whatever_is_drawn(notebook: dict[str, Any], tmp_path: Path, word: str) -> None:
    """Also where a parameter comes near zero, whose rounding errors are then large beside it."""
    server = grown(notebook, tmp_path, word)
    for seed in range(20):
        own.GROWTH[word].check(server, np.random.default_rng(seed))


@pytest.mark.parametrize(
    ("word", "old", "new", "words"),
    [
        ("server", "if len(self.held) < self.workers:", "if len(self.held) < 1:", "not whole yet"),
        ("server", "sorted(self.held)", "self.held", "other bits"),
        ("server", "        self.held = {}\n", "", "push 1 of"),
        ("server", "self.lr * np.mean", "np.mean", "times lr"),
        ("wire", "x.tobytes()", "x.astype('f4').tobytes()", "w|s|cube|part|W"),
        ("wire", "x.shape)", "(x.size,))", "same to the bit"),
        ("bits", "np.packbits(x > 0)", "(x > 0)", "nearer|came back|stopped|far off|count|unpackbits"),
        ("bits", "2.0 * bits - 1", "1 - 2.0 * bits", "far off"),
        ("remember", "x + memory[name] if memory else x", "x", "add up"),
        ("remember", "compensated[name] - sent[name]", "compensated[name]", "add up"),
        ("remember", "compensated[name] - sent[name]", "np.where(sent[name] == 0, compensated[name], 0)", "add up"),
        ("wait", "self.done[one] <= self.done.min() + self.staleness", "True", "expected"),
        ("wait", "self.done.min()", "self.done.max()", "expected"),
        ("wait", "self.owed = [one for one in self.owed if one not in free]", "pass", "expected"),
        ("wait", " / self.workers", "", "lr / workers"),
        ("plug", "clock == last", "False", "must count once"),
        ("plug", " if answered else []", "", "expected"),
    ],
)
def test_a_broken_server_is_refused(
    notebook: dict[str, Any], tmp_path: Path, word: str, old: str, new: str, words: str
) -> None:
    assert old in PARTS[word]
    broken = grown(notebook, tmp_path, word, old, new)
    with pytest.raises(Refused, match=words):
        own.GROWTH[word].check(broken, np.random.default_rng(1))


def test_one_that_does_not_pass_is_replaced_and_said_so(
    notebook: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = PARTS["server"].replace("len(self.held) < self.workers", "len(self.held) < 1")
    lab.keep(written(notebook, broken, tmp_path, "server"))
    assert 'It is not kept: it does not pass the check of lesson "server".' in capsys.readouterr().out
    assert not (tmp_path / "server.py").exists()
    (tmp_path / "server.py").write_text(f"import numpy as np\n# Lesson server\nimport numpy as np\n{broken}")
    server = lab.own("server", lesson="wire")
    assert "The given server: yours does not pass." in capsys.readouterr().out
    own_server.check_rounds(server, np.random.default_rng(0))
    (tmp_path / "server.py").write_text("# Lesson server\nraise SystemExit\n")
    own_server.check_rounds(lab.own("server", lesson="wire"), np.random.default_rng(0))


def test_what_is_missing_before_is_given_and_what_is_kept_again_is_replaced(
    notebook: dict[str, Any], tmp_path: Path
) -> None:
    notebook["Server"] = lab.own("server", lesson="wait")
    for _ in range(2):
        lab.keep(written(notebook, PARTS["wait"], tmp_path, "wait"))
    text = (tmp_path / "server.py").read_text()
    assert [line for line in text.splitlines() if line.startswith("# Lesson")] == [
        f"# Lesson {word}" for word in own.GROWTH if word != "plug"
    ]
    assert text.count("def compensate") == text.count("staleness = ") == 1


def test_a_file_of_an_edition_with_numbers_is_read_and_rewritten_with_words(
    notebook: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook["Server"] = lab.own("server", lesson="14")
    for word, source in PARTS.items():
        lab.keep(written(notebook, source, tmp_path, word))
    file, second_edition = (
        tmp_path / "server.py",
        {"server": "03", "wire": "05", "bits": "08", "remember": "10", "wait": "14"},
    )
    with_words = with_numbers = file.read_text()
    for word, number in second_edition.items():
        with_numbers = with_numbers.replace(f"# Lesson {word}\n", f"# Lesson {number}\n")
    file.write_text(with_numbers)
    capsys.readouterr()
    for lesson, bound in (("8", False), ("14", False), ("wait", False), ("15", True), ("stale", True)):
        assert hasattr(lab.own("server", lesson=lesson), "staleness") == bound
        assert capsys.readouterr().out == "Your own server, from server.py.\n"
    assert file.read_text() == with_numbers
    lab.keep(written(notebook, PARTS["bits"], tmp_path, "bits"))
    assert file.read_text() == with_words


def test_what_looks_like_a_section_is_none_unless_it_names_a_lesson(notebook: dict[str, Any], tmp_path: Path) -> None:
    remark = "# Lesson learned\n"
    (tmp_path / "server.py").write_text(f"# Lesson server\nimport numpy as np\n{remark}{PARTS['server']}")
    notebook["Server"] = lab.own("server", lesson="wire")
    lab.keep(written(notebook, PARTS["wire"], tmp_path, "wire"))
    assert remark in (tmp_path / "server.py").read_text().partition("# Lesson wire\n")[0]


def test_a_lesson_that_there_is_not_is_a_sentence() -> None:
    for lesson in ("21", "weit", ""):
        with pytest.raises(ValueError, match=rf"There is no lesson '{lesson}'\. Known: train, .*local"):
            lab.own("server", lesson=lesson)


def test_what_the_class_uses_travels_along_or_is_refused(notebook: dict[str, Any], tmp_path: Path) -> None:
    notebook |= {"LIMIT": 3, "help_me": written}
    uses = PARTS["server"].replace("        if kind ==", "        os.getpid(), LIMIT\n        if kind ==")
    notebook["os"] = os
    lab.keep(written(notebook, uses, tmp_path, "server"))
    text = (tmp_path / "server.py").read_text()
    assert "import os\n" in text
    assert "import numpy as np\n" in text
    assert "LIMIT = 3\n" in text
    notebook["help_me"] = written(notebook, "class Helper:\n    pass\nclass Server:\n    pass\n", tmp_path, "x")
    alone = PARTS["server"].replace("        if kind ==", "        Helper()\n        if kind ==")
    with pytest.raises(ValueError, match="'Helper', which only the notebook has"):
        lab.keep(written(notebook, alone, tmp_path, "server"))
    with pytest.raises(ValueError, match="one of handle, pack, encode, compensate"):
        lab.keep(type("Server", (), {}))
    with pytest.raises(ValueError, match='the only name is "server"'):
        lab.own("client", lesson="wire")


def test_pickle_is_no_header() -> None:
    pickled = type("Server", (), {"pack": staticmethod(pickle.dumps), "unpack": staticmethod(pickle.loads)})
    with pytest.raises(Refused, match="pickle's bytes"):
        own_server.check_pack(pickled, np.random.default_rng(1))


def test_a_server_that_never_answers_ends_the_run_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "WAIT_S", 0.5)

    class Silent(own.load(own.given(), "wire")):  # type: ignore[misc]
        def handle(self, worker: int, message: Any) -> list[Any]:
            return []

    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=80, features=4, classes=3))
    with pytest.raises(RuntimeError, match=r"within 0\.5 seconds|sent anything for 0\.5 seconds"):
        lab.train_own(Silent, problem, steps=3)


def test_what_stops_one_worker_or_the_server_ends_the_run_with_its_words() -> None:
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=80, features=4, classes=3))
    given: Any = own.load(own.given(), "bits")

    class Refuses(given):  # type: ignore[misc]
        def handle(self, worker: int, message: Any) -> list[Any]:
            if worker == 2 and message[0] == "push":
                return [(worker, ("error", "Worker 2 may not."))]
            answers: list[Any] = super().handle(worker, message)
            return answers

    class Breaks(given):  # type: ignore[misc]
        @staticmethod
        def unpack(data: bytes) -> Any:
            raise EOFError("of the learner's own")

    for _ in range(5):
        with pytest.raises(RuntimeError, match=r"refused a push from worker 2: Worker 2 may not\."):
            lab.train_own(Refuses, problem, steps=3)
        with pytest.raises(RuntimeError, match="EOFError: of the learner's own"):
            lab.train_own(Breaks, problem, steps=3)
    assert not [thread for thread in threading.enumerate() if "carry" in thread.name]


def test_one_that_never_ends_is_not_kept_and_not_taken(
    notebook: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(exercises, "LIMIT_S", 0.5)
    endless = PARTS["server"].replace(
        "        self.held[worker] = tensors\n", "        while True:\n            pass\n"
    )
    lab.keep(written(notebook, endless, tmp_path, "server"))
    assert "It was stopped after 0.5 seconds." in capsys.readouterr().out
    (tmp_path / "server.py").write_text(f"# Lesson server\nimport numpy as np\n{endless}")
    lab.own("server", lesson="wire")
    assert "The given server: yours does not pass. TooLong: It was stopped" in capsys.readouterr().out


def test_unattended_runs_take_the_given_one_and_write_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lab.keep(lab.own("server", lesson="wire"))
    assert capsys.readouterr().out == (
        'The given server, as of the lessons before "wire".\n'
        "In a run with a learner the class would be kept in server.py, if it passes the check.\n"
    )
    assert not [*tmp_path.iterdir()]


def test_a_later_lesson_wants_the_bound_and_no_rounds(
    notebook: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What does not bound is replaced, and what waits for rounds as well: that was right up to "wait"."""
    for word in ("server", "wire", "bits", "remember"):
        lab.keep(written(notebook, PARTS[word], tmp_path, word))
    capsys.readouterr()
    assert not hasattr(lab.own("server", lesson="wait"), "staleness")
    assert capsys.readouterr().out == "Your own server, from server.py.\n"
    assert lab.own("server", lesson="stale").staleness == 2  # type: ignore[attr-defined]
    assert "The given server: yours does not pass." in capsys.readouterr().out


def test_a_step_takes_at_least_its_delay() -> None:
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=80, features=4, classes=3))
    delays = ps.Delays(seconds=0.02, slow={1: 5.0})
    run = lab.train_own(own.load(own.given(), "stale"), problem, workers=2, steps=3, delays=delays)
    assert run.seconds >= 3 * 0.1
    assert [worker for worker, kind in run.log if kind == "push"].index(1) <= 3  # a third push is not answered
