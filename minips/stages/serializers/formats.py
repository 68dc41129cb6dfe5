"""Common formats as serializers: JSON, pickle, NumPy's files, Protocol Buffers, safetensors."""

import io
import json
import pickle
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any

import numpy as np

from minips.stage import Array, Buffer, Frames, register
from minips.stages.serializers.base import Packet, Serializer, dtype_name, outline, raw, restore
from minips.stages.serializers.wellformed import MOST_PARTS, MalformedError, array_dtype, in_shape, reading, unique_keys


@register
@dataclass(frozen=True)
class Json(Serializer):
    """JSON text, as on the web. Numbers are decimal digits: a double takes about 20 bytes, not 8. RFC 8259.

    Floats are restored exactly, because Python writes enough digits.
    """

    name = "json"

    def dumps(self, packet: Packet) -> Frames:
        index, _ = outline(packet, lambda x: [dtype_name(x.dtype), x.shape, x.reshape(-1).tolist()])
        return [json.dumps([packet.header, index], separators=(",", ":")).encode()]

    def loads(self, frames: Frames) -> Packet:
        def array(entry: Any) -> Array:
            dtype, shape, values = entry
            return in_shape(np.array(values, array_dtype(dtype)), shape)

        with reading("JSON", frames[1:]):
            header, index = _json(frames[0])
            return restore(header, index, array)


@register
@dataclass(frozen=True)
class Pickle(Serializer):
    """Python's own format, protocol 5. Arrays are sent out of band, so they are not copied (PEP 574).

    Reading a pickle runs any code in it. A server accepts pickles only if configured to, from authenticated peers.
    """

    name = "pickle"
    trusted_only = True

    def dumps(self, packet: Packet) -> Frames:
        arrays: list[pickle.PickleBuffer] = []
        head = pickle.dumps((packet.header, packet.tensors), protocol=5, buffer_callback=arrays.append)
        return [head, *(array.raw() for array in arrays)]

    def loads(self, frames: Frames) -> Packet:
        with reading("pickle"):
            header, tensors = pickle.loads(frames[0], buffers=frames[1:])
            return Packet(dict(header), dict(tensors))


@register
@dataclass(frozen=True)
class Npy(Serializer):
    """NumPy's own file format for each array, JSON for the rest.

    The first frame is ``[header, [[name, quantizer, [[part], …]], …]]``. Each array is two frames, which together are a
    .npy file of version 1.0: the header, and the values without a copy. Source: NumPy enhancement proposal 1.
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
            values = np.frombuffer(next(rest, b""), dtype)
            return in_shape(values, shape[::-1]).T if fortran else in_shape(values, shape)

        with reading("npy", rest):
            header, index = _json(frames[0])
            return restore(header, index, array)


@register
@dataclass(frozen=True)
class Protobuf(Serializer):
    """Protocol Buffers, as in gRPC services. The schema is built on first use, without a compiler step.

    ``Packet {string header = 1; repeated Tensor tensors = 2}``, ``Tensor {string name = 1; string quantizer = 2;
    repeated Part parts = 3}``, ``Part {string name = 1; string dtype = 2; repeated int64 shape = 3; bytes values =
    4}``. The header is JSON. The packet is one frame, so every array is copied when it is written and when it is read.
    A message is limited to 2 GiB. Source: the Protocol Buffers language guide (proto3).
    """

    name = "protobuf"
    requires = ("google.protobuf",)
    extra = "codecs"
    most_bytes = 2**31 - 1

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
            return in_shape(np.frombuffer(part.values, array_dtype(part.dtype)), part.shape)

        with reading("Protocol Buffers", frames[1:]):
            message = _protobuf_packet().FromString(bytes(frames[0]))
            if max(len(message.tensors), sum(len(one.parts) for one in message.tensors)) > MOST_PARTS:
                raise MalformedError(f"there are more than {MOST_PARTS} tensors or parts")
            index = [[one.name, one.quantizer, [[part.name, part] for part in one.parts]] for one in message.tensors]
            return restore(_json(message.header), index, array)


@register
@dataclass(frozen=True)
class SafeTensors(Serializer):
    """safetensors, a format for model files that cannot run code: a JSON header, then the values.

    The arrays are named 0, 1, …; the metadata's ``packet`` is ``[header, [[name, quantizer, [[part, array], …]], …]]``
    as JSON. There is one frame; arrays are copied only when written. Source: huggingface.co/docs/safetensors.
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

        with reading("safetensors", frames[1:]):
            data = bytes(frames[0])
            length = int.from_bytes(data[:8], "little")
            header, index = _json(_json(data[8 : 8 + length])["__metadata__"]["packet"])
            arrays = load(data)
            packet = restore(header, index, lambda entry: arrays.pop(entry[0]))
            if arrays:
                raise MalformedError("there are more arrays than parts")
            return packet


def _json(text: str | Buffer) -> Any:
    """Parse a JSON text. Raises MalformedError if a key occurs twice in a map."""
    return json.loads(text if isinstance(text, str) else bytes(text), object_pairs_hook=unique_keys)


@cache
def _protobuf_packet() -> Any:
    """The class of the Packet message, made from `_SCHEMA` instead of a .proto file."""
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
