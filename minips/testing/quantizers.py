"""The contract of a quantizer: it gives back shape and dtype, from the parts alone, within its own bound."""

import math
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
from numpy.typing import DTypeLike

from minips.stage import Array
from minips.stages.quantizers import Parts, Quantizer
from minips.testing.base import described, failing_only_with, refusing, require, same_bits, strictly, unwritable
from minips.testing.stages import check_stage

SHAPES: list[tuple[int, ...]] = [(0,), (0, 3), (), (1,), (7,), (3, 5), (2, 3, 4), (1000,)]
DAMAGED_SHAPES: list[tuple[int, ...]] = [(0,), (), (3, 5), (12, 9)]
VALUES = {"ordinary": 1.0, "large": 1e30, "tiny": 1e-30}


def check_quantizer(quantizer: Quantizer) -> None:
    """Check a quantizer against its contract, with arrays of every shape, layout, float size and magnitude."""
    check_stage(quantizer)
    for dtype in (np.float32, np.float64):
        for name, x in arrays(dtype):
            with strictly(f"{quantizer!r} with {name} values, {described(x)}"):
                parts = _encode(quantizer, x)
                _check_decoded(quantizer, x, parts)
                said, real = quantizer.nbytes(x.shape, x.dtype), sum(array.nbytes for array in parts.values())
                require(said is None or said == real, f"nbytes says {said}, and the parts hold {real} bytes.")
                omega = quantizer.relative_variance(x)
                require(0 <= omega < math.inf, f"relative_variance gave {omega}, not a number from 0.")
    _check_damage(quantizer)


def arrays(dtype: DTypeLike) -> Iterator[tuple[str, Array]]:
    """Named arrays of this dtype: all shapes and magnitudes, constants and zeros, and views that are not contiguous."""
    rng = np.random.default_rng(1)
    for shape in SHAPES:
        normal = np.asarray(rng.standard_normal(shape))
        yield from ((name, np.asarray(scale * normal, dtype)) for name, scale in VALUES.items())
        yield "constant", np.full(shape, -3.25, dtype)
        yield "zero", np.zeros(shape, dtype)
    square = rng.standard_normal((6, 8)).astype(dtype)
    yield "strided", square[::2, 1::3]
    yield "transposed", square.T
    yield "reversed", square[::-1]
    yield "mostly zero", np.where(square > 1, square, 0).astype(dtype)


def _encode(quantizer: Quantizer, x: Array) -> Parts:
    """The parts of ``x``: arrays with names, the same again from the same seed; ``x`` is as it was."""
    before = x.copy()
    parts, again = (quantizer.encode(unwritable(x), np.random.default_rng(0)) for _ in range(2))
    require(same_bits(x, before), "encode changed its input.")
    require(isinstance(parts, dict), f"encode gave a {type(parts).__name__}, not a dict of arrays.")
    for name, array in parts.items():
        part, is_named_array = f"the part {name!r}", isinstance(name, str) and isinstance(array, np.ndarray)
        require(is_named_array, f"{part} is a {type(array).__name__}, not an array; np.asarray makes one.")
        require(array.dtype.kind in "biuf", f"{part} holds {array.dtype}, which cannot travel.")
        require(same_bits(array, again[name]), f"{part} differs for the same seed: draw from rng only.")
    return parts


def _check_decoded(quantizer: Quantizer, x: Array, parts: Parts) -> None:
    """A fresh instance with default fields decodes: what it needs is in the parts."""
    y = type(quantizer)().decode({name: unwritable(array) for name, array in parts.items()})
    require(isinstance(y, np.ndarray), f"decode gave a {type(y).__name__}, not an array; np.asarray makes one.")
    require(y.shape == x.shape, f"decode gave the shape {y.shape}; `shape_tag` and `zeros_for` keep it.")
    require(y.dtype == x.dtype, f"decode gave {y.dtype}; `shape_tag` and `zeros_for` keep the dtype.")
    require(np.isfinite(y).all(), "decode gave NaN or infinity.")
    if (bound := quantizer.error_bound(x)) is not None:
        error = float(np.abs(x.astype(np.float64) - y.astype(np.float64)).max(initial=0))
        rounding = float(np.finfo(x.dtype).eps) * float(np.abs(x).max(initial=0)) if bound else 0.0
        require(error <= bound * (1 + 1e-6) + rounding, f"the error is {error:g}, error_bound says {bound:g}.")


def _check_damage(quantizer: Quantizer) -> None:
    """Parts come from the network: whatever they are, decode gives an array or raises ValueError."""
    fresh = type(quantizer)()
    for shape in DAMAGED_SHAPES:
        x = np.asarray(np.random.default_rng(2).standard_normal(shape), np.float32)
        parts = quantizer.encode(x, np.random.default_rng(0))
        for name in parts:
            what = f"{quantizer!r}, decode without the part {name!r} (read it with minips.stages.quantizers.base.part)"
            with refusing(what, ValueError):
                fresh.decode({key: array for key, array in parts.items() if key != name})
        changes = [(name, how, array) for name in parts for how, array in damaged(parts[name])]
        for name, how, array in [*changes, ("unheard of", "added", np.ones(3))]:
            what = f"{quantizer!r}, decode of the shape {shape} with the part {name!r} {how}"
            with failing_only_with(ValueError, what):
                y = fresh.decode({**parts, name: array})
                require(isinstance(y, np.ndarray), f"it gave a {type(y).__name__}, neither array nor error.")


def damaged(array: Array) -> Iterator[tuple[str, Array]]:
    """The array in the ways that it can arrive wrong: its size, its shape, its dtype, its values."""
    flat = array.reshape(-1)
    yield "cut short", flat[:-1]
    yield "empty", flat[:0]
    yield "twice as long", np.concatenate([flat, flat])
    yield "as a single value", np.array(flat[0] if flat.size else 0, array.dtype)
    yield "of another shape", array[None]
    for dtype in ("uint8", "int8", "int64", "float16", "float64", "bool"):
        with np.errstate(all="ignore"):
            yield f"as {dtype}", array.astype(dtype)
    for bits in (255, 128):
        filled = np.full(array.size * array.itemsize, bits, np.uint8).view(array.dtype).reshape(array.shape)
        yield f"with bytes of {bits}", filled
    for value in (np.nan, np.inf, -1.0, -1e9, 0.0, 1e300):
        yield f"full of {value}", np.full(array.shape, value)
    yield "full of -1, in integers", np.full(array.shape, -1)
    for shape in [(0, 2**20, 2**20), (2**40, 0), (0, 0, 2**40)]:
        with suppress(ValueError, OverflowError):  # a machine of 32 bits refuses such a shape itself
            yield f"claiming the shape {shape}", np.empty(shape, array.dtype)
