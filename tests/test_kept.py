"""What a saved run, a server and a worker know of the problem: predictions in another process, and refusals."""

import ast
import dataclasses
import hashlib
import inspect
import json
import subprocess
import sys
import textwrap
import threading
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

import minips as ps
from minips import cli, seeds
from minips.drivers.connecting import asking
from minips.results import saved
from minips.training import byhand

rng = np.random.default_rng(0)
X = rng.normal(size=(90, 3))
NUMBERS = X.argmax(axis=1)
TEXTS = np.array(["ant", "bee", "cicada"])[NUMBERS]
CONFIG = ps.Config(workers=2, steps=20, batch_size=8)
OWN = """
import numpy as np
import minips as ps


class Threshold(ps.SoftmaxRegression):
    \"\"\"Keeps numbers, texts, an array and a function; says a name of its own where it is not certain.\"\"\"

    def __init__(self, *rows, least=0.4, **options):
        super().__init__(*rows, **options)
        self.least, self.names = least, {"unsure": ("?", [1, 2.5, None])}
        self.scale = np.float32(1.5)
        self.shift = np.arange(3, dtype=">f4")
        self.function = lambda x: x

    def predict(self, params, X):
        X = X * self.scale + self.shift
        sure = self.predict_proba(params, X).max(axis=1) >= self.least
        return np.where(sure, super().predict(params, X), self.names["unsure"][0])


class Neighbour(Threshold):
    def predict(self, params, X):
        return self.y[((X[:, None] - self.X) ** 2).sum(axis=2).argmin(axis=1)]


class Calls(Threshold):
    def predict(self, params, X):
        return self.function(super().predict(params, X))


class Outer:
    class Inner(Threshold):
        pass


class Other:
    pass


def refusing():
    raise RuntimeError("of no use")


class Refuses(Threshold):
    @classmethod
    def restored(cls, kept):
        refusing()
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """The module, in the folder of the test."""
    (tmp_path / "own_problems.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield __import__("own_problems")
    del sys.modules["own_problems"]


def trained(problem, config=CONFIG, **options):
    return ps.train(problem, config, engine="simulated", **options)


def elsewhere(folder, program, **options):
    """What the program prints in a fresh process."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        **options,
    ).stdout


# Predictions of a loaded run


def test_a_fresh_process_predicts_to_the_bit(own, tmp_path):
    problems = {
        "softmax numbers": ps.SoftmaxRegression(X, NUMBERS, classes=4, l2=0.1),
        "softmax texts": ps.SoftmaxRegression(X.astype("f4"), TEXTS, X, TEXTS),
        "mlp numbers": ps.MLP(X, NUMBERS, hidden=5),
        "mlp texts": ps.MLP(X, TEXTS, hidden=5, l2=0.1),
        "linear": ps.LinearRegression(X, X @ [1.0, 2.0, 3.0], weights=np.linspace(1, 2, len(X))),
        "own": own.Threshold(X, TEXTS, least=0.9),
        "inner": own.Outer.Inner(X, TEXTS),
    }
    expected = {"X": X}
    for name, problem in problems.items():
        run = trained(problem)
        run.save(tmp_path / f"{name}.npz")
        expected[name] = run.predict(X)
        if name != "linear":
            expected[f"{name} proba"] = run.predict_proba(X)
    np.savez(tmp_path / "expected.npz", **expected)
    program = """
        import pathlib
        import numpy as np
        import minips as ps

        expected = np.load("expected.npz")
        for name in expected.files[1:]:
            run = ps.Run.load(name.removesuffix(" proba") + ".npz")
            got = (run.predict_proba if name.endswith(" proba") else run.predict)(expected["X"])
            np.testing.assert_array_equal(got, expected[name], strict=True)
            print(name)
    """
    assert elsewhere(tmp_path, program).splitlines() == list(expected)[1:]


def test_todays_rows_do_not_change_what_the_labels_mean(tmp_path):
    run = trained(ps.SoftmaxRegression(X, TEXTS))
    run.save(tmp_path / "run.npz")
    today = np.where(np.arange(len(X)) < 5, "Ape", TEXTS)
    with pytest.raises(ValueError, match=r"run differ in their labels: 'Ape', 'ant', 'bee', 'cicada' and 'ant', 'bee'"):
        ps.Run.load(tmp_path / "run.npz", ps.SoftmaxRegression(X, today))
    np.testing.assert_array_equal(ps.Run.load(tmp_path / "run.npz").predict(X), run.predict(X))


