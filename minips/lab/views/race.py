"""The race: exchanges over a network, side by side on one clock. Pieces travel along the links as dots.

The width of a link is its bytes, and its colour the share of the step for which it is busy.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from math import cos, hypot, pi, sin
from typing import Any, NamedTuple

from minips.lab.views.base import format_bytes, format_seconds
from minips.machines.topology import Network, Traffic
from minips.results.messages import Message

WIDTH, HEIGHT, MARGIN = 420, 290, 28
"""The size of a network's picture, and the distance of the hosts from its edges."""
APART = 4.0
"""The distance of a link's two directions from the line between its ends."""
THIN, THICK = 1.0, 6.0
IDLE, BUSY = (139, 148, 158), (213, 94, 0)
"""The colours (red, green, blue) of a link that is never busy and of one that always is, for both themes."""
EQUAL = 0.01
"""Links take equally long if their times differ by a smaller share than this."""

Ends = tuple[Any, Any]


class Load(NamedTuple):
    """The load of a link, in one direction, in one step."""

    ends: Ends
    nbytes: float
    """Without headers."""
    busy_s: float
    """Seconds that the link needs to carry all."""


class Lap(NamedTuple):
    """One step of an exchange over a network."""

    name: str
    graph: Any
    """A ``networkx.Graph``."""
    seconds: float
    """From the end of a step to the end of the next. Its messages can take longer: workers begin the next step before
    the others have ended this one.
    """
    loads: list[Load]
    """Of each link that carries something; the one that takes longest first."""
    messages: list[Message]
    """The messages of the step, in seconds since its beginning."""


def loads(
    graph: Any, sent: Iterable[tuple[str, str, float]], messages: Sequence[Message], others: Sequence[Traffic]
) -> list[Load]:
    """Return the load of each link. ``sent`` contains the sender, the receiver and the bytes of each message.

    A link divides its bandwidth equally among its messages and the transfers of ``others``. What is lost is sent again.
    """
    network = Network(graph)
    nbytes, carried = Counter[Ends](), Counter[Ends]()
    for sender, receiver, size in sent:
        for ends in pairwise(network.path(sender, receiver)):
            nbytes[ends] += size  # type: ignore[assignment]
            carried[ends] += size / (1 - network.route(sender, receiver).loss)  # type: ignore[assignment]
    found = []
    for ends in nbytes:
        beside = sum(ends in pairwise(network.path(one.source, one.target)) for one in others)
        mine = [m for m in messages if ends in pairwise(network.path(m.sender, m.receiver))] if beside else []
        share = 1 / (1 + beside / max(_at_once(mine), 1))
        found.append(Load(ends, nbytes[ends], carried[ends] / (share * _bytes_per_s(graph, ends))))
    return sorted(found, key=lambda load: -load.busy_s)


def _bytes_per_s(graph: Any, ends: Ends) -> float:
    return float(graph.edges[ends]["bandwidth_bps"]) / 8


def _at_once(messages: Sequence[Message]) -> int:
    """Return the largest number of messages under way at a time."""
    changes = sorted(change for m in messages for change in ((m.start or 0.0, 1), (m.end or 0.0, -1)))
    return max(accumulate(change for _, change in changes), default=0)


def bottleneck_words(lap: Lap) -> str:
    """Return a sentence that names the link which takes longest in the step: it decides, and not the most bytes."""
    if not lap.loads:
        return "No message crosses a link."
    first, *rest = lap.loads
    alike = [load.ends for load in rest if _alike(load, first)]
    back = first.ends[::-1] in alike
    others = len(alike) - back
    also = "; the way back takes as long" * back
    also += f"; {'another link takes' if others == 1 else f'{others} other links take'} as long" * bool(others)
    link = " → ".join(map(str, first.ends))
    return f"The link that takes longest: {link}, {format_bytes(first.nbytes)}, {_took(first, lap.seconds)}{also}."


def places(graph: Any) -> dict[Any, tuple[float, float]]:
    """Return the place of each node in a picture of a network, between −1 and 1 each way.

    The hosts stand on a circle, those with a common switch beside each other, and a switch stands in the middle of its
    neighbours; with only one, it stands on the circle, too.
    """
    import networkx as nx

    middles = [node for node in graph if role(node) == "switch" and graph.degree(node) > 1]
    order = list(nx.dfs_preorder_nodes(graph, middles[0] if middles else None))
    outer = [node for node in order if node not in middles]
    angles = [2 * pi * (k + 0.5 * bool(middles)) / len(outer) - pi / 2 for k in range(len(outer))]
    at = {node: (cos(angle), sin(angle)) for node, angle in zip(outer, angles, strict=True)}
    at |= dict.fromkeys(middles, (0.0, 0.0))
    for _ in range(100 if middles else 0):
        for node in middles:
            near = [at[one] for one in graph[node]]
            at[node] = (sum(x for x, _ in near) / len(near), sum(y for _, y in near) / len(near))
    return at


