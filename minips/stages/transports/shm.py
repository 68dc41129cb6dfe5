"""Shared memory: two processes of one machine see the same bytes, and a Unix socket carries the small messages.

A sender copies the frames of a large message into one of its segments and names the segment over the socket. The
receiver's arrays use that memory directly, without a further copy. When no array uses it any more, the
receiver's next message returns the segment, and the sender reuses it. Small messages travel through the socket.

A segment is unnamed memory (memfd_create). Its descriptor is passed over the socket once, and the kernel frees it with
the last process that maps it, even after a crash. It is sealed against shrinking, so that a peer cannot remove it while
it is being read.

    message    head, the frames' lengths (8 bytes each), the segments that the sender returns (4 bytes each),
               and the frames themselves if they travel through the socket; all little-endian, the head with
               its numbers and each frame padded to a multiple of 64 bytes
    head       tag (1 byte), place (1 byte: 0 socket, 1 segment, 2 a new segment, sent with its descriptor),
               2 zero bytes, number of frames, number of segments returned, segment (4 bytes each)
"""

import mmap
import os
import socket
import struct
import sys
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minips.stage import Frames, register
from minips.stages.transports.base import Rest
from minips.stages.transports.framing import (
    ALIGNMENT,
    Framer,
    check_count,
    check_head,
    cut,
    lengths,
    lengths_of,
    padded,
    padded_size,
    pieces,
)
from minips.stages.transports.patience import STALLED_S
from minips.stages.transports.pipe import LocalTransport
from minips.stages.transports.sockets import NOW, SocketWire
from minips.stages.transports.wire import Wire

_HEAD = struct.Struct("<BBxxIII")
_SOCKET, _SEGMENT, _NEW_SEGMENT = range(3)
_SMALL_BYTES = 2**14
_LEAST_BYTES = 2**20
_MOST_IN_USE, SEGMENTS = 8, 32
"""The limits on one sender. While ``_MOST_IN_USE`` segments are in use, frames go through the socket, which slows the
sender. All segments together may be ``SEGMENTS`` times as large as its largest message.
"""
_FDS = socket.CMSG_SPACE(struct.calcsize("i")) if hasattr(socket, "CMSG_SPACE") else 0


def _total(frames: Frames) -> int:
    """Return the size, in bytes, of the padded frames."""
    return sum(map(padded_size, map(len, frames)))


def _small(tag: int, count: int) -> bytes:
    """Return the bytes before the lengths in a message that neither uses nor returns a segment."""
    return _HEAD.pack(tag, _SOCKET, count, 0, 0)


