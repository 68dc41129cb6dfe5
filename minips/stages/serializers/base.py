"""The contract of a serializer, which turns a packet into frames and back, and MessagePack, the default.

A **Packet** is a message whose arrays are quantized. Its header holds plain values (None, bool, int, float, str, lists
and dicts of them); ``tensors`` maps each name to the quantizer's name and its parts. **Frames** are the buffers of a
message. If the format allows it, each array is its own frame: a view of the array's memory, not a copy.

The contract is `Serializer`. Bytes from the network are not trusted: ``loads`` raises ValueError for malformed bytes.
"""

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import msgpack
import numpy as np

from minips.stage import Array, Buffer, Frames, Stage, register
from minips.stages.quantizers.base import Parts
from minips.stages.serializers.wellformed import array_dtype, check_outline, in_shape, next_frame, reading, unpack_head


@dataclass(eq=False, slots=True)
class Packet:
    """A header of plain values, and a dict that maps each tensor's name to ``(quantizer name, parts)``."""

    header: dict[str, Any]
    tensors: dict[str, tuple[str, Parts]]


class Serializer(Stage):
    """The contract. A format whose reader can run code sets ``trusted_only``."""

    kind: ClassVar[str] = "serializer"
    trusted_only: ClassVar[bool] = False
    most_bytes: ClassVar[float] = math.inf
    """The largest total size of all arrays, in bytes, that the format or its library supports."""
    indexed: ClassVar[bool] = False
    """True if the frames are those of `MsgPack`: a header and an index in the first, an array in each other frame."""
    of_methods = {"indexed": ("dumps", "loads")}

    @abstractmethod
    def dumps(self, packet: Packet) -> Frames:
        """The frames of a packet. They may share memory with its arrays."""

    @abstractmethod
    def loads(self, frames: Frames) -> Packet:
        """The packet in the frames. Its arrays may share their memory. Raises ValueError for malformed frames."""


@register
@dataclass(frozen=True)
class MsgPack(Serializer):
    """MessagePack for header and names, raw little-endian frames for the arrays.

    The first frame is ``[header, [[name, quantizer, [[part, dtype, shape], …]], …]]``; one frame for each
    part follows, in that order, uncopied. Source: the MessagePack specification, msgpack.org.
    """

    name = "msgpack"
    indexed = True

    def dumps(self, packet: Packet) -> Frames:
        index, arrays = outline(packet, lambda x: [dtype_name(x.dtype), x.shape])
        return [msgpack.packb([packet.header, index]), *map(raw, arrays)]

    def loads(self, frames: Frames) -> Packet:
        rest = iter(frames)

        def array(entry: Any) -> Array:
            dtype, shape = entry
            return in_shape(np.frombuffer(dtype=array_dtype(dtype), buffer=next_frame(rest)), shape)

        with reading("MessagePack", rest):
            header, index = unpack_head(next_frame(rest))
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
    """The packet with this outline; ``array`` makes each array from what ``describe`` returned for it."""
    check_outline(header, index)
    tensors = {}
    for name, quantizer, parts in index:
        tensors[name] = (quantizer, {part: array(entry) for part, *entry in parts})
    return Packet(header, tensors)


def raw(array: Array) -> Buffer:
    """The bytes of an array in C order and little-endian; a view if the array is already stored in this way."""
    if not (array.flags.c_contiguous and is_little(array.dtype)):
        array = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return np.frombuffer(array, np.uint8).data


@cache
def is_little(dtype: "np.dtype[Any]") -> bool:
    """True if each value's least significant byte comes first, or each value has only one byte."""
    return dtype == dtype.newbyteorder("<")


@cache
def dtype_name(dtype: "np.dtype[Any]") -> str:
    """The dtype's name. It is cached, since NumPy computes it anew each time."""
    return dtype.name
