"""The exercises of "Send fewer bits"."""

from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import asks, case, number, refuse_if
from minips.stage import Tensors
from minips.stages.quantizers import Parts
from minips_course.own_server import check_quantizer


@asks(
    "bits.1",
    "How large can an index be? An index among 256 values fits into one byte, 0 to 255. And one among 257?",
    "The last index is size - 1. What is the largest number in 1 byte, and in 2 bytes? The next size is 4 bytes.",
    "Find the bytes of an index in three cases, by size; then return k times the bytes of one value with its index.",
)
def topk_bytes(function: Any, rng: np.random.Generator) -> str:
    """Write topk_bytes, a function of size and k: the bytes of k float32 values out of size, with their indices."""
    refuse_if(not callable(function), f"Expected the function topk_bytes, got {function!r}.")
    drawn = [
        int(size) for low, high in ((2, 257), (257, 65_537), (65_537, 300_000)) for size in rng.integers(low, high, 3)
    ]
    for size in [*drawn, 1, 256, 257, 65_536, 65_537]:
        fraction = float(np.round(rng.uniform(0.001, 1), 3))
        parts = ps.TopK(fraction).encode(np.zeros(size, np.float32), None)
        k, wanted = parts["values"].size, _nbytes(parts)
        with case(f"For {k} of {size} values"):
            got = number(function(size, k))
            refuse_if(got != wanted, f"it returned {got:.9g}; TopK({fraction:g}) makes {wanted} bytes.")
    return "It agrees with TopK on random sizes, and where an index grows by a byte."


@asks(
    "bits.2",
    "An int8 holds −128 to 127. How long must a step be, so that the largest magnitude is 127 steps?",
    "encode makes two parts of each tensor: the codes, as int8, and the step. Give them two names, "
    "made from the tensor's.",
    "decode multiplies codes and step, and uses the dtype of like[name]. In a tensor of zeros the step would be 0: "
    "use a tiny step instead.",
)
def byte_for_each(server: Any, rng: np.random.Generator) -> str:
    """Send one byte for each value, and one step size for each tensor."""
    refuse_if(not isinstance(server, type), f"Expected your class Server, got {server!r}.")
    for method in ("encode", "decode"):
        refuse_if(not callable(getattr(server, method, None)), f"{server.__name__} has no method {method}.")
    check_quantizer(server, rng)
    for dtype in (np.float32, np.float64):
        scales = 10.0 ** rng.uniform(-4, 4, 3)
        shapes = ((int(rng.integers(40, 90)), 7), (int(rng.integers(200, 400)),), (5, 4, int(rng.integers(9, 20))))
        tensors: Tensors = {
            name: np.asarray(scale * rng.normal(size=shape), dtype)
            for name, scale, shape in zip(("U", "W", "b"), scales, shapes, strict=True)
        }
        with case(f"For {len(tensors)} tensors of {np.dtype(dtype)}, largest magnitudes {_largest(tensors)}:"):
            parts = server.encode(tensors)
            values, sent = sum(x.size for x in tensors.values()), _nbytes(parts)
            limit = values + 16 * len(tensors)
            refuse_if(sent > limit, f"{values} values became {sent} bytes; at most {limit} are allowed.")
            back = server.decode(parts, tensors)
            for name, x in tensors.items():
                same = (back[name].dtype, back[name].shape) == (x.dtype, x.shape)
                refuse_if(not same, f"{name!r} came back as {back[name].dtype}{list(back[name].shape)}.")
                off, allowed = float(np.abs(back[name] - x).max()), float(np.abs(x).max()) / 200
                refuse_if(not off <= allowed, f"a value of {name!r} is off by {off:.3g}; {allowed:.3g} is allowed.")
    return "It sends a byte for each value and little more, each tensor has its own step, and zeros stay zeros."


def _largest(tensors: Tensors) -> str:
    return ", ".join(f"{np.abs(x).max():.2g}" for x in tensors.values())


def _nbytes(parts: Parts) -> int:
    return sum(np.asarray(array).nbytes for array in parts.values())
