"""Memory before the check: what a peer with the token announces is refused before the server takes memory for it."""

import json
import re
import subprocess
import sys
import threading
import zlib
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minips as ps
from minips.core import limits
from minips.core import partition as partitions
from minips.core.codec import Decoder, Encoder, encode_plainly, unpack
from minips.core.limits import MOST_ROW_VALUES, check_rows_asked, of_answers, of_anything, of_requests
from minips.core.message import Message
from minips.core.partition import cut_state, partition
from minips.core.reduction import AllReduceState
from minips.machines.calibration import Calibration
from minips.machines.fit import Line
from minips.results import saved
from minips.results.trace import DECODE, ENCODE, UPDATE
from minips.stage import build, missing, stage_class
from minips.stages.compressors import Compressor
from minips.stages.quantizers import base as quantizers
from minips.stages.serializers.wellformed import MOST_LISTS, MOST_PARTS, quote
from minips.stages.transports.streams import refusal
from minips.training import byhand

TOKEN, WAIT_S, MORE_BYTES = "of the test", 60.0, 64 * 2**20
"""A bomb may make a server's process so much larger than it was at rest."""
SHAPES = {"w": (30, 30), "b": (100,)}
SERVER = """
import sys, numpy as np, minips as ps
config = ps.Config(transport=sys.argv[1], consistency="asp", workers=2, optimizer=ps.SGD(lr=1.0))
with ps.Server({"w": np.zeros((30, 30), "f4"), "b": np.zeros(100, "f4")}, config, updates=10**6).serve(
    token=sys.argv[2]
) as server:
    print(server.address, flush=True)
    sys.stdin.read()
"""
INTERPRETER = re.compile(
    r"Traceback|object is not|'NoneType'|unpack\(b\)|unhashable|not subscriptable|invalid literal|recursion depth|"
    r"expected \d+, got|takes \d+ positional|has no attribute|could not broadcast|MemoryError|inhomogeneous",
)
ROUND = {"kind": "push", "worker": 0, "clock": 0, "version": 0, "loss": None, "memory": "none"}
HELLO = {"kind": "hello", "worker": 0, "secret": "0" * 32}
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the most memory that a process had")


def hwm(process):
    """The most memory, in bytes, that a process has had, as Linux says."""
    return int(re.search(r"VmHWM:\s*(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())[1]) * 1024


@contextmanager
def served(transport):
    """A server of 1,000 values in a process of its own: the process and its address."""
    command = [sys.executable, "-c", SERVER, transport, TOKEN]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def envelope(serializer="msgpack", compressor="none"):
    return msgpack.packb({"v": 3, "s": serializer, "c": compressor})


def raw(index, *frames, header=ROUND):
    return [envelope(), msgpack.packb([header, index]), *frames]


def quantized(quantizer, **parts):
    """A push of ``w`` in parts that stand for more than there is."""
    index = [["w", quantizer, [[name, x.dtype.name, x.shape] for name, x in parts.items()]]]
    return raw(index, *(x.tobytes() for x in parts.values()))


def texts(text, serializer="json", compressor="none"):
    return [envelope(serializer, compressor), build("compressor", compressor).compress(text)]


def bomb(name, nbytes=2**27):
    """So many zeros as this compressor packs them, in the place of the gradient's 3,600."""
    pack = build("compressor", name).compress
    index = [["w", "exact", [["values", "float32", [30, 30]]]]]
    return [envelope(compressor=name), pack(msgpack.packb([ROUND, index])), pack(bytes(nbytes))]


def left(quantizer, **parts):
    head, packet, *frames = quantized(quantizer, **parts)
    _, index = msgpack.unpackb(packet)
    return [head, msgpack.packb([{"kind": "bye", "worker": 0, "memory": "none", "state": True}, index]), *frames]


def like(*shape):
    return np.empty((0, *shape), "f4")


HUGE = like(10_000, 10_000)
EXACT = ["w", "exact", [["values", "float32", [30, 30]]]]
SMALL = {
    "powersgd": lambda: quantized("powersgd", P=np.ones((10_000, 1), "f4"), R=np.ones((10_000, 1), "f4"), like=HUGE),
    "powersgd in a goodbye": lambda: left(
        "powersgd", P=np.ones((9_999, 1), "f4"), R=np.ones((9_999, 1), "f4"), like=HUGE
    ),
    "topk": lambda: quantized("topk", values=np.ones(1, "f4"), indices=np.ones(1, "u4"), like=HUGE),
    "randomk": lambda: quantized("randomk", values=np.ones(1, "f4"), seed=np.ones(1, "u8"), like=HUGE),
    "adaptive": lambda: quantized(
        "adaptive",
        which=np.frombuffer(b"topk", "u1"),
        values=np.ones(1, "f4"),
        indices=np.ones(1, "u4"),
        like=HUGE,
    ),
    "zlib": lambda: bomb("zlib"),
    "a head of 128 MB by zlib": lambda: [envelope(compressor="zlib"), zlib.compress(bytes(2**27))],
    "a head of a million empty lists": lambda: raw([[]] * 1_000_000),
    "as many empty lists as the limit lets in": lambda: raw([[]] * 60_000),
    "MessagePack depth": lambda: [envelope(), b"\x91" * 60_000],
    "MessagePack arrays that are only announced": lambda: [envelope(), b"\xdd\x00\x00\xff\xff" * 1_000],
    "JSON depth": lambda: texts(b"[" * 500_000),
    "JSON lists": lambda: texts(b"[{},[" + b"[]," * 300_000 + b"[]]]"),
    "npy with a shape of 10^18": lambda: [
        envelope("npy"),
        json.dumps([ROUND, [["w", "exact", [["values"]]]]]).encode(),
        b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000, 1000000000)}".ljust(
            127
        )
        + b"\n",
        bytes(40),
    ],
    "10^6 names": lambda: raw([[f"n{number}", "exact", []] for number in range(1_000_000)]),
    "50,000 names by zlib": lambda: texts(
        json.dumps([ROUND, [[f"n{n}", "exact", []] for n in range(50_000)]]).encode(), "json", "zlib"
    ),
    "60,000 frames that no part uses": lambda: raw([EXACT], bytes(3_600), *[b""] * 60_000),
    "a tensor twice": lambda: raw([EXACT, EXACT], bytes(3_600), bytes(3_600)),
    "a key twice": lambda: [
        envelope(),
        msgpack.packb([ROUND, [EXACT]]).replace(b"\x86", b"\x87\xa5clock\x00", 1),
        bytes(3_600),
    ],
    "a kind of 20 MB": lambda: raw([], header={**ROUND, "kind": "k" * 20_000_000}),
    "a kind of 60 kB": lambda: raw([], header={**ROUND, "kind": "k" * 60_000}),
    "a kind that is nested": lambda: raw([], header={**ROUND, "kind": [[[[["k" * 50_000]]]]]}),
    "a tensor's name of 60 kB": lambda: raw([["n" * 60_000, "exact", []]]),
    "a quantizer's name of 60 kB": lambda: raw([["w", "q" * 60_000, []]]),
    "a dtype of 60 kB": lambda: raw([["w", "exact", [["values", "d" * 60_000, [1]]]]], b""),
    "an envelope of 1 MB": lambda: [msgpack.packb({"v": 3, "s": "s" * 1_000_000, "c": "none"}), b""],
    "a serializer's name of 50 kB": lambda: [msgpack.packb({"v": 3, "s": "s" * 50_000, "c": "none"}), b""],
    "300 MB of zeros": lambda: raw([EXACT], bytes(300_000_000)),
    "a row 60,000 times": lambda: raw([], header={"kind": "pull", "worker": 0, "rows": {"w": [0] * 60_000}}),
    "rows that are texts": lambda: raw(
        [], header={"kind": "pull", "worker": 0, "rows": {"w": ["x" * 60_000, *"a" * 5_000]}}
    ),
    "a memory that adds shapes up": lambda: raw(
        [["b", "exact", [["values", "float32", [30_000, 1]]]]], bytes(120_000), header={**ROUND, "memory": "delta"}
    ),
}
"""Bombs of which the server must take none, by what they are."""
LARGE = {
    f"256 MB by {name}": (lambda name=name: bomb(name, 2**28)) for name in ("zlib", "gzip", "lz4", "zstd", "blosc")
}


