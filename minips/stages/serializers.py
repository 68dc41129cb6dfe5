"""Serializers: from a packet to frames, and back.

A **Packet** is a message whose arrays are quantized. Its header holds plain values (None, bool, int, float, str, lists
and dicts of them); ``tensors`` holds, for each name, the quantizer's name and its parts. **Frames** are the buffers
that travel: where the format allows, each array is a frame of its own, a view of the array's memory and not a copy.

The contract is `Serializer`. Bytes from the network are not to be believed: ``loads`` raises ValueError for anything
malformed.
"""

import json
import pickle
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import msgpack
import numpy as np

from minips.stage import Array, Buffer, Frames, Stage, register
from minips.stages.quantizers import Parts


@dataclass(frozen=True, eq=False)
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
        index, frames = outline(packet, lambda x: [x.dtype.name, x.shape])
        return [msgpack.packb([packet.header, index]), *map(raw, frames)]

    def loads(self, frames: Frames) -> Packet:
        rest = iter(frames[1:])

        def array(entry: Any) -> Array:
            dtype, shape = entry
            frame = next(rest, None)
            if frame is None:
                raise ValueError("there are fewer frames than parts")
            return np.frombuffer(frame, array_dtype(dtype).newbyteorder("<")).reshape(shape)

        with _Malformed("MessagePack"):
            header, index = msgpack.unpackb(frames[0])
            return restore(header, index, array)


@register
@dataclass(frozen=True)
class Json(Serializer):
    """JSON text, as the web does it: each number in decimal digits, about twenty bytes for a double's eight. RFC 8259.

    Floats come back exactly, because Python prints the shortest digits that do.
    """

    name = "json"

    def dumps(self, packet: Packet) -> Frames:
        index, _ = outline(packet, lambda x: [x.dtype.name, x.shape, x.reshape(-1).tolist()])
        return [json.dumps([packet.header, index], separators=(",", ":")).encode()]

    def loads(self, frames: Frames) -> Packet:
        def array(entry: Any) -> Array:
            dtype, shape, values = entry
            return np.array(values, array_dtype(dtype)).reshape(shape)

        with _Malformed("JSON"):
            header, index = json.loads(bytes(frames[0]))
            return restore(header, index, array)


@register
@dataclass(frozen=True)
class Pickle(Serializer):
    """Python's own format, protocol 5 with the arrays out of band, so that they are not copied (PEP 574).

    Reading a pickle runs whatever its writer put in. A server takes it only from an authenticated peer, and only where
    its own config names it.
    """

    name = "pickle"
    trusted_only = True

    def dumps(self, packet: Packet) -> Frames:
        arrays: list[pickle.PickleBuffer] = []
        head = pickle.dumps((packet.header, packet.tensors), protocol=5, buffer_callback=arrays.append)
        return [head, *(array.raw() for array in arrays)]

    def loads(self, frames: Frames) -> Packet:
        with _Malformed("pickle"):
            header, tensors = pickle.loads(frames[0], buffers=frames[1:])
            return Packet(dict(header), dict(tensors))


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
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data


def array_dtype(name: Any) -> "np.dtype[Any]":
    """The dtype of that name; ValueError for any but plain numbers and truth values."""
    try:
        dtype = np.dtype(name) if isinstance(name, str) else None
    except (TypeError, SyntaxError):
        dtype = None
    if dtype is None or dtype.kind not in "biuf":
        raise ValueError(f"{name!r} is not a dtype of numbers")
    return dtype


class _Malformed:
    """Turns whatever goes wrong while reading into one ValueError that names the format."""

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception):
            raise ValueError(f"The frames are not a packet in {self.what}: {error}.") from error
