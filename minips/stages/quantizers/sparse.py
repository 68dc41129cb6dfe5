"""Sparse: only a few of the values are sent, with their indices."""

from dataclasses import dataclass
from math import ceil, prod

import numpy as np
from numpy.typing import DTypeLike

from minips.stage import Array, option, register
from minips.stages.quantizers.base import Parts, Quantizer, part, shape_tag, zeros_for

_SAMPLE = 61
"""One in ``_SAMPLE`` values is sampled, to estimate the smallest of the largest values."""


@register
@dataclass(frozen=True)
class TopK(Quantizer):
    """The k values that are largest in magnitude, k = ⌈fraction · d⌉; zero elsewhere.

    The residual is at most ``(1 − k/d) |x|²``, and dropped values are lost for good, so it needs ErrorFeedback.
    Indices are sent as the smallest unsigned integers that can hold d − 1. NaN counts as the largest.
    Source: Stich, Cordonnier and Jaggi 2018, "Sparsified SGD with Memory", section 2.

    >>> q = TopK(fraction=0.5)
    >>> q.decode(q.encode(np.float32([3, -1, 0, -4]), rng=None))
    array([ 3.,  0.,  0., -4.], dtype=float32)
    """

    name = "topk"
    fraction: float = option(0.01, "share of the values that is sent", above=0, maximum=1, step=0.01)

    def encode(self, x: Array, rng: np.random.Generator | None) -> Parts:
        flat = x.reshape(-1)
        indices = largest_indices(np.abs(flat), sent_count(self.fraction, x.size))
        return {"values": flat[indices], "indices": indices.astype(index_dtype(x.size)), "like": shape_tag(x)}

    def decode(self, parts: Parts) -> Array:
        return scatter(parts, part(parts, "indices"))

    def error_bound(self, x: Array) -> float:
        return float(np.abs(x).max(initial=0))

    def nbytes(self, shape: tuple[int, ...], dtype: DTypeLike) -> int:
        size = prod(shape)
        return sent_count(self.fraction, size) * (np.dtype(dtype).itemsize + index_dtype(size).itemsize)


@register
@dataclass(frozen=True)
class RandomK(Quantizer):
    """k values at random indices, k = ⌈fraction · d⌉, scaled by d/k if ``unbiased``; zero elsewhere.

    No indices are sent, only a seed from which both sides draw them. Scaled by d/k, RandomK is unbiased, with variance
    ``(d/k − 1) |x|²``. Unscaled, its expected residual is ``(1 − k/d) |x|²``, and it needs ErrorFeedback. PCG64 with
    the seed gives 64-bit words w, whose upper halves give candidates ⌊(w ≫ 32) · d / 2³²⌋. The indices are the first k
    distinct candidates, in rising order (for k > d/2: all but the first d − k distinct ones). Sources: Stich,
    Cordonnier and Jaggi 2018, "Sparsified SGD with Memory", section 2; O'Neill 2014 for PCG64.
    """

    name = "randomk"
    fraction: float = option(0.01, "share of the values that is sent", above=0, maximum=1, step=0.01)
    unbiased: bool = option(True, "scale by d/k, so that the mean is right")

    def encode(self, x: Array, rng: np.random.Generator | None) -> Parts:
        seed = (rng or np.random.default_rng(0)).integers(2**63, dtype=np.uint64)
        count = sent_count(self.fraction, x.size)
        values = x.reshape(-1)[random_indices(int(seed), x.size, count)]
        if self.unbiased and count:
            limits = np.finfo(values.dtype)
            with np.errstate(over="ignore"):
                values = np.clip(values * values.dtype.type(x.size / count), limits.min, limits.max)
        return {"values": values, "seed": np.array([seed]), "like": shape_tag(x)}

    def decode(self, parts: Parts) -> Array:
        values, seed, size = part(parts, "values"), part(parts, "seed"), zeros_for(parts).size
        if seed.dtype != np.uint64 or seed.size != 1 or values.size > size:
            raise ValueError(f"{values.size} values and {seed.size} seeds of {seed.dtype} do not make {size} values.")
        return scatter(parts, random_indices(int(seed.reshape(-1)[0]), size, values.size))

    def relative_variance(self, x: Array) -> float:
        count = sent_count(self.fraction, x.size)
        return x.size / count - 1 if self.unbiased and count else 0.0

    def error_bound(self, x: Array) -> float:
        scaled = (1 + self.relative_variance(x)) * (1 + 2 * float(np.finfo(x.dtype).eps))  # d/k, rounded up
        return float(np.abs(x).max(initial=0)) * max(1.0, scaled - 1)

    def nbytes(self, shape: tuple[int, ...], dtype: DTypeLike) -> int:
        return sent_count(self.fraction, prod(shape)) * np.dtype(dtype).itemsize + 8


