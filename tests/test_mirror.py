"""An answer in a sandbox, and its stand-in here: what arrives, what stays, and what cannot be done to a check."""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_exercises import BROKEN, RIGHT, expression, program, solution_of

import minips as ps
from minips.lab.course import EXERCISES, exercises, mirror
from minips.lab.course.exercises import Refused, asks, refuse_if, unaided
from minips.lab.course.running import LIMITS, _from_outside, visible
from minips.sandbox import Limits, Sandbox, SandboxError
from minips.stage import Stage
from minips.testing.base import same_bits

pytestmark = pytest.mark.outside  # one sandbox serves all of them
MODULES = ["minips.lab.course.courses:installed", "minips.lab.course.mirror.inside"]
ANSWERS = """
import pickle
from dataclasses import dataclass

import numpy as np

import minips as ps
from minips.lab.course.mirror.inside import request
from minips.stages.quantizers.base import part

kept = []


def double(x):
    return 2 * x


def doubled_in_place(x):
    x *= 2


def keep(x):
    kept.append(x)


def first_kept():
    return kept[0]


def changes(box, key):
    box[key] = "changed"
    return box


def calls(function, *arguments):
    return function(*arguments)


def catches(function):
    try:
        function()
    except ConnectionError as error:
        return error


def counts(items):
    for number, item in enumerate(items):
        yield number, item


def a_view(x):
    return x[1:]


def private(function):
    return function.__globals__


def uses_minips(x):
    return ps.Sign().encode(x, None)


class Total:
    rate = 0.5

    def __init__(self, start=0):
        self.value = start
        self.arrays = {"w": np.zeros(3)}

    def add(self, by):
        self.value += by
        return self.value

    @staticmethod
    def negative(x):
        return -x

    @property
    def half(self):
        return self.value / 2

    def fails(self):
        raise ValueError("no")


@ps.register
@dataclass(frozen=True)
class Halves(ps.Quantizer):
    name = "mirrored-halves"
    by: float = 2.0

    def encode(self, x, rng):
        return {"x": np.asarray(x / self.by, x.dtype), "by": np.asarray(self.by, x.dtype)}

    def decode(self, parts):
        x, by = (part(parts, name) for name in ("x", "by"))
        return np.asarray(x * by, x.dtype)


class Always:
    def __eq__(self, other):
        return True

    def __bool__(self):
        return True

    def __float__(self):
        return 1.0

    def __array__(self, *options):
        return np.ones(3)


class Lying(np.ndarray):
    def max(self, *options, **more):
        return 0.0

    def __array_function__(self, function, types, arguments, options):
        return True


def lying():
    return np.arange(3.0).view(Lying)


class Text(str):
    def __eq__(self, other):
        return True

    __hash__ = str.__hash__
"""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(Limits(answer_s=30), "The answer", modules=MODULES, shows=visible()) as made:
        yield made


@pytest.fixture
def outside(sandbox: Sandbox) -> Iterator[mirror.Outside]:
    sandbox.begin(ANSWERS, "answers.py")
    with mirror.Outside(sandbox) as made:
        yield made


VALUES = [
    None,
    True,
    -(2**80),
    1.5,
    "text",
    b"bytes",
    3 + 4j,
    (1, ("two", None)),
    frozenset({1, 2}),
    slice(1, None, 2),
    range(3, 9, 2),
    np.float32(1.5),
    np.dtype(">i4"),
    [1, [2, {"three": {4}}]],
    bytearray(b"abc"),
    ps.Config(workers=3, push=ps.Codec(ps.Sign(), ps.ErrorFeedback())),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_goes_there_and_comes_back(outside: mirror.Outside, value: Any) -> None:
    back = outside.answer("calls")(outside.answer("lambda x: x"), value)
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    "x",
    [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6, dtype=">i2").reshape(2, 3)),
        np.arange(12)[::-2],
        np.broadcast_to(np.float32(2), (2, 2)),
        np.zeros((0, 3)),
        np.array(7.5),
        np.array([True, False]),
        np.array([1 + 2j]),
    ],
    ids=["c", "fortran", "strided", "broadcast", "empty", "scalar", "bool", "complex"],
)
def test_an_array_arrives_with_its_bits_and_its_layout(outside: mirror.Outside, x: np.ndarray) -> None:
    strides = outside.answer("lambda x: (x.strides, x.flags.writeable)")(x)
    assert strides == (x.strides, x.flags.writeable)
    assert outside.answer("lambda x: x")(x) is x
    assert same_bits(outside.answer("lambda x: x.copy()")(x), x)