def refused(transport, address, frames):
    """The sentence with which the server refuses a message, over a connection of its own."""
    with transport.connect(address, TOKEN) as channel:
        channel.call(raw([], header=HELLO)).result(WAIT_S)
        with pytest.raises((ValueError, OSError, RuntimeError)) as told:
            unpack(channel.call(frames).result(WAIT_S), ps.Codec(), ps.Trace())
    said = str(told.value)
    assert 0 < len(said) <= 2_100
    assert not INTERPRETER.search(said), said
    return said


def explode(name, bombs):
    transport = build("transport", name)
    with served(name) as (process, address), ps.connect(address, token=TOKEN, worker=1) as good:
        known = good.pull().result(WAIT_S)
        for gradient in (1.0, -1.0):
            good.push({key: np.full(shape, gradient, "f4") for key, shape in SHAPES.items()}).result(WAIT_S)
        rest, grown, said = hwm(process), {}, {}
        for what, made in bombs.items():
            said[what] = refused(transport, address, made())
            grown[what] = hwm(process) - rest
            assert grown[what] <= MORE_BYTES, f"{what}: {grown[what] / 2**20:.0f} MB more"
            after = good.pull().result(WAIT_S)
            for key in SHAPES:
                np.testing.assert_array_equal(after[key], known[key])
        good.push({key: np.ones(shape, "f4") for key, shape in SHAPES.items()}).result(WAIT_S)
        assert (good.pull().result(WAIT_S)["b"] == -0.5).all()
    return said, grown


@pytest.mark.soak
def test_bombs_over_tcp():
    said, _ = explode("tcp", SMALL)
    assert "a key occurs twice" in said["a key twice"]
    assert "'w', or a part of it, occurs twice" in said["a tensor twice"]
    assert "more frames than parts" in said["60,000 frames that no part uses"]
    assert "nested too deeply" in said["MessagePack depth"]
    assert "nested too deeply" in said["JSON depth"]
    assert "larger than the" in said["a kind of 20 MB"]
    assert "max_message_bytes" in said["a kind of 20 MB"]
    assert "for the shape (10000, 10000); expected (30, 30)" in said["powersgd"]
    assert "is not a gradient: it travels exactly" in said["powersgd in a goodbye"]
    assert "decompresses to more than the" in said["zlib"]
    assert "may ask for 34952 rows at once; got 60000" in said["a row 60,000 times"]
    for echo in ("a kind of 60 kB", "a tensor's name of 60 kB", "a quantizer's name of 60 kB", "a dtype of 60 kB"):
        assert len(re.search(r"k{9,}|n{9,}|q{9,}|d{9,}", said[echo])[0]) <= 100


