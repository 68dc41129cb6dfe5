"""Packs a message into contiguous bytes, and splits a stream of bytes into messages. Does no I/O.

The contiguous bytes are the **body** of a message:

    head       tag (1 byte), 3 zero bytes, number of frames (4 bytes), the frames' lengths (8 bytes each);
               little-endian
    frames     one after the other

The head and each frame are padded with zeros to a multiple of 64 bytes, so arrays can use the memory that received a
body. When bodies follow each other in a stream, the kernel's memory has the same alignment as the arrays, which makes
copies a fifth faster. Memory for incoming messages is aligned too; it is not cleared, and is reused.
"""

import mmap
import struct
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import accumulate

import numpy as np

from minips.stage import Array, Buffer, Frames

HEAD = struct.Struct("<BxxxI")
ALIGNMENT, LARGE_BYTES = 64, 2**20
LIMIT = "what this end's tensors can need, and at most the transport's max_message_bytes"
"""The end of an error's sentence, which explains a message's limit."""
KEPT = 2
"""The maximum number of blocks in use that `Blocks` remembers, to reuse them later."""
AHEAD_BYTES = 2**16
"""The largest message, in bytes, that one system call reads or writes."""
MOST_FRAMES = 2**16
"""The maximum number of frames in one message. Their lengths need at most half a megabyte."""
FEW = 64
"""Messages of at most this many frames share a cached layout with other messages of the same sizes."""
_PADDING = [bytes(-nbytes % ALIGNMENT) for nbytes in range(ALIGNMENT)]


def check_count(frames: int) -> None:
    """Raise ValueError if a message has too many frames. Called before memory is allocated for their lengths."""
    if frames > MOST_FRAMES:
        raise ValueError(
            f"A message of {frames} frames has more than the {MOST_FRAMES} that are allowed. Each part of a tensor is "
            "a frame: join small tensors into larger ones, or use more servers."
        )


def pieces(tag: int, frames: Frames, opening: Callable[[int, int], bytes] = HEAD.pack) -> list[Buffer]:
    """Return the buffers that make up a body when joined in order; no frame is copied. ``opening`` returns the bytes
    before the lengths, given the tag and the number of frames.
    """
    sizes = tuple(map(len, frames))
    body = _known_body(opening, tag, sizes).copy() if len(sizes) <= FEW else _body(opening, tag, sizes)
    body[1::2] = frames
    return body


def _body(opening: Callable[[int, int], bytes], tag: int, sizes: tuple[int, ...]) -> list[Buffer]:
    """Return a body for frames of these sizes: the padded head, then a placeholder and zeros for each frame."""
    head = opening(tag, len(sizes)) + _sizes(len(sizes)).pack(*sizes)
    body: list[Buffer] = [head + _PADDING[len(head) % ALIGNMENT]]
    for nbytes in sizes:
        body += b"", _PADDING[nbytes % ALIGNMENT]
    return body


@lru_cache
def _sizes(count: int) -> struct.Struct:
    """Return the format of ``count`` lengths."""
    return struct.Struct(f"<{count}Q")


def padded(frames: Frames) -> list[Buffer]:
    """Return the frames, each followed by zeros up to a multiple of 64 bytes."""
    return [buffer for frame in frames for buffer in (frame, _PADDING[len(frame) % ALIGNMENT])]


def lengths_of(frames: Frames) -> bytes:
    """Return the frames' lengths, 8 bytes each, little-endian."""
    return _sizes(len(frames)).pack(*map(len, frames))


def lengths(head: memoryview, at: int, count: int, limit: int) -> tuple[int, ...]:
    """Read the lengths of ``count`` frames at offset ``at`` of a head. ValueError if their sum exceeds ``limit``."""
    sizes: tuple[int, ...] = _sizes(count).unpack_from(head, at)
    if sum(sizes) > limit:
        raise too_large(sizes, limit)
    return sizes


class TooLargeError(ConnectionError, ValueError):
    """Raised for a message larger than its receiver allows. It ends the connection; a retry would end the next one."""


