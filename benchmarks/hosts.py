"""``python -m benchmarks hosts``: the kernel's network between real hosts, predicted and measured.

- flows: a TCP flow from one host to another, during 10 s after 2 s of warming up, with buffers of 200 kB; and two flows
  over one uplink, with Jain's index of their shares (Jain, Chiu and Hawe 1984).
- buffers: four workers and four servers at 100 Mbit/s, with buffers of 50 to 1,000 kB at both ends of each link, hosts'
  own among them: seconds per step, and the packets sent again.
- racks: a ring of four over two racks with a slow uplink. Its ranks follow rack by rack, or change racks at every hop.
"""

import socket
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from rich.table import Table

from benchmarks import base
from benchmarks.base import Chart, select
from benchmarks.cost import regression
from benchmarks.retransmissions import Retransmissions
from minips.core.collectives import RingAllReduce
from minips.core.config import Config
from minips.core.exchange import AllReduce, Hop
from minips.cost import Calibration, Star, TwoRacks, calibrate, predict
from minips.cost.noise import measure_quietly
from minips.cost.packets import PAYLOAD_BYTES
from minips.engines.hosts import PACKET_BYTES, Hosts
from minips.engines.local import START_S
from minips.engines.supervisor import ControlPipe, Supervisor, send_all
from minips.lab.measure.turns import Spread, Watch
from minips.problems import Problem
from minips.stages.optimizers import SGD
from minips.training.train import train

ROUNDS, STEPS = 5, 20
WARM_S, FLOW_S = 2.0, 10.0
FLOW_BUFFER = 200_000
"""A flow fills its buffer, and recovering from an overflow of 4 MB would take longer than the warming up."""
FLOW_BANDWIDTHS, UPLINK = (20e6, 100e6), 50e6
BUFFERS, VALUES = (50_000, 100_000, 200_000, 1_000_000), 100_000
PARTS = ("flows", "buffers", "racks")
ORDER = (0, 2, 1, 3)
"""An order of the ranks in which each hop crosses the uplink, since the first half is in one rack."""


@dataclass(frozen=True)
class Row:
    """One figure, predicted and measured: bits per second, or seconds per step, or their ratio."""

    group: str
    contender: str
    unit: str
    predicted: Spread
    measured: Spread
    ratio: Spread
    """Measured over predicted."""
    words: str = ""
    """Jain's index, or the packets sent again."""
    note: str = ""
    """A sentence if other programs kept the machine busy, and the limits of the model."""
    skipped: str = ""


@dataclass(frozen=True)
class CrossingRing(AllReduce):
    """A ring of the ranks in `ORDER`."""

    name = "crossing ring"

    def schedule(self, rank: int, workers: int) -> list[Hop]:
        place = ORDER.index(rank)
        hops = RingAllReduce().schedule(place, workers)
        return [hop._replace(to=ORDER[(place + 1) % workers], source=ORDER[place - 1]) for hop in hops]


def measure(
    parts: Sequence[str] | None = None, rounds: int = ROUNDS, watch: Watch = lambda text, share: None
) -> Iterator[Row]:
    """The rows of each part."""
    wanted = select(PARTS, parts)
    for number, name in enumerate(wanted):
        yield from _MEASURED[name](rounds, base.part(watch, number, len(wanted), name))


def _row(group: str, name: str, unit: str, predicted: Spread, measured: Sequence[float], **words: str) -> Row:
    spread, ratio = Spread.of(measured), Spread.of(x / predicted.median for x in measured)
    return Row(group, name, unit, predicted, spread, ratio, **words)


def flows(rounds: int, watch: Watch) -> Iterator[Row]:
    """One flow at each bandwidth, and two over one uplink."""
    stars = [(f"one, at {bits / 1e6:g}", Hosts(Star(bits, 0.0), FLOW_BUFFER), bits, 1) for bits in FLOW_BANDWIDTHS]
    racks = Hosts(TwoRacks(2 * UPLINK, 0.0, uplink_bps=UPLINK), FLOW_BUFFER)
    plan = [*stars, (f"two, uplink {UPLINK / 1e6:g}", racks, UPLINK, 2)]
    for number, (name, engine, bits, count) in enumerate(plan):
        rates = []
        for turn in range(rounds):
            watch(name, (number + turn / rounds) / len(plan))
            rates.append(flow_rates(engine, count))
        predicted = bits * PAYLOAD_BYTES / PACKET_BYTES
        jain = statistics.median(sum(row) ** 2 / (len(row) * sum(x * x for x in row)) for row in rates)
        words = f"{jain:.3f}" if count > 1 else ""
        yield _row(
            "flows, Mbit/s", name, "bit/s", Spread(predicted, predicted, predicted), [*map(sum, rates)], words=words
        )


def flow_rates(engine: Hosts, count: int, warm_s: float = WARM_S, seconds: float = FLOW_S) -> list[float]:
    """Bits per second of each of ``count`` concurrent TCP flows, from the first half of the hosts to the second."""
    with Supervisor(partial(engine.start, "tcp")) as supervisor:
        children = supervisor.start(*(f"worker {number}" for number in range(2 * count)))
        for child in children:
            supervisor.receive(child, "host", START_S)
        for sender, receiver in zip(children[:count], children[count:], strict=True):
            address = (receiver.address or "").removeprefix("tcp://").partition(":")[0]
            receiver.assign(receive, {"address": address, "seconds": seconds})
            sender.assign(send, {"address": (address, supervisor.receive(receiver, "ready", START_S))})
            supervisor.receive(receiver, "connected", START_S)
        send_all(children[count:], "go", time.monotonic() + warm_s)
        return [supervisor.receive(child, "rate", START_S + warm_s + seconds) for child in children[count:]]


