"""Pictures of the bits of floats, compressed sizes, and the bandwidths below which compressors pay."""

from collections.abc import Mapping

import numpy as np
from matplotlib import pyplot
from numpy.typing import NDArray

from minips.lab.plots import LOOKS, SHADES, legend_above
from minips_course import gone
from minips_course.squeeze.timing import Floats, Squeezed

__getattr__ = gone(__name__)

BANDS = {"home": (1e2, 1e3), "data centre": (1e5, 4e5)}
"""What links carry today, in Mbit/s."""


def draw_bits(array: NDArray[np.float32], count: int = 40) -> None:
    """Draw each of the first values as a row of 32 bits, the highest bit first, filled for 1."""
    values = array.reshape(-1)[:count]
    bits = np.unpackbits(values.byteswap().view(np.uint8)).reshape(len(values), 32)
    _, ax = pyplot.subplots(figsize=(7.2, 4), layout="constrained")
    ax.imshow(bits, cmap="gray_r", aspect="auto", interpolation="nearest")
    for middle, name in ((0, "sign"), (4.5, "exponent"), (20, "mantissa")):
        ax.text(middle, -1.5, name, ha="center", color=LOOKS[1].colour)
    for edge in (0.5, 8.5):
        ax.axvline(edge, color=LOOKS[1].colour, linewidth=2)
    ax.set(xlabel="bit (0 is the sign)", ylabel="value")
    pyplot.show()


def draw_sizes(measured: Mapping[tuple[str, str], Squeezed]) -> None:
    """Draw the share of the bytes that remains, with a row for each kind of bytes and a column for each compressor."""
    kinds, names = ([*dict.fromkeys(key[i] for key in measured)] for i in (0, 1))
    shares = np.array([[measured[kind, name].left for name in names] for kind in kinds])
    _, ax = pyplot.subplots(figsize=(7.2, 3), layout="constrained")
    ax.imshow(shares, cmap=SHADES, aspect="auto", vmin=0)
    for (row, column), share in np.ndenumerate(shares):
        ax.text(column, row, f"{share:.2f}", ha="center", va="center")
    ax.set_xticks(range(len(names)), names)
    ax.set_yticks(range(len(kinds)), kinds)
    ax.set_title("share of the bytes that is left")
    pyplot.show()


def draw_break_evens(even: Mapping[tuple[str, str], Floats]) -> None:
    """Draw, for each kind of bytes and compressor, the bandwidth in Mbit/s below which it pays: the median with both
    quartiles, or no mark if it never pays.
    """
    kinds, names = ([*dict.fromkeys(key[i] for key in even)] for i in (0, 1))
    _, ax = pyplot.subplots(figsize=(8, 3.8), layout="constrained")
    for band, (low, high) in BANDS.items():
        ax.axvspan(low, high, color="0.9")
        ax.text((low * high) ** 0.5, len(kinds) - 0.4, band, ha="center", va="top")
    for number, (look, name) in enumerate(zip(LOOKS, names, strict=False)):
        for row, kind in enumerate(kinds):
            low, middle, high = even[kind, name]
            if middle:
                y, spread = row + 0.16 * (number - (len(names) - 1) / 2), [[middle - low], [high - middle]]
                ax.errorbar(middle, y, xerr=spread, color=look.colour, marker=look.marker, capsize=3)
        ax.plot([], [], color=look.colour, marker=look.marker, linestyle="", label=name)
    ax.set_yticks(range(len(kinds)), kinds)
    ax.set(xlabel="pays below this bandwidth (Mbit/s), logarithmic", xscale="log", xlim=(1, 1e6))
    ax.set_ylim(len(kinds) - 0.1, -0.6)
    ax.grid(axis="x", alpha=0.3)
    legend_above(ax, len(names), columnspacing=0.8, handletextpad=0.2)
    pyplot.show()
