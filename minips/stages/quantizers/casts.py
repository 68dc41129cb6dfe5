"""Casts: every value by itself, in a smaller float or as it is."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from minips.stage import Array, register
from minips.stages.quantizers.base import Parts, Quantizer, part, witness


@register
@dataclass(frozen=True)
class Exact(Quantizer):
    """Nothing is lost and nothing is copied: the one part is the array itself.

    >>> Exact().encode(np.float32([1, 2]), rng=None)
    {'values': array([1., 2.], dtype=float32)}
    """

    name = "exact"

    def encode(self, x: Array, rng: np.random.Generator | None) -> Parts:
        return {"values": x}

    def decode(self, parts: Parts) -> Array:
        return part(parts, "values")

    def error_bound(self, x: Array) -> float:
        return 0.0

    def nbytes(self, shape: tuple[int, ...], dtype: DTypeLike) -> int:
        return int(np.prod(shape, dtype=int)) * np.dtype(dtype).itemsize


@register
@dataclass(frozen=True)
class Float16(Quantizer):
    """Half precision: 1 sign, 5 exponent and 10 fraction bits (IEEE 754 binary16), rounded to nearest, ties to even.

    The relative error is at most 2⁻¹¹ for values from 2⁻¹⁴ to 65504; smaller ones lose at most 2⁻²⁵ each. Larger ones
    become 65504: a gradient that is too large should stay a gradient, not become infinity.

    >>> q = Float16()
    >>> q.decode(q.encode(np.float32([0.1, 1e6]), rng=None))
    array([9.9975586e-02, 6.5504000e+04], dtype=float32)
    """

    name = "float16"

    def encode(self, x: Array, rng: np.random.Generator | None) -> Parts:
        largest = np.finfo(np.float16).max
        with np.errstate(over="ignore"):
            half = x.astype(np.float16)
        if np.isinf(half).any():
            half = np.asarray(np.clip(x, -largest, largest), np.float16)
        return {"values": half, "like": witness(x)}

    def decode(self, parts: Parts) -> Array:
        return part(parts, "values").astype(part(parts, "like").dtype)

    def error_bound(self, x: Array) -> float:
        largest = float(np.abs(x).max(initial=0))
        return max(largest * 2.0**-11, 2.0**-25, largest - 65504.0)

    def nbytes(self, shape: tuple[int, ...], dtype: DTypeLike) -> int:
        return 2 * int(np.prod(shape, dtype=int))
