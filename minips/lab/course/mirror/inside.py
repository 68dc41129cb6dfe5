"""The sandbox's side of a mirror: it does what it is asked to with the answer's objects, and asks for the check's.

`offer` and `act` are called by `minips.sandbox.Sandbox.ask`. While the answer calls something of the check's, this side
waits in `consult`, where further questions, and at last the result, arrive.
"""

import builtins
import dataclasses
import inspect
import os
import pickle
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

import numpy as np

from minips import sandbox
from minips.lab.course import exercises
from minips.lab.course.mirror.side import Message, Side, Tree, is_named, is_public, name_of
from minips.stage import kinds, names, stage_class


class Inside(Side):
    """This side of the mirror."""

    keeps, first = True, 1

    def description(self, x: Any) -> Tree:
        """Describe an object: a class, a function, or what class it has."""
        if isinstance(x, type):
            return ["class", self._class(x)]
        if isinstance(x, types.FunctionType | types.MethodType):
            return ["function", getattr(x, "__name__", "function"), _signature(x)]
        fields = {}
        if dataclasses.is_dataclass(type(x)):
            fields = {field.name: getattr(x, field.name) for field in dataclasses.fields(x) if hasattr(x, field.name)}
        return ["object", self.encode(type(x)), [[name, self.encode(value)] for name, value in fields.items()]]

    def encode_object(self, x: Any) -> Tree:
        """Return an object's tree; a class of minips goes by its name."""
        if isinstance(x, type) and is_named(x):
            return ["named", *name_of(x)]
        number = self.number(x)
        return ["mine", number, self.description(x)]

    def _class(self, cls: type) -> Tree:
        bases = [self.encode(base) for base in cls.__bases__ if base is not object]
        members, plain = [], []
        for name, thing in vars(cls).items():
            kind = _kind(name, thing)
            if kind:
                members.append([name, kind])
            elif is_public(name) and isinstance(thing, bool | int | float | str | tuple | type(None)):
                plain.append([name, self.encode(thing)])
        fields, frozen = None, False
        if dataclasses.is_dataclass(cls):
            frozen = bool(cls.__dataclass_params__.frozen)  # type: ignore[attr-defined]
            fields = [[field.name, *self._default(field)] for field in dataclasses.fields(cls)]
        stage, named = getattr(cls, "kind", None), getattr(cls, "name", None)
        known = isinstance(stage, str) and stage in kinds() and named in names(stage)
        registered = known and stage_class(str(stage), str(named)) is cls
        return [cls.__name__, cls.__module__, bases, members, plain, fields, frozen, registered, _signature(cls)]

    def _default(self, field: Any) -> Tree:
        if field.default is not dataclasses.MISSING:
            return [True, self.encode(field.default)]
        if field.default_factory is not dataclasses.MISSING:
            return [True, self.encode(field.default_factory())]
        return [False, None]

    def _decode_copied(self, number: int, data: bytes) -> Any:
        return self.keep(number, pickle.loads(data))  # the check's side made it

    def _decode_type(self, module: str, name: str) -> Any:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        return found

    def make(self, cls: Any, fields: dict[str, Any]) -> Any:
        """Make a value as it was on the other side, without a second look at its fields."""
        if issubclass(cls, tuple):
            return cls(**fields)
        value = object.__new__(cls)
        for name, field in fields.items():
            object.__setattr__(value, name, field)
        return value

    def stand_in(self, number: int, description: Tree) -> Any:
        """Make a stand-in for an object of the check's."""
        return Foreign(str(description))

    def place(self, error: BaseException) -> str:
        """The last line of the notebook in an error's traceback, as a phrase."""
        return exercises.where(error)


def _kind(name: str, thing: Any) -> str:
    """The kind of a class's member: a method, a static method, a class method or a property; empty for others."""
    if not is_public(name):
        return ""
    if isinstance(thing, staticmethod | classmethod | property):
        return type(thing).__name__
    return "method" if callable(thing) and not isinstance(thing, type) else ""


