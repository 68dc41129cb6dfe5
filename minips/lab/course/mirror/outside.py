"""The grader's side of a mirror: stand-ins for the answer's objects."""

import dataclasses
import inspect
import pickle
import threading
import time
import types
import warnings
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Self

import numpy as np

from minips.lab.course.mirror.side import MirrorError, Side, Tree, find, is_ours, is_public, named
from minips.problems import Problem
from minips.sandbox import Sandbox, SandboxError
from minips.stage import register, withdraw

INSIDE = "minips.lab.course.mirror.inside"
MOST_S = 40.0
"""The most seconds that one answer may take in all."""
NEVER = object()
INNARDS = (types.ModuleType, types.FrameType, types.CodeType, types.TracebackType)
"""The kinds of objects that lead from what a check hands over to the check itself. They stay hidden."""
ENDING = ("__next__", "send", "throw")
"""The methods of a generator that raise StopIteration when it ends."""
MIRRORS: "weakref.WeakValueDictionary[int, Outside]" = weakref.WeakValueDictionary()
"""By its id, each mirror of this process."""


class Outside(Side):
    """This side of the mirror. All calls of the answer together may take ``seconds``."""

    keeps, first = False, 2

    def __init__(self, sandbox: Sandbox, seconds: float = MOST_S) -> None:
        super().__init__()
        self._sandbox, self._deadline = sandbox, time.monotonic() + seconds
        self._registered: list[Any] = []
        self._copied: set[int] = set()
        """The numbers of the objects of which the sandbox has a copy, and asks nothing."""
        self._known_settings: Any = None
        self._lock = threading.RLock()
        MIRRORS[id(self)] = self
        self.error: Exception | None = None
        """The sandbox's error, after which no call is answered: the answer cannot be judged."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for cls in self._registered:
            withdraw(cls)

    def answer(self, expression: str) -> Any:
        """Return the value of an expression in the sandboxed module, or a stand-in for it. Raises what that raises;
        SandboxError if the sandbox fails.
        """
        return self._finish(self._ask("offer", expression))

    def do(self, what: str, *arguments: Any) -> Any:
        """Do something with an object of the answer's. Raises what that raises."""
        with self._lock:
            before = self.passing()
            try:
                return self._finish(self._ask("act", self.message((what, self._settings(), *arguments))))
            except StopIteration as error:
                if what == "method" and arguments[1] in ENDING:
                    raise
                raise RuntimeError("It raised StopIteration.") from error  # which would end a loop of the check
            finally:
                self.drop(self.passing() - before)

    def _settings(self) -> Any:
        """NumPy's settings for errors here and Python's for warnings, if they have changed: a check may turn warnings
        into errors.
        """
        filters = [
            (one[0], getattr(one[2], "__name__", ""))
            for one in warnings.filters
            if not (one[1] or one[3])  # which are about texts or modules
        ]
        known = (tuple(np.geterr().items()), *(one for one in filters if find("builtins", one[1])))
        before, self._known_settings = self._known_settings, known
        return None if known == before else known

    def _ask(self, function: str, argument: Any) -> Any:
        if self.error:
            raise self.error
        left = self._deadline - time.monotonic()
        try:
            if left <= 0:
                raise SandboxError(f"{self._sandbox.who} took too long.")
            return self._sandbox.ask(INSIDE, function, argument, seconds=left)
        except SandboxError as error:
            self.error = error
            raise
        except BaseException:  # no answer can be told from the next one
            self.error = SandboxError(f"{self._sandbox.who} was interrupted.")
            raise

    def _finish(self, reply: Any) -> Any:
        """Carry out the requests of a call until its result arrives."""
        while True:
            try:
                kind, message = reply
                value = self.receive(message)
                what, *arguments = value
                got = arguments[0]
                if kind == "done" and what == "raise" and not isinstance(got, Exception):
                    raise MirrorError(f"{type(got).__name__} is no error.")
            except Exception as error:  # whatever it may be: nothing here trusts the message
                self.error = SandboxError(f"{self._sandbox.who} sent something that is not a message: {error}")
                raise self.error from None
            if kind == "done":
                if what == "raise":
                    raise got
                return got
            reply = self._ask("resume", self.message(self._serve(what, arguments)))

    def number_of(self, stand_in: Any) -> int:
        """The number of a stand-in."""
        return self._numbers[id(stand_in)]

    def _serve(self, what: str, arguments: list[Any]) -> tuple[str, Any]:
        """Do something with an object that the check has handed over, by its public names alone."""
        try:
            number = self._numbers.get(id(arguments[0]))
            if number not in self.given or number in self._copied:
                raise MirrorError("It asks for something that the check has not handed over.")
            if what == "get" and not is_public(arguments[1]):
                raise AttributeError(f"{arguments[1]} is not public.")
            got = SERVED[what](*arguments)
            if isinstance(got, INNARDS):
                raise AttributeError(f"A {type(got).__name__} is not public.")
            return "value", got
        except Exception as error:
            return "raise", error

    def encode_object(self, x: Any) -> Tree:
        """Return an object's tree. Problems, and minips' classes and functions, are copied; other objects stay."""
        if isinstance(x, Problem) and is_ours(type(x).__module__):
            with suppress(pickle.PicklingError, AttributeError, TypeError):  # else it stays, and is asked
                data = pickle.dumps(x)
                number = self.number(x)
                self._copied.add(number)
                return ["copied", number, data]
        if isinstance(x, type | types.FunctionType | types.BuiltinFunctionType | np.ufunc):
            module, name = getattr(x, "__module__", None) or "builtins", getattr(x, "__qualname__", x.__name__)
            if find(module, name) is x:
                return ["type", module, name]
        return super().encode_object(x)

    # Stand-ins.

    def _decode_named(self, module: str, name: str) -> type:
        return named(module, name)

    def stand_in(self, number: int, description: Tree) -> Any:
        """Make a stand-in for an object of the answer's: a class, a function, or an instance of such a class."""
        what, *rest = description
        if what == "class":
            return self._class(number, *rest[0])
        if what == "function":
            return self._function(number, *rest)
        cls, fields = self.decode(rest[0]), {name: self.decode(value) for name, value in rest[1]}
        if not (isinstance(cls, type) and issubclass(cls, StandIn)):
            raise MirrorError(f"Got an instance of {cls!r}.")
        return cls._of(number, fields)

    def _function(self, number: int, name: str, signature: Tree) -> Any:
        def function(*arguments: Any, **options: Any) -> Any:
            return self.do("call", function, arguments, options)

        def unaided(function: Any, *arguments: Any, helpers: str) -> Any:
            return self.do("unaided", function, "", arguments, helpers)

        function.__name__ = function.__qualname__ = str(name)
        function.__module__ = "__main__"
        function._unaided = unaided  # type: ignore[attr-defined]
        if signature is not None:
            function.__signature__ = _signature(signature)  # type: ignore[attr-defined]
        return function

    def _default(self, value: Tree) -> Any:
        return dataclasses.field(default_factory=lambda: self.decode(value))

    def _class(
        self,
        number: int,
        name: str,
        module: str,
        bases: list[Tree],
        members: list[list[str]],
        plain: list[Tree],
        fields: list[Tree] | None,
        frozen: bool,
        registered: bool,
        signature: Tree,
    ) -> type:
        namespace: dict[str, Any] = {"__module__": "__main__", "_mirror": self, "__init__": _nothing}
        if is_ours(module):
            raise MirrorError(f"Got a class named {module}.{name}.")
        namespace |= {member: _member(member, kind, self, number) for member, kind in members if is_public(member)}
        namespace |= {attribute: self.decode(value) for attribute, value in plain if is_public(attribute)}
        above = tuple(base for base in map(self.decode, bases) if isinstance(base, type))
        above = above if above and issubclass(above[0], StandIn) else (StandIn, *above)
        if fields is None:
            cls: Any = types.new_class(name, above, exec_body=lambda body: body.update(namespace))
        else:
            listed: list[Any] = [
                (field, object, self._default(value)) if given else (field, object)
                for field, given, value in fields
                if is_public(field)
            ]
            cls = dataclasses.make_dataclass(
                name, listed, bases=above, namespace=namespace, init=False, repr=False, eq=True, frozen=frozen
            )
        cls.__module__, cls._made_of = "__main__", number
        if signature is not None:
            cls.__signature__ = _signature(signature)
        if registered:
            register(cls)
            self._registered.append(cls)
        return cls  # type: ignore[no-any-return]


