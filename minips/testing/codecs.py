"""The contracts of the codec's stages other than the quantizer: memories, serializers and compressors."""

import copy
import math
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from typing import Any, ClassVar

import numpy as np

from minips.stage import Array, Buffer, Frames
from minips.stages.compressors import Compressor
from minips.stages.memories import Memory
from minips.stages.quantizers import QSGD, Exact, Parts, Quantizer, TopK, Uniform
from minips.stages.serializers import Packet, Serializer
from minips.testing.base import (
    described,
    doing,
    failing_only_with,
    refusing,
    require,
    same_bits,
    strictly,
    unwritable,
)
from minips.testing.receivers import Receiver, receivers
from minips.testing.stages import check_stage

HEADER = {
    "nothing": None,
    "truths": [True, False],
    "integers": [0, -1, 255, 2**31, 2**63 - 1, -(2**63)],
    "floats": [0.0, -0.0, 0.1, 1e-300, 1.0, math.inf, -math.inf, math.nan],
    "text": ["", "plain", "γ ∇ 🙂", 'quote " and \n line'],
    "nested": {"list": [[], [1, [2.5, None]]], "dict": {"empty": {}, "deep": {"a": {"b": "c"}}}},
}
INTEGERS = [f"{kind}{bits}" for kind in ("uint", "int") for bits in (8, 16, 32, 64)]
DTYPES = ["float16", "float32", "float64", "bool", *INTEGERS]
SHAPES: list[tuple[int, ...]] = [(), (0,), (0, 3, 5), (1,), (7,), (2, 3, 4)]
BOMB_BYTES, BOMB_LIMIT = 10_000_000, 1000


def check_memory(memory: Memory) -> None:
    """Check a memory's contract, for example that it keeps everything in the state that is passed to it."""
    check_stage(memory)
    rng = np.random.default_rng(3)
    for dtype in (np.float32, np.float64):
        for shape in [(0,), (), (7,), (3, 5)]:
            xs = [np.asarray(rng.standard_normal(shape), dtype) for _ in range(5)]
            with strictly(f"{memory!r} with {described(xs[0])}"):
                _check_state(memory, xs)
                if memory.restores:
                    _check_halves(memory, xs)


def _check_state(memory: Memory, xs: list[Array]) -> None:
    """Compare one link with another that resumes from copies of its states, while a third sends a different tensor."""
    for quantizer in (TopK(fraction=0.5), Exact()):
        link, again, stranger = (_Link(memory, quantizer) for _ in range(3))
        first = [link.send(x) for x in xs]
        for step, (x, results) in enumerate(zip(xs, first, strict=True)):
            stranger.send(np.ones((2, 2), x.dtype))
            again.resume()
            same = all(map(same_bits, results, again.send(x)))
            require(same, f"step {step}: a fresh state gives another result; keep everything in the state.")


