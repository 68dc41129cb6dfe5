"""The largest message that a run can need, and the largest allowed, both computed from tensors, config and stages.

`check_run` compares both before a run begins.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence, Sized
from typing import Any, NamedTuple

import numpy as np

from minips.core.exchange import PS
from minips.core.message import Like, Message, mismatch
from minips.core.partition import Layout, Layouts, named_arrays, partition
from minips.core.rows import TablePart
from minips.results import saved
from minips.stage import DEFAULTS, Array, Frames, Tensors, default_stage
from minips.stages.compressors.base import BombError, Compressor, check_size
from minips.stages.quantizers.base import Parts
from minips.stages.serializers import Packet, Serializer
from minips.stages.serializers.wellformed import MOST_PARTS, quote
from minips.stages.transports.framing import LIMIT, TooLargeError, stream_nbytes, too_large
from minips.words import message_of

BASE_BYTES, HEAD_BYTES = 2**20, 2**16
"""The bytes allowed for everything that does not grow with the tensors."""
VALUE_BYTES = 32
"""Allowed for a value in any format: as JSON, a double takes up to 25 bytes; its index in a sparse tensor takes 8."""
TENSOR_BYTES, NAME_BYTES = 2**11, 48
"""The bytes allowed for the description of a tensor and its parts, and for each character of its name."""
ROW_BYTES, HEAD_ROW_BYTES = 64, 20
"""The bytes allowed for the number of a row to push or pull: in any format, and in MessagePack."""
MOST_ROW_VALUES = 2**20
"""The most values of a tensor in a pull by rows; if the tensor itself has more values, that number is the limit."""
MAX_BYTES = 2**31
"""The limit on a decompressed message if the transport states none: over `InProc`, and for a codec by itself."""


MOST_BREAKS = 20
"""A message over which this many connections have broken is not sent again."""


class Limits(NamedTuple):
    """The largest message that a receiver can need, given its tensors."""

    nbytes: int = MAX_BYTES
    """The bytes of all decompressed frames of the message."""
    head: int = MAX_BYTES
    """The bytes of the MessagePack frame that describes the others."""
    tensors: int = MAX_BYTES

    def over(self, transport: Any) -> "Limits":
        """These limits for messages over a transport."""
        return self._replace(nbytes=min(self.nbytes, most_bytes(transport)))

    def check_head(self, serializer: Serializer, frames: Frames) -> None:
        """ValueError if the head of a packet in MessagePack is too large."""
        if serializer.indexed and frames and len(frames[0]) > self.head:
            raise ValueError(f"The second frame has {len(frames[0])} bytes, and the tensors here need {self.head}.")

    def check_count(self, tensors: Sized) -> None:
        """ValueError for too many tensors."""
        if len(tensors) > self.tensors:
            raise ValueError(f"The message has {len(tensors)} tensors, and there are at most {self.tensors} here.")


def most_bytes(transport: Any) -> int:
    """The operator's limit on a message's bytes, which holds before and after decompression."""
    most: int = getattr(transport, "max_message_bytes", MAX_BYTES)
    return most


def of_anything(transport: Any = None) -> Limits:
    """The limits of an end that does not know the tensors; without a transport, those of a codec by itself."""
    return Limits(most_bytes(transport))


Expected = tuple[Limits, Tensors | None]
"""An answer's limits, and arrays with the shapes of its tensors."""


def of_answers(layout: Layouts, transport: Any = None) -> Expected:
    """The limits and tensors of the answer to a pull of whole tensors from a server with this ``layout``."""
    return _limits(layout, {}, 0, 0).over(transport), pieces_of(layout)


def of_requests(config: Any, whole: Tensors, layout: Layouts, index: int, leaves: bool) -> Limits:
    """The limits of a server with this layout of the ``whole`` tensors; if ``leaves``, workers may leave their state.
    `of_anything` if a stage in that state is not from minips, since such a stage may keep anything.
    """
    inner = config.local.optimizer if config.local else None
    uses: list[tuple[Any, Callable[[Any, Array, dict[str, Any]], object]]] = [
        (config.push.memory, lambda memory, x, state: memory.update(memory.compensate(x, state), x, state)),
        (config.pull.memory, lambda memory, x, state: memory.restore(x, state)),
        (inner, lambda optimizer, x, state: optimizer.step({"x": x}, {"x": x.copy()}, state)),
    ]
    if not leaves:
        return _limits(layout, whole, 0, 0).over(config.transport)
    if not all(stage is None or type(stage).__module__.startswith("minips.") for stage, _ in uses):
        return of_anything(config.transport)
    sent, received, stepped = (_arrays(stage, use) for stage, use in uses)
    seen = 2 if config.overlap or not config.pull.lossless else 0  # parameters seen, and those received since
    wholes = (2 + config.overlap) * stepped if index == 0 else 0
    return _limits(layout, whole, sent + received + seen, wholes).over(config.transport)


