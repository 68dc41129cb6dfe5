"""Memories: what one side of one link remembers about one tensor from step to step.

A quantizer is pure; a memory stands around it. The sender's half changes what is quantized and then looks at what came
out; the receiver's half completes what came in. Each half keeps its own ``state``, a dict per tensor and link that
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

import numpy as np

from minips.stage import Array, Stage, option, register

State = dict[str, Array]


class Memory(Stage):
    """The contract. ``stateless`` memories are skipped by the codec, and cost nothing."""

    kind: ClassVar[str] = "memory"
    stateless: ClassVar[bool] = False

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


@register
@dataclass(frozen=True)
class ErrorFeedback(Memory):
    """Add what was not sent to the next gradient: ``p = g + decay·e``, send ``C(p)``, keep ``e = p − C(p)``.

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


@register
@dataclass(frozen=True)
class Delta(Memory):
    """Differential quantization: send the difference to what the receiver has: ``d = C(x − x̂)``, ``x̂ ← x̂ + d``.

    Sender and receiver start from zero, at each new connection, and add up the same decoded differences, so their x̂
    are equal to the bit, and an error is corrected by the next difference, if C is a contraction. So every message must
    arrive, once, in the order of sending; a codec's ``sender()`` numbers its own. It pays where gradients, or
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
        return state["known"].copy()  # the caller may write into what it gets


@register
@dataclass(frozen=True)
class MomentumCorrection(Memory):
    """Momentum before the sparse quantizer, and error feedback on it: ``u ← m·u + g``, ``v ← v + u``, send ``C(v)``.

    What was sent is taken out: ``v ← v − C(v)``, and ``u ← 0`` where something was sent, so that old momentum does not
    push a value on after it has arrived. Momentum at the server would forget what waits: use SGD without it. Source:
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