class _Link:
    """The sender of one tensor, and receivers that do not know the sender's fields."""

    def __init__(self, memory: Memory, quantizer: Quantizer) -> None:
        self.memory, self.quantizer = memory, quantizer
        self.ours = dict[str, Array]()
        self.receivers = [(other, dict[str, Array]()) for other in receivers(memory)]

    def resume(self) -> None:
        """Continue from copies of all states, as a resumed run does."""
        self.ours = copy.deepcopy(self.ours)
        self.receivers = [(other, copy.deepcopy(theirs)) for other, theirs in self.receivers]

    def send(self, x: Array) -> tuple[Array, Array]:
        """Quantize and send one array. Return the quantized array, and the array that the receivers restored."""
        before = x.copy()
        p = self.memory.compensate(unwritable(x), self.ours)
        _check_like(p, x, "compensate")
        sent = self.quantizer.decode(self.quantizer.encode(unwritable(p), None))
        meant = p.copy()
        self.memory.update(unwritable(p), unwritable(sent), self.ours)
        _check_state_is_new(self.ours, x, sent)
        restored = [self._restore(other, unwritable(sent), theirs) for other, theirs in self.receivers]
        require(same_bits(x, before), "the gradient was changed.")
        for (other, _), y in zip(self.receivers, restored, strict=True):
            said = f"restore reads the memory's own fields: {other.stage!r}, a receiver with {other.fields}, restores"
            require(same_bits(y, restored[0]), f"{said} other values.")
        self._check_stateless(meant, x, restored[0], sent)
        for state in (self.ours, *(theirs for _, theirs in self.receivers)):  # a failed push returns to these
            state |= {name: unwritable(np.asarray(remembered)) for name, remembered in state.items()}
        return meant, restored[0]

    def _restore(self, other: Receiver, sent: Array, theirs: dict[str, Array]) -> Array:
        y = other.stage.restore(sent, theirs)
        _check_like(y, sent, "restore")
        _check_state_is_new(theirs, sent)
        return np.array(y)

    def _check_stateless(self, p: Array, x: Array, y: Array, sent: Array) -> None:
        if self.memory.stateless:
            kept = [*self.ours, *(name for _, theirs in self.receivers for name in theirs)]
            require(not kept, f"it is marked stateless but wrote {kept}.")
            require(same_bits(p, x), "it is marked stateless but changed the array to send.")
            require(same_bits(y, sent), "it is marked stateless but changed the received array.")


def _check_state_is_new(state: dict[str, Array], *others: Array) -> None:
    """Check that the state contains none of the caller's arrays, since the caller may overwrite those arrays later."""
    for name, remembered in state.items():
        is_array = isinstance(remembered, np.ndarray | np.generic)
        require(is_array, f"the state keeps a {type(remembered).__name__} as {name!r}, not an array.")
        shared = any(np.may_share_memory(remembered, other) for other in others)
        require(not shared, f"the state keeps, as {name!r}, an array that belongs to the caller; keep a copy.")


def _check_halves(memory: Memory, xs: list[Array]) -> None:
    """Check that a sender whose receiver also keeps state always knows the receiver's array to the bit.

    On a new connection, both sides start again with empty states. The receiver is a fresh instance with
    default fields, and may write into the arrays that it receives.
    """
    rng, receiver = np.random.default_rng(7), type(memory)()
    for quantizer in (TopK(fraction=0.5), Uniform(bits=2), QSGD()):
        for connection in range(2):
            ours, theirs = dict[str, Array](), dict[str, Array]()
            for step in range(50):
                x = np.asarray(xs[step % len(xs)] + step, xs[0].dtype)
                p = memory.compensate(unwritable(x), ours)
                sent = quantizer.decode(quantizer.encode(p, rng))
                memory.update(unwritable(p), unwritable(sent), ours)
                y = receiver.restore(unwritable(sent), theirs)
                when = f"{quantizer!r}, connection {connection}, step {step}"
                known = any(same_bits(held, y) for held in ours.values())
                require(known, f"{when}: the receiver restored an array that is not in the sender's state, to the bit.")
                if y.flags.writeable:
                    y[...] = 7


def _check_like(y: Any, x: Array, what: str) -> None:
    require(isinstance(y, np.ndarray), f"{what} returned a {type(y).__name__}, not an array; np.asarray makes one.")
    require(
        (y.shape, y.dtype) == (x.shape, x.dtype), f"{what} returned {y.dtype} of shape {y.shape} for {described(x)}."
    )
    require(np.isfinite(y).all(), f"{what} returned NaN or infinity.")


