"""The contract of a serializer, from a packet to frames and back, and the one that minips uses itself.

A **Packet** is a message whose arrays are quantized. Its header holds plain values (None, bool, int, float, str, lists
and dicts of them); ``tensors`` holds, for each name, the quantizer's name and its parts. **Frames** are the buffers
that travel: where the format allows, each array is a frame of its own, a view of the array's memory and not a copy.

The contract is `Serializer`. Bytes from the network are not trusted: ``loads`` raises ValueError for malformed ones.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import msgpack
import numpy as np

from minips.stage import Array, Buffer, Frames, Stage, reason, register
from minips.stages.quantizers.base import Parts

_DTYPES = {np.dtype(code).name: np.dtype(code).newbyteorder("<") for code in np.typecodes["AllInteger"] + "efdg?"}
"""The dtypes that travel, by name."""


@dataclass(eq=False, slots=True)
class Packet:
    """A header of plain values and, by tensor name, ``(quantizer name, parts)``."""

    header: dict[str, Any]
    tensors: dict[str, tuple[str, Parts]]


class Serializer(Stage):
    """The contract. A format that can run code when it is read says so with ``trusted_only``."""

    kind: ClassVar[str] = "serializer"
    trusted_only: ClassVar[bool] = False

    @abstractmethod
    def dumps(self, packet: Packet) -> Frames:
        """The frames of a packet. They may alias its arrays."""

    @abstractmethod
    def loads(self, frames: Frames) -> Packet:
        """The packet of the frames. Its arrays may alias them. ValueError where they are malformed."""


@register
@dataclass(frozen=True)
class MsgPack(Serializer):
    """MessagePack for what is small, raw little-endian frames for the arrays.

    The first frame is ``[header, [[name, quantizer, [[part, dtype, shape], …]], …]]``; then comes one frame for each
    part, in that order, uncopied. Source: the MessagePack specification, msgpack.org.
    """

    name = "msgpack"

    def dumps(self, packet: Packet) -> Frames:
        index, arrays = outline(packet, lambda x: [dtype_name(x.dtype), x.shape])
        return [msgpack.packb([packet.header, index]), *map(raw, arrays)]

    def loads(self, frames: Frames) -> Packet:
        rest = iter(frames)

        def array(entry: Any) -> Array:
            dtype, shape = entry
            return np.frombuffer(dtype=array_dtype(dtype), buffer=_following(rest)).reshape(shape)

        with reading("MessagePack"):
            header, index = msgpack.unpackb(_following(rest))
            return restore(header, index, array)


def outline(packet: Packet, describe: Callable[[Array], Any]) -> tuple[list[Any], list[Array]]:
    """``[[name, quantizer, [[part, *describe(array)], …]], …]`` of a packet, and its arrays in the same order."""
    arrays: list[Array] = []
    index = []
    for name, (quantizer, parts) in packet.tensors.items():
        index.append([name, quantizer, [[part, *describe(np.asarray(array))] for part, array in parts.items()]])
        arrays.extend(map(np.asarray, parts.values()))
    return index, arrays


def restore(header: Any, index: Any, array: Callable[[Any], Array]) -> Packet:
    """The packet of an outline; ``array`` makes an array of what ``describe`` said of it."""
    if not isinstance(header, dict):
        raise ValueError(f"the header is {type(header).__name__}, not a map")
    tensors = {}
    for name, quantizer, parts in index:
        if not (isinstance(name, str) and isinstance(quantizer, str)):
            raise ValueError("a tensor's name or its quantizer's is not text")
        tensors[name] = (quantizer, {part: array(entry) for part, *entry in parts})
    return Packet(header, tensors)


def raw(array: Array) -> Buffer:
    """The bytes of an array in C order, little-endian, as a view wherever they are so already."""
    if not (array.flags.c_contiguous and is_little(array.dtype)):
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return np.frombuffer(array, np.uint8).data


@cache
def is_little(dtype: "np.dtype[Any]") -> bool:
    """True where the least significant byte comes first, or there is but one."""
    return dtype == dtype.newbyteorder("<")


@cache
def dtype_name(dtype: "np.dtype[Any]") -> str:
    """The dtype's name, which NumPy puts together anew each time."""
    return dtype.name


def array_dtype(name: Any) -> "np.dtype[Any]":
    """The little-endian dtype of that name. ValueError for any but plain numbers and truth values."""
    try:
        return _DTYPES[name]
    except (KeyError, TypeError):
        raise ValueError(f"{name!r} is not a dtype of numbers") from None


def _following(frames: Iterator[Buffer]) -> Buffer:
    """The next frame. ValueError where there is none."""
    if (frame := next(frames, None)) is None:
        raise ValueError("there are fewer frames than parts")
    return frame


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turns whatever goes wrong while reading into one ValueError that names the format."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"The frames are not a packet in {what}: {reason(error).rstrip('.')}.") from error