def test_what_one_side_writes_into_an_array_the_other_sees(outside: mirror.Outside) -> None:
    x = np.arange(3.0)
    outside.answer("doubled_in_place")(x)
    assert x.tolist() == [0, 2, 4]
    outside.answer("keep")(x)
    x[...] = np.nan  # as a server does with the memory of a message
    assert np.isnan(outside.answer("lambda: float(kept[0].sum())")())
    kept = outside.answer("first_kept")()
    assert kept is x
    view = outside.answer("a_view")(x)
    assert np.shares_memory(view, x)
    outside.answer("doubled_in_place")(view[...])
    made = outside.answer("lambda: kept.append(np.zeros(2)) or kept[-1]")()
    outside.answer("lambda: kept[-1].__setitem__(0, 5)")()
    assert made.tolist() == [5, 0]


def test_a_container_is_changed_in_place(outside: mirror.Outside) -> None:
    for box, key in (({"a": 1}, "b"), ([1, 2], 0)):
        inner: dict[str, Any] = {"box": box}
        back = outside.answer("changes")(box, key)
        assert back is box
        assert box[key] == "changed"
        outside.answer("lambda inner: inner['box'].clear()")(inner)
        assert not box
        assert inner["box"] is box


def test_a_generator_draws_on_where_the_other_side_stopped(outside: mirror.Outside) -> None:
    rng, twin = np.random.default_rng(7), np.random.default_rng(7)
    assert outside.answer("lambda rng: rng.random()")(rng) == twin.random()
    assert rng.random() == twin.random()


def test_functions_of_the_check_are_called_and_raise_the_same_error(outside: mirror.Outside) -> None:
    lost = ConnectionResetError("gone")

    def fails() -> None:
        raise lost

    assert outside.answer("calls")(lambda a, b: a + b, 2, 3) == 5
    assert outside.answer("catches")(fails) is lost
    with pytest.raises(ConnectionResetError) as caught:
        outside.answer("calls")(fails)
    assert caught.value is lost
    assert [*outside.answer("counts")(iter("ab"))] == [(0, "a"), (1, "b")]


def test_a_check_reaches_the_caller_of_its_function(outside: mirror.Outside) -> None:
    def check() -> None:
        raise Refused("it called too often.")

    with pytest.raises(Refused, match="too often"):
        outside.answer("calls")(check)


def test_a_private_name_of_the_check_stays_hidden(outside: mirror.Outside) -> None:
    with pytest.raises(AttributeError):
        outside.answer("private")(lambda: None)
    with pytest.raises(AttributeError):
        outside.answer("lambda thing: request('get', thing, '__class__')")(object())


def test_a_class_has_instances_members_and_a_signature(outside: mirror.Outside) -> None:
    cls = outside.answer("Total")
    assert isinstance(cls, type)
    assert {"add", "negative", "half"} <= {*vars(cls)}
    assert cls.rate == 0.5
    assert cls.negative(3) == -3
    total = cls(start=4)
    assert isinstance(total, cls)
    assert total.add(2) == total.value == 6
    assert total.half == 3
    assert vars(total)["value"] == 6
    assert same_bits(total.arrays["w"], np.zeros(3))
    with pytest.raises(ValueError, match="no") as caught:
        total.fails()
    assert exercises.where(caught.value) == ""  # the sandbox knows no lines of this text
    faster = type("Faster", (cls,), {"rate": 2.0})(1)
    assert outside.answer("lambda total: total.rate")(faster) == 2.0


def test_a_stage_of_ones_own_is_one_here_and_trains(outside: mirror.Outside) -> None:
    mine = outside.answer("Halves(by=4.0)")
    assert isinstance(mine, ps.Quantizer)
    assert not type(mine).__module__.startswith("minips")
    assert mine.by == 4.0
    assert repr(mine) == "Halves(by=4.0)"
    assert mine == type(mine)(by=4.0) != type(mine)(by=2.0)
    ps.testing.check(mine)
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=60, features=3, classes=2))
    config = ps.Config(workers=2, steps=3, push=ps.Codec(mine))
    run = ps.train(problem, config, engine=ps.Threads())
    assert same_bits(run.params["W"], ps.train(problem, ps.Config(workers=2, steps=3)).params["W"])


