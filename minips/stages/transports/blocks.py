"""Memory for what arrives: aligned, not cleared, and used again."""

import mmap
import weakref
from contextlib import suppress

import numpy as np

from minips.stage import Array, Buffer

ALIGNMENT, LARGE_BYTES = 64, 2**20
KEPT = 2
"""Blocks in use that `Blocks` remembers, to fill them again."""


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


class Blocks:
    """Memory that is used again once nothing looks at it: fresh memory costs nearly as much time as filling it."""

    def __init__(self) -> None:
        self._blocks: list[tuple[memoryview, weakref.ref[Array]]] = []

    def take(self, nbytes: int) -> memoryview:
        """A writable block of so many bytes, aligned, that nothing looks at."""
        free = [block for block, reader in self._blocks if reader() is None and nbytes <= len(block) <= 2 * nbytes]
        block = free[0] if free else memory(nbytes)
        reader = np.frombuffer(block, np.uint8)  # alive for as long as any view of it
        used = [pair for pair in self._blocks if pair[1]() is not None]
        self._blocks = [*used[-KEPT:], (block, weakref.ref(reader))]
        return reader.data[:nbytes]
