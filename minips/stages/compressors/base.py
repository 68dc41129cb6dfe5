"""The contract of a compressor, which stores the same data in fewer bytes, and the compressor `NoCompression`.

``decompress(compress(b), limit)`` equals ``b``. No input makes ``decompress`` produce more than ``limit`` bytes: a
decompression bomb raises ValueError instead of filling the memory.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from minips.stage import Buffer, Stage, register


class Compressor(Stage):
    """The contract. The input is any buffer of contiguous bytes. The output may be the same object as the input."""

    kind: ClassVar[str] = "compressor"
    identity: ClassVar[bool] = False
    """True if the bytes are not changed. The codec then skips this compressor."""
    of_methods = {"identity": ("compress", "decompress")}
    most_bytes: ClassVar[float] = math.inf
    """The size of the largest frame, in bytes, that the format or its library accepts."""

    @abstractmethod
    def compress(self, buffer: Buffer) -> Buffer:
        """Return the compressed bytes. These may be longer than the input if the input cannot be compressed."""

    @abstractmethod
    def decompress(self, buffer: Buffer, limit: int) -> Buffer:
        """Return the original bytes. Raises ValueError for damaged input or more than ``limit`` bytes of output."""


@register
@dataclass(frozen=True)
class NoCompression(Compressor):
    """Passes the bytes through, without changing or copying them."""

    name = "none"
    identity = True

    def compress(self, buffer: Buffer) -> Buffer:
        return buffer

    def decompress(self, buffer: Buffer, limit: int) -> Buffer:
        check_size(len(buffer), limit)
        return buffer


class BombError(ValueError):
    """Raised if a frame would decompress to more bytes than allowed."""


def check_size(size: int, limit: int) -> None:
    """Raise BombError if a frame would decompress to more than ``limit`` bytes."""
    if size > limit:
        raise BombError(f"The frame decompresses to more than the {limit} bytes that are allowed.")
