"""Explore a codec: values, bytes and errors of real gradients after a quantizer and a memory."""

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from minips import datasets
from minips.core.codec import Codec
from minips.core.reduction import pack
from minips.lab.panels.base import Panel, side_by_side
from minips.lab.plots import LOOKS, legend_above
from minips.problems import MLP
from minips.results.trace import Trace
from minips.stage import Array, Tensors, Value, option
from minips.stages.memories import Memory, NoMemory, State
from minips.stages.quantizers import Quantizer, Uniform, contractive
from minips.stages.serializers import Packet
from minips.stages.transports.framing import stream_nbytes

STEPS, BINS = 100, 41


@dataclass(frozen=True)
class Sent(Value):
    """The gradient, and the codec that sends it."""

    quantizer: Quantizer = option(Uniform(bits=4), "fewer bits for each value")
    memory: Memory = option(NoMemory(), "the state kept from step to step")
    tensor: str = option("U", "the tensor whose gradient is sent", choices=("U", "a", "W", "b"))
    steps: int = option(20, "steps sent, one after another", minimum=1, maximum=STEPS, step=1)


class Arrived(NamedTuple):
    """The gradient of the last step before and after it was sent, and the errors."""

    meant: Array
    """The gradient, flat."""
    arrived: Array
    """The gradient that the receiver has, flat."""
    nbytes: int
    """Bytes of the last step's parts."""
    streamed: int
    """Bytes of a message with only these parts, in a TCP stream."""
    error: float
    """``|arrived − meant|₂ / |meant|₂`` of the last step."""
    summed: float
    """The same error for the sums over all steps."""
    asked: Sent


class CodecExplorer(Panel[Sent, Arrived]):
    """Sends gradients of an MLP on digits through a codec: shows histograms before and after, bytes and errors.

    >>> CodecExplorer().find(Sent(quantizer="float16", tensor="b")).nbytes
    20
    """

    title = "Codec"
    asks = Sent
    heights = (3.6, 6.2)

    def find(self, asked: Sent) -> Arrived:
        quantizer, memory, rng = asked.quantizer, asked.memory, np.random.default_rng(0)
        ours: State = {}
        theirs: State = {}
        gradients = [step[asked.tensor] for step in training()[: asked.steps]]
        total = np.zeros_like(gradients[0])
        for g in gradients:
            p = memory.compensate(g, ours)
            parts = quantizer.encode(p if memory.stateless else contractive(quantizer, p), rng)
            sent = quantizer.decode(parts)
            memory.update(p, sent, ours)
            arrived = memory.restore(sent, theirs)
            total += arrived
        frames = pack(Packet({}, {asked.tensor: (quantizer.name, parts)}), Codec(quantizer), Trace())
        return Arrived(
            g.reshape(-1),
            arrived.reshape(-1),
            sum(part.nbytes for part in parts.values()),
            stream_nbytes([len(frame) for frame in frames]),
            relative(arrived, g),
            relative(total, np.sum(gradients, axis=0)),
            asked,
        )

    def draw(self, found: Arrived, figure: Figure) -> None:
        left, right = side_by_side(figure)
        reach = 1.05 * max(float(np.abs(both).max()) for both in (found.meant, found.arrived)) or 1.0
        bins = np.linspace(-reach, reach, BINS)
        before, after = LOOKS[5], LOOKS[1]
        left.hist(found.meant, bins, color=before.colour, label="meant")
        counts, _ = np.histogram(found.arrived, bins)
        middles, some = (bins[1:] + bins[:-1]) / 2, counts > 0  # with few levels, most bins stay empty
        left.vlines(middles[some], 0.7, counts[some], color=after.colour, lw=1.2)
        left.plot(middles[some], counts[some], after.marker, color=after.colour, ms=3.5, label="arrived")
        left.set_yscale("log")
        left.yaxis.set_major_formatter("{x:g}")
        left.yaxis.set_minor_formatter(NullFormatter())
        left.set(xlabel="gradient", ylabel="values in a bin", ylim=(0.7, None))
        legend_above(left, 2)
        right.axline((0, 0), slope=1, color="dimgrey", lw=0.8, label="nothing lost")
        right.plot(found.meant, found.arrived, after.marker, color=after.colour, ms=2.5, alpha=0.6, label="a value")
        right.set(xlabel="gradient meant", ylabel="gradient arrived", xlim=(-reach, reach), ylim=(-reach, reach))
        legend_above(right, 2)

    def words(self, found: Arrived) -> str:
        asked, size = found.asked, found.meant.size
        steps = f"{asked.steps} steps" if asked.steps > 1 else "1 step"
        return (
            f"{asked.quantizer!r} with {asked.memory!r} on {asked.tensor}: {found.meant.nbytes} bytes become "
            f"{found.nbytes}, {8 * found.nbytes / size:.2f} bits a value; over TCP a message of them takes "
            f"{found.streamed} bytes, {8 * found.streamed / size:.2f} bits a value. "
            f"The last step arrives with a relative error of {found.error:.2f}, "
            f"the sum of {steps} with {found.summed:.2f}."
        )


def relative(arrived: Array, meant: Array) -> float:
    """``|arrived − meant|₂ / |meant|₂``; 0 if both are zero."""
    length = float(np.linalg.norm(meant))
    far = float(np.linalg.norm(arrived - meant))
    return far / length if length else far


@cache
def training() -> list[Tensors]:
    """Return the gradient of each step of one worker's plain descent on the digits. Do not change the arrays."""
    problem, rng, gradients = MLP(*datasets.digits()), np.random.default_rng(0), []
    params = problem.init(rng)
    for _ in range(STEPS):
        gradients.append(problem.gradient(params, rng.choice(problem.rows, 32, replace=False)))
        params = {name: p - np.float32(0.1) * gradients[-1][name] for name, p in params.items()}
    return gradients
