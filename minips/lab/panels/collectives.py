"""Add up without a server: two exchanges race; wider links carry more, and the deepest colour is the busiest."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from minips.core.collectives import RingAllReduce
from minips.core.config import Config
from minips.core.exchange import PS, AllReduce, Exchange
from minips.cost import Simulated, Star, Topology, Traffic
from minips.cost.traffic import FixedGradients
from minips.lab.charts import MARKS, WIDE_PX, Chart, Drawing, Lines, Scale, Text, beside, half, legend, svg, translate
from minips.lab.panels.base import Panel
from minips.lab.source import code
from minips.lab.views import View, format_seconds
from minips.lab.views.race import (
    HEIGHT,
    THICK,
    THIN,
    WIDTH,
    Ends,
    Lap,
    Load,
    bottleneck_words,
    loads,
    pixel,
    places,
    race,
    role,
)
from minips.results.messages import Message
from minips.stage import Value, names, option, stage_class
from minips.stages.transports import Link
from minips.training.train import train

WAYS = {"ps": "parameter server", "halvingdoubling": "halving-doubling", "twoshot": "two-shot"}
"""Maps an exchange's name here to its usual name, if the two differ."""
NODES = {"worker": ("a", "circle", 10), "server": ("c", "square", 10), "switch": ("text", "diamond", 6)}
"""Maps a node's role to its ink, its mark and its size."""


@dataclass(frozen=True)
class Meeting(Value):
    """An exchange of gradients, and the network that it uses."""

    topology: Topology = option(Star(1e8, 1e-3), "the network")
    exchange: Exchange = option(RingAllReduce(), "servers, or an all-reduce among the workers")
    rival: Exchange = option(PS(), "the exchange that races against it")
    workers: int = option(8, "workers, each with a gradient", minimum=1, maximum=16, step=1)
    servers: int = option(1, "servers, if the exchange has any", minimum=1, maximum=8, step=1)
    kilobytes: int = option(400, "size of a gradient", minimum=1, maximum=4_000, step=1, unit="kB")
    busy: bool = option(False, "other traffic: a long transfer from worker 0 to worker 1")


class Met(NamedTuple):
    """The race of two exchanges over one network."""

    asked: Meeting
    laps: list[Lap]
    """A step of the exchange that was asked for, and of its rival if that is another one."""
    seconds: dict[str, float]
    """Seconds of a step for each exchange that allows this many workers and was not stopped."""

    @property
    def graph(self) -> Any:
        """The network of the first lap, a ``networkx.Graph``."""
        return self.laps[0].graph

    @property
    def carried(self) -> dict[Ends, float]:
        """Maps each link and direction to its bytes in the first lap, without headers."""
        return {load.ends: load.nbytes for load in self.laps[0].loads}


class Collectives(Panel[Meeting, Met]):
    """Shows a step without computing, in virtual time: how two exchanges race over a network, and each exchange's time.

    >>> panel = Collectives(workers=4)
    >>> found = panel.find(panel.form.value())
    >>> found.carried["worker 0", "switch"]  # 2(n−1)/n of 400 kB
    600000.0
    """

    title = "Race over a network"
    asks = Meeting
    labels = {"kilobytes": "gradient size", "busy": "other traffic"}
    repeats = True

    def __init__(self, **asked: Any) -> None:
        self.view = View("race", {}, "", "")
        super().__init__(**asked)
        self.panel.children = [self.view.panel if c is self.picture.panel else c for c in self.panel.children]

    def find(self, asked: Meeting) -> Met:
        Config(workers=asked.workers, exchange=asked.exchange)  # raises an error with a sentence if it is impossible
        Config(workers=asked.workers, exchange=asked.rival)
        first: dict[str, Exchange] = {one.name: one for one in (asked.exchange, asked.rival)}
        others: list[Any] = [stage_class("exchange", name)() for name in names("exchange") if name not in first]
        steps: dict[str, tuple[float, list[Message]]] = {}
        for exchange in (*first.values(), *others):
            if not (steps and self.job.stopping.is_set()):
                with suppress(ValueError):  # not possible with this many workers
                    steps[exchange.name] = _step(replace(asked, exchange=exchange))
        seconds = {name: steps[name][0] for name in names("exchange") if name in steps}
        laps = [_lap(replace(asked, exchange=one), *steps[name]) for name, one in first.items() if name in steps]
        return Met(asked, laps, seconds)

    def _show(self, found: Met) -> None:
        words, ways = self.words(found), {WAYS.get(name, name): seconds for name, seconds in found.seconds.items()}
        still = svg(self.chart(found, WIDE_PX), words)
        self.view.show(race(found.laps, ways), still, words)

    def chart(self, found: Met, width: float) -> Drawing:
        took = {WAYS.get(name, name): 1e3 * seconds for name, seconds in found.seconds.items()}
        rows = Scale("", len(took) - 0.5, -0.5, places=tuple(took))
        times = Chart(
            half(width), 40 + 34 * len(took), Scale("time of a step (ms)", 0, 1.3 * max(took.values()) or 1.0), rows
        )
        for row, (name, milliseconds) in enumerate(took.items()):
            times.areas((0, milliseconds), (row - 0.3, row + 0.3), "b" if name == found.laps[0].name else "dim")
            times.text(milliseconds, row, f"{milliseconds:.0f}" if milliseconds > 100 else f"{milliseconds:.3g}")
        return beside(width, _network(found, half(width)), times.drawing())

    def words(self, found: Met) -> str:
        asked, took = found.asked, found.seconds[found.asked.exchange.name]
        best = min(found.seconds, key=found.seconds.__getitem__)
        links = dict.fromkeys(
            Link(edge["bandwidth_bps"], edge["latency_s"]) for _, _, edge in found.graph.edges(data=True)
        )
        over = " and of ".join(f"{1e-6 * one.bandwidth_bps:g} Mbit/s and {1e3 * one.latency_s:g} ms" for one in links)
        counted = "a server" if asked.servers == 1 else f"{asked.servers} servers"
        who = f"{asked.workers} workers" + ("" if isinstance(asked.exchange, AllReduce) else f" and {counted}")
        rivals = "".join(f" Its rival, {lap.name}, takes {format_seconds(lap.seconds)}." for lap in found.laps[1:])
        bottleneck = bottleneck_words(found.laps[0])
        return (
            f"{code(asked.exchange, package=False)} among {who} takes {format_seconds(took)} a step, in virtual "
            f"time, over links of {over}. {bottleneck}{rivals} The fastest here: {WAYS.get(best, best)}."
        )


