"""One rank's part of an all-reduce, without I/O: it makes the messages to send and uses the received ones.

Each piece is encoded separately. At every hop, a partial sum is decoded, added to and encoded again, so a lossy
quantizer errs at each hop. A direct exchange has no partial sums, since owners keep messages until all have arrived. A
complete sum is encoded once, by its owner, and passed on unchanged. The owner decodes it as the others do, so that all
ranks end with the same bits. A driver (`minips.drivers.peer`, a simulation, a test) moves the frames by the schedule.

Each outgoing piece has a memory at every hop, and one at the owner. With error feedback, the sums that are passed on
plus the residuals of all memories equal the sum of all gradients.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial, reduce
from operator import itemgetter
from typing import Any, Protocol

import numpy as np

from minips import seeds
from minips.core.codec import Codec, Decoder, Encoder, envelope, unpack
from minips.core.config import Config
from minips.core.exchange import AllReduce, Hop
from minips.core.limits import compress, of_anything
from minips.core.message import ADVICE, AT_FIRST, DivergedError, NonFiniteError, check_finite
from minips.core.partition import cut, join, partition
from minips.core.sessions import Do, Parcel, Receive, Send, Session
from minips.halves import as_dtype, widen
from minips.results.trace import DECODE, ENCODE, UPDATE, Trace
from minips.stage import Array, Frames, Tensors
from minips.stages.quantizers import Parts
from minips.stages.serializers import Packet

Encoded = dict[str, tuple[str, Parts]]
"""One encoded piece. Maps a tensor's name to its quantizer's name and its parts."""
_GATHER = -1
"""The hop number under which all hops that pass on complete pieces share one memory for each piece."""


class AllReduceState:
    """The sum of all ranks' tensors, step by step.

    ``like`` has the names, shapes and dtypes of the gradients. A quantizer's random draws are from ``rng`` (None: as in
    a run). Call `begin` for each step, then carry out `all_reduce`, which calls `outgoing` for each of the ``hops`` at
    which this rank sends, and `incoming` for each at which it receives; then it calls `mean`.
    """

    def __init__(
        self, config: Config, rank: int, like: Tensors, trace: Trace, rng: np.random.Generator | None = None
    ) -> None:
        exchange, workers, codec = config.exchange, config.workers, config.push
        assert isinstance(exchange, AllReduce)
        rng = rng or seeds.all_reduce(config.seed, rank)
        self.hops, self.direct = exchange.schedule(rank, workers), exchange.direct
        self.targets = sorted({hop.to for hop in self.hops if hop.to is not None})
        """The ranks to which this one sends."""
        self.step = 0
        self.ending = False
        """True once this rank knows that a rank began this step with ``ending``; after the last hop, all know."""
        self.diverged = ""
        """The reason why this step has no finite mean, once this rank knows; after the last hop, all ranks know."""
        self._rank, self._workers, self._codec, self._trace, self._names = rank, workers, codec, trace, list(like)
        self._due = Counter(piece for hop in self.hops if hop.adds for piece in hop.receives)
        """For each piece, the number of messages to add to it."""
        self._layouts, self._limits = partition(like, exchange.pieces(workers)), of_anything(config.transport)
        self.sizes = [sum(part.stop - part.start for part in layout.values()) for layout in self._layouts]
        """The number of values in each piece."""
        self._encoders: dict[tuple[int, int], Encoder] = defaultdict(partial(Encoder, codec, rng, trace))
        self._decoders: dict[tuple[int, int], Decoder] = defaultdict(partial(Decoder, trace))
        self._values: list[Tensors] = []
        self._came: dict[int, list[tuple[int, Tensors]]] = {}
        """For each piece, the tensors to add to it, each with its sender."""
        self._complete: dict[int, Encoded] = {}

    def begin(self, step: int, gradients: Tensors, ending: bool = False, diverged: str = "") -> None:
        """Start a step with this rank's gradients, which must be finite and must not change before the last hop.
        ``diverged`` says why this rank has no finite gradients; such a rank sends zeros.
        """
        self.step, self.ending, self.diverged, self._trace.step = step, ending, diverged, step
        self._values = [cut(gradients, layout) for layout in self._layouts]
        self._complete, self._came = {}, defaultdict(list)

    def state(self) -> dict[str, list[Any]]:
        """The memories and the random draws to keep in a saved run, from which `restore` resumes."""
        encoders = [[*where, encoder.state()] for where, encoder in self._encoders.items()]
        decoders = [[*where, decoder.state()] for where, decoder in self._decoders.items()]
        return {"encoders": encoders, "decoders": decoders}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from the state of a saved run."""
        for number, piece, codec in state["encoders"]:
            self._encoders[number, piece].restore(codec)
        for number, piece, codec in state["decoders"]:
            self._decoders[number, piece].restore(codec)

    def outgoing(self, number: int) -> Frames:
        """The frames that this rank sends at hop ``number``."""
        hop = self.hops[number]
        encoded = {piece: self._encode(number, piece) if hop.adds else self._owned(piece) for piece in hop.sends}
        tensors = {f"{piece}/{name}": parts for piece, named in encoded.items() for name, parts in named.items()}
        header = {"kind": "hop", "step": self.step, "hop": number, "ending": self.ending}
        if self.diverged:
            header["diverged"] = self.diverged
        packet = Packet({**header, "memory": self._codec.memory.name}, tensors)
        return pack(packet, self._codec, self._trace)

    def incoming(self, number: int, frames: Frames) -> None:
        """Use the message of hop ``number``. ValueError if it belongs to another hop."""
        hop = self.hops[number]
        assert hop.source is not None
        packet, _, names, moments = unpack(frames, self._codec, self._trace, limits=self._limits)
        kind, step, hop_number = (packet.header.get(key) for key in ("kind", "step", "hop"))
        if (kind, step, hop_number) != ("hop", self.step, number):
            raise ValueError(f"Expected hop {number} of step {self.step}, got {kind} {hop_number} of step {step}.")
        self._trace.laps(names, moments)
        self.ending = self.ending or bool(packet.header.get("ending"))
        self.diverged = self.diverged or str(packet.header.get("diverged", ""))
        expected = {f"{piece}/{name}" for piece in hop.receives for name in self._layouts[piece]}
        if packet.tensors.keys() != expected:
            raise ValueError(f"Expected the pieces {', '.join(sorted(expected))}; got {', '.join(packet.tensors)}.")
        for piece in hop.receives:
            encoded = {name: packet.tensors[f"{piece}/{name}"] for name in self._layouts[piece]}
            if hop.adds:
                self._came[piece].append((hop.source, self._decode(number, piece, encoded)))
                if not self.direct or len(self._came[piece]) == self._due[piece]:
                    self._add_up(piece)
            else:
                self._complete[piece] = encoded
                self._values[piece] = self._decode(_GATHER, piece, encoded)

    def mean(self) -> Tensors:
        """The sum of all ranks' gradients, divided by the ranks' number: new arrays, with the same bits at every rank.

        DivergedError, at every rank, if one of them has ``diverged``.
        """
        if self.diverged:
            raise DivergedError(self.diverged)
        with self._trace.span("aggregate"):
            whole = join(self._values, self._layouts)
            return {name: np.asarray(whole[name] / self._workers) for name in self._names}

    def _add_up(self, piece: int) -> None:
        """Add the received tensors to this rank's own values, in rank order."""
        own = self._values[piece]
        terms = sorted([(self._rank, own), *self._came.pop(piece)], key=itemgetter(0))
        with self._trace.span("aggregate"), np.errstate(over="ignore"):
            self._values[piece] = {name: _sum([x[name] for _, x in terms]) for name in own}

    def _owned(self, piece: int) -> Encoded:
        """An encoded complete sum; its owner encodes it when first needed."""
        if piece not in self._complete:
            self._complete[piece] = self._encode(_GATHER, piece)
            self._values[piece] = self._decode(_GATHER, piece, self._complete[piece])
        return self._complete[piece]

    def _encode(self, number: int, piece: int) -> Encoded:
        try:
            check_finite(self._values[piece], "The sum of the gradients of")
        except NonFiniteError as error:
            self.diverged = self.diverged or f"At step {self.step}: {error} {ADVICE if self.step else AT_FIRST}"
            self._values[piece] = {name: np.zeros_like(x) for name, x in self._values[piece].items()}
        encoder = self._encoders[number, piece]
        return {name: encoder.quantize(name, x) for name, x in self._values[piece].items()}

    def _decode(self, number: int, piece: int, encoded: Encoded) -> Tensors:
        packet = Packet({"memory": self._codec.memory.name}, encoded)
        tensors = self._decoders[number, piece].decode(packet).tensors
        for name, x in self._values[piece].items():
            if (tensors[name].shape, tensors[name].dtype) != (x.shape, x.dtype):
                raise ValueError(
                    f"Piece {piece} of {name!r} must be {x.dtype} of shape {x.shape}; "
                    f"got {tensors[name].dtype} of {tensors[name].shape}."
                )
        return tensors