def check_run(config: Any, params: Mapping[str, Array], tables: Collection[str] = (), trained: bool = True) -> Tensors:
    """The parameters as arrays in this machine's byte order. ValueError if they cannot be sent as the config says:
    because of their names, dtypes or tables, more servers than values or rows, or messages larger than a stage or the
    operator's limit allows. If the workers are not ``trained`` by minips, only pushes are checked, and not against the
    operator's limit: such workers may pull tensor by tensor, over their own transports.
    """
    whole, servers = named_arrays(params, "A run takes its parameters", "parameter"), isinstance(config.exchange, PS)
    _check_tables(config, tables, whole)
    if servers:
        _check_servers(config.servers, whole, tables)
    codecs = {"push": config.push, "pull": config.pull} if servers else {"push": config.push}
    for name, x in whole.items():
        for codec in codecs.values():
            check_dtype(codec, name, x.dtype)
    most = most_bytes(config.transport)
    if not trained:
        codecs, most = {"push": config.push}, max(most, most_bytes(type(config.transport)))
    for what, codec in codecs.items():
        bounds = min(most, codec.serializer.most_bytes, codec.compressor.most_bytes)
        if len(whole) >= MOST_PARTS or _limits(partition(whole, 1)[0], {}, 0, 0).nbytes > bounds:
            for message in _messages(config, whole, tables):
                _check_message(f"A {what} of these parameters", codec, message, most)
    return whole


def _check_tables(config: Any, tables: Collection[str], params: Mapping[str, Array]) -> None:
    """ValueError if one of ``tables`` is not a tensor with rows, or if a stage of the config does not support rows."""
    for name in (tables,) if isinstance(tables, str) else tables:
        if name not in params or not np.ndim(params[name]):
            raise ValueError(f"tables names tensors that have rows, of {', '.join(params)}; got {name!r}.")
    refused: list[tuple[bool, object, str]] = [
        (isinstance(config.exchange, PS), config.exchange, "adds up whole tensors, without a server: use PS()"),
        (config.push.memory.stateless, config.push.memory, "remembers whole tensors: push with NoMemory()"),
        (config.pull.memory.stateless, config.pull.memory, "remembers whole tensors: pull with NoMemory()"),
        (config.aggregator.tables, config.aggregator, "compares whole gradients: use Mean()"),
        (config.optimizer.elementwise, config.optimizer, "is not elementwise: use SGD(), Adagrad() or Adam()"),
        (not config.local, config.local, "steps whole tensors: use local=None"),
    ]
    for knows, stage, why in refused if tables else ():
        if not knows:
            raise ValueError(f"{', '.join(tables)} would travel by rows, and {stage!r} {why}, or remove the tables.")


def check_dtype(codec: Any, name: str, dtype: "np.dtype[Any]") -> None:
    """ValueError if the codec would change this array's dtype. Floats of up to 8 bytes keep it; others are tested."""
    if dtype.kind == "f" and dtype.itemsize <= 8:
        return
    quantizer, memory, serializer, x = codec.quantizer_of(name), codec.memory, codec.serializer, np.ones(1, dtype)
    stages: list[tuple[Any, Callable[[], Array]]] = [
        (quantizer, lambda: quantizer.decode(quantizer.encode(x, np.random.default_rng(0)))),
        (memory, lambda: _remembered(memory, x)),
        (serializer, lambda: _serialized(serializer, quantizer, x)),
    ]
    for stage, tried in stages:
        try:
            carried = tried().dtype == dtype
        except Exception:  # its text is a library's or NumPy's
            carried = False
        if not carried:
            raise ValueError(
                f"The tensor {name!r} holds {dtype}, which {stage!r} does not carry. Convert it, for example with "
                f".astype(np.float64), or use another {stage.kind}."
            )


def _remembered(memory: Any, x: Array) -> Array:
    """The array that a memory's receiver restores after the same array was sent three times."""
    mine, theirs = dict[str, Array](), dict[str, Array]()
    for _ in range(3):
        p = memory.compensate(x, mine)
        memory.update(p, p, mine)
        received = memory.restore(p, theirs)
    return np.asarray(received)


