"""Pushes of three values, -s, 0 and s, five to a byte: a quantizer of one's own, to save bytes."""

from dataclasses import dataclass

import numpy as np

import minips as ps

POWERS = np.array([1, 3, 9, 27, 81])


@ps.register
@dataclass(frozen=True)
class Thirds(ps.Quantizer):
    """``s · sign(x)`` where ``|x|`` is above ``share`` of its mean, else 0; s is the mean of the values above."""

    name = "thirds"
    share: float = ps.option(1.0, "of the mean magnitude, below which a value is sent as 0", minimum=0)

    def encode(self, x, rng):
        """Five digits of base 3 to a byte, and the scale."""
        flat, size = x.reshape(-1), np.abs(x).reshape(-1)
        sent = size > self.share * size.mean(dtype=np.float64)
        digits = np.where(sent, np.sign(flat) + 1, 1).astype(np.int64)
        digits = np.concatenate([digits, np.ones(-len(digits) % 5, np.int64)])
        scale = size[sent].mean(dtype=np.float64) if sent.any() else 0.0
        packed = (digits.reshape(-1, 5) * POWERS).sum(axis=1)
        return {
            "p": packed.astype(np.uint8),
            "s": np.array([scale], np.float32),
            "like": np.empty((0, *x.shape), x.dtype),
        }

    def decode(self, parts):
        """The array of -s, 0 and s."""
        like = parts["like"]
        digits = parts["p"].astype(np.int64)[:, np.newaxis] // POWERS % 3 - 1
        count = count_of(like.shape[1:])
        return (digits.reshape(-1)[:count] * parts["s"]).astype(like.dtype).reshape(like.shape[1:])


def count_of(shape):
    """The number of values of an array of this shape."""
    return int(np.prod(shape, dtype=np.int64))


config = ps.Config(
    push=ps.Codec(Thirds(), ps.ErrorFeedback()),
    pull=ps.Codec(ps.Uniform(bits=3), ps.Delta()),
    optimizer=ps.SGD(lr=1.0),
    local=ps.LocalSteps(8, ps.SGD(lr=1.0)),
    steps=800,
)
