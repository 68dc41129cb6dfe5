"""The contract of a memory: the state that a sender or a receiver keeps for a tensor from step to step.

A quantizer is a pure function; a memory wraps it. The sender's end changes the quantizer's input and then gets its
output. The receiver's end completes the decoded array. For each tensor, each end has its own ``state``, a dict that
starts empty and is kept by the codec. The stage itself holds only its fields.

    sender    p = compensate(x, state)      parts = quantizer.encode(contractive(quantizer, p))
              update(p, quantizer.decode(parts), state)
    receiver  x = restore(quantizer.decode(parts), state)

All memories need a contractive quantizer. The unbiased random schemes (QSGD, Ternary) are not contractions if their
variance is large, and would make a memory grow without bound. `contractive` scales their input by 1 / (1 + ω), which
makes them contractions. A codec sets ``unbiased=False`` for RandomK, to the same effect. `TwoBit` is not a contraction.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from minips.stage import Array, Stage, register

State = dict[str, Array]


class Memory(Stage):
    """The contract. Put new arrays into ``state``; do not change old ones. The codec skips ``stateless`` memories."""

    kind: ClassVar[str] = "memory"
    stateless: ClassVar[bool] = False
    of_methods = {"stateless": ("compensate", "update", "restore")}

    @property
    def restores(self) -> bool:
        """True if the receiver also keeps state. It must then receive every message exactly once, in sending order."""
        return type(self).restore is not Memory.restore

    @abstractmethod
    def compensate(self, x: Array, state: State) -> Array:
        """The array to quantize instead of ``x``; ``x`` is not changed."""

    @abstractmethod
    def update(self, p: Array, sent: Array, state: State) -> None:
        """Update ``state`` from the intended array ``p`` and ``sent``, the array that the receiver will decode."""

    def restore(self, received: Array, state: State) -> Array:
        """The array that the receiver uses instead of ``received``, the decoded array."""
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