def _serialized(serializer: Any, quantizer: Any, x: Array) -> Array:
    """An array after a round trip of its parts through a serializer."""
    parts = quantizer.encode(x, np.random.default_rng(0))
    packet = serializer.loads(serializer.dumps(Packet({}, {"x": (quantizer.name, parts)})))
    return np.asarray(quantizer.decode(packet.tensors["x"][1]))


def _check_servers(servers: int, params: Mapping[str, Array], tables: Collection[str]) -> None:
    """ValueError if there are more servers than values, or more than a table's rows."""
    counts = {"the parameters have": (sum(x.size for x in params.values()), "value")}
    counts |= {f"the table {name!r} has": (len(params[name]), "row") for name in tables}
    for who, (count, what) in counts.items():
        if 0 < count < servers:
            s = "" if count == 1 else "s"
            raise ValueError(
                f"Config.servers is {servers}, and {who} {count} {what}{s}, so that some servers would hold none. "
                f"Use at most {count} server{s}."
            )


def _messages(config: Any, whole: Tensors, tables: Collection[str]) -> list[list[tuple[str, Layout]]]:
    """For each message of a clock, the dense pieces of tensors that it contains."""
    exchange, workers = config.exchange, config.workers
    if isinstance(exchange, PS):
        together = [[layout] for layout in partition(whole, config.servers, tables, config.placement)]
    else:
        pieces = partition(whole, exchange.pieces(workers))
        sent = {hop.sends for rank in range(workers) for hop in exchange.schedule(rank, workers)}
        together = [[pieces[piece] for piece in sends] for sends in sent]
    return [
        [(name, part) for layout in layouts for name, part in layout.items() if isinstance(part, Layout)]
        for layouts in together
    ]


def _check_message(what: str, codec: Any, parts: Sequence[tuple[str, Layout]], most: float) -> None:
    """ValueError if these pieces, once quantized, have more bytes than a stage or the transport allows."""
    sizes = []
    for name, part in parts:
        shape = part.shape if part.whole else (part.values,)
        sizes.append(codec.quantizer_of(name).nbytes(shape, np.dtype(part.dtype)) or 0)
    check_bytes(what, sum(sizes), "the transport (max_message_bytes)", most)
    check_stages(what, sizes, codec)


def check_stages(what: str, sizes: Sequence[int], codec: Any) -> None:
    """ValueError if arrays of these sizes are too many for a packet, or too large for a stage of the codec."""
    if len(sizes) >= MOST_PARTS:
        raise ValueError(
            f"A message of {len(sizes)} parts of tensors is larger than the {MOST_PARTS - 1} that are allowed. Join "
            "small tensors into larger ones, or use more servers."
        )
    check_bytes(what, sum(sizes), repr(codec.serializer), codec.serializer.most_bytes)
    check_bytes("A frame", max(sizes, default=0), repr(codec.compressor), codec.compressor.most_bytes)


def check_bytes(what: str, nbytes: float, taker: str, most: float) -> None:
    """ValueError if ``what`` has more bytes than ``most``."""
    if nbytes > most:
        raise ValueError(
            f"{what} has {nbytes} bytes, and {taker} takes at most {most}. Send smaller tensors, or use more servers, "
            "fewer bits for each value, or another stage."
        )


def compress(compressor: Compressor, frames: Frames, most: float = math.inf) -> Frames:
    """Compress each frame; an empty frame stays empty. ValueError if the frames have more than ``most`` bytes in all,
    or one has more bytes than the compressor accepts.
    """
    check_bytes("A message", sum(map(len, frames)), "a receiver", most)
    for frame in frames:
        check_bytes("A frame", len(frame), repr(compressor), compressor.most_bytes)
    return [compressor.compress(frame) if len(frame) else frame for frame in frames]


def decompress(compressor: Compressor, frames: Frames, most: int) -> Frames:
    """Decompress each frame. ValueError if the results together have more than ``most`` bytes."""
    opened: Frames = []
    left = most
    try:
        for frame in frames:
            opened.append(compressor.decompress(frame, left) if len(frame) else frame)
            left -= len(opened[-1])
            check_size(0, left)  # for a compressor that ignores its limit
    except BombError:
        came = sum(map(len, frames))
        raise BombError(
            f"A message of {came} bytes decompresses to more than the {most} bytes that are allowed: {LIMIT}."
        ) from None
    return opened


def error_after_breaks(error: ConnectionError, frames: Frames, breaks: int, transport: Any) -> Exception:
    """The error for a message over which ``breaks`` connections in a row have broken: a TooLargeError if the next
    connection would break, too. Not every library says why it hangs up.
    """
    most, sent = most_bytes(transport), stream_nbytes([*map(len, frames)])
    if sent > most:
        return too_large([sent], most)
    if breaks < MOST_BREAKS:
        return error
    words = f"{message_of(error).rstrip('.')}. {breaks} connections ended like this over a message of {sent} bytes"
    return TooLargeError(f"{words}: is it larger than the server's max_message_bytes, or its answer than this end's?")


