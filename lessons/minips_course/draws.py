"""Named arrays as any model may have them, for checks: other names, shapes and magnitudes in each draw."""

import numpy as np

from minips.stage import Array, Tensors

WORDS = ["w", "W", "b", "bias", "scale", "layer", "conv", "gain", "out", "z"]


def drawn_names(rng: np.random.Generator, count: int) -> list[str]:
    """Draw so many different names, in no order."""
    return [f"{word}{number}" for word, number in zip(rng.choice(WORDS, count), rng.permutation(count), strict=True)]


def drawn_shapes(rng: np.random.Generator, count: int) -> list[tuple[int, ...]]:
    """Draw so many different shapes of up to three dimensions; the first is that of a single number."""
    return [tuple(rng.integers(2, 6, ndim).tolist() + [n + 6] * (n > 0)) for n, ndim in enumerate(_ndims(rng, count))]


def _ndims(rng: np.random.Generator, count: int) -> list[int]:
    return [0, *rng.integers(0, 3, count - 1).tolist()]


def drawn_tensors(rng: np.random.Generator, count: int = 3, dtype: str = "float64") -> Tensors:
    """Draw named arrays of normal values, of one magnitude between a hundredth and a hundred."""
    scale, shapes = 10.0 ** rng.uniform(-2, 2), drawn_shapes(rng, count)
    names = drawn_names(rng, count)
    order = rng.permutation(count).tolist()
    return {names[n]: np.asarray(scale * rng.normal(size=shapes[n])).astype(dtype) for n in order}


def like(tensors: Tensors, rng: np.random.Generator) -> Tensors:
    """Draw normal values for each array, of its shape, dtype and about its magnitude."""
    return {name: np.asarray(_scale(x) * rng.normal(size=x.shape)).astype(x.dtype) for name, x in tensors.items()}


def _scale(x: Array) -> float:
    return float(np.abs(x).mean()) if x.size and np.any(x) else 1.0
