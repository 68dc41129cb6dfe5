"""The common base of all swappable parts.

A **Value** is a frozen dataclass whose fields state what they accept: limits, choices, a unit, one line of help. It
checks its fields when it is created, prints as the code that creates it, and converts to JSON and back.

A **Stage** is a value with a ``kind`` (quantizer, serializer, …) and a ``name``. ``@register`` lists its class under
both, ``names`` returns the names of a kind, and ``build`` creates one from a name, a name and fields, or a dict. The
contract of each kind is in ``minips.stages``; this module is the same for all kinds.
"""

import dataclasses
import importlib.util
import math
import sys
import types
import warnings
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from minips.literals import read_fields
from minips.words import FieldsDoc, a_or_an, check_limits, check_type, default_of, message_of, suggestion

T = TypeVar("T")

if TYPE_CHECKING:
    Array = NDArray[Any]

    class ValueField(Generic[T]):
        """The type of a field whose value is a T, and to which a dict of T's fields may be assigned."""

        def __get__(self, instance: object, owner: type | None = None) -> T: ...
        def __set__(self, instance: object, value: T | Mapping[str, Any]) -> None: ...

    class StageField(ValueField[T]):
        """The type of a field whose value is a stage T, and to which T's name or a dict may be assigned."""

        def __set__(self, instance: object, value: T | str | Mapping[str, Any]) -> None: ...
else:
    from typing import NewType

    Array = NewType("Array", np.ndarray)  # so that help() prints Array, not NDArray[Any] in full

    class StageField:
        """A mark for type checkers: ``StageField[T]`` is T."""

        def __class_getitem__(cls, of):
            return of

    ValueField = StageField

Tensors = dict[str, Array]
"""Named arrays: parameters or gradients."""
Buffer = bytes | bytearray | memoryview
Frames = list[Buffer]
"""The buffers of a message."""

_KINDS: dict[str, dict[str, type["Stage"] | str]] = {}
ONE_THREAD = 10_000
"""The number of values up to which OpenBLAS computes a dot product in one thread."""
DEFAULTS: dict[tuple[str, str], Any] = {}
"""Maps (kind, name) to the stage that `default_stage` made. Frequent callers read it directly."""
CHANGES = [0]  # the number of registrations: after a new one, anything cached about a stage's name may be outdated


def option(
    default: Any,
    help: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    above: float | None = None,
    below: float | None = None,
    step: float | None = None,
    choices: Iterable[Any] | None = None,
    unit: str | None = None,
    operator: bool = False,
) -> Any:
    """A dataclass field that states what it accepts, for checks, widgets and help pages.

    ``minimum`` and ``maximum`` are inclusive, ``above`` and ``below`` exclusive. A callable ``default`` is a factory.
    The lab hides ``operator`` fields, which matter only to people who run servers.
    """
    limits = {"minimum": minimum, "maximum": maximum, "above": above, "below": below, "step": step}
    among = {"choices": None if choices is None else tuple(choices), "unit": unit, "operator": operator}
    metadata = {"help": help, **limits, **among}
    if callable(default):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


