"""The exercises of "Open a stranger's bytes"."""

import io
import pickle
import struct
import sys
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np

from minips.lab.course.exercises import Refused, asks, case, raising, refuse_if
from minips.testing.base import described, same_bits
from minips_course.arrays import drawn_names

DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]
RAN: list[int] = []
"""Numbers that a stranger's text or module appended when it was run during a check."""
_TEXT = f"import {__name__} as _m; _m.RAN.append(1)"
Present = tuple[str, str, tuple[str, ...]]
PRESENTS: tuple[Present, ...] = (
    ("builtins", "exec", (_TEXT,)),
    ("builtins", "eval", ("1 + 1",)),
    ("builtins", "getattr", ()),
    ("subprocess", "getoutput", ("echo",)),
    ("os", "getcwd", ()),
    ("numpy.testing", "runstring", (_TEXT, "")),
    ("numpy.testing._private.utils", "os.getcwd", ()),
    ("numpy", "testing.runstring", (_TEXT, "")),
    ("numpy", "ndarray.dumps", ()),
    ("numpy", "fromfile", ("no-such-file",)),
    ("numpy", "load", ("no-such-file",)),
    ("numpy._core.multiarray", "fromfile", ("no-such-file",)),
    ("numpy._core.multiarray", "scalar", ()),
    ("numpy", "memmap", ("no-such-file",)),
    ("numpy", "save", ()),
    ("numpy", "savetxt", ()),
    ("numpy", "genfromtxt", ("no-such-file",)),
    ("numpy", "vectorize", ()),
    ("numpy", "matrix", ()),
    ("numpy", "float64", ()),
    ("collections", "OrderedDict", ()),
)
"""The module, name and arguments of each function that a stranger's pickle calls. All of them are harmless."""


@asks(
    "stranger.1",
    "find_class receives the module and the name as strings. A set of such pairs can be the whole filter.",
    "Which pairs does an array need? Write an unpickler that collects the pairs while it loads pickles of your own "
    "arrays. Use protocols 4 and 5, and also an array that is not contiguous in memory, such as x[::2, 1:].",
    "First fill the set, with a class that adds each pair and returns super().find_class(…). In OnlyArrays, look up "
    "the whole pair in the set before you call super(), which imports the module. A name with a dot may lead anywhere.",
    beside=True,
)
def only_arrays(cls: Any, rng: np.random.Generator) -> str:
    """Write an unpickler that loads NumPy arrays of numbers and refuses every other function and class."""
    known = isinstance(cls, type) and issubclass(cls, pickle.Unpickler) and cls is not pickle.Unpickler
    refuse_if(not known, f"Expected your class OnlyArrays, on pickle.Unpickler, got {cls!r}.")
    _loads(cls, rng)
    needed = _needed(rng)
    apart = [(module, name, ()) for module in {m for m, _ in needed} for name in {n for _, n in needed}]
    functions = [name for name in dir(np) if isinstance(getattr(np, name), np.ufunc)]
    drawn: list[Present] = [("numpy", name, ()) for name in rng.choice(functions, 5).tolist()]
    with _trap(rng) as strange:
        unknown: list[Present] = [(module, name, ()) for module in strange for name in sorted({n for _, n in needed})]
        presents = [*PRESENTS, *drawn, *unknown, *(one for one in apart if one[:2] not in needed)]
        for module, name, texts in presents * 2:  # a refusal lasts
            for before in (b"", pickle.dumps(rng.normal(size=(2, 3)), 4)[11:-1]):  # alone, or after an array
                _refuses(cls, module, name, texts, before)
    _loads(cls, rng)
    return f"Arrays came back exactly, and {len(presents)} presents were refused before anything was imported or ran."


def _loads(cls: Any, rng: np.random.Generator) -> None:
    """Refuse an unpickler unless arrays come back exactly, alone or with others around them."""
    arrays = _arrays(rng)
    for array in arrays:
        for protocol in (4, 5):
            with case(f"{described(array)}, protocol {protocol}:"):
                name, other = drawn_names(rng, 2)
                data = pickle.dumps({name: array, other: [arrays[0], (1, "text")]}, protocol)
                back, wanted = cls(io.BytesIO(data)).load(), pickle.loads(data)  # safe: these are our own
                refuse_if(not (isinstance(back, dict) and [*back] == [name, other]), f"it loaded {back!r}.")
                same = same_bits(back[name], wanted[name]) and same_bits(back[other][0], arrays[0])
                refuse_if(not same, "the array is not the same to the bit.")


