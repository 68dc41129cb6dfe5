"""One side of a mirror: values as messages, shared arrays and containers, and numbers for everything that stays.

A message is a dict of plain values: ``do``, a value or a request; ``arrays``, the new shared arrays; ``sync``, the
bytes of those that have changed; ``boxes``, the containers that are new or have changed; ``drop``, the numbers that
the other side can forget. In a value, a list begins with the tag that says what it is.
"""

import dataclasses
import itertools
import json
import math
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from minips.lab.course.courses import installed

Tree = Any
"""A value as nested lists of plain values."""
Message = dict[str, Any]
BOXES: dict[str, Callable[[], Any]] = {
    "list": list,
    "dict": dict,
    "set": set,
    "bytearray": bytearray,
    "Generator": np.random.default_rng,
}
"""The kinds of containers that have twins, and how an empty one is made."""
PLAIN: tuple[Any, ...] = (int, float, str, bytes, list, dict, set, bytearray)
NUMBERS = "biufcmMSU"
"""The kinds of dtypes whose arrays can be shared."""
MOST_VALUES = 2**26
"""The most values of an array, however few bytes it is made of."""
MOST_BYTES = 2**29
"""The most bytes of all shared arrays together."""
OPERATORS = (
    "__call__",
    "__iter__",
    "__next__",
    "__len__",
    "__getitem__",
    "__setitem__",
    "__contains__",
    "__enter__",
    "__exit__",
)
"""The special methods of an object that its stand-in has. Others, such as ``__eq__``, would let it judge itself."""
ERRORS = ("builtins", "zlib", "pickle", "_pickle", "struct", "json.decoder")
"""The modules, besides minips' and the courses', whose errors arrive as themselves."""


class MirrorError(RuntimeError):
    """Raised if a value cannot go to the other side, or the other side has sent something that is not a message."""


class _Shared:
    """An array that has a twin. ``writer`` is a writable view of its memory, or None."""

    def __init__(self, array: np.ndarray, writer: np.ndarray | None, keep: bool, died: Callable[[Any], None]) -> None:
        self._kept = array if keep else None
        self._reference = weakref.ref(array, died)
        self.writer, self.last = writer if keep else None, array.tobytes()
        self.key, self.nbytes = id(array), array.nbytes

    def array(self) -> np.ndarray | None:
        return self._reference()


