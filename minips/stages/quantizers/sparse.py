"""Sparse: few of the values, and where they stood."""

from dataclasses import dataclass
from fractions import Fraction
from math import ceil

import numpy as np
from numpy.typing import DTypeLike

from minips.stage import Array, option, register
from minips.stages.quantizers.base import Parts, Quantizer, blank, part, witness


@register
@dataclass(frozen=True)
class TopK(Quantizer):
    """The k values that are largest in magnitude, k = ⌈fraction · d⌉; zero elsewhere.

    The residual is at most ``(1 − k/d) |x|²``, and what is dropped is dropped for good, so it wants ErrorFeedback.
    Indices travel in the smallest unsigned integer that counts to d − 1. NaN counts as the largest.
    Source: Stich, Cordonnier and Jaggi 2018, "Sparsified SGD with Memory", section 2.

    >>> q = TopK(fraction=0.5)
    >>> q.decode(q.encode(np.float32([3, -1, 0, -4]), rng=None))
    array([ 3.,  0.,  0., -4.], dtype=float32)
    """

    name = "topk"
    fraction: float = option(0.01, "share of the values that is sent", above=0, maximum=1, step=0.01)

    def kept(self, size: int) -> int:
        """How many of ``size`` values are sent: 7 of 100 for 0.07, although 0.07 * 100 is a little more in floats."""
        return ceil(Fraction(str(self.fraction)) * size)

    def encode(self, x: Array, rng: np.random.Generator | None) -> Parts:
        flat, k = x.reshape(-1), self.kept(x.size)
        indices = np.argpartition(np.abs(flat), x.size - k)[x.size - k :] if k else np.empty(0, int)
        indices.sort()
        return {"values": flat[indices], "indices": indices.astype(index_dtype(x.size)), "like": witness(x)}

    def decode(self, parts: Parts) -> Array:
        x, indices, values = blank(part(parts, "like")), part(parts, "indices"), part(parts, "values")
        if indices.dtype.kind != "u" or indices.shape != values.shape or (indices >= x.size).any():
            raise ValueError(f"{indices.size} indices and {values.size} values do not fit into {x.size} values.")
        x.reshape(-1)[indices] = values
        return x

    def error_bound(self, x: Array) -> float:
        return float(np.abs(x).max(initial=0))

    def nbytes(self, shape: tuple[int, ...], dtype: DTypeLike) -> int:
        size = int(np.prod(shape, dtype=int))
        return self.kept(size) * (np.dtype(dtype).itemsize + index_dtype(size).itemsize)


def index_dtype(size: int) -> "np.dtype[np.unsignedinteger]":
    """The smallest unsigned integer that can index an array of ``size`` values.

    >>> index_dtype(256), index_dtype(257)
    (dtype('uint8'), dtype('uint16'))
    """
    return np.min_scalar_type(max(size - 1, 0))
