"""Lesson 05: put arrays on a wire."""

import contextlib
import socket
import struct
from collections.abc import Callable
from threading import Thread
from typing import Any

import numpy as np

import minips as ps
from minips.lab.course.exercises import are_two, asks, case, conforms, raising, refuse_if, round_trip, trains
from minips.lab.course.questions import Expected, Option, card, question, sentence, timed_sentence
from minips.testing.base import described

question(
    "05.1",
    "40 000 bytes of float32 numbers: how long is the JSON text?",
    Option(
        "about 40 000 bytes",
        lambda ratio: 0.8 <= ratio <= 1.4,
        "Four characters are enough for most of these numbers: there are many zeros among them.",
    ),
    Option(
        "about 80 000 bytes",
        lambda ratio: 1.4 < ratio <= 2.8,
        "Seven or eight characters are enough for most of these numbers, a comma and a space included.",
    ),
    Expected(
        "more than 160 000 bytes",
        lambda ratio: ratio > 4,
        "tolist() makes Python floats of 64 bits, and JSON writes as many digits as those need: about 17. A point "
        "and a zero stand before them, often a sign, and a comma and a space follow.",
    ),
    otherwise="The length lies between two of the options.",
)


def _helps(a: bool, b: bool) -> Callable[..., bool]:
    """True where an honest array gets through both, and no command ran at the servers that help."""
    return lambda honest, ran_a, ran_b: (
        honest and all(ran == 0 if helps else ran > 0 for ran, helps in ((ran_a, a), (ran_b, b)))
    )


question(
    "05.2",
    "Strangers send pickles that are made to run a command. Which of the two servers lets no command run?",
    Option(
        "A and B",
        _helps(True, True),
        "The check came in time, and no function of numpy runs what a stranger asks for.",
    ),
    Option("A alone", _helps(True, False), "The check came in time, and some function of numpy runs other code."),
    Option(
        "B alone",
        _helps(False, True),
        "The command runs inside loads, so A's check comes too late. B finds no function that would run it.",
    ),
    Expected(
        "neither A nor B",
        _helps(False, False),
        "The command runs inside loads, so A's check comes too late: A refuses a message that has done its work. And "
        "numpy has functions that run any text as Python, such as numpy.testing.runstring. B lets them through.",
    ),
    otherwise="One of the servers refused an honest array, so it is of no use.",
)

sentence(
    "05.1",
    "JSON makes {json:.1f} times the bytes of the array, a list in msgpack {list:.1f} times, pickle "
    "{pickle:.3f} times.",
    expect="json > 4 and list > 2 and pickle < 1.01",
)

timed_sentence(
    "05.2",
    "There and back, JSON takes about {times:,.0f} times as long as raw bytes (seven repeats; half of them from "
    "{low:,.0f} to {high:,.0f}).",
    expect="low > 50",
)

timed_sentence(
    "05.3",
    "{name}: {times:.1f} times as long for 25 times the array (five repeats; half of them from {low:.1f} to "
    "{high:.1f}).",
    expect="times > 1.5 if copied else times < 4",
)

sentence("05.4", "JSON sends {ratio:.1f} times the bytes.", expect="ratio > 3")

sentence("05.5", "With JSON the longest spans are {spans}, in this order.")

sentence(
    "05.6",
    "Of the {values:,} values of W, {nine:.1%} come back from 9 digits, and {eight:.1%} from 8.",
    expect="eight < nine == 1",
)

sentence(
    "05.7",
    "The array has {array:,} bytes. The text is {text:.2f} times as long, and what was packed and compressed is "
    "{compressed:.3f} times as long.",
    expect="text > 2 and compressed > 1",
)

sentence(
    "05.8",
    "MessagePack makes {packed:,} bytes of the {array:,}, and LZ4 adds {added} to them.",
    expect="packed > 1.1 * array and 0 < added < 100",
)

sentence(
    "05.9",
    "The second frame lies in the array's own memory: {shared}. It changed with the array: {changed}.",
    expect="shared and changed",
)

timed_sentence(
    "05.10",
    "One message was sent. It arrived in {pieces} pieces, the largest of {most:.1f} MB.",
    expect="pieces > 1",
)

sentence(
    "05.11",
    "Server C lets {names} through. It accepts an honest array: {honest}. Commands that ran: {ran}.",
    expect="honest and ran == 0",
)

sentence(
    "05.12",
    "np.load: {said}. np.load with allow_pickle=True: {got}.",
    expect="said == 'refused' and 'shell' in got",
)

sentence(
    "05.13",
    "The server answers: {answer} Its parameters moved by {moved:g}.",
    expect="'names msgpack' in answer and moved == 0",
)

sentence(
    "05.14",
    "JSON adds {json:,} bytes to the array, each of the others at most {most:,}.",
    expect="most < 400 and json > 120_000",
)

sentence("05.15", "The array is not copied by {names}.", expect="names == 'msgpack, npy, pickle'")

sentence(
    "05.16",
    "The parameters of the two runs differ by {far:g}. A serializer changes the cost, not the result.",
    expect="far == 0",
)

timed_sentence(
    "05.17",
    "{name}: {times:,.0f} times as long with JSON as the median with MessagePack (the median of {spans} spans; half of "
    "them from {low:,.0f} to {high:,.0f} times).",
    expect="low > 10",
)

timed_sentence(
    "05.18",
    "After {name} the gradient takes {times:.1f} times as long as right after another one (thirty repeats; half of "
    "them from {low:.1f} to {high:.1f}).",
    expect="times > 1.1",
)

card(
    "05.19",
    "What is loaded lies in the memory of the array: {shared}. The pickle has {small} bytes for 40 kB and {large} for "
    "2 MB.",
    expect="shared and large - small <= 16",
)

sentence(
    "05.20",
    "A server and four workers spoke your format. Their parameters and those of MessagePack differ by {far:g}.",
    expect="far == 0",
)


DTYPES = ["float32", "float64", "float16", "int8", "int32", "uint64", "bool"]
HEADER, PATIENCE_S = 64, 5.0


@asks(
    "05.1",
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
    "05.2",
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
    "05.3",
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
