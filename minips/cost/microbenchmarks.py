"""Microbenchmarks in a calibration's child processes: one asks like a worker, and one answers like a server.

The measurements are made in rotation, so that a disturbance of the machine affects all of them:

- bare calls of several sizes,
- calls over a shaped link, to measure how late it delivers,
- pushes and pulls of several models, each on its own server,
- hops: both processes are workers of an all-reduce, and exchange gradients of several sizes,
- a crowd: pushes and pulls while several other workers do the same.

Wall time is measured per call; processor time per block of calls, for all threads of a process.
"""

import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from minips import seeds
from minips.core.config import Config
from minips.drivers.client import Client
from minips.drivers.connecting import connect
from minips.drivers.peer import Peer
from minips.drivers.server import Server
from minips.engines.supervisor import ControlPipe
from minips.engines.worker import compute
from minips.problems import Problem
from minips.results.trace import Span, Trace
from minips.stage import Frames, Tensors
from minips.stages.aggregators import Aggregator, Contribution
from minips.stages.transports import Channel, Link

CALL_BYTES = (100, 10_000, 100_000, 1_000_000)
LINK = Link(bandwidth_bps=1e9, latency_s=2e-3)
"""A link whose lateness is measured; any link that delays a message would do."""
BLOCKS, CALLS = 7, 6
"""The blocks of each measurement, and the calls in a block."""
BLOCK_S, ENOUGH_S = 0.25, 1.0
"""Seconds after which a block ends, if it has a call, and after which a measurement ends, if it has a block."""
SPIN_S = 0.1
CROWD = 4
"""The number of workers in the crowd."""
_CPU = struct.Struct("<d")


@dataclass(frozen=True)
class Assignment:
    """The configs of the measurements, and ``pieces``: gradients of several sizes.

    ``single`` has one worker, ``crowd`` has several that push at the same time. ``pair`` has two workers of an
    all-reduce; it is None if the codec does not allow an all-reduce.
    """

    single: Config
    crowd: Config
    pair: Config | None
    pieces: list[Tensors]
    aggregator: Aggregator
    together: int
    """The number of contributions that are aggregated together."""
    token: str

    def peers(self, rank: int, stack: ExitStack) -> list[Peer]:
        """Return a peer for each size, or an empty list if ``pair`` is None."""
        if not self.pair:
            return []
        return [stack.enter_context(Peer(self.pair, rank, piece, self.token)) for piece in self.pieces]


class Block(NamedTuple):
    """A block of calls of one size. Seconds are per call."""

    size: float
    wall_s: float
    """The median."""
    asker_s: float
    """Processor time of the asking process."""
    answerer_s: float
    """Processor time of the answering process."""
    calls: int
    began: float
    ended: float
    spans: dict[str, float]
    """Seconds by name."""

    def with_spans(self, spans: Iterable[Span]) -> "Block":
        """Return this block with the seconds of the spans that began during it."""
        within = Trace("", [span for span in spans if self.began <= span.start < self.ended])
        return self._replace(spans={name: seconds / self.calls for name, seconds in within.seconds().items()})


def count(tensors: Tensors) -> int:
    """Return the number of values."""
    return sum(x.size for x in tensors.values())


class Addresses(NamedTuple):
    """The addresses of the measured parties."""

    bare: str
    shaped: str
    servers: list[str]
    crowd: str
    peers: list[str]


