"""The contract of a quantizer, and the tag that gives its parts a shape and a dtype."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from minips.stage import Array, Stage

Parts = dict[str, Array]
"""A quantized tensor: a few named arrays, which contain everything needed to decode it."""

LARGEST_BYTES = 2**31
"""The largest size, in bytes, of a decoded array. Without this limit, a short message could claim any shape."""
CHUNK = 65_536
"""The number of values per pass: small enough for a core's cache, large enough that Python's overhead is small."""


class Quantizer(Stage):
    """A pure function from an array to a few smaller arrays, and back.

    ``decode(encode(x))`` has the shape and the dtype of ``x``, for any float dtype and any shape, including empty and
    0-d arrays. Decoding needs only the parts, not the fields of the quantizer that made them. ``x`` is never changed,
    but the parts may share its memory. ``x`` must be finite: client, server and `Sender` reject NaN and infinity. All
    guarantees hold for magnitudes up to a thousandth of the dtype's largest value, so that sums stay finite.
    """

    kind: ClassVar[str] = "quantizer"
    identity: ClassVar[bool] = False
    """True if the only part, ``values``, is the array itself."""
    of_methods = {"identity": ("encode", "decode", "decoded_shape")}

    @abstractmethod
    def encode(self, x: Array, rng: np.random.Generator | None) -> Parts:
        """Return the parts of ``x``. Random schemes draw from ``rng``; other schemes ignore it."""

    @abstractmethod
    def decode(self, parts: Parts) -> Array:
        """The array that the parts encode. Raises ValueError if the parts are inconsistent."""

    def decoded_shape(self, parts: Parts) -> tuple[int, ...] | None:
        """The shape that `decode` will allocate; None if the parts are as large as the array."""
        like = parts.get("like")
        return None if like is None or like.shape[:1] != (0,) else like.shape[1:]

    def relative_variance(self, x: Array) -> float:
        """``ω = E|C(x) − x|² / |x|²`` of a random scheme with ``E C(x) = x``; 0 for all others."""
        return 0.0

    def error_bound(self, x: Array) -> float | None:
        """The largest possible absolute error of ``decode(encode(x))``, or None if the scheme guarantees no bound."""
        return None

    def nbytes(self, shape: tuple[int, ...], dtype: DTypeLike) -> int | None:
        """The bytes of the parts for an array of this shape and dtype, or None if they depend on the values."""
        return None


def contractive(quantizer: Quantizer, x: Array) -> Array:
    """The array that a memory passes to ``quantizer`` for ``x``: ``x / (1 + ω)``, where ω is its relative variance.

    Memories need a contraction, ``E|C(x) − x|² ≤ (1 − δ)|x|²`` with δ > 0. An unbiased scheme with ω ≥ 1 is not one;
    scaled by 1 / (1 + ω), it is a contraction with δ = 1 / (1 + ω). Sources: Beznosikov et al. 2020, "On Biased
    Compression for Distributed Learning", section 2; Mishchenko et al. 2019 (DIANA), where ω limits the rate.
    """
    omega = quantizer.relative_variance(x)
    return np.asarray(x * x.dtype.type(1 / (1 + omega))) if omega else x


def shape_tag(x: Array) -> Array:
    """An empty array that carries the dtype and the shape of ``x``: its own shape is ``(0, *x.shape)``."""
    check_bytes(x.shape, x.nbytes)
    return np.empty((0, *x.shape), x.dtype)


def empty_for(parts: Mapping[str, Array], make: Callable[..., Array] = np.empty) -> Array:
    """An uninitialised array with the dtype and shape of the part ``like``. Raises ValueError for a wrong shape tag."""
    like = part(parts, "like")
    if like.ndim == 0 or like.shape[0] != 0 or like.dtype.kind != "f":
        raise ValueError(f"The part 'like' must have the shape (0, …), of floats; got {like.dtype} of {like.shape}.")
    check_bytes(like.shape[1:], math.prod(like.shape[1:]) * like.itemsize)
    return make(like.shape[1:], like.dtype)


def check_bytes(shape: tuple[int, ...], nbytes: int) -> None:
    """Raise ValueError if a decoded array of this shape would have too many bytes."""
    if nbytes > LARGEST_BYTES:
        raise ValueError(f"An array of shape {shape}, {nbytes} B, is larger than the {LARGEST_BYTES} bytes allowed.")


def zeros_for(parts: Mapping[str, Array]) -> Array:
    """An array like that of `empty_for`, filled with zeros, for schemes that do not write every value."""
    return empty_for(parts, np.zeros)


def part(parts: Mapping[str, Array], name: str, dtype: Any = None, shape: tuple[int, ...] = ()) -> Array:
    """The part with this name. Raises ValueError if it is missing or does not have the given dtype and shape."""
    if name not in parts:
        raise ValueError(f"The parts have no {name!r}; they have: {', '.join(parts) or 'nothing'}.")
    x = parts[name]
    if dtype is not None and (x.dtype != dtype or x.shape != shape):
        raise ValueError(f"The part {name!r} must hold {np.dtype(dtype)} of {shape}; got {x.dtype} of {x.shape}.")
    return x


def number(parts: Mapping[str, Array], name: str) -> float:
    """The number in a part. Raises ValueError unless the part holds exactly one number and that number is finite."""
    value = part(parts, name)
    one = float(value.reshape(-1)[0]) if value.size == 1 and value.dtype.kind in "biuf" else math.nan
    if not math.isfinite(one):  # a finite longdouble may become an infinite double
        raise ValueError(f"The part {name!r} must hold one finite number; got {value.size} of {value.dtype}.")
    return one


def chunks(size: int) -> Iterator[slice]:
    """Cut ``size`` values into pieces that fit into a core's cache."""
    for start in range(0, size, CHUNK):
        yield slice(start, min(start + CHUNK, size))


def norm(x: Array) -> float:
    """The Euclidean norm ``|x|₂``, correct even if the squares overflow or underflow the dtype."""
    flat = x.reshape(-1).astype(np.result_type(x, np.float32), copy=False)
    with np.errstate(over="ignore", under="ignore"):
        square = sum(float(np.dot(flat[some], flat[some])) for some in chunks(x.size))
    if 1e-30 < square < math.inf:
        return math.sqrt(square)
    largest = float(np.abs(flat).max(initial=0))
    return largest * float(np.linalg.norm(flat / largest)) if largest else 0.0