def test_its_registration_ends_with_the_mirror(sandbox: Sandbox) -> None:
    sandbox.begin(ANSWERS, "answers.py")
    with mirror.Outside(sandbox) as outside:
        outside.answer("Halves")
        assert "mirrored-halves" in ps.stage.names("quantizer")
    assert "mirrored-halves" not in ps.stage.names("quantizer")


@pytest.mark.parametrize("answer", ["Always()", "Text('wrong')", "lying()", "1 + 0j"])
def test_what_would_judge_itself_is_judged(outside: mirror.Outside, answer: str) -> None:
    got = outside.answer(answer)
    assert not np.array_equal(got, np.ones(3))
    assert not (isinstance(got, str) and got == "right")
    with pytest.raises((Refused, TypeError, ValueError)):
        assert exercises.number(got) == 1.0
    if isinstance(got, np.ndarray):
        assert type(got) is np.ndarray
        assert got.max() == 2


def test_warnings_and_numpys_errors_are_those_of_the_check(outside: mirror.Outside) -> None:
    divided = outside.answer("lambda x: np.divide(1, x)")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning):
            divided(np.zeros(2))
        warnings.simplefilter("ignore")
        assert np.isinf(divided(np.zeros(2))).all()
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        divided(np.zeros(2))


def test_unaided_looks_at_the_answer_where_it_runs(outside: mirror.Outside) -> None:
    x = np.ones(4, "f4")
    assert same_bits(unaided(outside.answer("double"), x), 2 * x)
    with pytest.raises(Refused, match="calls minips' own"):
        unaided(outside.answer("uses_minips"), x)
    assert unaided(outside.answer("Total()").add, 2) == 2


CHEATS = [
    "from minips.lab.course import exercises\nexercises.refuse_if = lambda *_: None",
    "np.array_equal = lambda *_: True",
    "from minips.lab.course import exercises\nexercises.EXERCISES.clear()",
    "from minips.lab.course.mirror import inside\ninside.ACTS['call'] = lambda *_: inside.HERE",
    "from minips.lab.course.mirror import inside\ninside.act = lambda *_: ['done', {}]",
    "from minips import sandbox\nsandbox._PIPES and sandbox._write_all(sandbox._pack(['answer', ['done', True]]))",
    "import os\nos._exit(0)",
    "import atexit, os\natexit.register(os._exit, 0)",
    "for descriptor in range(3, 64):\n try: __import__('os').write(descriptor, b'done')\n except OSError: pass",
]


@pytest.mark.parametrize(
    "cheat", [pytest.param(cheat, marks=pytest.mark.soak if n > 2 else ()) for n, cheat in enumerate(CHEATS)]
)
def test_an_answer_cannot_change_its_check(sandbox: Sandbox, registry: None, cheat: str) -> None:
    asked = exercises.Exercise("mirror.1", "", (), lambda f, rng: str(refuse_if(not np.array_equal(f(3), 9), "no.")))
    wrong = "import numpy as np\ndef square(x):\n    return 2 * x\n"
    with Sandbox(Limits(answer_s=5), "The answer", modules=MODULES, shows=visible()) as box:
        try:
            box.begin(wrong + cheat, "answers.py")
            with mirror.Outside(box, seconds=10) as outside:
                verdict = exercises.judge(asked, outside.answer("square"), np.random.default_rng(0))
                assert not verdict or outside.error
        except SandboxError:
            pass
    assert not np.array_equal([1], [2])