def role(node: Any) -> str:
    """Return "worker", "server" or "switch"."""
    return next((one for one in ("worker", "server") if str(node).startswith(f"{one} ")), "switch")


def race(laps: Sequence[Lap], seconds: Mapping[str, float]) -> dict[str, Any]:
    """Return the data of the view: the laps, and the seconds of a step of each exchange by name."""
    most = max((load.nbytes for lap in laps for load in lap.loads), default=1)
    racing = [lap.name for lap in laps]
    sides = [_side(lap, most) for lap in laps]
    return {
        "seconds": max(side["end"] for side in sides),
        "sides": sides,
        "steps": [[name, took, name in racing] for name, took in seconds.items()],
        "size": [WIDTH, HEIGHT],
    }


def _side(lap: Lap, most: float) -> dict[str, Any]:
    at = {node: pixel(*xy) for node, xy in places(lap.graph).items()}
    known = {load.ends: load for load in lap.loads}
    ways = [ends for edge in lap.graph.edges for ends in (edge, edge[::-1])]
    numbers = {ends: number for number, ends in enumerate(ways)}
    network = Network(lap.graph)
    pieces = [
        [message.start, message.end, message.nbytes, message.kind]
        + [numbers[ends] for ends in pairwise(network.path(message.sender, message.receiver))]
        for message in lap.messages
    ]
    return {
        "name": lap.name,
        "seconds": lap.seconds,
        "end": max((message.end or 0.0 for message in lap.messages), default=lap.seconds),
        "nodes": [[str(node), role(node), *xy] for node, xy in at.items()],
        "links": [_link(at, known.get(ends, Load(ends, 0, 0)), lap.seconds, most) for ends in ways],
        "busy": _bars(lap),
        "pieces": pieces,
    }


def pixel(x: float, y: float) -> tuple[float, float]:
    """Return a place, between −1 and 1 each way, in pixels."""
    return round(WIDTH / 2 + x * (WIDTH / 2 - MARGIN), 1), round(HEIGHT / 2 + y * (HEIGHT / 2 - MARGIN), 1)


def _link(at: Mapping[Any, tuple[float, float]], load: Load, seconds: float, most: float) -> dict[str, Any]:
    """Return one direction of a link: the line from end to end, on the right of the middle, and what it shows."""
    (x1, y1), (x2, y2) = (at[end] for end in load.ends)
    length = hypot(x2 - x1, y2 - y1) or 1.0
    dx, dy = -APART * (y2 - y1) / length, APART * (x2 - x1) / length
    words = f"{' → '.join(map(str, load.ends))}: {format_bytes(load.nbytes)}, busy for {_took(load, seconds)}"
    return {
        "line": [round(value, 1) for value in (x1 + dx, y1 + dy, x2 + dx, y2 + dy)],
        "width": round(THIN + THICK * load.nbytes / most, 1),
        "colour": colour(load.busy_s / seconds if load.busy_s else 0.0),
        "words": words,
    }


def colour(share: float) -> str:
    """Return the colour of a link that is busy for this share of the step, as ``#rrggbb``."""
    share = min(share, 1.0)
    return "#" + "".join(f"{round(idle + share * (busy - idle)):02x}" for idle, busy in zip(IDLE, BUSY, strict=True))


def _took(load: Load, seconds: float) -> str:
    return f"{format_seconds(load.busy_s)} of {format_seconds(seconds)}"


def _bars(lap: Lap) -> list[tuple[str, float, str]]:
    """Return the name, the share of the step and the seconds, in words, of the link that takes longest and of the next
    one that takes less.
    """
    if not lap.loads:
        return []
    first, *rest = lap.loads
    less = [load for load in rest if not _alike(load, first)][:1]
    each_way = any(load.ends == first.ends[::-1] and _alike(load, first) for load in rest)
    names = [(" ↔ " if each_way else " → ").join(map(str, first.ends)), "other links, at most"]
    took = [_took(first, lap.seconds) + " each way" * each_way, *(_took(load, lap.seconds) for load in less)]
    shares = [min(load.busy_s / lap.seconds, 1.0) for load in (first, *less)]
    return list(zip(names, shares, took, strict=False))


def _alike(one: Load, other: Load) -> bool:
    """Return True if two links take equally long."""
    return abs(one.busy_s - other.busy_s) <= EQUAL * max(one.busy_s, other.busy_s)
