"""Count the bytes that a run will send, in simulated runs of one and two steps with fixed gradients.

The difference between the two is one step's bytes. The shorter run includes all messages outside the steps.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from minips.core.codec import envelope
from minips.core.config import Config
from minips.core.exchange import AllReduce
from minips.core.reduction import AllReduceState
from minips.core.rows import Rows
from minips.core.tables import rows_read
from minips.cost.performance_model import Declared, Workload
from minips.engines.simulated.engine import Simulated
from minips.engines.worker import shards_of
from minips.problems import Problem
from minips.results.trace import Trace
from minips.stage import Array, Tensors
from minips.stages.aggregators import Mean
from minips.stages.consistency import BSP
from minips.stages.serializers import MsgPack, Packet, Serializer
from minips.stages.shards import Contiguous
from minips.training.train import train


@dataclass(frozen=True)
class TrafficEstimate:
    """A step's load, and the bytes of all workers' frames in all steps."""

    load: Workload
    sent: int
    received: int
    exact: bool
    """True if the bytes depend neither on values nor on the order of messages."""


def count_bytes(config: Config, params: Tensors, gradients: Tensors, rows: int) -> TrafficEstimate:
    """Estimate the traffic of a run whose gradients all resemble these, with batches of this many rows."""
    config = replace(config, steps=config.clocks, local=None)  # has the same number of messages, of the same sizes
    bsp = BSP()  # other consistencies send the same messages, in another order
    plain = replace(config, link=None, delays=None, overlap=False, accumulate=1, consistency=bsp)
    if not isinstance(config.exchange, AllReduce):  # two workers represent all: each sends the same messages to servers
        mean = config.aggregator if config.aggregator.weighs else Mean()  # with weights, hello has another field
        plain = replace(plain, workers=min(config.workers, 2), aggregator=mean, shards=Contiguous())
    problem = FixedGradients(params, gradients, plain.workers)
    runs = [train(problem, replace(plain, steps=steps), engine=Simulated()) for steps in (1, 2)]
    first, second = (np.array([run.bytes_sent, run.bytes_received]) for run in runs)
    step = second - first
    whole = first + (config.steps - 1) * step + _header_growth(plain)
    values, messages = sum(x.size for x in params.values()), config.workers * config.servers
    if isinstance(config.exchange, AllReduce):
        load = Workload(values, rows, parts=_parts(config, gradients))
    else:
        out, back = _scale_to_all(config, plain.workers, step, steps=1)
        whole = _scale_to_all(config, plain.workers, whole, config.steps, others=3)  # hello, pull, bye
        load = Workload(values, rows, out / messages, back / messages)
    sent, received = map(int, whole)
    return TrafficEstimate(load, sent, received, _is_exact(config, params))


def count_rows(config: Config, problem: Problem, params: Tensors, rows: int) -> TrafficEstimate:
    """Count the traffic of a run with tables. All steps are simulated, since each batch touches other rows. The count
    is exact if each gradient touches the rows that it reads.
    """
    touched = TouchedRows(problem, params, shards_of(problem, config))
    plain = replace(config, link=None, delays=None, consistency=BSP(), shards=Contiguous())
    run = train(touched, plain, engine=Simulated())
    pushes, dense = config.workers * config.steps, sum(x.size for x in touched.dense.values())
    width = sum(params[name][0].size for name in problem.tables) / len(problem.tables)
    sent, received = (nbytes / pushes / config.servers for nbytes in (run.bytes_sent, run.bytes_received))
    load = Workload(dense + width * sum(run.server_rows) / pushes, rows, sent, received)
    return TrafficEstimate(load, run.bytes_sent, run.bytes_received, _is_exact(config, params))


def _scale_to_all(config: Config, simulated: int, nbytes: Array, steps: int, others: int = 0) -> Array:
    """Scale the bytes of ``simulated`` workers to all workers, for this many steps and for ``others`` messages to each
    server. Headers grow with the worker's number, and a round's last push has another outcome.
    """
    words = [len(envelope(config.pull, {"outcome": outcome})) for outcome in ("held", "applied")]
    last = (words[1] - words[0]) * steps * config.servers if simulated > 1 else 0
    longer = _growth(config.push.serializer, range(simulated, config.workers), 0, "worker")
    more = (nbytes - (0, last)) * (config.workers - simulated) // simulated
    return nbytes + more + (longer * (steps + others) * config.servers, 0)


def _parts(config: Config, gradients: Tensors) -> tuple[Declared, ...]:
    """Return each worker's hops, with the bytes that it would send if the sums resembled its own gradients."""
    parts = []
    for rank in range(config.workers):
        state = AllReduceState(config, rank, gradients, Trace(), np.random.default_rng(0))
        state.begin(0, gradients)
        frames = ([] if hop.to is None else state.outgoing(number) for number, hop in enumerate(state.hops))
        parts.append(Declared(state.hops, [float(sum(map(len, sent))) for sent in frames], state.sizes, state.direct))
    return tuple(parts)


