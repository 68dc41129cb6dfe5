"""The exercises of "Send fewer bits"."""

from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import asks, case, number, refuse_if, unaided
from minips.stage import Tensors
from minips_course.own_server import check_quantizer, decoded, encoded, nbytes

EDGES = (1, 2, 255, 256, 257, 65_535, 65_536, 65_537, 2**24, 2**24 + 1, 2**32)
"""The sizes of a tensor at which its largest index is the last one in 1, 2 or 4 bytes, or nearly so."""


@asks(
    "bits.1",
    "How large can an index be? An index among 256 values fits into one byte, 0 to 255. And one among 257?",
    "The last index is size - 1. What is the largest number in 1 byte, and in 2 bytes? The next size is 4 bytes.",
    "Find the bytes of an index in three cases, by size; then return k times the bytes of one value with its index.",
)
def topk_bytes(function: Any, rng: np.random.Generator) -> str:
    """Write topk_bytes, a function of size and k: the bytes of k float32 values out of size, with their indices."""
    refuse_if(not callable(function), f"Expected the function topk_bytes, got {function!r}.")
    for _ in range(3):
        for low, high in ((2, 257), (257, 65_537), (65_537, 300_000)):
            size, fraction = int(rng.integers(low, high)), float(np.round(rng.choice([rng.uniform(0.001, 1), 1.0]), 3))
            parts = ps.TopK(fraction).encode(np.zeros(size, np.float32), None)
            _takes(function, size, parts["values"].size, nbytes(parts))
    for size in (*EDGES, *map(int, 10 ** rng.uniform(5, 9, 4))):
        for k in {0, 1, int(rng.integers(size + 1)), size}:
            _takes(function, size, k, k * (4 + np.min_scalar_type(size - 1).itemsize))
    return "It agrees with TopK on random sizes, and where an index grows by a byte."


def _takes(function: Any, size: int, k: int, nbytes: int) -> None:
    with case(f"For {k} of {size} values"):
        got = number(unaided(function, size, k))
        refuse_if(got != nbytes, f"it returned {got:.9g}; TopK makes {nbytes} bytes of them.")


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
        workers = [_gradients(rng, dtype) for _ in range(2)]
        workers.append({name: np.asarray(-3 * x, dtype) for name, x in workers[0].items()})
        pushed = [encoded(server, tensors) for tensors in workers]  # they arrive when all have been encoded
        for worker, (tensors, parts) in enumerate(zip(workers, pushed, strict=True)):
            values, magnitudes = sum(x.size for x in tensors.values()), _largest(tensors)
            with case(f"For {len(tensors)} tensors of {np.dtype(dtype)} of worker {worker}, magnitudes {magnitudes}:"):
                sent, limit = nbytes(parts), values + 16 * len(tensors)
                refuse_if(sent > limit, f"{values} values became {sent} bytes; at most {limit} are allowed.")
                back = decoded(server, parts, tensors, rng)
                for name, x in tensors.items():
                    off, allowed = float(np.abs(back[name] - x).max()), float(np.abs(x).max()) / 200
                    refuse_if(not off <= allowed, f"a value of {name!r} is off by {off:.3g}; {allowed:.3g} is allowed.")
    return "It sends a byte for each value and little more, each tensor has its own step, and zeros stay zeros."


def _gradients(rng: np.random.Generator, dtype: Any) -> Tensors:
    """Return tensors of any names and of very different sizes: of either sign, above zero, below it, and one value."""
    shapes = ((int(rng.integers(40, 90)), 7), (int(rng.integers(200, 400)),), (5, 4, int(rng.integers(1, 20))), (1,))
    scales = 10.0 ** np.array([rng.uniform(-8, -6), rng.uniform(6, 8), *rng.uniform(-4, 4, 2)])
    least = rng.permutation([-4.0, 0.5, -0.5, -1.5])  # of values that spread over 2
    names = [f"{letter}{rng.integers(100)}" for letter in rng.permutation([*"Wbcdefgh"])[: len(shapes)]]
    return {
        name: np.asarray(scale * (low + rng.uniform(0, 2, shape)), dtype)
        for name, scale, low, shape in zip(names, rng.permutation(scales), least, shapes, strict=True)
    }


def _largest(tensors: Tensors) -> str:
    return ", ".join(f"{np.abs(x).max():.2g}" for x in tensors.values())
