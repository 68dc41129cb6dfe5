"""``python -m benchmarks transports``: a frame there and back over each transport, without a server or a codec.

For comparison, a lecture's way: HTTP with JSON, the same bytes as a list of floats. Latency is the time of one call
with a small frame; throughput is a large frame's bytes, both ways, over the time of its call. One call at a time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table

from benchmarks import base
from benchmarks.base import Chart
from minips.lab.measure import turns
from minips.lab.measure.pairs import Contender, frames, frames_server, lacking, over_transports, race
from minips.lab.measure.turns import Spread, Watch
from minips_course.move import trips

SMALL_BYTES, LARGE_BYTES, ROUNDS = 1_000, 32_000_000, 200


@dataclass(frozen=True)
class Row:
    """One contender: seconds of a call with the small and with the large frame, bytes per second with the large one,
    and the seconds over those of the bare echo of the same round.
    """

    contender: str
    small_s: Spread | None = None
    large_s: Spread | None = None
    bytes_per_s: Spread | None = None
    small_over_echo: Spread | None = None
    large_over_echo: Spread | None = None
    skipped: str = ""


def measure(
    transports: Sequence[str] | None = None,
    references: Sequence[str] | None = None,
    small: int = SMALL_BYTES,
    large: int = LARGE_BYTES,
    rounds: int = ROUNDS,
    watch: Watch = lambda text, share: None,
) -> Iterator[Row]:
    """A row for each contender, with frames of ``small`` and ``large`` bytes (multiples of 4)."""
    contenders = [
        *_references(references),
        *over_transports(transports, frames, frames_server, applies=False),
    ]
    races = [
        race(contenders, nbytes // 4, rounds, base.part(watch, i, 2, f"{nbytes:,} bytes"))
        for i, nbytes in enumerate((small, large))
    ]
    for one in contenders:
        name, why = one.name, [skipped[one.name] for _, skipped in races if one.name in skipped]
        if why:
            yield Row(name, skipped=why[0])
            continue
        small_s, large_s = (Spread.of(seconds[name].values()) for seconds, _ in races)
        over = [turns.over(seconds, name, "echo") for seconds, _ in races]
        rates = Spread.of(2 * large / took for took in races[1].seconds[name].values())
        yield Row(name, small_s, large_s, rates, over[0], over[1])


def _references(wanted: Sequence[str] | None) -> list[Contender]:
    """HTTP with a JSON list of floats, as in a lecture, and a bare TCP socket that sends the bytes back."""
    back, aiohttp = {"applies": False}, lacking(["aiohttp"], "transports")
    known = [
        Contender("aiohttp-json", trips.json, trips.json_server, back, applies=False, skipped=aiohttp),
        Contender("echo", trips.echo, trips.echo_server, applies=False),
    ]
    names = base.select([one.name for one in known], wanted)
    return [one for one in known if one.name in names]


def table(rows: Sequence[Row]) -> Table:
    """The rows for the terminal."""
    title = "one frame there and back; medians [quartiles]"
    headings = ["small frame", "over\necho", "large frame", "over\necho", "MB/s"]

    def cells(row: Row) -> list[str]:
        small = base.duration(row.small_s), base.ratio(row.small_over_echo)
        large = base.duration(row.large_s), base.ratio(row.large_over_echo)
        return [row.contender, *small, *large, f"{row.bytes_per_s.median / 1e6:,.0f}" if row.bytes_per_s else "–"]

    return base.table(title, headings, rows, cells)


def chart(rows: Sequence[Row]) -> Chart:
    """Each contender's seconds, a series for each frame."""
    small = {row.contender: row.small_s for row in rows if row.small_s}
    large = {row.contender: row.large_s for row in rows if row.large_s}
    return Chart({"small frame": small, "large frame": large}, "time of a call (s)")
