"""Small codes, packed tightly in planes of 4, 2 and 1 bits, by a few operations on whole arrays.

A code of b bits is cut, starting at its lowest bit, into parts of 4, 2 and 1 bits that add up to b: 7 = 4 + 2 + 1. The
parts of one width form a plane. For n codes, n a multiple of 8, a plane of w bits has m = n·w/8 bytes. Its byte j holds
the parts of the codes j, j + m, j + 2m, …, the first in its lowest bits. The planes follow one another. The last n mod
8 codes follow bit by bit, each starting at its highest bit. Codes of eight bits are stored unchanged.
"""

from collections.abc import Iterator

import numpy as np

from minips.stage import Array


def packed_nbytes(size: int, bits: int) -> int:
    """The number of bytes for ``size`` packed codes of ``bits`` bits: ⌈size · bits / 8⌉."""
    return -(-size * bits // 8)


def pack(codes: Array, bits: int) -> Array:
    """Pack codes below 2ᵇ (uint8, flat) into bytes; b is ``bits``, from 1 to 8.

    >>> pack(np.uint8([1, 2, 3, 0, 1, 2, 3, 0, 3]), bits=2)
    array([221,  34, 192], dtype=uint8)
    """
    if bits == 8:
        return codes
    whole = codes.size - codes.size % 8
    pieces = []
    for shift, width in _planes(bits):
        plane = np.zeros(whole * width // 8, np.uint8)
        for place in range(8 // width):
            part = codes[place * plane.size : (place + 1) * plane.size]
            plane |= _shift_bits(part, place * width - shift, (2**width - 1) << place * width)
        pieces.append(plane)
    left = np.unpackbits(codes[whole:, None], axis=1)[:, 8 - bits :]
    return np.concatenate([*pieces, np.packbits(left)])


def unpack(packed: Array, bits: int, size: int) -> Array:
    """The ``size`` codes that ``pack`` packed. Raises ValueError for a wrong number of bytes."""
    if not 1 <= bits <= 8 or packed.dtype != np.uint8 or packed.shape != (packed_nbytes(size, bits),):
        raise ValueError(f"{packed.size} bytes of codes do not hold {size} values of {bits} bits.")
    if bits == 8:
        return packed
    codes, whole, start = np.zeros(size, np.uint8), size - size % 8, 0
    for shift, width in _planes(bits):
        plane = packed[start : start + whole * width // 8]
        start += plane.size
        for place in range(8 // width):
            part = _shift_bits(plane, shift - place * width, (2**width - 1) << shift)
            into = codes[place * plane.size : (place + 1) * plane.size]
            into |= part
    left = np.unpackbits(packed[start:], count=(size - whole) * bits).reshape(-1, bits)
    codes[whole:] = np.packbits(left, axis=1).reshape(-1) >> (8 - bits)
    return codes


def _shift_bits(x: Array, places: int, mask: int) -> Array:
    """``x`` shifted left by ``places`` bits (right if ``places`` is negative), then masked."""
    moved: Array = x << places if places > 0 else x >> -places
    moved &= mask
    return moved


def _planes(bits: int) -> Iterator[tuple[int, int]]:
    """The planes of a code: for each, its lowest bit and its width."""
    shift = 0
    for width in (4, 2, 1):
        if bits & width:
            yield shift, width
            shift += width
