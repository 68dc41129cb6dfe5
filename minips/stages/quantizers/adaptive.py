"""Adaptive: a quantizer chosen for each tensor in each step, to send as few bits as a target error allows."""

from dataclasses import dataclass

import numpy as np

from minips.stage import Array, default_stage, option, register
from minips.stages.quantizers.base import Parts, Quantizer, norm, part
from minips.stages.quantizers.casts import Exact, Float16
from minips.stages.quantizers.integers import Uniform

LADDER = (Uniform(1), Uniform(2), Uniform(4), Uniform(6), Uniform(8), Float16(), Exact())


@register
@dataclass(frozen=True)
class Adaptive(Quantizer):
    """The cheapest rung of a ladder of quantizers whose relative error ``|x − C(x)|₂ / |x|₂`` is at most the target.

    The rungs are tried in order, and the last one is always accepted. The part ``which`` holds the name of the chosen
    rung. Encoding takes the time of all tried rungs together. The idea is from Agarwal et al. 2021, "Adaptive
    Gradient Communication via Critical Learning Regime Identification"; the rule here is the simplest.
    """

    name = "adaptive"
    target_error: float = option(0.01, "the relative error allowed", minimum=0, maximum=1, step=0.01)
    ladder: tuple[Quantizer, ...] = option(LADDER, "quantizers, the cheapest first")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.ladder:
            raise ValueError("Adaptive.ladder needs at least one quantizer.")

    def encode(self, x: Array, rng: np.random.Generator | None) -> Parts:
        length = norm(x)
        part_of = 1 if length < np.finfo(np.float64).max / 4 else x.dtype.type(2.0**512)  # its norm is a double
        allowed = self.target_error * (length if part_of == 1 else norm(x / part_of))
        for rung in self.ladder:
            parts = rung.encode(x, rng)
            if rung is self.ladder[-1]:
                break
            decoded = rung.decode(parts)
            if norm(x - decoded if part_of == 1 else x / part_of - decoded / part_of) <= allowed:
                break
        return {"which": np.frombuffer(rung.name.encode(), np.uint8), **parts}

    def decode(self, parts: Parts) -> Array:
        name = part(parts, "which").tobytes().decode(errors="replace")
        if name == self.name:
            raise ValueError("An adaptive quantizer cannot choose itself.")
        rung: Quantizer = default_stage("quantizer", name)
        return rung.decode({key: array for key, array in parts.items() if key != "which"})

    def error_bound(self, x: Array) -> float | None:
        last = self.ladder[-1].error_bound(x)
        return None if last is None else max(self.target_error and self.target_error * norm(x) * (1 + 1e-5), last)
