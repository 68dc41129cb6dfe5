"""Casts: each value is sent independently, as a smaller float or unchanged."""

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import DTypeLike

from minips.stage import Array, register
from minips.stages.quantizers.base import Parts, Quantizer, empty_for, part, shape_tag

_FLOAT16_MAX = 65504.0
_BFLOAT16_MAX = (2 - 2.0**-7) * 2.0**127
_BOTH_MAX = (2 - 2.0**-7) * 2.0**15
"""The largest value of both half floats."""


@register
@dataclass(frozen=True)
class Exact(Quantizer):
    """The array itself is the only part: no loss and no copy.

    >>> Exact().encode(np.float32([1, 2]), rng=None)
    {'values': array([1., 2.], dtype=float32)}
    """

    name = "exact"
    identity = True

    def encode(self, x: Array, rng: np.random.Generator | None) -> Parts:
        return {"values": x}

    def decode(self, parts: Parts) -> Array:
        return parts["values"] if "values" in parts else part(parts, "values")  # for its error

    def error_bound(self, x: Array) -> float:
        return 0.0

    def nbytes(self, shape: tuple[int, ...], dtype: DTypeLike) -> int:
        return prod(shape) * np.dtype(dtype).itemsize


@register
@dataclass(frozen=True)
class Float16(Quantizer):
    """Half precision: 1 sign, 5 exponent and 10 fraction bits (IEEE 754 binary16), rounded to nearest, ties to even.

    The relative error is at most 2⁻¹¹ for values from 2⁻¹⁴ to 65504; smaller values lose at most 2⁻²⁵ each. Larger
    values become 65504 rather than infinity.

    >>> q = Float16()
    >>> q.decode(q.encode(np.float32([0.1, 1e6]), rng=None))
    array([9.9975586e-02, 6.5504000e+04], dtype=float32)
    """

    name = "float16"

    def encode(self, x: Array, rng: np.random.Generator | None) -> Parts:
        try:
            with np.errstate(over="raise"):
                half = x.astype(np.float16)
        except FloatingPointError:
            half = np.asarray(np.clip(x, -_FLOAT16_MAX, _FLOAT16_MAX), np.float16)
        return {"values": half, "like": shape_tag(x)}

    def decode(self, parts: Parts) -> Array:
        x = empty_for(parts)
        x[...] = part(parts, "values", np.float16, x.shape)
        return x

    def error_bound(self, x: Array) -> float:
        largest = float(np.abs(x).max(initial=0))
        return max(largest * 2.0**-11, 2.0**-25, largest - _FLOAT16_MAX)

    def nbytes(self, shape: tuple[int, ...], dtype: DTypeLike) -> int:
        return 2 * prod(shape)


@register
@dataclass(frozen=True)
class BFloat16(Quantizer):
    """The upper half of a float32: 1 sign, 8 exponent and 7 fraction bits, rounded to nearest, ties to even.

    It has the range of float32 and a relative error of at most 2⁻⁸, so it needs no scale. A value that would round to
    infinity becomes the largest value. The part holds the 16 bits as unsigned integers, which all serializers support.
    Source: Kalamkar et al. 2019, "A Study of BFLOAT16 for Deep Learning Training", section 3; the cast is ml_dtypes'.
    A wider float is first rounded to odd in float32, which avoids double rounding: Boldo and Melquiond 2008,
    "Emulation of FMA and Correctly Rounded Sums: Proved Algorithms Using Rounding to Odd".
    """

    name = "bfloat16"
    requires = ("ml_dtypes",)
    extra = "codecs"

    def encode(self, x: Array, rng: np.random.Generator | None) -> Parts:
        from ml_dtypes import bfloat16

        if x.dtype == np.float16:
            x = np.asarray(np.clip(x, -_BOTH_MAX, _BOTH_MAX))
        with np.errstate(over="ignore"):
            half = (_to_odd(x) if x.itemsize > 4 else x).astype(bfloat16)
        if np.isinf(half).any():
            half = np.where(np.isinf(half), np.copysign(bfloat16(_BFLOAT16_MAX), half), half)
        return {"bits": half.view(np.uint16), "like": shape_tag(x)}

    def decode(self, parts: Parts) -> Array:
        from ml_dtypes import bfloat16

        x = empty_for(parts)
        x[...] = part(parts, "bits", np.uint16, x.shape).view(bfloat16)
        return x

    def error_bound(self, x: Array) -> float:
        largest = float(np.abs(x).max(initial=0))
        return max(largest * 2.0**-8, 2.0**-133, largest - _BFLOAT16_MAX)

    def nbytes(self, shape: tuple[int, ...], dtype: DTypeLike) -> int:
        return 2 * prod(shape)


def _to_odd(x: Array) -> Array:
    """``x`` rounded to odd in float32: a value between two adjacent floats becomes the one whose last bit is 1."""
    single = x.astype(np.float32, order="C")
    wrong = (single != x) & (single.view(np.uint32) % 2 == 0)
    towards = np.where(x[wrong] > single[wrong], np.float32(np.inf), -np.float32(np.inf))
    single[wrong] = np.nextafter(single[wrong], towards)
    return single
