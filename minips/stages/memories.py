"""Memories: what one side of one link remembers about one tensor from step to step.

A quantizer is pure; a memory stands around it. The sender's half changes what is quantized and then looks at what came
out; the receiver's half completes what came in. Each half keeps its own ``state``, a dict per tensor and link that
starts empty and that the codec carries; the stage itself holds only its fields.

    sender    p = compensate(x, state)      parts = quantizer.encode(p)      update(p, quantizer.decode(parts), state)
    receiver  x = restore(quantizer.decode(parts), state)
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from minips.stage import Array, Stage, option, register

State = dict[str, Array]


class Memory(Stage):
    """The contract. ``stateless`` memories are skipped by the codec, and cost nothing."""

    kind: ClassVar[str] = "memory"
    stateless: ClassVar[bool] = False

    @abstractmethod
    def compensate(self, x: Array, state: State) -> Array:
        """What to quantize instead of ``x``; ``x`` is not changed."""

    @abstractmethod
    def update(self, p: Array, sent: Array, state: State) -> None:
        """Look at what was meant (``p``) and at what the receiver will decode (``sent``)."""

    def restore(self, received: Array, state: State) -> Array:
        """What the receiver uses instead of the decoded array."""
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


@register
@dataclass(frozen=True)
class ErrorFeedback(Memory):
    """What was not sent is added to the next gradient: ``p = g + decay·e``, send ``C(p)``, keep ``e = p − C(p)``.

    With decay 1, everything sent plus what is held equals everything meant, so a contraction such as TopK or a scaled
    Sign loses nothing in the long run, it only comes later. Source: Karimireddy et al. 2019, "Error Feedback Fixes
    SignSGD", algorithm 2.
    """

    name = "errorfeedback"
    decay: float = option(1.0, "share of the old error that is kept", minimum=0, maximum=1, step=0.05)

    def compensate(self, x: Array, state: State) -> Array:
        return np.asarray(x + self.decay * state["error"]) if "error" in state else x

    def update(self, p: Array, sent: Array, state: State) -> None:
        state["error"] = np.asarray(p - sent)
