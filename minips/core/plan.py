"""The part of a message with exactly sent arrays that stays the same from step to step.

From one message of a sender to the next, arrays keep their names, dtypes and shapes; only their values and a few
numbers in the header change. `MsgPack` writes the constant part into the index, the second half of the frame after the
envelope; that frame is called the head here. A `Plan` keeps the last index of exactly sent arrays. It writes and reads
messages with the same index in one step. Other messages go through all stages, with the same bytes and errors.
"""

from typing import Any

import msgpack
import numpy as np

from minips.core.limits import is_plain
from minips.core.message import Header, Like, Message
from minips.results.trace import DECODE, PLANNED, Moments, Names, Trace
from minips.stage import CHANGES, DEFAULTS, Frames, Tensors
from minips.stages.serializers.base import Packet, is_little

_PAIR = b"\x92"  # the first byte of MessagePack's array of two
LEARNED_BYTES = 2**22  # the longest head that a plan keeps: enough for a message with the most tensors


class Plan:
    """The last index that was written or read, and the dtype and shape of each of its arrays, by name.

    Each encoder and each reader has one plan. A server reads all its connections with one plan, in several threads, so
    each attribute is one tuple, stored and read in one step. ``envelope`` is the first frame of each written message.
    An encoder writes one message at a time, so it keeps a packer once it has sent arrays.
    """

    def __init__(self, envelope: bytes = b"") -> None:
        self._envelope, self._pack = envelope, msgpack.packb
        self.opening: tuple[bytes | None, Header] = None, {}
        self.names: tuple[str, str] | None = None
        """The envelope's bytes and fields, and the stages' names, from a message that the stages read."""
        self._last: tuple[bytes, dict[str, tuple[np.dtype[Any], tuple[int, ...]]], int] = b"\x90", {}, CHANGES[0]

    def write(self, header: Header, tensors: Tensors, trace: Trace, at: float) -> tuple[Frames, Names, Moments] | None:
        """Return a message's frames and its spans, which begin at time ``at``; None if its index is not the last."""
        index, known, _ = self._last
        if [*tensors] != [*known]:
            return None
        frames: Frames = [self._envelope, b""]
        try:
            for name, x in tensors.items():
                if (x.dtype, x.shape) != known[name]:
                    return None
                frames.append(x.data.cast("B"))
        except (TypeError, ValueError):  # the values are not contiguous plain numbers
            return None
        quantized = trace.now()
        frames[1] = _PAIR + self._pack(header) + index
        return frames, PLANNED if tensors else ("", "serialize"), (at, quantized, trace.now())

    def read(self, frames: Frames, trace: Trace, began: float) -> tuple[Message, Names, Moments] | None:
        """Return the frames' message and its spans, which begin at ``began``; None if its index is not the last."""
        opened = trace.now()
        index, known, changes = self._last
        try:
            head = frames[1]
            stop = len(head) - len(index)
            if head[stop:] != index or head[:1] != _PAIR or changes != CHANGES[0]:
                return None
            header = msgpack.unpackb(head[1:stop])
            once = head[1] == 0x80 | len(header)  # the first byte of a map with this many keys: no key occurs twice
            exact = header.get("memory", "none") == "none" or DEFAULTS["memory", header["memory"]].stateless
            if not (once and exact) or len(frames) != len(known) + 2:
                return None
            unpacked = trace.now()
            tensors: Tensors = {}
            for number, (name, (dtype, shape)) in enumerate(known.items(), 2):
                x = tensors[name] = np.ndarray(shape, dtype, frames[number])
                if x.nbytes != len(frames[number]):
                    return None
            spans, moments = (DECODE, (trace.now(),)) if tensors else (DECODE[:2], ())
            return Message(header, tensors), spans, (began, opened, unpacked, *moments)
        except Exception:  # the stages will say what is wrong
            return None

    def learn(self, frames: Frames, packet: Packet, like: Like = None) -> None:
        """Keep the index of a packet written or read by the stages, if its arrays are exact and like these."""
        head, known = frames[0], {}
        for name, (quantizer, parts) in packet.tensors.items():
            if not (is_plain(name, quantizer, parts, like) and is_little(parts["values"].dtype)):
                return
            known[name] = parts["values"].dtype, parts["values"].shape
        if known and len(head) <= LEARNED_BYTES and len(frames) == len(known) + 1:
            unpacker = msgpack.Unpacker()
            unpacker.feed(head)
            unpacker.read_array_header()
            unpacker.skip()
            self._last = bytes(head[unpacker.tell() :]), known, CHANGES[0]
            if self._envelope:
                self._pack = msgpack.Packer().pack