@pytest.mark.soak
@pytest.mark.parametrize("transport", ["shm", "http", "zmq", "grpc"])
def test_bombs_over_other_transports(transport):
    if missing(stage_class("transport", transport)):
        pytest.skip(f"{transport} is not installed")
    explode(transport, SMALL)


@pytest.mark.soak
@pytest.mark.parametrize("transport", ["tcp", "http"])
def test_compressors_of_256_mb(transport):
    installed = {name: made for name, made in LARGE.items() if not missing(stage_class("compressor", name.split()[-1]))}
    _, grown = explode(transport, installed)
    print({what: round(more / 2**20) for what, more in grown.items()})


# The limits


@pytest.mark.parametrize(
    ("config", "values"),
    [
        (ps.Config(), 1000),
        (ps.Config(push=ps.Codec(ps.Sign(), ps.ErrorFeedback())), 1000),
        (ps.Config(push=ps.Codec(ps.TopK(), ps.MomentumCorrection())), 2000),
        (ps.Config(pull=ps.Codec(ps.Uniform(), ps.Delta()), overlap=True), 3000),
        (ps.Config(local=ps.LocalSteps(2, ps.Adam()), optimizer=ps.SGD(1.0)), 4000),
        (ps.Config(local=ps.LocalSteps(2, ps.Adam()), overlap=True, optimizer=ps.SGD(1.0)), 8000),
    ],
    ids=["plain", "an error", "momentum", "pulls", "Adam", "Adam with overlap"],
)
def test_the_limit_follows_from_the_layout_and_from_what_is_left(config, values):
    params = {"w": np.zeros((30, 30), "f4"), "b": np.zeros(100, "f4")}
    with ps.Server(params, config, updates=10) as server:
        limits = server._protocol.unpack.keywords["limits"]
        assert 0 <= limits.nbytes - (2**20 + 32 * values) <= 100_000
        with server.serve():
            pass
    with ps.Server(params, config) as endless:  # with which no worker leaves its state
        assert endless._limits.nbytes - (2**20 + 32 * 1000) <= 20_000


def test_the_transports_own_limit_stays_where_it_is_lower():
    small = ps.Config(transport=ps.Tcp(max_message_bytes=2**14), link=ps.Link())
    assert small.shaped_transport(2**20).transport.max_message_bytes == 2**14
    assert ps.Config().shaped_transport(2**20) == ps.Tcp(max_message_bytes=2**20)
    assert ps.Config(transport="inproc").shaped_transport(2**20) == ps.Config(transport="inproc").transport


def test_a_memory_of_ones_own_may_keep_anything(registry):
    @ps.register
    class Own(ps.ErrorFeedback):
        name = "own"

    config = ps.Config(push=ps.Codec(memory=Own()))
    with ps.Server({"w": np.zeros(3)}, config, updates=4) as server:
        assert server._limits.nbytes == 2**31


def test_a_table_has_room_for_the_numbers_of_its_rows():
    with ps.Server({"E": np.zeros((500, 2), "f4")}, ps.Config(), tables=("E",)) as server:
        assert server._limits.nbytes - 2**20 >= 32 * 1000 + 64 * 500
    with pytest.raises(ValueError, match=r"may ask for 1000 rows at once; got 1001"):
        check_rows_asked("E", 1001, (1000, MOST_ROW_VALUES))


@pytest.mark.parametrize("serializer", ["msgpack", "json", "npy", "protobuf", "safetensors"])
@pytest.mark.parametrize("compressor", ["none", "zlib", "lz4", "zstd", "blosc"])
def test_what_is_legal_is_within_the_limits(serializer, compressor):
    """The longest numbers of every format: float64 in JSON, every value with its place."""
    rng = np.random.default_rng(0)
    x = -rng.random(20_000) * 1e-300
    layout = partition({"x": x}, 1)[0]
    limits = of_requests(ps.Config(), {"x": x}, layout, 0, leaves=True)
    for quantizer in (ps.Exact(), ps.TopK(1.0), ps.Float16(), ps.Uniform(8, block=64)):
        codec = ps.Codec(quantizer, serializer=serializer, compressor=compressor)
        frames = Encoder(codec, rng, ps.Trace()).encode(Message(dict(ROUND), {"x": x}))
        assert sum(map(len, frames)) <= limits.nbytes
        packet, *_ = unpack(frames, codec, ps.Trace(), limits=limits)
        assert Decoder(ps.Trace()).decode(packet, {"x": x}).tensors["x"].shape == x.shape


@pytest.mark.parametrize("serializer", ["msgpack", "json", "npy", "protobuf", "safetensors"])
def test_the_longest_goodbye_is_within_the_limits(serializer):
    """What a worker leaves at most: its memory's two arrays, what it has seen, an inner Adam at three clocks."""
    x = {name: -np.random.default_rng(0).random(3_000) * 1e-300 for name in ("x", "y")}
    codec = ps.Codec(ps.TopK(0.5), ps.MomentumCorrection(), serializer)
    config = ps.Config(push=codec, local=ps.LocalSteps(2, ps.Adam()), optimizer=ps.SGD(1.0), overlap=True)
    layout = partition(x, 1)[0]
    limits = of_requests(config, x, layout, 0, leaves=True)
    encoder = Encoder(codec, np.random.default_rng(0), ps.Trace())
    encoder.encode(Message(dict(ROUND), x))
    inner = {clock: {"mean": x, "squares": x, "steps": clock, "clock": clock} for clock in range(3)}
    link = {"encoder": encoder.state(), "decoder": Decoder(ps.Trace()).state(), "version": 1, "inner": inner}
    part = cut_state({"links": [link], "seen": [x, (1,), x]}, 0, layout)
    goodbye = Message({"kind": "bye", "worker": 0, "state": True}, saved.to_arrays(part))
    frames = encode_plainly(goodbye, codec)
    assert sum(map(len, frames)) <= limits.nbytes
    packet, *_ = unpack(frames, codec, ps.Trace(), limits=limits)
    assert len(packet.tensors) == 21


