"""The index that the messages of a link have in common, made and parsed once.

From step to step the arrays of a link keep their names, quantizers, dtypes and shapes; their values change, and a few
numbers in the header. `MsgPack` writes all that stays into the index, the second half of its first frame. A `Plan`
keeps the last index: a message that has it too is written and read without making or parsing it again, every other one
in the general way. Bytes and errors are the same on both ways.
"""

from typing import Any, Protocol

import msgpack
import numpy as np

from minips.stage import Frames
from minips.stages.quantizers import Parts
from minips.stages.serializers import MsgPack, Packet, Serializer, is_little

_GENERAL, _PAIR = MsgPack(), b"\x92"
"""The general way, and the first byte of MessagePack's array of two."""
_Part = tuple[str, str, str, "np.dtype[Any]", tuple[int, ...]]
"""Tensor, quantizer, part, dtype and shape of a frame after the first."""


class Format(Protocol):
    """A way from packets to frames and back."""

    def dumps(self, packet: Packet) -> Frames: ...
    def loads(self, frames: Frames) -> Packet: ...


def planned(serializer: Serializer) -> Format:
    """The serializer for one end of a link, which either writes or reads."""
    return Plan() if type(serializer) is MsgPack else serializer


class Plan:
    """`MsgPack` that keeps the last index, and the parts that it tells of."""

    def __init__(self) -> None:
        self._written: tuple[bytes, list[_Part]] = b"\x90", []
        self._read = self._written

    def dumps(self, packet: Packet) -> Frames:
        index, known = self._written
        frames: Frames = [b""]
        try:
            for name, (quantizer, parts) in packet.tensors.items():
                if not parts:
                    return self._write(packet)
                for part, x in parts.items():
                    if known[len(frames) - 1] != (name, quantizer, part, x.dtype, x.shape):
                        return self._write(packet)
                    frames.append(x.data.cast("B"))
        except (IndexError, TypeError, ValueError):  # more parts, or values that are no row of plain numbers
            return self._write(packet)
        if len(frames) <= len(known):
            return self._write(packet)
        frames[0] = _PAIR + msgpack.packb(packet.header) + index
        return frames

    def loads(self, frames: Frames) -> Packet:
        index, known = self._read
        try:
            head = frames[0]
            stop = len(head) - len(index)
            if head[stop:] == index and head[:1] == _PAIR:
                header: Any = msgpack.unpackb(head[1:stop])
                tensors: dict[str, tuple[str, Parts]] = {}
                for number, (name, quantizer, part, dtype, shape) in enumerate(known, 1):
                    x = np.ndarray(shape, dtype, frames[number])
                    if x.nbytes != len(frames[number]):
                        raise ValueError("the frame is longer than the part")
                    if name in tensors:
                        tensors[name][1][part] = x
                    else:
                        tensors[name] = quantizer, {part: x}
                if type(header) is dict:
                    return Packet(header, tensors)
        except Exception:  # the general way says what is wrong
            pass
        return self._parse(frames)

    def _write(self, packet: Packet) -> Frames:
        """In the general way."""
        frames = _GENERAL.dumps(packet)
        described = _described(packet)
        if described is not None and all(is_little(dtype) for *_, dtype, _ in described):
            self._written = bytes(frames[0][len(_PAIR + msgpack.packb(packet.header)) :]), described
        return frames

    def _parse(self, frames: Frames) -> Packet:
        """In the general way."""
        packet = _GENERAL.loads(frames)
        if (described := _described(packet)) is not None:
            unpacker = msgpack.Unpacker()
            unpacker.feed(frames[0])
            unpacker.read_array_header()
            unpacker.skip()
            self._read = bytes(frames[0][unpacker.tell() :]), described
        return packet


def _described(packet: Packet) -> list[_Part] | None:
    """Each part; None where a tensor has none."""
    if not all(parts for _, parts in packet.tensors.values()):
        return None
    return [
        (name, quantizer, part, x.dtype, x.shape)
        for name, (quantizer, parts) in packet.tensors.items()
        for part, x in parts.items()
    ]
