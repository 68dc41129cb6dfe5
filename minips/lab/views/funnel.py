"""One push on its way through a config's stages: its bytes after each stage, and one tensor before and after it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minips import seeds
from minips.core.codec import Encoder, envelope
from minips.core.config import Config
from minips.core.exchange import AllReduce
from minips.core.limits import compress
from minips.core.partition import cut, partition
from minips.core.rows import Rows
from minips.engines.worker import compute, shards_of
from minips.problems import Problem
from minips.results.trace import Trace
from minips.stage import Array, Frames, Tensors
from minips.stages.aggregators import Contribution
from minips.stages.quantizers import Parts
from minips.stages.serializers import Packet

STEPS = 5
"""The pushes of a worker before the one that is shown, so that a memory holds something."""
BINS, ROWS, COLUMNS = 31, 16, 64
"""The bars of a histogram; the most rows and columns of a heat map."""
LEVELS = 4
"""The shades of a heat map on each side of zero."""


@dataclass(frozen=True)
class Push:
    """A worker's message to one server or, with an all-reduce, its first message to another worker."""

    gradient: Tensors
    compensated: Tensors
    """What the memory gives the quantizer."""
    parts: dict[str, Parts]
    decoded: Tensors
    """What the receiver decodes."""
    serialized: Frames
    compressed: Frames

    def sizes(self) -> dict[str, int]:
        """Return the bytes of the message after each stage, in the order of the stages."""
        return {
            "workers": sum(x.nbytes for x in self.gradient.values()),
            "memory": sum(x.nbytes for x in self.compensated.values()),
            "quantizer": sum(np.asarray(part).nbytes for parts in self.parts.values() for part in parts.values()),
            "serializer": sum(map(len, self.serialized)),
            "compressor": sum(map(len, self.compressed)),
            "transport": sum(map(len, self.compressed)),
        }


def push_of(problem: Problem, config: Config, worker: int = 0) -> Push:
    """Return a worker's push after `STEPS` others, with gradients of its own batches at the first parameters.

    It is encoded as in a run, with the run's seeds; so it has a run's bytes.
    """
    params, part = problem.init(seeds.init(config.seed)), shards_of(problem, config)(worker)
    alone = isinstance(config.exchange, AllReduce)
    rng = seeds.all_reduce(config.seed, worker) if alone else seeds.push(config.seed, worker, 0)
    encoder = Encoder(config.push, rng, Trace())
    quick = config.with_({"delays": None})
    for clock in range(STEPS + 1):
        loss, gradients = compute(part, quick, params, worker, clock)
        tensors, header = _message(config, worker, clock, loss, gradients)
        states = encoder.mark()
        compensated = {
            name: config.push.memory.compensate(x, {**states.get(name, {})}) for name, x in tensors.items()
        }
        encoded = {name: encoder.quantize(name, x) for name, x in tensors.items()}
    packet = Packet({**header, "memory": config.push.memory.name}, encoded)
    first, frames = envelope(config.push, {}), config.push.serializer.dumps(packet)
    parts = {name: found for name, (_, found) in encoded.items()}
    return Push(
        tensors,
        compensated,
        parts,
        {name: config.push.quantizer_of(name).decode(found) for name, found in parts.items()},
        [first, *frames],
        [first, *compress(config.push.compressor, frames)],
    )


def _message(
    config: Config, worker: int, clock: int, loss: float, gradients: Mapping[str, Any]
) -> tuple[Tensors, dict[str, Any]]:
    """Return the tensors and the header of a worker's first message at a clock."""
    exchange = config.exchange
    whole = {name: np.asarray(g.values if isinstance(g, Rows) else g) for name, g in gradients.items()}
    if not isinstance(exchange, AllReduce):
        header = {"kind": "push_pull", "worker": worker, "loss": loss, "clock": clock, "version": clock}
        return cut(whole, partition(whole, config.servers)[0]), header
    layouts = partition(whole, exchange.pieces(config.workers))
    hops = exchange.schedule(worker, config.workers)
    sends = next((hop.sends for hop in hops if hop.to is not None), range(1))
    pieces = {f"{piece}/{name}": x for piece in sends for name, x in cut(whole, layouts[piece]).items()}
    return pieces, {"kind": "hop", "step": clock, "hop": 0, "ending": False}


