"""Lesson 03: put arrays on a wire."""

import contextlib
import socket
import struct
from threading import Thread
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import are_two, asks, case, conforms, raising, refuse_if, round_trip, trains
from minips.lab.course.questions import Option, question, sentence
from minips.testing.base import described

question(
    "03.1",
    "40 000 bytes of float32 numbers: how long is the JSON text?",
    Option("about 40 000 bytes", lambda TODO: False, "TODO"),
    Option("about 80 000 bytes", lambda TODO: False, "TODO"),
    Option(
        "more than 160 000 bytes",
        lambda TODO: False,
        "tolist() makes Python floats of 64 bits, and JSON writes as many digits as those need: about 17, "
        "with a sign, a point, an exponent, a comma and a space.",
    ),
    expected="more than 160 000 bytes",
    otherwise="TODO",
    telling=[],
)

question(
    "03.2",
    "Somebody sends the careful server a pickle in which W is no array. What is the worst that can happen?",
    Option("loads raises an error, and the message is dropped", lambda TODO: False, "TODO"),
    Option("the check finds out, and the message is dropped", lambda TODO: False, "TODO"),
    Option(
        "a program of the sender's choice runs on the server",
        lambda TODO: False,
        "A pickle is not data but a small program, and one of its instructions is: call this function. No "
        "check after loads can help, because loads is where it runs. This one only said hello. It could have "
        "read your keys.",
    ),
    expected="a program of the sender's choice runs on the server",
    otherwise="TODO",
    telling=[],
)

sentence(
    "03.1",
    "JSON makes {json:.1f} times the bytes of the array, a list in msgpack {list:.1f} times, pickle "
    "{pickle:.3f} times.",
    expect="json > 4 and list > 2 and pickle < 1.01",
)

sentence("03.2", "There and back, JSON takes {times:.0f} times as long as raw bytes.", expect="times > 20", timed=True)

sentence(
    "03.3",
    "There and back costs {msgpack:.0f} copies of this small array with MessagePack and {json:,.0f} with JSON.",
    expect="json > 10 * msgpack",
    timed=True,
)

sentence(
    "03.4",
    "JSON sends {ratio:.1f} times the bytes. Serializing takes {more:.0f} times as long, deserializing "
    "{back:.0f} times.",
    expect="ratio > 3 and more > 5",
    timed=True,
)

sentence("03.5", "With JSON the longest spans are {spans}, in this order.")


DTYPES = ["float32", "float64", "float16", "int8", "int32", "uint64", "bool"]
HEADER, PATIENCE_S = 64, 5.0


@asks(
    "03.1",
    "array.dtype.str is a short text that says everything about a value, such as '<f4'. The shape is a few integers.",
    "The header has no fixed length, so it must begin with what says how long it is: one byte for the dtype's length, "
    "one for the number of dimensions.",
    "np.frombuffer(…).reshape(shape) raises ValueError where values are lacking. struct.error you must turn into one.",
)
def header(pair: Any, rng: np.random.Generator) -> str:
    """Write any array of numbers as bytes and read it back, with a header of at most 64 bytes."""
    are_two(pair, "pack", "unpack")
    pack, unpack = pair
    shapes: list[tuple[int, ...]] = [(int(rng.integers(2, 9)),), (), (0,), (3, 0, 2), (1, 1)]
    shapes += [tuple(rng.integers(1, 6, ndim).tolist()) for ndim in (2, 3, 4)]
    dtypes = ["float64", *rng.choice(DTYPES, 2 * len(shapes) - 1).tolist()]
    square = rng.normal(size=(6, 4)).astype("f4")
    arrays = [np.asarray(100 * rng.normal(size=shape)) for shape in [*shapes, *shapes]]
    drawn = [array.astype(dtype) for array, dtype in zip(arrays, dtypes, strict=True)]
    for array in [*drawn, square[::2, 1:], square.T]:
        with case(f"For {described(array)}:"):
            more = round_trip(pair, "pack", array) - array.nbytes
            refuse_if(more > HEADER, f"the header has {more} bytes; at most {HEADER} are asked for.")
    whole = bytes(pack(square))
    for left in {0, 1, 3, len(whole) - 1, *rng.integers(0, len(whole) - 1, 20).tolist()}:
        with case(f"{len(whole)} bytes of {described(square)}, cut to {left}:"), raising(ValueError):
            unpack(whole[:left])
    return "Every dtype and shape came back to the bit, and what was cut short was refused."