def _signature(thing: Any) -> Tree:
    """The parameters of a callable: name, kind, and whether it has a default; None if Python does not know them."""
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (ValueError, TypeError):
        return None
    return [[one.name, int(one.kind), one.default is not inspect.Parameter.empty] for one in parameters]


class Foreign:
    """A stand-in for an object of the check's: it has the object's public attributes, and can be called."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"<{self._name}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return request("get", self, name)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return request("call", self, arguments, options)

    def __iter__(self) -> Iterator[Any]:
        return request("iter", self)  # type: ignore[no-any-return]

    def __next__(self) -> Any:
        return request("next", self)

    def __len__(self) -> int:
        return int(request("len", self))

    def __getitem__(self, key: Any) -> Any:
        return request("item", self, key)

    def __contains__(self, item: Any) -> bool:
        return bool(request("contains", self, item))

    def __enter__(self) -> Any:
        return request("enter", self)

    def __exit__(self, *error: Any) -> Any:
        return request("exit", self, error[1])


HERE = Inside()


def request(what: str, *arguments: Any) -> Any:
    """Ask the check's side to do something with an object of its own. Raises what that raises."""
    watching = sys.getprofile()  # it looks for what the answer calls, and not for this
    sys.setprofile(None)
    kind, value = consult(HERE.message((what, *arguments)))
    sys.setprofile(watching)
    if kind == "raise":
        raise value
    return value


def consult(message: Message) -> Any:
    """Send a request, and carry out the questions that come before its result."""
    sandbox._write_all(sandbox._pack(["answer", ["ask", message]]))
    while True:
        asked = sandbox._read()
        if asked is None:
            os._exit(0)
        _, function, arguments = asked
        if function == "resume":
            return HERE.receive(arguments[0])
        sandbox._try(lambda: act(None, *arguments))  # noqa: B023


def offer(entry: Any, expression: str) -> Any:
    """Return the value of an expression in the sandboxed module."""
    try:
        value = ("value", eval(compile(expression, "the answer", "eval"), vars(entry)))
    except BaseException as error:
        value = ("raise", error)
    return ["done", HERE.message(value)]


def act(entry: Any, message: Message) -> Any:
    """Do something with an object of the answer's, and return the result, or what it has raised."""
    what, settings, *arguments = HERE.receive(message)
    if settings:
        _set(*settings)
    try:
        value = ("value", ACTS[what](*arguments))
    except BaseException as error:
        value = ("raise", error)
    return ["done", HERE.message(value)]


def _set(errors: tuple[tuple[str, Any], ...], *filters: tuple[Any, str]) -> None:
    """Treat NumPy's errors and Python's warnings as the check's side does."""
    np.seterr(**dict(errors))
    warnings.resetwarnings()
    for action, kind in reversed(filters):
        warnings.simplefilter(action, getattr(builtins, kind))


def _call(thing: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    return thing(*arguments, **options)


def _method(thing: Any, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
    return getattr(thing, name)(*arguments, **options)


def _unaided(thing: Any, name: str, arguments: tuple[Any, ...], helpers: str) -> Any:
    module = None
    with suppress(ImportError):  # of a check's module: its functions are called through stand-ins
        module = import_module(helpers) if helpers else None
    return exercises.unaided(getattr(thing, name) if name else thing, *arguments, helpers=module)


ACTS: dict[str, Callable[..., Any]] = {
    "call": _call,
    "method": _method,
    "unaided": _unaided,
    "get": getattr,
    "set": setattr,
    "vars": lambda thing: dict(vars(thing)),
    "repr": repr,
    "travel": lambda thing: len(pickle.dumps(vars(thing))),  # raises if it could not go to another process
    "subclass": lambda base, name, attributes: type(name, (base,), {"__module__": base.__module__, **attributes}),
}
