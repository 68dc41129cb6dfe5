"""The exercises of "Put arrays on a wire"."""

import contextlib
import pickle
import socket
import struct
from threading import Thread
from typing import Any

import numpy as np

from minips.lab.course.exercises import Refused, asks, case, raising, refuse_if
from minips.stage import Tensors
from minips.testing.base import described, same_bits
from minips_course.own_server import check_pack

DTYPES = ["float64", "float16", "int8", "int32", "uint64", "bool"]
MORE = 64
"""The bytes by which a message may exceed its arrays, and the same again for each array."""
PATIENCE_S = 5.0


@asks(
    "wire.1",
    "array.dtype.str is the dtype as text, such as '<f4'. With the dtype and the shape, which is a list of integers, "
    "the receiver knows all it needs. You can write a small dictionary of these as JSON.",
    "Begin with vectors. Write the header's length in 4 bytes, the header, then each array's bytes in the header's "
    "order. unpack reads the length, then the header, and then one array after another.",
    "np.frombuffer(data, dtype, count, offset) reads count values, beginning at offset; reshape restores their shape. "
    "It raises ValueError if values are missing. Turn a struct.error into a ValueError yourself.",
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
    check_pack(server, rng)
    tensors = {"W": rng.normal(size=(6, 4)).astype("f4"), "b": rng.normal(size=4).astype("f4")}
    whole = bytes(server.pack(tensors))
    _is_no_pickle(whole)
    for left in [0, 1, 3, len(whole) - 1, *rng.integers(0, len(whole) - 1, 20).tolist()]:
        with case(f"{len(whole)} bytes, cut to {left}:"), raising(ValueError):
            server.unpack(whole[:left])
    return "Vectors, shapes, dtypes, empty arrays: all came back exactly, and shortened messages were refused."


def _comes_back(words: str, server: Any, tensors: Tensors) -> None:
    """Refuse a server unless these arrays come back exactly, and its message is only slightly longer."""
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
        refuse_if(more > limit, f"there are {more} bytes more than in the arrays; at most {limit} are allowed.")


def _is_no_pickle(data: bytes) -> None:
    try:
        pickle.loads(data)  # safe: the learner's code made it
    except Exception:
        return
    raise Refused("These are the bytes of a pickle, which a server must not load from a stranger.")


@asks(
    "wire.2",
    "recv(n) returns between 1 and n bytes, or b'' at the end of the stream. Ask again for the missing bytes.",
    "Write a helper read(connection, count) that loops until it has count bytes. Use it twice.",
    "In each turn, ask for the missing bytes, raise ConnectionError if none came, and append them.",
)
def receive(function: Any, rng: np.random.Generator) -> str:
    """Read one message from a stream, however it is split into pieces."""
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
    return "It read twenty messages in pieces, and refused four streams that ended too early."


def _received(function: Any, pieces: list[bytes], count: int) -> list[Any]:
    """Call ``function`` ``count`` times on a connection that delivers these pieces, then ends; return the results."""
    ours, theirs = socket.socketpair()

    def send() -> None:
        with theirs, contextlib.suppress(OSError):  # the reader may close its end early
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
    """A socket whose ``recv`` returns small pieces, as on a slow network."""

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
