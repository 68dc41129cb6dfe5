"""Predict the cost: fit α and β to a transport's times for a few sizes, and predict its time for another size."""

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from minips.lab.charts import PENS, Chart, Drawing, Pen, Scale
from minips.lab.panels.base import Panel
from minips.machines.fit import Line
from minips.stage import Frames, Value, option
from minips.stages.transports import Link, Tcp, Transport

SIZES = (1_000, 10_000, 100_000, 1_000_000)
"""The sizes, in bytes, that the line is fitted to."""
CALLS, ENOUGH_S = 9, 0.4
"""The number of calls of each size. If they take over ``ENOUGH_S`` seconds, fewer are made, but at least three."""


@dataclass(frozen=True)
class Asked(Value):
    """The transport, the link, and the size to predict."""

    transport: Transport = option(Tcp(), "how frames move")
    megabits: float = option(200.0, "bandwidth of the link", minimum=1, maximum=100_000, unit="Mbit/s")
    milliseconds: float = option(1.0, "latency of the link", minimum=0, maximum=200, unit="ms")
    kilobytes: float = option(300.0, "size of the message to predict", minimum=1, maximum=4000, unit="kB")


class Fitted(NamedTuple):
    """The seconds of calls with an empty answer, by size; a line fitted to them; and a held-out size."""

    calls: dict[int, list[float]]
    line: Line
    nbytes: int
    held_out: list[float]

    @property
    def predicted_s(self) -> float:
        """Predicted seconds of a call of the held-out size."""
        return self.line.at(self.nbytes)

    @property
    def measured_s(self) -> float:
        """The median of the measured calls."""
        return float(np.median(self.held_out))

    @property
    def error(self) -> float:
        """The ratio of predicted to measured time, minus one."""
        return self.predicted_s / self.measured_s - 1


class AlphaBeta(Panel[Asked, Fitted]):
    """Shows calls of four sizes over a transport and a link, and predicts, then measures, a fifth size from a slider.

    >>> AlphaBeta(kilobytes=50).form.value().kilobytes
    50.0
    """

    title = "Cost of a call"
    asks = Asked
    labels = {"megabits": "bandwidth", "milliseconds": "latency", "kilobytes": "message size"}

    def __init__(self, **asked: Any) -> None:
        self._measured: dict[tuple[Transport, Link], dict[int, list[float]]] = {}
        super().__init__(**asked)

    def find(self, asked: Asked) -> Fitted:
        link = Link(asked.megabits * 1e6, asked.milliseconds / 1e3)
        known, nbytes = self._measured.setdefault((asked.transport, link), {}), round(1e3 * asked.kilobytes)
        if wanted := [size for size in (*SIZES, nbytes) if size not in known]:
            known |= _measure(asked.transport, link, wanted)
        calls = {size: known[size] for size in SIZES}
        line = Line.fit([(size, seconds) for size, times in calls.items() for seconds in times])
        return Fitted(calls, line, nbytes, known[nbytes])

    def chart(self, found: Fitted, width: float) -> Drawing:
        sizes = np.geomspace(min(SIZES[0], found.nbytes), max(SIZES[-1], found.nbytes), 60)
        line = 1e3 * np.array([found.line.at(size) for size in sizes])
        at, forecast, measured = found.nbytes / 1e3, 1e3 * found.predicted_s, 1e3 * found.measured_s
        calls = [(size / 1e3, 1e3 * seconds) for size, times in found.calls.items() for seconds in times]
        every = [*line, forecast, measured, *(ms for _, ms in calls)]
        x = Scale("size of a message (kB)", sizes[0] / 1.2e3, sizes[-1] / 0.8e3, log=True)
        chart = Chart(width, 300, x, Scale("time of a call (ms)", 0.8 * min(every), 1.25 * max(every), log=True))
        chart.line(sizes / 1e3, line, PENS[0], "the line")
        chart.marks(calls, Pen("dim", "circle"), "measured, for the line", 3)
        chart.marks((at, forecast), PENS[3], "predicted", 8)
        chart.marks((at, measured), PENS[2], "measured afterwards", 5)
        return chart.drawing()

    def words(self, found: Fitted) -> str:
        error = f"of {found.error:+.0%}" if abs(found.error) >= 0.005 else "below 1 %"
        return (
            f"α = {found.line.fixed_s / 2 * 1e3:.3g} ms a message, β = {found.line.each_s * 1e9:.3g} ns a byte. For "
            f"{found.nbytes / 1e3:g} kB the line says {found.predicted_s * 1e3:.3g} ms; measured afterwards: "
            f"{found.measured_s * 1e3:.3g} ms, an error {error}."
        )


def _measure(transport: Transport, link: Link, sizes: list[int]) -> dict[int, list[float]]:
    """Return the seconds of calls of these sizes between two nodes in this process."""
    timed: dict[int, list[float]] = {}
    with (
        link.around(transport).serve(lambda frames: [b""], token="panel") as endpoint,
        link.around(transport).connect(endpoint.address, "panel") as channel,
    ):
        channel.call([b""]).result(10)
        for size in sizes:
            frames: Frames = [bytes(size)]
            began, times = time.monotonic(), list[float]()
            while len(times) < 3 or (len(times) < CALLS and time.monotonic() - began < ENOUGH_S):
                start = time.monotonic()
                channel.call(frames).result(60)
                times.append(time.monotonic() - start)
            timed[size] = times
    return timed
