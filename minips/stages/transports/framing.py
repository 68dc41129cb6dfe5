"""A message as one run of bytes, and a stream of bytes as messages. No I/O.

Such a run is the **body** of a message:

    head       tag (1 byte), 3 zero bytes, number of frames (4 bytes), the frames' lengths (8 bytes each);
               little-endian
    frames     one after the other

The head and each frame are followed by zeros up to a multiple of 64 bytes. So arrays can live where a body arrived; and
where bodies follow each other in a stream, the kernel's memory and the arrays' are aligned alike, which makes copies
between them a fifth faster. Memory for incoming messages is aligned, too; it is not cleared, and is used again.
"""

import mmap
import struct
import weakref
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import accumulate

import numpy as np

from minips.stage import Array, Buffer, Frames

HEAD = struct.Struct("<BxxxI")
ALIGNMENT, LARGE_BYTES = 64, 2**20
LIMIT = "what this end's tensors can need, and at most the transport's max_message_bytes"
"""The end of a sentence: the origin of a message's limit."""
KEPT = 2
"""`Blocks` remembers so many blocks in use, to fill them again."""
AHEAD_BYTES = 2**14
"""Messages of up to so many bytes are read, and written, with one system call."""
MOST_FRAMES = 2**16
"""The most frames of one message. Their lengths take at most half a megabyte."""
FEW = 64
"""Messages of up to so many frames share one layout with all others of the same sizes."""
_PADDING = [bytes(-nbytes % ALIGNMENT) for nbytes in range(ALIGNMENT)]


def check_count(frames: int) -> None:
    """ValueError where a message has too many frames; called before memory is taken for their lengths."""
    if frames > MOST_FRAMES:
        raise ValueError(
            f"A message of {frames} frames has more than the {MOST_FRAMES} that are allowed. Each part of a tensor is "
            "a frame: join small tensors into larger ones, or use more servers."
        )


def pieces(tag: int, frames: Frames) -> list[Buffer]:
    """The buffers that, one after the other, make up a body; no frame is copied."""
    sizes = tuple(map(len, frames))
    body = _known_body(tag, sizes).copy() if len(sizes) <= FEW else _body(tag, sizes)
    body[1::2] = frames
    return body


def _body(tag: int, sizes: tuple[int, ...]) -> list[Buffer]:
    """A body whose frames have these sizes: its head, padded, then a place for each frame and the zeros after it."""
    head = _head(len(sizes)).pack(tag, len(sizes), *sizes)
    body: list[Buffer] = [head + _PADDING[len(head) % ALIGNMENT]]
    for nbytes in sizes:
        body += b"", _PADDING[nbytes % ALIGNMENT]
    return body


@lru_cache
def _sizes(count: int) -> struct.Struct:
    """The format of so many lengths."""
    return struct.Struct(f"<{count}Q")


@lru_cache
def _head(count: int) -> struct.Struct:
    """The format of the head of a body of so many frames."""
    return struct.Struct(f"{HEAD.format}{count}Q")


def padded(frames: Frames) -> list[Buffer]:
    """The frames, each followed by zeros up to a multiple of 64 bytes."""
    return [buffer for frame in frames for buffer in (frame, _PADDING[len(frame) % ALIGNMENT])]


def lengths_of(frames: Frames) -> bytes:
    """The frames' lengths, 8 bytes each, little-endian."""
    return _sizes(len(frames)).pack(*map(len, frames))


def lengths(head: memoryview, at: int, count: int, limit: int) -> tuple[int, ...]:
    """The lengths of ``count`` frames at this place of a head. ValueError where their sum exceeds ``limit``."""
    sizes: tuple[int, ...] = _sizes(count).unpack_from(head, at)
    if sum(sizes) > limit:
        raise too_large(sizes, limit)
    return sizes


class TooLargeError(ConnectionError, ValueError):
    """A message is larger than its receiver allows. It ends the connection, and would end the next one, too."""


def too_large(sizes: Sequence[int], limit: int) -> TooLargeError:
    """The error for a message whose frames have these sizes."""
    return TooLargeError(f"A message of {sum(sizes)} bytes is larger than the {limit} that are allowed: {LIMIT}.")


