"""The contract of a compressor, fewer bytes for the same bytes, and the one that leaves them as they are.

``decompress(compress(b), limit)`` equals ``b``, and it never makes more than ``limit`` bytes, whatever it is fed. A
peer that sends a bomb gets a ValueError, not the memory.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from minips.stage import Buffer, Stage, register


class Compressor(Stage):
    """The contract. Any buffer of contiguous bytes goes in; the bytes that come out may be the same object."""

    kind: ClassVar[str] = "compressor"
    identity: ClassVar[bool] = False
    """True where the bytes stay as they are: the codec then leaves them alone."""
    of_methods = {"identity": ("compress", "decompress")}
    most_bytes: ClassVar[float] = math.inf
    """The largest frame that the format, or its library, takes."""

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
    identity = True

    def compress(self, buffer: Buffer) -> Buffer:
        return buffer

    def decompress(self, buffer: Buffer, limit: int) -> Buffer:
        check_size(len(buffer), limit)
        return buffer


class BombError(ValueError):
    """A frame would make more bytes than are allowed."""


def check_size(size: int, limit: int) -> None:
    """BombError where a frame would make more than ``limit`` bytes."""
    if size > limit:
        raise BombError(f"The frame decompresses to more than the {limit} bytes that are allowed.")
