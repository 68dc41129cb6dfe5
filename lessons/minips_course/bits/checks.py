"""The exercises of "Send fewer bits"."""

from typing import Any

import numpy as np

from minips.lab.course.exercises import asks, case, number, refuse_if
from minips.stage import Array, Tensors
from minips_course.own_server import check_quantizer, decoded, encoded, nbytes


@asks(
    "bits.2",
    "An int8 holds −128 to 127. How long must a step be, so that the largest magnitude is 127 steps?",
    "encode makes two parts of each tensor: the codes, as int8, and the step. Give them two names, "
    "made from the tensor's.",
    "decode multiplies codes and step, and uses the dtype of like[name]. In a tensor of zeros the step would be 0: "
    "use a tiny step instead.",
)
@np.errstate(over="ignore")  # of values that half precision does not hold
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


@asks(
    "bits.3",
    "Give each row of the batch once: np.unique. Then find the number of the server that holds each of these rows.",
    "By modulo, the server's number is the remainder, row % servers. By ranges, compare each row with the first row of "
    "the next server, (server + 1) * rows // servers.",
    "np.bincount counts how often each server's number occurs, and max is the busiest one. With minlength=servers it "
    "also counts for an empty batch.",
)
def busiest(function: Any, rng: np.random.Generator) -> str:
    """Count the rows that the busiest server receives in a push, by ranges and by modulo."""
    refuse_if(not callable(function), f"Expected the function busiest, got {function!r}.")
    for trial in range(40):
        servers = int(rng.integers(1, 9)) if trial > 2 else 4
        rows = int(rng.integers(servers, 400)) if trial % 2 else servers * int(rng.integers(1, 60))
        size = int(rng.integers(1, 3 * rows)) if trial else 0
        low, high = sorted(rng.integers(0, rows, 2).tolist()) if trial % 3 else (0, rows - 1)
        ids = rng.integers(low, high + 1, size)
        for placement in rng.permutation(["ranges", "modulo"]).tolist():
            given = ids.copy()
            with case(f"For {_some(ids)} of {rows} rows, {servers} servers, {placement!r}:"):
                got, wanted = number(function(given, rows, servers, placement)), _most(ids, rows, servers, placement)
                refuse_if(got != wanted, f"it returned {got:g}; the busiest server receives {wanted} rows.")
                refuse_if(not np.array_equal(given, ids), "it changed ids.")
    return "It counts each row once, at the server that holds it, by ranges and by modulo."


def _most(ids: Array, rows: int, servers: int, placement: str) -> int:
    """Count, server by server."""
    once, counts = {*ids.tolist()}, []
    for server in range(servers):
        if placement == "modulo":
            held = range(server, rows, servers)
        else:
            held = range(server * rows // servers, (server + 1) * rows // servers)
        counts.append(len(once & {*held}))
    return max(counts)


def _some(ids: Array) -> str:
    """The row numbers of a batch as text, or the first of them."""
    return f"the rows {ids.tolist()[:12]}{' …' * (len(ids) > 12)}"
