"""Pictures of a memory's contents, and of the path of a descent."""

from collections.abc import Mapping

from matplotlib import pyplot
from matplotlib.axes import Axes

from minips.lab.plots import LOOKS
from minips.stage import Array


def _new(width: float, height: float) -> Axes:
    ax = pyplot.subplots(figsize=(width, height), layout="constrained")[1]
    ax.grid(alpha=0.3)
    return ax


def draw_sums(meant: Array, arrived: Array) -> None:
    """Plot, for one value, the running sum of its gradients and the running sum of what arrived."""
    ax = _new(6.4, 3)
    ax.plot(meant.cumsum(), color=LOOKS[0].colour, label="meant so far")
    ax.step(range(len(arrived)), arrived.cumsum(), where="post", color=LOOKS[1].colour, label="arrived so far")
    ax.set(xlabel="step", ylabel="sum of the gradients")
    ax.legend()


def draw_held(held: Mapping[str, Array]) -> None:
    """Plot the length of a memory's content after each step; ``held`` maps each quantizer's name to these lengths."""
    ax = _new(6.4, 3.2)
    for (name, lengths), look in zip(held.items(), LOOKS, strict=False):
        ax.semilogy(lengths, markevery=25, label=name, **look.line)
    ax.set(xlabel="step", ylabel="held (lengths of a gradient)")
    ax.legend(fontsize=8)


def draw_walks(walks: Mapping[str, Array], reach: float, threshold: float) -> None:
    """Plot w at each step for each memory: the whole path, and the part near the minimum with a band of ±``reach``."""
    figure, (whole, close) = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    for (name, path), look in zip(walks.items(), LOOKS, strict=False):
        for ax in (whole, close):
            ax.plot(path, color=look.colour, linestyle=look.dash, label=name)
            ax.set(xlabel="step")
            ax.grid(alpha=0.3)
    close.axhspan(-reach, reach, color="0.85", label="within lr · t of the minimum")
    close.set(ylim=(-2 * threshold, 2 * threshold), ylabel="w, close to the minimum")
    whole.set(ylabel="w")
    close.legend(loc="lower right", fontsize=8)
    figure.align_ylabels()


def draw_paths(paths: Mapping[str, Array]) -> None:
    """Plot the path of two parameters for each memory; the minimum is at zero."""
    ax = _new(5.4, 3.8)
    for (name, path), look in zip(paths.items(), LOOKS, strict=False):
        ax.plot(*path.T, color=look.colour, marker=look.marker, ms=3, lw=0.8, label=name)
    ax.plot(0, 0, "*", color="black", ms=12, label="the minimum")
    ax.set(xlabel="w₀", ylabel="w₁", aspect="equal")
    ax.legend()


def draw_errors(sides: Mapping[str, Mapping[str, Array]]) -> None:
    """Plot the error of the arriving gradients for each memory, with a panel for each key of ``sides``."""
    _, axes = pyplot.subplots(1, len(sides), figsize=(9, 3), layout="constrained", sharey=True)
    for ax, (title, curves) in zip(axes, sides.items(), strict=True):
        for (name, errors), look in zip(curves.items(), LOOKS, strict=False):
            ax.semilogy(errors, color=look.colour, linestyle=look.dash, label=name)
        ax.set(title=title, xlabel="step")
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("relative error of what arrives")
    axes[0].legend()