def test_beside_is_kept_with_the_exercise(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[str, Any] = {}
    monkeypatch.setattr(exercises, "add", lambda what, there, key, one: known.update({key: one}))

    @asks("mirror.2", "A hint.", beside=True)
    def timed(answer: Any, rng: np.random.Generator) -> str:
        """Be quick."""
        return ""

    assert known["mirror.2"].beside
    assert issubclass(ps.Quantizer, Stage)


def forged(do: str = "0", **parts: str) -> str:
    """Return an answer that replaces what its process says of it by a message of its own."""
    message = {"arrays": "[]", "sync": "[]", "boxes": "[]", "drop": "[]", "do": do, **parts}
    text = ", ".join(f"{name!r}: {value}" for name, value in message.items())
    return f"lambda: sys.modules['minips.lab.course.mirror.inside'].HERE.__dict__.update(message=lambda do: {{{text}}})"


VALUE = "['tuple', ['value', {0}]]"
RAISE = "['tuple', ['raise', {0}]]"


@pytest.mark.parametrize(
    "parts",
    [
        {"do": RAISE.format("['named', 'minips.testing.faults', 'Killed']")},
        {"do": RAISE.format("['error', 1, [['builtins', 'ValueError']], [['range', 0, 1, 1]], '', '']")},
        {
            "do": VALUE.format("0"),
            "arrays": "[[n, '<U4096', [2**16], [0], 0, bytes(2**15), True] for n in range(1, 9, 2)]",
        },
        {"do": "['tuple', ['value']]"},
    ],
    ids=["no Exception", "an error of no plain values", "memory", "nothing"],
)
def test_a_forged_message_is_none(outside: mirror.Outside, parts: dict[str, str]) -> None:
    outside.answer("exec('import sys')")
    with pytest.raises(SandboxError, match="not a message"):
        outside.answer(f"({forged(**parts)})()")
    assert outside.error


def test_only_what_the_check_hands_over_can_be_used(outside: mirror.Outside, tmp_path: Path) -> None:
    x, file = np.zeros(3), tmp_path / "written"
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=20, features=3, classes=2))
    for thing, name in ((x, "tofile"), (problem, "loss"), ("text", "format"), (ps.Config(), "to_dict")):
        with pytest.raises(mirror.MirrorError, match="handed over"):
            outside.answer(f"lambda thing, file: request('get', thing, {name!r})(file)")(thing, str(file))
    assert not file.exists()
    with pytest.raises(mirror.MirrorError, match="handed over"):
        outside.answer("lambda: request('call', ps.Config, (), {})")()


@pytest.mark.parametrize("name", ["gi_frame", "gi_code"])
def test_a_generator_of_the_check_does_not_lead_to_its_names(outside: mirror.Outside, name: str) -> None:
    generator = (one for one in range(3))
    with pytest.raises(AttributeError, match="not public"):
        outside.answer(f"lambda items: items.{name}")(generator)
    assert outside.answer("lambda items: list(items)")(generator) == [0, 1, 2]


def test_a_generator_of_the_check_keeps_drawing(outside: mirror.Outside) -> None:
    state = "{**rng.bit_generator.state, 'state': {'state': 0, 'inc': 0}}"
    rng = np.random.default_rng(7)
    with pytest.raises(SandboxError, match="draws other numbers"):
        outside.answer(f"lambda rng: setattr(rng.bit_generator, 'state', {state})")(rng)
    assert rng.random() == np.random.default_rng(7).random()


def test_an_answer_does_not_end_a_loop_of_its_check(outside: mirror.Outside) -> None:
    stops = outside.answer("lambda x: next(iter(()))")
    with pytest.raises(RuntimeError, match="StopIteration"):
        assert all(map(stops, range(3)))


def test_an_answer_whose_text_fails_blocks_its_mark(sandbox: Sandbox) -> None:
    asked = exercises.Exercise("mirror.3", "", (), lambda made, rng: str({}[made]))  # the KeyError's text is the repr
    sandbox.begin("class Made:\n def __repr__(self):\n  raise ValueError", "answers.py")
    mark, words = _from_outside(asked, sandbox, "Made()", 0, 20)
    assert mark == "blocked"
    assert "ValueError" in words


APART = [key for key, asked in EXERCISES.items() if not asked.beside]
"""The exercises whose checks are applied from outside."""


def judged(box: Sandbox, key: str, one: Any, seed: int) -> exercises.Verdict:
    """The verdict on an answer in a sandbox, from outside."""
    box.begin(program(key, one), "answer.py")
    with mirror.Outside(box, seconds=120) as outside:
        verdict = exercises.judge(EXERCISES[key], outside.answer(expression(key)), np.random.default_rng(seed))
        assert outside.error is None, outside.error
    return verdict


@pytest.fixture(scope="module")
def box() -> Iterator[Sandbox]:
    limits = replace(LIMITS, cpu_s=300)
    modules = [*MODULES, "minips.lab.course.running:prepare"]
    with Sandbox(limits, modules=modules, shows=visible(), environment={"MINIPS_AUTOPLAY": "1"}) as made:
        yield made


@pytest.mark.soak
@pytest.mark.parametrize("key", APART)
def test_a_lessons_solution_is_accepted_from_outside(box: Sandbox, registry: None, key: str) -> None:
    verdict = judged(box, key, solution_of(key)[1], 0)
    assert verdict, verdict


@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("key", APART)
def test_from_outside_the_verdicts_are_the_same(box: Sandbox, registry: None, key: str) -> None:
    for answers, passes in ((RIGHT[key], True), (BROKEN[key], False)):
        for what, one in answers.items():
            assert bool(judged(box, key, one, 0)) is passes, what
