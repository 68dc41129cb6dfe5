"""Serializers: from a packet to frames, and back.

A **Packet** is a message whose arrays are quantized. Its header holds plain values (None, bool, int, float, str, lists
and dicts of them); ``tensors`` holds, for each name, the quantizer's name and its parts. **Frames** are the buffers
that travel: where the format allows, each array is a frame of its own, a view of the array's memory and not a copy.

The contract is `Serializer`. Bytes from the network are not trusted: ``loads`` raises ValueError for malformed ones.
"""

import io
import json
import pickle
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any, ClassVar

import msgpack
import numpy as np

from minips.stage import Array, Buffer, Frames, Stage, reason, register
from minips.stages.quantizers import Parts

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

        with _reading("MessagePack"):
            header, index = msgpack.unpackb(_following(rest))
            return restore(header, index, array)


@register
@dataclass(frozen=True)
class Json(Serializer):
    """JSON text, as the web does it: each number in decimal digits, about twenty bytes for a double's eight. RFC 8259.

    Floats come back exactly, because Python prints the shortest digits that do.
    """

    name = "json"

    def dumps(self, packet: Packet) -> Frames:
        index, _ = outline(packet, lambda x: [dtype_name(x.dtype), x.shape, x.reshape(-1).tolist()])
        return [json.dumps([packet.header, index], separators=(",", ":")).encode()]

    def loads(self, frames: Frames) -> Packet:
        def array(entry: Any) -> Array:
            dtype, shape, values = entry
            return np.array(values, array_dtype(dtype)).reshape(shape)

        with _reading("JSON"):
            header, index = json.loads(bytes(frames[0]))
            return restore(header, index, array)


@register
@dataclass(frozen=True)
class Pickle(Serializer):
    """Python's own format, protocol 5 with the arrays out of band, so that they are not copied (PEP 574).

    Reading a pickle runs any code that it holds: a server takes it from authenticated peers, where its config names it.
    """

    name = "pickle"
    trusted_only = True

    def dumps(self, packet: Packet) -> Frames:
        arrays: list[pickle.PickleBuffer] = []
        head = pickle.dumps((packet.header, packet.tensors), protocol=5, buffer_callback=arrays.append)
        return [head, *(array.raw() for array in arrays)]

    def loads(self, frames: Frames) -> Packet:
        with _reading("pickle"):
            header, tensors = pickle.loads(frames[0], buffers=frames[1:])
            return Packet(dict(header), dict(tensors))


@register
@dataclass(frozen=True)
class Npy(Serializer):
    """NumPy's own file format for each array, JSON for the rest.

    The first frame is ``[header, [[name, quantizer, [[part], …]], …]]``; each array is two frames, which put together
    are a .npy file of version 1.0: its header, and its values, uncopied. Source: NumPy enhancement proposal 1.
    """

    name = "npy"

    def dumps(self, packet: Packet) -> Frames:
        index, arrays = outline(packet, lambda x: [])
        frames: Frames = [json.dumps([packet.header, index], separators=(",", ":")).encode()]
        for array in arrays:
            array, head = np.asarray(array, array.dtype.newbyteorder("<"), order="C"), io.BytesIO()
            np.lib.format.write_array_header_1_0(head, np.lib.format.header_data_from_array_1_0(array))
            frames += [head.getvalue(), raw(array)]
        return frames

    def loads(self, frames: Frames) -> Packet:
        rest = iter(frames[1:])

        def array(entry: Any) -> Array:
            head = io.BytesIO(bytes(next(rest, b"")))
            np.lib.format.read_magic(head)
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(head)
            array_dtype(dtype.name)
            return np.frombuffer(next(rest, b""), dtype).reshape(shape, order="F" if fortran else "C")

        with _reading("npy"):
            header, index = json.loads(bytes(frames[0]))
            return restore(header, index, array)


