"""The exercises of "Open a stranger's bytes"."""

import io
import pickle
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from minips.lab.course.exercises import Refused, asks, case, raising, refuse_if
from minips.testing.base import described, same_bits

RAN: list[int] = []
"""Numbers that a stranger's text appended when it was run during a check."""
_TEXT = f"import {__name__} as _m; _m.RAN.append(1)"
PRESENTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
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
    ("collections", "OrderedDict", ()),
)
"""The module, name and arguments of each function that a stranger's pickle calls. All of them are harmless."""


@asks(
    "stranger.1",
    "find_class receives the module and the name as strings. A set of such pairs can be the whole filter.",
    "Which pairs does an array need? Write an unpickler that collects the pairs while it loads pickles of your own "
    "arrays. Use protocols 4 and 5, and also an array that is not contiguous in memory, such as x[::2, 1:].",
    "First fill the set, with a class that adds each pair and returns super().find_class(…). In OnlyArrays, look up "
    "the whole pair in the set: a name that contains a dot may lead anywhere.",
)
def only_arrays(cls: Any, rng: np.random.Generator) -> str:
    """Write an unpickler that loads NumPy arrays of numbers and refuses every other function and class."""
    known = isinstance(cls, type) and issubclass(cls, pickle.Unpickler) and cls is not pickle.Unpickler
    refuse_if(not known, f"Expected your class OnlyArrays, on pickle.Unpickler, got {cls!r}.")
    for array in _arrays(rng):
        for protocol in (4, 5):
            with case(f"{described(array)}, protocol {protocol}:"):
                back = cls(io.BytesIO(pickle.dumps({"W": array}, protocol))).load()
                refuse_if(not (isinstance(back, dict) and [*back] == ["W"]), f"it loaded {back!r}.")
                refuse_if(not same_bits(back["W"], array), "the array is not the same to the bit.")
    functions = [name for name in dir(np) if isinstance(getattr(np, name), np.ufunc)]
    drawn: list[tuple[str, str, tuple[str, ...]]] = [("numpy", name, ()) for name in rng.choice(functions, 5).tolist()]
    for module, name, texts in (*PRESENTS, *drawn):
        _refuses(cls, module, name, texts)
    return f"Arrays came back exactly, and {len(PRESENTS) + len(drawn)} presents were refused before anything ran."


def _arrays(rng: np.random.Generator) -> list[Any]:
    """Return arrays in every memory layout."""
    shape = tuple(rng.integers(3, 7, 2).tolist())
    square = 100 * rng.normal(size=shape)
    kinds = [square.astype(dtype) for dtype in rng.choice(["f4", "f8", "f2", "i1", "i4", "u8", "?"], 3)]
    return [*kinds, square[0], np.asfortranarray(square), square[::2, 1:], np.zeros((0, 2)), np.asarray(square[0, 0])]


def _refuses(cls: Any, module: str, name: str, texts: tuple[str, ...]) -> None:
    """Refuse an unpickler unless it refuses a pickle that calls this function, before the function is called."""
    RAN.clear()
    with case(f"A pickle that calls {module}.{name}:"):
        try:
            cls(io.BytesIO(present(module, name, *texts))).load()
        except pickle.UnpicklingError:
            refuse_if(RAN, "it was refused, but only after its function had been called.")
            return
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
            raise Refused(f"it was called, and raised {told}. Expected an UnpicklingError before that.") from None
        raise Refused("it was loaded. Expected an UnpicklingError.")


def present(module: str, name: str, *texts: str) -> bytes:
    """Return a pickle of ``{"W": …}`` that calls a module's function with texts; a dict replaces an empty text."""
    arguments = b"".join(b"}" if not text else _text(text) for text in texts)
    return b"\x80\x04}" + _text("W") + _text(module) + _text(name) + b"\x93(" + arguments + b"tRs."


def _text(text: str) -> bytes:
    data = text.encode()
    return b"X" + struct.pack("<I", len(data)) + data


@asks(
    "stranger.2",
    "zlib.decompress makes all the bytes. zlib.decompressobj() can stop early: its decompress has a second argument.",
    "Let it make at most one byte more than the limit. If it makes that byte, the frame is too large.",
    "stream.eof is True once the end of the stream was read. If it is False, bytes are missing. Turn a zlib.error into "
    "a ValueError.",
)
def inflate(function: Any, rng: np.random.Generator) -> str:
    """Inflate bytes compressed by zlib, without ever producing more bytes than the limit."""
    refuse_if(not callable(function), f"Expected the function inflate(data, limit), got {function!r}.")
    for size in (0, 1, *rng.integers(2, 50_000, 6).tolist()):
        data = bytes(rng.integers(0, 4, size, dtype=np.uint8))
        frame = zlib.compress(data)
        for limit in (size, size + 1, 2 * size + 100):
            with case(f"{len(frame)} bytes that become {size}, limit {limit}:"):
                refuse_if(bytes(function(frame, limit)) != data, "it returned other bytes than were compressed.")
        for limit in {0, size // 2, size - 1} if size else ():
            with case(f"{len(frame)} bytes that become {size}, limit {limit}:"), raising(ValueError):
                function(frame, limit)
    for what, broken in (
        ("cut short", frame[: len(frame) // 2]),
        ("without their last byte", frame[:-1]),
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
