"""Codecs for any program: the two ends of a link, used without a server, and a file that holds one message."""

import reprlib
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from minips.core.limits import check_dtype, of_anything
from minips.core.message import Message, check_finite
from minips.core.partition import named_arrays
from minips.results import saved
from minips.results.trace import Trace
from minips.stage import Array, Frames, Tensors
from minips.stages.transports.framing import (
    ALIGNMENT,
    HEAD,
    check_count,
    cut,
    lengths,
    lengths_of,
    padded_size,
    pieces,
    split,
)
from minips.words import check_type

SEAL = b"\x89mps"
"""The first bytes of a file. Neither text nor a stream's body, which starts with zeros, begins with these bytes."""
CRC_BYTES = 4


class Sender:
    """The sending end of a codec. It holds the codec's memories and random draws; ``trace`` records its stages' spans.

    >>> import minips as ps
    >>> codec = ps.Codec(quantizer=ps.Sign(), memory=ps.ErrorFeedback())
    >>> sender, receiver = codec.sender(), codec.receiver()
    >>> receiver.decode(sender.encode({"w": np.float32([3, -1, 0])}))["w"]
    array([ 1.3333334, -1.3333334,  1.3333334], dtype=float32)

    Save its state to a file: a fresh sender of the same codec continues from it and sends the same bits:

    >>> import io
    >>> file, again = io.BytesIO(), codec.sender()
    >>> np.savez(file, **sender.state())
    >>> _ = file.seek(0)
    >>> again.restore(np.load(file))
    >>> again.encode({"w": np.float32([0, 1, 0])}) == sender.encode({"w": np.float32([0, 1, 0])})
    True
    """

    def __init__(self, encoder: Any) -> None:
        self.trace: Trace = encoder.trace
        self._encoder = encoder
        self._encoder.most = of_anything().nbytes
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._count = 0

    def encode(self, tensors: Mapping[str, Array]) -> Frames:
        """Encode named arrays into frames. NonFiniteError for NaN or infinity, ValueError for an array that cannot be
        encoded, TypeError for anything but a mapping of names to arrays.
        """
        codec = self._encoder.codec

        def exact(name: str) -> bool:
            return bool(codec.quantizer_of(name).identity)

        arrays = named_arrays(tensors, "encode takes tensors", "tensor", exact)
        check_finite(arrays, "The tensor", "Look at the code that makes it.")
        for name, x in arrays.items():
            check_dtype(codec, name, x.dtype)
        for name, x in () if codec.memory.stateless else arrays.items():
            if self._shapes.get(name, x.shape) != x.shape:
                raise ValueError(
                    f"The tensor {name!r} had the shape {self._shapes[name]}, which its memory has, and now has "
                    f"{x.shape}. Give it another name, or take a fresh sender and receiver."
                )
        header = {"number": self._count} if codec.memory.restores else {}
        frames: Frames = self._encoder.encode(Message(header, arrays))
        self._shapes |= {name: x.shape for name, x in arrays.items()}
        self._count += 1
        return frames

    def state(self) -> dict[str, Array]:
        """The memories, the random draws and the number of messages, as named arrays for `numpy.savez` and `restore`.
        Later messages do not change these arrays.
        """
        kept = {"end": "sender", "by": self._encoder.codec.memory.name, "count": self._count, "shapes": self._shapes}
        return saved.to_arrays({**kept, **self._encoder.state()})

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from the `state` of a sender whose codec has the same memory. For any other state, ValueError is
        raised and nothing changes.
        """
        encoder = self._encoder
        kept = _check_state("sender", state, encoder.codec.memory.name)
        encoder.restore(kept)
        self._shapes, self._count = kept["shapes"], kept["count"]


class Receiver:
    """The receiving end of a codec, for one sender's messages. ``trace`` records its stages' spans.

    With `Delta` it remembers the arrays received. Save its state and its `Sender`'s state after the same message:

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

    def __init__(self, codec: Any, decoder: Any, unpack: Callable[..., Any]) -> None:
        self.codec, self._decoder, self._unpack = codec, decoder, unpack
        self.trace: Trace = decoder.trace
        self._count = 0

    def decode(self, frames: Frames) -> Tensors:
        """Decode frames into named arrays. Decode messages in the order in which they were encoded. TypeError for
        anything but a list of bytes. ValueError, with nothing changed, if the frames are malformed or, with a memory
        that restores, belong to another message than the next one.
        """
        _check_frames(frames)
        packet, _, names, moments = self._unpack(frames, self.codec, self.trace)
        self.trace.laps(names, moments)
        number, memory = (packet.header.get(name) for name in ("number", "memory"))
        if number not in (None, self._count):
            raise ValueError(
                f"Expected message {self._count} of this sender, got message {number!r}: {memory} needs every one, "
                "once, in the order of sending. Decode the one expected, or take a fresh sender and a fresh receiver."
            )
        tensors: Tensors = self._decoder.decode(packet).tensors
        self._count += 1
        return tensors

    def state(self) -> dict[str, Array]:
        """The memories and the number of messages, as named arrays for `numpy.savez` and `restore`. Later messages do
        not change these arrays.
        """
        kept = {"end": "receiver", "by": self.codec.memory.name, "count": self._count}
        return saved.to_arrays({**kept, **self._decoder.state()})

    def restore(self, state: Mapping[str, Array]) -> None:
        """Continue from the `state` of a receiver whose codec has the same memory. For any other state, ValueError is
        raised and nothing changes.
        """
        kept = _check_state("receiver", state, self.codec.memory.name)
        self._decoder.restore(kept)
        self._count = kept["count"]


