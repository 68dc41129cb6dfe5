"""The exercises of "Put arrays on a wire"."""

import contextlib
import socket
import struct
from collections.abc import Iterator, Sequence
from threading import Thread
from typing import Any

import numpy as np

from minips.lab.course.exercises import asks, case, raising, refuse_if
from minips.stage import Array, Tensors
from minips.testing.base import described, same_bits
from minips_course.arrays import copied
from minips_course.own_server import check_pack, is_no_pickle

DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]
WORDS = ["w", "W", "b", "layer.", "a/b", "x y", "p,q", "k:", "s;", "ü", '"', "\\", "|", "\n", "{", "_"]
MORE = 64
"""The bytes by which a message may exceed its arrays, and the same again for each array."""
PATIENCE_S = 10.0


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
    messages = []
    for words, arrays in _arrays(rng):
        named = dict(zip(_names(rng, len(arrays)), arrays, strict=True))
        for few in (dict([next(iter(named.items()))]), named):
            messages.append((_comes_back(words, server, few, rng), few))
    for message, tensors in reversed(messages):
        with case(f"The message of {[*tensors][:9]}, after {len(messages)} others:"):
            _are_same(server.unpack(message), tensors)
    check_pack(server, rng)
    short = dict(
        zip(_names(rng, 3), [_drawn(rng, "<f4", (3,)), _drawn(rng, "i1", (2,)), _drawn(rng, "?", ())], strict=True)
    )
    whole = bytes(server.pack(short))
    is_no_pickle(whole)
    for left in range(len(whole)):
        with case(f"{len(whole)} bytes, cut to {left}:"), raising(ValueError):
            server.unpack(whole[:left])
    return "Vectors, shapes, dtypes, empty arrays: all came back exactly, and shortened messages were refused."


def _arrays(rng: np.random.Generator) -> Iterator[tuple[str, list[Array]]]:
    """Yield arrays for one message, and what is special about them."""
    lengths = [*rng.integers(1, 200, 2).tolist(), int(rng.integers(257, 400))]
    yield "Vectors", [_drawn(rng, "<f4", (length,)) for length in rng.permutation(lengths).tolist()]
    shapes = [*(tuple(rng.integers(1, 6, ndim).tolist()) for ndim in (2, 3, 4)), (2, 300), (300, 2)]
    yield "Shapes", [_drawn(rng, "<f4", shape) for shape in shapes]
    yield "A long vector", [_drawn(rng, "i1", (int(rng.integers(66_000, 90_000)),))]
    square = _drawn(rng, "<f4", (5, 6))
    yield "Other orders in memory", [np.asfortranarray(square), square[::-1, ::2], np.broadcast_to(square[0], (3, 6))]
    dtypes = [f"{order}{dtype}" for order in "<>" for dtype in DTYPES]
    yield "Dtypes", [_drawn(rng, dtype, (4, 3)) for dtype in rng.permutation(dtypes).tolist()]
    empty = [_drawn(rng, dtype, shape) for dtype, shape in (("<f4", (0,)), ("<f8", (3, 0, 2)), ("i1", ()), (">f4", ()))]
    yield "Empty arrays and single numbers", empty
    yield "Many arrays", [_drawn(rng, "<f2", (1,)) for _ in range(300)]


