"""The contracts of the stages around a quantizer: memories, serializers and compressors."""

import math
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np

from minips.stage import Array, Buffer, Frames
from minips.stages.compressors import Compressor
from minips.stages.memories import Memory
from minips.stages.quantizers import QSGD, Parts, TopK, Uniform
from minips.stages.serializers import Packet, Serializer
from minips.testing.base import described, failing_only_with, refusing, require, same_bits, strictly, unwritable
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
    """Check a memory against its contract: all that it remembers is in the state it is given."""
    check_stage(memory)
    rng = np.random.default_rng(3)
    for dtype in (np.float32, np.float64):
        for shape in [(0,), (), (7,), (3, 5)]:
            xs = [np.asarray(rng.standard_normal(shape), dtype) for _ in range(5)]
            with strictly(f"{memory!r} with {described(xs[0])}"):
                first, other = _remember(memory, xs), _remember(memory, xs)
                for step, (a, b) in enumerate(zip(first, other, strict=True)):
                    require(same_bits(a, b), f"step {step}: a fresh state gives another result; keep all in the state.")
                if memory.restores:
                    _check_halves(memory, xs)


def _check_halves(memory: Memory, xs: list[Array]) -> None:
    """A sender whose receiver remembers too knows what that one has, to the bit, for as long as both go on.

    A new connection is two empty states, so both start anew together. The receiver is a fresh instance with default
    fields, and may write into what it gets.
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
                require(known, f"{when}: the receiver restored what no entry of the sender's state is, to the bit.")
                if y.flags.writeable:
                    y[...] = 7


def _remember(memory: Memory, xs: list[Array]) -> list[Array]:
    """The arrays that one link sends and that its receiver restores, from fresh states."""
    ours, theirs = dict[str, Array](), dict[str, Array]()
    quantizer, results = TopK(fraction=0.5), []
    for x in xs:
        before = x.copy()
        p = memory.compensate(unwritable(x), ours)
        _check_like(p, x, "compensate")
        sent = quantizer.decode(quantizer.encode(unwritable(p), None))
        memory.update(unwritable(p), unwritable(sent), ours)
        y = type(memory)().restore(unwritable(sent), theirs)
        _check_like(y, x, "restore")
        require(same_bits(x, before), "the gradient was changed.")
        results += [p.copy(), y.copy()]
        for state in (ours, theirs):  # what a push that fails goes back to
            state |= {name: unwritable(remembered) for name, remembered in state.items()}
    if memory.stateless:
        require(not ours and not theirs, f"it is called stateless and wrote {list(ours) or list(theirs)}.")
        require(same_bits(p, xs[-1]), "it is called stateless and changed what is sent.")
        require(same_bits(y, sent), "it is called stateless and changed what came in.")
    return results


def _check_like(y: Any, x: Array, what: str) -> None:
    require(isinstance(y, np.ndarray), f"{what} gave a {type(y).__name__}, not an array; np.asarray makes one.")
    require((y.shape, y.dtype) == (x.shape, x.dtype), f"{what} gave {y.dtype} of shape {y.shape}.")


def check_serializer(serializer: Serializer) -> None:
    """Check a serializer against its contract: every packet back to the bit, and ValueError for anything malformed."""
    check_stage(serializer)
    for name, packet in packets():
        with strictly(f"{serializer!r} with {name}"):
            frames = serializer.dumps(packet)
            _check_frames(frames)
            for kind in (bytes, bytearray, memoryview):
                arrived: Frames = [kind(bytes(frame)) for frame in frames]
                with strictly(f"out of {kind.__name__}"):
                    _check_same_packet(serializer.loads(arrived), packet)
    _check_malformed(serializer)


def packets() -> Iterator[tuple[str, Packet]]:
    """Named packets: every plain value in the header, every dtype and shape among the parts."""
    yield "an empty packet", Packet({}, {})
    yield "a header of every plain value", Packet(HEADER, {})
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
    require(isinstance(frames, list), f"dumps gave a {type(frames).__name__}, not a list of frames.")
    for frame in frames:
        plain = isinstance(frame, bytes | bytearray | memoryview)
        require(plain, f"a frame is a {type(frame).__name__}, not bytes, a bytearray or a memoryview.")
        require(memoryview(frame).nbytes == len(frame), "a frame's len is not its bytes; cast it to bytes ('B').")


def _check_same_packet(got: Packet, sent: Packet) -> None:
    for key in {**sent.header, **got.header}:
        alike = same_plain(got.header.get(key), sent.header.get(key))
        require(alike, f"the header's {key!r} was {sent.header.get(key)!r} and is {got.header.get(key)!r}.")
    require(list(got.tensors) == list(sent.tensors), f"the tensors are {list(got.tensors)}.")
    for name, (quantizer, parts) in sent.tensors.items():
        require(got.tensors[name][0] == quantizer, f"the quantizer of {name!r} is {got.tensors[name][0]!r}.")
        back = got.tensors[name][1]
        require(sorted(back) == sorted(parts), f"the parts of {name!r} are {sorted(back)}.")
        for part, array in parts.items():
            alike = isinstance(back[part], np.ndarray) and same_bits(back[part], array)
            now = described(np.asarray(back[part]))
            require(alike, f"the part {part!r} was {described(array)} and is {now}.")


def same_plain(a: Any, b: Any) -> bool:
    """Equal plain values of equal types: 1 is neither 1.0 nor True, −0.0 is not 0.0, and NaN is NaN."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return set(a) == set(b) and all(same_plain(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same_plain, a, b))
    return repr(a) == repr(b) if isinstance(a, float) else bool(a == b)


