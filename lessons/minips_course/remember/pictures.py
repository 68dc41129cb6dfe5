"""Pictures of a memory's contents, and of the path of a descent."""

from collections.abc import Mapping

from matplotlib import pyplot
from matplotlib.axes import Axes

from minips.lab.plots import LOOKS
from minips.stage import Array
from minips_course import gone

__getattr__ = gone(__name__)


def _new(width: float, height: float) -> Axes:
    ax = pyplot.subplots(figsize=(width, height), layout="constrained")[1]
    ax.grid(alpha=0.3)
    return ax


def draw_sums(meant: Array, sent: Array) -> None:
    """Plot, for one value, the running sum of its gradients and the running sum of what was sent."""
    ax = _new(6.4, 3)
    ax.plot(meant.cumsum(), color=LOOKS[0].colour, label="meant so far")
    ax.step(range(len(sent)), sent.cumsum(), where="post", color=LOOKS[1].colour, label="sent so far")
    ax.set(xlabel="step", ylabel="sum of the gradients")
    ax.legend()


def draw_held(held: Mapping[str, Array]) -> None:
    """Plot the length of a memory's content after each step; ``held`` maps each quantizer's name to these lengths."""
    ax = _new(6.4, 3.2)
    for (name, lengths), look in zip(held.items(), LOOKS, strict=False):
        ax.semilogy(lengths, markevery=25, label=name, **look.line)
    ax.set(xlabel="step", ylabel="held (longest gradient = 1)")
    ax.legend(fontsize=8)
