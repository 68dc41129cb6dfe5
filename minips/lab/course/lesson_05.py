"""Lesson 05: put arrays on a wire."""

import contextlib
import pickle
import socket
import struct
from threading import Thread
from typing import Any

import numpy as np

from minips.lab.course import own
from minips.lab.course.exercises import Refused, asks, case, raising, refuse_if
from minips.lab.course.questions import (
    Expected,
    Item,
    Option,
    card,
    prompt,
    question,
    quiz,
    sentence,
    timed_question,
    timed_sentence,
)
from minips.stage import Tensors
from minips.testing.base import described, same_bits

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

timed_question(
    "05.2",
    "An array 25 times as large: how many times as long do the two calls, dumps and loads, take together?",
    Option(
        "about 25 times",
        lambda times: times >= 12,
        "Each byte was copied or looked at, and that took most of the time for both arrays.",
    ),
    Option(
        "about 5 times",
        lambda times: 2.5 <= times < 12,
        "Part of the work grew with the array, and part did not: the header, and the calls of Python functions.",
    ),
    Expected(
        "less than 2.5 times",
        lambda times: times < 2.5,
        "dumps writes a header and hands out the memory of the array as it is. loads reads the header and makes an "
        "array over the bytes that came. Neither looks at the values, so their number hardly matters.",
    ),
    otherwise="The two times give no ratio.",
)

sentence(
    "05.1",
    "JSON makes {json:.1f} times the bytes of the array, a list in MessagePack {list:.1f} times, pickle "
    "{pickle:.3f} times.",
    expect="json > 4 and list > 2 and pickle < 1.01",
)

timed_sentence(
    "05.2",
    "For {size}, json takes about {times:,.0f} times as long there and back as msgpack with its raw frames (five "
    "repeats; half of them from {low:,.0f} to {high:,.0f}).",
    expect="low > 10",
)

sentence(
    "05.3",
    "The array has {array:,} bytes. The text is {text:.2f} times as long, and what was packed and compressed is "
    "{compressed:.3f} times as long.",
    expect="text > 2 and compressed > 1",
)

sentence(
    "05.4",
    "MessagePack makes {packed:,} bytes of the {array:,}, and LZ4 adds {added} to them.",
    expect="packed > 1.1 * array and 0 < added < 100",
)

sentence(
    "05.5",
    "The second frame lies in the array's own memory: {shared}. It changed with the array: {changed}.",
    expect="shared and changed",
)

sentence("05.6", "The array is not copied by {names}.", expect="names == 'msgpack, npy, pickle'")

sentence(
    "05.7",
    "With your pack the workers sent {ratio:.2f} times the bytes of the arrays, with pickle {pickle:.2f} times. The "
    "parameters of the two runs differ by {far:g}.",
    expect="far == 0",
)

timed_sentence(
    "05.8",
    "One message was sent. It arrived in {pieces} pieces, the largest of {most:.1f} MB.",
    expect="pieces > 1",
)

card(
    "05.9",
    "What is loaded lies in the memory of the array: {shared}. The pickle has {small} bytes for 40 kB and {large} for "
    "2 MB.",
    expect="shared and large - small <= 16",
)

prompt(
    "05.1",
    "Four workers send a gradient of 1 MB ten times a second, and you choose the format. Which one, by which numbers "
    "in the table? For which messages would you choose another one? Two sentences.",
    "I choose msgpack: it adds few bytes, copies nothing, and a large array takes hardly longer than a small one. "
    "For a few settings that people read and change I would choose JSON: its digits and its time do not matter there.",
)

quiz(
    "05",
    Item(
        "A receiver has the bytes of an array. What must the header tell it?",
        {
            "dtype with the order of its bytes, and shape": "The same bytes read as another dtype are other numbers, "
            "and no error tells you. The shape is not in the bytes either.",
            "the number of bytes alone": "The same number of bytes may be float32 or int32 values, in one row or ten.",
            "the largest and the smallest value": "Once dtype and shape are known, the bytes give every value.",
        },
    ),
    Item(
        "Why is JSON so long for a float32 array?",
        {
            "it writes each number in decimal digits, as many as a float64 needs": "tolist() makes Python floats, and "
            "about 17 digits bring such a float back exactly.",
            "it adds the dtype and the shape to each number": "It adds neither: a list of lists has its shape, and "
            "all numbers are written alike.",
            "it pads each number with zeros to the width of the longest": "It writes no more "
            "digits than are needed. Zero is short.",
        },
    ),
    Item(
        "A program prints the length of a list's text as the original size. What is the fair original of an array?",
        {
            "the array's nbytes": "The values times the bytes of one: that is what would be sent without any format.",
            "the length of the text": "Nobody would send the text. Beside a long text any size looks small.",
            "the length of its pickle": "A pickle holds the array and a header. It is one of the formats to compare.",
        },
    ),
    Item(
        "Why is a list of floats in MessagePack longer than the array of the same numbers?",
        {
            "each number gets a byte that tells its type": "That makes 9 bytes for 8, or for a float32, which becomes "
            "a float64 in the list, 9 bytes for 4.",
            "each number is written in decimal digits": "JSON does that. MessagePack keeps a float's 8 bytes.",
            "each number gets the shape of the array": "The shape is nowhere in a list of plain numbers.",
        },
    ),
    Item(
        "The frame of an array is a view. What must you not do before it has been sent?",
        {
            "change the array in place": "The frame is the array's own memory, so the new values would travel.",
            "read the array": "Reading changes nothing.",
            "delete the array's name": "The view keeps the memory alive.",
        },
    ),
)

