"""The exercises of "Remember what was not sent"."""

from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import asks, case, is_own, refuse_if
from minips.stage import Array
from minips.stages.memories import State
from minips.testing.base import same_bits
from minips_course.own_server import check_memory


@asks(
    "remember.1",
    "Measure `lost` with a quantizer that sends no zeros, such as ps.Sign(), and then look at the last line of Saver.",
    "`sent == 0` assumes that every value that is not zero has arrived whole. Which quantizers send only part of a "
    "value?",
    "You need not distinguish any cases, so np.where can go. Which part of C(p) + e′ = p must the memory keep?",
)
def mended(memory: Any, rng: np.random.Generator) -> str:
    """Find a quantizer with which Saver loses a part of the gradients, and mend the memory."""
    is_own(memory, ps.Memory, "Mended()")
    quantizers = [
        ps.TopK(fraction=0.1),
        ps.Sign(),
        ps.Uniform(bits=int(rng.integers(2, 5))),
        ps.TwoBit(threshold=float(rng.uniform(0.1, 0.5))),
        ps.Float16(),
    ]
    for quantizer in quantizers:
        for dtype, near in ((np.float32, 1e-4), (np.float64, 1e-10)):
            gradients = [np.asarray(rng.normal(size=(5, 4)), dtype) for _ in range(int(rng.integers(5, 20)))]
            with case(f"With {quantizer!r}, {len(gradients)} gradients of {np.dtype(dtype)}:"):
                arrived, held = _all_of(memory, quantizer, gradients)
                meant = np.sum(gradients, axis=0, dtype=float)
                off = float(np.abs(arrived + held - meant).max())
                refuse_if(not off <= near, f"arrived plus held differs from meant by up to {off:.2g}.")
                refuse_if(held.dtype != dtype, f"the dtype of what is held is {held.dtype}, not {np.dtype(dtype)}.")
    return "With all five quantizers, what was sent plus what is held equals the sum of the gradients."


def _all_of(memory: ps.Memory, quantizer: ps.Quantizer, gradients: list[Array]) -> tuple[Array, Array]:
    """Return two arrays: the sum of what arrived, and the memory's final content, found from a zero gradient."""
    state: State = {}
    arrived = np.zeros(gradients[0].shape)
    for gradient in gradients:
        before = gradient.copy()
        p = memory.compensate(gradient, state)
        sent = quantizer.decode(quantizer.encode(p, None))
        arrived += sent
        memory.update(p, sent, state)
        refuse_if(not same_bits(gradient, before), "the gradient was changed.")
    return arrived, memory.compensate(np.zeros_like(gradients[0]), state)


@asks(
    "remember.2",
    "compensate returns what to send: for each name, the gradient plus what the memory holds under that name.",
    "memory is {} before the first step: memory.get(name, 0) is 0 if nothing is held yet.",
    "remember returns a new dictionary: for each name, the compensated array minus the array that was sent.",
)
def own_memory(server: Any, rng: np.random.Generator) -> str:
    """Give your server a memory: compensate and remember."""
    lacks = not isinstance(server, type) or not hasattr(server, "compensate") or not hasattr(server, "remember")
    refuse_if(lacks, f"Expected your class Server with compensate and remember, got {server!r}.")
    check_memory(server, rng)
    gradient = {"w": rng.normal(size=5).astype("f4")}
    with case("If the signs of a float32 gradient are sent:"):
        sent = {"w": np.sign(gradient["w"])}
        again = server.compensate(gradient, server.remember(server.compensate(gradient, {}), sent))["w"]
        near = np.allclose(again, 2 * gradient["w"] - sent["w"], atol=1e-6)
        refuse_if(not near, "the next step does not add the gradient minus its signs.")
        refuse_if(again.dtype != np.float32, f"compensate returns {again.dtype}.")
    return "At each step and for each tensor, what was sent plus what is remembered equals the sum of all gradients."
