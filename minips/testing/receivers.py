"""Receivers for the checks: stages of the sender's class with other fields, since messages do not contain fields."""

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from minips.stage import Stage, kinds, names

S = TypeVar("S", bound=Stage)

ENOUGH = 8
"""The maximum number of values tried for each field."""
OTHERS = (1, 0.5, True, "another", (1,), ("another",))
"""Values to try instead of None, or if the field has no value."""


class Receiver(NamedTuple):
    """A stage, and a description of its field that differs from the default, if any."""

    stage: Any
    fields: str


def receivers(stage: Stage) -> list[Receiver]:
    """Return the stage with default fields, and with each field changed to up to ``ENOUGH`` other values."""
    cls = type(stage)
    default = cls()
    found = [Receiver(default, "default fields")]
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        changed = []
        for value in other_values(getattr(default, field.name), field.metadata):
            with suppress(Exception):  # the field does not accept the value
                other = cls(**{field.name: value})
                if other != default and other not in changed:
                    changed.append(other)
        found += [Receiver(other, f"another {field.name!r}") for other in changed[:ENOUGH]]
    return found


def other_values(value: Any, limits: Mapping[str, Any]) -> Iterator[Any]:
    """Yield other values for a field, chosen by its type and metadata; some may be invalid."""
    yield from (limits[end] for end in ("minimum", "maximum") if limits.get(end) is not None)
    if choices := limits.get("choices"):
        yield from choices
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (2 * value, value // 2, value + 1, value - 1)
    elif isinstance(value, float):
        yield from (2 * value, value / 2, value + 1, value - 1)
    elif isinstance(value, str):
        yield from (f"{value}2", "")
    elif isinstance(value, tuple):
        yield from (value[::-1], value[:1], 2 * value)
        firsts = other_values(value[0], {}) if value else OTHERS
        yield from ((first, *value[1:]) for first in firsts)
    elif isinstance(value, Mapping):
        yield from ({}, *({"another": one} for one in (*value.values(), *OTHERS)))
    elif isinstance(value, Stage):
        yield from names(value.kind)
    elif value is None:
        yield from OTHERS
        yield from (name for kind in kinds() for name in names(kind))  # a field for a stage accepts its name