class Value:
    """A frozen dataclass that checks its fields and converts to JSON and back."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if isinstance(words := vars(cls).get("__doc__"), str):
            cls.__doc__ = FieldsDoc(words)  # type: ignore[assignment]

    if not TYPE_CHECKING:  # type checkers know the fields

        def __new__(cls, *values, **fields):
            _check_names(cls, fields, TypeError)
            return super().__new__(cls)

    def __post_init__(self) -> None:
        """Check each field's type and limits. The ValueError that it raises names the given and the accepted values."""
        hints = get_type_hints(type(self))
        for field in _fields(self):
            where = f"{type(self).__name__}.{field.name}"
            value = _coerce(hints[field.name], getattr(self, field.name), where)
            object.__setattr__(self, field.name, value)
            check_limits(where, value, field.metadata)

    def __repr__(self) -> str:
        """The code that creates this value."""
        # Only the fields that differ from their defaults; the repr that `dataclass` writes shows all of them.
        values = ((field, getattr(self, field.name)) for field in _fields(self))
        differing = (f"{field.name}={value!r}" for field, value in values if value != default_of(field))
        return f"{type(self).__qualname__}({', '.join(differing)})"

    as_code = __repr__

    def with_(self, changes: Mapping[str, Any]) -> Self:
        """A copy with the fields at these paths changed: ``{"push.quantizer": "sign"}``.

        Raises ValueError if a path does not exist.
        """
        check_type("with_", changes, Mapping, "a mapping of fields to values")
        changed = self
        for path, value in changes.items():
            name, _, rest = path.partition(".")
            _check_names(type(self), {name: value}, ValueError)
            inner = getattr(changed, name)
            if rest and not isinstance(inner, Value):
                raise ValueError(f"{path} does not exist: {type(self).__name__}.{name} is {inner!r}.")
            changed = type(changed)(**{**vars(changed), name: inner.with_({rest: value}) if rest else value})
        return changed

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values that JSON can represent."""
        return {field.name: _plain_value(getattr(self, field.name)) for field in _fields(self)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        """The value that ``to_dict`` described. Raises ValueError for unknown keys, TypeError for a non-mapping."""
        if not isinstance(fields, Mapping):
            raise TypeError(
                f"{cls.__name__}.from_dict takes a mapping of fields to values, as to_dict gives it; got {fields!r}."
            )
        _check_names(cls, fields, ValueError)
        return cls(**fields)


class Stage(Value):
    """A value that can be swapped for another of its ``kind``."""

    kind: ClassVar[str]
    name: ClassVar[str]
    requires: ClassVar[tuple[str, ...]] = ()
    """The modules that must be installed; ``extra`` is the minips extra that installs them."""
    extra: ClassVar[str] = ""
    of_methods: ClassVar[dict[str, tuple[str, ...]]] = {}
    """Maps a class attribute to methods: the attribute becomes False in a subclass that overrides one of them."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for attribute, methods in cls.of_methods.items():
            said = next(base for base in cls.__mro__ if attribute in vars(base))
            if any(getattr(cls, method) is not getattr(said, method) for method in methods):
                setattr(cls, attribute, False)

    def __post_init__(self) -> None:
        lacking = missing(type(self))
        if lacking:
            raise ModuleNotFoundError(
                f"The {self.kind} {self.name} needs {', '.join(lacking)}, which is not installed. "
                f'Install it with: pip install "minips[{self.extra}]"'
            )
        super().__post_init__()

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, **super().to_dict()}


S = TypeVar("S", bound=Stage)


class NoStageError(ValueError):
    """Raised if a kind has no stage with the given name."""


def register(cls: type[S]) -> type[S]:
    """Class decorator: list a stage under its kind and name, for ``build``, the command line and the widgets.

    Registering a class again, as rerunning a cell does, replaces it. Raises ValueError if another class has the name.
    """
    check_type("register", cls, type, "a class")
    kind, name = getattr(cls, "kind", None), getattr(cls, "name", None)
    if not (isinstance(kind, str) and isinstance(name, str)):
        raise ValueError(
            f"{cls.__name__} cannot be registered: give it a class attribute name = '…' "
            "and a base class that has a kind, such as Quantizer."
        )
    if not dataclasses.is_dataclass(cls):
        raise ValueError(
            f"{cls.__name__} cannot be registered: put @dataclass(frozen=True) between @register and the class."
        )
    known = _KINDS.setdefault(kind, {})
    taken = known.get(name)
    if taken is not None and _path(taken) != _path(cls):
        raise ValueError(f"The {kind} name {name!r} belongs to {_path(taken).replace(':', '.')}; choose another.")
    known[name] = cls
    DEFAULTS.pop((kind, name), None)
    CHANGES[0] += 1
    return cls


def withdraw(cls: type[Stage]) -> None:
    """Undo the registration of a class."""
    if _KINDS.get(cls.kind, {}).get(cls.name) is cls:
        del _KINDS[cls.kind][cls.name]
        DEFAULTS.pop((cls.kind, cls.name), None)
        CHANGES[0] += 1


def announce(kind: str, name: str, where: str) -> None:
    """List the stage at ``where``, a text ``"module:Class"``. The module is imported when the stage is first used."""
    _KINDS.setdefault(kind, {}).setdefault(name, where)


def kinds() -> list[str]:
    """The kinds of stage."""
    return list(_KINDS)


