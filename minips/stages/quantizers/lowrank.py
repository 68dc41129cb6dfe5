"""Low rank: a matrix sent as the product of two thin matrices."""

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import DTypeLike

from minips.stage import Array, is_finite, option, register
from minips.stages.quantizers.base import Parts, Quantizer, norm, part, shape_tag, zeros_for


@register
@dataclass(frozen=True)
class PowerSGD(Quantizer):
    """One step of power iteration: ``P = orthonormal(M Q)`` for a random Q, then ``M ≈ P (MᵀP)ᵀ``.

    A tensor of two or more dimensions is a matrix M of shape (first, all others), M ≈ P Rᵀ with P (n, r) and R (m, r).
    The product is the projection of M on P, so it never increases the norm. It is exact if r is at least the rank of M;
    the rank of a linear model's gradient XᵀR is at most the batch size. Vectors, and matrices smaller than their
    factors, are sent unchanged. The factors of half floats are float32. It needs ErrorFeedback. Source: Vogels,
    Karimireddy and Jaggi 2019, "PowerSGD", algorithm 1 (without reuse of the last Q: a quantizer has no state).
    """

    name = "powersgd"
    rank: int = option(2, "columns of each factor", minimum=1, step=1)

    def encode(self, x: Array, rng: np.random.Generator | None) -> Parts:
        if self.nbytes(x.shape, x.dtype) == x.nbytes:
            return {"values": x}
        M = x.reshape(x.shape[0], -1).astype(_factor(x.dtype), copy=False)
        one = M.dtype.type(1)
        scale = np.abs(M).max() or one
        M = M / scale  # so that no product overflows the dtype
        Q = (rng or np.random.default_rng(0)).normal(size=(M.shape[1], self.rank)).astype(M.dtype)
        with np.errstate(invalid="ignore"):  # OpenBLAS may set the flag on finite input: numpy issue 24067
            P = np.linalg.qr(M @ Q)[0]
            R = M.T @ P
        return {"P": P * max(scale, one), "R": R * min(scale, one), "like": shape_tag(x)}

    def decode(self, parts: Parts) -> Array:
        if "values" in parts:
            return parts["values"]
        x, P, R = zeros_for(parts), part(parts, "P"), part(parts, "R")
        fit = x.ndim > 1 and P.ndim == 2 and (P.shape[0], *R.shape) == (x.shape[0], prod(x.shape[1:]), P.shape[1])
        if not fit or {P.dtype.kind, R.dtype.kind} != {"f"}:
            raise ValueError(f"Factors of {P.dtype}{P.shape} and {R.dtype}{R.shape} do not make a tensor of {x.shape}.")
        with np.errstate(invalid="ignore", over="ignore"):
            x.reshape(x.shape[0], -1)[...] = P @ R.T
            if not is_finite(x):  # only rounding can make the product of finite factors infinite
                size, most = np.abs(P).max(initial=1), np.finfo(P.dtype).max
                product = np.clip((P / size) @ R.T, -most / size, most / size) * size
                x.reshape(x.shape[0], -1)[...] = np.clip(product, np.finfo(x.dtype).min, np.finfo(x.dtype).max)
        return x

    def error_bound(self, x: Array) -> float:
        return 0.0 if self.nbytes(x.shape, x.dtype) == x.nbytes else norm(x)

    def nbytes(self, shape: tuple[int, ...], dtype: DTypeLike) -> int:
        whole = prod(shape) * np.dtype(dtype).itemsize
        if len(shape) < 2:
            return whole
        return min(whole, self.rank * (shape[0] + prod(shape[1:])) * _factor(dtype).itemsize)


def _factor(dtype: DTypeLike) -> "np.dtype[np.floating]":
    """The dtype of the factors, as LAPACK needs: float32 for matrices of up to 32-bit floats, else float64."""
    return np.dtype(np.float32 if np.dtype(dtype).itemsize <= 4 else np.float64)
