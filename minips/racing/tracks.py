"""The race's tracks: each has a network, stragglers and perhaps faults; all have the same machines and digits.

The digits are learned by a perceptron of 32 hidden units, 2,410 values. `ExactMLP` rounds to fixed grids, so that its
sums are exact in float64, in any order. Every BLAS and every processor then computes the same gradients from the same
parameters, and the same rows are right.
"""

import json
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any, ClassVar

import numpy as np

from minips import datasets, seeds
from minips.core.config import Config
from minips.core.exchange import AllReduce
from minips.core.faults import Faults
from minips.core.local import Delays
from minips.engines.simulated.engine import Simulated
from minips.machines.calibration import Calibration
from minips.machines.fit import Line
from minips.machines.topology import Star, Topology, TwoRacks, hosts
from minips.problems import MLP
from minips.results.trace import DECODE, ENCODE
from minips.stage import Array, Stage, Tensors, option
from minips.stages.shards import ByLabel, Contiguous, Shards

HELD_OUT, HIDDEN = 0.2, 32
MOST_STEPS, MOST_BATCHES = 1_000, 8
"""The most steps of each worker, and the most batches that a step may average: a race must end."""
RESTART_S = 0.05
BATCH_S, ROW_S, SHARD_ROWS = 1e-3, 5e-5, 180
"""The mean seconds of a batch, and of each row in it, on a machine that is no straggler; the rows of a worker."""
X_GRID, W_GRID, H_GRID, R_GRID = 2.0**6, 2.0**20, 2.0**10, 2.0**16
"""The reciprocal grids of pixels, parameters, hidden units and probabilities. A product has at most 45 bits, so that
the sums of a batch fit into float64's 53.
"""
OF_SPANS = {
    **dict(zip(ENCODE, ("memory", "quantizer", "serializer", "compressor"), strict=True)),
    **dict(zip(DECODE, ("compressor", "serializer", "quantizer"), strict=True)),
}
"""The kind of stage that spends the time of each span of a codec."""


class ExactMLP(MLP):
    """An MLP whose loss, gradients and scores are the same to the bit on every machine.

    Rounded are pixels, parameters, the hidden units, the probabilities, and the errors of the hidden units.
    """

    def loss_and_gradient(self, params: Tensors, rows: Any = None) -> tuple[float, Tensors]:
        X, y = self._select(rows)
        H, scores = _scores(params, X)
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        R = _round(powers / powers.sum(axis=1, keepdims=True), R_GRID)
        right = np.arange(len(y)), y
        loss = float(_round(-np.log(np.maximum(R[right], 1 / R_GRID)), R_GRID).mean())
        R[right] -= 1
        E = _round((R @ _round(params["W"], W_GRID).T) * (H > 0), W_GRID)
        gradients = {"U": X.astype(np.float64).T @ E, "a": E.sum(axis=0), "W": H.T @ R, "b": R.sum(axis=0)}
        return loss, {name: (g / len(y)).astype(np.float32) for name, g in gradients.items()}

    def right(self, params: Tensors) -> int:
        """The number of rows that are classified correctly."""
        return int((_scores(params, self.X)[1].argmax(axis=1) == self.y).sum())


def _round(x: Array, grid: float) -> Array:
    return np.asarray(np.rint(x.astype(np.float64) * grid) / grid)


def _scores(params: Tensors, X: Array) -> tuple[Array, Array]:
    """The hidden units, and the scores."""
    U, a, W, b = (_round(params[name], W_GRID) for name in ("U", "a", "W", "b"))
    H = _round(np.maximum(X.astype(np.float64) @ U + a, 0), H_GRID)
    return H, np.asarray(H @ W + b)


def problem_of(seed: int, kind: type[ExactMLP] = ExactMLP) -> ExactMLP:
    """The digits, split anew; the pixels are permuted, and so are the classes."""
    data, rng = datasets.digits(HELD_OUT, seed), seeds.split(seed + 1)
    pixels, classes = rng.permutation(data.X.shape[1]), rng.permutation(10)
    X, held_out = (np.rint(x[:, pixels] * X_GRID) / X_GRID for x in (data.X, data.X_validation))
    return kind(X, classes[data.y], held_out, classes[data.y_validation], classes=10, hidden=HIDDEN)


@dataclass(frozen=True)
class HomeUplinks(Topology):
    """Homes with thin links to an exchange point, where the servers have wide ones."""

    name: ClassVar[str] = "home_uplinks"
    bandwidth_bps: float = option(1e6, "bits per second of each home's link, each way", above=0, unit="bit/s")
    latency_s: float = option(0.02, "seconds that a message travels over a home's link", minimum=0, unit="s")
    server_bps: float = option(1e9, "bits per second of each server's link, each way", above=0, unit="bit/s")

    def graph(self, workers: int, servers: int) -> Any:
        import networkx as nx

        graph = nx.Graph()
        for host in hosts(workers, servers):
            home = host.startswith("worker")
            latency_s, bits = (self.latency_s, self.bandwidth_bps) if home else (1e-4, self.server_bps)
            graph.add_edge(host, "exchange point", bandwidth_bps=bits, latency_s=latency_s, loss=0.0)
        return graph


