"""The way from a message to frames and back.

    Message ── memory, quantizer ──► Packet ── serializer, compressor ──► Frames

Every encoded message describes itself. Its first frame is a small msgpack map, the envelope: the protocol's version and
the names of serializer and compressor; the packet names the memory and each tensor's quantizer. So a receiver decodes
any sender's messages without a shared configuration. Memories and random draws make encoders and decoders stateful: one
decoder has one sender; an encoder with a memory has one receiver, one without may have several.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import msgpack
import numpy as np

from minips.core.fields import ENVELOPE, check_fields
from minips.core.limits import Limits, check_bytes, check_declared, check_parts, check_shape, check_stages, of_anything
from minips.core.message import PROTOCOL_VERSION, Header, Message, check_finite
from minips.core.partition import named_arrays
from minips.core.plan import Plan
from minips.results import saved
from minips.results.trace import DECODE, ENCODE, UNTIMED, Trace
from minips.stage import DEFAULTS, Array, Buffer, Frames, Stage, StageField, Tensors, Value, default_stage, option
from minips.stages.compressors import Compressor, NoCompression
from minips.stages.compressors.base import BombError, check_size
from minips.stages.memories import Memory, NoMemory, State
from minips.stages.quantizers import Exact, Parts, Quantizer, RandomK, contractive
from minips.stages.serializers import MsgPack, Packet, Serializer
from minips.stages.transports.framing import LIMIT, sealed, unsealed
from minips.words import check_seed, check_type, told

ENVELOPE_BYTES = 2**16
"""The longest envelope."""
_STATELESS, _OPEN = ENCODE[1:], DECODE[:2]
_PLAIN, _EXACT = (MsgPack.name, NoCompression.name), Exact()


@dataclass(frozen=True, repr=False)
class Codec(Value):
    """The four stages between arrays and frames: quantizer, memory, serializer, compressor.

    A mapping from name patterns to quantizers gives each tensor that of the first pattern that matches:
    ``Codec(quantizer={"b": Exact(), "*": Uniform(bits=4)})``.

    With several servers each piece of a tensor is quantized by itself: a lossy quantizer sees pieces, not the whole.
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

    def check_dtype(self, name: str, dtype: "np.dtype[Any]") -> None:
        """ValueError where an array of this name and dtype would not come back with that dtype. Floats of up to 8 bytes
        do; others are tried.
        """
        if dtype.kind == "f" and dtype.itemsize <= 8:
            return
        quantizer, x = self.quantizer_of(name), np.ones(1, dtype)
        stages: list[tuple[Stage, Callable[[], Array]]] = [
            (quantizer, lambda: quantizer.decode(quantizer.encode(x, np.random.default_rng(0)))),
            (self.memory, lambda: _remembered(self.memory, x)),
            (self.serializer, lambda: _serialized(self.serializer, quantizer, x)),
        ]
        for stage, tried in stages:
            try:
                carried = tried().dtype == dtype
            except Exception:  # in the words of a library, or of NumPy
                carried = False
            if not carried:
                raise ValueError(
                    f"The tensor {name!r} holds {dtype}, which {stage!r} does not carry. Convert it, for example with "
                    f".astype(np.float64), or use another {stage.kind}."
                )

    @property
    def lossless(self) -> bool:
        """True where the receiver gets exactly the sender's values, and no memory is kept."""
        return self.quantizer == _EXACT and self.memory.stateless

    def sender(self, seed: int | Sequence[int] = 0, trace: Trace | None = None) -> "Sender":
        """A sender with this codec, in any program: ``frames = sender.encode(tensors)``."""
        return Sender(self, seed, Trace("sender") if trace is None else trace)

    def receiver(self, trace: Trace | None = None) -> "Receiver":
        """The receiver of one sender, in any program: ``tensors = receiver.decode(frames)``."""
        return Receiver(self, Trace("receiver") if trace is None else trace)

    def dumps(self, tensors: Mapping[str, Array], seed: int | Sequence[int] = 0) -> bytes:
        """These arrays, by name, as one ``bytes``; ``seed`` is that of random draws. ValueError with a memory.

        The head is the bytes 89 6D 70 73 (hexadecimal), the number of frames (4 bytes), their lengths (8 bytes each),
        and the CRC-32 of all other bytes (4 bytes, `zlib.crc32`), all little-endian. The frames come next. Zeros pad
        the head and each frame to a multiple of 64 bytes. ``loads`` reads older files, too: four zeros stand in place
        of the first bytes, and there is no CRC-32.
        """
        if not self.memory.stateless:
            raise ValueError(f"dumps makes one message, {self.memory!r} remembers all: use sender() and receiver().")
        return sealed(self.sender(seed).encode(tensors))

    def loads(self, data: Buffer) -> Tensors:
        """The arrays that `dumps` wrote, perhaps as views of ``data``. ValueError where a byte has changed or is
        missing, and for any other bytes.
        """
        try:
            return self.receiver().decode(unsealed(memoryview(data).cast("B")))
        except (ValueError, TypeError, BufferError) as error:
            raise ValueError(f"Codec.dumps writes no such bytes: {told(error, 'They are no message.')}") from error


