"""Compressors from the standard library and others: zlib, gzip, LZ4, Zstandard, Blosc."""

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
    """The code by which zlib selects the envelope."""
    level: int = option(1, "effort: 1 is fast, 9 is small", minimum=1, maximum=9, step=1)

    def compress(self, buffer: Buffer) -> Buffer:
        return zlib.compress(buffer, self.level, self.window)

    def decompress(self, buffer: Buffer, limit: int) -> Buffer:
        return inflate(zlib.decompressobj(self.window), buffer, limit, f"a {self.name} stream")


@register
@dataclass(frozen=True)
class Gzip(Zlib):
    """DEFLATE in a gzip envelope, as in files and HTTP: 12 bytes larger than zlib's. RFC 1952."""

    name = "gzip"
    window = zlib.MAX_WBITS | 16


@register
@dataclass(frozen=True)
class Lz4(Compressor):
    """LZ4 blocks: matches without entropy coding, fast enough to help even on fast links. Source: LZ4 block format."""

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
    """Zstandard: LZ77, Huffman codes and finite-state entropy coding; about as small as zlib, several times as fast.

    Source: RFC 8878. It uses ``compression.zstd`` of Python 3.14 and later, and backports.zstd on older versions.
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
    """Blosc2 with the shuffle filter: the first bytes of all values, then the second bytes, …, compressed by LZ4.

    The signs and exponents of floats often repeat from value to value; their fractions do not. The shuffle lets LZ4
    find the repeats. A value's size is the array's itemsize if the frame is a view of an array, else ``typesize``.
    Source: Alted 2010, "Why Modern CPUs Are Starving and What Can Be Done about It"; the Blosc2 format.
    """

    name = "blosc"
    requires = ("blosc2",)
    extra = "codecs"
    most_bytes = 2**31 - 1 - 32
    level: int = option(5, "effort: 1 is fast, 9 is small", minimum=1, maximum=9, step=1)
    typesize: int = option(4, "bytes of a value, for frames that are not arrays", minimum=1, maximum=255, step=1)

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
    """The itemsize of the array of which a frame is a view; ``otherwise`` if the frame is not a view of an array."""
    array = buffer.obj if isinstance(buffer, memoryview) else None
    while isinstance(array, np.ndarray) and array.itemsize == 1 and isinstance(array.base, np.ndarray):
        array = array.base
    return array.itemsize if isinstance(array, np.ndarray) else otherwise


def inflate(stream: Any, buffer: Buffer, limit: int, what: str) -> Buffer:
    """Decompress a whole frame with a decompressor object like zlib's. Raises ValueError above ``limit`` bytes."""
    try:
        data = stream.decompress(buffer, limit + 1)
    except Exception as error:  # each library has its own error class
        raise ValueError(f"The frame is not {what}: {message_of(error)}.") from None
    check_size(len(data), limit)
    if not stream.eof or stream.unused_data:
        raise ValueError(f"The frame is {what} that was cut short, or more than one.")
    return bytes(data)