def too_large(sizes: Sequence[int], limit: int) -> TooLargeError:
    """Return the error for a message whose frames have these sizes."""
    return TooLargeError(f"A message of {sum(sizes)} bytes is larger than the {limit} that are allowed: {LIMIT}.")


def padded_size(nbytes: int) -> int:
    """Return ``nbytes`` rounded up to a multiple of 64, which includes the zeros."""
    return nbytes + -nbytes % ALIGNMENT


def stream_nbytes(sizes: Sequence[int]) -> int:
    """Return the size, in bytes, of a body whose frames have these sizes, including the head and all padding.

    >>> stream_nbytes([100, 1])
    256
    """
    return padded_size(HEAD.size + 8 * len(sizes)) + sum(map(padded_size, sizes))


def size(body: Iterable[Buffer]) -> int:
    """Return the number of bytes in all these buffers."""
    return sum(map(len, body))


def _places(sizes: tuple[int, ...]) -> tuple[int, list[slice]]:
    """Return the total size of frames of these sizes with their padding, and each frame's slice."""
    ends = [*accumulate(map(padded_size, sizes), initial=0)]
    return ends[-1], [slice(at, at + nbytes) for at, nbytes in zip(ends, sizes, strict=False)]


_known_body, _known_places = lru_cache(8)(_body), lru_cache(8)(_places)


def cut(block: memoryview, sizes: tuple[int, ...]) -> Frames:
    """Return padded frames of these sizes as views of the block."""
    _, places = _known_places(sizes) if len(sizes) <= FEW else _places(sizes)
    return [*map(block.__getitem__, places)]


def split(body: memoryview) -> tuple[int, Frames]:
    """Return a body's tag and its frames as views. ValueError if this is not a body."""
    try:
        tag, count = HEAD.unpack_from(body)
        check_count(count)
        sizes = _sizes(count).unpack_from(body, HEAD.size)
    except struct.error:
        raise ValueError("the head of a message is malformed") from None
    if stream_nbytes(sizes) != len(body):
        raise ValueError(f"a message of {len(body)} bytes should have {stream_nbytes(sizes)} according to its head")
    return tag, cut(body[padded_size(HEAD.size + 8 * count) :], sizes)


def memory(nbytes: int) -> memoryview:
    """Return writable memory that starts at a multiple of 64. It is not cleared, since the caller fills it.

    A large block is allocated from the system, and later returned to the system: inside the allocator's heaps, it
    would force each later array to be mapped anew.
    """
    if nbytes >= LARGE_BYTES:
        if not hasattr(mmap, "MADV_HUGEPAGE"):
            return memoryview(mmap.mmap(-1, nbytes))
        large = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared memory has no huge pages
        with suppress(OSError):  # some kernels lack huge pages
            large.madvise(mmap.MADV_HUGEPAGE)
        return memoryview(large)
    block = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -block.__array_interface__["data"][0] % ALIGNMENT
    return block[start : start + nbytes].data


def writable(body: Buffer) -> memoryview:
    """Copy a body from a library's read-only memory into writable memory."""
    copy = memory(len(body))
    copy[:] = body
    return copy


class Blocks:
    """Memory that is reused once it has no reader, since allocating new memory takes nearly as long as filling it."""

    def __init__(self) -> None:
        self._blocks: list[tuple[memoryview, weakref.ref[Array]]] = []

    def allocate(self, nbytes: int) -> memoryview:
        """Return a writable, aligned block of ``nbytes`` bytes that has no reader."""
        free = [block for block, reader in self._blocks if reader() is None and nbytes <= len(block) <= 2 * nbytes]
        block = free[0] if free else memory(nbytes)
        reader = np.frombuffer(block, np.uint8)  # alive as long as any view of it is
        used = [pair for pair in self._blocks if pair[1]() is not None]
        self._blocks = [*used[-KEPT:], (block, weakref.ref(reader))]
        return reader.data[:nbytes]