def check_serializer(serializer: Serializer) -> None:
    """Check a serializer's contract: it restores packets to the bit, and malformed packets raise ValueError."""
    check_stage(serializer)
    dumped = []
    for name, packet in packets():
        with strictly(f"{serializer!r} with {name}"):
            before = copy.deepcopy(packet)
            frames = serializer.dumps(packet)
            _check_frames(frames)
            with doing("dumps changed the packet"):
                _check_same_packet(packet, before)
            dumped.append((name, before, frames, [bytes(frame) for frame in frames]))
    others = receivers(serializer)
    for name, packet, frames, contents in dumped:
        with strictly(f"{serializer!r} with {name}, after others were dumped"):
            require([*map(bytes, frames)] == contents, "a later dumps wrote into the frames of an earlier one.")
            for kind in (bytes, bytearray, memoryview):
                with strictly(f"out of {kind.__name__}"):
                    _check_same_packet(serializer.loads([kind(frame) for frame in contents]), packet)
            for other in others:
                what = f"loads reads the serializer's own fields. One with {other.fields}, {other.stage!r}"
                with doing(what):
                    _check_same_packet(other.stage.loads([*contents]), packet)
    _check_malformed(serializer)
    _check_trusted(serializer)


def packets() -> Iterator[tuple[str, Packet]]:
    """Yield named packets: headers with every kind of plain value, and parts of all dtypes and shapes."""
    yield "an empty packet", Packet({}, {})
    yield "a header of every plain value", Packet(copy.deepcopy(HEADER), {})
    rng = np.random.default_rng(4)
    for dtype in DTYPES:
        shaped: Parts = {str(shape): np.asarray(100 * rng.random(shape)).astype(dtype) for shape in SHAPES}
        yield f"parts of {dtype}", Packet({"kind": "push"}, {"w": ("exact", shaped)})
    square = rng.standard_normal((6, 8))
    views = {"strided": square[::2, ::3], "transposed": square.T, "reversed": square[::-1]}
    yield "parts that are not contiguous", Packet({}, {"w": ("exact", views)})
    special = np.array([0.0, -0.0, 0.1, 1e-310, np.pi, 1.7e308])
    yield "doubles with every digit", Packet({}, {"w": ("exact", {"values": special})})
    parts: Parts = {"values": square[0], "indices": np.arange(8)}
    several = {name: ("topk", parts) for name in ("w", "layer/0.b", "γ")}
    yield "several tensors", Packet({}, several)


def _check_frames(frames: Frames) -> None:
    require(isinstance(frames, list), f"dumps returned a {type(frames).__name__}, not a list of frames.")
    for frame in frames:
        plain = isinstance(frame, bytes | bytearray | memoryview)
        require(plain, f"a frame is a {type(frame).__name__}, not bytes, a bytearray or a memoryview.")
        require(memoryview(frame).nbytes == len(frame), "a frame's len differs from its bytes; cast it to bytes ('B').")


def _check_same_packet(got: Packet, sent: Packet) -> None:
    for key in {**sent.header, **got.header}:
        alike = same_plain(got.header.get(key), sent.header.get(key))
        require(alike, f"the header's {key!r} was {sent.header.get(key)!r} and became {got.header.get(key)!r}.")
    require(list(got.tensors) == list(sent.tensors), f"the tensors are {list(got.tensors)}.")
    for name, (quantizer, parts) in sent.tensors.items():
        require(got.tensors[name][0] == quantizer, f"the quantizer of {name!r} is {got.tensors[name][0]!r}.")
        back = got.tensors[name][1]
        require(sorted(back) == sorted(parts), f"the parts of {name!r} are {sorted(back)}.")
        for part, array in parts.items():
            alike = isinstance(back[part], np.ndarray) and same_bits(back[part], array)
            now = described(np.asarray(back[part]))
            require(alike, f"the part {part!r} was {described(array)} and became {now}.")