def _sum(terms: Sequence[Array]) -> Array:
    """The sum of arrays, in their order; half floats are added in float32."""
    return np.asarray(as_dtype(reduce(np.add, map(widen, terms)), terms[0].dtype))


class Part(Protocol):
    """One rank's part, as `all_reduce` needs it: an `AllReduceState`, or a prediction's part, which has only sizes."""

    @property
    def hops(self) -> Sequence[Hop]: ...
    @property
    def sizes(self) -> Sequence[float]:
        """The number of values in each piece."""

    @property
    def direct(self) -> bool:
        """The value of `AllReduce.direct`."""

    def outgoing(self, number: int) -> Parcel:
        """The message to send at hop ``number``."""

    def incoming(self, number: int, parcel: Parcel) -> None:
        """Use the message of hop ``number``."""

    def mean(self) -> Any:
        """The result after the last hop."""


def all_reduce(part: Part) -> Session[Any]:
    """One rank's session of an all-reduce. Returns the mean."""

    def values(pieces: range) -> float:
        return sum(part.sizes[piece] for piece in pieces)

    complete = set[int]()
    for group in rounds(part.hops, part.direct):
        for number, hop in group:
            if hop.to is not None:
                spans: tuple[str, ...] = ENCODE
                if not hop.adds:
                    # A received complete sum is passed on as it is; an owner encodes its sum and decodes it.
                    spans = ("serialize", "compress") if complete.issuperset(hop.sends) else (*ENCODE, "dequantize")
                    complete.update(hop.sends)
                parcel = yield Do(spans, values(hop.sends), partial(part.outgoing, number))
                yield Send(hop.to, parcel, values(hop.sends), number)
        for number, hop in group:
            if hop.source is not None:
                parcel = yield Receive(hop.source, number)
                complete.update(() if hop.adds else hop.receives)
                spans = (*DECODE, "aggregate") if hop.adds else DECODE
                yield Do(spans, values(hop.receives), partial(part.incoming, number, parcel))
    return (yield Do(UPDATE, sum(part.sizes), part.mean))


def rounds(hops: Sequence[Hop], direct: bool) -> list[list[tuple[int, Hop]]]:
    """The numbered hops, in groups: a rank sends all its messages of a group, then waits for those that it receives."""
    numbered = list(enumerate(hops))
    if not direct:
        return [[one] for one in numbered]
    return [[one for one in numbered if one[1].adds is adds] for adds in (True, False)]


def pack(packet: Packet, codec: Codec, trace: Trace) -> Frames:
    """Convert a packet to frames: the envelope, then the serializer's frames, compressed."""
    began = trace.now()
    frames = codec.serializer.dumps(packet)
    serialized = trace.now()
    frames = [envelope(codec, {}), *compress(codec.compressor, frames)]
    trace.laps(ENCODE[2:], (began, serialized, trace.now()))
    return frames
