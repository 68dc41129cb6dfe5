"""Integers: evenly spaced levels between two ends."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from minips.stage import Array, option, register
from minips.stages.quantizers.base import Parts, Quantizer, blank, part, witness


@register
@dataclass(frozen=True)
class Uniform(Quantizer):
    """2ᵇ evenly spaced levels from min(x) to max(x), each value to the nearest: ``low + step · round((x − low) /
    step)``.

    The step is ``(max − min) / (2ᵇ − 1)`` and the error at most half of it. With b = 8 a value is one byte; with fewer
    bits the codes are packed tightly, 4 bits into half a byte. An array of one repeated value comes back exactly.
    Source: Gray and Neuhoff 1998, "Quantization", section II (the uniform quantizer).

    >>> q = Uniform(bits=2)
    >>> q.decode(q.encode(np.float32([0, 0.9, 2.2, 3]), rng=None))
    array([0., 1., 2., 3.], dtype=float32)
    """

    name = "uniform"
    bits: int = option(8, "bits per value", minimum=1, maximum=8, step=1, unit="bit")

    def encode(self, x: Array, rng: np.random.Generator | None) -> Parts:
        low, high = (float(x.min()), float(x.max())) if x.size else (0.0, 0.0)
        step = (high - low) / (2**self.bits - 1)
        codes, flat = np.zeros(x.size, np.uint8), x.reshape(-1)
        if step > 0:
            limits = np.finfo(x.dtype)
            if step < float(limits.smallest_normal) or high - low > float(limits.max):
                flat = flat.astype(np.float64)  # the dtype cannot hold the step or the difference
            np.rint((flat - low) / step, out=codes, casting="unsafe")
        if self.bits < 8:
            codes = np.packbits(np.unpackbits(codes.reshape(-1, 1), axis=1)[:, 8 - self.bits :])
        return {
            "codes": codes,
            "range": np.array([low, step]),
            "bits": np.array([self.bits], np.uint8),
            "like": witness(x),
        }

    def decode(self, parts: Parts) -> Array:
        codes, x = part(parts, "codes"), blank(part(parts, "like"))
        low, step = part(parts, "range").astype(float).reshape(-1).tolist()
        (bits,) = map(int, part(parts, "bits").reshape(-1).tolist())
        if codes.dtype != np.uint8 or codes.size != -(-x.size * bits // 8) or not 1 <= bits <= 8:
            raise ValueError(f"{codes.size} bytes of codes do not hold {x.size} values of {bits} bits.")
        if bits < 8:
            ones = np.unpackbits(codes, count=x.size * bits).reshape(-1, bits)
            codes = np.packbits(np.pad(ones, ((0, 0), (8 - bits, 0))), axis=1).reshape(-1)
        x.reshape(-1)[...] = codes * step + low
        return x

    def error_bound(self, x: Array) -> float:
        if x.size == 0:
            return 0.0
        rounding = float(np.finfo(x.dtype).eps) * float(np.abs(x).max())
        spread = float(x.max()) - float(x.min())
        return spread / float(2**self.bits - 1) / 2 + 4 * rounding

    def nbytes(self, shape: tuple[int, ...], dtype: DTypeLike) -> int:
        return -(-int(np.prod(shape, dtype=int)) * self.bits // 8) + 16 + 1
