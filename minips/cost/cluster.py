"""Seconds per step on a cluster, for each exchange of gradients and each codec, in one call."""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any

import numpy as np

from minips.core.codec import Codec
from minips.core.collectives import HalvingDoubling, RingAllReduce, TreeAllReduce, TwoShot
from minips.core.config import Config
from minips.core.exchange import PS, AllReduce, Exchange
from minips.cost.formulas import (
    halving_doubling_s,
    parameter_server_s,
    parameter_server_step_s,
    ring_allreduce_s,
    tree_allreduce_s,
    two_shot_allreduce_s,
)
from minips.cost.performance_model import EVEN_STEPS, Declared, PerformanceModel, Workload
from minips.cost.predict import message_nbytes
from minips.literals import read_fields
from minips.machines.calibration import Calibration
from minips.machines.fit import Line
from minips.machines.topology import Machines
from minips.stage import Stage, Value, build
from minips.stages.quantizers import Quantizer
from minips.training.sweep import Table
from minips.words import check_type, default_of

SAMPLE = 1_000_000
"""The most normal values that are encoded to count a codec's bytes, if its bytes depend on the values."""
NEAR = 0.01
"""The table explains each ratio that differs from 1 by more than this."""
ALL_REDUCE_S: dict[type[Exchange], Callable[[int, float, float, float], float]] = {
    RingAllReduce: ring_allreduce_s,
    TreeAllReduce: tree_allreduce_s,
    HalvingDoubling: halving_doubling_s,
    TwoShot: two_shot_allreduce_s,
}
ExchangeLike = str | Mapping[str, Any] | Exchange
CodecLike = str | Mapping[str, Any] | Quantizer | Codec


@dataclass(frozen=True)
class Cluster(Machines):
    """Equal machines around one switch. `compare` puts one worker on each machine. `predict` and `Simulated` place a
    config's servers, and then its workers, on the machines one after another.

    >>> cluster = Cluster(machines=8, bandwidth_bps=10e9, latency_s=50e-6, compute_s=0.08)
    >>> table = cluster.compare(nbytes=25e6, ways=["ps:servers=2", "ring"])
    >>> [(row["way"], round(row["closed form (s)"], 4), round(row["ratio"], 2)) for row in table.rows]
    [('ps:servers=2', 0.1801, 1.0), ('ring', 0.1157, 1.0)]
    """

    def compare(
        self,
        nbytes: float,
        ways: ExchangeLike | Iterable[ExchangeLike] = ("ps", "ring", "tree"),
        codecs: CodecLike | Iterable[CodecLike] = ("exact",),
        *,
        calibration: Calibration | Iterable[Calibration] | None = None,
    ) -> "ClusterTable":
        """Compare ways and push codecs by the seconds per BSP step in a long run; gradients have ``nbytes`` as float32.

        A way is an exchange or its name; ``"ps:servers=2"`` has two servers. A codec is a `Codec`, a quantizer, or the
        name of a quantizer: ``"topk:fraction=0.01"``. The closed form is ``compute_s`` plus the exchange's formula. The
        simulation runs minips' own protocol sessions in virtual time, with sizes in place of arrays.

        Without a calibration, codecs and updates take no time. With one, they take its seconds, but only in the
        simulation. With several, a codec's row uses the calibration made with it, if there is one.

        Closed form and simulation agree for an exact codec, except in a tree whose number of machines is not a power
        of two: there, machines that finish early begin the next step. If pushes to several servers are smaller than
        pulls, the formula is a lower bound, which minips' order of messages exceeds by less than a factor of two.
        ValueError for an unknown way or codec, or an exchange that cannot have this many workers.
        """
        check_type("compare", calibration, Calibration | Iterable | None, "a calibration, several, or None")
        check_type("compare", nbytes, int | float, "the bytes of a gradient, such as nbytes=25e6")
        known = [calibration] if isinstance(calibration, Calibration) else list(calibration or ())
        values = nbytes / 4
        if not 1 <= values < math.inf:
            raise ValueError(f"A gradient has at least one float32, which is 4 bytes; got nbytes={nbytes!r}.")
        start = Config(workers=self.machines, link=self.link, steps=EVEN_STEPS)
        plan = product(map(_way, _several(ways)), map(_codec, _several(codecs)))
        configs = [replace(start, exchange=how, servers=servers, push=codec) for (how, servers), codec in plan]
        rows = [
            self._row(config, values, next((one for one in known if matches(one, config)), None)) for config in configs
        ]
        return ClusterTable(self, nbytes, rows, next((made.note for made in known if made.note), ""))

    def _row(self, config: Config, values: float, calibration: Calibration | None) -> dict[str, Any]:
        exchange = config.exchange
        if isinstance(exchange, AllReduce):
            load, bytes_sent, bytes_busiest = all_reduce_load(exchange, config, values)
        else:
            load, bytes_sent, bytes_busiest = _server_load(config, values)
        closed_s, fair_s = self._closed_forms(config, load)
        simulated_s = PerformanceModel(config, self._machines(config, calibration), load).pace
        return {
            "way": _words(exchange) + (f":servers={config.servers}" if config.servers > 1 else ""),
            "codec": _codec_words(config.push),
            "MB sent": bytes_sent / 1e6,
            "MB busiest": bytes_busiest / 1e6,
            "closed form (s)": closed_s,
            "simulated (s)": simulated_s,
            "ratio": simulated_s / closed_s if closed_s else None,
            "fair shares (s)": fair_s,
            "codec time": "counted" if calibration else "free",
        }

    def _closed_forms(self, config: Config, load: Workload) -> tuple[float | None, float | None]:
        """Return two times in seconds: if a link carries one message after another, and if messages share it. None if
        the exchange has no formula.
        """
        n, rate, latency, servers = self.machines, self.bandwidth_bps / 8, self.latency_s, config.servers
        if load.parts:
            formula = ALL_REDUCE_S.get(type(config.exchange))
            seconds = formula and self.compute_s + formula(n, load.pushed, rate, latency)
            return seconds, seconds
        pushed, pulled = load.pushed * servers, load.pulled * servers
        step_s = parameter_server_step_s(n, pushed, rate, latency, servers, pulled_nbytes=pulled)
        phases_s = sum(parameter_server_s(n, nbytes, rate, latency, servers) / 2 for nbytes in (pushed, pulled))
        return self.compute_s + step_s, self.compute_s + phases_s

    def _machines(self, config: Config, calibration: Calibration | None) -> Calibration:
        """Return the calibration for one machine per worker and server, where no process waits for a core."""
        alone = replace(calibration or Calibration(), worker_crowd=1.0, late_s=0.0, others=0.0)
        return replace(alone.with_gradient(Line(self.compute_s)), cores=config.workers + config.servers)


