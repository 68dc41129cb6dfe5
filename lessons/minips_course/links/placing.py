"""Workers and servers on two racks: the bytes of a step between them, and its seconds in virtual time and on hosts."""

from collections.abc import Collection, Iterator, Mapping
from functools import cache
from itertools import combinations
from typing import Any

import minips as ps
from minips.machines.topology import hosts
from minips_course.hosts import Network
from minips_course.network.timing import only_exchange

Flows = Mapping[tuple[str, str], float]
"""Maps (sender, receiver) to the bytes of a step."""
NBYTES, BITS, CABLE_BITS = 100_000, 1e8, 2e7
"""Of a gradient, and the bits per second of each host's link and of the cable between the racks."""


def flows(config: ps.Config, nbytes: float = NBYTES) -> dict[tuple[str, str], float]:
    """Return who sends how many bytes to whom in a step.

    >>> flows(ps.Config(workers=1, servers=2), 100)[("worker 0", "server 1")]
    50.0
    """
    found = dict[tuple[str, str], float]()
    ranks, exchange = range(config.workers), config.exchange
    if isinstance(exchange, ps.AllReduce):
        for rank in ranks:
            for hop in exchange.schedule(rank, config.workers):
                if hop.to is not None:
                    pair = f"worker {rank}", f"worker {hop.to}"
                    part = len(hop.sends) / exchange.pieces(config.workers)
                    found[pair] = found.get(pair, 0.0) + part * nbytes
        return found
    for worker in hosts(config.workers, 0):
        for server in hosts(0, config.servers):
            found[worker, server] = found[server, worker] = nbytes / config.servers
    return found


def over_cable(sent: Flows, rack: Collection[str]) -> float:
    """Return the bytes that cross the cable on the busier way, if these hosts are in rack 0."""
    ways = [0.0, 0.0]
    for (sender, receiver), nbytes in sent.items():
        if (sender in rack) != (receiver in rack):
            ways[sender in rack] += nbytes
    return max(ways)


def in_digits(config: ps.Config, rack: Collection[str]) -> str:
    """Return the racks of all hosts as `ps.TwoRacks` takes them, if these hosts are in rack 0.

    >>> in_digits(ps.Config(workers=2, servers=2), {"worker 0", "server 1"})
    '01 10'
    """
    servers = config.servers if isinstance(config.exchange, ps.PS) else 0
    parts = hosts(config.workers, 0), hosts(0, servers)
    return " ".join("".join("01"[host not in rack] for host in part) for part in parts if part)


def network(racks: str, cable_bits: float = CABLE_BITS) -> Any:
    """Return two racks with these places."""
    return ps.TwoRacks(BITS, 0.0, uplink_bps=cable_bits, racks=racks)


@cache
def virtual_s(config: ps.Config, racks: str, cable_bits: float = CABLE_BITS) -> float:
    """Return the seconds of a step in virtual time."""
    simulated = ps.Simulated(network(racks, cable_bits))
    run = ps.train(only_exchange(NBYTES, config.workers), config, engine=simulated)
    return run.losses[1][0] - run.losses[0][0]


def fillings(sent: Flows, room: tuple[int, int]) -> Iterator[tuple[str, ...]]:
    """Yield the hosts of rack 0, in each way to put all hosts into racks with room for so many."""
    everyone = sorted({host for pair in sent for host in pair})
    for count in range(max(0, len(everyone) - room[1]), min(room[0], len(everyone)) + 1):
        yield from combinations(everyone, count)


def best(config: ps.Config, room: tuple[int, int]) -> str:
    """Return the racks with the least virtual time, of all that leave room."""
    ways = {in_digits(config, rack) for rack in fillings(flows(config), room)}
    return min(sorted(ways), key=lambda racks: virtual_s(config, racks))


def on_hosts_s(real: Network, config: ps.Config, racks: str) -> float:
    """Return the seconds of a step of the median of three runs on hosts."""
    return real.runs(only_exchange(NBYTES, config.workers), config, real.hosts(network(racks))).median


def compared(real: Network, config: ps.Config, places: Mapping[str, str]) -> dict[str, float]:
    """Return the milliseconds of a step for each of these racks, on hosts and in virtual time."""
    found = {name: 1e3 * on_hosts_s(real, config, racks) for name, racks in places.items()}
    return found | {f"{name}_virtual": 1e3 * virtual_s(config, racks) for name, racks in places.items()}


def score(real: Network, config: ps.Config, room: tuple[int, int], rack: Collection[str]) -> dict[str, Any]:
    """Return the milliseconds of a step with these hosts in rack 0, and with the best ones there: on hosts, or in
    virtual time if no hosts can be made.
    """
    mine, fewest = in_digits(config, rack), best(config, room)
    if real.here:
        took = [on_hosts_s(real, config, racks) for racks in (mine, fewest)]
    else:
        took = [virtual_s(config, racks) for racks in (mine, fewest)]
    return {
        "how": "on hosts" if real.here else "in virtual time",
        "mine": 1e3 * took[0],
        "best": 1e3 * took[1],
        "virtual": virtual_s(config, mine) / virtual_s(config, fewest),
    }