class Side:
    """One side. ``keeps`` says whether it keeps its twins of arrays until the other side drops them."""

    keeps: ClassVar[bool]
    first: ClassVar[int]
    """The first number that this side gives: one side's numbers are even, the other's odd."""

    def __init__(self) -> None:
        self.given: dict[int, Any] = {}
        """The objects of this side that the other one has a stand-in for."""
        self.theirs: dict[int, Any] = {}
        """The stand-ins of this side."""
        self._boxes: dict[int, Any] = {}
        self._last: dict[int, Tree] = {}
        self._arrays: dict[int, _Shared] = {}
        self._numbers: dict[int, int] = {}
        """Maps the id of each object above to its number."""
        self._new_arrays: list[Tree] = []
        self._dropped: list[int] = []
        self._errors: list[int] = []
        """The errors that went over since the outermost call began."""
        self._fresh: list[np.ndarray] = []
        """Keeps new arrays alive until the message that brought them has been read."""
        self._count = itertools.count(self.first, 2)

    def message(self, do: Any) -> Message:
        """Return a message with this value, and with all that has changed on this side."""
        tree, boxes, seen = self.encode(do), [], set()
        while rest := [number for number in self._boxes if number not in seen]:  # contents may bring more
            for number in rest:
                seen.add(number)
                contents = self._contents(self._boxes[number])
                if contents != self._last.get(number):
                    boxes.append([number, type(self._boxes[number]).__name__, contents])
                    self._last[number] = contents
        new, self._new_arrays = self._new_arrays, []
        sync, known = [], {one[0] for one in new}
        for number, shared in [*self._arrays.items()]:
            array = shared.array()
            if array is None or number in known:
                continue
            data = array.tobytes()
            if data != shared.last:
                shared.last = data
                sync.append([number, data])
        drop, self._dropped = self._dropped, []
        return {"do": tree, "arrays": new, "sync": sync, "boxes": boxes, "drop": drop}

    def receive(self, message: Message) -> Any:
        """Apply a message's changes, and return its value."""
        for number in message["drop"]:
            self._forget(number)
        for one in message["arrays"]:
            self._make_array(*one)
        for number, data in message["sync"]:
            self._write(number, data)
        for number, kind, _ in message["boxes"]:
            if number not in self._boxes:
                self._keep_box(number, BOXES[kind]())
        for number, _, contents in message["boxes"]:
            self._fill(self._boxes[number], contents)
        for number, _, _ in message["boxes"]:
            self._last[number] = self._contents(self._boxes[number])
        value = self.decode(message["do"])
        self._fresh.clear()
        return value

    def passing(self) -> set[int]:
        """The numbers of the containers and errors that both sides know now."""
        return {*self._boxes, *self._errors}

    def drop(self, numbers: set[int]) -> None:
        """Forget these containers and errors, and let the other side forget them."""
        self._errors = [number for number in self._errors if number not in numbers]
        for number in numbers:
            self._forget(number)
            self._dropped.append(number)

    def _forget(self, number: int) -> None:
        shared = self._arrays.pop(number, None)
        self._last.pop(number, None)
        found = [known.pop(number) for known in (self._boxes, self.given, self.theirs) if number in known]
        key = id(found[0]) if found else shared.key if shared else None
        if key is not None and self._numbers.get(key) == number:
            del self._numbers[key]

    # Values as trees.

    def encode(self, x: Any) -> Tree:
        """Return a value as a tree. MirrorError if it cannot go to the other side."""
        if x is None or type(x) in (bool, float, str, bytes) or (type(x) is int and abs(x) < 2**62):
            return x
        if (number := self._numbers.get(id(x))) is not None:
            return self._known(number)
        if type(x).__name__ in BOXES and type(x).__module__ in ("builtins", "numpy.random._generator"):
            number = next(self._count)
            self._keep_box(number, x)
            return ["box", number]
        if isinstance(x, np.ndarray):
            return self._encode_array(x)
        if known := self.encode_known(x):
            return known
        if type(x) is int:
            return ["int", str(x)]
        for kind in PLAIN:
            if isinstance(x, kind) and not isinstance(x, np.generic):  # of a subclass: it arrives as its base
                return self.encode(kind(x))
        return self._encode_other(x)

    def _encode_other(self, x: Any) -> Tree:
        if isinstance(x, np.generic):
            return ["scalar", x.dtype.str, x.tobytes()]
        if isinstance(x, tuple):
            return ["tuple", [*map(self.encode, x)]]
        if isinstance(x, complex):
            return ["complex", x.real, x.imag]
        if isinstance(x, frozenset):
            return ["frozenset", [*map(self.encode, x)]]
        if isinstance(x, slice | range):
            return [type(x).__name__, *map(self.encode, (x.start, x.stop, x.step))]
        if isinstance(x, np.dtype):
            return ["dtype", x.str]
        if isinstance(x, memoryview):
            return ["memoryview", x.tobytes()]
        if x is Ellipsis:
            return ["ellipsis"]
        if isinstance(x, BaseException):
            return self._encode_error(x)
        return self.encode_object(x)

    def encode_known(self, x: Any) -> Tree:
        """Return a value of one of minips' own frozen dataclasses or named tuples as a tree; None for another one."""
        cls = type(x)
        if not is_value(cls):
            return None
        names = cls._fields if isinstance(x, tuple) else [field.name for field in dataclasses.fields(x)]
        return ["made", *name_of(cls), [[name, self.encode(getattr(x, name))] for name in names if hasattr(x, name)]]

    def encode_object(self, x: Any) -> Tree:
        """Return the tree of an object that stays on this side."""
        return ["mine", self.number(x), self.description(x)]

    def description(self, x: Any) -> Tree:
        """Describe an object to the other side."""
        return type(x).__name__

    def number(self, x: Any) -> int:
        """Return the number of an object that stays on this side."""
        number = next(self._count)
        self.given[number] = x
        self._numbers[id(x)] = number
        return number

    def _known(self, number: int) -> Tree:
        if number in self._boxes:
            return ["box", number]
        if number in self._arrays:
            return ["array", number]
        return ["mine", number, None] if number in self.given else ["yours", number]

    def decode(self, tree: Tree) -> Any:
        """Return the value of a tree."""
        if not isinstance(tree, list):
            return tree
        tag, *rest = tree
        if tag in ("mine", "yours", "box", "array"):
            return self._decode_known(tag, *rest)
        return getattr(self, f"_decode_{tag}")(*rest)

    def _decode_known(self, tag: str, number: int, description: Tree = None) -> Any:
        if tag == "box":
            return self._boxes[number]
        if tag == "array":
            return self._arrays[number].array()
        if tag == "yours":
            return self.given[number]
        if number not in self.theirs:
            self.keep(number, self.stand_in(number, description))
        return self.theirs[number]

    def keep(self, number: int, x: Any) -> Any:
        """Keep a stand-in for the other side's object of this number."""
        self.theirs[number] = x
        self._numbers[id(x)] = number
        return x

    def stand_in(self, number: int, description: Tree) -> Any:
        """Make a stand-in for an object of the other side."""
        raise NotImplementedError

    def _decode_int(self, text: str) -> int:
        return int(text)

    def _decode_tuple(self, items: list[Tree]) -> tuple[Any, ...]:
        return tuple(map(self.decode, items))

    def _decode_frozenset(self, items: list[Tree]) -> frozenset[Any]:
        return frozenset(map(self.decode, items))

    def _decode_complex(self, real: float, imag: float) -> complex:
        return complex(real, imag)

    def _decode_slice(self, *ends: Tree) -> slice:
        return slice(*map(self.decode, ends))

    def _decode_range(self, *ends: int) -> range:
        return range(*ends)

    def _decode_dtype(self, text: str) -> Any:
        return np.dtype(text)

    def _decode_memoryview(self, data: bytes) -> memoryview:
        return memoryview(data)

    def _decode_ellipsis(self) -> Any:
        return Ellipsis

    def _decode_scalar(self, dtype: str, data: bytes) -> Any:
        return np.frombuffer(data, dtype)[0]

    def _decode_made(self, module: str, name: str, fields: list[Tree]) -> Any:
        cls = named(module, name)
        if not is_value(cls):
            raise MirrorError(f"Got a value of {cls!r}, which is not copied.")
        return self.make(cls, {field: self.decode(value) for field, value in fields})

    def make(self, cls: Any, fields: dict[str, Any]) -> Any:
        """Make a value of a known class."""
        return cls(**fields)

    # Errors.

    def _encode_error(self, error: BaseException) -> Tree:
        names = [[cls.__module__, cls.__qualname__] for cls in type(error).__mro__[:-1]]
        plain = [one for one in error.args if one is None or isinstance(one, bool | int | float | str)]
        arguments = [str(one) if isinstance(one, str) else one for one in plain]
        number = self.number(error)
        self._errors.append(number)
        return ["error", number, names, [*map(self.encode, arguments)], str(error), self.place(error)]

    def place(self, error: BaseException) -> str:
        """The place in the learner's code at which an error was raised, as a phrase."""
        return ""

    def _decode_error(self, number: int, names: list[list[str]], arguments: list[Tree], text: str, place: str) -> Any:
        plain = [*map(self.decode, arguments)]
        if not all(one is None or isinstance(one, bool | int | float | str) for one in plain):
            raise MirrorError("Got an error that is not about plain values.")
        error: Any = RuntimeError(str(text))
        for cls in filter(None, (error_named(*name) for name in names)):
            with suppress(Exception):  # of an error that is not made like others, its base is
                error = cls(*plain)
                break
        error.where = place
        self._errors.append(number)
        return self.keep(number, error)

    # Arrays.

    def _encode_array(self, x: np.ndarray) -> Tree:
        if type(x) is not np.ndarray:
            x = np.array(x, subok=False)
        if x.dtype.kind not in NUMBERS:
            raise MirrorError(f"An array of {x.dtype} cannot be sent; expected numbers.")
        number = next(self._count)
        low, span = _span(x)
        for host_number, host in [*self._arrays.items()]:
            array = host.array()
            if array is not None and array.flags.c_contiguous and array.nbytes and span:
                start, length = _span(array)
                if start <= low and low + span <= start + length:
                    at = x.ctypes.data - start
                    new = [number, x.dtype.str, [*x.shape], [*x.strides], at, host_number, x.flags.writeable]
                    break
        else:
            new = [
                number,
                x.dtype.str,
                [*x.shape],
                [*x.strides],
                x.ctypes.data - low,
                _memory(x, low, span),
                x.flags.writeable,
            ]
        self._new_arrays.append(new)
        self._share(number, x, None)
        return ["array", number]

    def _make_array(
        self,
        number: int,
        dtype: str,
        shape: list[int],
        strides: list[int],
        at: int,
        memory: bytes | int,
        writeable: bool,
    ) -> None:
        kind = np.dtype(dtype)
        if kind.kind not in NUMBERS or math.prod(shape) > MOST_VALUES:
            raise MirrorError(f"Got an array of {dtype} and shape {shape}; expected numbers, and not too many.")
        known = sum(one.nbytes for one in [*self._arrays.values()])  # a copy: arrays end in any thread
        if math.prod(shape) * kind.itemsize + known > MOST_BYTES:
            raise MirrorError(f"Got arrays of more than {MOST_BYTES} bytes.")
        if isinstance(memory, int):
            host = self._arrays[memory].array()
            assert host is not None
            buffer: Any = host.reshape(-1).view("u1") if host.ndim else host.reshape(1).view("u1")
        else:
            buffer = bytearray(memory) or np.empty(16, "u1")  # for no values
        array: np.ndarray = np.ndarray(tuple(shape), kind, buffer, at, tuple(strides))
        writer = array.view() if array.flags.writeable else None
        if not writeable:
            array.flags.writeable = False
        self._share(number, array, writer)

    def _share(self, number: int, array: np.ndarray, writer: np.ndarray | None) -> None:
        def died(_: Any) -> None:
            self._forget(number)
            self._dropped.append(number)

        self._arrays[number] = shared = _Shared(array, writer, self.keeps, died)
        self._numbers[shared.key] = number
        if not self.keeps:
            self._fresh.append(array)

    def _write(self, number: int, data: bytes) -> None:
        shared = self._arrays.get(number)
        array = shared.array() if shared else None
        if shared is None or array is None:
            return
        into = shared.writer if shared.writer is not None else array
        if into.flags.writeable:
            into[...] = np.frombuffer(data, array.dtype).reshape(array.shape)
            shared.last = data

    # Containers.

    def _keep_box(self, number: int, box: Any) -> None:
        self._boxes[number] = box
        self._numbers[id(box)] = number

    def _contents(self, box: Any) -> Tree:
        if isinstance(box, dict):
            return [[self.encode(key), self.encode(value)] for key, value in box.items()]
        if isinstance(box, bytearray):
            return bytes(box)
        if isinstance(box, np.random.Generator):
            return json.dumps(box.bit_generator.state, default=_to_list)
        return [*map(self.encode, box)]

    def _fill(self, box: Any, contents: Tree) -> None:
        if isinstance(box, dict):
            pairs = [(self.decode(key), self.decode(value)) for key, value in contents]
            box.clear()
            box.update(pairs)
        elif isinstance(box, set):
            items = {*map(self.decode, contents)}
            box.clear()
            box.update(items)
        elif isinstance(box, np.random.Generator):
            state, known = json.loads(contents), box.bit_generator.state
            if self._numbers[id(box)] % 2 == self.first % 2 and state["state"].get("inc") != known["state"].get("inc"):
                raise MirrorError("Got a generator that draws other numbers than it did.")
            box.bit_generator.state = state
        else:
            box[:] = contents if isinstance(box, bytearray) else [*map(self.decode, contents)]