@dataclass(frozen=True)
class ClusterTable(Table):
    """A table with a row for each way and codec. "MB sent" is per step, for the worker that sends most. "MB busiest" is
    the traffic on the busiest machine's link, in its busier direction.
    """

    cluster: Cluster
    nbytes: float
    rows: list[dict[str, Any]]
    note: str = ""
    """A sentence if a calibration was made on a busy machine."""

    @property
    def caption(self) -> str:
        """The assumptions behind the figures."""
        cluster = self.cluster
        cores = f"{cluster.cores} cores each, used one at a time by" if cluster.cores > 1 else "1 core each and"
        lines = [
            f"{cluster.machines} machines with {cores} a worker that computes {_seconds(cluster.compute_s)} in a step.",
            f"Links of {cluster.bandwidth_bps / 1e9:g} Gbit/s each way to one switch; a message travels "
            f"{_seconds(cluster.latency_s)}. BSP; {self.nbytes / 1e6:g} MB of float32.",
            "Closed form: computing and links. Simulated: minips' protocol, one message after another on a link.",
        ]
        if any(row["way"].startswith(PS.name) for row in self.rows):
            lines += [
                "ps: each server has another such machine; the codec is that of pushes, and pulls are exact.",
                "Fair shares: closed form if messages share a link, as in ps.Simulated: no push overlaps a pull.",
            ]
        return "\n".join([*lines, *self._differences(), *self._codec_time(), *filter(None, [self.note])])

    def _differences(self) -> Iterator[str]:
        """Yield the reasons for ratios other than 1 in rows without codec time."""
        free = [row for row in self.rows if row["codec time"] == "free" and row["ratio"]]
        if any(row["ratio"] > 1 + NEAR for row in free):
            yield "Ratio above 1: the formula assumes the best order; several servers with small pushes use another."
        if any(row["ratio"] < 1 - NEAR for row in free):
            yield "Ratio below 1: some machines finish a step early and begin the next one."

    def _codec_time(self) -> Iterator[str]:
        free = list(dict.fromkeys(row["codec"] for row in self.rows if row["codec time"] == "free"))
        counted = any(row["codec time"] == "counted" for row in self.rows)
        if counted:
            yield "Codec time counts in the simulation only: codec, protocol and update as measured on one core."
        if free:
            which = f" of {', '.join(free)}" if counted else ""
            yield f"Codec time{which} is free: codec, protocol and update take no time. Give calibration=… to count it."


