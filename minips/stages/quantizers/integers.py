"""Integers: values rounded to evenly spaced levels, either to the nearest level or at random.

Arrays are processed in pieces that fit into a core's cache, since a pass over memory takes longer than the arithmetic.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from minips.stage import Array, option, register
from minips.stages.quantizers.base import CHUNK, Parts, Quantizer, chunks, empty_for, norm, number, part, shape_tag
from minips.stages.quantizers.packing import pack, packed_nbytes, unpack

_NOTHING = 2.0**-1021
"""A step below this is treated as zero, because its inverse is not a finite double."""
_MOST = float(np.finfo(np.float64).max)


@register
@dataclass(frozen=True)
class Uniform(Quantizer):
    """Rounds to the nearest of 2ᵇ evenly spaced levels from min to max: ``low + step · round((x − low) / step)``.

    The step is ``(max − min) / (2ᵇ − 1)``, and the error is at most half a step. With b = 8 a code takes one byte;
    smaller codes are packed tightly, so a 4-bit code takes half a byte. If ``block`` is given, each run of ``block``
    values has its own range, which costs two numbers and suits values of unequal size. A range with only one value is
    decoded exactly. Sources: Gray and Neuhoff 1998, "Quantization", section II (the uniform quantizer); for blocks,
    Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization", section 2.

    >>> q = Uniform(bits=2)
    >>> q.decode(q.encode(np.float32([0, 0.9, 2.2, 3]), rng=None))
    array([0., 1., 2., 3.], dtype=float32)
    """

    name = "uniform"
    bits: int = option(8, "bits per value", minimum=1, maximum=8, step=1, unit="bit")
    block: int = option(0, "values that share a range; 0: the whole tensor", minimum=0, step=64)

    def encode(self, x: Array, rng: np.random.Generator | None) -> Parts:
        flat, codes = x.reshape(-1), np.empty(x.size, np.uint8)
        ends = np.zeros((2, _blocks(x.size, self.block)), x.dtype)
        if x.size:
            starts = np.arange(0, x.size, self.block or x.size)
            ends[...] = np.minimum.reduceat(flat, starts), np.maximum.reduceat(flat, starts)
        low, step, dtype, whole = scale(ends, self.bits)
        inverse = np.divide(1, step, out=np.zeros_like(step), where=step > 0)
        for blocks, rows, into in stretches(self.block, flat, codes):
            scaled = np.subtract(rows if whole == 1 else rows / whole, low[blocks, None], dtype=dtype)
            scaled *= inverse[blocks, None]
            scaled += 0.5
            into[...] = scaled  # the cast truncates
        return {
            "codes": pack(codes, self.bits),
            "range": ends,
            "bits": np.array([self.bits], np.uint8),
            "block": np.array([self.block], np.uint32),
            "like": shape_tag(x),
        }

    def decode(self, parts: Parts) -> Array:
        x, bits, block = empty_for(parts), int(number(parts, "bits")), int(number(parts, "block"))
        codes, ends = unpack(part(parts, "codes"), bits, x.size), part(parts, "range")
        if ends.shape != (2, _blocks(x.size, block)) or ends.dtype != x.dtype or not np.isfinite(ends).all():
            raise ValueError(f"Ranges of {ends.dtype}{ends.shape} do not fit {x.size} values in blocks of {block}.")
        low, step, dtype, whole = scale(ends, bits)
        most = np.finfo(x.dtype).max / whole
        for blocks, rows, digits in stretches(block, x.reshape(-1), codes):
            scaled = rows if rows.dtype == dtype else np.empty(rows.shape, dtype)
            scaled[...] = digits
            scaled *= step[blocks, None]
            scaled += low[blocks, None]
            rows[...] = scaled if whole == 1 else np.clip(scaled, -most, most) * whole
        return x

    def error_bound(self, x: Array) -> float:
        if x.size == 0:
            return 0.0
        limits = np.finfo(x.dtype)
        rounding = float(limits.eps) * float(np.abs(x).max()) + float(limits.smallest_subnormal) * float(2**self.bits)
        steps = 2**self.bits - 1
        step: float = float(x.max()) / steps - float(x.min()) / steps
        return step / 2 + 4 * rounding + float(2**self.bits) * _NOTHING

    def nbytes(self, shape: tuple[int, ...], dtype: DTypeLike) -> int:
        size = prod(shape)
        return packed_nbytes(size, self.bits) + 2 * _blocks(size, self.block) * np.dtype(dtype).itemsize + 1 + 4


@register
@dataclass(frozen=True)
class QSGD(Quantizer):
    """Rounds each magnitude at random, without bias, to 0, 1/s, …, 1 times the norm: ``|x|₂ · sign(xᵢ) · ξᵢ``.

    With ``r = s|xᵢ| / |x|₂``, ``s·ξᵢ`` is ⌊r⌋ + 1 with probability ``p = r − ⌊r⌋``, and otherwise ⌊r⌋. So QSGD is
    unbiased, with variance ``(|x|₂²/s²) Σ pᵢ(1 − pᵢ)``, at most ``min(d/s², √d/s) |x|₂²``. The 2s + 1 codes are packed
    into the fewest bits. Probabilities are exact to 2⁻¹⁷. A zero vector is decoded as zeros. Source: Alistarh
    et al. 2017, "QSGD", section 3.1 (fixed-width codes in place of Elias').
    """

    name = "qsgd"
    levels: int = option(16, "levels above zero, and as many below", minimum=1, maximum=127, step=1)

    def encode(self, x: Array, rng: np.random.Generator | None) -> Parts:
        codes, unit = dither(x, self._unit(x), self.levels, rng)
        return {
            "codes": pack(codes, (2 * self.levels).bit_length()),
            "unit": np.array([unit]),
            "levels": np.array([self.levels], np.uint8),
            "like": shape_tag(x),
        }

    def decode(self, parts: Parts) -> Array:
        x, levels = empty_for(parts), int(number(parts, "levels"))
        if not 1 <= levels <= 127:
            raise ValueError(f"There must be 1 to 127 levels, got {levels}.")
        codes = unpack(part(parts, "codes"), (2 * levels).bit_length(), x.size)
        spread(codes, levels, number(parts, "unit"), x.reshape(-1))
        return x

    def relative_variance(self, x: Array) -> float:
        unit, length, flat, total = self._unit(x), norm(x), x.reshape(-1), 0.0
        huge = unit == _MOST
        square, factor = 0.0, 1 / unit if huge else self.levels / length if unit > _NOTHING else 0.0
        for some in chunks(x.size if factor else 0):
            r = np.abs(flat[some], dtype=np.float64) * factor
            square += float(r @ r) if huge else 0.0
            r -= np.floor(r)
            total += float((r * (1 - r)).sum())
        return total / (square if huge else self.levels**2)

    def _unit(self, x: Array) -> float:
        """The value of one level. If the norm overflows a double, the value is finite but larger than necessary."""
        return min(norm(x) / self.levels, _MOST)

    def error_bound(self, x: Array) -> float:
        limits = np.finfo(x.dtype)
        rounding = 4 * float(limits.eps) * norm(x) + float(limits.smallest_subnormal)
        return norm(x) / self.levels * (1 + 1e-3) + rounding + self.levels * _NOTHING

    def nbytes(self, shape: tuple[int, ...], dtype: DTypeLike) -> int:
        return packed_nbytes(prod(shape), (2 * self.levels).bit_length()) + 8 + 1


@register
@dataclass(frozen=True)
class Ternary(Quantizer):
    """−1, 0 or 1 times the largest magnitude, drawn at random without bias: ``max|x| · sign(xᵢ) · bᵢ``.

    bᵢ is 1 with probability ``|xᵢ| / max|x|``, else 0; the variance is ``max|x|·|x|₁ − |x|₂²``. Five values
    share a byte, as digits of a number in base 3 (1.6 bits per value): byte j of m holds the values j, j + m, …, j +
    4m. Probabilities are exact to 2⁻¹⁷. Source: Wen et al. 2017, "TernGrad", section 3.1 (without clipping).
    """

    name = "ternary"

    def encode(self, x: Array, rng: np.random.Generator | None) -> Parts:
        codes, unit = dither(x, float(np.abs(x).max(initial=0)), 1, rng)
        packed = np.zeros(-(-x.size // 5), np.uint8)
        for place in range(5):
            digits = codes[place * packed.size : (place + 1) * packed.size]
            packed[: digits.size] += digits * np.uint8(3**place)
        return {"codes": packed, "unit": np.array([unit]), "like": shape_tag(x)}

    def decode(self, parts: Parts) -> Array:
        x, packed, unit = empty_for(parts), part(parts, "codes"), number(parts, "unit")
        if packed.dtype != np.uint8 or packed.shape != (-(-x.size // 5),) or (packed >= 3**5).any():
            raise ValueError(f"{packed.size} bytes of codes do not hold {x.size} values at five per byte.")
        flat = x.reshape(-1)
        for place in range(5):
            into = flat[place * packed.size : (place + 1) * packed.size]
            digits = packed[: into.size] // np.uint8(3**place)
            spread(digits - 3 * (digits // np.uint8(3)), 1, unit, into)
        return x

    def relative_variance(self, x: Array) -> float:
        length, magnitudes = norm(x), np.abs(x)
        if not length:
            return 0.0
        if length > _MOST / max(x.size, 1):  # the sum of the magnitudes might overflow
            return self.relative_variance(x / x.dtype.type(2.0**512))
        return max(0.0, float(magnitudes.max()) / length * (float(magnitudes.sum(dtype=np.float64)) / length) - 1)

    def error_bound(self, x: Array) -> float:
        return float(np.abs(x).max(initial=0)) * (1 + 1e-3) + _NOTHING

    def nbytes(self, shape: tuple[int, ...], dtype: DTypeLike) -> int:
        return -(-prod(shape) // 5) + 8


@register
@dataclass(frozen=True)
class TwoBit(Quantizer):
    """Sends a magnitude that reaches the threshold as the threshold, with its sign, and any other value as 0.

    Takes two bits per value. It is not a contraction: under error feedback, a gradient much larger than the threshold
    leaves a residual that grows for ever. Without error feedback, smaller values are never sent. Source: Apache MXNet,
    "Gradient Compression" (2-bit quantization), after Strom 2015.

    >>> q = TwoBit(threshold=0.5)
    >>> q.decode(q.encode(np.float32([0.7, 0.2, -3]), rng=None))
    array([ 0.5,  0. , -0.5], dtype=float32)
    """

    name = "twobit"
    threshold: float = option(0.5, "the magnitude sent for a value that reaches it", above=0, step=0.1)

    def encode(self, x: Array, rng: np.random.Generator | None) -> Parts:
        flat, codes = x.reshape(-1), np.empty(x.size, np.uint8)
        with np.errstate(over="ignore"):  # no value reaches a threshold beyond the range of the dtype
            for some in chunks(x.size):
                codes[some] = flat[some] >= self.threshold
                codes[some] += 1
                codes[some] -= flat[some] <= -self.threshold
        return {"codes": pack(codes, 2), "threshold": np.array([self.threshold]), "like": shape_tag(x)}

    def decode(self, parts: Parts) -> Array:
        x = empty_for(parts)
        spread(unpack(part(parts, "codes"), 2, x.size), 1, number(parts, "threshold"), x.reshape(-1))
        return x

    def error_bound(self, x: Array) -> float:
        rounding = float(np.finfo(x.dtype).smallest_subnormal)
        return max(self.threshold, float(np.abs(x).max(initial=0)) - self.threshold) + rounding

    def nbytes(self, shape: tuple[int, ...], dtype: DTypeLike) -> int:
        return packed_nbytes(prod(shape), 2) + 8


def dither(x: Array, unit: float, levels: int, rng: np.random.Generator | None) -> tuple[Array, float]:
    """Return unbiased codes from 0 to 2·levels, ``⌊x / unit + u⌋ + levels`` with u uniform in (0, 1), and the unit.

    ``|x|`` is at most levels · unit. A unit of 0 means that x = 0. u is one of the 2¹⁶ midpoints ``(k + ½) / 2¹⁶``.
    They are symmetric, so x and −x have equal errors. A value below 2⁻¹⁷ of a unit is rounded to 0.
    """
    rng = rng or np.random.default_rng(0)
    wide = np.result_type(x.dtype, np.float32)
    if not 1 / float(np.finfo(wide).max) < unit < float(np.finfo(wide).max):
        wide = np.dtype(np.float64)
    unit = unit if unit > _NOTHING else 0.0
    inverse = wide.type(1 / unit if unit else 0)
    codes, flat = np.empty(x.size, np.uint8), x.reshape(-1)
    for some in chunks(x.size):
        noise = bits16(rng, some.stop - some.start).astype(wide)
        noise += wide.type(0.5)
        noise *= wide.type(2.0**-16)
        noise += levels
        noise += np.multiply(flat[some], inverse, dtype=wide)
        np.minimum(noise, 2 * levels, out=noise)
        codes[some] = noise
    return codes, unit


def spread(codes: Array, levels: int, unit: float, into: Array) -> None:
    """Write ``(codes − levels) · unit`` into a flat array, clipped to the range of its dtype."""
    limits = np.finfo(into.dtype)
    plain = float(limits.smallest_normal) <= abs(unit) <= float(limits.max) / 255
    for some in chunks(into.size):
        signed = (codes[some] - np.uint8(levels)).view(np.int8)  # a difference below 0 wraps; the view undoes it
        if plain:
            into[some] = signed
            into[some] *= unit
        else:
            with np.errstate(over="ignore"):
                into[some] = np.clip(np.multiply(signed, unit, dtype=np.float64), limits.min, limits.max)


def bits16(rng: np.random.Generator, size: int) -> Array:
    """Draw 16-bit random numbers, from raw 64-bit words if the generator provides them."""
    if isinstance(rng.bit_generator, np.random.MT19937):
        return rng.integers(0, 2**16, size, np.uint16)
    return np.asarray(rng.bit_generator.random_raw(-(-size // 4))).view(np.uint16)[:size]


def stretches(block: int, *arrays: Array) -> Iterator[Any]:
    """Cut flat arrays of equal size into cache-sized pieces. For each piece, yields the slice of its blocks and each
    array's values, one row per block. A piece is either whole blocks or part of one. ``block`` 0: the whole array.
    """
    size = arrays[0].size
    block = block or max(size, 1)
    whole, several = size - size % block, max(CHUNK // block, 1) * block
    for first in (*range(0, whole, several), whole):
        last = min(first + several, whole) if first < whole else size
        for start in range(first, last, CHUNK):
            stop = min(start + CHUNK, last)
            blocks = slice(start // block, -(-stop // block))
            yield blocks, *(x[start:stop].reshape(blocks.stop - blocks.start, -1) for x in arrays)


def _blocks(size: int, block: int) -> int:
    return -(-size // block) if block else 1


def scale(ends: Array, bits: int) -> tuple[Array, Array, "np.dtype[np.floating]", int]:
    """Each block's smallest value and step, the dtype to compute in, and a divisor, which is 1 unless the difference of
    two values may overflow a double. The smallest values and the steps are already divided by the divisor.

    The dtype is float64 if the values' own dtype cannot hold the difference of two values, or a step's inverse.
    """
    low, high = ends.astype(np.float64)
    whole = 1 if float(np.abs(ends).max(initial=0)) < _MOST / 4 else 8
    if whole > 1:
        low, high = low / whole, high / whole
    step, limits = (high - low) / (2**bits - 1), np.finfo(ends.dtype)
    step[np.abs(step) < _NOTHING] = 0
    extreme = (high - low).max(initial=0) > float(limits.max) or (step[step > 0] < limits.smallest_normal).any()
    dtype = np.dtype(np.float64) if extreme else np.result_type(ends.dtype, np.float32)
    return low.astype(dtype), step.astype(dtype), dtype, whole
