"""The contract of a memory: the state that a sender or a receiver keeps for a tensor from step to step.

A quantizer is pure; a memory wraps it. The sender's end changes the quantizer's input and then sees its output; the
receiver's end completes the decoded array. Each end has its own ``state``, a dict for each tensor, which starts empty
and is kept by the codec; the stage itself holds only its fields.

    sender    p = compensate(x, state)      parts = quantizer.encode(contractive(quantizer, p))
              update(p, quantizer.decode(parts), state)
    receiver  x = restore(quantizer.decode(parts), state)

All memories need a contractive quantizer. The unbiased random schemes (QSGD, Ternary) are not contractions where their
variance is large, and would make a memory grow without bound; `contractive` scales their input by 1 / (1 + ω), which
makes them contractions. For RandomK a codec sets ``unbiased=False``, which is the same. `TwoBit` is not one either.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from minips.stage import Array, Stage, register

State = dict[str, Array]


class Memory(Stage):
    """The contract. Put new arrays into ``state``; do not write into old ones. The codec skips ``stateless`` ones."""

    kind: ClassVar[str] = "memory"
    stateless: ClassVar[bool] = False
    of_methods = {"stateless": ("compensate", "update", "restore")}

    @property
    def restores(self) -> bool:
        """True where the receiver keeps state, too: it must get every message, once, in the order of sending."""
        return type(self).restore is not Memory.restore

    @abstractmethod
    def compensate(self, x: Array, state: State) -> Array:
        """The array to quantize instead of ``x``; ``x`` is not changed."""

    @abstractmethod
    def update(self, p: Array, sent: Array, state: State) -> None:
        """Compare the intended array ``p`` with ``sent``, the one that the receiver will decode."""

    def restore(self, received: Array, state: State) -> Array:
        """The array that the receiver uses in place of the decoded one."""
        return received


@register
@dataclass(frozen=True)
class NoMemory(Memory):
    """No memory: each array is quantized as it is."""

    name = "none"
    stateless = True

    def compensate(self, x: Array, state: State) -> Array:
        return x

    def update(self, p: Array, sent: Array, state: State) -> None:
        pass
