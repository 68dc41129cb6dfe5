"""The way from a message to frames and back.

    Message ── memory, quantizer ──► Packet ── serializer, compressor ──► Frames

Every encoded message describes itself. Its first frame is a small msgpack map, the envelope: the protocol's version and
the names of serializer and compressor; the packet names the memory and each tensor's quantizer. So a receiver decodes
what any sender makes, with no shared configuration. Memories and random draws make an encoder and a decoder stateful:
there is one of each for each link.
"""

import time
from collections import defaultdict
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import msgpack
import numpy as np

from minips.runtime.message import PROTOCOL_VERSION, Header, Message
from minips.runtime.trace import Trace
from minips.stage import Array, Buffer, Frames, StageField, Tensors, Value, option, reason, stage_class
from minips.stages.compressors import Compressor, NoCompression
from minips.stages.memories import Memory, NoMemory, State
from minips.stages.quantizers import Exact, Parts, Quantizer, RandomK, contractive
from minips.stages.serializers import MsgPack, Packet, Serializer

MAX_BYTES = 2**31
"""The most that the frames of one message may decompress to."""


@dataclass(frozen=True, repr=False)
class Codec(Value):
    """The four stages between arrays and frames: quantizer, memory, serializer, compressor.

    A mapping from name patterns to quantizers gives each tensor that of the first pattern that matches:
    ``Codec(quantizer={"b": Exact(), "*": Uniform(bits=4)})``.

    With several servers each piece of a tensor is quantized by itself: a lossy quantizer sees the pieces, not the
    whole.
    """

    quantizer: StageField[Quantizer | dict[str, Quantizer]] = option(Exact(), "fewer bits for each value")
    memory: StageField[Memory] = option(NoMemory(), "what is remembered of a tensor from step to step")
    serializer: StageField[Serializer] = option(MsgPack(), "how arrays become frames")
    compressor: StageField[Compressor] = option(NoCompression(), "fewer bytes for each frame")

    def __post_init__(self) -> None:
        super().__post_init__()
        quantizers = [self.quantizer] if isinstance(self.quantizer, Quantizer) else self.quantizer.values()
        for quantizer in quantizers:
            if isinstance(quantizer, RandomK) and quantizer.unbiased and not self.memory.stateless:
                raise ValueError(
                    f"{self.memory!r} needs a contraction, and {quantizer!r} is none: its variance grows without bound "
                    "in a memory. Scaled to a contraction it is RandomK(unbiased=False): use that, or no memory."
                )

    def quantizer_of(self, name: str) -> Quantizer:
        """The quantizer of the tensor ``name``: that of the first pattern that matches. ValueError where none does."""
        if isinstance(self.quantizer, Quantizer):
            return self.quantizer
        for pattern, quantizer in self.quantizer.items():
            if fnmatchcase(name, pattern):
                return quantizer
        raise ValueError(
            f"No pattern of the codec's quantizers matches the tensor {name!r}; there are {', '.join(self.quantizer)}. "
            'Add "*" as the last one.'
        )


Mark = dict[str, State]
"""What the memories of one half of a link hold, by tensor."""


class _Half:
    """What one half of a link remembers."""

    def __init__(self) -> None:
        self._states: dict[str, State] = defaultdict(dict)

    def mark(self) -> Mark:
        """What the memories hold now, for `go_back`. Cheap: memories replace arrays and never write into them."""
        return {name: {**state} for name, state in self._states.items()}

    def go_back(self, mark: Mark) -> None:
        """Let the memories hold what they held at the mark."""
        self._states = defaultdict(dict, {name: {**state} for name, state in mark.items()})


class Encoder(_Half):
    """One sender's half of one link: ``codec``, what its memories hold, and its random draws."""

    def __init__(self, codec: Codec, rng: np.random.Generator, trace: Trace) -> None:
        super().__init__()
        self.codec, self.rng, self.trace = codec, rng, trace

    def encode(self, message: Message, stamp: Header | None = None) -> Frames:
        """The frames of a message; ``stamp`` goes into the envelope. The tensors must be finite."""
        tensors = {name: self.quantize(name, x) for name, x in message.tensors.items()}
        header = {**message.header, "memory": self.codec.memory.name}
        return pack(Packet(header, tensors), self.codec, self.trace, stamp)

    def quantize(self, name: str, x: Array) -> tuple[str, Parts]:
        """One tensor: its quantizer's name and its parts."""
        codec, trace = self.codec, self.trace
        quantizer = codec.quantizer_of(name)
        began = time.monotonic()
        if codec.memory.stateless:
            parts = _encode(quantizer, name, x, self.rng)
            trace.lap("quantize", began)
            return quantizer.name, parts
        state = self._states[name]
        p = codec.memory.compensate(x, state)
        began = trace.lap("compensate", began)
        parts = _encode(quantizer, name, contractive(quantizer, p), self.rng)
        began = trace.lap("quantize", began)
        codec.memory.update(p, quantizer.decode(parts), state)
        trace.lap("compensate", began)
        return quantizer.name, parts


