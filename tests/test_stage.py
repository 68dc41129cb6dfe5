"""Values check themselves, print as code and go to JSON and back; the registry names what it knows."""

import dataclasses
import json
from dataclasses import dataclass
from typing import Optional

import numpy as np
import pytest

import minips as ps
from minips import stage
from minips.stage import Value, build, is_finite, kinds, names, option, stage_class
from minips.words import BOUNDS, suggestion


@dataclass(frozen=True)
class Everything(Value):
    count: int = option(3, "a count", minimum=1, maximum=8)
    share: float = option(0.5, "a share", above=0, maximum=1)
    kept: float = option(0.9, "a momentum", minimum=0, below=1)
    mode: str = option("a", "a mode", choices=["a", "b"])
    flag: bool = option(False, "a flag")
    maybe: float | None = option(None, "a number or nothing", minimum=0)
    table: dict[int, float] = option(dict, "numbers by number")
    quantizer: ps.Quantizer = option(ps.Exact(), "a stage")
    link: ps.Link | None = option(None, "a value or nothing")


@dataclass(frozen=True)
class Nested(Value):
    inner: Optional["Nested"] = option(None, "one of its own kind")


def test_an_unknown_field_of_a_value_that_holds_its_own_kind_is_refused():
    with pytest.raises(TypeError, match=r"Nested has no field 'outer'"):
        Nested(outer=None)


def test_fields_equal_values_equal():
    assert Everything(count=4) == Everything(count=4) != Everything(count=5)
    assert ps.TopK(fraction=0.5) != ps.Uniform()


def test_repr_is_the_code():
    full = Everything(count=4, maybe=1.0, table={1: 2.0}, quantizer=ps.TopK(fraction=0.1), link=ps.Link(latency_s=0.0))
    names_known = {"Everything": Everything, "TopK": ps.TopK, "Link": ps.Link}
    assert eval(repr(full), names_known) == full


@dataclass(frozen=True, repr=False)
class Brief(Value):
    count: int = option(3, "a count")
    maybe: float | None = option(None, "a number or nothing")
    table: dict[int, float] = option(dict, "numbers by number")
    quantizer: ps.Quantizer = option(ps.Exact(), "a stage")


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (Brief(), "Brief()"),
        (Brief(count=3, table={}), "Brief()"),
        (Brief(count=4, table={1: 2.0}), "Brief(count=4, table={1: 2.0})"),
        (Brief(quantizer="topk", maybe=0), "Brief(maybe=0.0, quantizer=TopK(fraction=0.01))"),
    ],
)
def test_a_brief_repr_has_what_differs_and_is_still_the_code(value, code):
    assert repr(value) == code
    assert eval(code, {"Brief": Brief, "TopK": ps.TopK}) == value


def test_json_brings_back_numbers_as_keys_and_stages_and_values():
    full = Everything(table={1: 2.5, 7: 0.25}, quantizer=ps.Uniform(bits=3), link=ps.Link(bandwidth_bps=1e6))
    plain = json.loads(json.dumps(full.to_dict()))
    assert plain["table"] == {"1": 2.5, "7": 0.25}
    assert plain["quantizer"] == {"name": "uniform", "bits": 3, "block": 0}
    assert Everything.from_dict(plain) == full


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"count": 0}, r"Everything\.count must be at least 1 and at most 8; got 0\."),
        ({"count": 9}, r"at most 8; got 9\."),
        ({"count": 2.5}, r"Everything\.count takes an int, got 2\.5\."),
        ({"count": True}, r"takes an int, got True"),
        ({"count": "many"}, r"takes an int, got 'many'"),
        ({"share": 0}, r"Everything\.share must be above 0 and at most 1; got 0\.0\."),
        ({"share": float("nan")}, r"Everything\.share must be"),
        ({"share": True}, r"takes a float, got True"),
        ({"mode": "c"}, r"Everything\.mode takes one of 'a', 'b'; got 'c'\."),
        ({"flag": 1}, r"takes a bool, got 1"),
        ({"maybe": -1.0}, r"must be at least 0; got -1\.0"),
        ({"quantizer": "topkk"}, r"no quantizer named 'topkk'.*Did you mean topk\?"),
        ({"quantizer": ps.Zlib()}, r"Expected a quantizer, got the compressor Zlib\(level=1\)"),
        ({"table": "many"}, r"Everything\.table takes a dict, got 'many'\."),
        ({"link": {"latency": 1}}, r"Link has no field 'latency'\. .*Did you mean latency_s\?"),
    ],
)
def test_wrong_fields_are_sentences(fields, said):
    with pytest.raises(ValueError, match=said):
        Everything.from_dict(fields)