def test_an_answer_that_a_pull_cannot_need_is_refused():
    config = ps.Config(transport="inproc", workers=1)
    with (
        ps.Server({"w": np.zeros(3, "f4")}, config).serve() as server,
        ps.connect(server.address, config, token=server.token) as client,
    ):
        assert client.pull().result(WAIT_S)["w"].shape == (3,)
        (record,) = client._servers
        for wrong in ({"w": np.zeros(4, "f4")}, {"v": np.zeros(3, "f4")}):
            answer = encode_plainly(Message({"kind": "reply", "version": 0}, wrong), ps.Codec())
            with pytest.raises(ValueError, match=r"must be float32 of shape|Expected"):
                record.decode((answer, None), record.expected)


# Sentences


def test_a_quote_is_short():
    for value in ("a" * 10**6, b"a" * 10**6, [["a" * 1000] * 1000] * 9, {"a" * 1000: "b" * 1000}, 10**4000, None):
        assert 0 < len(quote(value)) <= 100
    kind, text = refusal(ValueError("a" * 10**6))[1]
    assert (kind, len(text)) == (b"ValueError", 2000)


def deep(depth):
    nested = 1
    for _ in range(depth):
        nested = [nested]
    return nested


def test_a_quote_of_what_is_nested_deeply_is_short():
    assert len(quote(deep(900))) <= 100


@pytest.mark.parametrize("name", ["zlib", "gzip", "lz4", "zstd", "blosc"])
def test_no_compressor_makes_more_than_its_limit(name):
    if missing(stage_class("compressor", name)):
        pytest.skip(f"{name} is not installed")
    compressor: Compressor = build("compressor", name)
    packed = compressor.compress(bytes(10_000))
    assert len(compressor.decompress(packed, 10_000)) == 10_000
    with pytest.raises(ValueError, match="more than the 9999 bytes that are allowed"):
        compressor.decompress(packed, 9_999)


def test_many_lists_and_many_parts_are_refused_in_every_format():
    with pytest.raises(ValueError, match=f"more than {MOST_LISTS} lists and maps"):
        ps.MsgPack().loads([msgpack.packb([{}, [[]] * (MOST_LISTS + 1)])])
    with pytest.raises(ValueError, match=f"more than {MOST_PARTS} tensors or parts"):
        ps.MsgPack().loads([msgpack.packb([{}, [["", "", []]] * (MOST_PARTS + 1)])])
    with pytest.raises(ValueError, match=f"more than {MOST_PARTS} tensors or parts"):
        ps.Protobuf().loads([b"\x12\x00" * (MOST_PARTS + 1)])


# The operator's limit

SMALL_BYTES, VALUES = 2**13, 10_000
BETWEEN_PROCESSES = ["pipe", "shm", "tcp", "zmq", "http", "grpc", "pyro", "thrift"]


def limited(transport, most=SMALL_BYTES, **more):
    """A config over this transport with that limit."""
    if missing(stage_class("transport", transport)):
        pytest.skip(f"{transport} is not installed")
    config = ps.Config(workers=1, consistency="asp", optimizer=ps.SGD(lr=1.0), transport=transport, **more)
    return config.with_({"transport.max_message_bytes": most}) if most else config


@contextmanager
def connected(config, own=None, **more):
    """A server of 40 kB, and a client with a config of its ``own``."""
    params = {"w": np.zeros(VALUES, "f4")}
    with (
        ps.Server(params, config, **more).serve() as server,
        ps.connect(server.address, own or config, token=server.token) as client,
    ):
        yield server, client


def tried(call):
    """The sentence of a ValueError and None, or no sentence and the result."""
    try:
        return "", call()
    except ValueError as error:
        return str(error), None


def figures(error):
    return [int(number) for number in re.findall(r"\d+", str(error.value))]


@pytest.mark.parametrize("compressor", ["zlib", "gzip", "lz4", "zstd", "blosc"])
@pytest.mark.parametrize("link", [None, ps.Link(1e9, 1e-6)], ids=["bare", "link"])
def test_a_push_may_not_decompress_to_more_than_the_operators_limit(compressor, link):
    codec = ps.Codec(compressor=build("compressor", compressor), memory="errorfeedback")
    with connected(limited("tcp", push=codec, link=link), limited("tcp", None, push=codec, link=link)) as (
        server,
        client,
    ):
        channel, gradient = client._connections[0].channel, {"w": np.ones(VALUES, "f4")}
        for call in (client.push, client.push_pull):
            with pytest.raises(ValueError, match=r"decompresses to more than.*max_message_bytes\.$") as refused:
                call(gradient).result(WAIT_S)
            came, most = figures(refused)[:2]
            assert came < most == SMALL_BYTES
        assert (client.clock, server.shard.clocks, server.shard.version) == (0, [0], 0)
        assert not client.pull().result(WAIT_S)["w"].any()
        assert client._servers[0].encoder.mark() == {}
        assert client._connections[0].channel is channel


