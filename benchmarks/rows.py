"""``python -m benchmarks rows``: rows of a table beside a dense tensor of equal size, and the placement of rows.

A push_pull of 100 rows of 1,000,000 × 16 float32, and one of 1,600 values, take turns: one worker and SGD, and a server
process for each, over TCP. Bytes are those of frames. Growth is the resident memory that the server gains in 2,000
further push_pulls. The second part is the share of the busiest of four servers: of the rows that `datasets.clicks`
draws, and of those that a worker pushes in batches of 1,000, each once a batch.
"""

import multiprocessing as mp
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]
from rich.table import Table

from benchmarks import base
from benchmarks.base import Chart
from minips.click_model import ClickModel
from minips.core.config import Config
from minips.core.partition import partition
from minips.core.rows import Rows, TablePart
from minips.datasets import clicks
from minips.drivers.client import Client
from minips.drivers.server import Server
from minips.engines.simulated.engine import Simulated
from minips.lab.measure import turns
from minips.lab.measure.turns import Spread, Watch
from minips.training.train import train

TABLE, TOUCHED, PUSHES, ROUNDS = (1_000_000, 16), 100, 2_000, 500
SERVERS, BATCH, STEPS = 4, 1_000, 20
CONFIG, TOKEN = Config(workers=1), "benchmarks"


@dataclass(frozen=True)
class Row:
    """One kind of push_pull, or one placement."""

    group: str
    contender: str
    seconds: Spread | None = None
    over_dense: Spread | None = None
    bytes_up: int = 0
    bytes_down: int = 0
    growth_bytes: int = 0
    drawn: float = 0.0
    travelling: float = 0.0
    skipped: str = ""


def measure(rounds: int = ROUNDS, watch: Watch = lambda text, share: None) -> Iterator[Row]:
    """A row for each kind of push_pull, then one for each placement."""
    with ExitStack() as stack:
        watch("servers start", 0.0)
        sides = {
            "dense": stack.enter_context(_side((TOUCHED * TABLE[1],), ())),
            "rows": stack.enter_context(_side(TABLE, ("E",))),
        }
        calls = {name: call for name, (_, call, _) in sides.items()}
        first_s = {name: call() for name, call in calls.items()}
        times = turns.take_turns(calls, first_s, rounds, base.part(watch, 0, 3, "in turns"))
        for name, (client, call, resident) in sides.items():
            sent, received, before = client.bytes_sent, client.bytes_received, resident()
            for number in range(PUSHES):
                watch(f"memory with {name}", (1 + number / PUSHES) / 3)
                call()
            up, down = (client.bytes_sent - sent) // PUSHES, (client.bytes_received - received) // PUSHES
            over = None if name == "dense" else turns.over(times, name, "dense")
            words = "push_pull over TCP"
            yield Row(words, name, Spread.of(times[name].values()), over, up, down, resident() - before)
    data = clicks(rows=5 * BATCH * STEPS, items=TABLE[0])
    model = ClickModel(*data, items=TABLE[0])
    for number, placement in enumerate(("ranges", "modulo")):
        watch(f"placement by {placement}", (2 + number / 2) / 3)
        config = Config(workers=1, servers=SERVERS, steps=STEPS, batch_size=BATCH, placement=placement)
        pushed = train(model, config, engine=Simulated()).server_rows
        params = model.init(np.random.default_rng(0))
        parts = [layout["E"] for layout in partition(params, SERVERS, model.tables, placement)]
        drawn = [part.rows(data.X[:, 0].astype(int))[0].mean() for part in parts if isinstance(part, TablePart)]
        words, moved = f"busiest of {SERVERS} servers", max(pushed) / sum(pushed)
        yield Row(words, placement, drawn=float(max(drawn)), travelling=moved)


@contextmanager
def _side(shape: tuple[int, ...], tables: tuple[str, ...]) -> Iterator[tuple[Client, Callable[[], float], Any]]:
    """A client, a function that times one push_pull in seconds, and one that reads the server's memory."""
    ours, theirs = mp.get_context("spawn").Pipe()
    process = mp.get_context("spawn").Process(target=_serve, args=(theirs, shape, tables), daemon=True)
    process.start()
    try:
        rng, values = np.random.default_rng(0), np.ones((TOUCHED, TABLE[1]), np.float32)
        with Client([ours.recv()], CONFIG, 0, TOKEN) as client:

            def call() -> float:
                ids, wanted = (np.sort(rng.choice(shape[0], TOUCHED, replace=False)) for _ in range(2))
                gradient: Any = Rows(ids, values) if tables else values.reshape(-1)
                rows = {"E": wanted} if tables else None
                began = time.perf_counter()
                client.push_pull({"E": gradient}, rows=rows).result(10)
                return time.perf_counter() - began

            for _ in range(50):  # warm up buffers and threads
                call()
            yield client, call, lambda: psutil.Process(process.pid).memory_info().rss
    finally:
        process.kill()
        process.join()


def _serve(pipe: Any, shape: tuple[int, ...], tables: tuple[str, ...]) -> None:
    with Server({"E": np.zeros(shape, np.float32)}, CONFIG, tables=tables).serve(token=TOKEN) as server:
        pipe.send(server.address)
        server.wait()


def table(rows: Sequence[Row]) -> Table:
    """The rows for the terminal."""

    def cells(row: Row) -> list[str]:
        if row.seconds is None:
            return [f"  {row.contender}", f"{row.drawn:.3f}", f"{row.travelling:.3f}", "", "", ""]
        figures = f"{row.bytes_up:,}", f"{row.bytes_down:,}", f"{row.growth_bytes / 1e6:.1f} MB"
        return [f"  {row.contender}", base.duration(row.seconds), base.ratio(row.over_dense), *figures]

    headings = ["time, or\nshare drawn", "over dense,\nor moved", "B up", "B down", f"growth in\n{PUSHES:,}"]
    return base.table("rows of a table; medians [quartiles]", headings, rows, cells, "group")


def chart(rows: Sequence[Row]) -> Chart:
    """The seconds of each kind of push_pull."""
    return Chart(base.series([row for row in rows if row.seconds], "seconds"), "time of a push_pull (s)")
