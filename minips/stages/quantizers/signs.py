"""Signs: one bit per value."""

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import DTypeLike

from minips.stage import Array, register
from minips.stages.quantizers.base import Parts, Quantizer, chunks, empty_for, number, part, shape_tag
from minips.stages.quantizers.packing import packed_nbytes


@register
@dataclass(frozen=True)
class Sign(Quantizer):
    """One bit per value and one scale: ``mean(|x|) * sign(x)``, with sign(0) = +1.

    The residual is exactly ``(1 - |x|_1^2 / (d |x|_2^2)) |x|_2^2``, so Sign needs ErrorFeedback.
    Source: Karimireddy et al. 2019, "Error Feedback Fixes SignSGD", section 3.

    >>> q = Sign()
    >>> q.decode(q.encode(np.float32([3, -1, 0]), rng=None))
    array([ 1.3333334, -1.3333334,  1.3333334], dtype=float32)
    """

    name = "sign"

    def encode(self, x: Array, rng: np.random.Generator | None) -> Parts:
        flat, bits, total = x.reshape(-1), np.empty(packed_nbytes(x.size, 1), np.uint8), 0.0
        dtype = np.result_type(x.dtype, np.float32)
        with np.errstate(over="ignore"):
            for some in chunks(x.size):
                bits[some.start // 8 : -(-some.stop // 8)] = np.packbits(flat[some] >= 0)
                total += float(np.abs(flat[some]).sum(dtype=dtype))  # np.dot adds in an order that depends on the BLAS
        scale = total / max(x.size, 1)
        if not np.isfinite(total):  # the sum of a piece overflowed
            scale = float((np.abs(flat) / np.float64(x.size)).sum())
        return {"bits": bits, "scale": np.array([scale]), "like": shape_tag(x)}

    def decode(self, parts: Parts) -> Array:
        x, scale = empty_for(parts), number(parts, "scale")
        bits = part(parts, "bits", np.uint8, (packed_nbytes(x.size, 1),))
        # Each byte encodes eight values. A table of all bytes is faster than unpacking each bit.
        positive = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
        table = np.where(positive, scale, -scale).astype(x.dtype)
        return np.take(table, bits, axis=0).reshape(-1)[: x.size].reshape(x.shape)

    def error_bound(self, x: Array) -> float:
        return float(np.abs(x).max(initial=0))

    def nbytes(self, shape: tuple[int, ...], dtype: DTypeLike) -> int:
        return packed_nbytes(prod(shape), 1) + 8
