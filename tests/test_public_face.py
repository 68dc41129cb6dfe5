"""What tools see of minips: type checkers, ``dir``, ``help``; and what the pages promise."""

import ast
import dataclasses
import importlib
import inspect
import os
import pydoc
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pages
import pytest

import minips as ps
from minips.stage import stage_class

ROOT = Path(__file__).parents[1]
VALUES = [
    ps.Config,
    ps.Codec,
    ps.Delays,
    ps.Link,
    ps.LocalSteps,
    ps.cost.Cluster,
    *(stage_class(kind, name) for kind in ps.kinds() for name in ps.names(kind)),
]
OTHER_IDIOMS = """
import dataclasses

config = ps.Config(transport="inproc", push={"quantizer": "sign"}, link={"latency_s": 0.01}, exchange={"name": "ring"})
config = dataclasses.replace(config, consistency="ssp", delays=ps.Delays(slow={1: 5.0}), pull=ps.Codec())
codec = ps.Codec("topk", "errorfeedback")
codec = dataclasses.replace(codec, quantizer={"b": "exact", "*": {"name": "uniform", "bits": 4}})
codec = ps.Codec(quantizer={"b": ps.Exact(), "*": ps.Uniform(bits=4)})
rule: ps.Consistency = config.consistency
memory: ps.Memory = codec.memory
link: ps.Link | None = config.link
again: ps.Config = ps.Config.from_dict(config.to_dict())
run = ps.train(problem, config, engine="threads", stop=lambda: False)
run = ps.train(problem, config, engine=ps.Simulated(topology="ring"))
accuracy: float | None = run.accuracy
version: str = ps.__version__

async def step(client: ps.Client) -> str:
    w = (await client.push_pull({"w": np.ones(3)}))["w"]
    return await client.push({"w": w + 1})

def by_hand(server: ps.Server) -> ps.Run:
    print(ps.status(server.address, server.token, over_s=1.0).workers[0].clock)
    print(ps.work(problem, server.address, token=server.token, rank=0).pushes)
    return server.wait(10.0, problem=problem)
"""
MISTAKES = """import minips as ps
ps.Roundd()
ps.cost.predikt
ps.lab.plotts
ps.testing.chek
ps.datasets.digitz
ps.Simulated(computes=3.0)
ps.Config(consistancy="asp")
ps.Config(consistency=3)
ps.Config(push="topk")
ps.Codec(quantizer=ps.Zlib())
ps.Config().consistency.stalenes
ps.Config().workers = 3
"""


def test_mypy_takes_every_idiom_of_the_pages_and_refuses_every_mistake(tmp_path):
    programs = {f"page_{Path(page).stem}": pages.blocks(page, "python") for page in pages.GUIDE}
    programs = {name: "\n".join(blocks) for name, blocks in programs.items() if blocks}
    assert len(programs) >= 6
    for name, program in programs.items():
        (tmp_path / f"{name}.py").write_text(program + OTHER_IDIOMS * (name == "page_README"))
    (tmp_path / "mistakes.py").write_text(MISTAKES)
    modules = [word for name in (*programs, "mistakes") for word in ("-m", name)]
    command = [sys.executable, "-m", "mypy", "--strict", *modules]
    environment = {**os.environ, "MYPYPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280)
    errors = re.findall(r"(\w+)\.py:(\d+): error: ", done.stdout)
    assert errors == [("mistakes", str(line)) for line in range(2, MISTAKES.count("\n") + 1)], done.stdout + done.stderr


@pytest.mark.parametrize(
    ("name", "heading", "least"),
    [
        ("SECURITY.md", "What minips protects", 11),
        ("docs/clusters.md", "What was measured where", 5),
    ],
)
def test_each_promise_and_measurement_names_what_exists(name, heading, least):
    section = pages.section(name, heading)
    rows = re.findall(r"^\| (?!against|measured|---)(.+?) \| (?:.+ \| )?(.+) \|$", section, flags=re.MULTILINE)
    assert len(rows) >= least
    for promise, held in rows:
        path = ""
        for named in re.findall(r"`(.*?)`", held):
            file, _, name = named.removeprefix("python -m ").partition("::")
            if file.startswith("benchmarks "):
                assert (ROOT / "benchmarks" / f"{file.split()[1]}.py").is_file(), (promise, named)
                continue
            path = file or path
            assert (f"\ndef {name}(" if name else "\ndef test_") in (ROOT / path).read_text(), (promise, named)


def test_dir_lists_the_public_names_and_nothing_else():
    listed = dir(ps)
    assert listed == sorted(set(listed))
    assert {name for name in listed if not name.startswith("__")} == {*ps.__all__, "cost", "lab", "testing"}
    assert [name for name in listed if not hasattr(ps, name)] == []


def test_dir_leaves_out_the_lab_where_it_cannot_be_imported(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    assert "lab" not in dir(ps)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="minips has no 'Roundd'"):
        ps.Roundd  # noqa: B018


@pytest.mark.parametrize("cls", VALUES, ids=lambda cls: cls.__name__)
def test_help_explains_every_field_and_calls_an_array_an_array(cls):
    said = " ".join(pydoc.render_doc(cls, renderer=pydoc.plaintext).replace(" |  ", " ").split())
    for field in dataclasses.fields(cls):
        assert f"{field.name}: " in said
        assert " ".join(field.metadata["help"].split()) in said
    assert "numpy.ndarray[" not in said


def test_help_has_type_unit_default_and_limits_of_a_field_in_one_line():
    lines = inspect.getdoc(ps.Config).splitlines()
    assert "  workers: int = 4, at least 1: processes that compute gradients" in lines
    assert "  timeout_s: float (s) = 60.0, above 0, at most 1e+06: the longest that a message waits for others" in lines
    assert "  transport: Transport = Tcp(): how frames move" in lines
    assert len(lines) < 40


def test_every_field_of_a_run_has_its_line():
    (run,) = ast.parse(inspect.getsource(ps.Run)).body
    told = {
        field.target.id: ast.literal_eval(line.value)
        for field, line in pairwise(run.body)
        if isinstance(field, ast.AnnAssign) and isinstance(line, ast.Expr)
    }
    assert list(told) == [field.name for field in dataclasses.fields(ps.Run)]
    assert all(told.values())


@pytest.mark.parametrize("name", ["cost", "datasets", "lab", "lab.plots", "sklearn", "testing", "torch"])
def test_a_public_module_lists_its_public_names_alone(name):
    if name == "torch":
        pytest.importorskip("torch")
    module = importlib.import_module(f"minips.{name}")
    listed = dir(module)
    assert sorted(listed) == sorted(module.__all__)
    for one in listed:
        value = getattr(module, one)
        assert not inspect.ismodule(value) or one == "plots"
        assert getattr(value, "__module__", "minips").partition(".")[0] == "minips"
        assert inspect.getdoc(value)
