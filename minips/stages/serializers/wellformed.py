"""Checks of a packet's bytes, in any format, before they are turned into arrays."""

import reprlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from math import prod
from typing import Any

import msgpack
import numpy as np

from minips.stage import Array, Buffer

DTYPES = {np.dtype(code).name: np.dtype(code).newbyteorder("<") for code in np.typecodes["AllInteger"] + "efdg?"}
"""The dtypes of a message's arrays, by name."""
MOST_PARTS = 2**16
"""The largest number of tensors, and of parts, in one packet."""
MOST_LISTS = 4 * MOST_PARTS
"""The most lists and maps in a MessagePack packet: a list of one byte can take about seventy bytes of memory."""


class MalformedError(ValueError):
    """Raised if a packet's bytes are wrong. Its text states the fault, and completes the sentence of `reading`."""


@contextmanager
def reading(what: str, rest: Iterable[Buffer] = ()) -> Iterator[None]:
    """Turn any error while reading into a ValueError that names the format ``what``. It is also an error if frames are
    left in ``rest`` at the end.
    """
    try:
        yield
        if next(iter(rest), None) is not None:
            raise MalformedError("there are more frames than parts")
    except Exception as error:
        deep = isinstance(error, RecursionError | msgpack.StackError)
        known = str(error) if isinstance(error, MalformedError) else "nested too deeply" if deep else "malformed bytes"
        raise ValueError(f"The frames are not a packet in {what}: {known}.") from error


def next_frame(frames: Iterator[Buffer]) -> Buffer:
    """The next frame. Raises MalformedError if there is none."""
    if (frame := next(frames, None)) is None:
        raise MalformedError("there are fewer frames than parts")
    return frame


def unpack_head(head: Buffer) -> Any:
    """The values of a MessagePack head. Raises MalformedError for too many lists and maps, or for a repeated key."""
    number = count()

    def counted(made: Any) -> Any:
        if next(number) > MOST_LISTS:
            raise MalformedError(f"there are more than {MOST_LISTS} lists and maps")
        return made

    return msgpack.unpackb(head, list_hook=counted, object_pairs_hook=lambda pairs: unique_keys(counted(pairs)))


def unique_keys(pairs: Sequence[tuple[Any, Any]]) -> dict[Any, Any]:
    """The pairs as a dict. Raises MalformedError if a key occurs twice."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise MalformedError("a key occurs twice in a map")
    return made


def check_outline(header: Any, index: Any) -> None:
    """Raise MalformedError unless these are a dict and ``[[name, quantizer, [[part, …], …]], …]`` with unique names."""
    if not isinstance(header, dict):
        raise MalformedError("the header is not a map")
    if len(index) > MOST_PARTS or sum(len(parts) for _, _, parts in index) > MOST_PARTS:
        raise MalformedError(f"there are more than {MOST_PARTS} tensors or parts")
    names = set()
    for name, quantizer, parts in index:
        if not (isinstance(name, str) and isinstance(quantizer, str)):
            raise MalformedError("a tensor's name or its quantizer's is not text")
        if name in names or len({part for part, *_ in parts}) != len(parts):
            raise MalformedError(f"the tensor {quote(name)}, or a part of it, occurs twice")
        names.add(name)


def in_shape(values: Array, shape: Any) -> Array:
    """The values in this shape. Raises MalformedError unless the shape is whole numbers ≥ 0 and has that size."""
    sizes = [*shape]
    if any(type(n) is not int or n < 0 for n in sizes) or prod(sizes) != values.size:
        raise MalformedError(f"{values.size} values do not have the shape {quote(sizes)}")
    return values.reshape(sizes)


def array_dtype(name: Any) -> "np.dtype[Any]":
    """The little-endian dtype with this name. Raises MalformedError unless it holds numbers or truth values."""
    if not isinstance(name, str) or name not in DTYPES:
        raise MalformedError(f"{quote(name)} is not a dtype of numbers")
    return DTYPES[name]


_BRIEF = reprlib.Repr()
_BRIEF.maxstring = _BRIEF.maxother = 98


def quote(value: object) -> str:
    """A peer's value as text for an error: up to 100 characters of its repr.

    >>> quote("a"), len(quote("a" * 10**7))
    ("'a'", 98)
    """
    return f"{_BRIEF.repr(value[:98] if isinstance(value, bytes) else value):.100}"