def same_plain(a: Any, b: Any) -> bool:
    """Return True for equal plain values of equal types: 1 is neither 1.0 nor True, −0.0 is not 0.0, and NaN is NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return set(a) == set(b) and all(same_plain(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same_plain, a, b))
    return repr(a) == repr(b) if isinstance(a, float) else bool(a == b)


def _check_malformed(serializer: Serializer) -> None:
    """Check that shortened frames raise ValueError, and that garbled frames raise ValueError or no error."""
    arrays: Parts = {"values": np.arange(5, dtype=np.float32), "codes": np.arange(7, dtype=np.uint8)}
    packet = Packet({"kind": "push", "loss": 0.5}, {"w": ("topk", arrays), "b": ("topk", arrays)})
    whole = [bytes(frame) for frame in serializer.dumps(packet)]
    for how, cut in shortened_frames(whole):
        with refusing(f"{serializer!r}, loads with {how}", ValueError):
            serializer.loads(cut)
    for how, frames in garbled_frames(whole):
        with failing_only_with(ValueError, f"{serializer!r}, loads with {how}"):
            got = serializer.loads(frames)
            require(isinstance(got, Packet), f"it returned a {type(got).__name__}.")


class _Trap:
    """Detects a format that runs code when it reads a message: `pickle` uses ``__reduce__``, ``eval`` the repr."""

    sprung: ClassVar[list[bool]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        return spring, ()

    def __repr__(self) -> str:
        return f"__import__({__name__!r}, fromlist=['spring']).spring()"


def spring() -> None:
    """Record that a message has run code."""
    _Trap.sprung.append(True)


def _check_trusted(serializer: Serializer) -> None:
    """Check that a serializer sets ``trusted_only`` if its reader can run code."""
    _Trap.sprung.clear()
    with suppress(Exception):
        serializer.loads([bytes(frame) for frame in serializer.dumps(Packet({"trap": _Trap()}, {}))])
    safe = serializer.trusted_only or not _Trap.sprung
    require(safe, f"{serializer!r}: loads ran code from the frames. Use another format, or set trusted_only.")


def shortened_frames(frames: list[bytes]) -> Iterator[tuple[str, Frames]]:
    """Yield the frames with some bytes missing."""
    yield "no frames", []
    for i, frame in enumerate(frames):
        yield f"frame {i} of {len(frames)} missing", [*frames[:i], *frames[i + 1 :]]
        for left in {0, len(frame) // 2, len(frame) - 1} if frame else set():
            yield f"frame {i} of {len(frames)} cut to {left} bytes", [*frames[:i], frame[:left], *frames[i + 1 :]]


def garbled_frames(frames: list[bytes]) -> Iterator[tuple[str, Frames]]:
    """Yield the frames with some bytes replaced."""
    rng = np.random.default_rng(5)
    yield "its frames in reverse", [*reversed(frames)]
    for length in (1, 2, 10, 100, 1000):
        for _ in range(10):
            yield f"{length} random bytes", [rng.bytes(length), *frames[1:]]
    for fill in (b"\x00", b"\xff", b"[", b"\x93", b"\x80"):
        yield f"{fill!r} over and over", [fill * 100]
    for plain in (b"null", b"[]", b"{}", b"[{}, 1]", b"[{}, [[1]]]", b'[{}, [["w", "exact", [["v", "O", [1], [1]]]]]]'):
        yield plain.decode(), [plain]


def check_compressor(compressor: Compressor) -> None:
    """Check a compressor's contract: it restores the bytes, keeps to the limit, and damage raises ValueError."""
    check_stage(compressor)
    packed = []
    for name, data in buffers():
        with strictly(f"{compressor!r} with {name}"):
            before = bytes(data)
            small = _plain(compressor.compress(data), "compress")
            require(bytes(data) == before, "compress changed its input.")
            same = not compressor.identity or bytes(small) == before
            require(same, "identity is True, but compress returns other bytes; the codec would skip the stage.")
            packed.append((name, before, small, bytes(small)))
    others = receivers(compressor)
    for name, data, small, content in packed:
        with strictly(f"{compressor!r} with {name}, after others were compressed"):
            require(bytes(small) == content, "a later compress wrote into the bytes of an earlier one.")
            _check_decompressed(compressor, others, data, content)
    _check_bomb(compressor)
    _check_damaged(compressor)