def answer(control: ControlPipe, *, plan: Assignment) -> dict[str, Any]:
    """Echo calls, bare and over a link, and run servers and peers. Returns the servers' spans and aggregation times."""
    transport, token = plan.single.transport, plan.token
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(len(plan.pieces), "minips-peer"))
        bare = stack.enter_context(transport.serve(_processor_time, None, token))
        shaped = stack.enter_context(LINK.around(transport).serve(_processor_time, None, token))
        servers = [stack.enter_context(Server(piece, plan.single).serve(token=token)) for piece in plan.pieces]
        crowd = stack.enter_context(Server(plan.pieces[-1], plan.crowd).serve(token=token))
        peers = plan.peers(1, stack)
        places = [server.address for server in servers], crowd.address, [peer.address for peer in peers]
        control.send("ready", Addresses(bare.address, shaped.address, *places))
        while (message := control.wait("spin", "connect"))[0] != "stop":
            if message[0] == "spin":
                control.send("spun", _spin())
            if message[0] == "connect":
                for peer, piece, other in zip(peers, plan.pieces, message[1], strict=True):
                    peer.connect([other, peer.address])
                    pool.submit(_exchange, peer, piece)
                control.send("connected")
    rounds = list(_rounds(plan.aggregator, plan.pieces, plan.together))
    return {"spans": [span for server in servers for span in server.trace], "aggregate": rounds}


def ask(control: ControlPipe, *, plan: Assignment, problem: Problem | None, addresses: Addresses) -> dict[str, Any]:
    """Time calls, pushes and pulls, exchanges and gradients, and report ``progress``. Returns all timings."""
    with ExitStack() as stack:
        peers = plan.peers(0, stack)
        control.send("ready", [peer.address for peer in peers])
        control.wait("spin")
        control.send("spun", _spin())
        if control.wait("go")[0] == "stop":
            return {}
        config, token = plan.single, plan.token
        bare = stack.enter_context(config.transport.connect(addresses.bare, token))
        shaped = stack.enter_context(LINK.around(config.transport).connect(addresses.shaped, token))
        clients = [stack.enter_context(connect(address, config, token=token)) for address in addresses.servers]
        crowd = stack.enter_context(connect(addresses.crowd, plan.crowd, token=token))
        for peer, other in zip(peers, addresses.peers, strict=True):
            peer.connect([peer.address, other])
        meter = _Meter(bare, config.timeout_s)
        for block in range(-1, BLOCKS):  # the first block warms up
            control.send("progress", (block + 1) / (BLOCKS + 1))
            if control.receive(0.0)[0] == "stop":
                return {}
            for nbytes in CALL_BYTES:
                meter.block("calls", nbytes, partial(bare.call, [b"", bytes(nbytes)]))
            meter.block("shaped", 0, partial(shaped.call, [b""]))
            for client, piece in zip(clients, plan.pieces, strict=True):
                meter.block("trips", count(piece), partial(client.push_pull, piece), client.trace)
            for peer, piece in zip(peers, plan.pieces, strict=True):
                meter.block("hops", count(piece), partial(_next_mean, peer, piece), peer.trace)
            meter.block("crowd", count(plan.pieces[-1]), partial(crowd.push_pull, plan.pieces[-1]), crowd.trace)
            if block < 0:
                meter.blocks.clear()
        for peer, piece in zip(peers, plan.pieces, strict=True):
            _next_mean(peer, piece, ending=True)
        gradients = _gradients(problem, plan.single, clients[-1], plan.pieces[-1]) if problem else {}
    return {**meter.blocks, "gradients": gradients}


def load_generator(control: ControlPipe, *, plan: Assignment, address: str, worker: int) -> None:
    """Push and pull as one worker of the crowd, until asked to stop or until the server has ended."""
    with connect(address, plan.crowd, worker=worker, token=plan.token) as client:
        control.send("ready")
        with suppress(ConnectionError, TimeoutError):
            while control.receive(0.0)[0] != "stop":
                client.push_pull(plan.pieces[-1]).result(plan.crowd.timeout_s)


def _next_mean(peer: Peer, piece: Tensors, ending: bool = False) -> bool:
    """Make one step with the other peer; return True if it is the last one."""
    return peer.mean(peer.trace.step + 1, piece, ending)[1]


def _exchange(peer: Peer, piece: Tensors) -> None:
    """Exchange until the other peer ends the exchange."""
    with suppress(ConnectionError, TimeoutError):
        while not _next_mean(peer, piece):
            pass


