"""Compressors: fewer bytes for the same bytes.

The contract is `Compressor`: ``decompress(compress(b), limit)`` equals ``b``, and it never makes more than ``limit``
bytes, whatever it is fed. A peer that sends a bomb gets a ValueError, not the memory.
"""

import zlib
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import lz4.block

from minips.stage import Buffer, Stage, option, register


class Compressor(Stage):
    """The contract. Any buffer of contiguous bytes goes in; the bytes that come out may be the same object."""

    kind: ClassVar[str] = "compressor"

    @abstractmethod
    def compress(self, buffer: Buffer) -> Buffer:
        """Fewer bytes, if there is anything to gain."""

    @abstractmethod
    def decompress(self, buffer: Buffer, limit: int) -> Buffer:
        """The original bytes. ValueError for damaged input or more than ``limit`` bytes of output."""


@register
@dataclass(frozen=True)
class NoCompression(Compressor):
    """The bytes as they are, uncopied."""

    name = "none"

    def compress(self, buffer: Buffer) -> Buffer:
        return buffer

    def decompress(self, buffer: Buffer, limit: int) -> Buffer:
        return within(limit, buffer)


@register
@dataclass(frozen=True)
class Zlib(Compressor):
    """DEFLATE (LZ77 and Huffman codes) in a zlib envelope, RFC 1950 and 1951: small, not fast."""

    name = "zlib"
    level: int = option(1, "effort: 1 is fast, 9 is small", minimum=1, maximum=9, step=1)

    def compress(self, buffer: Buffer) -> Buffer:
        return zlib.compress(buffer, self.level)

    def decompress(self, buffer: Buffer, limit: int) -> Buffer:
        stream = zlib.decompressobj()
        try:
            data = within(limit, stream.decompress(buffer, limit + 1))
        except zlib.error as error:
            raise ValueError(f"The frame is not a zlib stream: {error}.") from None
        if not stream.eof:
            raise ValueError("The frame is a zlib stream that was cut short.")
        return data


@register
@dataclass(frozen=True)
class Lz4(Compressor):
    """LZ4 blocks: matches without entropy coding, so fast that it can pay on quick links. Source: the LZ4 block
    format.
    """

    name = "lz4"
    acceleration: int = option(1, "speed over size", minimum=1, maximum=64, step=1)

    def compress(self, buffer: Buffer) -> Buffer:
        return bytes(lz4.block.compress(buffer, mode="fast", acceleration=self.acceleration))

    def decompress(self, buffer: Buffer, limit: int) -> Buffer:
        size = int.from_bytes(memoryview(buffer)[:4], "little")
        if size > limit:
            raise ValueError(_too_large(limit))
        try:
            return bytes(lz4.block.decompress(buffer))
        except (lz4.block.LZ4BlockError, ValueError) as error:
            raise ValueError(f"The frame is not an LZ4 block: {error}.") from None


def within(limit: int, buffer: Buffer) -> Buffer:
    """``buffer``, or ValueError where it is longer than ``limit`` bytes."""
    if len(buffer) > limit:
        raise ValueError(_too_large(limit))
    return buffer


def _too_large(limit: int) -> str:
    return f"The frame decompresses to more than the {limit} bytes that are allowed."