def _check_malformed(serializer: Serializer) -> None:
    """Frames come from the network: what is cut short is refused, and nothing raises anything but ValueError."""
    arrays: Parts = {"values": np.arange(5, dtype=np.float32), "codes": np.arange(7, dtype=np.uint8)}
    packet = Packet({"kind": "push", "loss": 0.5}, {"w": ("topk", arrays), "b": ("topk", arrays)})
    whole = [bytes(frame) for frame in serializer.dumps(packet)]
    for how, cut in shortened(whole):
        with refusing(f"{serializer!r}, loads with {how}", ValueError):
            serializer.loads(cut)
    for how, frames in garbled(whole):
        with failing_only_with(ValueError, f"{serializer!r}, loads with {how}"):
            got = serializer.loads(frames)
            require(isinstance(got, Packet), f"it gave a {type(got).__name__}.")


def shortened(frames: list[bytes]) -> Iterator[tuple[str, Frames]]:
    """The frames with some of their bytes gone."""
    yield "no frames", []
    for i, frame in enumerate(frames):
        yield f"frame {i} of {len(frames)} missing", [*frames[:i], *frames[i + 1 :]]
        for left in {0, len(frame) // 2, len(frame) - 1} if frame else set():
            yield f"frame {i} of {len(frames)} cut to {left} bytes", [*frames[:i], frame[:left], *frames[i + 1 :]]


def garbled(frames: list[bytes]) -> Iterator[tuple[str, Frames]]:
    """Frames with other bytes in them."""
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
    """Check a compressor against its contract: the bytes back, never more than the limit, ValueError for damage."""
    check_stage(compressor)
    for name, data in buffers():
        what = f"{compressor!r} with {name}"
        with strictly(what):
            packed = bytes(compressor.compress(data))
            for arrived in (packed, bytearray(packed), memoryview(packed)):
                back = bytes(compressor.decompress(arrived, len(data)))
                require(back == bytes(data), f"{len(data)} bytes came back as {len(back)} other bytes.")
        if len(data):
            with refusing(f"{what}, and a limit that is one byte too small", ValueError):
                compressor.decompress(packed, len(data) - 1)
    bomb = compressor.compress(bytes(BOMB_BYTES))
    with refusing(f"{compressor!r}, a bomb of {BOMB_BYTES} zeros with a limit of {BOMB_LIMIT} bytes", ValueError):
        compressor.decompress(bomb, BOMB_LIMIT)
    _check_damaged(compressor)


def buffers() -> Iterator[tuple[str, Buffer]]:
    """Named bytes to compress: none, few, dull and random ones, in every kind of buffer."""
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
        with nullcontext() if packed == data else refusing(what, ValueError):  # what did not compress cannot know
            compressor.decompress(packed[:left], limit)
    for _ in range(50):
        flipped = bytearray(packed)
        position, flip = int(rng.integers(len(flipped))), int(rng.integers(1, 256))
        flipped[position] ^= flip
        for how, wrong in ((f"byte {position} flipped", flipped), ("random bytes", rng.bytes(50))):
            with failing_only_with(ValueError, f"{compressor!r}, decompress with {how}"):
                got = compressor.decompress(wrong, limit)
                require(len(got) <= limit, f"{len(got)} bytes, the limit is {limit}.")
