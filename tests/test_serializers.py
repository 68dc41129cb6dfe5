"""What each format promises beyond the round trip: no copies, exact digits, and who is trusted."""

import contextlib
import io
import json
import math
import pickle

import msgpack
import numpy as np
import pytest
import safetensors
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import minips as ps
from minips.stage import build, missing, names, stage_class
from minips.stages.serializers import array_dtype
from minips.testing.base import same_bits
from minips.testing.codecs import same_plain


def serializers():
    return [build("serializer", name) for name in names("serializer") if not missing(stage_class("serializer", name))]


def packet(**parts):
    return ps.Packet({"kind": "push"}, {"w": ("exact", parts)})


def parts_of(got):
    return got.tensors["w"][1]


@pytest.mark.parametrize("serializer", [ps.MsgPack(), ps.Pickle()], ids=repr)
def test_arrays_are_not_copied_on_either_side(serializer):
    x = np.arange(1000.0)
    frames = serializer.dumps(packet(values=x))
    assert any(np.shares_memory(np.frombuffer(frame, np.uint8), x) for frame in frames[1:])
    arrived = [bytearray(frame) for frame in frames]
    y = parts_of(serializer.loads(arrived))["values"]
    assert any(np.shares_memory(np.frombuffer(frame, np.uint8), y) for frame in arrived[1:])
    assert y.flags.writeable


def test_msgpack_is_a_head_and_the_raw_arrays():
    x, i = np.array([[1.0, 2.0]], "f4"), np.array([7], "u1")
    head, *arrays = ps.MsgPack().dumps(packet(values=x, indices=i))
    assert msgpack.unpackb(head) == [
        {"kind": "push"},
        [["w", "exact", [["values", "float32", [1, 2]], ["indices", "uint8", [1]]]]],
    ]
    assert [bytes(array) for array in arrays] == [x.tobytes(), i.tobytes()]


def test_npy_frames_are_files_that_numpy_reads_and_their_values_are_not_copied():
    x, i = np.arange(6.0).reshape(2, 3), np.array(7, "u1")
    frames = ps.Npy().dumps(packet(values=x, indices=i))
    assert len(frames) == 1 + 2 * 2
    for array, head, values in zip((x, i), frames[1::2], frames[2::2], strict=True):
        assert same_bits(np.load(io.BytesIO(bytes(head) + bytes(values))), array)
    assert np.shares_memory(np.frombuffer(frames[2], np.uint8), x)
    arrived = [bytearray(frame) for frame in frames]
    assert np.shares_memory(np.frombuffer(arrived[2], np.uint8), parts_of(ps.Npy().loads(arrived))["values"])


def test_npy_reads_what_numpy_wrote_in_column_order():
    x, file = np.asfortranarray(np.arange(6.0).reshape(2, 3)), io.BytesIO()
    np.save(file, x)
    written = file.getvalue()
    head = len(written) - x.nbytes
    index = json.dumps([{"kind": "push"}, [["w", "exact", [["values"]]]]]).encode()
    got = ps.Npy().loads([index, written[:head], written[head:]])
    np.testing.assert_array_equal(parts_of(got)["values"], x)


def test_npy_never_unpickles():
    file = io.BytesIO()
    np.save(file, np.array([print], dtype=object), allow_pickle=True)
    head = file.getvalue()[:128]
    index = json.dumps([{"kind": "push"}, [["w", "exact", [["values"]]]]]).encode()
    with pytest.raises(ValueError, match="not a dtype of numbers"):
        ps.Npy().loads([index, head, file.getvalue()[128:]])


def test_protobuf_is_what_a_compiled_schema_would_write():
    (frame,) = ps.Protobuf().dumps(ps.Packet({}, {"w": ("exact", {"values": np.float32([1.0])})}))

    def field(number: int, content: bytes) -> bytes:  # wire type 2: a length and so many bytes
        return bytes([number << 3 | 2, len(content)]) + content

    part = field(1, b"values") + field(2, b"float32") + field(3, b"\x01") + field(4, np.float32([1.0]).tobytes())
    tensor = field(1, b"w") + field(2, b"exact") + field(3, part)
    assert frame == field(1, b"{}") + field(2, tensor)


def test_safetensors_is_a_file_that_the_library_opens(tmp_path):
    (frame,) = ps.SafeTensors().dumps(packet(values=np.float32([1.0, 2.0]), like=np.empty((0, 2), "f4")))
    (tmp_path / "packet.safetensors").write_bytes(frame)
    with safetensors.safe_open(tmp_path / "packet.safetensors", "np") as file:
        assert file.get_tensor("0").tolist() == [1.0, 2.0]
        assert file.get_tensor("1").shape == (0, 2)
        assert json.loads(file.metadata()["packet"])[0] == {"kind": "push"}


@pytest.mark.parametrize("serializer", serializers(), ids=repr)
def test_an_array_in_the_other_byte_order_keeps_its_values(serializer):
    x = np.array([1.0, 2.5, -3.0], ">f4")
    y = parts_of(serializer.loads([bytes(frame) for frame in serializer.dumps(packet(values=x))]))["values"]
    assert y.tolist() == [1.0, 2.5, -3.0]


@given(st.lists(st.floats(allow_nan=False), max_size=50))
@settings(deadline=None, max_examples=100)
def test_json_brings_every_double_back_exactly(values):
    x = np.array(values, "f8")
    assert same_bits(parts_of(ps.Json().loads(ps.Json().dumps(packet(values=x))))["values"], x)


