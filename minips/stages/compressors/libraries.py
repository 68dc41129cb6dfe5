"""Compressors of the standard library and of others: zlib, gzip, LZ4, Zstandard, Blosc."""

import sys
import zlib
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from minips.stage import Buffer, option, register
from minips.stages.compressors.base import Compressor, check_size
from minips.words import message_of

_ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"


@register
@dataclass(frozen=True)
class Zlib(Compressor):
    """DEFLATE (LZ77 and Huffman codes) in a zlib envelope, RFC 1950 and 1951: small, not fast."""

    name = "zlib"
    window: ClassVar[int] = zlib.MAX_WBITS
    """zlib's code for the envelope."""
    level: int = option(1, "effort: 1 is fast, 9 is small", minimum=1, maximum=9, step=1)

    def compress(self, buffer: Buffer) -> Buffer:
        return zlib.compress(buffer, self.level, self.window)

    def decompress(self, buffer: Buffer, limit: int) -> Buffer:
        return inflate(zlib.decompressobj(self.window), buffer, limit, f"a {self.name} stream")


@register
@dataclass(frozen=True)
class Gzip(Zlib):
    """The same DEFLATE in a gzip envelope, as files and HTTP use it: 12 bytes more. RFC 1952."""

    name = "gzip"
    window = zlib.MAX_WBITS | 16


@register
@dataclass(frozen=True)
class Lz4(Compressor):
    """LZ4 blocks: matches without entropy coding, so fast that it can pay on quick links. Source: LZ4 block format."""

    name = "lz4"
    requires = ("lz4",)
    extra = "codecs"
    most_bytes = 0x7E000000
    acceleration: int = option(1, "speed over size", minimum=1, maximum=64, step=1)

    def compress(self, buffer: Buffer) -> Buffer:
        import lz4.block

        return bytes(lz4.block.compress(buffer, mode="fast", acceleration=self.acceleration))

    def decompress(self, buffer: Buffer, limit: int) -> Buffer:
        import lz4.block

        check_size(int.from_bytes(memoryview(buffer)[:4], "little"), limit)
        try:
            return bytes(lz4.block.decompress(buffer))
        except (lz4.block.LZ4BlockError, ValueError) as error:
            raise ValueError(f"The frame is not an LZ4 block: {message_of(error)}.") from None


@register
@dataclass(frozen=True)
class Zstd(Compressor):
    """Zstandard: LZ77, Huffman codes and finite-state entropy coding; about zlib's size, several times as fast.

    Source: RFC 8878. Python's own ``compression.zstd`` from 3.14 on, before that backports.zstd.
    """

    name = "zstd"
    requires = (_ZSTD,)
    extra = "codecs"
    level: int = option(1, "effort: negative is fastest, 22 is smallest", minimum=-7, maximum=22, step=1)

    def compress(self, buffer: Buffer) -> Buffer:
        return bytes(import_module(_ZSTD).compress(buffer, self.level))

    def decompress(self, buffer: Buffer, limit: int) -> Buffer:
        return inflate(import_module(_ZSTD).ZstdDecompressor(), buffer, limit, "a Zstandard frame")


@register
@dataclass(frozen=True)
class Blosc(Compressor):
    """Blosc2 with the shuffle filter: the first bytes of all the values, then the second ones, …, and LZ4 on that.

    A float's sign and exponent repeat from value to value where its fraction does not, so that the shuffle finds what
    LZ4 alone cannot. The size of a value is the array's own where the frame is a view of one, else ``typesize``.
    Source: Alted 2010, "Why Modern CPUs Are Starving and What Can Be Done about It"; the Blosc2 format.
    """

    name = "blosc"
    requires = ("blosc2",)
    extra = "codecs"
    most_bytes = 2**31 - 1 - 32
    level: int = option(5, "effort: 1 is fast, 9 is small", minimum=1, maximum=9, step=1)
    typesize: int = option(4, "bytes of a value, where the frame does not tell", minimum=1, maximum=255, step=1)

    def compress(self, buffer: Buffer) -> Buffer:
        import blosc2

        settings = {"filters": [blosc2.Filter.SHUFFLE], "codec": blosc2.Codec.LZ4, "nthreads": 1}
        return bytes(blosc2.compress2(buffer, typesize=itemsize(buffer, self.typesize), clevel=self.level, **settings))

    def decompress(self, buffer: Buffer, limit: int) -> Buffer:
        import blosc2

        check_size(int.from_bytes(memoryview(buffer)[4:8], "little"), limit)
        try:
            return bytes(blosc2.decompress2(buffer, nthreads=1))
        except (ValueError, RuntimeError, TypeError) as error:
            raise ValueError(f"The frame is not a Blosc2 chunk: {message_of(error)}.") from None


def itemsize(buffer: Buffer, otherwise: int) -> int:
    """The bytes of one value of the array that a frame is a view of, ``otherwise`` where it is no such view."""
    array = buffer.obj if isinstance(buffer, memoryview) else None
    while isinstance(array, np.ndarray) and array.itemsize == 1 and isinstance(array.base, np.ndarray):
        array = array.base
    return array.itemsize if isinstance(array, np.ndarray) else otherwise


def inflate(stream: Any, buffer: Buffer, limit: int, what: str) -> Buffer:
    """A whole frame, by a decompressor of the standard library's kind; ValueError past ``limit`` bytes."""
    try:
        data = stream.decompress(buffer, limit + 1)
    except Exception as error:  # each library has its own
        raise ValueError(f"The frame is not {what}: {message_of(error)}.") from None
    check_size(len(data), limit)
    if not stream.eof or stream.unused_data:
        raise ValueError(f"The frame is {what} that was cut short, or more than one.")
    return bytes(data)