@pytest.mark.parametrize("transport", BETWEEN_PROCESSES)
def test_every_transport_hands_its_limit_to_what_decompresses(transport):
    codec = ps.Codec(compressor="zlib")
    small, large = limited(transport, push=codec, pull=codec), limited(transport, None, push=codec, pull=codec)
    with connected(small, large) as (_, client), pytest.raises(ValueError, match="decompresses to more than the 8192"):
        client.push({"w": np.ones(VALUES, "f4")}).result(WAIT_S)
    with connected(large, small) as (_, client):
        with pytest.raises(ValueError, match="decompresses to more than the 8192"):
            client.pull().result(WAIT_S)
        assert client.push({"w": np.ones(VALUES, "f4")}).result(WAIT_S) == "applied"


@pytest.mark.parametrize("transport", BETWEEN_PROCESSES)
def test_a_message_that_is_too_large_as_it_comes_is_not_sent_for_ever(transport):
    small, large, gradient = limited(transport), limited(transport, None), {"w": np.ones(VALUES, "f4")}
    with connected(small, rejoin_s=30.0) as (server, client):
        with pytest.raises(ValueError, match="larger than the 8192") as refused:
            client.push(gradient).result(WAIT_S)
        assert figures(refused)[0] > 4 * VALUES
        assert (client.clock, server.shard.clocks) == (0, [0])
        assert client.begin(client.protocol.ask_all("alive")).result(WAIT_S)[0].header["clock"] == 0
    with connected(large, small, rejoin_s=30.0) as (_, client):
        with pytest.raises(ValueError, match=r"larger than|is too large for gRPC|20 connections ended like this"):
            client.pull().result(WAIT_S)
        assert client.push(gradient).result(WAIT_S) == "applied"


def test_the_limit_holds_for_status_for_what_was_left_and_for_a_memory_of_ones_own(registry):
    @ps.register
    class Own(ps.ErrorFeedback):
        name = "own"

    layout, params = partition({"w": np.zeros(9)}, 1)[0], {"w": np.zeros(9)}
    for memory in ("none", "errorfeedback", Own()):
        for most in (2**12, 2**40):
            config = limited("tcp", most, push=ps.Codec(memory=memory), link=ps.Link())
            for leaves in (False, True):
                limits = of_requests(config, params, layout, 0, leaves)
                known = not isinstance(memory, Own) or not leaves
                assert limits.nbytes == most or (known and most == 2**40 and limits.nbytes < 2**21)
            assert of_answers(layout, config.transport)[0].nbytes <= most
            assert of_anything(config.shaped_transport()).nbytes == most
    config, asker = ps.Config(pull=ps.Codec(compressor="zlib"), workers=40), ps.Tcp(max_message_bytes=2**10)
    with (
        ps.Server(params, config).serve() as server,
        pytest.raises(ValueError, match="decompresses to more than the 1024"),
    ):
        ps.status(server.address, server.token, transport=asker)


def test_the_limit_holds_among_the_workers_of_an_all_reduce():
    config = ps.Config(
        workers=2, exchange="ring", transport=ps.Tcp(max_message_bytes=2**12), push=ps.Codec(compressor="zlib")
    )
    like = {"w": np.zeros(VALUES, "f4")}
    states = [AllReduceState(config, rank, like, ps.Trace()) for rank in range(2)]
    for state in states:
        state.begin(0, like)
    with pytest.raises(ValueError, match="decompresses to more than the 4096"):
        states[1].incoming(0, states[0].outgoing(0))


@pytest.mark.parametrize("engine", ["threads", "simulated", "processes"])
@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({}, "A push"),
        ({"push.quantizer": ps.Sign()}, "A pull"),
        ({"exchange": "ring"}, "A push"),
    ],
    ids=["servers", "pulls", "all-reduce"],
)
def test_a_config_whose_messages_cannot_fit_its_limit_is_refused_at_the_start(engine, changes, what):
    X = np.random.default_rng(0).normal(size=(20, 1_000))
    problem = ps.LinearRegression(X, X[:, 0])
    config = ps.Config(workers=2, steps=2, transport=ps.Tcp(max_message_bytes=2**11)).with_(changes)
    with pytest.raises(ValueError, match=rf"^{what} of these parameters has \d+ bytes, .*max_message_bytes.* 2048\. "):
        ps.train(problem, config, engine=engine)
    fits = config.with_({"transport.max_message_bytes": 2**14})
    assert ps.train(problem, fits, engine="simulated").updates == 4


# Limits of libraries, made small


