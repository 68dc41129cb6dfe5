"""Move frames: measures the time of a call over several transports, from one kilobyte to ten megabytes."""

import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from minips.lab.charts import PENS, Chart, Drawing, Scale
from minips.lab.panels.base import Panel
from minips.lab.source import code
from minips.lab.views import format_bytes
from minips.stage import Buffer, Value, option
from minips.stages.transports import Channel, Tcp, Transport

SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)
"""The bytes of a frame that is sent and returned."""
ENOUGH_S, LEAST_TURNS = 0.15, 3
WAIT_S = 60.0

Rungs = dict[str, list[float]]
"""Maps a measurement's name to the seconds of a call for each of the `SIZES`; the latest measurement is the last."""


@dataclass(frozen=True)
class Climb(Value):
    """The transport, and the number of simultaneous calls."""

    transport: Transport = option(Tcp(), "how frames move")
    at_once: int = option(1, "simultaneous calls", minimum=1, maximum=64, step=1)


class TransportLadder(Panel[Climb, Rungs]):
    """Sends a frame over any transport and back; the other end is another process, except for inproc.

    The picture keeps at most the last six measurements.

    >>> TransportLadder(at_once=8).form.value().at_once
    8
    """

    title = "Calls over a transport"
    asks = Climb
    labels = {"at_once": "calls at once"}
    instant = False

    def find(self, asked: Climb) -> Rungs:
        name = code(asked.transport, package=False) + (f", {asked.at_once} at once" if asked.at_once > 1 else "")
        seconds = list[float]()
        with _echo_server(asked.transport) as address, asked.transport.connect(*address) as channel:
            for done, nbytes in enumerate(SIZES):
                self.job.progress(done, len(SIZES))
                if self.job.stopping.is_set():
                    break
                seconds.append(_call_s(channel, bytes(nbytes), asked.at_once))
        self.job.progress(len(SIZES), len(SIZES))
        before = [rung for rung in (self.found or {}).items() if rung[0] != name]
        return dict([*before, (name, seconds)][-len(PENS) :])

    def chart(self, found: Rungs, width: float) -> Drawing:
        every = [1e3 * each for seconds in found.values() for each in seconds] or [1.0]
        y = Scale("time of a call (ms)", 0.7 * min(every), 1.4 * max(every), log=True)
        chart = Chart(width, 300, Scale("bytes in the frame, each way", SIZES[0], SIZES[-1], True, format_bytes), y)
        for pen, (name, seconds) in zip(PENS, found.items(), strict=False):
            sizes, times = SIZES[: len(seconds)], [1e3 * each for each in seconds]
            chart.line(sizes, times, pen)
            chart.marks(np.column_stack([sizes, times]), pen, name, 4.5)
        return chart.drawing()

    def words(self, found: Rungs) -> str:
        name, seconds = list(found.items())[-1]
        if len(seconds) < len(SIZES):
            return f"{name}: stopped after {len(seconds)} of {len(SIZES)} sizes."
        rate = 2 * SIZES[-1] / seconds[-1] / 1e6
        return (
            f"{name}: {SIZES[0] / 1e3:g} kB there and back in {1e3 * seconds[0]:.2f} ms, {SIZES[-1] / 1e6:g} MB in "
            f"{1e3 * seconds[-1]:.1f} ms, which is {rate:,.0f} MB/s."
        )


@contextmanager
def _echo_server(transport: Transport) -> Iterator[tuple[str, str]]:
    """Run an echo server; yield its address and its token."""
    from minips.engines import Processes
    from minips.engines.supervisor import Supervisor
    from minips.lab.measure.pairs import attend, frames_server
    from minips.lab.measure.turns import START_S

    if transport.name == "inproc":
        with frames_server(transport=transport, values=0) as address:
            yield address
        return
    with Supervisor(Processes().start) as supervisor:
        (server,) = supervisor.start("the answering side")
        server.assign(attend, {"serve": frames_server, "parts": {"transport": transport, "values": 0}})
        yield supervisor.receive(server, "ready", START_S)


def _call_s(channel: Channel, frame: Buffer, at_once: int) -> float:
    """Return the median seconds of a call while this many calls run at the same time. The first turn is ignored."""
    took: list[float] = []
    while sum(took[1:]) < ENOUGH_S or len(took) <= LEAST_TURNS:
        began = time.perf_counter()
        for future in [channel.call([frame]) for _ in range(at_once)]:
            future.result(WAIT_S)
        took.append(time.perf_counter() - began)
    return statistics.median(took[1:]) / at_once