def _drawn(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> Array:
    """Draw an array of any bits, with NaN, infinity and −0 among its values."""
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return np.asarray(rng.integers(0, 2, shape)).astype(bool)
    return np.frombuffer(rng.bytes(int(np.prod(shape, dtype=int)) * kind.itemsize), kind).reshape(shape).copy()


def _names(rng: np.random.Generator, count: int) -> list[str]:
    """Draw names, in no order, which hold whatever a name may hold."""
    return [f"{word}{n}" for word, n in zip(rng.choice(WORDS, count), rng.permutation(count), strict=True)]


def _comes_back(words: str, server: Any, tensors: Tensors, rng: np.random.Generator) -> bytes:
    """Return a server's message. Raises `Refused` unless these arrays come back exactly, with few bytes more."""
    told = ", ".join(f"{name!r} {described(x)}" for name, x in tensors.items())
    before = copied(tensors)
    others = {name: _drawn(rng, x.dtype.str, x.shape) for name, x in tensors.items()}
    with case(f"{words}: for {told if len(told) < 2000 else len(tensors)}"):
        data = server.pack(tensors)
        refuse_if(not isinstance(data, bytes | bytearray), f"pack returned a {type(data).__name__}, not bytes.")
        message = bytes(data)
        is_no_pickle(message)
        changed = [name for name, x in before.items() if not same_bits(tensors[name], x)]
        refuse_if(changed, f"pack changed {changed}.")
        other = bytes(server.pack(others))
        refuse_if(bytes(data) != message, "a second pack changed the bytes of the first.")
        back = server.unpack(message)
        _are_same(server.unpack(other), others)  # and changes nothing in ``back``
        _are_same(back, before)
        more = len(data) - sum(x.nbytes for x in before.values())
        limit = MORE * (1 + len(before))
        refuse_if(more > limit, f"there are {more} bytes more than in the arrays; at most {limit} are allowed.")
        _reads_the_bytes(server, message, before, others)
    return message


def _are_same(back: Any, wanted: Tensors) -> None:
    names = list(back) if isinstance(back, dict) else back
    refuse_if(names != [*wanted], f"unpack returned {names!r}, not a dictionary with these names in this order.")
    for name, x in wanted.items():
        got = back[name]
        refuse_if(not isinstance(got, np.ndarray), f"{name!r} came back as a {type(got).__name__}.")
        refuse_if(not same_bits(got, x), f"{name!r} came back as {described(got)}, not the same to the bit.")


def _reads_the_bytes(server: Any, message: bytes, tensors: Tensors, others: Tensors) -> None:
    """Refuse a server which knows an array from elsewhere, as no other process would: its bytes are replaced."""
    name, largest = max(tensors.items(), key=lambda item: item[1].nbytes)
    old, new = largest.tobytes(), others[name].tobytes()
    if len(old) < 8 or old == new:
        return
    refuse_if(old not in message, f"the bytes of {name!r} are not in the message.")
    try:
        got = server.unpack(message.replace(old, new))[name]
    except ValueError:  # a server may notice that
        return
    refuse_if(
        got.tobytes() != new, f"unpack does not read {name!r} from the message. Another process could not either."
    )


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
        lengths = [*rng.permutation([0, 1, *rng.integers(2, 400, 2), *rng.integers(66_000, 300_000, 2)]).tolist(), 5]
        sent = [rng.bytes(length) for length in lengths]
        stream = b"".join(struct.pack("<I", len(one)) + one for one in sent)
        cuts = np.sort(rng.integers(1, len(stream), 12))
        pieces = [stream[:1], *(stream[a:b] for a, b in zip([1, *cuts], [*cuts, len(stream)], strict=True))]
        with case(f"Of messages of {lengths} bytes in {len(pieces)} pieces"):
            received = _received(function, pieces, len(sent), rng, [len(one) for one in sent])
            for number, (got, wanted) in enumerate(zip(received, sent, strict=True)):
                with case(f"number {number}:"):
                    refuse_if(not isinstance(got, bytes | bytearray), f"expected bytes, got {type(got).__name__}.")
                    refuse_if(bytes(got) != wanted, f"{len(got)} bytes came, expected {len(wanted)}.")
    ends = {"before a message": b"", "within the length": b"\x05\x00", "after one byte": b"\x05"}
    for whole, part in ((10, 4), (10, 0), (200_000, 150_000), (1, 0)):
        ends[f"after {part} of a message's {whole} bytes"] = struct.pack("<I", whole) + bytes(part)
    for where, stream in ends.items():
        with case(f"A stream that ends {where}:"), raising(ConnectionError):
            _received(function, [stream], 1, rng)
    return f"It read 35 messages in pieces, and refused {len(ends)} streams that ended too early."


def _received(
    function: Any, pieces: list[bytes], count: int, rng: np.random.Generator, lengths: Sequence[int] = ()
) -> list[Any]:
    """Call ``function`` ``count`` times on a connection that delivers these pieces, then ends; return the results.

    Raises `Refused` if it leaves another number of bytes unread than those of the messages that follow.
    """
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
            results, stream, read = [], b"".join(pieces), 0
            for number in range(count):
                results.append(function(_Dribble(ours, rng)))
                refuse_if(ours.gettimeout() != PATIENCE_S, "it changed how long the connection waits.")
                if lengths:
                    read += 4 + lengths[number]
                    following = ours.recv(4, socket.MSG_PEEK)
                    exact = stream[read:].startswith(following) and bool(following) == (read < len(stream))
                    refuse_if(not exact, f"after message {number}, it had not read exactly the bytes of that message.")
            return results
        finally:
            ours.close()
            sender.join(PATIENCE_S)


class _Dribble:
    """A socket that delivers small pieces of any length, as on a slow network."""

    def __init__(self, connection: socket.socket, rng: np.random.Generator) -> None:
        self._connection, self._rng, self._ended = connection, rng, 0

    def recv_into(self, buffer: Any, count: int = 0, *flags: int) -> int:
        piece = self.recv(count or len(buffer), *flags)
        buffer[: len(piece)] = piece
        return len(piece)

    def recv(self, count: int, *flags: int) -> bytes:
        few = 3 if count < 100 else 50_000
        piece = self._connection.recv(min(count, int(self._rng.integers(1, few + 1))), *flags)
        self._ended += count > 0 and not piece
        if self._ended > 20:
            raise TimeoutError("The end of the stream was read again and again.")
        return piece

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)
