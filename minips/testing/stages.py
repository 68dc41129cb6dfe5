"""The contract of a stage: a value that prints as the code that makes it, converts to JSON and back, and pickles."""

import dataclasses
import json
from typing import Any, cast

from minips.engines.shipping import ship, unship
from minips.stage import Stage, Value, build, kinds, names, stage_class
from minips.testing.base import doing, refusing, require


def check_stage(stage: Stage) -> None:
    """Check the contract that every stage must satisfy. The AssertionError names the stage and the fault."""
    cls = type(stage)
    require(isinstance(stage, Stage), f"{stage!r} is not a stage: derive its class from Quantizer or another base.")
    with doing(f"{cls.__name__}() without arguments, as build({stage.kind!r}, {stage.name!r}) makes it"):
        check_value(cls())
    check_value(stage)
    _is_registered(stage)
    _goes_to_json_and_back(stage)
    _refuses_an_unknown_field(stage)
    _travels(stage)


def check_value(value: Value) -> None:
    """Check that a value is a frozen dataclass whose repr is the code that makes it."""
    cls = type(value)
    frozen = dataclasses.is_dataclass(cls) and cast(Any, cls).__dataclass_params__.frozen
    require(frozen, f"{cls.__name__} is not frozen: put @dataclass(frozen=True) above the class.")
    code = repr(value).replace(cls.__qualname__, cls.__name__)  # a local class is known by its last name
    with doing(f"eval({code}), its own repr"):
        again = eval(code, _known() | {cls.__name__: cls})
    require(again == value, f"eval({code}) is {again!r}, which does not equal it.")


def _is_registered(stage: Stage) -> None:
    cls = type(stage)
    known = stage.name in names(stage.kind) and stage_class(stage.kind, stage.name) is cls
    what = f"the {stage.kind} {stage.name!r}"
    require(known, f"{cls.__name__} is not the class registered as {what}: put @register above it.")


def _goes_to_json_and_back(stage: Stage) -> None:
    fields = stage.to_dict()
    with doing(f"{stage!r}, to_dict() {fields} as JSON"):
        plain = json.loads(json.dumps(fields))
        built = build(stage.kind, plain)
        again = type(stage).from_dict({key: value for key, value in plain.items() if key != "name"})
    require(plain.get("name") == stage.name, f"{stage!r}: to_dict() has no 'name': {stage.name!r}.")
    require(built == stage, f"{stage!r} comes back from JSON as {built!r}.")
    require(again == stage, f"{stage!r} comes back from from_dict as {again!r}.")


def _refuses_an_unknown_field(stage: Stage) -> None:
    for field in [field.name for field in dataclasses.fields(cast(Any, stage))] or [""]:
        wrong = f"{field}x"
        with refusing(f"{type(stage).__name__}.from_dict with an unknown field", ValueError, mentions=wrong):
            type(stage).from_dict({wrong: 1})


def _travels(stage: Stage) -> None:
    with doing(f"{stage!r} on its way to another process"):
        arrived = unship(ship(stage))
        same = arrived.to_dict() == stage.to_dict() and repr(arrived) == repr(stage)
    require(same, f"{stage!r} arrives in another process as {arrived!r}.")


def _known() -> dict[str, type[Stage]]:
    """Return the registered classes by name, for the code in a repr."""
    classes = [stage_class(kind, name) for kind in kinds() for name in names(kind)]
    return {cls.__name__: cls for cls in classes}
