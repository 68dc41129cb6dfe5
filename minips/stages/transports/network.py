"""What the transports over a network share: addresses of host and port, and a message as one run of bytes.

A **body** is a message as such a run:

    head       tag (1 byte), 3 zero bytes, number of frames (4 bytes), the frames' lengths (8 bytes each);
               little-endian
    frames     one behind the other

The head and each frame are followed by zeros up to a multiple of 64 bytes. So arrays can live in a body where it
arrived; and where bodies follow each other in a stream, what is copied between the kernel's memory and the arrays' is
aligned alike in both, which takes a fifth less time than otherwise.
"""

import mmap
import socket
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import ClassVar

import numpy as np

from minips.stage import Buffer, Frames
from minips.stages.transports.auth import LIMIT_BYTES
from minips.stages.transports.base import WireTransport
from minips.stages.transports.wire import check_count

HEAD = struct.Struct("<BxxxI")
ALIGNMENT, LARGE_BYTES = 64, 2**20
HANDSHAKE_BYTES = LIMIT_BYTES + 4 * ALIGNMENT
"""The largest body that is taken from a peer that has not yet shown that it knows the token."""


class NetworkTransport(WireTransport):
    """Addresses are ``scheme://host:port``: port 0 for a free one, loopback unless another host is named."""

    extra: ClassVar[str] = "transports"

    def bound(self, address: str | None) -> socket.socket:
        """A socket that listens at the address. OSError in a sentence where it cannot be had."""
        host, port = self.host_and_port(address)
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            return socket.create_server((host, port), family=family, backlog=128)
        except OSError as error:
            raise self.unservable(address, error.strerror) from None

    def dialled(self, address: str, timeout: float) -> socket.socket:
        """A socket connected to the address. ConnectionError where nobody answers."""
        try:
            return socket.create_connection(self.host_and_port(address), timeout)
        except OSError as error:
            raise ConnectionError(f"No server answers at {address}: {error}. Is the server running?") from None

    def host_and_port(self, address: str | None) -> tuple[str, int]:
        """``scheme://host:port`` taken apart; an IPv6 host stands in brackets. None: a free port of this machine."""
        host, separator, port = self.rest(f"{self.scheme}://:0" if address is None else address).rpartition(":")
        if not separator or not port.isdigit() or int(port) > 65535:
            raise ValueError(
                f"{type(self).__name__} takes an address such as {self.scheme}://127.0.0.1:5000, got {address!r}."
            )
        return host.strip("[]") or "127.0.0.1", int(port)

    def address(self, host: str, port: int) -> str:
        """The two put together."""
        return f"{self.scheme}://{_bracketed(host)}:{port}"

    def unservable(self, address: str | None, error: object) -> OSError:
        """The sentence for an address that cannot be had."""
        return OSError(f"{address} cannot be served: {error}. Choose another port, or 0 for a free one.")


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def netloc(host: str, port: int | str) -> str:
    """``host:port`` as libraries want it."""
    return f"{_bracketed(host)}:{port}"


def pieces(tag: int, frames: Frames) -> list[Buffer]:
    """The buffers that make up a body one after the other; none of the frames is copied."""
    return padded([HEAD.pack(tag, len(frames)) + lengths_of(frames), *frames])


def padded(frames: Frames) -> list[Buffer]:
    """The frames, each followed by zeros up to a multiple of 64 bytes; an empty one is left out."""
    buffers: list[Buffer] = []
    for frame in frames:
        if nbytes := len(frame):
            buffers.append(frame)
            if padding := -nbytes % ALIGNMENT:
                buffers.append(bytes(padding))
    return buffers


def lengths_of(frames: Frames) -> bytes:
    """The frames' lengths, 8 bytes each, little-endian."""
    return struct.pack(f"<{len(frames)}Q", *map(len, frames))


def starts(sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where frames of these sizes begin one behind the other, each padded, and the bytes of them all."""
    begins, total = [], 0
    for size in sizes:
        begins.append(total)
        total += size + -size % ALIGNMENT
    return begins, total


def stream_nbytes(sizes: Sequence[int]) -> int:
    """The bytes of a body whose frames have these sizes, with its head and all the zeros.

    >>> stream_nbytes([100, 1])
    256
    """
    _, total = starts([HEAD.size + 8 * len(sizes), *sizes])
    return total


def size(body: Iterable[Buffer]) -> int:
    """Bytes in all these buffers."""
    return sum(map(len, body))


def memory(nbytes: int) -> memoryview:
    """Writable memory that starts at a multiple of 64; not cleared, it is about to be filled.

    A large block comes from the system and goes back to it: in the allocator's heaps it would come to lie where each
    array after it has to be mapped anew.
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
    """A copy of a body that a library has read into memory of its own, which cannot be written to."""
    copy = memory(len(body))
    copy[:] = body
    return copy


def split(body: memoryview) -> tuple[int, Frames]:
    """Tag and frames, as views of the body. ValueError where it is no body."""
    try:
        tag, count = HEAD.unpack_from(body)
        check_count(count)
        sizes = struct.unpack_from(f"<{count}Q", body, HEAD.size)
    except struct.error:
        raise ValueError("the head of a message is malformed") from None
    (_, *begins), total = starts([HEAD.size + 8 * count, *sizes])
    if total != len(body):
        raise ValueError(f"a message of {len(body)} bytes should have {total}, says its head")
    return tag, cut(body, begins, sizes)


def cut(block: memoryview, begins: Sequence[int], sizes: Sequence[int]) -> Frames:
    """The frames that begin there, as views of the block."""
    return [block[begin : begin + size] for begin, size in zip(begins, sizes, strict=True)]
