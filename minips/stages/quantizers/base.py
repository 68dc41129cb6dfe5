"""The contract of a quantizer, and the witness that lets its parts remember a shape and a dtype."""

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import DTypeLike

from minips.stage import Array, Stage

Parts = dict[str, Array]
"""What a quantizer makes of one tensor: a few named arrays, and all that decoding needs."""

LARGEST_BYTES = 2**31
"""A few bytes from the network can claim any shape; no decoded array is larger than this."""


class Quantizer(Stage):
    """A pure function from an array to a few smaller arrays, and back.

    ``decode(encode(x))`` has the shape and the dtype of ``x``, for any float dtype and any shape, empty and 0-d
    included. Decoding needs the parts alone, never the fields of the quantizer that made them. ``x`` is never changed;
    the parts may alias it. ``x`` must be finite: the codec refuses NaN and infinity before they come here.
    """

    kind: ClassVar[str] = "quantizer"

    @abstractmethod
    def encode(self, x: Array, rng: np.random.Generator | None) -> Parts:
        """The parts of ``x``. Random schemes draw from ``rng``, the others ignore it."""

    @abstractmethod
    def decode(self, parts: Parts) -> Array:
        """The array that the parts stand for. Raises ValueError where they do not fit together."""

    def error_bound(self, x: Array) -> float | None:
        """The largest absolute error that ``decode(encode(x))`` can have, or None where the scheme promises none."""
        return None

    def nbytes(self, shape: tuple[int, ...], dtype: DTypeLike) -> int | None:
        """The bytes of the parts of an array of this shape and dtype, or None where they depend on its values."""
        return None


def witness(x: Array) -> Array:
    """An array of no bytes whose header still tells the dtype and the shape of ``x``: ``(0, *x.shape)``."""
    return np.empty((0, *x.shape), x.dtype)


def blank(like: Array) -> Array:
    """A new array of zeros with the dtype and the shape that a witness tells."""
    if like.ndim == 0 or like.shape[0] != 0:
        raise ValueError(f"The part 'like' must have the shape (0, …), got {like.shape}.")
    if math.prod(like.shape[1:]) * like.itemsize > LARGEST_BYTES:
        raise ValueError(
            f"An array of shape {like.shape[1:]} is larger than the {LARGEST_BYTES} bytes that are allowed."
        )
    return np.zeros(like.shape[1:], like.dtype)


def part(parts: Mapping[str, Array], name: str) -> Array:
    """One of the parts. Raises ValueError where it is missing."""
    if name not in parts:
        raise ValueError(f"The parts have no {name!r}; they have: {', '.join(parts) or 'nothing'}.")
    return parts[name]