class StandIn:
    """The base of the stand-ins' classes. Calling the class makes an object in the sandbox, and its stand-in here."""

    _mirror: Outside
    _made_of: int

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        mirror = cls._mirror
        if "_made_of" not in vars(cls):  # a check has made a class from an answer's
            plain = {name: value for name, value in vars(cls).items() if not name.startswith("__")}
            twin = mirror.do("subclass", mirror.theirs[cls._made_of], cls.__name__, plain)
            cls._made_of = mirror.number_of(twin)
            mirror.keep(cls._made_of, cls)
        return mirror.do("call", cls, arguments, options)

    @classmethod
    def _of(cls, number: int, fields: dict[str, Any]) -> Any:
        made = object.__new__(cls)
        known = getattr(cls, "__dataclass_fields__", {})
        for name in fields.keys() & known.keys():
            object.__setattr__(made, name, fields[name])
        return made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return self._mirror.do("get", self, name)

    def __repr__(self) -> str:
        return str(self._mirror.do("repr", self))

    def __reduce__(self) -> Any:
        self._mirror.do("travel", self)
        return _again, (id(self._mirror), self._mirror.number_of(self))

    def __deepcopy__(self, memo: Any) -> Any:
        return self

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        return self._mirror.do("vars", self)


def _again(mirror: int, number: int) -> Any:
    """The same stand-in, in the process that has its mirror."""
    return MIRRORS[mirror].theirs[number]


