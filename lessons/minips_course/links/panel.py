"""Workers and servers on two racks: how many of them are in the other rack, and how fast the cable is, as controls."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import minips as ps
from minips.lab.charts import PENS, Chart, Drawing, Scale
from minips.lab.panels import Panel
from minips.machines.topology import hosts
from minips.stage import Value, option
from minips_course.links import placing
from minips_course.network.timing import ZigzagRing

FOUR = 4
WAYS: dict[str, dict[str, Any]] = {
    "four servers": {"servers": FOUR},
    "one server": {"servers": 1},
    "a ring": {"exchange": ps.RingAllReduce()},
    "a zigzag ring": {"exchange": ZigzagRing()},
}


@dataclass(frozen=True)
class Asked(Value):
    """What is added up how, and who is in rack 1."""

    way: str = option("four servers", "how four workers add up their gradients", choices=WAYS)
    workers: int = option(0, "workers in rack 1, the last ones first", minimum=0, maximum=FOUR, step=1)
    servers: int = option(FOUR, "servers in rack 1; a ring has none", minimum=0, maximum=FOUR, step=1)
    megabits: int = option(20, "bandwidth of the cable", minimum=5, maximum=100, unit="Mbit/s", step=5)


class Times(NamedTuple):
    """The virtual milliseconds of a step for each number of workers in rack 1; for the number that was asked for, the
    bytes on the cable's busier way; and the servers in rack 1.
    """

    asked: Asked
    virtual: list[float]
    nbytes: float
    servers: int


class PlacesOnTwoRacks(Panel[Asked, Times]):
    """Draws the time of a step over the number of workers in rack 1.

    >>> PlacesOnTwoRacks().find(Asked(workers=2, servers=2)).nbytes
    200000.0
    """

    title = "Places on two racks"
    asks = Asked
    labels = {
        "way": "adds up over",
        "workers": "workers in rack 1",
        "servers": "servers in rack 1",
        "megabits": "cable",
    }

    def find(self, asked: Asked) -> Times:
        config = ps.Config(workers=FOUR, steps=2, **WAYS[asked.way])
        servers = config.servers if isinstance(config.exchange, ps.PS) else 0
        here = hosts(0, servers)[: max(0, servers - asked.servers)]
        racks = [[*hosts(FOUR - count, 0), *here] for count in range(FOUR + 1)]
        digits = [placing.in_digits(config, rack) for rack in racks]
        virtual = [1e3 * placing.virtual_s(config, one, 1e6 * asked.megabits) for one in digits]
        nbytes = placing.over_cable(placing.flows(config), racks[asked.workers])
        return Times(asked, virtual, nbytes, servers - len(here))

    def chart(self, found: Times, width: float) -> Drawing:
        counts, asked = [*range(FOUR + 1)], found.asked
        x = Scale("workers in rack 1", -0.3, FOUR + 0.3, places=[*map(str, counts)])
        chart = Chart(width, 260, x, Scale("time of a step (ms)", 0, 1.15 * max(found.virtual)))
        chart.line(counts, found.virtual, PENS[0], "in virtual time")
        chart.marks([*zip(counts, found.virtual, strict=True)], PENS[0])
        chart.marks((asked.workers, found.virtual[asked.workers]), PENS[1], "these places", 6)
        return chart.drawing()

    def words(self, found: Times) -> str:
        asked = found.asked
        servers = f" and {found.servers} of the servers" if "ring" not in asked.way else ""
        return (
            f"Over {asked.way}, with {asked.workers} of four workers{servers} in rack 1: {found.nbytes / 1e3:.0f} kB a "
            f"step go over the busier way of the cable of {asked.megabits} Mbit/s. A step takes "
            f"{found.virtual[asked.workers]:.0f} virtual ms."
        )