@asks(
    "03.2",
    "recv(n) returns between 1 and n bytes, or b'' at the end of the stream. Ask again for what is still lacking.",
    "Write a helper read(connection, count) that loops until it has count bytes. Use it twice.",
    "Each turn of the loop asks for what is lacking, raises ConnectionError where nothing came, and appends.",
)
def receive(function: Any, rng: np.random.Generator) -> str:
    """Read one message from a stream, in whatever pieces it arrives."""
    refuse_if(not callable(function), f"Expected the function receive(connection), got {function!r}.")
    for _ in range(5):
        sent = [rng.bytes(int(n)) for n in (rng.integers(1, 40), 0, rng.integers(100, 300_000), 5)]
        stream = b"".join(struct.pack("<I", len(one)) + one for one in sent)
        cuts = np.sort(rng.integers(1, len(stream), 12))
        pieces = [stream[:1], *(stream[a:b] for a, b in zip([1, *cuts], [*cuts, len(stream)], strict=True))]
        with case(f"Of messages of {[len(one) for one in sent]} bytes in {len(pieces)} pieces"):
            received = _received(function, pieces, len(sent))
            for number, (got, wanted) in enumerate(zip(received, sent, strict=True)):
                with case(f"number {number}:"):
                    refuse_if(not isinstance(got, bytes | bytearray), f"expected bytes, got {type(got).__name__}.")
                    refuse_if(bytes(got) != wanted, f"{len(got)} bytes came, expected {len(wanted)}.")
    ends = {}
    for whole, part in ((10, 4), (10, 0), (200_000, 150_000)):
        ends[f"after {part} of a message's {whole} bytes"] = struct.pack("<I", whole) + bytes(part)
    for where, stream in (*ends.items(), ("within the length", b"\x05\x00")):
        with case(f"A stream that ends {where}:"), raising(ConnectionError):
            _received(function, [stream], 1)
    return "Twenty messages in pieces, and four streams that ended too early."


def _received(function: Any, pieces: list[bytes], count: int) -> list[Any]:
    """The results of ``function``, called ``count`` times on a connection that brings these pieces and ends."""
    ours, theirs = socket.socketpair()

    def send() -> None:
        with theirs, contextlib.suppress(OSError):  # the reader may leave early
            theirs.settimeout(PATIENCE_S)
            for piece in pieces:
                theirs.sendall(piece)

    with ours:
        ours.settimeout(PATIENCE_S)
        sender = Thread(target=send)
        sender.start()
        try:
            return [function(_Dribble(ours)) for _ in range(count)]
        finally:
            ours.close()
            sender.join(PATIENCE_S)


class _Dribble:
    """A socket of which each ``recv`` brings little: what a slow network does."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._ended = connection, 0

    def recv(self, count: int, *flags: int) -> bytes:
        piece = self._connection.recv(min(count, 3 if count < 100 else 50_000), *flags)
        self._ended += count > 0 and not piece
        if self._ended > 20:
            raise TimeoutError("The end of the stream was read again and again.")
        return piece

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


@asks(
    "03.3",
    "dumps returns a list: the first frame is your header, then comes one frame for each array.",
    "x.reshape(-1).view(np.uint8).data is the memory of an array as bytes, and no copy of it.",
    "In loads, rest = iter(frames[1:]), and next(rest) for each part in the order in which you wrote them.",
)
def serializer(mine: Any, rng: np.random.Generator) -> str:
    """Write a serializer whose arrays travel as frames of their own, uncopied, at most a tenth larger than they are."""
    conforms(mine, ps.Serializer, "Mine()")
    for _ in range(4):
        shape = (int(rng.integers(300, 900)), int(rng.integers(3, 9)))
        values = rng.normal(size=shape).astype(str(rng.choice(["float32", "float64"])))
        indices = rng.integers(0, 9, int(rng.integers(2000, 5000)))
        parts = {"values": values, "indices": indices}
        with case(f"{described(values)} and {described(indices)}"):
            frames = mine.dumps(ps.Packet({"kind": "push", "clock": int(rng.integers(99))}, {"W": ("topk", parts)}))
            ratio = sum(map(len, frames)) / (values.nbytes + indices.nbytes)
            refuse_if(ratio > 1.1, f"became {ratio:.2f} times as many bytes; at most 1.10 is asked for.")
            for name, array in parts.items():
                view = any(len(one) and np.shares_memory(np.frombuffer(one, np.uint8), array) for one in frames)
                refuse_if(not view, f"have no frame that is the memory of {name!r}; it was copied.")
    trains(ps.Codec(serializer=mine), rng)
    return "It keeps the contract, copies nothing, and two spawned workers trained with it."
