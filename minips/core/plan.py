"""The part of a message that stays the same on a link, where its arrays travel as they are.

From step to step the arrays of a link keep their names, dtypes and shapes; their values change, and a few numbers in
the header. `MsgPack` writes all that stays into the index, the second half of its first frame. A `Plan` keeps the last
index of exact arrays that nothing remembers or compresses: a message that has it too is written and read here at once,
every other one in the general way, stage after stage. Bytes and errors are the same on both ways.
"""

from typing import Any

import msgpack
import numpy as np

from minips.core.message import Header, Message
from minips.stage import Frames, Tensors
from minips.stages.serializers import Packet, is_little

_PAIR = b"\x92"
"""The first byte of MessagePack's array of two."""


class Plan:
    """The last index of one end of a link, which either writes or reads, and by name the dtype and shape of each array
    that it tells of. ``envelope`` is the first frame of what is written or, where it says no more than it has to, was
    read last.
    """

    def __init__(self, envelope: bytes = b"") -> None:
        self.envelope = envelope
        self.told: Header = {}
        """What the envelope of what was read last says."""
        self._last: tuple[bytes, dict[str, tuple[np.dtype[Any], tuple[int, ...]]]] = b"\x90", {}

    def write(self, header: Header, tensors: Tensors) -> Frames | None:
        """The frames of a message that has the last index; None for any other."""
        index, known = self._last
        if [*tensors] != [*known]:
            return None
        frames: Frames = [self.envelope, b""]
        try:
            for name, x in tensors.items():
                if (x.dtype, x.shape) != known[name]:
                    return None
                frames.append(x.data.cast("B"))
        except (TypeError, ValueError):  # values that are no row of plain numbers
            return None
        frames[1] = _PAIR + msgpack.packb(header) + index
        return frames

    def read(self, frames: Frames) -> Message | None:
        """The message of frames that have the last index; None for any others."""
        index, known = self._last
        try:
            head = frames[1]
            stop = len(head) - len(index)
            if head[stop:] != index or head[:1] != _PAIR:
                return None
            header = msgpack.unpackb(head[1:stop])
            if header.get("memory", "none") != "none":
                return None
            tensors: Tensors = {}
            for number, (name, (dtype, shape)) in enumerate(known.items(), 2):
                x = tensors[name] = np.ndarray(shape, dtype, frames[number])
                if x.nbytes != len(frames[number]):
                    return None
            return Message(header, tensors)
        except Exception:  # the general way says what is wrong
            return None

    def learn(self, frames: Frames, packet: Packet) -> None:
        """Keep the index of frames that were written or read in the general way, where each holds an exact array that
        nothing remembers.
        """
        known = {}
        for name, (quantizer, parts) in packet.tensors.items():
            if quantizer != "exact" or [*parts] != ["values"] or not is_little(parts["values"].dtype):
                return
            known[name] = parts["values"].dtype, parts["values"].shape
        if known and len(frames) == 1 + len(known) and packet.header.get("memory", "none") == "none":
            unpacker = msgpack.Unpacker()
            unpacker.feed(frames[0])
            unpacker.read_array_header()
            unpacker.skip()
            self._last = bytes(frames[0][unpacker.tell() :]), known