def test_stages_say_their_own_limits_before_a_library_does(monkeypatch):
    x = {"w": np.zeros(1_000)}
    for kind, name in (("compressor", "lz4"), ("compressor", "blosc"), ("serializer", "protobuf")):
        stage = build(kind, name)
        assert 2**30 < stage.most_bytes < 2**31
        monkeypatch.setattr(type(stage), "most_bytes", 4_000)
        codec = ps.Codec(**{kind: stage})
        words = rf"has 80\d\d bytes, and {name}\(.*\) takes at most 4000\."
        with pytest.raises(ValueError, match=f"(?i){words}"):
            codec.sender().encode(x)
        config = ps.Config(push=codec, workers=1, steps=1)
        with pytest.raises(ValueError, match=f"(?i){words}"):
            ps.Server(x, config)
        with pytest.raises(ValueError, match=f"(?i){words}"):
            ps.train(ps.LinearRegression(np.zeros((2, 1_000)), np.zeros(2)), config, engine="simulated")
    codec = ps.Codec(serializer="json", compressor="lz4")  # one frame, which is longer than its arrays
    assert codec.receiver().decode(codec.sender().encode({"w": np.zeros(10)}))["w"].shape == (10,)
    with pytest.raises(ValueError, match=r"A frame has \d+ bytes, and Lz4"):
        codec.sender().encode({"w": np.full(499, 1 / 3)})


@pytest.mark.parametrize("compressor", ["none", "zlib", "lz4"])
@pytest.mark.parametrize("quantizer", ["exact", "sign", "topk", "float16", "powersgd"])
def test_a_codec_alone_sends_nothing_that_its_receiver_refuses(compressor, quantizer, monkeypatch):
    monkeypatch.setattr(limits, "MAX_BYTES", 6_000)
    monkeypatch.setattr(quantizers, "LARGEST_BYTES", 6_000)
    codec = ps.Codec(quantizer, compressor=compressor)
    refused = []
    for size in (700, 740, 800, 900, 5_000):
        x = {"w": np.ones(size)}
        error, got = tried(lambda x=x: codec.receiver().decode(codec.sender().encode(x)))
        if error:
            assert re.search("(most|the) 6000|the 6000 bytes", error)
            refused.append(size)
            with pytest.raises(ValueError, match="6000"):
                codec.sender().encode(x)
        else:
            assert got["w"].shape == (size,)
    as_it_is = compressor == "none" and quantizer in ("exact", "powersgd")
    assert (refused == []) == as_it_is


def test_more_parts_than_a_packet_may_have_are_refused_at_both_ends(monkeypatch):
    monkeypatch.setattr(limits, "MOST_PARTS", 100)
    many = {f"w{number}": np.zeros(1) for number in range(100)}
    with pytest.raises(ValueError, match="100 parts of tensors is larger than the 99"):
        ps.Codec().dumps(many)
    with pytest.raises(ValueError, match="100 parts of tensors is larger than the 99"):
        ps.Server(many, ps.Config())
    del many["w0"]
    assert len(ps.Codec().loads(ps.Codec().dumps(many))) == 99


@pytest.mark.soak
@pytest.mark.alone
def test_a_tensor_of_more_than_lz4_takes_is_a_sentence():
    sender = ps.Codec(compressor="lz4").sender()
    with pytest.raises(ValueError, match=r"^A frame has 2320000000 bytes, and Lz4\(.*\) takes at most 2113929216\."):
        sender.encode({"w": np.zeros(580_000_000, "f4")})


# Dtypes

TYPES = [*np.typecodes["AllInteger"], "?", *np.typecodes["AllFloat"], ">f4", ">i2"]
TYPES += [*"FDOSUV", "M8[s]", "m8[s]", "i4,f8"]


@pytest.mark.parametrize("serializer", ["json", "pickle", "npy", "msgpack", "protobuf", "safetensors"])
@pytest.mark.parametrize("memory", ["none", "errorfeedback", "delta", "momentumcorrection"])
def test_a_dtype_travels_as_it_is_or_is_refused_by_name(serializer, memory):
    for quantizer in ("exact", "topk", "sign", "uniform", "float16", "powersgd"):
        codec = ps.Codec(quantizer, memory, serializer)
        for dtype in map(np.dtype, TYPES):
            x, sender, receiver = np.ones((2, 2), dtype), codec.sender(), codec.receiver()
            error, got = tried(lambda: [receiver.decode(sender.encode({"w": x}))["w"] for _ in range(3)])  # noqa: B023
            if error:
                assert "'w'" in error
                assert dtype.char not in "efd"
            else:
                assert {y.dtype.newbyteorder("=") for y in got} == {dtype.newbyteorder("=")}
                if quantizer == "exact" and memory != "momentumcorrection":
                    assert all((y == x).all() for y in got)


@pytest.mark.parametrize("dtype", ["g", "F", "i4", "?", "O", "M8[s]", "U3"])
def test_parameters_of_a_dtype_that_cannot_travel_are_refused_at_the_start(dtype):
    params = {"w": np.ones(3, dtype)}
    config = ps.Config(pull=ps.Codec(serializer="json"), workers=1, steps=1)
    for start in (
        lambda: ps.train(Named(params), config, engine="processes"),
        lambda: ps.Server(params, config),
        lambda: ps.cost.predict(Named(params), config),
    ):
        with pytest.raises(ValueError, match=r"'w'"):
            start()


# Names


class Named(ps.Problem):
    def __init__(self, params):
        super().__init__(np.zeros((4, 1)), np.zeros(4))
        self.start = params

    def init(self, rng):
        return dict(self.start)

    def loss_and_gradient(self, params, rows=None):
        return 1.0, {name: x.copy() for name, x in params.items()}


@pytest.mark.parametrize("exchange", ["ps", "ring", "twoshot", "tree"])
def test_parameters_may_be_lists_and_have_any_byte_order(exchange):
    config = ps.Config(workers=2, steps=2, exchange=exchange)
    for engine in ("threads", "simulated"):
        plain = ps.train(Named({"w": np.full(4, 0.5)}), config, engine=engine).params["w"]
        for other in ([0.5] * 4, np.full(4, 0.5, "<f8"), np.full(4, 0.5, ">f8")):
            got = ps.train(Named({"w": other}), config, engine=engine).params["w"]
            np.testing.assert_array_equal(got, plain, strict=True)


