"""Memory before the check: what a peer with the token announces is refused before the server takes memory for it."""

import json
import re
import subprocess
import sys
import zlib
from contextlib import contextmanager
from pathlib import Path

import msgpack
import numpy as np
import pytest

import minips as ps
from minips.core.codec import Decoder, Encoder, encode_plainly, unpack
from minips.core.limits import MOST_ROW_VALUES, check_rows_asked, of_requests
from minips.core.message import Message
from minips.core.partition import cut_state, partition
from minips.results import saved
from minips.stage import build, missing, stage_class
from minips.stages.compressors import Compressor
from minips.stages.serializers.wellformed import MOST_LISTS, MOST_PARTS, quoted
from minips.stages.transports.streams import refusal

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


def test_bombs_over_tcp():
    said, _ = explode("tcp", SMALL)
    assert "a key is there twice" in said["a key twice"]
    assert "'w', or a part of it, is there twice" in said["a tensor twice"]
    assert "more frames than parts" in said["60,000 frames that no part uses"]
    assert "nested too deeply" in said["MessagePack depth"]
    assert "nested too deeply" in said["JSON depth"]
    assert "larger than the" in said["a kind of 20 MB"]
    assert "max_message_bytes" in said["a kind of 20 MB"]
    assert "for the shape (10000, 10000); expected (30, 30)" in said["powersgd"]
    assert "is no gradient: it travels exactly" in said["powersgd in a goodbye"]
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
        packet, _ = unpack(frames, codec, ps.Trace(), limits=limits)
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
    packet, _ = unpack(frames, codec, ps.Trace(), limits=limits)
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
        assert 0 < len(quoted(value)) <= 100
    kind, text = refusal(ValueError("a" * 10**6))[1]
    assert (kind, len(text)) == (b"ValueError", 2000)


def deep(depth):
    nested = 1
    for _ in range(depth):
        nested = [nested]
    return nested


def test_a_quote_of_what_is_nested_deeply_is_short():
    assert len(quoted(deep(900))) <= 100


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
