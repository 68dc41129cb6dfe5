"""The exercises of "See when a memory fails"."""

from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import asks, case, is_own, refuse_if
from minips.stage import Array
from minips.stages.memories import State
from minips.testing.base import same_bits

QUANTIZERS = (ps.TwoBit(threshold=0.3), ps.TopK(fraction=0.2), ps.Sign(), ps.Uniform(bits=3))


@asks(
    "fails.1",
    "rest = p - sent is what error feedback keeps. np.clip(rest, -limit, limit) is the part that you may keep.",
    "The limit is a field: self.limit. It holds for values below zero, too.",
    'What is given up is the rest minus what you keep. Add it to state.get("lost", 0 * p), in a new array.',
)
def bounded(cls: Any, rng: np.random.Generator) -> str:
    """Bound what error feedback holds of each value, and add up in state["lost"] what is given up."""
    made = isinstance(cls, type) and issubclass(cls, ps.Memory) and "limit" in getattr(cls, "__dataclass_fields__", {})
    refuse_if(not made, f"Expected your class Bounded, with the field limit, got {cls!r}.")
    is_own(cls(), ps.Memory, "Bounded()")
    for quantizer in QUANTIZERS:
        for dtype, near in ((np.float32, 1e-4), (np.float64, 1e-10)):
            limit = float(rng.uniform(0.3, 3))
            scale = float(limit * rng.uniform(0.3, 3))
            with case(f"With {quantizer!r}, limit={limit:.3g} and {np.dtype(dtype)}:"):
                memory = cls(limit=limit)
                tensors = [_Bounded(memory, quantizer, dtype, scale, near) for _ in range(2)]
                for _ in range(40):
                    for tensor in tensors:
                        tensor.send(rng)
    return "No value holds more than the limit, and sent, held and lost add up to what was meant."


class _Bounded:
    """A tensor's gradients, and what its memory should hold and lose."""

    def __init__(self, memory: ps.Memory, quantizer: ps.Quantizer, dtype: Any, scale: float, near: float) -> None:
        self.memory, self.quantizer, self.dtype, self.scale, self.near = memory, quantizer, dtype, scale, scale * near
        self.limit: float = memory.limit  # type: ignore[attr-defined]
        self.state, self.steps = State(), 0
        self.held, self.lost = np.zeros((3, 7)), np.zeros((3, 7))

    def send(self, rng: np.random.Generator) -> None:
        """Send a gradient, and refuse a memory that holds or loses anything else than it should."""
        gradient = np.asarray(self.scale * rng.normal(0.5, 2, size=self.held.shape), self.dtype)
        p = self.memory.compensate(gradient, self.state)
        self.steps += 1
        apart = np.abs(p - (gradient + self.held)).max()
        refuse_if(not apart <= 9 * self.near, f"step {self.steps} does not send the gradient plus what may be held.")
        sent = self.quantizer.decode(self.quantizer.encode(p, rng))
        given = p.copy(), sent.copy()
        _update(self.memory, p, sent, self.state)
        rest = given[0].astype("f8") - given[1]
        self.held = np.clip(rest, -self.limit, self.limit)
        self.lost = self.lost + rest - self.held
        for x in (p, sent):
            x[...] = np.nan  # its owner may use the array for something else
        self._is_held_and_lost()

    def _is_held_and_lost(self) -> None:
        held = self.memory.compensate(np.zeros(self.held.shape, self.dtype), State(self.state))
        most = float(np.abs(held).max())
        refuse_if(not most <= self.limit * 1.0001, f"{most:.3g} of a value is held after step {self.steps}.")
        refuse_if(not np.abs(held - self.held).max() <= 9 * self.near, "it does not hold all that it may hold.")
        refuse_if(held.dtype != self.dtype, f"the dtype of what is held is {held.dtype}.")
        refuse_if("lost" not in self.state, 'there is no state["lost"].')
        lost = np.asarray(self.state["lost"])
        fits = lost.shape == self.lost.shape and np.abs(lost - self.lost).max() <= 99 * self.near
        refuse_if(not fits, f'after step {self.steps}, state["lost"] is not the sum of what was given up.')


@asks(
    "fails.2",
    "compensate returns the difference: x minus what the receiver knows. At first it knows nothing.",
    "update adds what was sent to what is known. Use sent, not p: the receiver has no more than that.",
    "restore does the same with what was received, and returns a copy of what is then known.",
)
def difference(memory: Any, rng: np.random.Generator) -> str:
    """Write differential quantization: send the difference from what the receiver knows."""
    is_own(memory, ps.Memory, "Difference()")
    refuse_if(isinstance(memory, ps.Delta), "It inherits from Delta. Write the three methods yourself.")
    for quantizer in QUANTIZERS:
        with case(f"With {quantizer!r}:"):
            tensors = [_Sent(memory, quantizer, rng) for _ in range(2)]
            for _ in range(30):
                for tensor in tensors:
                    tensor.send(rng)
    return "Sender and receiver know the same, and only differences were sent."


class _Sent:
    """An array that changes a little from step to step, and what both ends should know of it."""

    def __init__(self, memory: ps.Memory, quantizer: ps.Quantizer, rng: np.random.Generator) -> None:
        self.memory, self.quantizer, self.ours, self.theirs = memory, quantizer, State(), State()
        self.known, self.x, self.steps = np.zeros((4, 5)), rng.normal(size=(4, 5)), 0

    def send(self, rng: np.random.Generator) -> None:
        """Send the array, and refuse a memory that sends, knows or restores anything else than it should."""
        self.x, self.steps = self.x + 0.1 * rng.normal(size=self.x.shape), self.steps + 1
        x = self.x.copy()
        p = np.array(self.memory.compensate(x, self.ours))
        refuse_if(not same_bits(x, self.x), "compensate changed the array that it was given.")
        apart = not np.allclose(p, self.x - self.known, rtol=0, atol=1e-9)
        refuse_if(apart, f"step {self.steps} does not send x minus what the receiver knows.")
        sent = self.quantizer.decode(self.quantizer.encode(p, rng))
        self.known = self.known + sent
        received = sent.copy()
        _update(self.memory, p, sent, self.ours)
        held = _copied(self.theirs)
        got: Array = self.memory.restore(received, self.theirs)
        _are_unchanged(held, "restore")
        other = not np.allclose(got, self.known, rtol=0, atol=1e-9)
        refuse_if(other, f"step {self.steps} does not restore the sum of all that was sent.")
        for one in (p, sent, received, got):
            one[...] = np.nan  # their owners may use them for something else


def _update(memory: ps.Memory, p: Array, sent: Array, state: State) -> None:
    """Call update, and refuse it if it changes an array."""
    given, held = (p.copy(), sent.copy()), _copied(state)
    memory.update(p, sent, state)
    refuse_if(not all(map(same_bits, (p, sent), given)), "update changed an array that it was given.")
    _are_unchanged(held, "update")


def _copied(state: State) -> list[tuple[Array, Array]]:
    return [(x, x.copy()) for x in state.values()]


def _are_unchanged(held: list[tuple[Array, Array]], method: str) -> None:
    refuse_if(
        not all(same_bits(*pair) for pair in held), f"{method} changed an array of the state: put a new one there."
    )