@pytest.mark.parametrize(
    ("cls", "field", "said"),
    [
        (Everything, "counts", r"^Everything has no field 'counts'\. Known: count, .*\. Did you mean count\?$"),
        (Everything, "fraction", r"'fraction'; it is a field of the quantizer: quantizer=ps\.TopK\(fraction=…\)\.$"),
        (Everything, "latency_s", r"'latency_s'; it is a field of the link: link=ps\.Link\(latency_s=…\)\.$"),
        (ps.Config, "lr", r"^Config has no field 'lr'; it is a field of the optimizer: optimizer=ps\.SGD\(lr=…\)\.$"),
        (ps.Config, "quantizer", r"it is a field of the codec: push=ps\.Codec\(quantizer=…\)\.$"),
        (ps.Config, "bits", r"of the quantizer: push=ps\.Codec\(quantizer=ps\.Uniform\(bits=…\)\)\.$"),
        (ps.Config, "staleness", r"of the consistency: consistency=ps\.SSP\(staleness=…\)\.$"),
        (ps.Codec, "level", r"of the compressor: compressor=ps\.Zlib\(level=…\)\.$"),
        (ps.Simulated, "uplink_bps", r"of the topology: topology=ps\.TwoRacks\(uplink_bps=…\)\.$"),
        (ps.SGD, "quantizer", r"^SGD has no field 'quantizer'\. Known: lr, momentum, .*schedule\.$"),
        (ps.Sign, "bits", r"^Sign has no field 'bits'\.$"),
    ],
)
def test_an_unknown_field_is_refused_with_the_place_where_it_lives(cls, field, said):
    ps.cost.TwoRacks()
    with pytest.raises(TypeError, match=said):  # as any call with an unknown keyword
        cls(**{field: 1})
    with pytest.raises(ValueError, match=said):
        cls.from_dict({field: 1})


def test_replace_refuses_an_unknown_field_too():
    with pytest.raises(TypeError, match=r"Did you mean workers\?"):
        dataclasses.replace(ps.Config(), worker=2)


def test_a_field_may_be_of_the_class_that_it_is_in():
    @dataclass(frozen=True)
    class Chain(Value):
        """A link."""

        next: "Chain | None" = option(None, "the rest")

    assert Chain.__doc__.splitlines()[-1].endswith("None: the rest")


@pytest.mark.parametrize(
    ("fields", "value"),
    [
        ({"count": "5"}, 5),
        ({"count": np.int32(5)}, 5),
        ({"share": 1}, 1.0),
        ({"share": np.float32(0.5)}, 0.5),
        ({"maybe": 2}, 2.0),
        ({"maybe": None}, None),
        ({"table": {"3": 1}}, {3: 1.0}),
        ({"quantizer": "sign"}, ps.Sign()),
        ({"quantizer": {"name": "uniform", "bits": 2}}, ps.Uniform(bits=2)),
    ],
)
def test_what_json_and_a_command_line_cannot_say_exactly_is_mended(fields, value):
    (name,) = fields
    got = getattr(Everything.from_dict(fields), name)
    assert got == value
    assert type(got) is type(value)


def test_a_value_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ps.Uniform().bits = 4


