"""Bits for each tensor as sliders: the bytes and the error of a push, and what the same bytes in all then read."""

from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

import numpy as np

import minips as ps
from minips.lab.charts import Chart, Drawing, Scale, beside, half
from minips.lab.panels import Panel
from minips.stage import Value, option
from minips_course.spend import tensors

SEEDS, STEPS = 3, 4
"""The runs of each setting, and the steps of signs whose bytes are the budget."""


@dataclass(frozen=True)
class Bits(Value):
    """The bits for each tensor."""

    U: int = option(1, "bits for a value of U; 0: only one value in 1000 is sent", minimum=0, maximum=8, step=1)
    a: int = option(1, "bits for a value of a; 0: only one value in 1000 is sent", minimum=0, maximum=8, step=1)
    W: int = option(1, "bits for a value of W; 0: only one value in 1000 is sent", minimum=0, maximum=8, step=1)
    b: int = option(1, "bits for a value of b; 0: only one value in 1000 is sent", minimum=0, maximum=8, step=1)
    lr: float = option(1.0, "learning rate", minimum=0.1, maximum=3.0, step=0.1)

    def quantizers(self) -> dict[str, ps.Quantizer]:
        """Return the quantizer of each tensor."""
        return {name: quantizer(getattr(self, name)) for name in "UaWb"}


class Spent(NamedTuple):
    """What a setting costs and reads."""

    asked: Bits
    bytes: dict[str, int]
    """Of each tensor, in a push."""
    errors: dict[str, float]
    """Of each tensor, squared, as shares of the squared length of the gradient."""
    steps: int
    accuracy: float
    """Of held-out digits, the mean of the seeds."""


class BitsByTensor(Panel[Bits, Spent]):
    """Draws the bytes and the errors of four tensors, and trains with as many steps as the bytes of four steps of signs
    pay for.

    >>> quantizer(0).name, quantizer(1).name, quantizer(4)
    ('topk', 'sign', Uniform(bits=4, block=0))
    """

    title = "Bits by tensor"
    asks = Bits
    labels = {"U": "bits for U", "a": "bits for a", "W": "bits for W", "b": "bits for b", "lr": "learning rate"}
    repeats = True

    def find(self, asked: Bits) -> Spent:
        chosen = asked.quantizers()
        measured, length = _measured()
        picked = {name: next(one for one in measured[name] if one.quantizer == chosen[name]) for name in chosen}
        signs, problem = _signs(), tensors.digits(0)
        config = tensors.fitting(problem, signs, chosen, tensors.bytes_in(problem, signs, STEPS))
        config = replace(config, optimizer=ps.SGD(lr=asked.lr))
        runs = [
            ps.train(tensors.digits(seed), replace(config, seed=seed), engine=ps.Simulated()) for seed in range(SEEDS)
        ]
        sizes = {name: one.bytes for name, one in picked.items()}
        errors = {name: one.error / length for name, one in picked.items()}
        return Spent(asked, sizes, errors, config.steps, float(np.mean([run.accuracy for run in runs])))

    def chart(self, found: Spent, width: float) -> Drawing:
        names, at = [f"{name}, {getattr(found.asked, name)} bit" for name in found.bytes], np.arange(4.0)
        wide = half(width)
        drawings = []
        for what, values, ink in (
            ("bytes in a push", found.bytes, "a"),
            ("missing share of the gradient", found.errors, "b"),
        ):
            most = max(*values.values(), 0.01)
            chart = Chart(wide, 240, Scale("", -0.5, 3.5, places=names), Scale(what, 0, 1.05 * most))
            chart.areas((at - 0.35, at + 0.35), (0, [*values.values()]), ink)
            drawings.append(chart.drawing())
        return beside(width, *drawings)

    def words(self, found: Spent) -> str:
        return (
            f"{sum(found.bytes.values())} bytes of values in a push, {sum(found.errors.values()):.0%} of the squared "
            f"gradient is missing. The bytes of {STEPS} steps of signs pay for {found.steps} steps, which read "
            f"{found.accuracy:.1%} of the held-out digits at a learning rate of {found.asked.lr:g} ({SEEDS} seeds)."
        )


def quantizer(bits: int) -> ps.Quantizer:
    """Return what sends so many bits for each value; for 0, one value in 1000."""
    return ps.TopK(fraction=0.001) if bits == 0 else ps.Sign() if bits == 1 else ps.Uniform(bits=bits)


def _signs() -> ps.Config:
    return ps.Config(steps=30, transport=ps.InProc(), push=ps.Codec(ps.Sign(), ps.ErrorFeedback()))


@cache
def _measured() -> tuple[dict[str, list[tensors.Way]], float]:
    """Return each tensor's options, and the mean squared length of a gradient."""
    problem = tensors.digits(0)
    found = tensors.options(problem, [quantizer(bits) for bits in range(9)])
    return found, tensors.squared_length(problem)