def test_json_is_text_that_anyone_can_read():
    (frame,) = ps.Json().dumps(packet(values=np.float32([0.5, 2])))
    assert json.loads(frame) == [{"kind": "push"}, [["w", "exact", [["values", "float32", [2], [0.5, 2.0]]]]]]


def test_json_takes_many_bytes_for_a_random_double():
    x = np.random.default_rng(0).standard_normal(1000)
    (frame,) = ps.Json().dumps(packet(values=x))
    assert 18 < len(frame) / x.size < 24


def test_pickle_alone_can_run_code():
    trusted = {name for name in names("serializer") if stage_class("serializer", name).trusted_only}
    assert trusted == {"pickle"}


def test_pickle_without_a_packet_in_it_is_a_value_error():
    for thing in (None, 3, ("a",), ({}, 3), (1, {})):
        with pytest.raises(ValueError, match="not a packet in pickle"):
            ps.Pickle().loads([pickle.dumps(thing)])


@pytest.mark.parametrize(
    "name", ["O", "object", "V8", "U4", "S3", "datetime64[s]", "complex64", "no such", 3, None, ["f4"]]
)
def test_only_numbers_and_truth_values_are_arrays(name):
    with pytest.raises(ValueError, match="not a dtype of numbers"):
        array_dtype(name)


@pytest.mark.parametrize(
    "head",
    [
        [{}, [["w", "exact", [["v", "object", [1]]]]]],
        [{}, [["w", "exact", [["v", "float32", [2]]]]]],
        [{}, [["w", "exact", [["v", "float32", ["x"]]]]]],
        [{}, [["w", 3, []]]],
        [{}, [[None, "exact", []]]],
        [{}, [["w", "exact"]]],
        [{}, 7],
        [[], []],
        [{}],
        "text",
    ],
    ids=repr,
)
def test_msgpack_that_is_no_packet_is_a_value_error(head):
    with pytest.raises(ValueError, match="not a packet in MessagePack"):
        ps.MsgPack().loads([msgpack.packb(head), b"\0\0\0\0"])


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abγ", max_size=3), inner, max_size=3),
    max_leaves=6,
)
ARRAYS = hnp.arrays(
    st.sampled_from(["f2", "f4", "f8", "u1", "i8", "?"]),
    hnp.array_shapes(min_dims=0, min_side=0, max_side=4, max_dims=3),
)
PACKETS = st.builds(
    ps.Packet,
    st.dictionaries(st.text("abγ", min_size=1, max_size=3), PLAIN, max_size=3),
    st.dictionaries(
        st.text("wb/.γ", min_size=1, max_size=3),
        st.tuples(st.sampled_from(["exact", "topk"]), st.dictionaries(st.sampled_from("abc"), ARRAYS, min_size=1)),
        max_size=3,
    ),
)


def equal_values(a, b):
    """To the bit, but for the payload of a NaN, which text cannot carry."""
    return same_bits(a, b) or (a.dtype == b.dtype and a.dtype.kind == "f" and np.array_equal(a, b, equal_nan=True))


@pytest.mark.parametrize("serializer", serializers(), ids=repr)
@given(sent=PACKETS)
@settings(deadline=None, max_examples=50)
def test_any_packet_comes_back(serializer, sent):
    got = serializer.loads([bytes(frame) for frame in serializer.dumps(sent)])
    assert same_plain(got.header, sent.header)
    assert list(got.tensors) == list(sent.tensors)
    for name, (quantizer, parts) in sent.tensors.items():
        assert got.tensors[name][0] == quantizer
        assert got.tensors[name][1].keys() == parts.keys()
        assert all(equal_values(got.tensors[name][1][part], array) for part, array in parts.items())


@pytest.mark.parametrize("serializer", [one for one in serializers() if not one.trusted_only], ids=repr)
@given(frames=st.lists(st.binary(max_size=60), max_size=4))
@settings(deadline=None, max_examples=100)
def test_any_bytes_are_a_packet_or_a_value_error(serializer, frames):
    with contextlib.suppress(ValueError):
        assert isinstance(serializer.loads(frames), ps.Packet)


@pytest.mark.parametrize("serializer", serializers(), ids=repr)
def test_every_header_of_a_run_fits_its_fields(serializer):
    codec, problem = ps.Codec(serializer=serializer), ps.LinearRegression(np.eye(4), np.arange(4.0))
    config = ps.Config(workers=2, servers=2, steps=2, transport="inproc", timeout_s=20)
    there = config.with_({"push": codec, "pull": codec})
    run, exact = (ps.train(problem, one, engine="threads") for one in (there, config))
    assert all(same_bits(p, exact.params[name]) for name, p in run.params.items())
    there = there.with_({"workers": 1, "servers": 1})
    with (
        ps.Server({"t": np.zeros((3, 2))}, there, tables=["t"]).serve(token="t") as server,
        ps.connect(server.address, there, token="t", worker=np.int64(0), rows=np.int64(9)) as client,
    ):
        pulled = client.push_pull({"t": ps.Rows([2], np.ones((1, 2)))}, loss=np.float64(1), rows={"t": (2, 0)}).result(
            9
        )
        np.testing.assert_array_equal(pulled["t"], [[-0.1, -0.1], [0, 0]])
        assert client.pull(("t",)).result(9)["t"].shape == (3, 2)


def test_equality_of_plain_values_is_strict():
    assert same_plain([1, {"a": math.nan}], [1, {"a": math.nan}])
    for a, b in [(1, 1.0), (1, True), (0.0, -0.0), ([1], [1, 2]), ({"a": 1}, {"b": 1}), (None, 0)]:
        assert not same_plain(a, b)
