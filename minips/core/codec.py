"""The conversion of messages to frames and back.

    Message ── memory, quantizer ──► Packet ── serializer, compressor ──► Frames

Every encoded message describes itself. Its first frame, the envelope, is a small MessagePack map with the protocol's
version and the names of serializer and compressor. The packet names the memory and each tensor's quantizer. So a
receiver can decode any sender's messages without a shared configuration. Memories and random draws make encoders and
decoders stateful: a decoder serves one sender; an encoder serves one receiver, or several if it has no memory.

Exact arrays in `MsgPack`'s frames are *planned*: if names, dtypes and shapes are those of the message before, a `Plan`
writes and reads the same bytes without the stages. The trace shows work on its arrays as the quantizer's, on its header
as the serializer's. Subclasses that override a stage's methods are not planned. `Run.summary` counts planned messages.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, partial
from typing import Any

import msgpack
import numpy as np

from minips.core.alone import Receiver, Sender, seal, trace_of, unseal
from minips.core.fields import ENVELOPE, check_fields
from minips.core.limits import Limits, check_declared, check_shape, check_stages, compress, decompress, of_anything
from minips.core.message import PROTOCOL_VERSION, Header, Like, Message
from minips.core.plan import Plan
from minips.results.state import CodecState
from minips.results.trace import DECODE, ENCODE, UNTIMED, Moments, Names, Trace
from minips.stage import DEFAULTS, Array, Buffer, Frames, StageField, Tensors, Value, default_stage, option
from minips.stages.compressors import Compressor, NoCompression
from minips.stages.memories import Memory, NoMemory, State
from minips.stages.quantizers import Exact, Parts, Quantizer, RandomK, contractive
from minips.stages.serializers import MsgPack, Packet, Serializer
from minips.words import check_seed, public_message

ENVELOPE_BYTES = 2**16
_ARRAYS = (np.ndarray, np.generic)


@dataclass(frozen=True, repr=False)
class Codec(Value):
    """The four stages between arrays and frames: quantizer, memory, serializer, compressor.

    With a mapping from name patterns to quantizers, the first pattern that matches a tensor's name decides:
    ``Codec(quantizer={"b": Exact(), "*": Uniform(bits=4)})``.

    With several servers, each server's piece of a tensor is quantized separately.
    """

    quantizer: StageField[Quantizer | dict[str, Quantizer]] = option(Exact(), "fewer bits for each value")
    memory: StageField[Memory] = option(NoMemory(), "what to remember of each tensor from step to step")
    serializer: StageField[Serializer] = option(MsgPack(), "how arrays become frames")
    compressor: StageField[Compressor] = option(NoCompression(), "fewer bytes for each frame")

    def __post_init__(self) -> None:
        super().__post_init__()
        quantizers = [self.quantizer] if isinstance(self.quantizer, Quantizer) else self.quantizer.values()
        for quantizer in quantizers:
            if isinstance(quantizer, RandomK) and quantizer.unbiased and not self.memory.stateless:
                raise ValueError(
                    f"{self.memory!r} needs a contraction, and {quantizer!r} is not: its variance grows without bound "
                    "in a memory. Scaled to a contraction it is RandomK(unbiased=False): use that, or no memory."
                )

    def quantizer_of(self, name: str) -> Quantizer:
        """The quantizer of the first pattern that matches this tensor's name. ValueError where none does."""
        if isinstance(self.quantizer, Quantizer):
            return self.quantizer
        for pattern, quantizer in self.quantizer.items():
            if fnmatchcase(name, pattern):
                return quantizer
        raise ValueError(
            f"No pattern of the codec's quantizers matches the tensor {name!r}; there are {', '.join(self.quantizer)}. "
            'Add "*" as the last one.'
        )

    @property
    def lossless(self) -> bool:
        """True if the receiver decodes exactly the sender's values, and neither end has a memory."""
        quantizers = [self.quantizer] if isinstance(self.quantizer, Quantizer) else self.quantizer.values()
        return self.memory.stateless and all(quantizer.identity for quantizer in quantizers)

    def sender(self, seed: int | Sequence[int] = 0, trace: Trace | None = None) -> Sender:
        """A sender with this codec, for any program: ``frames = sender.encode(tensors)``."""
        check_seed("sender", seed)
        return Sender(Encoder(self, np.random.default_rng(seed), trace_of("sender", trace)))

    def receiver(self, trace: Trace | None = None) -> Receiver:
        """A receiver for one sender's frames, for any program: ``tensors = receiver.decode(frames)``."""
        return Receiver(self, Decoder(trace_of("receiver", trace)), partial(unpack, plan=Plan()))

    def dumps(self, tensors: Mapping[str, Array], seed: int | Sequence[int] = 0) -> bytes:
        """Encode named arrays into one ``bytes`` with a CRC-32; ``seed`` is for random draws. ValueError with a memory.
        `minips.core.alone.seal` describes the format.
        """
        if not self.memory.stateless:
            raise ValueError(f"dumps encodes one message, and {self.memory!r} needs all: use sender() and receiver().")
        return seal(self.sender(seed).encode(tensors))

    def loads(self, data: Buffer) -> Tensors:
        """Return the arrays that `dumps` wrote, possibly as views of ``data``. ValueError if a byte has changed or is
        missing, or if `dumps` did not write ``data``.
        """
        try:
            return self.receiver().decode(unseal(memoryview(data).cast("B")))
        except (ValueError, TypeError, BufferError) as error:
            why = public_message(error, "They are not a message.")
            raise ValueError(f"Codec.dumps writes no such bytes: {why}") from error