def before_and_after(problem: Problem, config: Config, box: str) -> tuple[str, Array | None, Array | None]:
    """Return a caption, and one tensor before and after a box's stage; bytes if the stage changes no tensor's values.

    There is nothing before the workers, and nothing after a stage that changes neither.
    """
    push = push_of(problem, config)
    name = max(push.gradient, key=lambda one: push.gradient[one].size)
    gradient, shown = push.gradient[name], name.rpartition("/")[2]
    worker = f"{shown} of worker 0's gradient"
    match box:
        case "workers":
            return f"{worker}, as it is computed", None, gradient
        case "memory":
            return f"{worker}, before and after the memory adds what it kept", gradient, push.compensated[name]
        case "quantizer":
            return f"{worker}, before and after the quantizer", push.compensated[name], push.decoded[name]
        case "serializer":
            arrays = [np.asarray(part) for parts in push.parts.values() for part in parts.values()]
            before = np.concatenate([np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in arrays])
            return "The bytes of the arrays, and of the message", before, _bytes(push.serialized)
        case "compressor":
            return "The bytes of the message, before and after", _bytes(push.serialized), _bytes(push.compressed)
        case "transport":
            sent = _bytes(push.compressed)
            return "The bytes of the message, as sent and as received", sent, sent
    if isinstance(config.exchange, AllReduce):
        return "An all-reduce has no server: the workers add up the pieces, and each takes the step.", None, None
    combined = _combined(problem, config, name)
    if box == "aggregator":
        words = f"{shown}: worker 0's gradient, and the one that is made of {config.workers}"
        return words, push.decoded[name], combined[name]
    if box == "optimizer":
        return f"{shown}: the parameters before and after the first step", *_stepped(problem, config, combined, name)
    return "", None, None


def _combined(problem: Problem, config: Config, name: str) -> Tensors:
    """Return the aggregate of all workers' pushes; without rounds, of worker 0's push alone."""
    many = config.consistency.quorum(config.workers) or 1
    pushes = (push_of(problem, config, worker).decoded for worker in range(many))
    return config.aggregator.combine([Contribution(i, STEPS, STEPS, one) for i, one in enumerate(pushes)])


def _stepped(problem: Problem, config: Config, gradients: Tensors, name: str) -> tuple[Array, Array]:
    params = problem.init(seeds.init(config.seed))
    own = {one: np.array(x) for one, x in cut(params, partition(params, config.servers)[0]).items()}
    before = own[name].copy()
    config.optimizer.step(own, gradients, {"clock": 0})
    return before, own[name]


def _bytes(frames: Frames) -> Array:
    return np.frombuffer(b"".join(bytes(frame) for frame in frames), np.uint8)


def views(before: Array | None, after: Array | None) -> dict[str, Any]:
    """Return the histogram and the heat map of two arrays, on one scale, for the page.

    A histogram has the bars' heights, from 0 to 1 and logarithmic, and the ends of its axis. A heat map has a digit for
    each value, by its root: 4 is zero, 0 the most negative. Of bytes, 0 is the smallest and 8 the largest.
    """
    both = [np.asarray(x) for x in (before, after) if x is not None and x.size]
    raw = bool(both) and all(x.dtype == np.uint8 for x in both)
    finite = [x[np.isfinite(x)].astype(float) for x in both]
    reach = 255.0 if raw else max((float(np.abs(x).max()) for x in finite if x.size), default=0.0) or 1.0
    low = 0.0 if raw else -reach
    shown = (("before", before), ("after", after))
    return {what: _view(x, low, reach, raw) for what, x in shown if x is not None and x.size}


def _view(x: Array, low: float, high: float, raw: bool) -> dict[str, Any]:
    values = x.reshape(-1).astype(float)
    counts, _ = np.histogram(values, BINS, (low, high))
    tall = np.log1p(counts)
    end = (f"{low:.3g}", f"{high:.3g}")
    shades = (values - low) / (high - low) if raw else (np.sign(values) * np.sqrt(np.abs(values) / high) + 1) / 2
    levels = np.round(shades * 2 * LEVELS).clip(0, 2 * LEVELS).astype(int)
    return {
        "what": f"{x.size:,} bytes" if raw else f"{x.size:,} values, {len(np.unique(values)):,} of them different",
        "bars": [round(float(each), 3) for each in tall / max(tall.max(), 1e-9)],
        "ends": [text.replace("-", "−") for text in end],
        "heat": _rows(levels, x.shape),
        "bytes": raw,
    }


def _rows(levels: Array, shape: Sequence[int]) -> list[str]:
    """Return rows of digits: the matrix lying on its longer side or, for other shapes, lines of `COLUMNS` values."""
    table = levels.reshape(shape) if len(shape) == 2 and max(shape) <= COLUMNS and min(shape) <= ROWS else None
    if table is not None:
        table = table.T if shape[0] > shape[1] else table
        return ["".join(map(str, row)) for row in table]
    some = levels[: ROWS * COLUMNS]
    return ["".join(map(str, some[at : at + COLUMNS])) for at in range(0, len(some), COLUMNS)]