def _network(found: Met, width: float) -> Drawing:
    """Return the network of the first lap. The more bytes a link carries, the wider it is; the longer it is busy, the
    more orange it is.
    """
    graph, lap = found.graph, found.laps[0]
    at = {node: np.array(pixel(*xy)) * (width / WIDTH) for node, xy in places(graph).items()}
    most = max((load.nbytes for load in lap.loads), default=1)
    busy = {frozenset(load.ends): load for load in reversed(lap.loads)}  # the direction that takes longer
    parts: list[Lines | Text] = []
    for ends in graph.edges:
        load = busy.get(frozenset(ends), Load(ends, 0, 0))
        line = Lines([np.array([at[end] for end in ends])], "dim", THIN + THICK * load.nbytes / most)
        parts += [line, line._replace(ink="b", opacity=load.busy_s and min(load.busy_s / lap.seconds, 1.0))]
    samples: list[tuple[Lines, str]] = []
    for kind, (ink, mark, size) in NODES.items():
        nodes = [(at[node], str(node).split()[-1]) for node in graph if role(node) == kind]
        parts.append(Lines([place + size * MARKS[mark] for place, _ in nodes], ink))
        if kind != "switch":
            parts += [Text(x, y + 4, number, "middle", "paper", bold=True) for (x, y), number in nodes]
        samples += [(Lines([5 * MARKS[mark] + np.array((11, 0))], ink), kind)] if nodes else []
    high = HEIGHT * width / WIDTH + 8
    names, below = legend(samples, width)
    return Drawing(width, high + below, parts + translate(names, 0, high))


def _step(asked: Meeting) -> tuple[float, list[Message]]:
    """Return the seconds from the end of the first step to the end of the second, and the messages of a step in seconds
    since its beginning: those of the first step, and the answers to them.
    """
    servers = 1 if isinstance(asked.exchange, AllReduce) else asked.servers
    config = Config(workers=asked.workers, servers=servers, exchange=asked.exchange, steps=2)
    nothing = {"w": np.zeros(250 * asked.kilobytes, np.float32)}
    problem = FixedGradients(nothing, nothing, rows=asked.workers)
    run = train(problem, config, engine=Simulated(asked.topology, traffic=_others(asked)))
    begin = min((m.start or 0.0 for m in run.messages if m.clock == 0 and m.kind != "reply"), default=0.0)
    messages = [
        message._replace(start=message.start - begin, end=message.end - begin)
        for message in run.messages
        if message.clock == (1 if message.kind == "reply" else 0)
        and message.start is not None
        and message.end is not None
    ]
    return run.losses[1][0] - run.losses[0][0], messages


def _others(asked: Meeting) -> tuple[Traffic, ...]:
    return (Traffic("worker 0", "worker 1"),) if asked.busy and asked.workers > 1 else ()


def _lap(asked: Meeting, seconds: float, messages: list[Message]) -> Lap:
    graph = asked.topology.graph(asked.workers, 0 if isinstance(asked.exchange, AllReduce) else asked.servers)
    name = WAYS.get(asked.exchange.name, asked.exchange.name)
    return Lap(name, graph, seconds, loads(graph, _messages(asked), messages, _others(asked)), messages)


def _messages(asked: Meeting) -> Iterator[tuple[str, str, float]]:
    """Yield the sender, the receiver and the bytes of each message in a step."""
    nbytes, exchange = 1e3 * asked.kilobytes, asked.exchange
    for worker in range(asked.workers):
        who = f"worker {worker}"
        if isinstance(exchange, AllReduce):
            each = nbytes / exchange.pieces(asked.workers)
            for hop in exchange.schedule(worker, asked.workers):
                if hop.to is not None:
                    yield who, f"worker {hop.to}", each * len(hop.sends)
        else:
            for server in range(asked.servers):
                yield who, f"server {server}", nbytes / asked.servers
                yield f"server {server}", who, nbytes / asked.servers