DTYPES = ["float64", "float16", "int8", "int32", "uint64", "bool"]
MORE = 64
"""Bytes that a message may add to its arrays, and as many for each of them."""
PATIENCE_S = 5.0


@asks(
    "05.1",
    "The dtype as text is array.dtype.str, such as '<f4'. With the shape, a list of integers, a vector's or any other "
    "one, the receiver knows all it needs. A small dictionary of these can be written as JSON.",
    "Vectors first: the header's length as 4 bytes, the header, then the bytes of each array in the header's order. "
    "unpack reads the length, then the header, and then goes on from array to array.",
    "np.frombuffer(data, dtype, count, offset) reads count values from offset on, and reshape gives them their shape. "
    "It raises ValueError where values are lacking; struct.error you must turn into one.",
)
def header(server: Any, rng: np.random.Generator) -> str:
    """Write named arrays as bytes and read them back: a small header, then the arrays' own bytes."""
    refuse_if(not isinstance(server, type), f"Expected your class Server, got {server!r}.")
    refuse_if(not {"pack", "unpack"} <= {*vars(server)}, "Expected a class of yours with pack and unpack.")
    for words, shapes, dtypes in (
        ("Vectors", [(int(n),) for n in rng.integers(1, 300, 3)], ["float32"] * 3),
        ("Shapes", [tuple(rng.integers(1, 6, ndim).tolist()) for ndim in (2, 3, 4)], ["float32"] * 3),
        ("Dtypes", [(4, 3)] * 3, rng.choice(DTYPES, 3, replace=False).tolist()),
        ("Empty arrays and single numbers", [(0,), (3, 0, 2), ()], ["float32", "float64", "int8"]),
    ):
        tensors = {
            f"{words[0]}{i}": np.asarray(100 * rng.normal(size=shape)).astype(dtype)
            for i, (shape, dtype) in enumerate(zip(shapes, dtypes, strict=True))
        }
        for few in (dict([next(iter(tensors.items()))]), tensors):
            _comes_back(words, server, few)
    own.check_pack(server, rng)
    tensors = {"W": rng.normal(size=(6, 4)).astype("f4"), "b": rng.normal(size=4).astype("f4")}
    whole = bytes(server.pack(tensors))
    _is_no_pickle(whole)
    for left in [0, 1, 3, len(whole) - 1, *rng.integers(0, len(whole) - 1, 20).tolist()]:
        with case(f"{len(whole)} bytes, cut to {left}:"), raising(ValueError):
            server.unpack(whole[:left])
    return "Vectors, shapes, dtypes, empty arrays: all came back to the bit, and what was cut short was refused."


def _comes_back(words: str, server: Any, tensors: Tensors) -> None:
    """Refused unless these arrays come back to the bit, from bytes that are not much more."""
    told = ", ".join(f"{name} {described(x)}" for name, x in tensors.items())
    before = {name: x.copy() for name, x in tensors.items()}
    with case(f"{words}: for {told}"):
        data = server.pack(tensors)
        refuse_if(not isinstance(data, bytes | bytearray), f"pack returned a {type(data).__name__}, not bytes.")
        _is_no_pickle(bytes(data))
        back = server.unpack(bytes(data))
        names = list(back) if isinstance(back, dict) else back
        refuse_if(names != [*before], f"unpack returned {names!r}, not a dictionary with these names in this order.")
        for name, x in before.items():
            got = back[name]
            refuse_if(not same_bits(tensors[name], x), f"pack changed {name}.")
            refuse_if(not isinstance(got, np.ndarray), f"{name} came back as a {type(got).__name__}.")
            refuse_if(not same_bits(got, x), f"{name} came back as {described(got)}, not the same to the bit.")
        more = len(data) - sum(x.nbytes for x in before.values())
        limit = MORE * (1 + len(before))
        refuse_if(more > limit, f"there are {more} bytes more than the arrays have; at most {limit} are asked for.")


def _is_no_pickle(data: bytes) -> None:
    try:
        pickle.loads(data)  # of the learner's own making
    except Exception:
        return
    raise Refused("These are the bytes of a pickle, which a server must not load from a stranger.")


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