Mark = dict[str, State]
"""The memories' states at one end. Maps each tensor's name to its state."""


class _End:
    """The memories of one end, a sender or its receiver."""

    def __init__(self) -> None:
        self._states: dict[str, State] = defaultdict(dict)

    def mark(self) -> Mark:
        """The memories' current states, for `go_back`. Cheap: memories replace arrays and never write into them."""
        return {name: {**state} for name, state in self._states.items()}

    def go_back(self, mark: Mark) -> None:
        """Set the memories back to their states at the mark."""
        self._states = defaultdict(dict, {name: {**state} for name, state in mark.items()})

    def state(self) -> CodecState:
        """The state to keep in a saved run, from which `restore` resumes."""
        return CodecState(memory=self.mark())

    def restore(self, state: CodecState) -> None:
        """Resume from the state of a saved run."""
        self.go_back(state["memory"])


class Encoder(_End):
    """One sender's end: its ``codec``, memories and random draws. ``partner`` numbers its receiver (None: several)."""

    def __init__(self, codec: Codec, rng: np.random.Generator, trace: Trace, partner: int | None = None) -> None:
        super().__init__()
        self.codec, self.rng, self.trace, self._partner = codec, rng, trace, partner
        self.most: float = math.inf  # bytes of a message before it is compressed
        self._quantizer_of, self._envelope = cache(codec.quantizer_of), envelope(codec, {})
        planned = codec.lossless and codec.serializer.indexed and codec.compressor.identity
        self._plan = Plan(self._envelope) if planned else None
        self._spans, self._compensating = ("" if codec.memory.stateless else ENCODE[0], *ENCODE[1:]), 0.0

    def encode(self, message: Message) -> Frames:
        """Encode a message into frames. The tensors must be finite."""
        began, tensors = self.trace.now(), message.tensors
        header = {**message.header, "memory": self.codec.memory.name}
        planned = self._plan.write(header, tensors, self.trace, began) if self._plan else None
        frames, names, moments = planned or self._encode(header, tensors, began)
        nbytes = sum(map(len, frames))
        self.trace.laps(names, moments, header.get("kind"), self._partner, header.get("clock"), nbytes)
        return frames

    def _encode(self, header: Header, tensors: Tensors, began: float) -> tuple[Frames, Names, Moments]:
        """Encode a message by the stages. Returns its frames, the spans' names, and the moments between the spans."""
        codec, now, self._compensating = self.codec, self.trace.now, 0.0
        mark = {} if codec.memory.stateless else self.mark()
        try:
            packet = Packet(header, self._quantized(tensors))
            quantized = now()
            check_stages("A message", [x.nbytes for _, parts in packet.tensors.values() for x in parts.values()], codec)
            frames = codec.serializer.dumps(packet)
            if self._plan:
                self._plan.learn(frames, packet)
            serialized = now()
            frames = frames if codec.compressor.identity else compress(codec.compressor, frames, self.most)
        except BaseException:
            self.go_back(mark)
            raise
        moments = began, began + self._compensating, quantized, serialized, now()
        return [self._envelope, *frames], self._spans, moments

    def state(self) -> CodecState:
        return CodecState(memory=self.mark(), draws=dict(self.rng.bit_generator.state))

    def restore(self, state: CodecState) -> None:
        super().restore(state)
        self.rng.bit_generator.state = state["draws"]

    def quantize(self, name: str, x: Array) -> tuple[str, Parts]:
        """Quantize one tensor. Returns its quantizer's name and its parts."""
        began, self._compensating = self.trace.now(), 0.0
        quantized = self._quantized({name: x})[name]
        self.trace.laps(self._spans[:2], (began, began + self._compensating, self.trace.now()))
        return quantized

    def _quantized(self, tensors: Tensors) -> dict[str, tuple[str, Parts]]:
        memory, now, quantized = self.codec.memory, self.trace.now, {}
        for name, x in tensors.items():
            quantizer = self._quantizer_of(name)
            if not memory.stateless:
                state, began = self._states[name], now()
                p = memory.compensate(x, state)
                self._compensating += now() - began
                x = contractive(quantizer, p)
            try:
                parts = quantizer.encode(x, self.rng)
                for part in parts.values() if isinstance(parts, dict) else (None,):
                    if not isinstance(part, _ARRAYS):
                        kinds = sorted({type(x).__name__ for x in parts.values()}) if isinstance(parts, dict) else ()
                        got = f"a dict of {', '.join(kinds)}" if kinds else type(parts).__name__
                        raise TypeError(f"encode gave {got}, expected a dict of arrays.")
            except Exception as error:  # the quantizer may be the user's own
                raise ValueError(
                    f"The tensor {name!r} does not encode with {quantizer!r}: {type(error).__name__}: {error}"
                ) from error
            if not memory.stateless:
                began = now()
                memory.update(p, quantizer.decode(parts), state)
                self._compensating += now() - began
            quantized[name] = quantizer.name, parts
        return quantized


