"""A learner's own stage in the workbench: chosen by trait, run in spawned workers and servers, broken in every way."""

import dataclasses
import re
import textwrap
from typing import Any

import numpy as np
import pytest

import minips as ps
from minips import lab

pytestmark = pytest.mark.usefixtures("registry")

HALVES = """
    @ps.register
    @dataclass(frozen=True)
    class Halves(ps.Quantizer):
        name = "halves"
        factor: float = ps.option(2.0, "what to divide by", minimum=1, maximum=4)

        def encode(self, x, rng):
            return {"half": np.asarray(x / self.factor, x.dtype), "factor": np.array([self.factor])}

        def decode(self, parts):
            return np.asarray(parts["half"] * parts["factor"][0], parts["half"].dtype)
    """
OTHERS = {
    "memory": """
        @ps.register
        @dataclass(frozen=True)
        class Mine(ps.ErrorFeedback):
            name = "mine"
        """,
    "serializer": """
        @ps.register
        @dataclass(frozen=True)
        class Mine(ps.Json):
            name = "mine"
        """,
    "compressor": """
        @ps.register
        @dataclass(frozen=True)
        class Mine(ps.Zlib):
            name = "mine"
        """,
    "aggregator": """
        @ps.register
        @dataclass(frozen=True)
        class Mine(ps.Aggregator):
            name = "mine"

            def combine(self, contributions):
                names = contributions[0].gradients
                return {name: np.mean([one.gradients[name] for one in contributions], axis=0) for name in names}
        """,
    "consistency": """
        @ps.register
        @dataclass(frozen=True)
        class Mine(ps.SSP):
            name = "mine"
        """,
    "optimizer": """
        @ps.register
        @dataclass(frozen=True)
        class Mine(ps.Optimizer):
            name = "mine"
            lr: float = 0.1

            def step(self, params, grads, state):
                for name, p in params.items():
                    p -= np.asarray(self.lr * grads[name], p.dtype)
        """,
    "transport": """
        @ps.register
        @dataclass(frozen=True)
        class Mine(ps.Tcp):
            name = "mine"
        """,
}
BROKEN = {
    "__post_init__ raises": (
        "        def encode",
        "        def __post_init__(self):\n            1 / 0\n\n        def encode",
    ),
    "encode raises": ('return {"half"', 'raise KeyError("the dog"); return {"half"'),
    "encode gives nothing": ('return {"half": np.asarray(x / self.factor, x.dtype), "factor"', 'x or {"factor"'),
    "encode gives a list": ('return {"half"', 'return [x]; return {"half"'),
    "encode gives text": ('return {"half"', 'return {"half": "many"}; return {"half"'),
    "decode raises": ("return np.asarray(parts", "1 / 0; return np.asarray(parts"),
    "decode gives nothing": ("return np.asarray(parts", "return; return np.asarray(parts"),
    "decode gives another shape": ("return np.asarray(parts", "return np.ones(3); return np.asarray(parts"),
    "decode gives text": ("return np.asarray(parts", 'return "many"; return np.asarray(parts'),
    "no default": ('ps.option(2.0, "what to divide by", minimum=1, maximum=4)', "dataclasses.field()"),
    "a default that is no number": ("ps.option(2.0", 'ps.option("two"'),
    "a default out of bounds": ("ps.option(2.0", "ps.option(9.0"),
    "a type that is not there": ("factor: float", 'factor: "Flota"'),
    "no encode": ("def encode", "def enkode"),
}


def cell(source: str) -> Any:
    """Run a notebook cell: what it defines belongs to ``__main__`` and travels by value."""
    namespace = {"__name__": "__main__", "ps": ps, "np": np, "dataclasses": dataclasses}
    exec(textwrap.dedent(source), namespace | {"dataclass": dataclasses.dataclass})


@pytest.fixture
def bench() -> lab.Workbench:
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=200, features=6, classes=3))
    return lab.Workbench(problem, ps.Config(workers=1, servers=2, steps=6), predict=False)


def choose(bench: lab.Workbench, label: str, name: str) -> None:
    assert name in bench.columns["B"].controls[label].options
    bench.columns["B"].controls[label].value = name


@pytest.mark.soak
def test_a_quantizer_works_in_workers_and_servers(bench: lab.Workbench) -> None:
    cell(HALVES)
    bench.refresh()
    choose(bench, "quantizer", "halves")
    choose(bench, "pull quantizer", "halves")
    bench.columns["B"].controls["quantizer.factor"].value = 4
    bench.predict.value = True
    bench.run()
    assert bench.wait(60)
    assert bench.history[1].prediction, bench._unpredicted
    a, b = bench.runs["A"], bench.runs["B"]
    assert repr(b.config.push.quantizer) == "Halves(factor=4.0)"
    assert all(np.allclose(a.params[name], b.params[name], atol=1e-5) for name in a.params)


@pytest.mark.parametrize("kind", OTHERS)
def test_any_other_stage_works_too(kind: str, bench: lab.Workbench) -> None:
    cell(OTHERS[kind])
    bench.refresh()
    choose(bench, kind, "mine")
    bench.run("B")
    assert bench.wait(60)
    assert "B" in bench.runs, bench.job.message.value
    assert bench.runs["B"].updates == 6


@pytest.mark.parametrize(("right", "wrong"), BROKEN.values(), ids=BROKEN)
def test_a_broken_one_is_a_sentence_and_the_panel_stays_usable(right: str, wrong: str, bench: lab.Workbench) -> None:
    assert right in HALVES
    cell(HALVES.replace(right, wrong))
    bench.refresh()
    choose(bench, "quantizer", "halves")
    bench.engine = "processes" if wrong.startswith("1 / 0") else "threads"
    bench.run("B")
    assert bench.wait(60)
    assert "B" not in bench.runs
    assert "That does not work." in bench.job.message.value
    assert re.search("halves|Halves|Flota|division|the gradient of", bench.job.message.value, re.IGNORECASE)
    assert "Traceback" not in bench.job.message.value
    cell(HALVES)  # the learner mends it and runs the cell again
    bench.run("B")
    assert bench.wait(60)
    assert "B" in bench.runs, bench.job.message.value
    assert "That does not work." not in bench.job.message.value