def send(control: ControlPipe, *, address: tuple[str, int]) -> None:
    """Send zeros until the receiver closes or the supervisor says stop."""
    with socket.create_connection(address, START_S) as flow, suppress(OSError):
        while control.receive(0.0)[0] != "stop":
            flow.sendall(bytes(2**16))


def receive(control: ControlPipe, *, address: str, seconds: float) -> None:
    """Report the bits per second from one peer, from the time given with go; receive until the supervisor says stop."""
    buffer = bytearray(2**16)
    with socket.create_server((address, 0)) as listener:
        listener.settimeout(START_S)
        control.send("ready", listener.getsockname()[1])
        flow, _ = listener.accept()
    with flow:
        flow.settimeout(START_S)
        control.send("connected")
        word, begin = control.wait("go")
        if word != "go":
            return
        while (began := time.monotonic()) < begin:
            flow.recv_into(buffer)
        nbytes = 0
        while (now := time.monotonic()) < began + seconds:
            nbytes += flow.recv_into(buffer)
        control.send("rate", nbytes * 8 / (now - began))
        while control.receive(0.0)[0] != "stop":
            flow.recv_into(buffer)


def buffers(rounds: int, watch: Watch) -> Iterator[Row]:
    """A row for each size of the buffers."""
    problem = regression(VALUES)
    config = Config(workers=4, servers=4, steps=STEPS, optimizer=SGD(lr=0.1))
    watch("calibrating", 0.0)
    calibration = calibrate(config, problem)
    for number, nbytes in enumerate(BUFFERS):
        engine = Hosts(Star(1e8, 0.0), buffer_bytes=nbytes)
        tell = base.part(watch, number, len(BUFFERS), f"{nbytes // 1000:,} kB")
        yield _compare_runs("buffers", f"{nbytes // 1000:,} kB", problem, config, calibration, engine, rounds, tell)


def racks(rounds: int, watch: Watch) -> Iterator[Row]:
    """The ring in both orders, and the ratio of the second to the first."""
    problem = regression(VALUES // 5)
    start = Config(workers=4, steps=STEPS, optimizer=SGD(lr=0.1), exchange=RingAllReduce())
    engine = Hosts(TwoRacks(1e8, 0.0, uplink_bps=2e7))
    watch("calibrating", 0.0)
    calibration = calibrate(start, problem)
    rows = []
    for number, (name, how) in enumerate((("good order", RingAllReduce()), ("bad order", CrossingRing()))):
        tell, config = base.part(watch, number, 2, name), replace(start, exchange=how)
        rows.append(_compare_runs("racks", name, problem, config, calibration, engine, rounds, tell))
        yield rows[-1]
    good, bad = rows
    predicted = bad.predicted.median / good.predicted.median
    low, middle, high = (
        bound / good.measured.median for bound in (bad.measured.low, *bad.measured[:1], bad.measured.high)
    )
    both = Spread(middle, low, high), Spread(middle / predicted, low / predicted, high / predicted)
    yield Row("racks", "bad over good", "", Spread(predicted, predicted, predicted), *both)


def _compare_runs(
    group: str,
    name: str,
    problem: Problem,
    config: Config,
    calibration: Calibration,
    engine: Hosts,
    rounds: int,
    watch: Watch,
) -> Row:
    """Compare the prediction with runs."""
    prediction, lost = predict(problem, config, calibration, engine=engine), Retransmissions()
    seconds: list[float] = []

    def run() -> list[float]:
        seconds.clear()
        for turn in range(rounds):
            watch("running", turn / rounds)
            with lost.of_a_run():
                seconds.append(train(problem, config, engine=engine, progress=lost.look).seconds_per_step)
        return seconds

    measured, note = measure_quietly(run, attempts=1)
    again = f"{statistics.median(lost.counts):g}"
    notes = " ".join(filter(None, [note or prediction.note, *prediction.limits]))
    predicted = Spread(prediction.seconds_per_step, *prediction.interval_s)
    return _row(group, name, "s", predicted, measured, words=again, note=notes)


_MEASURED: dict[str, Callable[[int, Watch], Iterator[Row]]] = {"flows": flows, "buffers": buffers, "racks": racks}


def table(rows: Sequence[Row]) -> Table:
    """The rows for the terminal; below, the notes."""

    def cells(row: Row) -> list[str]:
        return [
            row.contender,
            _show(row, row.predicted, False),
            _show(row, row.measured),
            _three(row.ratio),
            row.words,
        ]

    title = "predicted; measured, quartiles; measured over predicted"
    shown = base.table(title, ["predicted", "measured", "ratio", "Jain,\nsent again"], rows, cells, group="group")
    shown.caption = "\n".join(dict.fromkeys(f"{row.contender}: {row.note}" for row in rows if row.note)) or None
    return shown


def _show(row: Row, spread: Spread, quartiles: bool = True) -> str:
    if row.unit == "s":
        return base.duration(spread, quartiles)
    scale = 1e6 if row.unit == "bit/s" else 1
    return base.ratio(Spread(*(x / scale for x in spread)), quartiles)


def _three(spread: Spread) -> str:
    return base.ratio(spread, quartiles=True)


def chart(rows: Sequence[Row]) -> Chart:
    """Measured over predicted."""
    return Chart(base.series(rows, "ratio"), "measured over predicted")