class Uncountable(ps.SoftmaxRegression):
    """Nothing of it may be computed."""

    def loss_and_gradient(self, params, rows=None):
        raise AssertionError

    scores = loss_and_gradient


def refused(problem, match, tmp_path, trainee=None):
    trained(trainee or ps.SoftmaxRegression(X, TEXTS)).save(tmp_path / "run.npz")
    with pytest.raises(ValueError, match=match):
        ps.Run.load(tmp_path / "run.npz", problem)
    for resume in (tmp_path / "run.npz", trained(trainee or ps.SoftmaxRegression(X, TEXTS))):
        with pytest.raises(ValueError, match=match):
            trained(problem, CONFIG.with_({"steps": 40}), resume=resume)


def test_another_problem_is_refused_before_anything_is_computed(own, tmp_path):
    fewer = TEXTS != "bee"
    refused(ps.SoftmaxRegression(X[fewer], TEXTS[fewer]), "labels: 'ant', 'cicada' and 'ant', 'bee', 'cic", tmp_path)
    refused(ps.SoftmaxRegression(X, np.char.upper(TEXTS)), "labels: 'ANT', 'BEE'", tmp_path)
    refused(ps.SoftmaxRegression(X, NUMBERS), "labels: None and 'ant'", tmp_path)
    wider = np.hstack([X, X])
    refused(ps.SoftmaxRegression(wider, TEXTS), r"parameters: W float64\[6, 3\], .* and W float64\[3, 3\]", tmp_path)
    refused(ps.SoftmaxRegression(X.astype("f4"), TEXTS), r"parameters: W float32\[3, 3\]", tmp_path)
    refused(ps.MLP(X, TEXTS), "class: minips.problems:MLP and minips.problems:SoftmaxRegression", tmp_path)
    refused(ps.LinearRegression(X, X[:, 0]), "class: minips.problems:LinearRegression and", tmp_path)
    refused(
        own.Outer.Inner(X, TEXTS),
        "class: own_problems:Outer.Inner and own_problems:Thr",
        tmp_path,
        own.Threshold(X, TEXTS),
    )
    numbers = ps.SoftmaxRegression(X, NUMBERS)
    refused(
        ps.SoftmaxRegression(X[NUMBERS < 2], NUMBERS[NUMBERS < 2]), r"parameters: W float64\[3, 2\]", tmp_path, numbers
    )
    refused(ps.MLP(X, TEXTS, hidden=3), r"parameters: U float64\[3, 3\]", tmp_path, ps.MLP(X, TEXTS, hidden=4))
    trained(ps.SoftmaxRegression(X, TEXTS)).save(tmp_path / "run.npz")
    with pytest.raises(ValueError, match="differ in their class"):
        ps.Run.load(tmp_path / "run.npz", Uncountable(X, TEXTS))


def test_other_rows_of_the_same_labels_are_what_one_predicts_for(tmp_path):
    run = trained(ps.SoftmaxRegression(X, TEXTS))
    run.save(tmp_path / "run.npz")
    few = [int(np.flatnonzero(name == TEXTS)[0]) for name in ("cicada", "ant", "bee")]  # in another order
    for texts in (TEXTS.astype("U30"), TEXTS.astype(object)):
        later = ps.Run.load(tmp_path / "run.npz", ps.SoftmaxRegression(X[few], texts[few]))
        np.testing.assert_array_equal(later.predict(X), run.predict(X))


class Mine(ps.SoftmaxRegression):
    """Names its labels in an order of its own, or what belongs to each row so."""

    def __init__(self, X, y, labels):
        super().__init__(X, y)
        self.labels = labels

    def predict(self, params, X):
        return self.scores(params, X).argmax(axis=1)


def test_labels_are_compared_in_the_order_of_their_numbers_and_targets_of_rows_are_none(tmp_path):
    trained(Mine(X, NUMBERS, ["a", "b", "c"])).save(tmp_path / "run.npz")
    ps.Run.load(tmp_path / "run.npz", Mine(X, NUMBERS, ("a", "b", "c")))
    with pytest.raises(ValueError, match="labels: 'c', 'a', 'b' and 'a', 'b', 'c'"):
        ps.Run.load(tmp_path / "run.npz", Mine(X, NUMBERS, ["c", "a", "b"]))
    for odd in (7, None, {"a": 0}, [np.zeros((2, 3)), np.zeros((2, 4))], np.array(1.5), [print]):
        trained(Mine(X, NUMBERS, odd), CONFIG.with_({"steps": 1}))
    trained(Mine(X, NUMBERS, TEXTS)).save(tmp_path / "run.npz")
    ps.Run.load(tmp_path / "run.npz", Mine(X[5:], NUMBERS[5:], TEXTS[5:]))