@register
@dataclass(frozen=True)
class Protobuf(Serializer):
    """Protocol Buffers, as gRPC services speak it, from a schema that is built when it is first used; no compiler step.

    ``Packet {string header = 1; repeated Tensor tensors = 2}``, ``Tensor {string name = 1; string quantizer = 2;
    repeated Part parts = 3}``, ``Part {string name = 1; string dtype = 2; repeated int64 shape = 3; bytes values =
    4}``. The header is JSON. All is one frame, so every array is copied on the way in and once more on the way out; no
    message may exceed 2 GiB. Source: the Protocol Buffers language guide (proto3).
    """

    name = "protobuf"
    requires = ("google.protobuf",)
    extra = "codecs"

    def dumps(self, packet: Packet) -> Frames:
        message = _protobuf_packet()(header=json.dumps(packet.header))
        for name, (quantizer, parts) in packet.tensors.items():
            tensor = message.tensors.add(name=name, quantizer=quantizer)
            for part, array in parts.items():
                tensor.parts.add(name=part, dtype=dtype_name(array.dtype), shape=array.shape, values=bytes(raw(array)))
        return [message.SerializeToString()]

    def loads(self, frames: Frames) -> Packet:
        def array(entry: Any) -> Array:
            (part,) = entry
            return np.frombuffer(part.values, array_dtype(part.dtype)).reshape(tuple(part.shape))

        with _reading("Protocol Buffers"):
            message = _protobuf_packet().FromString(bytes(frames[0]))
            index = [[one.name, one.quantizer, [[part.name, part] for part in one.parts]] for one in message.tensors]
            return restore(json.loads(message.header), index, array)


@register
@dataclass(frozen=True)
class SafeTensors(Serializer):
    """safetensors, the format of model files that cannot run code: a JSON header, and the values behind it.

    The arrays are named 0, 1, …; the metadata's ``packet`` is ``[header, [[name, quantizer, [[part, array], …]], …]]``
    as JSON. One frame, so each array is copied on the way in, not out. Source: huggingface.co/docs/safetensors.
    """

    name = "safetensors"
    requires = ("safetensors",)
    extra = "codecs"

    def dumps(self, packet: Packet) -> Frames:
        from safetensors.numpy import save

        numbers = count()
        index, arrays = outline(packet, lambda x: [str(next(numbers))])
        metadata = {"packet": json.dumps([packet.header, index], separators=(",", ":"))}
        return [save({str(number): np.asarray(x, order="C") for number, x in enumerate(arrays)}, metadata)]

    def loads(self, frames: Frames) -> Packet:
        from safetensors.numpy import load

        with _reading("safetensors"):
            data = bytes(frames[0])
            length = int.from_bytes(data[:8], "little")
            header, index = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["packet"])
            arrays = load(data)
            return restore(header, index, lambda entry: arrays[entry[0]])


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
def _reading(what: str) -> Iterator[None]:
    """Turns whatever goes wrong while reading into one ValueError that names the format."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"The frames are not a packet in {what}: {reason(error).rstrip('.')}.") from error


@cache
def _protobuf_packet() -> Any:
    """The class of the Packet message, made of `_SCHEMA` in place of a .proto file."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    schema = descriptor_pb2.FileDescriptorProto(name="minips.proto", package="minips", syntax="proto3")
    for message, fields in _SCHEMA.items():
        made = schema.message_type.add(name=message).field
        for number, (label, kind, name) in enumerate(map(str.split, fields), 1):
            field = made.add(number=number, name=name, label=f"LABEL_{label.upper()}")
            if kind in _SCHEMA:
                field.type_name = f".minips.{kind}"
            else:
                field.type = field.Type.Value(f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(schema)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("minips.Packet"))


_SCHEMA = {
    "Part": ["optional string name", "optional string dtype", "repeated int64 shape", "optional bytes values"],
    "Tensor": ["optional string name", "optional string quantizer", "repeated Part parts"],
    "Packet": ["optional string header", "repeated Tensor tensors"],
}
