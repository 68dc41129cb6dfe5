"""User code by value: what works in another process, and what is said of what does not."""

import dataclasses
import subprocess
import sys
import textwrap
import warnings

import misfits
import numpy as np
import pytest

import minips as ps
from minips import stage
from minips.engines.shipping import register_shipped_stages, ship, unship


def run_script(tmp_path, text, *options):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(text))
    done = subprocess.run([sys.executable, *options, str(path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done


HEAD = """
    import subprocess, sys
    from dataclasses import dataclass
    import numpy as np
    import minips as ps
    from minips.engines.shipping import ship

    UNSHIP = "import sys; from minips.engines.shipping import register_shipped_stages, unship; "
    UNSHIP += "x = unship(sys.stdin.buffer.read()); "

    def elsewhere(data, program):
        command = [sys.executable, "-c", UNSHIP + program]
        print(subprocess.run(command, input=data, capture_output=True, check=True).stdout.decode(), end="")
"""


def test_what_is_importable_comes_back():
    parts = {"config": ps.Config(servers=2), "problem": misfits.Raises(), "params": {"w": np.arange(3.0)}}
    again = unship(ship(parts))
    assert again["config"] == parts["config"]
    assert type(again["problem"]) is misfits.Raises
    np.testing.assert_array_equal(again["problem"].X, parts["problem"].X)
    np.testing.assert_array_equal(again["params"]["w"], np.arange(3.0))


def test_large_arrays_travel_apart_without_a_copy():
    large, small, turned = np.arange(300_000.0), np.arange(3.0), np.ones((500, 600)).T
    apart = []
    data = ship({"large": large, "small": small, "turned": turned}, apart)
    assert [len(memory) for memory in apart] == [large.nbytes, turned.nbytes]
    assert np.shares_memory(np.frombuffer(apart[0]), large)
    assert len(data) < 2_000
    again = unship(data, [memoryview(bytearray(memory)) for memory in apart])
    for name, x in {"large": large, "small": small, "turned": turned}.items():
        np.testing.assert_array_equal(again[name], x)
        assert again[name].flags.writeable


def test_a_class_of_main_travels_by_value_with_what_it_refers_to(tmp_path):
    done = run_script(
        tmp_path,
        HEAD
        + """
    SCALE = 2.0

    def scaled(x):
        return SCALE * x

    class Base(ps.Problem):
        def init(self, rng):
            return {"w": np.zeros(2)}

    class Mine(Base):
        def loss_and_gradient(self, params, rows=None):
            return float(scaled(params["w"].sum())), {"w": scaled(np.ones(2))}

        def init(self, rng):
            return super().init(rng)

    data = ship({"problem": Mine(np.ones((2, 2)), np.ones(2))})
    elsewhere(data, "p = x['problem']; print(p.init(None), p.loss_and_gradient({'w': p.X[0]}))")
    """,
    )
    assert done.stdout == "{'w': array([0., 0.])} (4.0, {'w': array([2., 2.])})\n"


def test_the_package_itself_travels_by_name(tmp_path):
    """Also where it is no package of site-packages, and some of its modules cannot be pickled."""
    done = run_script(
        tmp_path,
        HEAD
        + """
    import minips.lab

    class Mine(ps.LinearRegression):
        def loss_and_gradient(self, params, rows=None):
            return ps.LinearRegression(self.X, self.y).loss_and_gradient(params, rows)

    data = ship({"problem": Mine(np.ones((2, 2)), np.ones(2))})
    print(len(data) < 10_000)
    elsewhere(data, "import sys; p = x['problem']; print(p.loss(p.init(None)), 'minips.lab' in sys.modules)")
    """,
    )
    assert done.stdout.split() == ["True", "0.5", "False"]


def test_a_stage_of_main_is_registered_where_it_arrives(tmp_path):
    done = run_script(
        tmp_path,
        HEAD
        + """
    @ps.register
    @dataclass(frozen=True)
    class Same(ps.Quantizer):
        name = "same"

        def encode(self, x, rng):
            return {"x": x}

        def decode(self, parts):
            return parts["x"]

    data = ship({"config": ps.Config(push=ps.Codec(quantizer=Same()))})
    elsewhere(data, "from minips import build, names; print('same' in names('quantizer'))")
    elsewhere(data, "from minips import build, names; register_shipped_stages(x); print(build('quantizer', 'same'))")
    """,
    )
    assert done.stdout.split() == ["False", "Same()"]


def test_an_attribute_that_cannot_travel_is_named():
    problem = misfits.Raises()
    problem.source = (row for row in problem.X)
    with pytest.raises(TypeError, match=r"problem\.source holds a generator, which cannot travel.*engine=Threads\(\)"):
        ship({"problem": problem})


def test_a_global_that_cannot_travel_is_named(tmp_path):
    done = run_script(
        tmp_path,
        HEAD
        + """
    SOURCE = (row for row in range(3))

    class Mine(ps.LinearRegression):
        def loss_and_gradient(self, params, rows=None):
            for _ in SOURCE:
                return super().loss_and_gradient(params, rows)

    try:
        ship({"problem": Mine(np.ones((2, 2)), np.ones(2))})
    except TypeError as error:
        print(error)
    """,
    )
    assert "Mine uses 'SOURCE' a generator, which cannot travel to another process" in done.stdout


def test_a_large_global_is_warned_of(tmp_path):
    done = run_script(
        tmp_path,
        HEAD
        + """
    TABLE = np.zeros(1_000_000)

    class Mine(ps.LinearRegression):
        def loss_and_gradient(self, params, rows=None):
            return TABLE[0], {}

    ship({"problem": Mine(np.ones((2, 2)), np.ones(2))})
    """,
        "-W",
        "always",
    )
    assert "Mine uses the global 'TABLE', and its 8.0 MB travel to every worker" in done.stderr


def test_what_is_large_by_nature_is_not_warned_of():
    problem = ps.LinearRegression(np.zeros((2000, 100)), np.zeros(2000))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(ship({"problem": problem})) > problem.X.nbytes


@dataclasses.dataclass(frozen=True)
class Written(ps.Quantizer):
    name = "written in a cell"

    def encode(self, x, rng):
        return {"x": x}

    def decode(self, parts):
        return parts["x"]


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("module", ["__main__", "somewhere"])
def test_only_stages_of_main_are_enrolled_however_deep_they_are(monkeypatch, module):
    monkeypatch.setattr(Written, "__module__", module)
    register_shipped_stages({"parts": [ps.Config(push=ps.Codec(quantizer=Written()))]})
    assert ("written in a cell" in stage._KINDS["quantizer"]) == (module == "__main__")