class FixedGradients(Problem):
    """A problem with given gradients, which do not depend on the parameters."""

    def __init__(self, params: Tensors, gradients: Tensors, rows: int) -> None:
        super().__init__(np.zeros((rows, 1)), np.zeros(rows))
        self.params, self.gradients = params, gradients

    def init(self, rng: np.random.Generator) -> Tensors:
        return {name: x.copy() for name, x in self.params.items()}

    def loss_and_gradient(self, params: Tensors, rows: object = None) -> tuple[float, Tensors]:
        return 0.1, {name: x.copy() for name, x in self.gradients.items()}


class TouchedRows(Problem):
    """A problem with zero gradients for the rows that another problem's batches read."""

    def __init__(self, problem: Problem, params: Tensors, part: Callable[[int], Problem] | None = None) -> None:
        self.problem, self.params, self.tables, self.validation = problem, params, problem.tables, None
        self._part = part
        self.dense = {name: np.zeros_like(x) for name, x in params.items() if name not in self.tables}

    @property
    def rows(self) -> int:
        return self.problem.rows

    def init(self, rng: np.random.Generator) -> Tensors:
        return self.params

    def shard(self, worker: int, workers: int) -> "TouchedRows":
        assert self._part
        return TouchedRows(self._part(worker), self.params)

    def rows_needed(self, rows: Any = None) -> dict[str, Array]:
        return self.problem.rows_needed(rows)

    def loss_and_gradient(self, params: Tensors, rows: Any = None) -> tuple[float, Any]:
        ids = rows_read(self.problem.rows_needed(rows), self.tables, params)
        return 0.1, self.dense | {name: Rows(one, np.zeros_like(params[name][one])) for name, one in ids.items()}


def _header_growth(config: Config) -> tuple[int, int]:
    """Return the bytes that growing clocks and versions add to headers over all steps: sent and received."""
    push, steps = config.push.serializer, range(config.steps)
    if isinstance(config.exchange, AllReduce):  # a hop's header contains its step
        schedules = [config.exchange.schedule(rank, config.workers) for rank in range(config.workers)]
        grown = _growth(push, steps, 1, "version") * sum(hop.to is not None for hops in schedules for hop in hops)
        return grown, grown
    clocks = [*range(1, config.steps + 1), config.steps]  # the last answer is to the goodbye
    answers = _growth(config.pull.serializer, clocks, 1, "version") + _growth(MsgPack(), clocks, 1, "clock")
    pairs = config.workers * config.servers
    return pairs * _growth(push, steps, 1, "version", "clock"), pairs * answers


def _growth(serializer: Serializer, numbers: Collection[int], least: int, *names: str) -> int:
    """Return how many more bytes these numbers take in headers, under these names, than ``least`` for each number."""
    size = {number: _size(serializer, Packet(dict.fromkeys(names, number), {})) for number in {*numbers, least}}
    return sum(size[number] - size[least] for number in numbers)


def _is_exact(config: Config, params: Tensors) -> bool:
    """Return True if the bytes depend only on the shapes, and the messages only on the config."""
    for codec in (config.push, config.pull):
        sizes = [codec.quantizer_of(name).nbytes(x.shape, x.dtype) for name, x in params.items()]
        # In a format that writes numbers as text, a number's bytes are its digits.
        digits = [
            _size(codec.serializer, Packet({"loss": loss}, {"w": ("exact", {"x": np.full(9, loss)})}))
            for loss in (0.5, 1 / 3)
        ]
        if None in sizes or not codec.compressor.identity or digits[0] != digits[1]:
            return False
    return config.consistency == BSP() and not config.overlap


def _size(serializer: Serializer, packet: Packet) -> int:
    return sum(map(len, serializer.dumps(packet)))