def _check_decompressed(compressor: Compressor, others: list[Receiver], data: bytes, packed: bytes) -> None:
    for arrived in (packed, bytearray(packed), memoryview(packed)):
        back = bytes(_plain(compressor.decompress(arrived, len(data)), "decompress"))
        require(back == data, f"{len(data)} bytes came back as {len(back)} other bytes.")
    for other in others:
        what = f"decompress reads the compressor's own fields. By one with {other.fields}, {other.stage!r}"
        with doing(what):
            require(bytes(other.stage.decompress(packed, len(data))) == data, "other bytes came back.")
    if data:
        with refusing("a limit that is one byte too small", ValueError):
            compressor.decompress(packed, len(data) - 1)


def _plain(buffer: Any, what: str) -> Any:
    plain = isinstance(buffer, bytes | bytearray | memoryview)
    require(plain, f"{what} returned a {type(buffer).__name__}, not bytes, a bytearray or a memoryview.")
    return buffer


def _check_bomb(compressor: Compressor) -> None:
    """Check that a bomb (a few bytes that would expand to many) is refused before it fills the memory."""
    what = f"{compressor!r}, a bomb of {BOMB_BYTES} zeros with a limit of {BOMB_LIMIT} bytes"
    bomb, small = (bytes(compressor.compress(bytes(size))) for size in (BOMB_BYTES, BOMB_LIMIT))
    usual = _peak(lambda: compressor.decompress(small, BOMB_LIMIT))  # the memory that the library itself needs

    def refused() -> None:
        with refusing(what, ValueError):
            compressor.decompress(bomb, BOMB_LIMIT)

    took = _peak(refused) - usual
    require(took < BOMB_BYTES, f"{what}: it is refused, but only after {took} bytes were made; stop at the limit.")


def _peak(call: Callable[[], object]) -> int:
    """Return the peak memory, in bytes, that a call allocates through Python."""
    tracing = tracemalloc.is_tracing()
    if not tracing:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        if not tracing:
            tracemalloc.stop()


def buffers() -> Iterator[tuple[str, Buffer]]:
    """Yield named data to compress: empty, short, repetitive and random, in every kind of buffer."""
    rng = np.random.default_rng(6)
    yield "nothing", b""
    yield "one byte", b"a"
    yield "three bytes", b"abc"
    yield "100 kB of zeros", bytes(100_000)
    yield "100 kB at random", rng.bytes(100_000)
    yield "text", b"the quick brown fox jumps over the lazy dog " * 50
    yield "a bytearray", bytearray(rng.bytes(1000))
    yield "the memory of an array", rng.standard_normal(1000).view(np.uint8).data
    yield "memory that is read only", memoryview(bytes(range(256)) * 4)


def _check_damaged(compressor: Compressor) -> None:
    data, rng = b"the quick brown fox jumps over the lazy dog " * 50, np.random.default_rng(7)
    packed, limit = bytes(compressor.compress(data)), 10 * len(data)
    for left in (0, 1, 3, len(packed) // 2, len(packed) - 1):
        what = f"{compressor!r}, {len(packed)} compressed bytes cut to {left}"
        with nullcontext() if packed == data else refusing(what, ValueError):  # uncompressed bytes hide a cut
            compressor.decompress(packed[:left], limit)
    for _ in range(50):
        flipped = bytearray(packed)
        position, flip = int(rng.integers(len(flipped))), int(rng.integers(1, 256))
        flipped[position] ^= flip
        for how, wrong in ((f"byte {position} flipped", flipped), ("random bytes", rng.bytes(50))):
            with failing_only_with(ValueError, f"{compressor!r}, decompress with {how}"):
                got = compressor.decompress(wrong, limit)
                require(len(got) <= limit, f"{len(got)} bytes, the limit is {limit}.")