def test_parameters_that_are_lists_are_served_by_hand_and_predicted():
    config = ps.Config(workers=1, steps=2)
    with byhand.serving(Named({"w": [0.5] * 4}), config, None, TOKEN) as served:
        assert served.servers[0].params["w"].tolist() == [0.5] * 4
    assert ps.cost.predict(Named({"w": [0.5] * 4}), config, CALIBRATION).bytes_sent > 0


LINE = Line(1e-5, 1e-8, 0.9, 1.2)
CALIBRATION = Calibration(
    worker=dict.fromkeys((*ENCODE, *DECODE), LINE),
    server=dict.fromkeys((*ENCODE, *DECODE, *UPDATE), LINE),
    worker_rest=LINE,
    server_rest=LINE,
    idle=LINE,
    late_s=1e-4,
    cores=2,
)
AWKWARD = ["", "a\0b", "\0", "..", "../x", "/", "a/b", "a//b", "a\\b", "w.npy", "w", "W", ".npy", "minips", "params/w"]
AWKWARD += [
    "clock",
    "mean",
    "squares",
    "steps",
    "velocity",
    "file",
    "self",
    "'",
    "w'",
    "é",
    "e\u0301",
    "\u202e",
    "😀",
    " ",
]
AWKWARD += ["n" * 70_000, "a\nb", "[*]", "{}", "%s", "0/w", "x?y", "x\0y", "x\\y", "__proto__"]


def kept(config, params, path):
    run = ps.train(Named(params), config, engine="simulated")
    run.save(path)
    again = ps.Run.load(path, Named(params))
    assert list(again.params) == list(params)
    for name, x in run.params.items():
        np.testing.assert_array_equal(again.params[name], x, strict=True)
    more = ps.train(Named(params), config.with_({"steps": 4}), engine="simulated", resume=path)
    whole = ps.train(Named(params), config.with_({"steps": 4}), engine="simulated")
    for name, x in whole.params.items():
        np.testing.assert_array_equal(more.params[name], x, strict=True)


@pytest.mark.parametrize("servers", [1, 2])
def test_awkward_names_train_and_are_saved_and_loaded(servers, tmp_path):
    params = {name: np.full(2 + number % 3, 1.0 + number, "f4") for number, name in enumerate(AWKWARD)}
    codec = ps.Codec("sign", "errorfeedback")
    kept(ps.Config(workers=1, steps=2, servers=servers, push=codec, optimizer=ps.Adam()), params, tmp_path / "a.npz")
    assert ps.cost.predict(Named(params), ps.Config(workers=1, steps=2, servers=servers), CALIBRATION).bytes_sent > 0


@settings(deadline=None, max_examples=12)
@given(st.lists(st.text(st.characters(codec=None), max_size=5), min_size=1, max_size=4, unique=True))
def test_any_name_is_kept_or_refused_at_the_start(names):
    params = {name: np.ones(2, "f4") for name in names}
    with TemporaryDirectory() as folder:
        error, _ = tried(lambda: kept(ps.Config(workers=1, steps=2), params, Path(folder) / "a.npz"))
    assert ("name of a parameter" in error) == any("\ud800" <= letter <= "\udfff" for letter in "".join(names))


@pytest.mark.parametrize("serializer", ["json", "pickle", "npy", "msgpack", "protobuf", "safetensors"])
def test_awkward_names_travel_through_every_serializer(serializer):
    codec = ps.Codec(serializer=serializer)
    assert list(codec.loads(codec.dumps({name: np.ones(1) for name in AWKWARD}))) == AWKWARD
    for refused in ("\ud800", "a\udfff"):
        with pytest.raises(ValueError, match="The name of a tensor must be text that UTF-8 encodes"):
            codec.sender().encode({refused: np.ones(1)})


def test_awkward_names_are_served_and_a_name_that_cannot_be_is_refused():
    params = {name: np.full(2, float(number)) for number, name in enumerate(AWKWARD)}
    config = ps.Config(workers=1, servers=2, transport="inproc", consistency="asp", optimizer=ps.SGD(lr=1.0))
    with (
        ps.Server(params, config).serve(token=TOKEN) as one,
        ps.Server(params, config, index=1).serve(token=TOKEN) as two,
        ps.connect([one.address, two.address], config, token=TOKEN) as client,
    ):
        client.push(params).result(WAIT_S)
        pulled = client.pull().result(WAIT_S)
        assert list(pulled) == AWKWARD
        assert not any(x.any() for x in pulled.values())
        assert client.pull(["\0"]).result(WAIT_S)["\0"].tolist() == [0, 0]
    for start in (
        lambda: ps.Server({"\ud800": np.ones(1)}, config),
        lambda: ps.train(Named({"\ud800": np.ones(1)}), config, engine="threads"),
        lambda: ps.cost.predict(Named({"\ud800": np.ones(1)}), config),
    ):
        with pytest.raises(ValueError, match="The name of a parameter must be text that UTF-8 encodes"):
            start()


# Many servers, many tensors


