"""Signs: one bit a value."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from minips.stage import Array, register
from minips.stages.quantizers.base import Parts, Quantizer, blank, part, witness


@register
@dataclass(frozen=True)
class Sign(Quantizer):
    """One bit per value and one scale: ``mean(|x|) * sign(x)``, with sign(0) = +1.

    The residual is exactly ``(1 - |x|_1^2 / (d |x|_2^2)) |x|_2^2``, so it wants ErrorFeedback.
    Source: Karimireddy et al. 2019, "Error Feedback Fixes SignSGD", section 3.

    >>> q = Sign()
    >>> q.decode(q.encode(np.float32([3, -1, 0]), rng=None))
    array([ 1.3333334, -1.3333334,  1.3333334], dtype=float32)
    """

    name = "sign"

    def encode(self, x: Array, rng: np.random.Generator | None) -> Parts:
        scale = np.abs(x).mean(dtype=np.float64) if x.size else 0.0
        return {"bits": np.packbits(x.reshape(-1) >= 0), "scale": np.array([scale]), "like": witness(x)}

    def decode(self, parts: Parts) -> Array:
        x, bits = blank(part(parts, "like")), part(parts, "bits")
        (scale,) = part(parts, "scale").reshape(-1).tolist()
        if bits.dtype != np.uint8 or bits.size != -(-x.size // 8):
            raise ValueError(f"{bits.size} bytes of signs do not hold {x.size} values.")
        positive = np.unpackbits(bits, count=x.size).reshape(x.shape)
        x[...] = np.where(positive, scale, -scale)
        return x

    def nbytes(self, shape: tuple[int, ...], dtype: DTypeLike) -> int:
        return -(-int(np.prod(shape, dtype=int)) // 8) + 8