class Decoder(_End):
    """One receiver's end: the memories' states, with which it restores its only sender's tensors."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace

    def decode(self, packet: Packet | Message, like: Like = None) -> Message:
        """Decode a packet into a message; a message that a plan has read is returned as it is. ValueError if parts do
        not fit together, or if shapes differ from those of ``like``.
        """
        if type(packet) is Message:
            return packet
        check_declared(packet, like)
        began = self.trace.now()
        memory: Any = default_stage("memory", str(packet.header.get("memory", "none")))
        tensors: Tensors = {}
        for name, (quantizer, parts) in packet.tensors.items():
            try:
                decoder: Any = DEFAULTS.get(("quantizer", quantizer)) or default_stage("quantizer", quantizer)
                x: Any = decoder.decode(parts)
                if not isinstance(x, _ARRAYS):
                    raise TypeError(f"Its decode gave {type(x).__name__}, expected an array.")
            except Exception as error:
                words = f"The tensor {name!r:.99} does not decode with {quantizer:.99}"
                raise ValueError(f"{words}: {public_message(error, 'Its parts do not fit.')}") from error
            check_shape(name, x, like)  # before a memory adds it to what it keeps
            tensors[name] = x  # type: ignore[assignment]
        if not memory.stateless:
            mark = self.mark()
            try:
                tensors = {name: memory.restore(x, self._states[name]) for name, x in tensors.items()}
            except BaseException:
                self.go_back(mark)
                raise
        if tensors:
            self.trace.laps(("dequantize",), (began, self.trace.now()))
        return Message(packet.header, tensors)


def encode_plainly(message: Message, codec: Codec, trace: Trace = UNTIMED, partner: int | None = None) -> Frames:
    """Encode a message whose arrays are not gradients: exactly, with the codec's serializer and compressor."""
    exact = Codec(serializer=codec.serializer, compressor=codec.compressor)
    return Encoder(exact, np.random.default_rng(0), trace, partner).encode(message)


