"""A quantizer of your own: eight bits per value, and a scale for each row of a tensor.

On the command line: ``minips --load own_quantizer.py train --quantizer rowint8``.
"""

from dataclasses import dataclass

import numpy as np

import minips as ps


@ps.register
@dataclass(frozen=True)
class RowInt8(ps.Quantizer):
    """Rounds each value to a multiple of 1/127 of its row's largest magnitude, so rows of small values keep digits."""

    name = "rowint8"

    def encode(self, x: ps.Array, rng: np.random.Generator | None) -> ps.Parts:
        largest = np.abs(np.atleast_1d(x)).max(axis=-1, keepdims=True, initial=0)
        scale = np.where(largest > 0, largest / 127, 1).astype(x.dtype)
        return {"codes": np.rint(x / scale).astype(np.int8).reshape(x.shape), "scale": scale}

    def decode(self, parts: ps.Parts) -> ps.Array:
        codes, scale = ps.part(parts, "codes"), ps.part(parts, "scale")  # `part` raises ValueError if one is missing
        return np.asarray(codes * scale, scale.dtype).reshape(codes.shape)

    def error_bound(self, x: ps.Array) -> float:
        return float(np.abs(x).max(initial=0)) / 254  # half the distance between two codes


if __name__ == "__main__":
    ps.testing.check(RowInt8())  # the checks that minips' own quantizers pass
    problem = ps.SoftmaxRegression(*ps.datasets.digits())
    for quantizer in ps.Exact(), ps.Uniform(bits=8), RowInt8():
        run = ps.train(problem, ps.Config(workers=2, steps=100, push=ps.Codec(quantizer)), engine="threads")
        print(f"{run.bytes_sent / 1e6:.2f} MB sent, validation loss {run.validation_loss:.4f} with {quantizer}")
