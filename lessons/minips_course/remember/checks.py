"""The exercises of "Remember what was not sent"."""

import copy
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import asks, case, is_own, refuse_if
from minips.stage import Array
from minips.stages.memories import State
from minips.testing.base import same_bits
from minips_course.own_server import check_memory


@asks(
    "remember.3",
    "Start from the class shown above: give it a new name and an `update` that keeps something, without `stateless`.",
    "`state` is an empty dictionary at first, so `compensate` returns x if nothing is held yet.",
    "Which array plus C(p) gives p? That one goes into `state`, and `compensate` adds it to the next x. Do not look "
    "for zeros: a sign is never zero, and yet it sends only a part of a value.",
)
def own_stage(memory: Any, rng: np.random.Generator) -> str:
    """Write a memory: error feedback as a stage of your own, around any quantizer."""
    is_own(memory, ps.Memory, "Mine()")
    refuse_if(
        isinstance(memory, ps.ErrorFeedback), "It inherits from ErrorFeedback. Write compensate and update yourself."
    )
    refuse_if(memory.stateless, "It says that it is stateless, so a codec never calls it.")
    quantizers: list[ps.Quantizer | None] = [
        ps.TopK(fraction=0.1),
        ps.Sign(),
        ps.Uniform(bits=int(rng.integers(2, 5))),
        ps.TwoBit(threshold=float(rng.uniform(0.1, 0.5))),
        ps.Float16(),
        ps.QSGD(),
        None,
    ]
    for quantizer in quantizers:
        for dtype, near in ((np.float32, 1e-4), (np.float64, 1e-10)):
            shape, count = (int(rng.integers(1, 6)), int(rng.integers(1, 9))), int(rng.integers(30, 70))
            tensors = [_Tensor(memory, quantizer, shape, dtype, 10 ** (power + rng.random())) for power in (-6, 3)]
            which = quantizer or "a quantizer that brings any part of a value, too much of it, or nothing"
            with case(f"With {which!r}, {count} gradients of {np.dtype(dtype)} of each of two tensors:"):
                for _ in range(count):
                    for tensor in tensors:
                        tensor.send(rng)
                for tensor in tensors:
                    tensor.is_whole(near)
    return "Whatever a quantizer sends, what was sent plus what is held equals the sum of the gradients."


class _Tensor:
    """A tensor's gradients, what arrived of them, and the state of its memory."""

    def __init__(
        self, memory: ps.Memory, quantizer: ps.Quantizer | None, shape: tuple[int, ...], dtype: Any, scale: float
    ) -> None:
        self.memory, self.quantizer, self.dtype, self.scale = memory, quantizer, dtype, scale
        self.meant, self.arrived, self.state, self.sizes = np.zeros(shape), np.zeros(shape), State(), list[int]()

    def send(self, rng: np.random.Generator) -> None:
        """Send what the quantizer makes of a gradient, or a random part of it if there is no quantizer."""
        gradient = np.asarray(self.scale * rng.normal(size=self.meant.shape), self.dtype)
        copied = copy.deepcopy(self.state)  # a push that fails is made again from its state
        self.memory.update(self.memory.compensate(-gradient, copied), gradient.copy(), copied)
        self.meant += gradient
        before = gradient.copy()
        p = self.memory.compensate(gradient, self.state)
        sent = self.quantizer.decode(self.quantizer.encode(p, rng)) if self.quantizer else _any_part(p, rng)
        self.arrived += sent
        given = p.copy(), sent.copy()
        self.memory.update(p, sent, self.state)
        refuse_if(not same_bits(gradient, before), "the gradient was changed.")
        refuse_if(not all(map(same_bits, (p, sent), given)), "update changed an array that it was given.")
        for x in (p, sent):
            x[...] = np.nan  # its owner may use the array for something else
        self.sizes.append(sum(np.asarray(x).nbytes for x in self.state.values()))

    def is_whole(self, near: float) -> None:
        """Refuse the memory unless what it holds at the end is what did not arrive; a zero gradient shows it."""
        held = self.memory.compensate(np.zeros(self.meant.shape, self.dtype), self.state)
        off = float(np.abs(self.arrived + held - self.meant).max())
        refuse_if(not off <= self.scale * near, f"arrived plus held differs from meant by up to {off:.2g}.")
        refuse_if(held.dtype != self.dtype, f"the dtype of what is held is {held.dtype}, not {np.dtype(self.dtype)}.")
        grown = (
            f"the state had {self.sizes[1]} bytes after two gradients, and {self.sizes[-1]} after all. It may not grow."
        )
        refuse_if(self.sizes[-1] > self.sizes[1], grown)


def _any_part(p: Array, rng: np.random.Generator) -> Array:
    shares = rng.choice([0, 1, 1 - 1e-6, rng.uniform(-1, 2)], p.shape)
    return np.asarray(p * shares, p.dtype)


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
