"""The exercises of "Meet a real network"."""

import math
from itertools import permutations
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import asks, case, number, refuse_if, unaided
from minips.machines.topology import hosts as all_hosts
from minips_course.links import placing

ROOMS = ((6, 2), (4, 4), (3, 5), (8, 8), (2, 6), (5, 3))


@asks(
    "links.1",
    "There are few ways to fill rack 0: try all of them. itertools.combinations(hosts, count) lists the ways to choose "
    "so many hosts.",
    "How many hosts may rack 0 have? At most its room; and at least those for which rack 1 has no room.",
    "For each way, add up two numbers: the bytes whose sender is in rack 0 and whose receiver is not, and those the "
    "other way round. Keep the way whose larger number is the smallest.",
)
def place(function: Any, rng: np.random.Generator) -> str:
    """Write a function that places hosts on two racks, so that the cable's busier way carries the fewest bytes."""
    refuse_if(not callable(function), f"Expected the function place(flows, room), got {function!r}.")
    asked = [(placing.flows(ps.Config(workers=4, servers=4)), room) for room in ROOMS]
    ring = placing.flows(ps.Config(workers=6, exchange=ps.RingAllReduce()))
    names = all_hosts(6, 0)
    mixed = dict(zip(names, (names[i] for i in rng.permutation(6)), strict=True))
    asked += [({(mixed[a], mixed[b]): nbytes for (a, b), nbytes in ring.items()}, room) for room in ((3, 3), (6, 4))]
    for _ in range(40):
        hosts = int(rng.integers(4, 9))
        first = int(rng.integers(1, hosts))
        asked.append((_drawn(hosts, rng), (first + int(rng.integers(0, 2)), hosts - first + int(rng.integers(0, 2)))))
    for sent, room in asked:
        everyone = {host for pair in sent for host in pair}
        with case(f"{len(everyone)} hosts, {len(sent)} flows, room for {room[0]} and {room[1]}:"):
            _is_best(function, sent, room, everyone)
    return f"No placement carries fewer bytes over the cable, for {len(asked)} sets of flows."


def _drawn(hosts: int, rng: np.random.Generator) -> dict[tuple[str, str], float]:
    """Return flows between hosts with drawn names; those in one direction are often larger."""
    names = [f"{('worker', 'server')[number % 2]} {n}" for number, n in enumerate(rng.permutation(40)[:hosts])]
    pairs = [pair for pair in permutations(names, 2) if rng.uniform() < 0.6]
    pairs += [(one, names[number - 1]) for number, one in enumerate(names) if (one, names[number - 1]) not in pairs]
    return {pair: float(rng.integers(1, 100) * (20 if pair[0] < pair[1] else 1)) for pair in pairs}


def _is_best(function: Any, sent: dict[tuple[str, str], float], room: tuple[int, int], everyone: set[str]) -> None:
    given = dict(sent)
    got = unaided(function, given, room)
    refuse_if(given != sent, "it changed flows.")
    wrong = isinstance(got, str) or not hasattr(got, "__iter__")
    refuse_if(wrong, f"it returned {got!r:.60}, not the hosts of rack 0.")
    rack = [*got]
    strange = [host for host in rack if host not in everyone]
    refuse_if(bool(strange), f"it put {strange[:1]} into rack 0, and there is no such host.")
    refuse_if(len({*rack}) < len(rack), "it put a host into rack 0 twice.")
    for number_, count in enumerate((len(rack), len(everyone) - len(rack))):
        refuse_if(count > room[number_], f"rack {number_} has {count} hosts, and room for {room[number_]}.")
    fewest = min(placing.over_cable(sent, one) for one in placing.fillings(sent, room))
    carried = placing.over_cable(sent, rack)
    told = f"the cable's busier way carries {carried:,.0f} bytes; {fewest:,.0f} are possible."
    refuse_if(carried > fewest * (1 + 1e-9), told)


@asks(
    "links.2",
    "Between two arrivals the queue shrinks by rate bytes a second, but never below nothing.",
    "Remember when the last packet came. A packet that was dropped counts there, too: time goes on.",
    "At each arrival: first let the queue shrink, then look whether waiting + nbytes is above limit. Only if it is "
    "not, the packet waits. Append what waits in both cases.",
)
def queue(function: Any, rng: np.random.Generator) -> str:
    """Write a queue that drops what does not fit."""
    refuse_if(not callable(function), f"Expected the function queue(arrivals, rate, limit), got {function!r}.")
    for turn in range(30):
        rate, limit = float(10 ** rng.uniform(4, 7)), int(rng.integers(2_000, 60_000))
        at = np.cumsum(rng.exponential(900 / rate, 60) * (1, 0.2)[turn % 2] + (rng.uniform(size=60) < 0.05) * 0.01)
        arrivals = [(float(one), int(rng.integers(60, 1515))) for one in at + turn % 3]
        with case(f"{len(arrivals)} packets from {arrivals[0][0]:.4f} s on, {rate:,.0f} bytes/s, limit {limit:,}:"):
            _queues(function, arrivals, rate, limit)
    with case("three packets of 1000 bytes at once, limit 2000:"):
        _queues(function, [(1.0, 1000)] * 3, 1e4, 2000)
    return "The same bytes after each arrival, and the same packets dropped, for 31 lists of arrivals."


def _queues(function: Any, arrivals: list[tuple[float, int]], rate: float, limit: int) -> None:
    given = list(arrivals)
    got = unaided(function, given, rate, limit)
    refuse_if(given != arrivals, "it changed arrivals.")
    right = isinstance(got, tuple | list) and len(got) == 2
    refuse_if(not right, f"it returned {got!r:.60}, not (bytes after each arrival, packets dropped).")
    rows, dropped = [*got[0]], number(got[1])
    refuse_if(len(rows) != len(arrivals), f"it returned {len(rows)} rows for {len(arrivals)} arrivals.")
    waiting, last, lost = 0.0, arrivals[0][0], 0
    for turn, (at, nbytes) in enumerate(arrivals):
        waiting, last = max(0.0, waiting - rate * (at - last)), at
        fits = waiting + nbytes <= limit
        waiting += nbytes if fits else 0
        lost += not fits
        near = math.isclose(number(rows[turn]), waiting, rel_tol=1e-6, abs_tol=1e-3)
        refuse_if(not near, f"after arrival {turn} {rows[turn]:,.1f} bytes wait, expected {waiting:,.1f}.")
    refuse_if(dropped != lost, f"it dropped {dropped:g} packets, expected {lost}.")
