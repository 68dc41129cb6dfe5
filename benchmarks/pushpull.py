"""``python -m benchmarks pushpull``: a push of gradients and a pull of parameters.

One tensor, one worker and one server, each in a process. The server subtracts its learning rate times the gradient and
answers with the parameters: the same work for all contenders but two references, which only move the bytes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from benchmarks import base, ways, with_ray
from benchmarks.base import Chart
from minips.lab.measure import turns
from minips.lab.measure.pairs import Contender, lacking, over_transports, race
from minips.lab.measure.turns import Spread, Watch
from minips_course.move import trips

VALUES, ROUNDS = (1_000, 1_000_000, 8_000_000), 200
BASES = ("echo", "memcpy", "tcp", "shm")
"""The denominators of the ratios, in the order of the columns."""


@dataclass(frozen=True)
class Row:
    """One contender at one size: seconds of a round trip, and their ratios to the references' of the same round."""

    values: int
    contender: str
    seconds: Spread | None
    over: dict[str, Spread]
    skipped: str = ""

    @property
    def group(self) -> str:
        """The rows of this size."""
        return f"{self.values:,} values"


def measure(
    values: Sequence[int] = VALUES,
    transports: Sequence[str] | None = None,
    references: Sequence[str] | None = None,
    rounds: int = ROUNDS,
    watch: Watch = lambda text, share: None,
) -> Iterator[Row]:
    """A row for each size and contender, size by size. None: all transports between processes, and all references."""
    for i, size in enumerate(values):
        with base.folder() as folder:
            contenders = [
                *_references(references, folder),
                *over_transports(transports, ways.minips, ways.minips_server, applies=True),
            ]
            times, skipped = race(contenders, size, rounds, base.part(watch, i, len(values), f"{size:,} values"))
        for one in contenders:
            if one.name in skipped:
                yield Row(size, one.name, None, {}, skipped[one.name])
                continue
            over = {name: ratio for name in BASES if (ratio := turns.over(times, one.name, name))}
            yield Row(size, one.name, Spread.of(times[one.name].values()), over)


def _references(wanted: Sequence[str] | None, folder: Path) -> list[Contender]:
    here, steps = {"folder": folder}, {"applies": True}
    grpc, aiohttp = lacking(["grpc"], "grpc"), lacking(["aiohttp"], "transports")
    torch, ray = (lacking([module], "compare") for module in ("torch", "ray"))
    known = [
        Contender("memcpy", ways.memcpy, applies=False),
        Contender("echo", trips.echo, trips.echo_server, applies=False),
        Contender("pickle", ways.pickle, ways.pickle_server, here | steps),
        Contender("bare-grpc", ways.grpc, ways.grpc_server, steps, skipped=grpc),
        Contender("aiohttp-json", trips.json, trips.json_server, steps, skipped=aiohttp),
        Contender("torch", ways.torch, ways.torch_server, here, skipped=torch),
        Contender("ray", with_ray.trip, skipped=ray),
    ]
    names = base.select([one.name for one in known], wanted)
    return [one for one in known if one.name in names]


def table(rows: Sequence[Row]) -> Table:
    """The rows for the terminal."""

    def cells(row: Row) -> list[str]:
        return [f"  {row.contender}", base.duration(row.seconds), *(base.ratio(row.over.get(name)) for name in BASES)]

    headings = ["time", *(f"over\n{name}" for name in BASES)]
    return base.table("a push and pull of float32; medians [quartiles]", headings, rows, cells, "group")


def chart(rows: Sequence[Row]) -> Chart:
    """Each contender's seconds, a series for each size."""
    return Chart(base.series(rows, "seconds"), "time of a push and pull (s)")
