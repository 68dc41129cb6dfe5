"""Low rank: a matrix as the product of two thin ones."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import DTypeLike

from minips.stage import Array, option, register
from minips.stages.quantizers.base import Parts, Quantizer, blank, part, size_of, witness


@register
@dataclass(frozen=True)
class PowerSGD(Quantizer):
    """One step of power iteration: ``P = orthonormal(M Q)`` for a random Q, then ``M ≈ P (MᵀP)ᵀ``.

    A tensor of two or more dimensions is a matrix M of shape (first, all others), M ≈ P Rᵀ with P (n, r) and R (m, r).
    The product is the projection of M on P, so it never increases the norm, and nothing is lost where r reaches the
    rank of M: a linear model's gradient XᵀR has a rank of at most the batch. Vectors, and matrices that the two factors
    would not make smaller, pass as they are. Wants ErrorFeedback. Source: Vogels, Karimireddy and Jaggi 2019,
    "PowerSGD", algorithm 1 (without reuse of the last Q: a quantizer is pure).
    """

    name = "powersgd"
    rank: int = option(2, "columns of each factor", minimum=1, step=1)

    def encode(self, x: Array, rng: np.random.Generator | None) -> Parts:
        if not self._thin(x.shape):
            return {"values": x}
        M = x.reshape(x.shape[0], -1)
        scale = x.dtype.type(np.abs(x).max() or 1)  # so that no product leaves the range of the dtype
        M = M / scale
        Q = (rng or np.random.default_rng(0)).normal(size=(M.shape[1], self.rank)).astype(x.dtype)
        P = np.linalg.qr(M @ Q)[0]
        return {"P": P, "R": M.T @ P * scale, "like": witness(x)}

    def decode(self, parts: Parts) -> Array:
        if "values" in parts:
            return parts["values"]
        x, P, R = blank(part(parts, "like")), part(parts, "P"), part(parts, "R")
        if x.ndim < 2 or P.ndim != 2 or R.ndim != 2 or P.shape[1] != R.shape[1] or P.shape[0] != x.shape[0]:
            raise ValueError(f"Factors of the shapes {P.shape} and {R.shape} do not make a tensor of {x.shape}.")
        if R.shape[0] * x.shape[0] != x.size or {P.dtype.kind, R.dtype.kind} != {"f"}:
            raise ValueError(f"Factors of {P.dtype}{P.shape} and {R.dtype}{R.shape} do not make a tensor of {x.shape}.")
        x.reshape(x.shape[0], -1)[...] = P @ R.T
        return x

    def nbytes(self, shape: tuple[int, ...], dtype: DTypeLike) -> int:
        size = size_of(shape)
        values = self.rank * (shape[0] + size // shape[0]) if self._thin(shape) else size
        return values * np.dtype(dtype).itemsize

    def _thin(self, shape: tuple[int, ...]) -> bool:
        """True where two factors are smaller than the matrix."""
        size = size_of(shape)
        return len(shape) >= 2 and size > 0 and self.rank * (shape[0] + size // shape[0]) < size
