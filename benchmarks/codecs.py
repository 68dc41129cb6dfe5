"""``python -m benchmarks codecs``: each quantizer's times, as multiples of a memcpy of the same array.

Also its size, and the steps that training on the digits takes with it, without and with error feedback. Each quantizer
is called directly, so that no message is planned (`minips.core.codec`).
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from timeit import timeit
from typing import Any

import numpy as np
from rich.table import Table

from benchmarks import base
from benchmarks.base import Chart
from minips import datasets
from minips.core.codec import Codec
from minips.core.config import Config
from minips.cost.probe import steps_to
from minips.lab.measure.pairs import lacking
from minips.lab.measure.turns import Spread, Watch
from minips.problems import SoftmaxRegression
from minips.stage import Array, names, stage_class
from minips.stages.memories import ErrorFeedback, Memory, NoMemory
from minips.stages.optimizers import SGD
from minips.stages.quantizers import Quantizer, RandomK

VALUES, ROUNDS = 4_000_000, 7
TARGET, STEPS = 0.9, 300


@dataclass(frozen=True)
class Row:
    """One quantizer: the size of its parts, without headers and padding; its times over a memcpy of the same array; and
    the steps of training on the digits.
    """

    quantizer: str
    bits_per_value: float | None = None
    encode: Spread | None = None
    decode: Spread | None = None
    steps: int | None = None
    steps_with_feedback: int | None = None
    skipped: str = ""

    @property
    def contender(self) -> str:
        """The quantizer, under the name that other tables use."""
        return self.quantizer


def measure(values: int = VALUES, rounds: int = ROUNDS, watch: Watch = lambda text, share: None) -> Iterator[Row]:
    """Every registered quantizer with its defaults, on normal float32 values and on the digits.

    Steps count until ``TARGET`` of the held-out digits are classified correctly; None if ``STEPS`` were not enough:
    softmax regression, two workers, BSP, the same seed for all.
    """
    side = math.isqrt(values)
    x = np.random.default_rng(0).normal(size=(side, values // side)).astype(np.float32)
    known = names("quantizer")
    for i, name in enumerate(known):
        watch(name, i / len(known))
        cls: Any = stage_class("quantizer", name)
        if skipped := lacking(cls.requires, cls.extra):
            yield Row(name, skipped=skipped)
            continue
        quantizer: Quantizer = cls()
        size, encode, decode = _over_memcpy(quantizer, x, rounds)
        steps = steps_to_target(quantizer, NoMemory())
        contraction = replace(quantizer, unbiased=False) if isinstance(quantizer, RandomK) else quantizer
        with_feedback = steps_to_target(contraction, ErrorFeedback())
        yield Row(name, size * 8 / x.size, encode, decode, steps, with_feedback)


def _over_memcpy(quantizer: Quantizer, x: Array, rounds: int) -> tuple[int, Spread, Spread]:
    """Bytes of the parts, and the times to encode and to decode as multiples of copying ``x``."""
    rng, copy = np.random.default_rng(0), np.empty_like(x)
    parts = quantizer.encode(x, rng)
    quantizer.decode(parts)
    turns = [(lambda: np.copyto(copy, x)), (lambda: quantizer.encode(x, rng)), (lambda: quantizer.decode(parts))]
    times = np.array([[timeit(turn, number=1) for turn in turns] for _ in range(rounds)])
    encode, decode = (times[:, 1:] / times[:, :1]).T.tolist()
    return sum(part.nbytes for part in parts.values()), Spread.of(encode), Spread.of(decode)


def steps_to_target(quantizer: Quantizer, memory: Memory) -> int | None:
    """Rounds of BSP until ``TARGET`` of the held-out digits are classified correctly; None after ``STEPS`` in vain."""
    problem = SoftmaxRegression(*datasets.digits())
    config = Config(push=Codec(quantizer, memory), workers=2, steps=STEPS, batch_size=64, optimizer=SGD(lr=0.1))
    return steps_to(problem, config, TARGET, every=1)


def table(rows: Sequence[Row]) -> Table:
    """The rows for the terminal."""
    title = f"times over one memcpy, medians [quartiles]; steps until {TARGET:.0%} of the held-out digits"
    headings = ["bits per value,\nparts alone", "encode", "decode", "steps", "steps with\nerrorfeedback"]

    def cells(row: Row) -> list[str]:
        bits = "skipped" if row.bits_per_value is None else f"{row.bits_per_value:.2f}"
        counts = [f"> {STEPS}" if steps is None else str(steps) for steps in (row.steps, row.steps_with_feedback)]
        times = [base.ratio(spread, quartiles=True) for spread in (row.encode, row.decode)]
        return [row.quantizer, bits, *times, *(["–", "–"] if row.skipped else counts)]

    return base.table(title, headings, rows, cells)


def chart(rows: Sequence[Row]) -> Chart:
    """Times over one memcpy, a series for each direction."""
    encode = {row.quantizer: row.encode for row in rows if row.encode}
    decode = {row.quantizer: row.decode for row in rows if row.decode}
    return Chart({"encode": encode, "decode": decode}, "time over that of one memcpy")