def test_build_takes_a_name_a_dict_or_a_stage():
    assert build("quantizer", "topk") == ps.TopK()
    assert build("quantizer", {"name": "topk", "fraction": 0.5}) == ps.TopK(fraction=0.5)
    assert build("quantizer", ps.Sign()) == ps.Sign()


@pytest.mark.parametrize(
    ("kind", "spec", "said"),
    [
        ("quantiser", "topk", r"no kind of stage named 'quantiser'.*Did you mean quantizer\?"),
        ("quantizer", "top-k", r"no quantizer named 'top-k'\. Known: exact, .*Did you mean topk\?"),
        ("quantizer", {"fraction": 0.5}, r"Expected a quantizer, its name, or a dict with its name under 'name'"),
        ("quantizer", {"name": "topk", "fractions": 0.5}, r"TopK has no field 'fractions'\. .*Did you mean fraction\?"),
        ("quantizer", {"name": "sign", "bits": 1}, r"Sign has no field 'bits'\.$"),
        ("quantizer", "topkk:fraction=0.5", r"no quantizer named 'topkk'\. Known: exact, .*Did you mean topk\?"),
        ("quantizer", "topk:fractions=0.5", r"TopK has no field 'fractions'\. .*Did you mean fraction\?"),
        ("optimizer", "sgd:0.5", r"Expected field=value, field=value, …, .*; got '0\.5'"),
        ("engine", 5, r"Expected an engine, its name, or a dict"),
        ("quantizer", None, r"Expected a quantizer, its name, or a dict"),
        ("memory", ps.TopK(), r"Expected a memory, got the quantizer TopK\(fraction=0\.01\)"),
    ],
)
def test_build_names_the_nearest(kind, spec, said):
    with pytest.raises(ValueError, match=said):
        build(kind, spec)


def test_a_cell_that_is_run_again_replaces_its_stage(registry):
    def cell():
        @ps.register
        @dataclass(frozen=True)
        class Mine(ps.Exact):
            name = "mine"

        return Mine

    first, second = cell(), cell()
    assert first is not second
    assert stage_class("quantizer", "mine") is second
    assert names("quantizer").count("mine") == 1


def test_another_class_under_a_taken_name_is_an_error(registry):
    with pytest.raises(
        ValueError, match=r"The quantizer name 'topk' belongs to minips\.stages\.quantizers\.sparse\.TopK"
    ):

        @ps.register
        @dataclass(frozen=True)
        class Impostor(ps.Exact):
            name = "topk"

    assert stage_class("quantizer", "topk") is ps.TopK


def test_register_says_what_is_missing(registry):
    with pytest.raises(ValueError, match=r"give it a class attribute name = '…'"):
        ps.register(type("Nameless", (ps.Quantizer,), {}))
    with pytest.raises(ValueError, match=r"put @dataclass\(frozen=True\) between"):
        ps.register(type("Plain", (ps.Stage,), {"kind": "quantizer", "name": "plain"}))


def test_a_stage_without_its_library_is_listed_and_says_which_extra_installs_it(registry):
    @ps.register
    @dataclass(frozen=True)
    class Exotic(ps.Exact):
        name = "exotic"
        requires = ("no_such_module", "json")
        extra = "codecs"

    assert "exotic" in names("quantizer")
    assert stage.missing(Exotic) == ["no_such_module"]
    with pytest.raises(ModuleNotFoundError, match=r'exotic needs no_such_module.*pip install "minips\[codecs\]"'):
        build("quantizer", "exotic")


@pytest.mark.parametrize(
    "cls", [stage_class(kind, name) for kind in kinds() for name in names(kind)], ids=lambda c: c.__name__
)
def test_a_widget_finds_what_it_needs(cls):
    assert (cls.__doc__ or "").strip()
    assert cls.name == cls.name.lower()
    for field in dataclasses.fields(cls):
        assert {"help", "choices", *BOUNDS, "step", "unit"} <= field.metadata.keys(), field.name
        assert field.metadata["help"]


