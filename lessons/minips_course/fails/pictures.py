"""Pictures of walks to a minimum, and of the errors of what arrives."""

from collections.abc import Mapping, Sequence

from matplotlib import pyplot

from minips.lab.plots import LOOKS
from minips.stage import Array
from minips_course.fails.walks import SHOWN, Walk


def draw_walks(walks: Mapping[float, Sequence[Walk]], steps: int = 800, threshold: float = 0.5) -> None:
    """Plot w at each step without a memory and with one, with a panel for each curvature; a band reaches t/λ."""
    _, axes = pyplot.subplots(1, len(walks), figsize=(9, 3.2), layout="constrained", sharey=True)
    for ax, (curvature, pair) in zip(axes, walks.items(), strict=True):
        reach = threshold / curvature
        ax.axhspan(-reach, reach, color="0.85", label="within t/λ")
        for name, walked, look in zip(("no memory", "error feedback"), pair, LOOKS, strict=False):
            ax.plot(walked.path[: steps + 1, SHOWN], color=look.colour, linestyle=look.dash, label=name)
        ax.set(title=f"λ = {curvature:g}", xlabel="step")
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("w")
    axes[0].legend(loc="lower right", fontsize=8)


def draw_errors(sides: Mapping[str, Mapping[str, Array]]) -> None:
    """Plot the error of the arriving gradients of the first problem for each memory, with a panel for each side."""
    _, axes = pyplot.subplots(1, len(sides), figsize=(9, 3), layout="constrained", sharey=True)
    for ax, (title, curves) in zip(axes, sides.items(), strict=True):
        for (name, errors), look in zip(curves.items(), LOOKS, strict=False):
            ax.semilogy(errors[0], color=look.colour, linestyle=look.dash, label=name)
        ax.set(title=title, xlabel="step")
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("relative error of what arrives")
    axes[0].legend()