def _to_list(x: Any) -> Any:
    return x.tolist()


def _span(x: np.ndarray) -> tuple[int, int]:
    """The address of an array's memory, and how many bytes of it the array reaches."""
    low, high = np.lib.array_utils.byte_bounds(x)
    return low, (high - low if x.size else 0)


def _memory(x: np.ndarray, low: int, span: int) -> bytes:
    if x.flags.c_contiguous:
        return x.tobytes()
    import ctypes

    return ctypes.string_at(low, span)


@cache
def _trusted() -> tuple[str, ...]:
    """The beginnings of the names of the modules of minips and of the courses."""
    return ("minips.", *(f"{package}." for package in installed()))


def is_ours(module: str) -> bool:
    """True for a module of minips or a course."""
    return f"{module}.".startswith(_trusted())


def name_of(cls: type) -> tuple[str, str]:
    """The module and the name of a class."""
    return cls.__module__, cls.__qualname__


def is_named(cls: type) -> bool:
    """True for a class of minips or a course, which both sides find under its name."""
    return is_ours(cls.__module__) and find(*name_of(cls)) is cls


def find(module: str, name: str) -> Any:
    """Return what a module calls ``name``, or None. It imports only public modules of minips and the courses."""
    if is_ours(module) and not any(part.startswith("_") for part in module.split(".")):
        with suppress(ImportError):
            import_module(module)
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def is_public(name: Any) -> bool:
    """True for the name of an attribute that a stand-in may have."""
    return isinstance(name, str) and name.isidentifier() and (name in OPERATORS or not name.startswith("_"))


def is_value(cls: type) -> bool:
    """True for a class whose objects are copied: a frozen dataclass or a named tuple of minips or a course."""
    frozen = dataclasses.is_dataclass(cls) and cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    return is_named(cls) and bool(frozen or (issubclass(cls, tuple) and hasattr(cls, "_fields")))


def named(module: str, name: str) -> type:
    """The class of minips or a course with this name. MirrorError if there is none."""
    cls = find(module, name) if is_ours(module) else None
    if not isinstance(cls, type) or not is_named(cls):
        raise MirrorError(f"Got the name {module}.{name}, which is not a class of minips.")
    return cls


def error_named(module: str, name: str) -> type[Exception] | None:
    """The class of an error that both sides know; None for another name."""
    cls = find(module, name) if module in ERRORS or is_ours(module) else None
    return cls if isinstance(cls, type) and issubclass(cls, Exception) else None