def test_a_run_that_was_loaded_can_be_saved_again_and_needs_rows_only_to_train(tmp_path):
    run = trained(ps.SoftmaxRegression(X, TEXTS))
    run.save(tmp_path / "run.npz")
    once = ps.Run.load(tmp_path / "run.npz", ps.SoftmaxRegression(X[:40], TEXTS[:40]))
    once.save(tmp_path / "again.npz")
    again = ps.Run.load(tmp_path / "again.npz")
    assert again.origin["rows"] == run.origin["rows"]
    np.testing.assert_array_equal(again.predict(X), run.predict(X))
    assert repr(again.problem).startswith("<minips.problems.SoftmaxRegression object")
    assert again.problem.held_out() is None
    with pytest.raises(ValueError, match=r"This problem was loaded without its rows. Make a problem with rows"):
        trained(again.problem)


# Files that hold no problem, or none that can be made again


def without(path, *, name="origin", **others):
    """Write the file anew without an entry, or with others in it."""
    values = saved.read(path)
    del values["format"]
    values[name] = {**values[name], **others}
    saved.write(path, values if others else {key: x for key, x in values.items() if key != name})


def check_that_only_the_problem_is_missing(path, match, problem=None):
    run = ps.Run.load(path)
    for predict in (run.predict, run.predict_proba):
        with pytest.raises(ValueError, match=match):
            predict(X)
    if problem is not None:
        ps.Run.load(path, problem).predict(X)


def test_a_file_of_an_earlier_release_is_read_and_says_what_it_lacks():
    old = Path(__file__).parent / "run_without_problem.npz"  # SoftmaxRegression(few, labels), 1 worker, 2 steps
    few, labels = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 2.0], [2.0, 0.0]]), np.array(["a", "b", "a", "b"])
    check_that_only_the_problem_is_missing(old, r"the file has none: .*Give it: Run.load\(path, problem\)")
    problem = ps.SoftmaxRegression(few, labels)
    run = ps.Run.load(old, problem)
    assert run.predict(few).tolist() == labels.tolist()
    config = run.config.with_({"steps": 4})
    assert ps.train(problem, config, engine="simulated", resume=old).updates == 4
    with pytest.raises(ValueError, match=r"parameters: W float64\[2, 3\], b float64\[3\] and W float64\[2, 2\], b flo"):
        ps.Run.load(old, ps.SoftmaxRegression(few, np.array(["a", "b", "c", "b"])))


def test_a_problem_that_cannot_be_made_again_is_missing_only_when_it_is_needed(own, tmp_path, monkeypatch):
    path, problem = tmp_path / "run.npz", own.Threshold(X, TEXTS)
    trained(problem).save(path)
    for place, words in (
        ("nowhere_at_all:Threshold", "No module named 'nowhere_at_all'"),
        ("own_problems:Gone", "has no attribute 'Gone'"),
        ("own_problems:Other", "it is not a subclass of ps.Problem"),
        ("own_problems:refusing", "must be a class"),
        ("os:system", "must be a class"),
        ("own_problems:Refuses", "of no use"),
        ("not a name", "not a name"),
    ):
        without(path, **{"class": place})
        check_that_only_the_problem_is_missing(path, f"Predicting needs the problem, and {place} .*{words}.*Run.load")
    without(path)
    check_that_only_the_problem_is_missing(path, "the file has none: ", problem)