def trace_of(end: str, given: Trace | None) -> Trace:
    """The trace given to this end, or a fresh one for None. TypeError for anything else."""
    trace = Trace(end) if given is None else given
    check_type(end, trace, Trace, "a Trace")
    return trace


def _check_frames(frames: object) -> None:
    """Raise TypeError for anything but a list of buffers."""
    try:
        if isinstance(frames, list | tuple):
            for frame in frames:
                memoryview(frame)
            return
    except TypeError:
        pass
    raise TypeError(f"decode takes the frames that encode gave, a list of bytes; got {reprlib.repr(frames)}.")


def _check_state(end: str, state: Mapping[str, Array], memory: str) -> dict[str, Any]:
    """The values in an end's state. ValueError if it is malformed, or is from another kind of end or another memory."""
    kept = saved.from_arrays(state, "This state")
    theirs, other = kept.get("end"), kept.get("by")
    if theirs and (theirs, other) != (end, memory):
        got = f"the state of a {theirs} with the memory {other!r}"
        raise ValueError(f"A {end} with the memory {memory!r} continues from the state of another one; got {got}.")
    try:
        fits = bool(theirs) and type(kept["count"]) is int and all(type(one) is dict for one in kept["memory"].values())
        if end == "sender":
            fits &= all(type(shape) is tuple for shape in kept["shapes"].values())
            np.random.default_rng().bit_generator.state = kept["draws"]
    except (KeyError, TypeError, ValueError, AttributeError):
        fits = False
    if not fits:
        raise ValueError(f"This state is not one that a {end} gave: an entry is missing or malformed.")
    return kept


def seal(frames: Frames) -> bytes:
    """Return a file's body. It begins with a head: the bytes 89 6D 70 73 (hexadecimal), the number of frames (4 bytes),
    their lengths (8 bytes each), and the CRC-32 of all other bytes (4 bytes, `zlib.crc32`), all little-endian. The
    frames follow. Zeros pad the head and each frame to a multiple of 64 bytes.

    `unseal` also reads older files, which begin with four zeros instead and have no CRC-32.
    """
    check_count(len(frames))
    _, *body = pieces(0, frames)
    head = SEAL + len(frames).to_bytes(4, "little") + lengths_of(frames)
    zeros = bytes(-(len(head) + CRC_BYTES) % ALIGNMENT)
    crc = zlib.crc32(zeros, zlib.crc32(head))
    for piece in body:
        crc = zlib.crc32(piece, crc)
    return b"".join([head, crc.to_bytes(CRC_BYTES, "little"), zeros, *body])


def unseal(file: memoryview) -> Frames:
    """The frames of a sealed body, or of a body with tag 0, as views of the body. ValueError if a byte has changed."""
    start = bytes(file[: len(SEAL)])
    if start == bytes(len(SEAL)):
        return split(file)[1]
    if start != SEAL:
        raise ValueError(f"They begin with {start!r}, and such bytes begin with {SEAL!r}.")
    count = int.from_bytes(file[len(SEAL) : HEAD.size], "little")
    end = HEAD.size + 8 * count
    rest = end + CRC_BYTES
    crc = zlib.crc32(file[rest:], zlib.crc32(file[:end]))
    if bytes(file[end:rest]) != crc.to_bytes(CRC_BYTES, "little"):
        raise ValueError("They are damaged, or cut short: their CRC-32 does not fit.")
    return cut(file[padded_size(rest) :], lengths(file, HEAD.size, count, len(file)))
