"""The contract of a memory, what a sender or its receiver remembers of one tensor from step to step.

A quantizer is pure; a memory stands around it. The sender's end changes what is quantized and then looks at what came
out; the receiver's end completes what came in. Each end keeps its own ``state``, a dict for each tensor that
starts empty and that the codec carries; the stage itself holds only its fields.

    sender    p = compensate(x, state)      parts = quantizer.encode(contractive(quantizer, p))
              update(p, quantizer.decode(parts), state)
    receiver  x = restore(quantizer.decode(parts), state)

All of them need a quantizer that is a contraction. The unbiased random schemes (QSGD, Ternary) are none where their
variance is large, and would make a memory grow without bound; `contractive` scales what they are given by 1 / (1 + ω),
which makes them one. A codec takes RandomK with ``unbiased=False`` instead, which is the same. `TwoBit` is none either.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from minips.stage import Array, Stage, register

State = dict[str, Array]


class Memory(Stage):
    """The contract. ``state`` gets new arrays, and no writes into old ones. The codec skips ``stateless`` memories."""

    kind: ClassVar[str] = "memory"
    stateless: ClassVar[bool] = False
    of_methods = {"stateless": ("compensate", "update", "restore")}

    @property
    def restores(self) -> bool:
        """True where the receiver remembers, too: it must get every message, once, in the order of sending."""
        return type(self).restore is not Memory.restore

    @abstractmethod
    def compensate(self, x: Array, state: State) -> Array:
        """The array to quantize instead of ``x``; ``x`` is not changed."""

    @abstractmethod
    def update(self, p: Array, sent: Array, state: State) -> None:
        """Look at what was meant (``p``) and at what the receiver will decode (``sent``)."""

    def restore(self, received: Array, state: State) -> Array:
        """The array that the receiver uses instead of the decoded one."""
        return received


@register
@dataclass(frozen=True)
class NoMemory(Memory):
    """Remembers nothing: each array is quantized as it is."""

    name = "none"
    stateless = True

    def compensate(self, x: Array, state: State) -> Array:
        return x

    def update(self, p: Array, sent: Array, state: State) -> None:
        pass