class _Meter:
    """Times blocks of calls, and keeps them by kind."""

    def __init__(self, bare: Channel, timeout_s: float) -> None:
        self._bare, self._timeout_s = bare, timeout_s
        self._spent: dict[tuple[str, float], float] = {}
        self.blocks: dict[str, list[Block]] = defaultdict(list)

    def block(self, kind: str, size: float, call: Callable[[], Any], trace: Trace | None = None) -> None:
        """Time a block of calls. If a call returns a future, wait for its result."""
        spent = self._spent.get((kind, size), 0.0)
        if spent > ENOUGH_S and any(block.size == size for block in self.blocks[kind]):
            return
        walls: list[float] = []
        answerer_s, asker_s, began = self._answerer_s(), time.process_time(), time.monotonic()
        while len(walls) < CALLS and time.monotonic() - began < BLOCK_S:
            start = time.monotonic()
            if isinstance(called := call(), Future):
                called.result(self._timeout_s)
            walls.append(time.monotonic() - start)
        asker_s = time.process_time() - asker_s
        answerer_s = self._answerer_s() - answerer_s
        self._spent[kind, size] = spent + sum(walls)
        calls, wall_s, ended = len(walls), float(np.median(walls)), time.monotonic()
        block = Block(size, wall_s, asker_s / calls, answerer_s / calls, calls, began, ended, {})
        self.blocks[kind].append(block.with_spans(trace or ()))

    def _answerer_s(self) -> float:
        """Return the processor time of the answering process, summed over its threads."""
        (reply,) = self._bare.call([b""]).result(self._timeout_s)
        return float(_CPU.unpack(reply)[0])


def _processor_time(_: Frames) -> Frames:
    return [_CPU.pack(time.process_time())]


def _spin() -> float:
    """Return the share of a core that this process gets while it spins on one."""
    wall, cpu = time.monotonic(), time.process_time()
    while time.monotonic() - wall < SPIN_S:
        pass
    return (time.process_time() - cpu) / (time.monotonic() - wall)


def _rounds(aggregator: Aggregator, pieces: list[Tensors], together: int) -> Iterator[tuple[float, float]]:
    """Yield, for each call, a number of values and the seconds to aggregate ``together`` contributions of that size."""
    for block in range(-1, BLOCKS):
        for piece in pieces:
            contributions = [Contribution(worker, 0, 0, piece) for worker in range(together)]
            began, calls = time.monotonic(), 0
            while calls < CALLS and time.monotonic() - began < BLOCK_S:
                aggregator.combine(contributions)
                calls += 1
            if block >= 0:
                yield count(piece), (time.monotonic() - began) / calls


def _gradients(
    problem: Problem, config: Config, client: Client, piece: Tensors
) -> dict[str, list[tuple[float, float]]]:
    """Return rows and seconds of gradients by kind, for the config's batch and a smaller one. A ``gradient`` follows a
    push and a pull, as in a run, so that neither rows nor parameters are still in the cache. A ``next_gradient``
    follows a gradient directly, as in local steps.
    """
    alone = replace(config, delays=None, accumulate=1)
    params = problem.init(seeds.init(config.seed))
    rows = min(config.batch_size or problem.rows, problem.rows)
    configs = {size: replace(alone, batch_size=size) for size in {max(1, rows // 4), rows}}
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    started = time.monotonic()
    for clock in range(-2, BLOCKS * CALLS):
        for size, sized in configs.items():
            client.push_pull(piece).result(config.timeout_s)
            for turn, kind in enumerate(("gradient", "next_gradient")):
                began = time.monotonic()
                compute(problem, sized, params, 0, max(2 * clock + turn, 0))
                if clock >= 0:
                    found[kind].append((float(size), time.monotonic() - began))
        if clock >= 0 and time.monotonic() - started > ENOUGH_S:
            break
    return dict(found)
