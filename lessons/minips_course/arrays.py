"""Named arrays: those that checks draw, with other names, shapes and magnitudes each time, and work on any."""

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from minips.stage import Array, Tensors

WORDS = ["w", "W", "b", "bias", "scale", "layer", "conv", "gain", "out", "z"]


def drawn_names(rng: np.random.Generator, count: int) -> list[str]:
    """Draw so many different names, in no order."""
    return [f"{word}{number}" for word, number in zip(rng.choice(WORDS, count), rng.permutation(count), strict=True)]


def drawn_shapes(rng: np.random.Generator, count: int) -> list[tuple[int, ...]]:
    """Draw so many shapes of up to three dimensions; the first is that of a single number."""
    return [(), *(tuple(rng.integers(1, 7, rng.integers(1, 4)).tolist()) for _ in range(count - 1))]


def drawn_tensors(rng: np.random.Generator, count: int = 3, dtype: str = "float64") -> Tensors:
    """Draw named arrays of normal values, of one magnitude between a ten-thousandth and a thousand."""
    scale, shapes = 10.0 ** rng.uniform(-4, 3), drawn_shapes(rng, count)
    rng.shuffle(shapes)
    named = zip(drawn_names(rng, count), shapes, strict=True)
    return {name: np.asarray(scale * rng.normal(size=shape)).astype(dtype) for name, shape in named}


def drawn_like(tensors: Tensors, rng: np.random.Generator) -> Tensors:
    """Draw normal values for each array: of its shape and dtype, and about its magnitude."""
    return {name: np.asarray(_scale(x) * rng.normal(size=x.shape)).astype(x.dtype) for name, x in tensors.items()}


def _scale(x: Array) -> float:
    return float(np.abs(x).mean()) if np.any(x) else 1.0


def copied(tensors: Tensors) -> Tensors:
    """Copy each array."""
    return {name: x.copy() for name, x in tensors.items()}


def reordered(tensors: Tensors, rng: np.random.Generator) -> Tensors:
    """Return the same arrays in another order."""
    names = [*tensors]
    return {names[n]: tensors[names[n]] for n in rng.permutation(len(names))}


def flat(tensors: Tensors) -> Array:
    """Return all values as one array, by name."""
    return np.concatenate([np.ravel(tensors[name]) for name in sorted(tensors)])


def array_bytes(thing: Any) -> int:
    """Return the bytes of all arrays and numbers inside a thing."""
    if isinstance(thing, np.ndarray):
        return thing.nbytes
    if isinstance(thing, int | float | complex | np.number):
        return 8
    if isinstance(thing, str | bytes | bytearray):
        return len(thing)
    if isinstance(thing, Mapping):
        return sum(map(array_bytes, thing.values()))
    if isinstance(thing, list | tuple | set | deque):
        return sum(map(array_bytes, thing))
    return array_bytes(vars(thing)) if hasattr(thing, "__dict__") and not isinstance(thing, type) else 0
