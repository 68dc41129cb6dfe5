"""One push on its way through a config's stages: its bytes after each stage, and one tensor before and after it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from minips import seeds
from minips.core.codec import Encoder, envelope
from minips.core.config import Config
from minips.core.exchange import AllReduce
from minips.core.limits import compress
from minips.core.message import Message
from minips.core.partition import cut, partition
from minips.core.rows import Rows
from minips.core.tables import add_row_numbers, rows_read
from minips.engines.simulated.mutual import SENT_AT_BYTES
from minips.engines.worker import batch, compute, shards_of
from minips.lab.views.drawings import heat_map, histogram
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
    stamp: int
    """The bytes that the sender adds to a message between workers: the time at which it left."""

    def sizes(self) -> dict[str, int]:
        """Return the bytes of the message after each stage, in the order of the stages."""
        return {
            "workers": sum(x.nbytes for x in self.gradient.values()),
            "memory": sum(x.nbytes for x in self.compensated.values()),
            "quantizer": sum(np.asarray(part).nbytes for parts in self.parts.values() for part in parts.values()),
            "serializer": sum(map(len, self.serialized)),
            "compressor": sum(map(len, self.compressed)),
            "transport": sum(map(len, self.compressed)) + self.stamp,
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
        message = _message(part, quick, params, worker, clock)
        tensors = message.tensors
        states = encoder.mark()
        compensated = {name: config.push.memory.compensate(x, {**states.get(name, {})}) for name, x in tensors.items()}
        encoded = {name: encoder.quantize(name, x) for name, x in tensors.items()}
    packet = Packet({**message.header, "memory": config.push.memory.name}, encoded)
    first, frames = envelope(config.push, {}), config.push.serializer.dumps(packet)
    parts = {name: found for name, (_, found) in encoded.items()}
    return Push(
        tensors,
        compensated,
        parts,
        {name: config.push.quantizer_of(name).decode(found) for name, found in parts.items()},
        [first, *frames],
        [first, *compress(config.push.compressor, frames)],
        SENT_AT_BYTES if alone else 0,
    )


def _message(part: Problem, config: Config, params: Tensors, worker: int, clock: int) -> Message:
    """Return a worker's first message at a clock, with the gradient of its ``part`` of the rows."""
    exchange = config.exchange
    loss, computed = compute(part, config, params, worker, clock)
    gradients: Any = {name: g.summed() if isinstance(g, Rows) else np.asarray(g) for name, g in computed.items()}
    if isinstance(exchange, AllReduce):
        layouts, hops = partition(gradients, exchange.pieces(config.workers)), exchange.schedule(worker, config.workers)
        sends = next((hop.sends for hop in hops if hop.to is not None), range(1))
        pieces = {f"{piece}/{name}": x for piece in sends for name, x in cut(gradients, layouts[piece]).items()}
        return Message({"kind": "hop", "step": clock, "hop": 0, "ending": False}, pieces)
    layout = partition(params, config.servers, part.tables, config.placement)[0]
    header = {"kind": "push_pull", "worker": worker, "loss": loss, "clock": clock, "version": clock}
    message = Message(header, cut(gradients, layout))
    if not part.tables:
        return message
    wanted = rows_read(part.rows_needed(batch(part, config, worker, clock + 1, 0)), part.tables, params)
    return add_row_numbers(message, layout, wanted)


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
    if problem.tables:
        return "The server adds up a table's rows, and each push has other rows.", None, None
    combined = _aggregate(problem, config, name)
    if box == "aggregator":
        words = f"{shown}: worker 0's gradient, and the one that is made of {config.workers}"
        return words, push.decoded[name], combined[name]
    if box == "optimizer":
        return f"{shown}: the parameters before and after the first step", *_first_step(problem, config, combined, name)
    return "", None, None


def _aggregate(problem: Problem, config: Config, name: str) -> Tensors:
    """Return the aggregate of all workers' pushes; without rounds, of worker 0's push alone."""
    many = config.consistency.quorum(config.workers) or 1
    pushes = (push_of(problem, config, worker).decoded for worker in range(many))
    return config.aggregator.combine([Contribution(i, STEPS, STEPS, one) for i, one in enumerate(pushes)])


def _first_step(problem: Problem, config: Config, gradients: Tensors, name: str) -> tuple[Array, Array]:
    params = problem.init(seeds.init(config.seed))
    own = {one: np.array(x) for one, x in cut(params, partition(params, config.servers)[0]).items()}
    before = own[name].copy()
    with np.errstate(over="ignore", invalid="ignore"):  # the run, which such a step ends, says so
        config.optimizer.step(own, gradients, {"clock": 0})
    return before, own[name]


def _bytes(frames: Frames) -> Array:
    return np.frombuffer(b"".join(bytes(frame) for frame in frames), np.uint8)


def views(before: Array | None, after: Array | None) -> dict[str, dict[str, str]]:
    """Return what two arrays are, in words, with their histograms and heat maps on one scale, as SVG text."""
    shown = {what: x for what, x in (("before", before), ("after", after)) if x is not None and x.size}
    raw = all(x.dtype == np.uint8 for x in shown.values())
    finite = (np.abs(x[np.isfinite(x)]) for x in shown.values())
    reach = 255.0 if raw else max((float(x.max()) for x in finite if x.size), default=0.0) or 1.0
    found = {}
    for when, x in shown.items():
        what = f"{x.size:,} bytes" if raw else f"{x.size:,} values, {len(np.unique(x)):,} different"
        ends = [f"{end:.3g}".replace("-", "−") for end in (0.0 if raw else -reach, reach)]
        name = f"{what}, {when} the stage"
        x = np.nan_to_num(x, posinf=reach, neginf=-reach)
        bars = histogram(heights(x, reach), ends, name)
        found[when] = {"what": what, "histogram": bars, "heat": heat_map(levels(x, reach), name, raw)}
    return found


def heights(x: Array, reach: float) -> list[float]:
    """Return the heights of a histogram's bars, from 0 to 1 and logarithmic, from −``reach``, or 0 for bytes."""
    counts, _ = np.histogram(x, BINS, (0.0 if x.dtype == np.uint8 else -reach, reach))
    tall = np.log1p(counts)
    return [round(float(each), 3) for each in tall / max(tall.max(), 1e-9)]


def levels(x: Array, reach: float) -> list[str]:
    """Return a heat map as rows of digits, one for each value: 4 is zero, and 0 is −``reach``, by the value's root. Of
    bytes, 0 is the smallest.
    """
    values = x.astype(float) / reach
    shades = values if x.dtype == np.uint8 else (np.sign(values) * np.sqrt(np.abs(values)) + 1) / 2
    return _rows(np.round(shades * 2 * LEVELS).clip(0, 2 * LEVELS).astype(int), x.shape)


def _rows(digits: Array, shape: Sequence[int]) -> list[str]:
    """Return rows of digits: the matrix lying on its longer side or, for other shapes, lines of `COLUMNS` values."""
    if len(shape) == 2 and max(shape) <= COLUMNS and min(shape) <= ROWS:
        table = digits.T if shape[0] > shape[1] else digits
    else:
        some = digits.reshape(-1)[: ROWS * COLUMNS]
        table = [some[at : at + COLUMNS] for at in range(0, len(some), COLUMNS)]  # type: ignore[assignment]
    return ["".join(map(str, row)) for row in table]