def padded_size(nbytes: int) -> int:
    """``nbytes`` and the zeros after them."""
    return nbytes + -nbytes % ALIGNMENT


def stream_nbytes(sizes: Sequence[int]) -> int:
    """The bytes of a body whose frames have these sizes, with its head and all the zeros.

    >>> stream_nbytes([100, 1])
    256
    """
    return padded_size(HEAD.size + 8 * len(sizes)) + sum(map(padded_size, sizes))


def size(body: Iterable[Buffer]) -> int:
    """Bytes in all these buffers."""
    return sum(map(len, body))


def _places(sizes: tuple[int, ...]) -> tuple[int, list[slice]]:
    """The bytes of padded frames of these sizes, and the place of each."""
    ends = [*accumulate(map(padded_size, sizes), initial=0)]
    return ends[-1], [slice(at, at + nbytes) for at, nbytes in zip(ends, sizes, strict=False)]


_known_body, _known_places = lru_cache(8)(_body), lru_cache(8)(_places)


def cut(block: memoryview, sizes: tuple[int, ...]) -> Frames:
    """Padded frames of these sizes, as views of the block."""
    _, places = _known_places(sizes) if len(sizes) <= FEW else _places(sizes)
    return [*map(block.__getitem__, places)]


def split(body: memoryview) -> tuple[int, Frames]:
    """Tag and frames, as views of the body. ValueError where it is not a body."""
    try:
        tag, count = HEAD.unpack_from(body)
        check_count(count)
        sizes = _sizes(count).unpack_from(body, HEAD.size)
    except struct.error:
        raise ValueError("the head of a message is malformed") from None
    if stream_nbytes(sizes) != len(body):
        raise ValueError(f"a message of {len(body)} bytes should have {stream_nbytes(sizes)} by its head")
    return tag, cut(body[padded_size(HEAD.size + 8 * count) :], sizes)


def memory(nbytes: int) -> memoryview:
    """Writable memory that starts at a multiple of 64. It is not cleared, since the caller fills it.

    A large block comes from the system and goes back to it: within the allocator's heaps it would force each later
    array to be mapped anew.
    """
    if nbytes >= LARGE_BYTES:
        if not hasattr(mmap, "MADV_HUGEPAGE"):
            return memoryview(mmap.mmap(-1, nbytes))
        large = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared memory has no huge pages
        with suppress(OSError):  # nor has every kernel
            large.madvise(mmap.MADV_HUGEPAGE)
        return memoryview(large)
    block = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -block.__array_interface__["data"][0] % ALIGNMENT
    return block[start : start + nbytes].data


def writable(body: Buffer) -> memoryview:
    """A writable copy of a body that a library has read into its own, read-only memory."""
    copy = memory(len(body))
    copy[:] = body
    return copy


class Blocks:
    """Memory that is used again once it has no reader: fresh memory costs nearly as much time as filling it."""

    def __init__(self) -> None:
        self._blocks: list[tuple[memoryview, weakref.ref[Array]]] = []

    def take(self, nbytes: int) -> memoryview:
        """A writable, aligned block of so many bytes, without a reader."""
        free = [block for block, reader in self._blocks if reader() is None and nbytes <= len(block) <= 2 * nbytes]
        block = free[0] if free else memory(nbytes)
        reader = np.frombuffer(block, np.uint8)  # alive for as long as any view of it
        used = [pair for pair in self._blocks if pair[1]() is not None]
        self._blocks = [*used[-KEPT:], (block, weakref.ref(reader))]
        return reader.data[:nbytes]


