"""The contract of a quantizer: decoding needs only the parts; shape and dtype are exact, the error within the bound."""

import copy
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from minips.stage import Array
from minips.stages.quantizers import Parts, Quantizer
from minips.testing.base import (
    described,
    doing,
    failing_only_with,
    refusing,
    require,
    same_bits,
    strictly,
    unwritable,
    without_global_draws,
)
from minips.testing.draws import check_draws, require_bound
from minips.testing.receivers import Receiver, receivers
from minips.testing.stages import check_stage
from minips.training.progress import Wait, showing

SHAPES: list[tuple[int, ...]] = [(0,), (0, 3), (), (1,), (7,), (3, 5), (2, 3, 4), (1000,)]
DAMAGED_SHAPES: list[tuple[int, ...]] = [(0,), (), (3, 5), (12, 9)]
MORE_THAN_16_BITS = 65_600
"""A number of values that is too large for a 16-bit index."""
VALUES = {"ordinary": 1.0, "large": 1e30, "tiny": 1e-30}


class _Sent(NamedTuple):
    """An array, its parts, the decoded array, and copies of the parts and the decoded array."""

    what: str
    x: Array
    parts: Parts
    y: Array
    parts_then: Parts
    y_then: Array


@showing(None, first=Wait("checking a quantizer"))
def check_quantizer(quantizer: Quantizer, dtypes: Sequence[DTypeLike] = (np.float32, np.float64)) -> None:
    """Check a quantizer against its contract, with arrays of every shape, layout, float size and magnitude.

    A stated ``relative_variance`` is compared with 200 draws. Warns about a lossy quantizer without a stated bound or
    variance.
    """
    check_stage(quantizer)
    sent = _check_arrays(quantizer, dtypes[0])
    with without_global_draws(repr(quantizer)):  # libraries that draw on import have drawn by now
        for dtype in dtypes[1:]:
            sent += _check_arrays(quantizer, dtype)
        _check_damage(quantizer)
        check_draws(quantizer)
    lossy = [one for one in sent if not same_bits(one.x, one.y)]
    if lossy and not any(
        quantizer.error_bound(one.x) is not None or quantizer.relative_variance(one.x) for one in lossy
    ):
        warnings.warn(
            f"{quantizer!r} loses values, and has neither error_bound nor relative_variance: its decoded values could "
            "not be checked. Override one of them.",
            stacklevel=4,
        )


def _check_arrays(quantizer: Quantizer, dtype: DTypeLike) -> list[_Sent]:
    """Check each array separately. Once all are encoded, check that every receiver decodes each as its sender did."""
    sent = []
    for name, x in arrays(dtype):
        what = f"{quantizer!r} with {name} values, {described(x)}"
        with strictly(what):
            parts = _encode(quantizer, x)
            y = _decode(quantizer, x, parts)
            _check_promises(quantizer, x, parts, y)
            sent.append(_Sent(what, x, parts, y, copy.deepcopy(parts), y.copy()))
    others = receivers(quantizer)
    for one in sent:
        with strictly(one.what):
            _check_kept(quantizer, one)
            for other in others:
                _check_received(quantizer, other, one)
    return sent


