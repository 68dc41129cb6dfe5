"""Memories of errors, of the receiver's array, and of momentum."""

from dataclasses import dataclass

import numpy as np

from minips.stage import Array, option, register
from minips.stages.memories.base import Memory, State


@register
@dataclass(frozen=True)
class ErrorFeedback(Memory):
    """Add the part that was not sent to the next gradient: ``p = g + decay·e``, send ``C(p)``, keep ``e = p − C(p)``.

    With decay 1, all arrays sent plus the error add up to all gradients, so a contraction such as TopK or a scaled
    Sign loses nothing in the long run; values only arrive later. Source: Karimireddy et al. 2019, "Error Feedback Fixes
    SignSGD", algorithm 2.
    """

    name = "errorfeedback"
    decay: float = option(1.0, "share of the old error that is kept", minimum=0, maximum=1, step=0.05)

    def compensate(self, x: Array, state: State) -> Array:
        return np.asarray(x + self.decay * state["error"]) if "error" in state else x

    def update(self, p: Array, sent: Array, state: State) -> None:
        state["error"] = np.asarray(p - sent)


@register
@dataclass(frozen=True)
class Delta(Memory):
    """Differential quantization: send the difference from the receiver's array: ``d = C(x − x̂)``, ``x̂ ← x̂ + d``.

    Sender and receiver start from zero at each new connection and add the same decoded differences, so their x̂ are
    equal to the bit. If C is a contraction, the next difference corrects an error. Every message must arrive exactly
    once, in the order of sending, so a codec's ``sender()`` numbers its messages. Delta helps if gradients, or
    parameters, change little from step to step. Sources: Richtárik, Sokolov and Fatkhullin 2021, "EF21", algorithm 2;
    for unbiased schemes, Mishchenko et al. 2019, "Distributed Learning with Compressed Gradient Differences" (DIANA).
    """

    name = "delta"

    def compensate(self, x: Array, state: State) -> Array:
        return np.asarray(x - state["known"]) if "known" in state else x

    def update(self, p: Array, sent: Array, state: State) -> None:
        state["known"] = np.asarray(state["known"] + sent) if "known" in state else sent.copy()

    def restore(self, received: Array, state: State) -> Array:
        self.update(received, received, state)
        return state["known"].copy()  # the caller may write into it


@register
@dataclass(frozen=True)
class MomentumCorrection(Memory):
    """Momentum before the sparse quantizer, with error feedback: ``u ← m·u + g``, ``v ← v + u``, send ``C(v)``.

    The sent part is removed: ``v ← v − C(v)``. ``u`` becomes 0 wherever a value was sent, so that old momentum has no
    further effect there. A server cannot see values not yet sent, so use SGD without momentum. Source:
    Lin et al. 2018, "Deep Gradient Compression", section 3 (momentum correction and factor masking).
    """

    name = "momentumcorrection"
    momentum: float = option(0.9, "share of the old velocity that is kept", minimum=0, maximum=1, step=0.05)

    def compensate(self, x: Array, state: State) -> Array:
        u = np.asarray(x + self.momentum * state["velocity"]) if "velocity" in state else x.copy()
        v = np.asarray(u + state["waiting"]) if "waiting" in state else u.copy()
        state["velocity"] = u
        return v

    def update(self, p: Array, sent: Array, state: State) -> None:
        state["waiting"] = np.asarray(p - sent)
        state["velocity"] = np.where(sent != 0, p.dtype.type(0), state["velocity"])