Mark = dict[str, State]
"""The memories' states at one end, by tensor."""


class _End:
    """The memories of one end: of a sender or of its receiver."""

    def __init__(self) -> None:
        self._states: dict[str, State] = defaultdict(dict)

    def mark(self) -> Mark:
        """The memories' states now, for `go_back`. Cheap: memories replace arrays and never write into them."""
        states = {}
        for name, state in self._states.items():
            states[name] = {**state}
        return states

    def go_back(self, mark: Mark) -> None:
        """Set the memories back to the mark."""
        self._states = defaultdict(dict, {name: {**state} for name, state in mark.items()})

    def state(self) -> dict[str, Any]:
        """The state for a saved run, for `restore`."""
        return {"memory": self.mark()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from the state of a saved run."""
        self.go_back(state["memory"])


class Encoder(_End):
    """One sender's end: its ``codec``, its memories, and its random draws."""

    def __init__(self, codec: Codec, rng: np.random.Generator, trace: Trace) -> None:
        super().__init__()
        self.codec, self.rng, self.trace = codec, rng, trace
        self.most: float = math.inf
        """The most bytes of a message before it is compressed."""
        self._bounded = min(codec.compressor.most_bytes, codec.serializer.most_bytes) < math.inf
        self._quantizers: dict[str, Quantizer] = {}
        self._envelope = envelope(codec, {})
        plain = codec.lossless and codec.compressor.identity and type(codec.serializer) is MsgPack
        self._plan = Plan(self._envelope) if plain else None
        self._compensating = 0.0

    def encode(self, message: Message) -> Frames:
        """The frames of a message. The tensors must be finite."""
        now, memory = self.trace.now, self.codec.memory
        began, header = now(), {**message.header, "memory": memory.name}
        if self._plan and (planned := self._plan.write(header, message.tensors)):
            done = now()
            self.trace.laps(_STATELESS, (began, began, done, done))
            return planned
        codec, self._compensating = self.codec, 0.0
        mark = {} if memory.stateless else self.mark()
        try:
            tensors = self._quantized(message.tensors)
            quantized = now()
            packet = Packet(header, tensors)
            check_parts(sum(len(parts) for _, parts in tensors.values()))
            if self._bounded:
                check_stages("A message", [x.nbytes for _, parts in tensors.values() for x in parts.values()], codec)
            frames = codec.serializer.dumps(packet)
            serialized = now()
            if self._plan:
                self._plan.learn(bytes(frames[0]), len(frames) - 1, packet)
            if not codec.compressor.identity:
                check_bytes("A message", sum(map(len, frames)), "a receiver", self.most)
                frames = compressed(codec.compressor, frames)
        except BaseException:
            self.go_back(mark)
            raise
        if memory.stateless:  # there is nothing to compensate
            self.trace.laps(_STATELESS, (began, quantized, serialized, now()))
        else:
            self.trace.laps(ENCODE, (began, began + self._compensating, quantized, serialized, now()))
        return [self._envelope, *frames]

    def state(self) -> dict[str, Any]:
        return {**super().state(), "draws": self.rng.bit_generator.state}

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self.rng.bit_generator.state = state["draws"]

    def quantize(self, name: str, x: Array) -> tuple[str, Parts]:
        """One tensor: its quantizer's name and its parts."""
        began, self._compensating = self.trace.now(), 0.0
        quantized = self._quantized({name: x})[name]
        if self.codec.memory.stateless:
            self.trace.laps(("quantize",), (began, self.trace.now()))
        else:
            self.trace.laps(("compensate", "quantize"), (began, began + self._compensating, self.trace.now()))
        return quantized

    def _quantized(self, tensors: Tensors) -> dict[str, tuple[str, Parts]]:
        memory, now, quantized = self.codec.memory, self.trace.now, {}
        for name, x in tensors.items():
            quantizer = self._quantizers.get(name)
            if quantizer is None:
                quantizer = self._quantizers[name] = self.codec.quantizer_of(name)
            if not memory.stateless:
                state, began = self._states[name], now()
                p = memory.compensate(x, state)
                self._compensating += now() - began
                x = contractive(quantizer, p)
            try:
                parts = quantizer.encode(x, self.rng)
                for part in parts.values() if isinstance(parts, dict) else (None,):
                    if not isinstance(part, _ARRAYS):
                        raise TypeError(f"encode gave {_kinds(parts)}, expected a dict of arrays.")
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
    """One receiver's end: the states that restore the tensors of its one sender."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace

    def decode(self, packet: Packet | Message, like: Mapping[str, Array] | None = None) -> Message:
        """The message of a packet, or one that a plan has read already. ValueError where parts do not fit together or
        are not for tensors of the shapes of ``like``.
        """
        if type(packet) is Message:
            return packet
        check_declared(packet, like)
        began = self.trace.now()
        name = packet.header.get("memory", "none")
        memory: Any = DEFAULTS.get(("memory", str(name))) or default_stage("memory", str(name))
        tensors: Tensors = {}
        for name, (quantizer, parts) in packet.tensors.items():
            try:
                decoder: Any = DEFAULTS.get(("quantizer", quantizer)) or default_stage("quantizer", quantizer)
                x: Any = decoder.decode(parts)
                if not isinstance(x, _ARRAYS):
                    raise TypeError(f"Its decode gave {type(x).__name__}, expected an array.")
            except Exception as error:
                words = f"The tensor {name!r:.99} does not decode with {quantizer:.99}"
                raise ValueError(f"{words}: {told(error, 'Its parts do not fit.')}") from error
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


class Sender:
    """A codec's sending end: the codec, its memories, its random draws, and the spans of its stages in ``trace``.

    >>> import minips as ps
    >>> codec = ps.Codec(quantizer=ps.Sign(), memory=ps.ErrorFeedback())
    >>> sender, receiver = codec.sender(), codec.receiver()
    >>> receiver.decode(sender.encode({"w": np.float32([3, -1, 0])}))["w"]
    array([ 1.3333334, -1.3333334,  1.3333334], dtype=float32)

    What it remembers goes into a file, and a fresh sender of the same codec goes on from there, to the same bits:

    >>> import io
    >>> file, again = io.BytesIO(), codec.sender()
    >>> np.savez(file, **sender.state())
    >>> _ = file.seek(0)
    >>> again.restore(np.load(file))
    >>> again.encode({"w": np.float32([0, 1, 0])}) == sender.encode({"w": np.float32([0, 1, 0])})
    True
    """

    def __init__(self, codec: Codec, seed: int | Sequence[int], trace: Trace) -> None:
        check_type("sender", trace, Trace, "a Trace")
        check_seed("sender", seed)
        self.trace, self._encoder = trace, Encoder(codec, np.random.default_rng(seed), trace)
        self._encoder.most = of_anything().nbytes
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._count = 0

    def encode(self, tensors: Mapping[str, Array]) -> Frames:
        """The frames of these arrays, by name. NonFiniteError for NaN or infinity, ValueError for an array that does
        not encode, TypeError for anything but a mapping of names.
        """
        codec = self._encoder.codec
        exact = lambda name: codec.quantizer_of(name) == _EXACT  # noqa: E731
        arrays = named_arrays(tensors, "encode takes tensors", "tensor", exact)
        check_finite(arrays, "The tensor", "Look at the code that makes it.")
        for name, x in arrays.items():
            codec.check_dtype(name, x.dtype)
        for name, x in () if codec.memory.stateless else arrays.items():
            if self._shapes.get(name, x.shape) != x.shape:
                raise ValueError(
                    f"The tensor {name!r} had the shape {self._shapes[name]}, which its memory has, and now has "
                    f"{x.shape}. Give it another name, or take a fresh sender and receiver."
                )
        header = {"number": self._count} if codec.memory.restores else {}
        frames = self._encoder.encode(Message(header, arrays))
        self._shapes |= {name: x.shape for name, x in arrays.items()}
        self._count += 1
        return frames

    def state(self) -> dict[str, Array]:
        """The memories, the random draws and the number of messages, as arrays by name: for `numpy.savez`, and for
        `restore`. Later messages do not change them.
        """
        kept = {"end": "sender", "by": self._encoder.codec.memory.name, "count": self._count, "shapes": self._shapes}
        return saved.to_arrays({**kept, **self._encoder.state()})

    def restore(self, state: Mapping[str, Array]) -> None:
        """Go on from the `state` of a sender whose codec has the same memory. ValueError, and nothing changed, for any
        other.
        """
        encoder = self._encoder
        kept = _kept("sender", state, encoder.codec.memory.name)
        encoder.restore(kept)
        self._shapes, self._count = kept["shapes"], kept["count"]


class Receiver:
    """A codec's receiving end: the states that restore its one sender's tensors, and the stages' spans in ``trace``.

    With `Delta` it remembers what has come. That goes into a file, as a `Sender`'s state does, at the same message:

    >>> import minips as ps
    >>> codec = ps.Codec(quantizer=ps.Sign(), memory=ps.Delta())
    >>> sender, receiver = codec.sender(), codec.receiver()
    >>> _ = receiver.decode(sender.encode({"w": np.float32([3, -1])}))
    >>> later, again = codec.sender(), codec.receiver()
    >>> later.restore(sender.state())
    >>> again.restore(receiver.state())
    >>> again.decode(later.encode({"w": np.float32([3, -1])}))["w"]
    array([ 3., -1.], dtype=float32)
    """

    def __init__(self, codec: Codec, trace: Trace) -> None:
        check_type("receiver", trace, Trace, "a Trace")
        self.codec, self.trace = codec, trace
        self._decoder, self._count = Decoder(trace), 0

    def decode(self, frames: Frames) -> Tensors:
        """The arrays of these frames, by name. Decode messages in the order of encoding. ValueError, with nothing
        changed, where the frames are malformed or, with a memory that restores, another message comes first.
        """
        packet, _ = unpack(frames, self.codec, self.trace)
        number, memory = (packet.header.get(name) for name in ("number", "memory"))
        if number not in (None, self._count):
            raise ValueError(
                f"Expected message {self._count} of this sender, got message {number!r}: {memory} needs every one, "
                "once, in the order of sending. Decode the one expected, or take a fresh sender and a fresh receiver."
            )
        tensors = self._decoder.decode(packet).tensors
        self._count += 1
        return tensors

    def state(self) -> dict[str, Array]:
        """What the receiver remembers and the number of messages, as arrays by name: for `numpy.savez`, and for
        `restore`. Later messages do not change them.
        """
        kept = {"end": "receiver", "by": self.codec.memory.name, "count": self._count}
        return saved.to_arrays({**kept, **self._decoder.state()})

    def restore(self, state: Mapping[str, Array]) -> None:
        """Go on from the `state` of a receiver whose codec has the same memory. ValueError, and nothing changed, for
        any other.
        """
        kept = _kept("receiver", state, self.codec.memory.name)
        self._decoder.restore(kept)
        self._count = kept["count"]


def _kept(end: str, state: Mapping[str, Array], memory: str) -> dict[str, Any]:
    """The values in the state of such an end. ValueError where it is of another end or memory, or malformed."""
    kept = saved.from_arrays(state, "This state")
    if (kept.get("end"), kept.get("by")) != (end, memory):
        got = f"the state of a {kept.get('end')!r} with {kept.get('by')!r}"
        raise ValueError(f"A {end} with the memory {memory!r} goes on from the state of another one; got {got}.")
    try:
        fits = type(kept["count"]) is int and all(type(one) is dict for one in kept["memory"].values())
        if end == "sender":
            fits &= all(type(shape) is tuple for shape in kept["shapes"].values())
            np.random.default_rng().bit_generator.state = kept["draws"]
    except (KeyError, TypeError, ValueError, AttributeError):
        fits = False
    if not fits:
        raise ValueError(f"This state is not one that a {end} gave: an entry is missing or malformed.")
    return kept


def encode_plainly(message: Message, codec: Codec) -> Frames:
    """The frames of a message whose arrays are no gradients: exact, with the codec's serializer and compressor."""
    exact = Codec(serializer=codec.serializer, compressor=codec.compressor)
    return Encoder(exact, np.random.default_rng(0), UNTIMED).encode(message)


def compressed(compressor: Compressor, frames: Frames) -> Frames:
    """The frames, each compressed. An empty frame stays empty. ValueError for one that the compressor cannot take."""
    for frame in frames if compressor.most_bytes < math.inf else ():
        check_bytes("A frame", len(frame), repr(compressor), compressor.most_bytes)
    return [compressor.compress(frame) if len(frame) else frame for frame in frames]


_ARRAYS = (np.ndarray, np.generic)


def _kinds(parts: object) -> str:
    if not isinstance(parts, dict):
        return type(parts).__name__
    return f"a dict of {', '.join(sorted({type(part).__name__ for part in parts.values()}))}"


def envelope(codec: Codec, stamp: Header) -> bytes:
    """The first frame of a message: what a receiver needs to read the others, and in an answer the ``stamp``, the
    fields for one worker.
    """
    return bytes(
        msgpack.packb({"v": PROTOCOL_VERSION, "s": codec.serializer.name, "c": codec.compressor.name, **stamp})
    )


def wrap(codec: Codec, stamp: Header, answer: Frames) -> Frames:
    """An answer with a ``stamp`` in its envelope."""
    return [envelope(codec, stamp), *answer[1:]]


def unpack(
    frames: Frames, codec: Codec, trace: Trace, plan: Plan | None = None, limits: Limits | None = None
) -> tuple[Any, Header]:
    """Frames to packet, or to the message that a ``plan`` reads, and the envelope. ValueError where they are malformed,
    name an unknown stage or exceed the ``limits``, those of a codec alone for None.

    ``codec`` is the receiver's own: a serializer that can run code is accepted only where that codec names it.
    """
    if not frames:
        raise ValueError("A message begins with its minips envelope; got no frames.")
    began = trace.now()
    first = bytes(frames[0])  # a copy: the frame may be shared memory that the peer overwrites
    known, fields = plan.opening if plan else (None, {})
    try:
        fields = fields if first == known else msgpack.unpackb(first[:ENVELOPE_BYTES])
    except Exception as error:
        raise ValueError("The first frame is not a minips envelope: it is no map in MessagePack.") from error
    try:
        for name, value in fields.items() if first != known else ():
            if name in ENVELOPE and not ENVELOPE[name].fits[type(value)](value):
                raise KeyError(name)
        version, names = fields["v"], (fields["s"], fields["c"])
    except (KeyError, AttributeError):
        check_fields("The first frame, a minips envelope,", fields, ENVELOPE, "vsc", others=True)  # says which
    if version != PROTOCOL_VERSION:
        raise ValueError(f"The peer speaks version {version} of the protocol, and this is version {PROTOCOL_VERSION}.")
    if plan and names == _PLAIN and (message := plan.read(frames)):
        trace.laps(_OPEN, (began, began, trace.now()))
        return message, fields
    serializer: Any = DEFAULTS.get(("serializer", names[0])) or default_stage("serializer", names[0])
    compressor: Any = DEFAULTS.get(("compressor", names[1])) or default_stage("compressor", names[1])
    if serializer.trusted_only and serializer.name != codec.serializer.name:
        raise ValueError(
            f"The serializer {serializer.name} can run code, so it is taken only where the receiver's own config "
            f"names it; this one names {codec.serializer.name}."
        )
    limits = limits or of_anything()
    opened = frames[1:] if compressor.identity else _decompressed(compressor, frames[1:], limits.nbytes)
    decompressed = trace.now()
    if plan and names == _PLAIN and opened:
        opened = [bytes(opened[0]), *opened[1:]]  # a copy, so that the plan learns the bytes that were read
    limits.check_head(names[0], opened)
    packet = serializer.loads(opened)
    limits.check_count(packet.tensors)
    trace.laps(_OPEN, (began, decompressed, trace.now()))
    if plan and names == _PLAIN:
        plan.learn(bytes(opened[0]), len(opened) - 1, packet)
        if len(fields) == 3 and len(first) <= ENVELOPE_BYTES:  # without a stamp, which differs from message to message
            plan.opening = first, fields
    return packet, fields


def _decompressed(compressor: Compressor, frames: Frames, most: int) -> Frames:
    """The frames, each decompressed. ValueError where they make more than ``most`` bytes in all."""
    opened: Frames = []
    left = most
    try:
        for frame in frames:
            opened.append(compressor.decompress(frame, left) if len(frame) else frame)
            left -= len(opened[-1])
            check_size(0, left)  # of a compressor that does not look at its limit
    except BombError:
        came = sum(map(len, frames))
        raise BombError(
            f"A message of {came} bytes decompresses to more than the {most} bytes that are allowed: {LIMIT}."
        ) from None
    return opened


def _remembered(memory: Memory, x: Array) -> Array:
    """What a memory's receiver makes of an array that is sent three times."""
    mine, theirs = State(), State()
    for _ in range(3):
        p = memory.compensate(x, mine)
        memory.update(p, p, mine)
        received = memory.restore(p, theirs)
    return received


def _serialized(serializer: Serializer, quantizer: Quantizer, x: Array) -> Array:
    """An array that has gone through a serializer, in parts."""
    parts = quantizer.encode(x, np.random.default_rng(0))
    packet = serializer.loads(serializer.dumps(Packet({}, {"x": (quantizer.name, parts)})))
    return quantizer.decode(packet.tensors["x"][1])
