"""What every stage shares: wrong ones of any kind, and the words with which `ps.testing.check` refuses each."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import pytest
from wrong import Wrong, refuse

import minips as ps

WRONG = Wrong()
refused = WRONG.refused


@dataclass(frozen=True)
class Mine(ps.Exact):
    """A right one."""

    name = "mine"
    size: int = ps.option(3, "a number", minimum=1)


@refused("its own repr")
class NotItsCode(Mine):
    def __repr__(self):
        return f"<a quantizer of {self.size}>"


@refused("its own repr.*|which does not equal it")
class LosesInItsRepr(Mine):
    def __repr__(self):
        return "LosesInItsRepr(size=4)"


@refused("which does not equal it")
class EqualsNothing(Mine):
    def __eq__(self, other):
        return self is other

    def __hash__(self):
        return hash(self.size)


@refused(r"to_dict\(\) has no 'name'|expected a quantizer|Expected a quantizer")
class NamesNothing(Mine):
    def to_dict(self):
        return {"size": self.size}


@refused("to_dict.* as JSON: it raised TypeError")
class GivesASet(Mine):
    def to_dict(self):
        return super().to_dict() | {"seen": {1, 2}}


@refused("comes back from JSON as")
class ForgetsItsField(Mine):
    size: int = ps.option(3, "a number", minimum=1)

    @classmethod
    def from_dict(cls, fields):
        return cls(size=5)


@refused("from_dict with an unknown field: expected ValueError, and nothing was raised")
class TakesAnyField(Mine):
    @classmethod
    def from_dict(cls, fields):
        return cls(**{key: value for key, value in fields.items() if key == "size"})


@refused("on its way to another process: it raised")
class StaysHere(Mine):
    def __reduce__(self) -> Any:
        raise TypeError("it holds a lock")


@refused("arrives in another process as")
class ArrivesAsAnother(Mine):
    def __reduce__(self) -> Any:
        return ArrivesAsAnother, (7,)


@refused("another name.* put @register above it|is not the class registered|There is no quantizer named 'another name'")
class RenamesItself(Mine):
    def __post_init__(self):
        object.__setattr__(self, "name", "another name")


@dataclass(frozen=True)
class NoDefault(Mine):
    name = "nodefault"
    needed: int = dataclasses.field(kw_only=True)


def test_a_stage_whose_fields_have_no_defaults_is_refused(registry):
    said = r"NoDefault\(\) without arguments, as build\('quantizer', 'nodefault'\) makes it: it raised TypeError"
    with pytest.raises(AssertionError, match=said):
        ps.testing.check(ps.register(NoDefault)(needed=1))


@pytest.mark.parametrize(("cls", "said"), WRONG)
def test_a_wrong_stage_is_refused(registry, cls, said):
    refuse(cls, said)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (Mine, r"Mine is a class; check an instance, such as Mine\(\)"),
        ("mine", "check takes a stage or a problem; got"),
    ],
)
def test_what_is_no_stage_is_refused(given, said):
    with pytest.raises(AssertionError, match=said):
        ps.testing.check(given)


def test_a_right_one_is_accepted(registry):
    ps.testing.check(ps.register(Mine)())
