"""Predict the cost: fit α and β to a transport's times for a few sizes, and predict its time for another size."""

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import ipywidgets
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from minips.lab.controls import labelled_html
from minips.lab.panels.base import Panel
from minips.lab.plots import LOOKS, MEASURED, PREDICTED
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

    >>> AlphaBeta(kilobytes=50).slider.value
    50.0
    """

    title = "Cost"
    asks = Asked
    heights = (3.6, 3.6)

    def __init__(self, **asked: Any) -> None:
        self._known: dict[tuple[Transport, Link], dict[int, list[float]]] = {}
        super().__init__(**asked)
        field = self.controls["kilobytes"]
        self.slider: Any = ipywidgets.FloatLogSlider(
            value=field.number,
            min=0,
            max=np.log10(Asked.__dataclass_fields__["kilobytes"].metadata["maximum"]),
            step=0.02,
            readout_format=".0f",
            continuous_update=False,
            description=labelled_html(self.title, "slider for the size (kB)"),
            description_allow_html=True,
            style={"description_width": "196px"},
            layout={"width": "min(100%, 560px)"},
        )
        ipywidgets.dlink(
            (self.slider, "value"),
            (field, "value"),
            lambda value: field.value if not field.wrong and field.number == value else float(f"{value:.3g}"),
        )
        ipywidgets.dlink(
            (field, "value"), (self.slider, "value"), lambda typed: self.slider.value if field.wrong else field.number
        )
        title, controls, *rest = self.panel.children
        self.panel.children = (title, controls, self.slider, *rest)

    def find(self, asked: Asked) -> Fitted:
        link = Link(asked.megabits * 1e6, asked.milliseconds / 1e3)
        known, nbytes = self._known.setdefault((asked.transport, link), {}), round(1e3 * asked.kilobytes)
        if wanted := [size for size in (*SIZES, nbytes) if size not in known]:
            known |= _measure(asked.transport, link, wanted)
        calls = {size: known[size] for size in SIZES}
        line = Line.fit([(size, seconds) for size, times in calls.items() for seconds in times])
        return Fitted(calls, line, nbytes, known[nbytes])

    def draw(self, found: Fitted, figure: Figure) -> None:
        ax = figure.add_subplot()
        sizes = np.geomspace(min(SIZES[0], found.nbytes), max(SIZES[-1], found.nbytes), 60)
        ax.plot(sizes / 1e3, [1e3 * found.line.at(size) for size in sizes], color=LOOKS[0].colour, label="the line")
        for i, (size, times) in enumerate(found.calls.items()):
            label = "" if i else "measured, for the line"
            x, y = [size / 1e3] * len(times), [1e3 * s for s in times]
            ax.plot(x, y, LOOKS[0].marker, color=LOOKS[5].colour, alpha=0.6, label=label)
        at, forecast, measured = found.nbytes / 1e3, 1e3 * found.predicted_s, 1e3 * found.measured_s
        style: dict[str, Any] = {"color": PREDICTED.colour, "markersize": 9, "fillstyle": "none"}
        ax.plot(at, forecast, PREDICTED.marker, label="predicted", **style)
        ax.plot(at, measured, MEASURED.marker, color=MEASURED.colour, label="measured afterwards")
        ax.set(xscale="log", yscale="log", xlabel="size of a message (kB)", ylabel="time of a call (ms)")
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter("{x:g}")
            axis.set_minor_formatter(NullFormatter())
        ax.grid(alpha=0.3)
        ax.legend(loc="upper left")

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
