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
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pages
import pytest

import minips as ps
from minips.stage import stage_class

ROOT = Path(__file__).parents[1]
NAMESPACES = {
    "aggregator": ps.aggregators,
    "compressor": ps.compressors,
    "consistency": ps.consistency,
    "engine": ps.engines,
    "exchange": ps.exchanges,
    "memory": ps.memories,
    "optimizer": ps.optimizers,
    "quantizer": ps.quantizers,
    "schedule": ps.schedules,
    "serializer": ps.serializers,
    "shards": ps.shards,
    "topology": ps.topologies,
    "transport": ps.transports,
}
VALUES = [
    ps.Config,
    ps.Codec,
    ps.Delays,
    ps.Faults,
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
small: ps.Quantizer = ps.quantizers.TopK(fraction=0.1)
fast: ps.Engine = ps.engines.Simulated(topology=ps.topologies.Tree())
ring: ps.Exchange = ps.exchanges.RingAllReduce()
local: ps.Transport = ps.transports.Pipe()
named: ps.Tensors = {"w": np.zeros(3)}

class Half(ps.quantizers.Quantizer):
    name = "half"

    def encode(self, x: ps.Array, rng: np.random.Generator | None) -> ps.Parts:
        return {"half": x / 2}

    def decode(self, parts: ps.Parts) -> ps.Array:
        return 2 * ps.part(parts, "half")

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
ps.quantizers.TopKK
ps.engines.Simulatd
ps.topologies.Treee
ps.Simulated(computes=3.0)
ps.Config(consistancy="asp")
ps.Config(consistency=3)
ps.Config(push="topk")
ps.Codec(quantizer=ps.Zlib())
ps.Config().consistency.stalenes
ps.Config().workers = 3
"""


def test_mypy_takes_every_idiom_of_the_pages_and_refuses_every_mistake(tmp_path):
    guide = [page for page in pages.GUIDE if page != "docs/own-course.md"]  # the files of a package: test_teachers.py
    programs = {f"page_{Path(page).stem}": pages.blocks(page, "python") for page in guide}
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
    namespaces = {name for name, value in vars(ps).items() if value in NAMESPACES.values()} | {"topologies"}
    assert len(namespaces) == len(NAMESPACES)
    assert listed == sorted(set(listed))
    submodules = {"cost", "lab", "testing", *namespaces}
    assert {name for name in listed if not name.startswith("__")} == {*ps.__all__, *submodules}
    assert [name for name in listed if not hasattr(ps, name)] == []


@pytest.mark.parametrize("kind", ps.kinds())
def test_the_namespace_of_a_kind_has_all_its_stages_and_lists_nothing_else_that_python_made(kind):
    namespace = NAMESPACES[kind]
    listed = dir(namespace)
    assert listed == sorted(set(namespace.__all__))
    classes = [stage_class(kind, name) for name in ps.names(kind)]
    ours = [cls for cls in classes if re.match(r"minips\.(?!lab\b)", cls.__module__)]
    assert ours
    for cls in ours:
        assert getattr(namespace, cls.__name__) is cls
        assert cls.__name__ in listed
    bases = {one for cls in ours for one in cls.__mro__ if vars(one).get("kind") == kind}
    assert {base.__name__ for base in bases} <= {*listed}
    for name in listed:
        assert getattr(ps, name, None) in (None, getattr(namespace, name))


def imports_of(code):
    """Each ``(module, name)`` that this code imports of minips, and each ``(ps, name)`` that it uses."""
    other = "import" in code and "import minips as ps" not in code  # where ps is a name of the program's own
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from ((one.name, None) for one in node.names if one.name.partition(".")[0] == "minips")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "minips":
            yield from ((node.module, one.name) for one in node.names)
        elif isinstance(node, ast.Attribute) and not other:
            *names, last = ast.unparse(node).split(".")
            if names[:1] == ["ps"] and len(names) <= 2 and all(map(str.isidentifier, names)):
                value = getattr(ps, names[1], None) if names[1:] else ps
                yield from [(value.__name__, last)] if inspect.ismodule(value) else []


def public_names(module):
    try:
        return dir(importlib.import_module(module))
    except ModuleNotFoundError:  # such as torch, without PyTorch
        lines = re.findall("^__all__.*", Path(find_spec(module).origin).read_text(), flags=re.MULTILINE)
        return re.findall(r'"(\w+)"', " ".join(lines))


def blocks_of(page):
    """The Python of a page, block by block; of sessions what is typed."""
    for language, block in re.findall(r"^```(python|pycon)\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE):
        typed = re.findall(r"^(?:>>>|\.\.\.) ?(.*)$", block, flags=re.MULTILINE)
        yield block if language == "python" else "\n".join(typed)


def programs():
    """What users read and copy, by the file that it is in."""
    for path in (ROOT / "examples").rglob("*.py"):
        yield path, path.read_text(encoding="utf-8")
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]:
        yield from ((path, block) for block in blocks_of(path.read_text(encoding="utf-8")))
    for path in (ROOT / "minips").rglob("*.py"):
        session = r"^ *>>> ((?:from|import) minips\b.*)$"
        yield from ((path, line) for line in re.findall(session, path.read_text(encoding="utf-8"), flags=re.MULTILINE))


def test_what_users_copy_imports_nothing_but_what_is_stable():
    (table,) = re.findall(
        r"^## What is stable\n(.*?)^## ", (ROOT / "CONTRIBUTING.md").read_text(), flags=re.DOTALL | re.MULTILINE
    )
    stable = {*re.findall(r"`(minips(?:\.\w+)*)`", table), *(one.__name__ for one in NAMESPACES.values())}
    assert {"minips", "minips.cost", "minips.testing", "minips.stages.quantizers"} <= stable
    seen = set()
    for path, code in programs():
        for module, name in imports_of(code):
            where = f"{path.relative_to(ROOT)}: {module}, {name}"
            assert module in stable, f"{where}: CONTRIBUTING.md does not list the module as stable"
            assert name is None or name in public_names(module), f"{where}: the name is not public"
            seen.add((path.name, module))
    assert {"nano.py", "own_quantizer.py", "recipes.md", "README.md", "alone.py"} <= {file for file, _ in seen}


FRIENDS = {"are_two", "card", "remember", "round_trip", "timed_estimate", "timed_question", "timed_sentence", "trains"}
"""What minips' own lessons are written with besides the names that a teacher may use."""


def test_minips_own_questions_and_exercises_are_written_with_the_names_that_a_teacher_may_use():
    machinery = {f"minips.lab.course.{name}" for name in ("courses", "exercises", "questions")}
    taken = set()
    for part in ("__init__", "*/questions", "*/checks"):
        for path in (ROOT / "lessons" / "minips_course").glob(f"{part}.py"):
            taken |= {name for module, name in imports_of(path.read_text(encoding="utf-8")) if module in machinery}
    assert len(taken) > 15
    assert taken - {*ps.lab.course.__all__} <= FRIENDS


@pytest.mark.parametrize(
    "line",
    ["from minips.stage import Array", "from minips.stages.quantizers.base import part", "import minips.core.codec"],
)
def test_a_private_module_is_seen(line):
    ((module, _),) = imports_of(line)
    assert module not in {"minips", *(one.__name__ for one in NAMESPACES.values())}


def test_every_type_checker_takes_every_listed_name_as_public():
    """By the rules of a package with ``py.typed``, an import counts under the same name or in ``__all__`` only."""
    tree = ast.parse((ROOT / "minips" / "__init__.py").read_text(encoding="utf-8"))
    imported = {
        one.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for one in node.names
        if one.asname == one.name
    }
    assigned = {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if hasattr(target, "id")
    }
    listed = {name for name in dir(ps) if not name.startswith("__")}
    assert listed - {*ps.__all__, *imported, *assigned} == set()


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


def test_help_has_each_field_of_a_config_in_one_of_three_groups():
    lines = inspect.getdoc(ps.Config).splitlines()
    titles = ["What is sent:", "Who waits and steps:", "The machine:"]
    assert [line for line in lines if line.endswith(":") and not line.startswith(" ")] == titles
    fields = re.findall(r"^  (\w+): ", "\n".join(lines[lines.index(titles[0]) :]), flags=re.MULTILINE)
    assert sorted(fields) == sorted(field.name for field in dataclasses.fields(ps.Config))


def test_a_field_that_no_group_names_has_its_line_too():
    @dataclasses.dataclass(frozen=True)
    class More(ps.Config):
        """A config with one more field."""

        note: str = ps.option("", "a remark")

    said = inspect.getdoc(More)
    assert said.endswith("Fields:\n  note: str = '': a remark")
    assert "The machine:\n  workers: " in said


def test_every_field_of_a_run_has_its_line():
    (run,) = ast.parse(inspect.getsource(ps.Run)).body
    told = {
        field.target.id: ast.literal_eval(line.value)
        for field, line in pairwise(run.body)
        if isinstance(field, ast.AnnAssign) and isinstance(line, ast.Expr)
    }
    assert list(told) == [field.name for field in dataclasses.fields(ps.Run)]
    assert all(told.values())


@pytest.mark.parametrize("name", ["cost", "datasets", "lab", "lab.course", "lab.plots", "sklearn", "testing", "torch"])
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
