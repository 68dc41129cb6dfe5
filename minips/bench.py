"""``minips bench``: what the parts cost on this machine, each beside a reference of the same run.

Machines differ and are shared, so the tables hold ratios: the median over rounds in which every contender runs once.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.table import Table

from minips import datasets
from minips.problems import Problem, SoftmaxRegression
from minips.runtime.codec import Codec, Decoder, Encoder, unpack
from minips.runtime.config import Config
from minips.runtime.message import Message
from minips.runtime.shard import Shard
from minips.runtime.trace import Trace
from minips.runtime.worker import compute
from minips.stage import Array, Tensors, missing, names, stage_class
from minips.stages.aggregators import Contribution
from minips.stages.consistency import BSP
from minips.stages.memories import ErrorFeedback, Memory, NoMemory
from minips.stages.optimizers import SGD
from minips.stages.quantizers import Quantizer

VALUES, ROUNDS = 4_000_000, 7
TARGET, STEPS = 0.9, 300


@dataclass(frozen=True)
class CodecRow:
    """One quantizer: its size, its times over one memcpy of the same array, and how fast digits train with it."""

    quantizer: str
    bits_per_value: float
    encode: float
    decode: float
    steps: int | None
    steps_with_feedback: int | None


def codecs(values: int = VALUES, report: Callable[[CodecRow], None] = lambda row: None) -> list[CodecRow]:
    """Every registered quantizer with its defaults, on normal float32 values and on the digits.

    Steps are those until ``TARGET`` of the held-out digits are classified rightly, None where ``STEPS`` were not
    enough: softmax regression, two workers, BSP, the same seed for all.
    """
    side = math.isqrt(values)
    x = np.random.default_rng(0).normal(size=(side, values // side)).astype(np.float32)
    rows = []
    for name in names("quantizer"):
        cls: Any = stage_class("quantizer", name)
        if missing(cls):
            continue
        quantizer: Quantizer = cls()
        size, encode, decode = _over_memcpy(quantizer, x)
        steps = [steps_to_target(quantizer, memory) for memory in (NoMemory(), ErrorFeedback())]
        rows.append(CodecRow(name, size * 8 / x.size, encode, decode, *steps))
        report(rows[-1])
    return rows


def _over_memcpy(quantizer: Quantizer, x: Array) -> tuple[int, float, float]:
    """Bytes of the parts, and the times to encode and to decode as multiples of copying ``x``."""
    rng, copy = np.random.default_rng(0), np.empty_like(x)
    parts = quantizer.encode(x, rng)
    quantizer.decode(parts)
    ratios = []
    for _ in range(ROUNDS):
        memcpy, encode, decode = (
            seconds(lambda: np.copyto(copy, x)),
            seconds(lambda: quantizer.encode(x, rng)),
            seconds(lambda: quantizer.decode(parts)),
        )
        ratios.append((encode / memcpy, decode / memcpy))
    encode, decode = (statistics.median(column) for column in zip(*ratios, strict=True))
    return sum(part.nbytes for part in parts.values()), encode, decode


def seconds(work: Callable[[], object]) -> float:
    """Wall seconds of one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def steps_to_target(quantizer: Quantizer, memory: Memory) -> int | None:
    """Rounds of BSP until ``TARGET`` of the held-out digits are classified rightly; None where ``STEPS`` were not
    enough.
    """
    problem = SoftmaxRegression(*datasets.digits())
    config = Config(push=Codec(quantizer, memory), workers=2, steps=STEPS, batch_size=64, optimizer=SGD(lr=0.1))
    held_out = problem.held_out()
    assert held_out is not None
    for step, params in enumerate(rounds(problem, config), 1):
        if held_out.accuracy(params) >= TARGET:
            return step
    return None


def rounds(problem: Problem, config: Config) -> Iterator[Tensors]:
    """The parameters after each round of BSP: gradients, codec and shard as in a run, with nothing sent and nobody
    waiting.
    """
    shard = Shard(
        problem.init(np.random.default_rng(config.seed)),
        workers=config.workers,
        aggregator=config.aggregator,
        consistency=BSP(),
        optimizer=config.optimizer,
    )
    parts = [problem.shard(worker, config.workers) for worker in range(config.workers)]
    encoders = [
        Encoder(config.push, np.random.default_rng([config.seed, worker]), Trace()) for worker in range(len(parts))
    ]
    decoders = [Decoder(Trace()) for _ in parts]
    for clock in range(config.steps):
        params = shard.params
        for worker, part in enumerate(parts):
            loss, gradients = compute(part, config, params, worker, clock)
            packet, _ = unpack(encoders[worker].encode(Message({"kind": "push"}, gradients)), config.push, Trace())
            received = decoders[worker].decode(packet).tensors
            shard.push(Contribution(worker, clock, shard.version, received, loss))
        yield shard.params


def table(rows: list[CodecRow]) -> Table:
    """The rows for the terminal."""
    shown = Table(title=f"times over one memcpy; steps until {TARGET:.0%} of the held-out digits", title_justify="left")
    for heading in ("quantizer", "bits per\nvalue", "encode", "decode", "steps", "steps with\nerrorfeedback"):
        shown.add_column(heading, justify="left" if heading == "quantizer" else "right", no_wrap=heading != "quantizer")
    for row in rows:
        counts = [f"> {STEPS}" if steps is None else str(steps) for steps in (row.steps, row.steps_with_feedback)]
        shown.add_row(row.quantizer, f"{row.bits_per_value:.2f}", f"{row.encode:.1f}", f"{row.decode:.1f}", *counts)
    return shown