def _several(given: Any) -> Sequence[Any]:
    return [given] if isinstance(given, str | Mapping | Value) else list(given)


def _way(given: ExchangeLike) -> tuple[Exchange, int]:
    """Return an exchange, and the number of servers."""
    if isinstance(given, str):
        name, colon, text = given.partition(":")
        given = {"name": name, **(read_fields(text) if colon else {})}
    servers = 1
    if isinstance(given, Mapping) and given.get("name") == PS.name:
        servers = given.get("servers", 1)
        given = {key: value for key, value in given.items() if key != "servers"}
    return build("exchange", given), servers


def _codec(given: CodecLike) -> Codec:
    if isinstance(given, Codec):
        return given
    if isinstance(given, Mapping) and "name" not in given:
        return Codec.from_dict(given)
    return Codec(build("quantizer", given))


def matches(calibration: Calibration, config: Config) -> bool:
    """Return True if the calibration was made with this config's codecs, or does not name its codecs."""
    if not calibration.subject:
        return True
    made = json.loads(calibration.subject)
    return [made.get("push"), made.get("pull")] == [config.push.to_dict(), config.pull.to_dict()]


def _server_load(config: Config, values: float) -> tuple[Workload, float, float]:
    """Return the load with servers, a worker's sent bytes, and those in the busier direction of the busiest link."""
    pushed, pulled = (_nbytes(codec, values / config.servers) for codec in (config.push, config.pull))
    busiest = max(pushed, pulled) * max(config.workers, config.servers)
    return Workload(values, 0, pushed, pulled), pushed * config.servers, busiest


def all_reduce_load(exchange: AllReduce, config: Config, values: float) -> tuple[Workload, float, float]:
    """Like `_server_load`, for an all-reduce of near-equal pieces; ``pushed`` are the bytes of all pieces."""
    pieces = exchange.pieces(config.workers)
    piece = _nbytes(config.push, values / pieces)
    schedules = [exchange.schedule(rank, config.workers) for rank in range(config.workers)]
    parts = tuple(
        Declared(hops, [len(hop.sends) * piece for hop in hops], [values / pieces] * pieces, exchange.direct)
        for hops in schedules
    )
    sent = max(sum(len(hop.sends) for hop in hops) for hops in schedules) * piece
    received = max(sum(len(hop.receives) for hop in hops) for hops in schedules) * piece
    return Workload(values, 0, piece * pieces, parts=parts), sent, max(sent, received)


def _nbytes(codec: Codec, values: float) -> float:
    """Return the encoded bytes of a flat float32 tensor of this size; a count from an encoding includes the header."""
    size = max(1, round(values))
    plain = codec == Codec(codec.quantizer, codec.memory)
    known = codec.quantizer_of("w").nbytes((size,), np.float32) if plain else None
    if known is None:
        size = min(size, SAMPLE)
        known = message_nbytes(codec, {"w": np.random.default_rng(0).normal(size=size).astype(np.float32)})
    return known * values / size


def _words(stage: Any) -> str:
    """Return a stage's text in the form used on the command line."""
    given = {field.name: value for field in fields(stage) if (value := getattr(stage, field.name)) != default_of(field)}
    return f"{stage.name}:{','.join(f'{name}={value}' for name, value in given.items())}".rstrip(":")


def _codec_words(codec: Codec) -> str:
    """Return a codec's quantizer, and those other stages that are not the default, as text."""
    quantizer = codec.quantizer
    first = (
        _words(quantizer)
        if isinstance(quantizer, Stage)
        else ", ".join(f"{pattern}: {_words(one)}" for pattern, one in quantizer.items())
    )
    rest = (getattr(codec, field.name) for field in fields(codec) if field.name != "quantizer")
    usual = {_words(getattr(Codec(), field.name)) for field in fields(codec)}
    return ", ".join([first, *(words for stage in rest if (words := _words(stage)) not in usual)])


def _seconds(seconds: float) -> str:
    return f"{seconds * 1e6:g} µs" if 0 < seconds < 1e-3 else f"{seconds * 1e3:g} ms"