class _ShmWire(SocketWire):
    def __init__(self, sock: socket.socket, max_message_bytes: int, stalled_s: float = STALLED_S) -> None:
        super().__init__(sock, _ShmFramer(max_message_bytes, self), stalled_s)
        self.max_message_bytes, self.receive_into = max_message_bytes, self._receive_with_descriptors
        self._receive_message: Callable[..., Any] = sock.recvmsg_into
        self._mine: dict[int, mmap.mmap] = {}
        self._free: set[int] = set()
        self._theirs: dict[int, mmap.mmap] = {}
        self._done: deque[int] = deque()
        self._descriptors: list[int] = []

    def send(self, tag: int, frames: Frames) -> None:
        self._send(tag, frames)

    def begin(self, tag: int, frames: Frames) -> Rest | None:
        total = _total(frames)
        if total > _SMALL_BYTES and not self._fitting(total):
            return Wire.begin(self, tag, frames)  # a new segment's descriptor must be sent before `_send` closes it
        return self._send(tag, frames, NOW)

    def _send(self, tag: int, frames: Frames, flags: int = 0) -> Rest | None:
        if sum(map(len, frames)) + ALIGNMENT * len(frames) <= _SMALL_BYTES and not self._done:
            return self.write(pieces(tag, frames, _small), flags=flags)
        total = _total(frames)
        place, segment, descriptors = _SOCKET, 0, list[int]()
        if total > _SMALL_BYTES and len(self._mine) - len(self._free) < _MOST_IN_USE:
            place, segment, descriptors = self._segment(total)
            places = cut(memoryview(self._mine[segment]), tuple(map(len, frames)))
            for there, frame in zip(places, frames, strict=True):
                there[:] = frame  # type: ignore[index]
        passed = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", one)) for one in descriptors]
        done = [self._done.popleft() for _ in range(len(self._done))]
        head = _HEAD.pack(tag, place, len(frames), len(done), segment) + lengths_of(frames)
        head += struct.pack(f"<{len(done)}I", *done)
        try:
            return self.write(padded([head, *(frames if place == _SOCKET else [])]), passed, flags)
        finally:
            for one in descriptors:
                os.close(one)

    def _fitting(self, nbytes: int) -> list[int]:
        """Return the free segments that are large enough."""
        return [number for number in list(self._free) if len(self._mine[number]) >= nbytes]

    def _segment(self, nbytes: int) -> tuple[int, int, list[int]]:
        """Return a free segment that is large enough, or a new segment and its descriptor."""
        import fcntl

        if fitting := self._fitting(nbytes):
            number = min(fitting, key=lambda number: len(self._mine[number]))
            self._free.discard(number)
            return _SEGMENT, number, []
        size = max(_LEAST_BYTES, 1 << (nbytes - 1).bit_length())
        descriptor, number = -1, len(self._mine)
        try:
            descriptor = os.memfd_create("minips", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(descriptor, size)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            self._mine[number] = mmap.mmap(descriptor, size)
        except OSError as error:
            if descriptor >= 0:
                os.close(descriptor)
            raise RuntimeError(
                f"There is no shared memory of {size} bytes for a message: {error.strerror}. Raise the limit on the "
                "size of files or on memory (ulimit -f, ulimit -v), or use another transport, such as tcp."
            ) from None
        return _NEW_SEGMENT, number, [descriptor]

    def _receive_with_descriptors(self, room: memoryview, nbytes: int = 0, flags: int = 0) -> int:
        got, ancillary, _, _ = self._receive_message([room], _FDS, flags)
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                self._descriptors += struct.unpack(f"{len(data) // 4}i", data[: len(data) // 4 * 4])
            if len(self._descriptors) > 1:
                raise ValueError(f"{len(self._descriptors)} descriptors came, but one is expected")
        return int(got)

    def _map(self, segment: int) -> None:
        import fcntl

        if not self._descriptors or segment in self._theirs:
            raise ValueError("a new segment came without a descriptor, or it is not new")
        descriptor = self._descriptors.pop()
        try:
            size = os.fstat(descriptor).st_size
            sealed = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK
            most, held = max(self.max_message_bytes, _LEAST_BYTES), sum(map(len, self._theirs.values()))
            if not sealed or size > 2 * most or held + size > SEGMENTS * most:
                raise ValueError(f"a segment of {size} bytes is too large, or it is not sealed against shrinking")
            self._theirs[segment] = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)

    def take_segments(self, place: int, segment: int, done: Sequence[int]) -> None:
        """Record the segments that a head returns, and map the new segment that it names, if any."""
        if place == _NEW_SEGMENT:
            self._map(segment)
        self._free.update(set(done) & self._mine.keys())

    @property
    def segments(self) -> int:
        """The number of segments that this side has created."""
        return len(self._mine)

    def view(self, segment: int, sizes: tuple[int, ...]) -> Frames:
        """Return frames within the peer's segment. When no array uses them any more, the segment is due to go back."""
        total = sum(map(padded_size, sizes))
        if segment not in self._theirs or total > len(self._theirs[segment]):
            raise ValueError(f"there is no segment {segment} of {total} bytes")
        block = np.frombuffer(self._theirs[segment], np.uint8, total)
        weakref.finalize(block, self._done.append, segment).atexit = False
        return cut(block.data, sizes)

    def close(self) -> None:
        super().close()
        while self._descriptors:
            os.close(self._descriptors.pop())
        self._theirs.clear()  # the memory of live arrays stays mapped until they are gone
        self._mine.clear()


class _ShmFramer(Framer):
    """A framer for messages whose heads name segments."""

    opening_bytes = _HEAD.size

    def __init__(self, max_message_bytes: int, wire: _ShmWire) -> None:
        super().__init__(max_message_bytes)
        self._wire = weakref.proxy(wire)

    def head(self, here: memoryview, limit: int) -> int | tuple[int, int, tuple[int, ...], Frames | None]:
        tag, place, count, done, segment = _HEAD.unpack_from(here)
        if place == _SOCKET and not done:
            return Framer.head(self, here, limit)
        check_count(count)
        if place != _SOCKET and limit < self.max_message_bytes:
            raise ValueError("a peer that has not proved itself offers shared memory")
        if done > self._wire.segments:
            raise ValueError(f"{done} segments are returned, but only {self._wire.segments} exist")
        end = _HEAD.size + 8 * count
        nbytes = padded_size(end + 4 * done)
        if nbytes > len(here):
            return check_head(nbytes, limit)
        sizes = lengths(here, _HEAD.size, count, limit)
        self._wire.take_segments(place, segment, struct.unpack_from(f"<{done}I", here, end))
        return nbytes, tag, sizes, None if place == _SOCKET else self._wire.view(segment, sizes)


@register
@dataclass(frozen=True)
class SharedMemory(LocalTransport):
    """Shared memory between processes of one Linux machine: ``shm://name``. Each array is copied once each way."""

    name = "shm"
    scheme = "shm"

    def wire(self, sock: socket.socket) -> Wire:
        return _ShmWire(sock, self.max_message_bytes, self.stalled_s)

    def make_socket(self, address: str) -> tuple[socket.socket, str | tuple[str, int]]:
        if sys.platform != "linux":
            raise OSError("The transport shm needs Linux's memory descriptors. Use pipe or tcp here.")
        return super().make_socket(address)