def envelope(codec: Codec, stamp: Header, pack: Callable[[Header], bytes] = msgpack.packb) -> bytes:
    """The first frame of a message. It names the stages that read the other frames; in an answer, it also contains the
    ``stamp``, the fields for one worker.
    """
    return pack({"v": PROTOCOL_VERSION, "s": codec.serializer.name, "c": codec.compressor.name, **stamp})


def wrap(codec: Codec, stamp: Header, answer: Frames, pack: Callable[[Header], bytes] = msgpack.packb) -> Frames:
    """Put a ``stamp`` into an answer's envelope. ``pack`` may reuse a packer if the caller packs one at a time."""
    return [envelope(codec, stamp, pack), *answer[1:]]


def unpack(
    frames: Frames,
    codec: Codec,
    trace: Trace,
    plan: Plan | None = None,
    limits: Limits | None = None,
    like: Like = None,
) -> tuple[Any, Header, Names, Moments]:
    """Convert frames to their packet, or the message that a ``plan`` reads, and their envelope. ValueError if they are
    malformed, name an unknown stage or exceed ``limits`` (None: a codec's own). Only arrays like these are planned.
    Returns the names and moments of the spans too; the caller adds them to the trace, as it knows the message.

    ``codec`` is the receiver's own: a serializer that can run code is accepted only if that codec names it.
    """
    if not frames:
        raise ValueError("A message begins with its minips envelope; got no frames.")
    began = trace.now()
    first = bytes(frames[0])  # a copy: the frame may be shared memory that the peer overwrites
    known, fields = plan.opening if plan else (None, {})
    try:
        fields = fields if first == known else msgpack.unpackb(first[:ENVELOPE_BYTES])
    except Exception as error:
        raise ValueError("The first frame is not a minips envelope: it is not a map in MessagePack.") from error
    try:
        for name, value in fields.items() if first != known else ():
            if name in ENVELOPE and not ENVELOPE[name].fits[type(value)](value):
                raise KeyError(name)
        version, names = fields["v"], (fields["s"], fields["c"])
    except (KeyError, AttributeError):
        check_fields("The first frame, a minips envelope,", fields, ENVELOPE, "vsc", others=True)  # says which
    if version != PROTOCOL_VERSION:
        raise ValueError(f"The peer speaks version {version} of the protocol, and this is version {PROTOCOL_VERSION}.")
    if plan and names == plan.names and (planned := plan.read(frames, trace, began)):
        message, spans, moments = planned
        return message, fields, spans, moments
    serializer: Any = DEFAULTS.get(("serializer", names[0])) or default_stage("serializer", names[0])
    compressor: Any = DEFAULTS.get(("compressor", names[1])) or default_stage("compressor", names[1])
    if serializer.trusted_only and serializer.name != codec.serializer.name:
        raise ValueError(
            f"The serializer {serializer.name} can run code, so it is taken only where the receiver's own config "
            f"names it; this one names {codec.serializer.name}."
        )
    plan = plan if serializer.indexed and compressor.identity else None
    limits = limits or of_anything()
    opened = frames[1:] if compressor.identity else decompress(compressor, frames[1:], limits.nbytes)
    decompressed = trace.now()
    if plan and opened:
        opened = [bytes(opened[0]), *opened[1:]]  # a copy, so that the plan learns the bytes that were read
    limits.check_head(serializer, opened)
    packet = serializer.loads(opened)
    limits.check_count(packet.tensors)
    deserialized = trace.now()
    if plan:
        plan.names = names
        plan.learn(opened, packet, like)
        if len(fields) == 3 and len(first) <= ENVELOPE_BYTES:  # without a stamp, which differs from message to message
            plan.opening = first, fields
    return packet, fields, DECODE[:2], (began, decompressed, deserialized)