def arrays(dtype: DTypeLike) -> Iterator[tuple[str, Array]]:
    """Yield named arrays of this dtype: all shapes and magnitudes, constants and zeros, and non-contiguous views."""
    rng, limits = np.random.default_rng(1), np.finfo(dtype)
    for shape in SHAPES:
        normal = np.asarray(rng.standard_normal(shape))
        for name, scale in VALUES.items():
            yield name, np.asarray(np.clip(scale, limits.smallest_normal, limits.max / 1000) * normal, dtype)
        yield "constant", np.full(shape, -3.25, dtype)
        yield "zero", np.zeros(shape, dtype)
    square = rng.standard_normal((6, 8)).astype(dtype)
    yield "strided", square[::2, 1::3]
    yield "transposed", square.T
    yield "reversed", square[::-1]
    yield "mostly zero", np.where(square > 1, square, 0).astype(dtype)
    wide = np.zeros(MORE_THAN_16_BITS, dtype)
    wide[-1::-1000] = rng.standard_normal(-(-wide.size // 1000))
    yield "few", wide


def _encode(quantizer: Quantizer, x: Array) -> Parts:
    """Encode ``x``. Check that the parts are named arrays, equal for equal seeds, and that ``x`` is unchanged."""
    before = x.copy()
    parts, again = (quantizer.encode(unwritable(x), np.random.default_rng(0)) for _ in range(2))
    require(same_bits(x, before), "encode changed its input.")
    require(isinstance(parts, dict), f"encode returned a {type(parts).__name__}, not a dict of arrays.")
    for name, array in parts.items():
        part, is_named_array = f"the part {name!r}", isinstance(name, str) and isinstance(array, np.ndarray)
        require(is_named_array, f"{part} is a {type(array).__name__}, not an array; np.asarray makes one.")
        require(array.dtype.kind in "biuf", f"{part} holds {array.dtype}, which cannot travel.")
        require(same_bits(array, again[name]), f"{part} differs for the same seed: draw from rng only.")
    return parts


def _decode(quantizer: Quantizer, x: Array, parts: Parts) -> Array:
    y = quantizer.decode(_unwritable(parts))
    require(isinstance(y, np.ndarray), f"decode returned a {type(y).__name__}, not an array; np.asarray makes one.")
    require(y.shape == x.shape, f"decode returned the shape {y.shape}; `shape_tag` and `zeros_for` keep it.")
    require(y.dtype == x.dtype, f"decode returned {y.dtype}; `shape_tag` and `zeros_for` keep the dtype.")
    require(np.isfinite(y).all(), "decode returned NaN or infinity.")
    return y


def _check_promises(quantizer: Quantizer, x: Array, parts: Parts, y: Array) -> None:
    """Check that the quantizer's parts and error are as promised."""
    said, real = quantizer.nbytes(x.shape, x.dtype), sum(array.nbytes for array in parts.values())
    require(said is None or said == real, f"nbytes says {said}, but the parts hold {real} bytes.")
    shape = quantizer.decoded_shape(parts)
    require(shape is None or tuple(shape) == x.shape, f"decoded_shape says {shape}, but decode returns {x.shape}.")
    omega = quantizer.relative_variance(x)
    number = isinstance(omega, int | float | np.number) and 0 <= omega < math.inf
    require(number, f"relative_variance returned {omega}; expected a number from 0.")
    require_bound(quantizer, x, float(np.abs(x.astype(float) - y.astype(float)).max(initial=0)))


def _check_kept(quantizer: Quantizer, one: _Sent) -> None:
    """Check that encoding other arrays changed neither the parts nor the decoded array, and that decoding repeats."""
    for name, array in one.parts_then.items():
        same = same_bits(one.parts[name], array)
        require(same, f"a later call wrote into the part {name!r}; make new arrays at each call.")
    require(same_bits(one.y, one.y_then), "a later call wrote into the decoded array; make a new one at each call.")
    with doing("decode needs only the parts, but other arrays were encoded in between"):
        again = _decode(quantizer, one.x, one.parts)
        require(same_bits(again, one.y_then), "it returns other values than before; keep nothing between calls.")


def _check_received(quantizer: Quantizer, other: Receiver, one: _Sent) -> None:
    """Check that a receiver that knows the quantizer's name but not its fields decodes the parts."""
    what = f"decode reads the quantizer's own fields. Parts of {quantizer!r}, decoded by one with {other.fields}"
    with doing(f"{what}, {other.stage!r}"):
        y = other.stage.decode(_unwritable(one.parts))
        alike = isinstance(y, np.ndarray) and same_bits(y, one.y)
        bound = quantizer.error_bound(one.x)
        promised = "" if bound is None else f", whatever error_bound says ({bound:.3g})"
        require(alike, f"other values came out{promised}. Send all that decode needs as parts.")


def _unwritable(parts: Parts) -> Parts:
    return {name: unwritable(array) for name, array in parts.items()}


def _check_damage(quantizer: Quantizer) -> None:
    """Check that decode returns an array or raises ValueError for any parts, since they come from the network."""
    fresh = type(quantizer)()
    for shape in DAMAGED_SHAPES:
        x = np.asarray(np.random.default_rng(2).standard_normal(shape), np.float32)
        parts = quantizer.encode(x, np.random.default_rng(0))
        for name in parts:
            what = f"{quantizer!r}, decode without the part {name!r} (read it with minips.stages.quantizers.base.part)"
            with refusing(what, ValueError):
                fresh.decode({key: array for key, array in parts.items() if key != name})
        changes = [(name, how, array) for name in parts for how, array in damaged_arrays(parts[name])]
        for name, how, array in [*changes, ("unheard of", "added", np.ones(3))]:
            what = f"{quantizer!r}, decode of the shape {shape} with the part {name!r} {how}"
            with failing_only_with(ValueError, what):
                y = fresh.decode({**parts, name: array})
                require(isinstance(y, np.ndarray), f"it returned a {type(y).__name__}, neither array nor error.")


def damaged_arrays(array: Array) -> Iterator[tuple[str, Array]]:
    """Yield the array damaged in its size, its shape, its dtype and its values."""
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
        with suppress(ValueError, OverflowError):  # the size is impossible on a 32-bit machine
            yield f"claiming the shape {shape}", np.empty(shape, array.dtype)