class Decoder(_Half):
    """One receiver's half of one link: what the memories of that sender's tensors need to be restored."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace

    def decode(self, packet: Packet) -> Message:
        """The message of a packet. ValueError where its parts do not fit together."""
        memory: Memory = _stage("memory", str(packet.header.get("memory", "none")))
        tensors: Tensors = {}
        began = time.monotonic()
        for name, (quantizer, parts) in packet.tensors.items():
            x = _decode(quantizer, name, parts)
            tensors[name] = x if memory.stateless else memory.restore(x, self._states[name])
            began = self.trace.lap("dequantize", began)
        return Message(packet.header, tensors)


def _encode(quantizer: Quantizer, name: str, x: Array, rng: np.random.Generator) -> Parts:
    """The quantizer's parts. ValueError with the tensor's name where it, perhaps a learner's own, gives none."""
    try:
        parts = quantizer.encode(x, rng)
        if not isinstance(parts, dict) or not all(map(_is_array, parts.values())):
            raise TypeError(f"encode gave {_kinds(parts)}, expected a dict of arrays.")
    except Exception as error:
        words = f"The tensor {name!r} does not encode with {quantizer!r}: {type(error).__name__}: {reason(error)}"
        raise ValueError(words) from error
    return parts


def _decode(quantizer: str, name: str, parts: Parts) -> Array:
    """The array of the parts. ValueError with the tensor's name where they are none of this quantizer's."""
    try:
        x: Any = _stage("quantizer", quantizer).decode(parts)
        if not _is_array(x):
            raise TypeError(f"decode gave {type(x).__name__}, expected an array.")
    except Exception as error:
        raise ValueError(f"The tensor {name!r} does not decode with {quantizer}: {reason(error)}") from error
    return x  # type: ignore[no-any-return]


_ARRAYS = (np.ndarray, np.generic)


def _is_array(x: object) -> bool:
    """A scalar of numpy's, which is what arithmetic makes of a 0-d array, will do."""
    return isinstance(x, _ARRAYS)


def _kinds(parts: object) -> str:
    if not isinstance(parts, dict):
        return type(parts).__name__
    return f"a dict of {', '.join(sorted({type(part).__name__ for part in parts.values()}))}"


def pack(packet: Packet, codec: Codec, trace: Trace, stamp: Header | None = None) -> Frames:
    """Packet to frames: the envelope, then the compressed frames of the serializer. An empty frame stays empty."""
    began = time.monotonic()
    frames = codec.serializer.dumps(packet)
    began = trace.lap("serialize", began)
    frames = [codec.compressor.compress(frame) if len(frame) else frame for frame in frames]
    trace.lap("compress", began)
    return [envelope(codec, stamp or {}), *frames]


def envelope(codec: Codec, stamp: Header) -> bytes:
    """The first frame of a message: what a receiver has to know to read the others, and ``stamp``."""
    return bytes(
        msgpack.packb({"v": PROTOCOL_VERSION, "s": codec.serializer.name, "c": codec.compressor.name, **stamp})
    )


def unpack(frames: Frames, codec: Codec, trace: Trace) -> tuple[Packet, Header]:
    """Frames to packet, and the envelope. ValueError where they are malformed or name what is not known here.

    ``codec`` is the receiver's own: a serializer that can run code is taken only where that names it.
    """
    told = _envelope(frames)
    serializer, compressor = _stage("serializer", told["s"]), _stage("compressor", told["c"])
    if serializer.trusted_only and serializer.name != codec.serializer.name:
        raise ValueError(
            f"The serializer {serializer.name} can run code, so it is taken only where the receiver's own config "
            f"names it; this one names {codec.serializer.name}."
        )
    began, left = time.monotonic(), MAX_BYTES
    opened: list[Buffer] = []
    for frame in frames[1:]:
        opened.append(compressor.decompress(frame, left) if len(frame) else frame)
        left -= len(opened[-1])
    began = trace.lap("decompress", began)
    packet = serializer.loads(opened)
    trace.lap("deserialize", began)
    return packet, told


def _envelope(frames: Frames) -> Header:
    try:
        told = msgpack.unpackb(frames[0])
        version, _, _ = told["v"], told["s"] + "", told["c"] + ""
    except Exception as error:
        raise ValueError(f"The first frame is not a minips envelope: {reason(error)}.") from error
    if version != PROTOCOL_VERSION:
        raise ValueError(f"The peer speaks version {version!r} of the protocol, this is version {PROTOCOL_VERSION}.")
    return dict(told)


def _stage(kind: str, name: str) -> Any:
    cls: Any = stage_class(kind, name)
    return _default(cls)


@cache
def _default(cls: Any) -> Any:
    return cls()