class Framer:
    """The messages of a stream. Put the next bytes into ``room``, and call `took` with their number; `message` gives
    the next message, once it is complete.

    The framer reads ahead, so that one system call brings a whole small message; the frames of an incomplete message
    are read into the memory where they will live.
    """

    def __init__(self, max_message_bytes: int) -> None:
        self.max_message_bytes = max_message_bytes
        self._ahead, self._start, self._stop = memoryview(bytearray(AHEAD_BYTES)), 0, 0
        self._left: memoryview | None = None
        """The room for the rest of an incomplete message."""
        self._coming: tuple[int, memoryview, tuple[int, ...]] = 0, memoryview(b""), ()
        self._blocks = Blocks()
        self.room, self.begun = self._ahead, False
        """``begun``: True while bytes have arrived that belong to no complete message."""

    def took(self, count: int) -> None:
        """Note that so many bytes have arrived in the room."""
        self.begun = True
        if self._left is None:
            self._stop += count
        else:
            self._left = self.room = self._left[count:]

    def message(self, limit: int | None = None) -> tuple[int, Frames] | None:
        """Tag and frames of the next message; None until it is complete. ValueError where it is malformed, or has more
        than ``limit`` bytes.
        """
        if self._left is not None:
            if len(self._left):
                return None
            tag, block, sizes = self._coming
            self._coming, self._left, self.room = (0, memoryview(b""), ()), None, self._ahead[:AHEAD_BYTES]
            self.begun = False
            return tag, cut(block, sizes)
        start, stop = self._start, self._stop
        here = self._ahead[start:stop]
        if stop - start < ALIGNMENT:
            if here:
                self._want(ALIGNMENT, here)
            return None
        most = self.max_message_bytes
        head = self.head(here, most if limit is None else min(limit, most))
        if isinstance(head, int):
            self._want(head, here)
            return None
        end, tag, sizes, frames = head
        if frames is None:
            total, places = _known_places(sizes) if len(sizes) <= FEW else _places(sizes)
            body = here[end : end + total]
            if len(body) < total:
                self._begin(body, tag, sizes, total)
                return None
            frames = [*map(bytearray, map(body.__getitem__, places))]
            end += total
        if start + end == stop:
            self._start = self._stop = 0
            self.begun = False
        else:
            self._start += end
        self.room = self._ahead[self._stop : self._stop + AHEAD_BYTES]
        return tag, frames

    def head(self, here: memoryview, limit: int) -> "int | tuple[int, int, tuple[int, ...], Frames | None]":
        """Read the head that begins here: its padded size, the message's tag, the sizes of its frames, and the frames
        if they do not come through the stream. For an incomplete head, only its number of bytes.
        """
        tag, count = HEAD.unpack_from(here)
        if count > MOST_FRAMES:
            check_count(count)
        nbytes = HEAD.size + 8 * count
        nbytes += -nbytes % ALIGNMENT
        if nbytes > len(here):
            return check_head(nbytes, limit)
        sizes = _sizes(count).unpack_from(here, HEAD.size)
        if sum(sizes) > limit:
            raise too_large(sizes, limit)
        return nbytes, tag, sizes, None

    def fill(self, room: memoryview) -> memoryview:
        """Fill a room with the bytes that were read ahead. Returns the rest of the room."""
        some = self._ahead[self._start : min(self._stop, self._start + len(room))]
        room[: len(some)] = some
        self._start += len(some)
        self._want(0, self._ahead[self._start : self._stop])
        return room[len(some) :]

    def _begin(self, some: memoryview, tag: int, sizes: tuple[int, ...], total: int) -> None:
        """Make room for the frames of a message of which some bytes have arrived."""
        block = self._blocks.take(total)
        block[: len(some)] = some
        self._start = self._stop = 0
        self._coming, self._left = (tag, block, sizes), block[len(some) :]
        self.room = self._left

    def _want(self, nbytes: int, here: memoryview) -> None:
        """Make room for so many bytes in a row, of which these have arrived."""
        if not here or self._start + nbytes > len(self._ahead) or self._stop == len(self._ahead):
            if nbytes > len(self._ahead):
                self._ahead = memoryview(bytearray(here) + bytearray(nbytes - len(here)))
            else:
                self._ahead[: len(here)] = bytes(here)
            self._start, self._stop = 0, len(here)
        self.room = self._ahead[self._stop : self._stop + AHEAD_BYTES]


def check_head(nbytes: int, limit: int) -> int:
    """``nbytes``. ValueError for a head of more than ``limit`` bytes."""
    if nbytes > max(limit, ALIGNMENT):
        raise ValueError(f"A message with a head of {nbytes} bytes is larger than the {limit} that are allowed.")
    return nbytes