def pieces_of(layout: Layouts) -> Tensors:
    """Arrays with the shapes of a server's pieces; they use no memory for the values."""
    pieces: Tensors = {}
    for name, part in layout.items():
        if isinstance(part, TablePart):
            shape = len(range(part.start, part.stop, part.step)), *part.shape[1:]
        else:
            shape = part.shape if part.whole else (part.values,)
        pieces[name] = np.broadcast_to(np.empty((), part.dtype), shape)
    return pieces


def check_declared(packet: Any, like: Like) -> None:
    """ValueError if a packet's parts describe tensors other than those in ``like``. Allocates no arrays."""
    if like is None:
        return
    if not packet.tensors.keys() <= like.keys():
        raise ValueError(f"Expected gradients of {', '.join(like)}; got {', '.join(packet.tensors):.100}.")
    for name, (quantizer, parts) in packet.tensors.items():
        decoder: Any = DEFAULTS.get(("quantizer", quantizer)) or default_stage("quantizer", quantizer)
        shape = decoder.decoded_shape(parts)
        if shape is not None and shape != like[name].shape:
            raise ValueError(f"The parts of {name!r} are for the shape {quote(shape)}; expected {like[name].shape}.")


def check_shape(name: str, x: Any, like: Like) -> None:
    """ValueError if a decoded tensor's shape differs from that in ``like``."""
    if like is not None and x.shape != like[name].shape:
        raise mismatch(name, x, like[name].dtype, like[name].shape)


def check_plain(packet: Packet | Message) -> None:
    """ValueError if arrays that are not gradients are quantized, since few parts can represent arrays of any size."""
    for name, (quantizer, _) in packet.tensors.items() if isinstance(packet, Packet) else ():
        if not is_exact(quantizer):
            raise ValueError(f"{quote(name)} is not a gradient: it travels exactly, not with {quote(quantizer)}.")


def is_exact(quantizer: str) -> bool:
    """True if this process has a quantizer of this name whose only part is the array itself."""
    try:
        return bool(default_stage("quantizer", quantizer).identity)
    except Exception:  # of the user's own class, or for a name that is not known
        return False


def is_plain(name: str, quantizer: str, parts: Parts, like: Like) -> bool:
    """True if a tensor's only part is its array, with the expected shape."""
    if not is_exact(quantizer) or [*parts] != ["values"]:
        return False
    return like is None or (name in like and parts["values"].shape == like[name].shape)


def check_rows_asked(name: str, rows: int, shape: tuple[int, ...]) -> None:
    """ValueError if a pull of a tensor of this shape asks for too many rows; repeated rows count each time."""
    width = int(np.prod(shape[1:], dtype=object))
    most = max(shape[0] if shape else 0, MOST_ROW_VALUES // max(width, 1))
    if rows > most:
        raise ValueError(f"A pull of {name!r} may ask for {most} rows at once; got {rows}. Pull them in several calls.")


def _limits(layout: Layouts, whole: Mapping[str, Array], pieces: int, wholes: int) -> Limits:
    """The limits of a push, or of a state with ``pieces`` arrays per piece and ``wholes`` arrays per whole tensor."""
    own, every = pieces_of(layout), dict(whole) if wholes else {}
    rows = sum(part.shape[0] if part.shape else 0 for part in layout.values())
    values, all_values = (sum(x.size for x in tensors.values()) for tensors in (own, every))
    texts, all_texts = (sum(TENSOR_BYTES + NAME_BYTES * len(name) for name in tensors) for tensors in (own, every))
    said = (1 + pieces) * texts + wholes * all_texts
    most = max(values, pieces * values + wholes * all_values)
    return Limits(
        BASE_BYTES + VALUE_BYTES * most + ROW_BYTES * rows + said,
        HEAD_BYTES + HEAD_ROW_BYTES * rows + said,
        (1 + pieces) * len(own) + wholes * len(every) + 1,
    )


def _arrays(stage: Any, use: Callable[[Any, Array, dict[str, Any]], object]) -> int:
    """The number of arrays that a stage keeps for a tensor, found by trying the stage a few times on one value."""
    state: dict[str, Any] = {}
    for clock in range(3 if stage else 0):
        state["clock"] = clock
        use(stage, np.ones(1, np.float32), state)
    return len(saved.to_arrays(state)) - 1