@register
@dataclass(frozen=True)
class Threshold(Quantizer):
    """The values whose magnitude is at least ``value``; zero elsewhere. Their number depends on the data.

    Every dropped value is below the threshold, so small gradients need ErrorFeedback to be sent at all. Source: Strom
    2015, "Scalable Distributed DNN Training Using Commodity GPU Cloud Computing", section 2 (with whole values).

    >>> q = Threshold(value=0.5)
    >>> q.decode(q.encode(np.float32([3, -0.1, 0, -0.5]), rng=None))
    array([ 3. ,  0. ,  0. , -0.5], dtype=float32)
    """

    name = "threshold"
    value: float = option(0.01, "the smallest magnitude sent", minimum=0, step=0.01)

    def encode(self, x: Array, rng: np.random.Generator | None) -> Parts:
        flat = x.reshape(-1)
        with np.errstate(over="ignore"):  # no value reaches a threshold beyond the range of the dtype
            indices = np.flatnonzero(np.abs(flat) >= self.value)
        return {"values": flat[indices], "indices": indices.astype(index_dtype(x.size)), "like": shape_tag(x)}

    def decode(self, parts: Parts) -> Array:
        return scatter(parts, part(parts, "indices"))

    def error_bound(self, x: Array) -> float:
        return self.value


def sent_count(fraction: float, size: int) -> int:
    """The number of values sent, of ``size``. For 0.07 of 100 it is 7, although 0.07 * 100 is slightly more than 7."""
    from fractions import Fraction  # slow to import

    return ceil(Fraction(str(fraction)) * size)


def largest_indices(magnitudes: Array, count: int) -> Array:
    """The indices of the ``count`` largest magnitudes, in rising order.

    A sample yields an estimate of the smallest of them. Only values that reach it are partitioned; all, if too few do.
    """
    candidates = np.empty(0, np.intp)
    if count == 0:
        return candidates
    sample, share = magnitudes[::_SAMPLE], int(1.2 * count / _SAMPLE) + 30
    if 1000 < sample.size > share:
        candidates = np.flatnonzero(magnitudes >= np.partition(sample, -share)[-share])
    if candidates.size < count:
        indices = np.argpartition(magnitudes, -count)[-count:]
    else:
        indices = candidates[np.argpartition(magnitudes[candidates], -count)[-count:]]
    indices.sort()
    return indices


def random_indices(seed: int, size: int, count: int) -> Array:
    """``count`` distinct indices below ``size``, drawn uniformly from ``seed``, in rising order."""
    if count > size - count:
        chosen = np.ones(size, bool)
        chosen[random_indices(seed, size, size - count)] = False
        return np.flatnonzero(chosen)
    generator, drawn = np.random.PCG64(seed), np.empty(0, np.int64)
    while True:
        words = np.asarray(generator.random_raw(count - drawn.size + 8 + count // 4)) >> np.uint64(32)
        drawn = np.concatenate([drawn, (words * np.uint64(size) >> np.uint64(32)).astype(np.int64)])
        _, first = np.unique(drawn, return_index=True)
        drawn = drawn[np.sort(first)]
        if drawn.size >= count:
            return np.sort(drawn[:count])


def scatter(parts: Parts, indices: Array) -> Array:
    """An array with the parts' values at ``indices`` and zeros elsewhere."""
    x, values = zeros_for(parts), part(parts, "values")
    if indices.dtype.kind not in "ui" or indices.ndim != 1 or values.shape != indices.shape or values.dtype.kind != "f":
        raise ValueError(f"{indices.size} {indices.dtype} indices do not fit {values.size} {values.dtype} values.")
    if (indices >= x.size).any() or (indices < 0).any():
        raise ValueError(f"Indices from {indices.min()} to {indices.max()} do not fit into {x.size} values.")
    x.reshape(-1)[indices] = values
    return x


def index_dtype(size: int) -> "np.dtype[np.unsignedinteger]":
    """The smallest unsigned integer that can index an array of ``size`` values.

    >>> index_dtype(256), index_dtype(257)
    (dtype('uint8'), dtype('uint16'))
    """
    return np.min_scalar_type(max(size - 1, 0))