@cache
def load_installed() -> None:
    """Import the modules that installed packages list under the entry-point group ``minips.stages``. These modules
    register stages. Warns about each module that cannot be loaded.
    """
    from importlib.metadata import entry_points  # slow to import

    for entry in entry_points(group="minips.stages"):
        try:
            entry.load()
        except Exception as error:
            words = f"The stages of {entry.value} cannot be loaded: {type(error).__name__}: {message_of(error)}"
            warnings.warn(words, stacklevel=2)


def names(kind: str) -> list[str]:
    """The registered names of one kind, in the order of registration."""
    load_installed()
    return list(_classes(kind))


def stage_class(kind: str, name: str) -> type[Stage]:
    """The class with this name. Raises `NoStageError`, a ValueError that lists the known names and the nearest one."""
    classes = _classes(kind)
    if isinstance(name, str) and name not in classes:
        load_installed()
    if not isinstance(name, str) or name not in classes:
        raise NoStageError(f"There is no {kind} named {name!r:.99}. {suggestion(name, classes)}")
    cls = classes[name]
    if isinstance(cls, str):
        cls = classes[name] = resolve_name(cls)
    return cls


def default_stage(kind: str, name: str) -> Any:
    """The stage with this name and default fields, the same object each time. Raises errors as `stage_class` does."""
    stage = DEFAULTS.get((kind, name))
    if stage is None:
        stage = DEFAULTS[kind, name] = stage_class(kind, name)()
    return stage


def build(kind: str, spec: "str | Mapping[str, Any] | Stage") -> Any:
    """Build a stage from its name, from ``"name:field=value,field=value"`` or ``"name(field=value,field=value)"``, or
    from ``{"name": …, field: value}``. A stage of this kind is returned unchanged.

    >>> build("quantizer", "topk:fraction=0.5"), build("quantizer", {"name": "topk", "fraction": 0.5})
    (TopK(fraction=0.5), TopK(fraction=0.5))
    """
    if isinstance(spec, Stage):
        if spec.kind != kind:
            raise ValueError(f"Expected {a_or_an(kind)}, got the {spec.kind} {spec!r}.")
        return spec
    if isinstance(spec, str):
        if spec.endswith(")") and spec.partition("(")[0].isidentifier():  # as in another stage's fields
            return build(kind, read_fields(f"{kind}={spec}")[kind])
        name, colon, text = spec.partition(":")
        return stage_class(kind, name).from_dict(read_fields(text) if colon else {})
    if not isinstance(spec, Mapping) or not isinstance(spec.get("name"), str):
        raise ValueError(f"Expected {a_or_an(kind)}, its name, or a dict with its name under 'name'; got {spec!r}.")
    return stage_class(kind, spec["name"]).from_dict({key: value for key, value in spec.items() if key != "name"})


def missing(cls: type[Stage]) -> list[str]:
    """The modules that the stage requires and that are not installed."""
    return [module for module in cls.requires if not _findable(module)]


def _findable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its package is not installed
        return False


def is_finite(x: Array) -> bool:
    """True if ``x`` contains neither NaN nor infinity.

    A finite sum of squares proves it in one pass, without a temporary array. The slower check is needed only if the sum
    is not finite. The rows are short enough that BLAS uses one thread for each: waking other threads would cost more.
    """
    flat = x.reshape(-1)
    rows = flat[: flat.size - flat.size % ONE_THREAD].reshape(-1, ONE_THREAD)
    rest = flat[rows.size :]
    with np.errstate(over="ignore", invalid="ignore"):
        squares = float(np.vecdot(rows, rows).sum()) + float(np.vdot(rest, rest))
    return math.isfinite(squares) or bool(np.isfinite(flat).all())


def _path(cls: type[Stage] | str) -> str:
    return cls if isinstance(cls, str) else f"{cls.__module__}:{cls.__qualname__}"


def _classes(kind: str) -> dict[str, type[Stage] | str]:
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"There is no kind of stage named {kind!r}. {suggestion(kind, _KINDS)}")
    return _KINDS[kind]


def _fields(value: Any) -> "tuple[dataclasses.Field[Any], ...]":
    return dataclasses.fields(value)


