"""Quantizers with a bias, a shorter step, or both, and the start of the exercise.

Their names are free until `registered` is called.
"""

from dataclasses import dataclass

import numpy as np

from minips.stage import Array, option, register
from minips.stages.quantizers import Exact, Ternary
from minips.stages.quantizers.base import Parts, Quantizer, part


@dataclass(frozen=True)
class Shrunk(Quantizer):
    """Every value, multiplied by a share: a shorter step in the same direction."""

    name = "shrunk"
    share: float = option(1 / 3, "the share of the step that is left", above=0)

    def encode(self, x: Array, rng: np.random.Generator | None) -> Parts:
        return {"values": np.asarray(x * x.dtype.type(self.share))}

    def decode(self, parts: Parts) -> Array:
        return part(parts, "values").copy()


@dataclass(frozen=True)
class Nearest(Quantizer):
    """Rounds each value to the nearest of −max, 0 and max: it has a bias, and makes the step shorter."""

    name = "nearest"

    def encode(self, x: Array, rng: np.random.Generator | None) -> Parts:
        step = np.abs(x).max(initial=0) or x.dtype.type(1)  # zeros have no step
        return {"codes": np.asarray(np.rint(x / step), np.int8), "step": np.asarray(step)}

    def decode(self, parts: Parts) -> Array:
        return np.asarray(part(parts, "codes") * part(parts, "step"))


@dataclass(frozen=True)
class Stretched(Nearest):
    """The same, as long along the gradient as the gradient itself: it has the bias alone."""

    name = "stretched"

    def encode(self, x: Array, rng: np.random.Generator | None) -> Parts:
        parts = super().encode(x, rng)
        along = np.vdot(self.decode(parts), x) / (np.vdot(x, x) or 1)  # the share of the step that is left
        return {**parts, "step": np.asarray(parts["step"] / (along or 1), x.dtype)}


@dataclass(frozen=True)
class Whole(Quantizer):
    """Rounds to the nearest step, a byte for each value; ``levels`` steps span the array's largest magnitude."""

    name = "whole"
    levels: int = option(3, "levels above zero, and as many below", minimum=1, maximum=100, step=1)

    def encode(self, x: Array, rng: np.random.Generator | None) -> Parts:
        step = np.abs(x).max(initial=0) / self.levels
        codes = np.asarray(np.rint(x / (step or 1)), np.int8)
        return {"codes": codes, "steps": np.asarray(step, x.dtype)}

    def decode(self, parts: Parts) -> Array:
        return np.asarray(part(parts, "codes") * part(parts, "steps"))


WAYS = {
    "everything": Exact(),
    "shrunk": Shrunk(),
    "nearest": Nearest(),
    "stretched": Stretched(),
    "at random": Ternary(),
}
"""The schemes whose training is compared."""


def registered() -> dict[str, Quantizer]:
    """Register these stages, without which a server cannot decode them, and return the schemes."""
    for stage in (Shrunk, Nearest, Stretched):
        register(stage)
    return WAYS