class Framer:
    """Splits a stream into messages. Write the next bytes into ``room``, then call `advance` with their number.
    `message` returns the next message when it is complete.

    The framer reads ahead, so that one system call reads a whole small message. The frames of an incomplete message are
    read directly into the arrays' final memory.
    """

    opening_bytes = HEAD.size
    """The number of bytes in a head before the lengths of the frames."""

    def __init__(self, max_message_bytes: int) -> None:
        self.max_message_bytes = max_message_bytes
        self._ahead, self._start, self._stop = memory(AHEAD_BYTES), 0, 0  # the system provides the pages that are used
        self._left: memoryview | None = None
        """The memory that the rest of an incomplete message will fill."""
        self._coming: tuple[int, memoryview, tuple[int, ...]] = 0, memoryview(b""), ()
        self._blocks = Blocks()
        self.room, self.incomplete = self._ahead, False
        """``incomplete``: True if bytes have arrived that do not yet form a complete message."""

    def advance(self, count: int) -> None:
        """Accept ``count`` bytes that were written into ``room``."""
        self.incomplete = True
        if self._left is None:
            self._stop += count
        else:
            self._left = self.room = self._left[count:]

    def message(self, limit: int | None = None) -> tuple[int, Frames] | None:
        """Return the tag and frames of the next message; None until it is complete. ValueError if it is malformed, or
        has more than ``limit`` bytes.
        """
        if self._left is not None:
            if len(self._left):
                return None
            tag, block, sizes = self._coming
            self._coming, self._left, self.room = (0, memoryview(b""), ()), None, self._ahead[:AHEAD_BYTES]
            self.incomplete = False
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
            self.incomplete = False
        else:
            self._start += end
        self.room = self._ahead[self._stop : self._stop + AHEAD_BYTES]
        return tag, frames

    def head(self, here: memoryview, limit: int) -> "int | tuple[int, int, tuple[int, ...], Frames | None]":
        """Read the head that begins here. Return its padded size, the message's tag, the sizes of its frames, and the
        frames if they do not arrive through the stream. For an incomplete head, return only its number of bytes.
        """
        tag, count = HEAD.unpack_from(here)
        if count > MOST_FRAMES:
            check_count(count)
        nbytes = self.opening_bytes + 8 * count
        nbytes += -nbytes % ALIGNMENT
        if nbytes > len(here):
            return check_head(nbytes, limit)
        sizes = _sizes(count).unpack_from(here, self.opening_bytes)
        if sum(sizes) > limit:
            raise too_large(sizes, limit)
        return nbytes, tag, sizes, None

    def fill(self, room: memoryview) -> memoryview:
        """Copy bytes that were read ahead into ``room``. Return the part of ``room`` that is left to fill."""
        some = self._ahead[self._start : min(self._stop, self._start + len(room))]
        room[: len(some)] = some
        self._start += len(some)
        self._want(0, self._ahead[self._start : self._stop])
        return room[len(some) :]

    def _begin(self, some: memoryview, tag: int, sizes: tuple[int, ...], total: int) -> None:
        """Allocate memory for the frames of a message of which only the first bytes have arrived."""
        block = self._blocks.allocate(total)
        block[: len(some)] = some
        self._start = self._stop = 0
        self._coming, self._left = (tag, block, sizes), block[len(some) :]
        self.room = self._left

    def _want(self, nbytes: int, here: memoryview) -> None:
        """Set ``room`` so that ``here``, the bytes that have arrived, can grow to ``nbytes`` contiguous bytes."""
        if not here or self._start + nbytes > len(self._ahead) or self._stop == len(self._ahead):
            if nbytes > len(self._ahead):
                self._ahead = memoryview(bytearray(here) + bytearray(nbytes - len(here)))
            else:
                self._ahead[: len(here)] = bytes(here)
            self._start, self._stop = 0, len(here)
        self.room = self._ahead[self._stop : self._stop + AHEAD_BYTES]


def check_head(nbytes: int, limit: int) -> int:
    """Return ``nbytes``. ValueError for a head of more than ``limit`` bytes."""
    if nbytes > max(limit, ALIGNMENT):
        raise ValueError(f"A message with a head of {nbytes} bytes is larger than the {limit} that are allowed.")
    return nbytes
