"""Squeeze bytes: compares the time that a compressor saves on the wire with the time that it takes."""

import json
import timeit
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from minips import datasets
from minips.lab.charts import Chart, Drawing, Scale, beside, half
from minips.lab.panels.base import Panel
from minips.lab.source import code
from minips.problems import SoftmaxRegression
from minips.stage import Array, Buffer, Value, option
from minips.stages.compressors import Compressor, Lz4
from minips.stages.quantizers import Sign, TopK, Uniform
from minips.stages.serializers import raw

FEATURES, REPEATS = 10_000, 3

LARGEST = TopK(fraction=0.01)
SAMPLES: dict[str, Callable[[Array, np.random.Generator], Array]] = {
    "dense gradient": lambda g, rng: g,
    "1 % of it, zeros between": lambda g, rng: LARGEST.decode(LARGEST.encode(g, rng)),
    "8-bit codes": lambda g, rng: Uniform(bits=8).encode(g, rng)["codes"],
    "4-bit codes": lambda g, rng: Uniform(bits=4).encode(g, rng)["codes"],
    "1-bit signs": lambda g, rng: Sign().encode(g, rng)["bits"],
    "positions of the largest 1 %": lambda g, rng: LARGEST.encode(g, rng)["indices"],
    "JSON text": lambda g, rng: np.frombuffer(json.dumps(g[:1000].tolist()).encode(), np.uint8),
}
"""Maps a name to a function that makes the bytes to send from a gradient."""
WHAT = tuple(SAMPLES)


@dataclass(frozen=True)
class Squeezed(Value):
    """The bytes, the compressor, and the link."""

    what: str = option(WHAT[0], "the bytes to send", choices=WHAT)
    compressor: Compressor = option(Lz4, "the lossless compressor")
    bandwidth: float = option(100.0, "bandwidth of the link", above=0, step=10, unit="Mbit/s")


class Delivery(NamedTuple):
    """The same bytes with and without the compressor. Each time is the shortest of a few, in seconds."""

    asked: Squeezed
    before: int
    after: int
    compress_s: float
    decompress_s: float

    @property
    def plain_s(self) -> float:
        """The seconds on the wire without compression."""
        return self.before * 8e-6 / self.asked.bandwidth

    @property
    def wire_s(self) -> float:
        """The seconds on the wire with compression."""
        return self.after * 8e-6 / self.asked.bandwidth

    @property
    def squeezed_s(self) -> float:
        """The seconds to compress, send and decompress."""
        return self.compress_s + self.wire_s + self.decompress_s

    @property
    def break_even_bps(self) -> float:
        """The bandwidth below which compression pays, in bits per second; 0 if it never does."""
        return max(self.before - self.after, 0) * 8 / (self.compress_s + self.decompress_s)


class CompressorExplorer(Panel[Squeezed, Delivery]):
    """Compresses a gradient on digits, plain or quantized: shows the bytes, and the time until it arrives.

    >>> CompressorExplorer().find(Squeezed(what="1 % of it, zeros between")).after < 10_000
    True
    """

    title = "When compressing pays"
    asks = Squeezed
    labels = {"what": "bytes to send", "bandwidth": "link bandwidth"}
    repeats = True

    def __init__(self, **asked: Any) -> None:
        self._measured: dict[tuple[str, Compressor], tuple[int, float, float]] = {}
        super().__init__(**asked)

    def find(self, asked: Squeezed) -> Delivery:
        key, data = (asked.what, asked.compressor), sample(asked.what)
        if key not in self._measured:  # once for all bandwidths
            self._measured[key] = _measure(asked.compressor, data)
        return Delivery(asked, len(data), *self._measured[key])

    def refresh(self) -> None:
        self._measured.clear()
        super().refresh()

    def chart(self, found: Delivery, width: float) -> Drawing:
        rows = Scale("", 1.5, -0.5, places=("plain", "compressed"))
        before, after = found.before / 1e3, found.after / 1e3
        sizes = Chart(half(width), 126, Scale("size (kB)", 0, 1.3 * max(before, after)), rows)
        for row, size in enumerate((before, after)):
            sizes.areas((0, size), (row - 0.28, row + 0.28), "a")
            sizes.text(size, row, f"{size:.1f}")
        times = Scale("time until it has arrived (ms)", 0, 1.05e3 * max(found.plain_s, found.squeezed_s))
        chart = Chart(half(width), 126, times, rows)
        start = np.zeros(2)
        for ink, thick, label, spent in (
            ("b", 0.28, "compress", [0.0, found.compress_s]),
            ("a", 0.16, "wire", [found.plain_s, found.wire_s]),
            ("c", 0.28, "decompress", [0.0, found.decompress_s]),
        ):
            end = start + 1e3 * np.array(spent)
            chart.areas((start, end), (np.arange(2) - thick, np.arange(2) + thick), ink, label)
            start = end
        return beside(width, sizes.drawing(), chart.drawing())

    def words(self, found: Delivery) -> str:
        made, what = code(found.asked.compressor, package=False), found.asked.what
        size = f"{made}, {what}: {found.before / 1e3:.1f} kB became {found.after / 1e3:.1f} kB"
        share = f"{found.after / found.before:.2f} of it"
        if found.after >= found.before:
            return f"{size}, {share}. Nothing is saved, at any bandwidth."
        bps = found.break_even_bps
        rate = f"{bps / 1e9:.1f} Gbit/s" if bps >= 1e9 else f"{bps / 1e6:.1f} Mbit/s"
        verdict = "it pays" if found.squeezed_s < found.plain_s else "it does not pay"
        return (
            f"{size}, {share}. At {found.asked.bandwidth:g} Mbit/s {verdict}: {1e3 * found.squeezed_s:.2f} ms in place "
            f"of {1e3 * found.plain_s:.2f} ms. It pays below {rate} on this machine."
        )


@cache
def sample(what: str) -> Buffer:
    """Return the named bytes, from a gradient of a softmax regression on the digits with random features."""
    problem = SoftmaxRegression(*datasets.fourier(datasets.digits(), FEATURES))
    rng = np.random.default_rng(0)
    return raw(SAMPLES[what](problem.gradient(problem.init(rng), slice(0, 32))["W"], rng))


def _measure(compressor: Compressor, data: Buffer) -> tuple[int, float, float]:
    """Return the bytes after compression, and the seconds to compress and to decompress."""
    packed = compressor.compress(data)
    back = compressor.decompress(packed, len(data))
    if bytes(back) != bytes(data):
        raise ValueError(f"{compressor!r} changed the data: {len(data)} bytes came back as {len(back)}.")
    compress_s = _best_s(lambda: compressor.compress(data))
    return len(packed), compress_s, _best_s(lambda: compressor.decompress(packed, len(data)))


def _best_s(work: Callable[[], Any]) -> float:
    return max(min(timeit.repeat(work, repeat=REPEATS, number=1)), 1e-9)