def _nothing(self: Any, *arguments: Any, **options: Any) -> None:
    """Initialize nothing: the object is in the sandbox."""


def _member(name: str, kind: str, mirror: Outside, number: int) -> Any:
    """A member of a stand-in's class, which asks for the object's."""
    if kind == "property":
        return property(lambda self: mirror.do("get", self, name))

    def called(self: Any, *arguments: Any, **options: Any) -> Any:
        return mirror.do("method", self, name, arguments, options)

    def called_on_class(*arguments: Any, **options: Any) -> Any:
        return mirror.do("method", mirror.theirs[number], name, arguments, options)

    def unaided(bound: Any, *arguments: Any, helpers: str) -> Any:
        return mirror.do("unaided", getattr(bound, "__self__", mirror.theirs[number]), name, arguments, helpers)

    one: Any = called if kind == "method" else called_on_class
    one.__name__, one._unaided = name, unaided
    return one if kind == "method" else staticmethod(one)


def _signature(parameters: list[Any]) -> inspect.Signature:
    empty = inspect.Parameter.empty
    kinds = [*inspect._ParameterKind]
    return inspect.Signature(
        [
            inspect.Parameter(name, kinds[kind], default=NEVER if default else empty)
            for name, kind, default in parameters
        ]
    )


def _enter(thing: Any) -> Any:
    return thing.__enter__()


def _exit(thing: Any, error: BaseException | None) -> Any:
    return thing.__exit__(type(error) if error else None, error, None)


SERVED: dict[str, Callable[..., Any]] = {
    "call": lambda thing, arguments, options: thing(*arguments, **options),
    "get": getattr,
    "iter": iter,
    "next": next,
    "len": len,
    "item": lambda thing, key: thing[key],
    "contains": lambda thing, item: item in thing,
    "enter": _enter,
    "exit": _exit,
}
