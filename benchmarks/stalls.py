"""``python -m benchmarks stalls``: the calls of a good client beside twenty peers that stall, and without them.

The server is in a process of its own. In each round the client calls for a while alone; then the peers connect, prove
themselves, make a call, send half of another and stop, and the client calls for as long again. A call is 4 kB there and
back.
"""

import multiprocessing as mp
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from benchmarks import base
from benchmarks.base import Chart
from minips.lab.measure.turns import Spread, Watch
from minips.stage import build, missing, stage_class
from minips.stages.transports import Transport
from minips.stages.transports.auth import proved
from minips.stages.transports.framing import pieces
from minips.stages.transports.wire import CALL

TRANSPORTS, PEERS, TURN_S, ROUNDS = ("pipe", "tcp"), 20, 1.0, 5
CALL_BYTES, HALF_BYTES, TOKEN = 4_000, 100_000, "benchmarks"


@dataclass(frozen=True)
class Row:
    """One transport: calls a second alone and beside the peers, and the latter over the former, round by round."""

    contender: str
    alone: Spread | None = None
    beside: Spread | None = None
    over_alone: Spread | None = None
    skipped: str = ""


def measure(
    transports: Sequence[str] | None = None, rounds: int = ROUNDS, watch: Watch = lambda text, share: None
) -> Iterator[Row]:
    """A row for each of the transports over sockets, whose messages half of one can be sent of."""
    names = base.chosen(TRANSPORTS, transports)
    for number, name in enumerate(names):
        if missing(stage_class("transport", name)):
            yield Row(name, skipped="skipped: not installed")
            continue
        transport, alone, beside = build("transport", name), list[float](), list[float]()
        with _serving(name) as address, transport.connect(address, TOKEN) as channel:
            for turn in range(rounds):
                watch(name, (number + turn / rounds) / len(names))
                alone.append(_calls_a_second(channel))
                with ExitStack() as stack:
                    for _ in range(PEERS):
                        _stall(transport, address, stack)
                    beside.append(_calls_a_second(channel))
        over = Spread.of(one / other for one, other in zip(beside, alone, strict=True))
        yield Row(name, Spread.of(alone), Spread.of(beside), over)


def _calls_a_second(channel: Any) -> float:
    count, frame, began = 0, bytes(CALL_BYTES), time.perf_counter()
    while time.perf_counter() - began < TURN_S:
        channel.call([frame]).result(10)
        count += 1
    return count / (time.perf_counter() - began)


def _stall(transport: Transport, address: str, stack: ExitStack) -> None:
    """A peer that has sent half a message."""
    wire: Any = stack.enter_context(closing(proved(transport.dial(address, 10), TOKEN, address, 10)))  # type: ignore[attr-defined]
    wire.send(CALL, [b"a call"])
    wire.receive(10)
    wire.write([b"".join(pieces(CALL, [bytes(HALF_BYTES)]))[: HALF_BYTES // 2]])


@contextmanager
def _serving(name: str) -> Iterator[str]:
    ours, theirs = mp.get_context("spawn").Pipe()
    process = mp.get_context("spawn").Process(target=_serve, args=(theirs, name), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join()


def _serve(pipe: Any, name: str) -> None:
    with build("transport", name).serve(lambda frames: frames, token=TOKEN) as endpoint:
        pipe.send(endpoint.address)
        time.sleep(3600)


def table(rows: Sequence[Row]) -> Table:
    """The rows for the terminal."""
    title = f"calls a second of a good client, beside {PEERS} peers that stall; medians [quartiles]"

    def cells(row: Row) -> list[str]:
        rates = [f"{spread.median:,.0f}" if spread else "–" for spread in (row.alone, row.beside)]
        return [row.contender, *rates, base.ratio(row.over_alone, quartiles=True)]

    return base.table(title, ["alone", "beside", "over alone"], rows, cells)


def chart(rows: Sequence[Row]) -> Chart:
    """Each transport's calls a second, alone and beside the peers."""
    alone = {row.contender: row.alone for row in rows if row.alone}
    beside = {row.contender: row.beside for row in rows if row.beside}
    return Chart({"alone": alone, f"beside {PEERS} that stall": beside}, "calls a second")