def _arrays(rng: np.random.Generator) -> list[Any]:
    """Return arrays of every dtype and in every memory layout."""
    shape = tuple(rng.integers(3, 7, 2).tolist())
    square = 100 * rng.normal(size=shape)
    kinds = [square.astype(f"{rng.choice(['<', '>'])}{dtype}") for dtype in DTYPES]
    layouts = [square[0], np.asfortranarray(square), square[::2, 1:], square[::-1], np.broadcast_to(square[0], shape)]
    return [*kinds, *layouts, np.zeros((0, 2)), np.asarray(square[0, 0]), rng.normal(size=(2, 1, 3, 2))]


def _needed(rng: np.random.Generator) -> set[tuple[str, str]]:
    """Return the modules and names that arrays need here."""
    found = set()

    class Learning(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            found.add((module, name))
            return super().find_class(module, name)

    for array in _arrays(rng):
        for protocol in (4, 5):
            Learning(io.BytesIO(pickle.dumps(array, protocol))).load()
    return found


class _Trap(MetaPathFinder, Loader):
    """Modules that nobody has imported yet. Importing one is noted in `RAN`; each has whatever name is asked for."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in self.names else None

    def exec_module(self, module: ModuleType) -> None:
        RAN.append(1)
        vars(module)["__getattr__"] = lambda name: dict


@contextmanager
def _trap(rng: np.random.Generator) -> Iterator[list[str]]:
    """Yield names of modules that a stranger may have left on the disk, most of which look like NumPy's."""
    mark = f"{rng.integers(2**40):x}"
    names = [f"stranger_{mark}", f"numpy_{mark}", f"numpy.stranger_{mark}"]
    names += [f"stranger_{mark}_numpy", f"stranger_{mark}_multiarray", f"stranger_{mark}_numeric"]
    sys.meta_path.append(trap := _Trap(names))
    try:
        yield names
    finally:
        sys.meta_path.remove(trap)
        for name in names:
            if sys.modules.pop(name, None) and name.startswith("numpy."):
                delattr(np, name.partition(".")[2])


def _refuses(cls: Any, module: str, name: str, texts: tuple[str, ...], before: bytes) -> None:
    """Refuse an unpickler unless it refuses a pickle that calls this function, before it is imported or called."""
    RAN.clear()
    with case(f"A pickle that calls {module}.{name}{', after an array' if before else ''}:"):
        try:
            cls(io.BytesIO(present(module, name, *texts, before=before))).load()
        except pickle.UnpicklingError:
            refuse_if(RAN, "it was refused, but only after its module had been imported or its function called.")
            return
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
            raise Refused(f"it was looked up or called, and raised {told}. Refuse it before that.") from None
        raise Refused("it was loaded. Expected an UnpicklingError.")


def present(module: str, name: str, *texts: str, before: bytes = b"") -> bytes:
    """Return a pickle of a list of what ``before`` makes and of what a module's function makes of texts; a dict
    replaces an empty text.
    """
    arguments = b"".join(b"}" if not text else _text(text) for text in texts)
    return b"\x80\x04(" + before + _text(module) + _text(name) + b"\x93(" + arguments + b"tRl."


def _text(text: str) -> bytes:
    data = text.encode()
    return b"X" + struct.pack("<I", len(data)) + data


@asks(
    "stranger.2",
    "zlib.decompress makes all the bytes. zlib.decompressobj() can stop early: its decompress has a second argument.",
    "Let it make at most one byte more than the limit. If it makes that byte, the frame is too large.",
    "stream.eof is True once the end of the stream was read. If it is False, bytes are missing. Turn a zlib.error into "
    "a ValueError.",
    beside=True,
)
def inflate(function: Any, rng: np.random.Generator) -> str:
    """Inflate bytes compressed by zlib, without ever producing more bytes than the limit."""
    refuse_if(not callable(function), f"Expected the function inflate(data, limit), got {function!r}.")
    for size in (0, 1, 1_000_000, *rng.integers(2, 50_000, 6).tolist()):
        values = int(rng.integers(2, 256)) if size < 1_000_000 else 1  # zeros become a thousand times as many
        data = bytes(rng.integers(0, values, size, dtype=np.uint8))
        frame = zlib.compress(data, int(rng.integers(0, 10)) if values > 1 else 9)
        for limit in (size, size + 1, 2 * size + 100):
            with case(f"{len(frame)} bytes that become {size}, limit {limit}:"), _at_most(limit + 1):
                got = function(frame, limit)
                refuse_if(not isinstance(got, bytes | bytearray), f"it returned a {type(got).__name__}, not bytes.")
                refuse_if(bytes(got) != data, "it returned other bytes than were compressed.")
        for limit in {0, size // 2, size - 1} if size else ():
            with (
                case(f"{len(frame)} bytes that become {size}, limit {limit}:"),
                _at_most(limit + 1),
                raising(ValueError),
            ):
                function(frame, limit)
    flipped = [
        (int(at), int(by)) for at, by in zip(rng.integers(0, len(frame), 20), rng.integers(1, 256, 20), strict=True)
    ]
    for what, broken in (
        ("cut short", frame[: len(frame) // 2]),
        *((f"without their last {n} bytes", frame[:-n]) for n in (1, 2, 4, 5)),
        *((f"changed in byte {at}", _changed(frame, at, by)) for at, by in [*flipped, (len(frame) - 1, 1)]),
        ("no zlib stream", rng.bytes(100)),
        ("empty", b""),
    ):
        with case(f"Bytes that are {what}:"), raising(ValueError):
            function(broken, 10**6)
    bomb = zlib.compress(bytes(50_000_000), 9)
    for limit in (0, 100_000):
        with case(f"A frame of {len(bomb)} bytes that become 50,000,000, limit {limit}:"):
            most = _peak(function, bomb, limit)
            refuse_if(most > 2_000_000, f"it took {most / 1e6:.0f} MB of memory before it was refused.")
    return f"Each limit holds to the byte, and a frame that unpacks to 50 MB took {most / 1e6:.1f} MB of memory."


def _changed(data: bytes, at: int, by: int) -> bytes:
    """Return the bytes with another one at this index."""
    return data[:at] + bytes([data[at] ^ by]) + data[at + 1 :]


class _Stream:
    """A stream of zlib's that counts the bytes that it makes."""

    def __init__(self, stream: Any, made: list[int]) -> None:
        self._stream, self._made = stream, made

    def decompress(self, data: bytes, /, max_length: int = 0) -> bytes:
        return self._note(self._stream.decompress(data, max_length))

    def flush(self, *length: int) -> bytes:
        return self._note(self._stream.flush(*length))

    def copy(self) -> "_Stream":
        return _Stream(self._stream.copy(), self._made)

    def _note(self, data: bytes) -> bytes:
        self._made.append(len(data))
        return data

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _at_most(most: int) -> Iterator[None]:
    """Raise `Refused` if zlib makes more bytes in the ``with`` block."""
    made: list[int] = []
    whole, stream = zlib.decompress, zlib.decompressobj

    def decompress(data: bytes, /, *options: Any, **more: Any) -> bytes:
        made.append(len(inflated := whole(data, *options, **more)))
        return inflated

    zlib.decompress = decompress  # type: ignore[assignment]
    zlib.decompressobj = lambda *options, **more: _Stream(stream(*options, **more), made)  # type: ignore[assignment]
    try:
        yield
    finally:
        zlib.decompress, zlib.decompressobj = whole, stream
    refuse_if(sum(made) > most, f"it produced {sum(made)} bytes, at most {most} are allowed.")


def _peak(function: Callable[[bytes, int], Any], data: bytes, limit: int) -> int:
    """Return the peak memory, in bytes, of a call that must raise ValueError."""
    traced = tracemalloc.is_tracing()
    if not traced:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        with raising(ValueError):
            function(data, limit)
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        if not traced:
            tracemalloc.stop()
