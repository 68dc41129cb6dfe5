"""Pictures of the bits of floats, compressed sizes, and the bandwidths below which compressors pay."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes
from numpy.typing import NDArray

from minips.lab.plots import LOOKS, SHADES, legend_above
from minips.results.run import Run

Floats = NDArray[np.float64]
OF_A_FLOAT = ("byte 0\n(mantissa)", "byte 1\n(mantissa)", "byte 2\n(mostly\nmantissa)", "byte 3\n(sign, exponent)")
"""Labels for the four bytes of a float32, from the lowest to the highest."""


def draw_bits(values: NDArray[np.float32]) -> None:
    """Draw each value as a row of 32 bits, the highest bit first, filled for 1."""
    bits = np.unpackbits(values.byteswap().view(np.uint8)).reshape(len(values), 32)
    _, ax = pyplot.subplots(figsize=(7.2, 4), layout="constrained")
    ax.imshow(bits, cmap="gray_r", aspect="auto", interpolation="nearest")
    for middle, name in ((0, "sign"), (4.5, "exponent"), (20, "mantissa")):
        ax.text(middle, -1.5, name, ha="center", color=LOOKS[1].colour)
    for edge in (0.5, 8.5):
        ax.axvline(edge, color=LOOKS[1].colour, linewidth=2)
    ax.set(xlabel="bit (0 is the sign)", ylabel="value")
    pyplot.show()


def draw_entropies(bits: Sequence[float]) -> None:
    """Draw a bar for the entropy of each byte of a float32, at most 8 bits."""
    _, ax = pyplot.subplots(figsize=(6.4, 2.8), layout="constrained")
    ax.bar_label(ax.bar(OF_A_FLOAT, bits, color=LOOKS[0].colour), fmt="%.2f", padding=2)
    ax.axhline(8, color="black", linewidth=1)
    ax.set(ylabel="entropy (bits per byte)", ylim=(0, 9))
    pyplot.show()


def draw_sizes(left: Mapping[str, Mapping[str, float]]) -> None:
    """Draw the share of the bytes that remains, with a row for each kind of bytes and a column for each compressor."""
    _, ax = pyplot.subplots(figsize=(7.2, 3), layout="constrained")
    shares = np.array([[*row.values()] for row in left.values()])
    _table(ax, shares, [f"{share:.2f}" for share in shares.flat], [*left], [*next(iter(left.values()))])
    ax.set_title("share of the bytes that is left")
    pyplot.show()


def draw_arrivals(size: int, left: Mapping[str, float], seconds: Mapping[str, Floats]) -> None:
    """Plot the time until ``size`` bytes have arrived against the bandwidth; 1 is the time without a compressor."""
    bandwidths = np.geomspace(1, 1e5, 61)  # Mbit/s
    _, ax = pyplot.subplots(figsize=(6.4, 3.4), layout="constrained")
    ax.axhline(1, color="black", linewidth=2)
    for look, (name, spent) in zip(LOOKS, seconds.items(), strict=False):
        share = left[name] + np.median(spent) * 1e6 * bandwidths / (8 * size)
        ax.semilogx(bandwidths, share, label=name, markevery=6, **look.line)
    ax.set(title="8-bit codes", xlabel="bandwidth (Mbit/s), logarithmic", ylabel="time (1 = without)", ylim=(0.8, 1.6))
    ax.grid(alpha=0.3)
    ax.legend(loc="upper left")
    pyplot.show()


def draw_break_evens(even: Mapping[tuple[str, str], Floats], speed: Mapping[tuple[str, str], float]) -> None:
    """Draw, for each kind of bytes and compressor, its speed in MB/s (left), and the bandwidth in Mbit/s below which it
    pays (right): the median with both quartiles, or no mark if it never pays.
    """
    kinds, names = ([*dict.fromkeys(key[i] for key in even)] for i in (0, 1))
    _, (table, ax) = pyplot.subplots(1, 2, figsize=(9.8, 3.6), layout="constrained", sharey=True)
    speeds = np.array([[speed[kind, name] for name in names] for kind in kinds])
    _table(table, np.log(speeds), [f"{one:.2g}" if one < 10 else f"{one:.0f}" for one in speeds.flat], kinds, names)
    table.set_title("compress and decompress (MB/s)")
    for number, (look, name) in enumerate(zip(LOOKS, names, strict=False)):
        for row, kind in enumerate(kinds):
            low, middle, high = even[kind, name]
            if middle:
                y, spread = row + 0.16 * (number - (len(names) - 1) / 2), [[middle - low], [high - middle]]
                ax.errorbar(middle, y, xerr=spread, color=look.colour, marker=look.marker, capsize=3)
        ax.plot([], [], color=look.colour, marker=look.marker, linestyle="", label=name)
    ax.set(xlabel="pays below this bandwidth (Mbit/s), logarithmic", xscale="log", xlim=(1, 1e5))
    ax.grid(alpha=0.3)
    legend_above(ax, len(names), columnspacing=0.8, handletextpad=0.2)
    pyplot.show()


def draw_steps(runs: Mapping[tuple[str, str], Run], times: Mapping[tuple[str, str], Floats]) -> None:
    """Draw each run's bytes in both directions (left), and the median time of its steps with quartiles (right)."""
    quartiles = np.array([np.percentile(times[which], [25, 50, 75]) for which in runs]).T
    _, (left, right) = pyplot.subplots(1, 2, figsize=(9, 2.8), layout="constrained", sharey=True)
    labels = [f"{name}, {compressor}" for name, compressor in runs]
    sent, got = (
        np.array([getattr(run, way) / 1e6 for run in runs.values()]) for way in ("bytes_sent", "bytes_received")
    )
    left.barh(labels, sent, label="sent by the workers", **LOOKS[0].area)
    left.barh(labels, got, left=sent, label="received by them", **LOOKS[1].area)
    left.set(xlabel="bytes of the run (MB)")
    right.barh(labels, quartiles[1], xerr=np.abs(quartiles[[0, 2]] - quartiles[1]), capsize=4, **LOOKS[2].area)
    right.set(xlabel="time of a step (s): median, quartiles")
    left.invert_yaxis()
    legend_above(left, 2)
    pyplot.show()


def _table(ax: Axes, shade: Floats, texts: Sequence[str], rows: Sequence[str], columns: Sequence[str]) -> None:
    """Draw a table of texts whose cells are bluer where ``shade`` is larger."""
    ax.imshow(shade, cmap=SHADES, aspect="auto", vmin=0 if shade.min() >= 0 else None)
    for text, place in zip(texts, np.ndindex(shade.shape), strict=True):
        ax.text(place[1], place[0], text, ha="center", va="center")
    ax.set_xticks(range(len(columns)), columns)
    ax.set_yticks(range(len(rows)), rows)