@pytest.mark.parametrize("servers", [1_000, 651])
def test_more_servers_than_values_are_refused(servers):
    problem = ps.SoftmaxRegression(*ps.datasets.digits())
    config = ps.Config(servers=servers, workers=2, steps=8)
    with byhand.serving(problem, config.with_({"servers": 650}), None, "of the test", index=649) as served:
        assert len(served.servers) == 1
    for start in (
        lambda: ps.train(problem, config, engine="threads"),
        lambda: ps.train(problem, config, engine="simulated"),
        lambda: ps.Server(problem.init(np.random.default_rng(0)), config),
        lambda: ps.cost.predict(problem, config),
        lambda: byhand.serving(problem, config, None, "of the test").__enter__(),
    ):
        with pytest.raises(ValueError, match=rf"Config.servers is {servers}, and the parameters have 650 values"):
            start()


def test_one_value_is_held_by_one_server():
    with pytest.raises(ValueError, match=r"have 1 value, so that .* would hold none\. Use at most 1 server\.$"):
        ps.Server({"w": np.zeros(1)}, ps.Config(servers=2))


@pytest.mark.parametrize("transport", ["tcp", "http", "shm", "pipe"])
@pytest.mark.parametrize("exchange", ["ring", "twoshot"])
def test_a_message_between_workers_that_is_too_large_is_refused_where_it_is_sent(exchange, transport):
    """Of so many bytes are the values of half a tensor, and the message has a head besides."""
    config = ps.Config(workers=2, steps=1, exchange=exchange, transport=transport)
    config = config.with_({"transport.max_message_bytes": 4_000})
    with pytest.raises(
        RuntimeError, match=r"TooLargeError: A message of 4\d\d\d bytes is larger than the 4000 that are"
    ):
        ps.train(Named({"w": np.zeros(1_000)}), config, engine="threads")


@pytest.mark.parametrize("placement", ["ranges", "modulo"])
def test_more_servers_than_rows_of_a_table_are_refused(placement):
    params = {"E": np.zeros((3, 50), "f4"), "w": np.zeros(500)}
    config = ps.Config(servers=4, placement=placement)
    with pytest.raises(ValueError, match=r"Config\.servers is 4, and the table 'E' has 3 rows"):
        ps.Server(params, config, tables=("E",))
    ps.Server(params, config.with_({"servers": 3}), tables=("E",))
    ps.Server(params, config)  # of a tensor that is no table, a server holds any values


@pytest.mark.parametrize("tables", ["nope", "number"])
def test_tables_that_have_no_rows_are_refused_by_every_start(tables):
    problem, config = Named({"w": np.ones((3, 2)), "number": np.ones(())}), ps.Config(workers=1, steps=1)
    problem.tables = (tables,)
    for start in (
        lambda: ps.train(problem, config),
        lambda: ps.Server(problem.start, config, tables=(tables,)),
        lambda: ps.cost.predict(problem, config),
        lambda: byhand.serving(problem, config, None, TOKEN).__enter__(),
    ):
        with pytest.raises(ValueError, match=rf"tables names tensors that have rows, of w, number; got '{tables}'"):
            start()


def calls_of(servers):
    """The calls of functions, in all threads, that a run with so many servers makes."""
    counted = Counter()

    def count(frame, event, _):
        if event in ("call", "c_call"):
            counted[threading.get_ident()] += 1

    problem = ps.LinearRegression(np.ones((20, 399)), np.ones(20))
    config = ps.Config(servers=servers, workers=1, steps=2, transport="inproc", batch_size=4)
    threading.setprofile(count)
    sys.setprofile(count)
    try:
        ps.train(problem, config, engine="threads")
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return counted.total()


@pytest.mark.soak
def test_the_work_of_many_servers_grows_with_their_number():
    calls_of(10)  # what is done once
    few, many = calls_of(40), calls_of(160)
    assert many < 4 * 1.4 * few


def test_the_spans_of_many_traces_are_read_once_each(monkeypatch):
    read, iterate = Counter(), ps.Trace.__iter__

    def reading(trace):
        for span in iterate(trace):
            read[span.who] += 1
            yield span

    traces = [ps.Trace(f"server {number}", [("wait", f"server {number}", 0.0, 1.0, 0)]) for number in range(50)]
    monkeypatch.setattr(ps.Trace, "__iter__", reading)
    joined = ps.Trace.joined(traces)
    assert not read
    assert len(joined) == 50
    assert set(read.values()) == {1}


def test_a_server_of_many_looks_at_its_own_part_alone(monkeypatch):
    looked = Counter()
    monkeypatch.setattr(partitions, "round", lambda x: looked.update(["cut"]) or round(x), raising=False)
    ps.Server({"w": np.zeros(200)}, ps.Config(servers=200), index=7)
    assert looked["cut"] <= 4


@pytest.mark.parametrize("count", [100, 2_200])
def test_calls_of_many_tensors_are_planned_as_those_of_few(count, monkeypatch):
    serialized, dumps = [], ps.MsgPack.dumps
    monkeypatch.setattr(ps.MsgPack, "dumps", lambda self, packet: serialized.append(packet) or dumps(self, packet))
    params = {f"w{number}": np.zeros(1, "f4") for number in range(count)}
    config = ps.Config(transport="inproc", workers=1, consistency="asp")
    with ps.Server(params, config).serve() as server, ps.connect(server.address, config, token=server.token) as client:
        for _ in range(4):
            client.push_pull(params).result(WAIT_S)
    assert sum(len(packet.tensors) > 1 for packet in serialized) == 2  # the first push and the first answer