def test_a_module_that_ends_the_program_does_not_end_it(tmp_path, monkeypatch):
    (tmp_path / "a_script_that_exits.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    trained(ps.SoftmaxRegression(X, TEXTS)).save(tmp_path / "run.npz")
    without(tmp_path / "run.npz", **{"class": "a_script_that_exits:Mine"})
    check_that_only_the_problem_is_missing(tmp_path / "run.npz", "cannot be made again: 3. Give it")


def test_a_problem_of_a_cell_and_of_a_function_are_said_to_be_missing(own, tmp_path):
    elsewhere(
        tmp_path,
        """
        import numpy as np
        import minips as ps
        import own_problems

        class Cell(own_problems.Threshold):
            pass

        rng = np.random.default_rng(0)
        X = rng.normal(size=(90, 3))
        problem = Cell(X, np.array(["ant", "bee", "cicada"])[X.argmax(axis=1)])
        ps.train(problem, ps.Config(workers=1, steps=2), engine="simulated").save("cell.npz")
        """,
    )
    cell = tmp_path / "cell.npz"
    check_that_only_the_problem_is_missing(cell, r"__main__:Cell cannot be made again: its class was defined in")

    class Local(own.Threshold):
        pass

    problem = Local(X, TEXTS)
    trained(problem).save(tmp_path / "local.npz")
    check_that_only_the_problem_is_missing(tmp_path / "local.npz", r"<locals>.Local cannot be made again", problem)
    Cell = type("Cell", (own.Threshold,), {"__module__": "cells", "__qualname__": "Cell"})
    ps.Run.load(cell, Cell(X, TEXTS)).predict(X)  # the same program as a module
    with pytest.raises(ValueError, match="class: Threshold and Cell"):
        ps.Run.load(cell, own.Threshold(X, TEXTS))


def test_what_a_file_cannot_hold_is_named_where_predicting_needs_it(own, tmp_path):
    for cls, name in ((own.Calls, "function"), (own.Neighbour, "y")):
        problem = cls(X, TEXTS)
        trained(problem).save(tmp_path / "run.npz")
        run = ps.Run.load(tmp_path / "run.npz")
        with pytest.raises(
            ValueError, match=rf"needs the problem's '{name}', which the file .*Run.load\(path, problem\)"
        ):
            run.predict(X)
        ps.Run.load(tmp_path / "run.npz", problem).predict(X)
    with np.load(tmp_path / "run.npz") as file:
        assert not [name for name in file.files if file[name].shape[:1] == (len(X),)]  # no rows


def test_what_predicting_needs_is_what_a_problem_says(tmp_path):
    assert ps.LinearRegression(X, X[:, 0], l2=0.5).kept() == {"l2": 0.5}
    assert ps.SoftmaxRegression(X, NUMBERS, weights=NUMBERS + 1).kept() == {"labels": None, "classes": 3, "l2": 0.0}
    kept = ps.MLP(X, TEXTS, X, TEXTS, hidden=5).kept()
    assert sorted(kept) == ["classes", "hidden", "l2", "labels"]
    again = ps.MLP.restored(kept)
    assert again.labels.tolist() == ["ant", "bee", "cicada"]
    masked, holder = np.ma.masked_array([1.0, 2.0], [True, False]), {"deep": [({},), {"x": object()}]}
    for value in (masked, holder, np.array([None]), {1, 2}, object(), print):
        assert not saved.holds(value)
    for value in (np.zeros(2), np.float32(1), "a", 1, None, True, [(1, {"x": [np.ones(1)]})]):
        assert saved.holds(value)


# Fingerprints


def test_a_fingerprint_is_of_the_values_their_shapes_and_their_types():
    def of(X, y):
        return ps.Problem.fingerprint(type("Rows", (), {"X": X, "y": y})())

    one = of(X, NUMBERS)
    digest = hashlib.sha256()
    for rows in (X, NUMBERS):
        digest.update(f"{rows.shape} {rows.dtype.str}".encode() + rows.tobytes())
    assert one == digest.hexdigest() == ps.SoftmaxRegression(X, NUMBERS).fingerprint()
    wide = np.zeros((90, 6))
    wide[:, ::2] = X
    assert of(wide[:, ::2], NUMBERS) == of(np.asfortranarray(X), NUMBERS) == one
    others = [of(X[::-1], NUMBERS), of(X, NUMBERS[::-1]), of(X.astype("f4"), NUMBERS), of(X.reshape(3, 90), NUMBERS)]
    few = sparse.csr_array(X * (X > 1))
    others += [
        of(X, TEXTS),
        of(few, NUMBERS),
        of(few[::-1], NUMBERS),
        of(X[:0], NUMBERS[:0]),
        of(X, np.float64(1.0) + X),
    ]
    assert len({one, *others}) == 1 + len(others)
    assert "" not in others
    assert of(few, NUMBERS) == of(few.copy(), NUMBERS)
    dates = NUMBERS.astype("datetime64[D]")
    assert of(dates, NUMBERS) != of(dates + np.timedelta64(1, "D"), NUMBERS)
    for rows in (X.astype(object), None, [[1], [1, 2]], {"a": X}, "rows"):
        assert of(rows, NUMBERS) == of(X, rows) == ""
    assert ps.Problem.fingerprint(type("NoRows", (), {})()) == ""


def test_other_rows_at_resume_are_an_event(tmp_path):
    problem, more = ps.SoftmaxRegression(X, TEXTS), CONFIG.with_({"steps": 40})
    first = trained(problem)
    first.save(tmp_path / "run.npz")
    for resume in (first, tmp_path / "run.npz"):
        same = trained(ps.SoftmaxRegression(X.copy(), TEXTS.astype("U9")), more, resume=resume)
        assert same.events == []
        other = trained(ps.SoftmaxRegression(X[::-1], TEXTS[::-1]), more, resume=resume)
        assert other.events == [(first.seconds, "its rows differ from those of the run that it resumed")]
        assert other.updates == 80


# A worker and its server


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A function that serves a problem, and the command of a worker, which takes its own from ``pa`` or ``pb``."""
    (tmp_path / "pa.py").write_text(
        "import numpy as np\nimport minips as ps\n"
        "data = ps.datasets.synthetic(classes=3)\n"
        "def a():\n    return ps.SoftmaxRegression(data.X, data.y)\n"
        "def b():\n    return ps.SoftmaxRegression(data.X, np.random.default_rng(1).permutation(data.y))\n"
        "def texts():\n    return ps.SoftmaxRegression(data.X, np.array(['a', 'b', 'c'])[data.y])\n"
        "def wide():\n    return ps.SoftmaxRegression(np.hstack([data.X, data.X]), data.y)\n"
        "def mlp():\n    return ps.MLP(data.X, data.y)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    token = tmp_path / "t"
    token.write_text("secret")
    token.chmod(0o600)
    config = ps.Config(workers=1, steps=5)
    with byhand.serving(__import__("pa").a(), config, "tcp://127.0.0.1:0", "secret") as one:
        yield one.servers[0], ["work", "--connect", one.servers[0].address, "--token-file", str(token)]
    del sys.modules["pa"]


def test_a_worker_of_another_problem_is_refused_and_the_server_is_not_disturbed(served, capsys):
    server, work = served
    for own, words in (
        (["--problem", "pa:b"], "differ in their rows: "),
        (["--problem", "pa:texts"], "differ in their labels: 'a', 'b', 'c' and None. Give one of the same labels."),
        (["--problem", "pa:wide"], "differ in their parameters: W float32[40, 3], b float32[3] and W float32[20, 3]"),
        (["--problem", "pa:mlp"], "differ in their class: minips.problems:MLP and minips.problems:SoftmaxRegression"),
        (["--data", "breast_cancer"], "differ in their parameters: W float32[30, 2]"),
        (["--data", "diabetes", "--rank", "0"], "differ in their class: minips.problems:LinearRegression"),
    ):
        assert cli.main([*work, *own]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("minips: The problem and the server's ")
        assert words in line
        status = server.status()
        assert (status.applied, [one.connected for one in status.workers], server.events) == (0, [False], [])
    assert cli.main([*work, "--problem", "pa:a"]) == 0
    assert server.wait(10.0).updates == 5


def test_a_worker_that_was_given_the_config_is_asked_too(served):
    server, _ = served
    config, other = server.config, __import__("pa").b()
    with pytest.raises(
        ValueError,
        match=r"in their rows: all workers divide the same rows, to the bit\..*own_rows=True to ps\.work, or --own",
    ):
        ps.work(other, server.address, token="secret", rank=0, config=config)
    assert not server.connected


def test_a_server_that_tells_of_no_problem_is_not_asked_for_more():
    problem = ps.SoftmaxRegression(X, NUMBERS)
    config = ps.Config(workers=1, steps=3, transport="inproc")
    start = problem.init(seeds.init(0))
    with ps.Server(start, config, updates=3).serve(token="t") as server:
        got = []
        other = ps.SoftmaxRegression(X[::-1], NUMBERS)
        thread = threading.Thread(target=lambda: got.append(ps.work(other, server.address, token="t")))
        thread.start()
        run = server.wait(10.0)
        thread.join(10.0)
    assert (run.updates, got[0].pushes) == (3, 3)
    assert run.problem is None
    assert run.origin is None


def test_a_run_that_was_served_predicts_after_its_loading(tmp_path):
    problem = ps.MLP(X, TEXTS)
    with byhand.serving(problem, ps.Config(workers=1, steps=3, transport="inproc"), None, "t") as one:
        thread = threading.Thread(target=ps.work, args=(problem, one.servers[0].address), kwargs={"token": "t"})
        thread.start()
        one.wait()
        thread.join(10.0)
        run = one.end()
    run.save(tmp_path / "run.npz")
    np.testing.assert_array_equal(ps.Run.load(tmp_path / "run.npz").predict(X), run.predict(X))


@pytest.mark.parametrize("serializer", ["msgpack", "json", "protobuf"])
def test_a_status_with_the_config_tells_of_the_problem(serializer):
    problem = ps.SoftmaxRegression(X, TEXTS)
    config = ps.Config(workers=1, steps=3, transport="inproc", pull=ps.Codec(serializer=serializer))
    with byhand.serving(problem, config, None, "t") as one:
        address = one.servers[0].address
        with asking(address, "t", None, 5.0, config.pull) as ask:
            assert "problem" not in ask("status")
            told = ask("status", config=True)["problem"]
    assert told == {
        "class": "minips.problems:SoftmaxRegression",
        "labels": "'ant', 'bee', 'cicada'",
        "parameters": "W float64[3, 3], b float64[3]",
        "rows": problem.fingerprint(),
    }
    json.dumps(told)


# Data frames


class Frame:
    """As much of a data frame as a problem looks at."""

    def __init__(self, **columns):
        self.columns, self._values = list(columns), list(columns.values())

    def __array__(self, dtype=None, copy=None):
        table = np.empty((len(self._values[0]), len(self._values)), object)
        for place, column in enumerate(self._values):
            table[:, place] = column
        return table


def test_a_column_of_texts_is_named_with_the_remedy():
    frame = Frame(age=[31, 42.5, 17], married=[True, False, None], city=["Bern", "Basel", "Bern"])
    words = r"The column 'city' of {} .* not a number: .*'Bern'\. .*get_dummies.*OneHotEncoder.*PSCl"
    for make in (ps.LinearRegression, ps.SoftmaxRegression, ps.MLP):
        with pytest.raises(ValueError, match=words.format("X")):
            make(frame, [0, 1, 1])
        with pytest.raises(ValueError, match=words.format("X_validation")):
            make(np.zeros((3, 3)), [0, 1, 1], frame, [0, 1, 1])
    with pytest.raises(ValueError, match="The column 1 of X holds something that is not a number"):
        ps.LinearRegression(np.array([[1, object()], [2, 3]], object), [0, 1])
    problem = ps.LinearRegression(Frame(age=[31, 42.5], married=[True, "1.5"]), [0, 1])
    np.testing.assert_array_equal(problem.X, [[31, 1], [42.5, 1.5]])


def test_a_frame_of_pandas_with_texts():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"age": [31, 42, 17], "city": pd.Categorical(["Bern", "Basel", "Bern"])})
    with pytest.raises(ValueError, match="The column 'city' of X holds something that is not a number"):
        ps.SoftmaxRegression(frame, [0, 1, 1])
    assert ps.SoftmaxRegression(pd.get_dummies(frame), [0, 1, 1]).X.shape == (3, 3)


# What each field means


@pytest.mark.parametrize("cls", [ps.Run, ps.Progress, ps.Eval], ids=lambda cls: cls.__name__)
def test_every_field_has_a_line(cls):
    (tree,) = ast.parse(inspect.getsource(cls)).body
    told = {
        field.target.id: ast.literal_eval(line.value)
        for field, line in pairwise(tree.body)
        if isinstance(field, ast.AnnAssign) and isinstance(line, ast.Expr)
    }
    assert list(told) == list(getattr(cls, "_fields", ())) or list(told) == [
        one.name for one in dataclasses.fields(cls)
    ]
    assert all(told.values())


def test_every_field_of_a_config_has_its_help_and_classes_are_explained():
    assert all(field.metadata["help"] for field in dataclasses.fields(ps.Config))
    assert "``classes`` is the number of" in " ".join(inspect.getdoc(ps.SoftmaxRegression).split())


def test_the_others_make_no_more_rounds_where_a_worker_is_lost():
    shard = ps.Shard.of(ps.Config(workers=3), {"w": np.zeros(1)}, updates=12)

    def push(worker, clock):
        return shard.push(ps.Contribution(worker, clock, shard.version, {"w": np.ones(1)}))

    for worker in range(3):
        push(worker, 0)
    shard.leave(2)
    for clock in range(1, 4):
        for worker in (0, 1):
            assert not shard.done
            push(worker, clock)
    assert (shard.applied, shard.missing, shard.rounds, shard.done) == (9, 3, 4, True)