@dataclass(frozen=True)
class Track:
    """A network, its stragglers, and its faults."""

    name: str
    about: str
    topology: Topology
    slow: dict[int, float]
    """Each straggler's factor."""
    exponential: bool = False
    """True if each step's time is drawn anew."""
    faults: Faults | None = None
    restart: int = 0
    shards: Shards = Contiguous()
    workers: int = 8
    most_servers: int = 4

    def problem(self, seed: int) -> ExactMLP:
        """The digits for this seed."""
        return problem_of(seed)

    def config_for(self, config: Config, seed: int) -> Config:
        """The entry's config on this track, with steps in place of epochs. ValueError if the entry sets what the track
        sets, or needs more steps than a race has.
        """
        usual = Config()
        for name in ("transport", "link", "shards", "delays", "timeout_s", "seed"):
            if getattr(config, name) != getattr(usual, name):
                raise ValueError(
                    f"The track sets {name}; the entry has {name}={getattr(config, name)!r}. Leave it out."
                )
        if config.workers not in (usual.workers, self.workers):
            raise ValueError(
                f"The track has {self.workers} workers; the entry has workers={config.workers}. Leave it out, or give "
                f"workers={self.workers}."
            )
        if config.servers > self.most_servers:
            raise ValueError(
                f"The track has machines for {self.most_servers} servers; the entry uses {config.servers}."
            )
        if self.faults and isinstance(config.exchange, AllReduce):
            raise ValueError(f"This track's faults would end {config.exchange!r}. Use servers: exchange=ps.PS().")
        epochs = f", which are {config.epochs} epochs" if config.epochs else ""
        config = replace(config, workers=self.workers).for_rows(SHARD_ROWS * self.workers)
        if config.steps > MOST_STEPS or config.accumulate > MOST_BATCHES:
            raise ValueError(
                f"A race has at most {MOST_STEPS} steps of each worker, and {MOST_BATCHES} batches in a step; the "
                f"entry has steps={config.steps}{epochs}, and accumulate={config.accumulate}."
            )
        rows = min(config.batch_size or SHARD_ROWS, SHARD_ROWS) * config.accumulate
        delays = Delays(BATCH_S + ROW_S * rows, self.slow, self.exponential)
        return replace(config, delays=delays, shards=self.shards, seed=seed)

    def engine(self, config: Config) -> Simulated:
        """The simulator of this track, with the times of the config's stages."""
        return Simulated(
            topology=self.topology,
            calibration=calibration_of(config),
            abandon=False,
            restart=self.restart,
            restart_s=RESTART_S,
        )


@cache
def _measured() -> dict[str, Any]:
    file = resources.files("minips").joinpath("racing", "calibration.json")
    return dict(json.loads(file.read_text()))


def calibration_of(config: Config) -> Calibration:
    """The calibration for the stages of ``config``. A stage that was not measured takes as long as the slowest of its
    kind.
    """
    measured = _measured()
    base = Calibration.from_dict(measured["base"])
    push, pull = config.push, config.pull

    def lines(codec: Any, spans: tuple[str, ...]) -> dict[str, Line]:
        return {span: _slowest(span, _stages(getattr(codec, OF_SPANS[span]))) for span in spans}

    inner = [config.local.optimizer] if config.local else []  # its steps are charged as the outer optimizer's
    update = {"aggregate": _slowest("aggregate", [config.aggregator])}
    update["apply"] = _slowest("apply", [config.optimizer, *inner])
    return replace(
        base,
        worker=lines(push, ENCODE) | lines(pull, DECODE),
        server=lines(pull, ENCODE) | lines(push, DECODE) | update,
    )


def _stages(given: Any) -> list[Stage]:
    return list(given.values()) if isinstance(given, dict) else [given]


def _slowest(span: str, stages: list[Stage]) -> Line:
    """The line of the slowest of these stages: that with the largest times, fixed and per value."""
    known = {name: Line(*line) for name, line in _measured()["spans"][span].items()}
    chosen = [known[stage.name] for stage in stages if stage.name in known]
    lines = chosen if len(chosen) == len(stages) else list(known.values())
    return Line(max(line.fixed_s for line in lines), max(line.each_s for line in lines))


TRACKS = {
    track.name: track
    for track in (
        Track(
            "office",
            "Eight desks, each with a link of 1 Gbit/s and 50 µs to an office switch. Each step's time is drawn anew, "
            "from an exponential distribution, and worker 5 is four times slower.",
            Star(bandwidth_bps=1e9, latency_s=5e-5),
            slow={5: 4.0},
            exponential=True,
        ),
        Track(
            "racks",
            "Two racks of four workers: 1 Gbit/s within, 5 Mbit/s between them. Worker 1 is twice as slow. Worker 6 "
            "is killed before its second push and started again after 50 ms. Behind 1 of 100 messages, the "
            "connection breaks.",
            TwoRacks(bandwidth_bps=1e9, latency_s=1e-4, uplink_bps=5e6),
            slow={1: 2.0},
            faults=Faults(kill={"worker 6": 1}, cut=0.01),
            restart=1,
        ),
        Track(
            "home",
            "Eight homes: 1 Mbit/s and 20 ms to an exchange point, where the servers are. Each step's time is drawn "
            "anew, from an exponential distribution, and workers 2 and 3 are three times slower. Each home has few of "
            "the ten digits.",
            HomeUplinks(),
            slow={2: 3.0, 3: 3.0},
            exponential=True,
            shards=ByLabel(),
        ),
    )
}
