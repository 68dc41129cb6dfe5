"""The exercises of "Put arrays on a wire"."""

from collections.abc import Iterator
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


@asks(
    "wire.1",
    "array.dtype.str is the dtype as text, such as '<f4'. With the dtype and the shape, which is a list of integers, "
    "the receiver knows all it needs. You can write a small dictionary of these as JSON.",
    "Begin with vectors. Write the header's length in 4 bytes, the header, then each array's bytes in the header's "
    "order. unpack reads the length, then the header, and then one array after another.",
    "np.frombuffer(data, dtype, count, offset) reads count values, beginning at offset; reshape restores their shape. "
    "It raises ValueError if values are missing. Turn a struct.error into a ValueError yourself.",
    beside=True,
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
    "wire.3",
    "Count the keys first: the sum of all sizes. Then go through the arrays, and keep in a variable at which key the "
    "present one starts.",
    "Of an array that starts at key `start`, a server with the keys from a to b holds the flat values from a - start "
    "to b - start. Cut both off at 0: a slice may end beyond the array, but a negative index counts from the end.",
    "join collects, for each name in `like`, its pieces in the order of the servers. Concatenate and reshape them. An "
    "empty array has no piece at all, so add an empty one of the right dtype.",
)
def keys(answer: Any, rng: np.random.Generator) -> str:
    """Split arrays into ranges of keys, one for each server, and join the pieces again."""
    functions = isinstance(answer, tuple) and len(answer) == 2 and all(map(callable, answer))
    refuse_if(not functions, f"Expected the functions split and join, got {answer!r}.")
    split, join = answer
    waiting = []
    for tensors in _models(rng):
        total = sum(x.size for x in tensors.values())
        for servers in (2, 1, 3, int(rng.integers(4, 9)), total + 2):
            with case(f"{_told(tensors)}, {servers} servers:"):
                pieces = _pieces(split, tensors, servers)
                waiting.append((tensors, servers, pieces))
    _splits_in_two(split, rng)
    for turn in rng.permutation(len(waiting)).tolist():
        tensors, servers, pieces = waiting[turn]
        with case(f"{_told(tensors)}, joined from {servers} servers:"):
            _joins(join, pieces, tensors, rng)
            _joins(join, *_changed(pieces, tensors, rng), rng)
    return f"{len(waiting)} times, each server had the right keys, and the whole arrays came back."


def _told(tensors: Tensors) -> str:
    return ", ".join(f"{name} {described(x)}" for name, x in tensors.items())


def _models(rng: np.random.Generator) -> Iterator[Tensors]:
    """Yield named arrays of few and of many keys."""
    shapes: list[list[tuple[int, ...]]] = [
        [(int(rng.integers(5, 9)), 3), (3,)],
        [(2, int(rng.integers(2, 5)), 2), (), (int(rng.integers(1, 30)),), (4, 1)],
        [(0,), (int(rng.integers(3, 8)),), (2, 0, 3), (), (1,), (0, 2)],
        [(int(rng.integers(1, 4)),) for _ in range(int(rng.integers(4, 8)))],
        [(int(rng.integers(90, 200)), 7), (7,)],
    ]
    for some in shapes:
        dtypes = rng.choice(["f4", "f8", "i8", "f2"], len(some)).tolist()
        names = [f"{letter}{rng.integers(100)}" for letter in rng.permutation([*"abcdefgWUV"])[: len(some)]]
        yield {name: _drawn(rng, dtype, shape) for name, dtype, shape in zip(names, dtypes, some, strict=True)}
    yield {"turned": np.asfortranarray(rng.normal(size=(4, int(rng.integers(3, 6))))), "b": rng.normal(size=3)}


def _pieces(split: Any, tensors: Tensors, servers: int) -> list[Tensors]:
    """Return copies of a split's pieces. Raises `Refused` unless each server has its keys."""
    before = copied(tensors)
    got = split(tensors, servers)
    changed = [name for name, x in before.items() if not same_bits(tensors[name], x)]
    refuse_if(changed, f"split changed {changed}.")
    listed = isinstance(got, list | tuple) and len(got) == servers and all(isinstance(one, dict) for one in got)
    refuse_if(not listed, f"expected a list of {servers} dictionaries.")
    total, start = sum(x.size for x in tensors.values()), 0
    wanted: list[Tensors] = [{} for _ in range(servers)]
    ends = np.array([total * i // servers for i in range(1, servers + 1)])
    for name, x in before.items():
        owners = np.searchsorted(ends, np.arange(start, start + x.size), side="right")
        for owner in np.unique(owners).tolist():
            wanted[owner][name] = x.reshape(-1)[owners == owner]
        start += x.size
    for number, (piece, right) in enumerate(zip(got, wanted, strict=True)):
        found = {name: len(one) for name, one in piece.items()}
        due = {name: len(one) for name, one in right.items()}
        refuse_if(found != due, f"server {number} holds so many values: {found}; expected {due}.")
        wrong = [name for name, one in right.items() if not same_bits(np.asarray(piece[name]), one)]
        refuse_if(wrong, f"server {number} holds other values of {wrong} than those with its keys.")
    return [{name: np.frombuffer(x.tobytes(), x.dtype) for name, x in piece.items()} for piece in got]


def _splits_in_two(split: Any, rng: np.random.Generator) -> None:
    """Refuse a split that needs the number of servers."""
    tensors = {"w": rng.normal(size=(3, int(rng.integers(3, 9))))}
    with case("without the number of servers:"):
        refuse_if(len(split(tensors)) != 2, "expected pieces for two servers.")


def _joins(join: Any, pieces: list[Tensors], wanted: Tensors, rng: np.random.Generator) -> None:
    """Refuse a join unless it makes new arrays from the pieces."""
    like = {name: _drawn(rng, x.dtype.str, x.shape) for name, x in wanted.items()}
    before = copied(like)
    back = join(pieces, like)
    changed = [name for name, x in before.items() if not same_bits(like[name], x)]
    refuse_if(changed, f"join changed {changed} of `like`.")
    _are_same(back, wanted)
    shared = [name for name in like if np.may_share_memory(back[name], like[name])]
    refuse_if(shared, f"join returned {shared} in the memory of `like`.")


def _changed(pieces: list[Tensors], wanted: Tensors, rng: np.random.Generator) -> tuple[list[Tensors], Tensors]:
    """Return pieces with other values, as after an update, and what they must be joined to."""
    others = [{name: _drawn(rng, x.dtype.str, x.shape) for name, x in piece.items()} for piece in pieces]
    whole = {}
    for name, x in wanted.items():
        parts = [piece[name] for piece in others if name in piece]
        whole[name] = np.concatenate(parts).reshape(x.shape) if parts else x.copy()
    return others, whole