def test_nearest_without_a_near_one():
    assert suggestion("zzz", ["exact", "topk"]) == "Known: exact, topk."


@pytest.mark.parametrize(("kind", "name"), [(5, 5), ("quantizer", 5), ([], "topk"), ("quantizer", None)], ids=repr)
def test_what_is_no_name_of_a_stage_is_refused_in_a_sentence(kind, name):
    with pytest.raises(ValueError, match=r"There is no (kind of stage|quantizer) named .*Known: "):
        stage_class(kind, name)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_is_finite_sees_through_a_sum_that_overflows(dtype):
    largest = np.finfo(dtype).max
    assert is_finite(np.array([largest, largest, -1], dtype))
    assert is_finite(np.zeros((0, 3), dtype))
    assert is_finite(np.array(1, dtype))
    for bad in (np.nan, np.inf, -np.inf):
        assert not is_finite(np.array([1, bad, 2], dtype))
    assert not is_finite(np.array([np.inf, -np.inf], dtype))


@pytest.mark.parametrize(
    ("kind", "text", "stage"),
    [
        ("quantizer", "topk", ps.TopK()),
        ("quantizer", "topk:fraction=0.5", ps.TopK(0.5)),
        ("quantizer", "topk(fraction=0.5)", ps.TopK(0.5)),
        ("schedule", "warmup(steps=2, then=cosine())", ps.Warmup(2, ps.Cosine())),
        ("optimizer", "sgd:schedule=cosine", ps.SGD(schedule=ps.Cosine())),
        ("optimizer", "sgd:lr=0.3, schedule=cosine(steps=20)", ps.SGD(lr=0.3, schedule=ps.Cosine(20))),
        ("optimizer", "sgd:schedule=cosine(),lr=0.3", ps.SGD(lr=0.3, schedule=ps.Cosine())),
        ("schedule", "warmup:steps=2,then=warmup(then=cosine(steps=9))", ps.Warmup(2, ps.Warmup(then=ps.Cosine(9)))),
        ("transport", "tcp:certificate=host:7", ps.Tcp(certificate="host:7")),
    ],
)
def test_a_stage_is_read_from_text_with_stages_within(kind, text, stage):
    assert build(kind, text) == stage


@pytest.mark.parametrize(
    "fields",
    [
        "",
        " ",
        "3",
        "lr",
        "lr=",
        "lr=1+",
        "lr=1,lr=2",
        "name=adam",
        "schedule=cosine:steps=20",
        "schedule=cosine(20)",
        "schedule=cosine(steps=2,steps=3)",
        "schedule=ps.cosine(steps=2)",
        "lr=1)+fields(lr=2",
        "lr=1),(2",
        "lr=open('x').read()",
        "lr=[1](2)",
        "lr=" + "(" * 1000,
        "lr=" + "-" * 5_000 + "1",
    ],
)
def test_what_is_no_fields_is_refused_in_a_sentence(fields):
    with pytest.raises(ValueError, match=r"Expected field=value, .* name\(field=value, …\) for a nested stage; got "):
        build("optimizer", f"sgd:{fields}")


@pytest.mark.parametrize("kind", kinds())
def test_every_name_can_be_typed_within_another_stage(kind):
    assert all(name.isidentifier() for name in names(kind))


def test_a_bound_below_which_a_value_stays_is_told_and_kept():
    assert Everything(kept=0.999).kept == 0.999
    for wrong in (1.0, 1.5, -0.1):
        with pytest.raises(ValueError, match=rf"Everything.kept must be at least 0 and below 1; got {wrong}"):
            Everything(kept=wrong)

    @dataclass(frozen=True)
    class Heavy(Value):
        """A ball."""

        kept: float = option(0.9, "a momentum", minimum=0, below=1)

    assert "kept: float = 0.9, at least 0, below 1: a momentum" in Heavy.__doc__