def _check_names(cls: type[Value], given: Mapping[str, Any], error: type[Exception]) -> None:
    """Raise ``error`` if ``cls`` lacks a given field; it names the stage with that field, or the fields of ``cls``."""
    known = [field.name for field in _fields(cls)] if dataclasses.is_dataclass(cls) else given
    for name in given:
        if name not in known:
            hint = f". {suggestion(name, known)}" if known else "."
            owner, code = _owner(cls, name)
            if owner:
                hint = f"; it is a field of the {getattr(owner, 'kind', owner.__name__.lower())}: {code}."
            raise error(f"{cls.__name__} has no field {name!r}{hint}")


def _owner(cls: Any, name: str) -> tuple[Any, str]:
    """The nearest class within ``cls``'s fields that has a field ``name``, and code to set it; else None and ``""``."""
    near: list[tuple[Any, str]] = [(cls, "{}")]
    seen = {cls}
    for outer, code in near:  # `near` grows during the loop: breadth first
        hints = get_type_hints(outer)
        for field in dataclasses.fields(outer):
            for inner in _classes_within(hints[field.name]):
                if inner in seen:  # a stage may contain another of its kind
                    continue
                seen.add(inner)
                around = code.format(f"{field.name}={_public_name(inner)}({{}})")
                if name in (one.name for one in dataclasses.fields(inner)):
                    return inner, around.format(f"{name}=…")
                near.append((inner, around))
    return None, ""


def _arms(hint: Any) -> tuple[Any, ...]:
    """The types in a union; for any other type, only that type."""
    return get_args(hint) if get_origin(hint) in (types.UnionType, Union) else (hint,)


def _classes_within(hint: Any) -> Iterator[Any]:
    """The value classes that a field of this type may hold; for a kind of stage, each registered class."""
    for arm in _arms(hint):
        if isinstance(arm, type) and issubclass(arm, Stage):
            yield from (cls for cls in _KINDS.get(arm.kind, {}).values() if isinstance(cls, type))
        elif isinstance(arm, type) and issubclass(arm, Value):
            yield arm


def _public_name(cls: type) -> str:
    """The name that a user writes for a class: ``ps.TopK`` for a public one."""
    public = getattr(sys.modules.get("minips"), "__all__", ())
    return f"ps.{cls.__name__}" if cls.__name__ in public else cls.__name__


def _plain_value(value: Any) -> Any:
    if isinstance(value, Value):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {str(key): _plain_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_value(item) for item in value]
    return value


def _coerce(hint: Any, value: Any, where: str) -> Any:
    """Convert ``value`` from the forms used in JSON and on the command line to the type that the field declares."""
    arms = [arm for arm in _arms(hint) if arm is not type(None)]
    if value is None and len(arms) < len(_arms(hint)):
        return None
    hint = next((arm for arm in arms if _fits(arm, value)), arms[0])
    of, origin = get_args(hint), get_origin(hint)
    if origin is dict and isinstance(value, Mapping):
        return {_coerce(of[0], key, where): _coerce(of[1], item, where) for key, item in value.items()}
    if origin is tuple and isinstance(value, list | tuple):
        kinds = of[:1] * len(value) if of[-1] is ... else of
        if len(kinds) != len(value):
            raise ValueError(f"{where} takes {len(kinds)} values, got {value!r}.")
        return tuple(_coerce(kind, item, where) for kind, item in zip(kinds, value, strict=True))
    if origin in (dict, tuple):
        raise ValueError(f"{where} takes a {origin.__name__}, got {value!r}.")
    if isinstance(hint, type):
        if issubclass(hint, Stage) and not isinstance(value, hint):
            return build(hint.kind, value)
        if issubclass(hint, Value) and isinstance(value, Mapping):
            return hint.from_dict(value)
        if issubclass(hint, Value) and isinstance(value, str) and "=" in value:
            return hint.from_dict(read_fields(value))
        if hint is float and isinstance(value, int | np.number) and not isinstance(value, bool):
            return float(value)
        if hint is int and isinstance(value, str | np.integer) and str(value).lstrip("-").isdigit():
            return int(value)
        if not isinstance(value, hint) or (isinstance(value, bool) and hint is int):
            raise ValueError(f"{where} takes {a_or_an(hint.__name__)}, got {value!r}.")
    return value


def _fits(hint: Any, value: Any) -> bool:
    """True if ``value`` belongs to this member of a union. A mapping without the key "name" maps keys to stages."""
    if get_origin(hint) is dict:
        return isinstance(value, Mapping) and not isinstance(value.get("name"), str)
    return isinstance(hint, type) and isinstance(value, hint)
