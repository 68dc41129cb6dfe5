"""From a message to frames and back, and what a receiver does with frames that are not to be believed."""

import dataclasses
import json
import pickle
import tracemalloc
import zlib

import msgpack
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minips as ps
from minips import stage
from minips.core.codec import Decoder, Encoder, unpack
from minips.core.message import PROTOCOL_VERSION, Message, check_finite
from minips.core.reduction import pack
from minips.results import saved
from minips.stages.serializers import Packet

PLAIN = ps.Codec()
CODECS = [
    ps.Codec(),
    ps.Codec(serializer="json"),
    ps.Codec(compressor="lz4"),
    ps.Codec(quantizer="uniform", compressor="zlib"),
    ps.Codec(quantizer="topk", memory="errorfeedback"),
    ps.Codec(quantizer="float16", serializer="json", compressor="lz4"),
]
TENSORS = {"W": np.linspace(-1, 1, 12, dtype="f4").reshape(3, 4), "b": np.array(2.0), "empty": np.zeros((0, 3), "f4")}


@dataclasses.dataclass(frozen=True)
class Difference(ps.Memory):
    """Sends what has changed: both halves of the link remember the last value."""

    name = "difference"

    def compensate(self, x, state):
        return x - state.get("last", 0)

    def update(self, p, sent, state):
        state["last"] = state.get("last", 0) + sent

    def restore(self, received, state):
        state["last"] = state.get("last", 0) + received
        return state["last"]


@pytest.fixture
def difference(monkeypatch):
    monkeypatch.setitem(stage._KINDS["memory"], "difference", Difference)
    return ps.Codec(memory=Difference())


def encoder(codec, seed=0):
    return Encoder(codec, np.random.default_rng(seed), ps.Trace())


def sent(frames):
    """The frames as a network would hand them over."""
    return [memoryview(bytearray(frame)) for frame in frames]


def receive(frames, own=PLAIN, decoder=None):
    packet, *_ = unpack(sent(frames), own, ps.Trace())
    return (decoder or Decoder(ps.Trace())).decode(packet)


# The envelope


def test_the_first_frame_is_a_map_of_version_serializer_and_compressor():
    codec = ps.Codec(serializer="json", compressor="zlib")
    plain = {"v": PROTOCOL_VERSION, "s": "json", "c": "zlib"}
    assert msgpack.unpackb(encoder(codec).encode(Message({"kind": "pull"}))[0]) == plain
    assert msgpack.unpackb(ps.core.codec.envelope(codec, {"busy": 0.5})) == {**plain, "busy": 0.5}


def test_the_stamp_comes_back_with_the_packet():
    _, *frames = encoder(PLAIN).encode(Message({"kind": "reply"}))
    assert unpack([ps.core.codec.envelope(PLAIN, {"waited": 1.5}), *frames], PLAIN, ps.Trace())[1]["waited"] == 1.5


def test_the_packet_names_memory_and_quantizers():
    codec = ps.Codec(quantizer="sign", memory="errorfeedback")
    packet, *_ = unpack(encoder(codec).encode(Message({}, {"w": np.ones(3)})), PLAIN, ps.Trace())
    assert packet.header["memory"] == "errorfeedback"
    assert packet.tensors["w"][0] == "sign"


@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_a_receiver_of_another_config_decodes_any_message(codec):
    header = {"kind": "push", "worker": 1, "clock": 3, "loss": 0.25, "names": ["W"], "nothing": None}
    message = receive(
        encoder(codec).encode(Message(header, TENSORS)), own=ps.Codec(serializer="json", quantizer="sign")
    )
    assert message.kind == "push"
    assert {key: message.header[key] for key in header} == header
    for name, x in TENSORS.items():
        expected = codec.quantizer.decode(codec.quantizer.encode(x, np.random.default_rng(0)))
        np.testing.assert_array_equal(message.tensors[name], expected, strict=True)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=20))
def test_the_plain_codec_is_exact(values):
    x = np.array(values, "f4")
    np.testing.assert_array_equal(receive(encoder(PLAIN).encode(Message({}, {"x": x}))).tensors["x"], x, strict=True)


def test_encoding_changes_no_array():
    kept = {name: x.copy() for name, x in TENSORS.items()}
    for codec in CODECS:
        encoder(codec).encode(Message({}, TENSORS))
    for name, x in TENSORS.items():
        np.testing.assert_array_equal(x, kept[name], strict=True)


def test_spans_stand_around_every_step():
    trace = ps.Trace("me")
    codec = ps.Codec(quantizer="topk", memory="errorfeedback")
    frames = Encoder(codec, np.random.default_rng(0), trace).encode(Message({}, {"w": np.ones(9)}))
    assert set(trace.seconds()) == {"compensate", "quantize", "serialize", "compress"}
    PLAIN.receiver(trace).decode(frames)
    assert {"decompress", "deserialize", "dequantize"} <= set(trace.seconds())


# Trust


def test_pickle_is_refused_unless_the_receivers_own_config_names_it():
    frames = encoder(ps.Codec(serializer="pickle")).encode(Message({"kind": "push"}, {"w": np.ones(3)}))
    with pytest.raises(ValueError, match=r"can run code.*this one names msgpack"):
        receive(frames)
    message = receive(frames, own=ps.Codec(serializer="pickle"))
    np.testing.assert_array_equal(message.tensors["w"], np.ones(3))


def test_a_refused_pickle_is_never_read():
    class Trap:
        def __reduce__(self):
            return pytest.fail, ("the pickle was read",)

    envelope = msgpack.packb({"v": PROTOCOL_VERSION, "s": "pickle", "c": "none"})
    with pytest.raises(ValueError, match="can run code"):
        receive([envelope, pickle.dumps(Trap())])


# Malformed frames


def envelope(**changes):
    return msgpack.packb({"v": PROTOCOL_VERSION, "s": "msgpack", "c": "none", **changes})


def body(index, header=None):
    return msgpack.packb([{"kind": "push"} if header is None else header, index])


MALFORMED = {
    "nothing": [],
    "an empty frame": [b""],
    "text": [b"GET / HTTP/1.1"],
    "a list for an envelope": [msgpack.packb([1, 2])],
    "another version": [envelope(v=99), body([])],
    "an unknown serializer": [envelope(s="morse"), body([])],
    "an unknown compressor": [envelope(c="squash"), body([])],
    "a number for a name": [envelope(s=3), body([])],
    "the envelope alone": [envelope()],
    "a header that is a list": [envelope(), body([], header=[1])],
    "fewer frames than parts": [envelope(), body([["w", "exact", [["x", "float32", [2]]]]])],
    "a shape that does not fit": [envelope(), body([["w", "exact", [["x", "float32", [3]]]]]), b"12345678"],
    "a dtype of objects": [envelope(), body([["w", "exact", [["x", "object", [1]]]]]), b"12345678"],
    "an unknown quantizer": [envelope(), body([["w", "fog", []]])],
    "missing parts": [envelope(), body([["w", "topk", []]])],
    "a damaged zlib stream": [envelope(c="zlib"), b"not zlib"],
    "a damaged lz4 block": [envelope(c="lz4"), b"\x10\x00\x00\x00nonsense"],
    "an lz4 block that claims too much": [envelope(c="lz4"), b"\xff\xff\xff\xff" + bytes(8)],
    "damaged JSON": [envelope(s="json"), b"{"],
    "an unknown memory": [envelope(), body([], header={"memory": "elephant"})],
}


@pytest.mark.parametrize("frames", MALFORMED.values(), ids=list(MALFORMED))
def test_malformed_frames_are_a_value_error(frames):
    with pytest.raises(ValueError, match=r"\w"):
        receive(frames)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_damaged_frames_are_a_value_error_or_decode_to_arrays(data):
    codec = data.draw(st.sampled_from(CODECS))
    frames = [bytearray(frame) for frame in encoder(codec).encode(Message({"kind": "push"}, TENSORS))]
    for _ in range(data.draw(st.integers(1, 3))):
        frame = data.draw(st.sampled_from([each for each in frames if each]))
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    with np.errstate(all="ignore"):
        try:
            message = receive(frames)
        except ValueError:
            return
    assert all(isinstance(x, np.ndarray) for x in message.tensors.values())


# Memory


def test_an_encoder_keeps_one_memory_for_each_tensor():
    codec = ps.Codec(quantizer=ps.TopK(fraction=0.5), memory=ps.ErrorFeedback())
    sender, total = encoder(codec), {"a": np.zeros(2), "b": np.zeros(2)}
    for _ in range(4):
        for name, x in receive(
            sender.encode(Message({}, {"a": np.array([4.0, 1.0]), "b": np.array([1.0, 3.0])}))
        ).tensors.items():
            total[name] += x
    held = {name: sender._states[name]["error"] for name in total}
    np.testing.assert_allclose(total["a"] + held["a"], [16, 4])
    np.testing.assert_allclose(total["b"] + held["b"], [4, 12])


def test_a_stateful_memory_is_restored_on_its_own_link(difference):
    rng = np.random.default_rng(0)
    links = [(encoder(difference), Decoder(ps.Trace())) for _ in range(2)]
    for _ in range(3):
        for sender, receiver in links:
            x = rng.normal(size=5)
            message = receive(sender.encode(Message({}, {"x": x})), decoder=receiver)
            np.testing.assert_allclose(message.tensors["x"], x, rtol=1e-12)


def test_the_wrong_link_restores_something_else(difference):
    sender, first, second = encoder(difference), Decoder(ps.Trace()), Decoder(ps.Trace())
    receive(sender.encode(Message({}, {"x": np.ones(2)})), decoder=first)
    np.testing.assert_array_equal(
        receive(sender.encode(Message({}, {"x": np.ones(2)})), decoder=second).tensors["x"], np.zeros(2)
    )


def test_random_draws_follow_from_the_seed():
    codec = ps.Codec(quantizer="uniform")
    message = Message({}, {"w": np.random.default_rng(1).normal(size=50)})
    assert encoder(codec, 3).encode(message) == encoder(codec, 3).encode(message)


# What no quantizer could carry


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_check_finite_names_the_tensor(bad):
    with pytest.raises(ValueError, match=r"The gradient of 'w' holds NaN or infinity.*nothing was changed"):
        check_finite({"v": np.ones(2), "w": np.array([1.0, bad])}, "The gradient of")


def test_check_finite_takes_large_numbers_whose_sum_overflows():
    check_finite({"w": np.full(4, np.finfo("f4").max, "f4"), "v": np.zeros(0), "b": np.array(1.0)}, "The gradient of")


@pytest.mark.parametrize(
    ("encoded", "words"),
    [
        (None, "encode gave NoneType, expected a dict of arrays"),
        ([1, 2], "encode gave list"),
        ({"codes": "text", "scale": np.ones(1)}, "encode gave a dict of ndarray, str"),
        (KeyError("the dog"), "KeyError: 'the dog'"),
    ],
    ids=str,
)
def test_a_quantizer_that_gives_no_parts_is_named_with_the_tensor(encoded, words, monkeypatch):
    def encode(self, x, rng):
        if isinstance(encoded, Exception):
            raise encoded
        return encoded

    monkeypatch.setattr(ps.Sign, "encode", encode)
    with pytest.raises(ValueError, match=r"The tensor 'W' does not encode with Sign\(\): ") as refused:
        encoder(ps.Codec(quantizer=ps.Sign())).encode(Message({}, TENSORS))
    assert words in str(refused.value)


def test_a_quantizer_that_gives_no_array_back_is_named_with_the_tensor(monkeypatch):
    frames = encoder(ps.Codec(quantizer=ps.Sign())).encode(Message({}, TENSORS))
    monkeypatch.setattr(ps.Sign, "decode", lambda self, parts: None)
    with pytest.raises(ValueError, match="'W' does not decode with sign: Its decode gave NoneType, expected an array"):
        receive(sent(frames))


def test_empty_frames_stay_empty():
    packet = Packet({}, {"w": ("exact", {"x": np.zeros(0, "f4")})})
    frames = pack(packet, ps.Codec(compressor="zlib"), ps.Trace())
    assert len(frames[2]) == 0
    np.testing.assert_array_equal(unpack(frames, PLAIN, ps.Trace())[0].tensors["w"][1]["x"], np.zeros(0, "f4"))


def test_each_tensor_has_the_quantizer_of_the_first_pattern_that_matches():
    codec = ps.Codec(quantizer={"b*": ps.Exact(), "w": ps.Sign(), "*": ps.Float16()})
    names = {name: codec.quantizer_of(name).name for name in ("b", "bias", "w", "W", "other")}
    assert names == {"b": "exact", "bias": "exact", "w": "sign", "W": "float16", "other": "float16"}
    tensors = {"b": np.float32([1, 2]), "w": np.float32([1, -3])}
    frames = Encoder(codec, np.random.default_rng(0), ps.Trace()).encode(Message({"kind": "push"}, tensors))
    packet, *_ = unpack(frames, ps.Codec(), ps.Trace())
    assert {name: quantizer for name, (quantizer, _) in packet.tensors.items()} == {"b": "exact", "w": "sign"}
    got = Decoder(ps.Trace()).decode(packet).tensors
    assert got["b"].tolist() == [1, 2]
    assert got["w"].tolist() == [2, -2]


def test_a_tensor_that_no_pattern_matches_is_a_sentence():
    with pytest.raises(ValueError, match=r"No pattern .* matches the tensor 'w'; there are b\*\. Add"):
        ps.Codec(quantizer={"b*": ps.Exact()}).quantizer_of("w")


def test_patterns_come_back_from_json():
    codec = ps.Codec(quantizer={"b": ps.Exact(), "*": ps.Uniform(bits=4)})
    assert ps.Codec.from_dict(json.loads(json.dumps(codec.to_dict()))) == codec
    assert ps.Codec(quantizer={"b": "exact", "*": {"name": "uniform", "bits": 4}}) == codec
    assert ps.Codec(quantizer={"name": "uniform", "bits": 4}) == ps.Codec(ps.Uniform(bits=4))
    with pytest.raises(ValueError, match="Did you mean exact"):
        ps.Codec(quantizer={"b": "exakt"})


class Picky(ps.Exact):
    """Refuses arrays of two values, on the way out or on the way in."""

    def encode(self, x, rng):
        if x.shape == (2,):
            raise ArithmeticError("not two")
        return super().encode(x, rng)


def test_a_message_that_does_not_encode_leaves_the_memories_as_they_were():
    codec = ps.Codec(quantizer={"b": Picky(), "*": ps.TopK(fraction=0.5)}, memory=ps.ErrorFeedback())
    sender, receiver = codec.sender(), codec.receiver()
    sender.encode({"a": np.float32([4, 1])})
    with pytest.raises(ValueError, match="'b' does not encode"):
        sender.encode({"a": np.float32([8, 3]), "b": np.zeros(2, "f4")})
    np.testing.assert_array_equal(receiver.decode(sender.encode({"a": np.zeros(2, "f4")}))["a"], [0, 1])


def test_a_message_that_does_not_decode_leaves_the_memories_as_they_were():
    codec = ps.Codec(memory=ps.Delta())
    sender, receiver = codec.sender(), codec.receiver()
    frames = sender.encode({"a": np.float32([4, 1]), "b": np.float32([2])})
    broken = [*frames[:2], frames[2], frames[3][:2]]
    for bad in (broken, [*frames[:1], frames[1].replace(b"exact", b"wrong"), *frames[2:]]):
        with pytest.raises(ValueError, match=r"not a packet|does not decode|There is no"):
            receiver.decode(bad)
    np.testing.assert_array_equal(receiver.decode(frames)["a"], [4, 1])


def test_a_memory_that_fails_half_way_has_restored_nothing(monkeypatch):
    codec = ps.Codec(memory=ps.Delta())
    sender, receiver = codec.sender(), codec.receiver()
    frames, restore = sender.encode({"a": np.float32([4, 1]), "b": np.float32([2])}), ps.Delta.restore

    def half(memory, received, state):
        if received.shape == (1,):
            raise MemoryError
        return restore(memory, received, state)

    with monkeypatch.context() as patch:
        patch.setattr(ps.Delta, "restore", half)
        with pytest.raises(MemoryError):
            receiver.decode(frames)
    np.testing.assert_array_equal(receiver.decode(frames)["a"], [4, 1])


@pytest.mark.parametrize("memory", [[], {}, 7, None], ids=repr)
def test_a_memory_whose_name_is_none_is_a_value_error(memory):
    with pytest.raises(ValueError, match="memory"):
        Decoder(ps.Trace()).decode(Packet({"memory": memory}, {}))


@pytest.mark.parametrize("shape", [(1,), (5,), (3, 1), ()])
def test_a_tensor_keeps_its_shape_where_its_past_is_remembered(shape):
    sender = ps.Codec(memory=ps.ErrorFeedback(), quantizer=ps.Sign()).sender()
    sender.encode({"w": np.zeros(3, "f4")})
    with pytest.raises(ValueError, match=r"The tensor 'w' had the shape \(3,\), which its memory has"):
        sender.encode({"w": np.zeros(shape, "f4")})
    free = ps.Codec(quantizer=ps.Sign()).sender()
    assert free.encode({"w": np.zeros(3, "f4")}) != free.encode({"w": np.zeros(shape, "f4")})


# Messages of a link of one's own, and one message as bytes


@pytest.mark.parametrize(
    ("tensors", "kind", "said"),
    [
        (np.zeros(3), TypeError, "encode takes tensors as a mapping of names to arrays, .*; got array"),
        ({7: np.zeros(3)}, TypeError, "mapping of names to arrays"),
        ({"w": np.arange(3)}, ValueError, r"The tensor 'w' must hold floating-point numbers; got int64. Convert it"),
        ({"w": np.array(["a"])}, ValueError, "must hold floating-point numbers; got <U1"),
    ],
)
@pytest.mark.parametrize("quantizer", ["uniform", "topk"])
def test_what_cannot_be_encoded_is_said(tensors, kind, said, quantizer):
    sender = ps.Codec(quantizer=quantizer).sender()
    with pytest.raises(kind, match=said):
        sender.encode(tensors)


def test_whole_numbers_travel_as_they_are_with_the_exact_codec():
    assert PLAIN.loads(PLAIN.dumps({"w": np.arange(3)}))["w"].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="must hold floating-point numbers; got <U1"):
        PLAIN.dumps({"w": np.array(["a"])})


def test_what_cannot_be_decoded_is_said():
    frames, receiver = PLAIN.sender().encode(TENSORS), PLAIN.receiver()
    with pytest.raises(ValueError, match="got no frames"):
        receiver.decode([])
    for place in (0, 1):
        longer = [bytes(frame) + b"x" * (i == place) for i, frame in enumerate(frames)]
        with pytest.raises(ValueError, match=r"[^.]\.$"):
            receiver.decode(longer)


@pytest.mark.parametrize("memory", ["delta", "difference"])
def test_a_memory_of_both_ends_refuses_what_is_lost_doubled_or_out_of_order(memory, difference):
    codec = ps.Codec(memory=memory)
    sender, receiver = codec.sender(), codec.receiver()
    first, second, third = (sender.encode({"w": np.full(2, float(i))}) for i in (1, 2, 3))
    assert receiver.decode(first)["w"].tolist() == [1, 1]
    for wrong, number in ((third, 2), (first, 0)):
        said = f"Expected message 1 of this sender, got message {number}: {memory} needs every one, once"
        with pytest.raises(ValueError, match=said):
            receiver.decode(wrong)
    assert receiver.decode(second)["w"].tolist() == [2, 2]
    assert receiver.decode(third)["w"].tolist() == [3, 3]
    with pytest.raises(ValueError, match="Expected message 3 of this sender, got message 0"):
        receiver.decode(codec.sender().encode({"w": np.ones(2)}))


def test_a_message_that_was_not_encoded_or_not_decoded_takes_no_number():
    codec = ps.Codec(memory="delta")
    sender, receiver = codec.sender(), codec.receiver()
    with pytest.raises(ValueError, match="NaN"):
        sender.encode({"w": np.array([np.nan])})
    frames = sender.encode({"w": np.ones(1)})
    with pytest.raises(ValueError, match="packet"):
        receiver.decode(frames[:-1])
    assert receiver.decode(frames)["w"] == 1


def test_a_message_that_does_not_serialize_leaves_the_memory_as_it_was(monkeypatch):
    codec = ps.Codec(memory="delta")
    sender, receiver = codec.sender(), codec.receiver()
    with monkeypatch.context() as broken:
        broken.setattr(ps.MsgPack, "dumps", lambda self, packet: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            sender.encode({"w": np.ones(1)})
    assert receiver.decode(sender.encode({"w": np.ones(1)}))["w"] == 1


@pytest.mark.parametrize("memory", [name for name in ps.names("memory") if name != "delta"])
def test_a_memory_of_the_sender_alone_numbers_nothing(memory):
    codec = ps.Codec(memory=memory, quantizer="sign")
    sender, receiver = codec.sender(), codec.receiver()
    for _ in range(2):
        frames = sender.encode(TENSORS)
    assert "number" not in unpack(frames, codec, ps.Trace())[0].header
    assert list(receiver.decode(frames)) == list(TENSORS)


def test_a_runs_links_number_nothing():
    frames = encoder(ps.Codec(memory="delta")).encode(Message({"kind": "push"}, TENSORS))
    assert set(unpack(frames, PLAIN, ps.Trace())[0].header) == {"kind", "memory"}


def available(kind):
    return [name for name in ps.names(kind) if not stage.missing(stage.stage_class(kind, name))]


@pytest.mark.parametrize(
    "codec",
    [ps.Codec(**{kind: name}) for kind in ("quantizer", "serializer", "compressor") for name in available(kind)],
    ids=str,
)
def test_one_message_as_bytes(codec):
    data = codec.dumps(TENSORS, seed=7)
    assert type(data) is bytes
    assert len(data) % 64 == 0
    assert data == codec.dumps(TENSORS, seed=7)
    expected = codec.receiver().decode(sent(codec.sender(7).encode(TENSORS)))
    for form in (bytes, bytearray, memoryview):
        got = codec.loads(form(data))
        assert list(got) == list(TENSORS)
        for name, x in got.items():
            assert (x.dtype, x.shape, x.tobytes()) == (
                TENSORS[name].dtype,
                TENSORS[name].shape,
                expected[name].tobytes(),
            )


def test_the_layout_of_the_bytes_is_the_one_that_is_told():
    data, frames = PLAIN.dumps(TENSORS), PLAIN.sender().encode(TENSORS)
    count = int.from_bytes(data[4:8], "little")
    sizes = np.frombuffer(data, "<u8", count, 8).tolist()
    end = 8 + 8 * count
    assert data[:4] == b"\x89mps"
    assert sizes == [len(frame) for frame in frames]
    assert int.from_bytes(data[end : end + 4], "little") == zlib.crc32(data[:end] + data[end + 4 :])
    at = -(-(end + 4) // 64) * 64
    for frame in frames:
        assert data[at : at + len(frame)] == bytes(frame)
        at += -(-len(frame) // 64) * 64
    assert at == len(data)


def test_a_memory_has_no_bytes_of_one_message():
    with pytest.raises(ValueError, match=r"dumps encodes one message, and ErrorFeedback\(.*\) needs all: use sender"):
        ps.Codec(memory="errorfeedback", quantizer="sign").dumps(TENSORS)


def test_damaged_bytes_are_refused_without_taking_memory():
    data, huge = PLAIN.dumps(TENSORS), b"\xff" * 8
    damaged = [data[:size] for size in range(0, len(data), 7)]
    damaged += [data + b"x", data[:4] + huge[:4] + data[8:], data[:8] + huge + data[16:], "text", None, b"\xff" * 640]
    tracemalloc.start()
    for one in damaged:
        with pytest.raises(ValueError, match=r"[^.]\.$"):
            PLAIN.loads(one)
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


# A file


OLD = b"".join(
    bytes.fromhex(line).ljust(64, b"\0")
    for line in (
        "000000000400000015000000000000004600000000000000080000000000000008",
        "83a17603a173a76d73677061636ba163a46e6f6e65",
        "9281a66d656d6f7279a46e6f6e659293a177a565786163749193a676616c756573a7666c6f61743332910293a162a565786163749193a676616c756573a7666c",
        "6f6174363490",
        "0000803f000020c0",
        "0000000000000040",
    )
)
"""What `Codec.dumps` wrote before it wrote a checksum."""


def test_a_file_without_a_checksum_is_read():
    got = PLAIN.loads(OLD)
    assert {name: (x.dtype.name, x.tolist()) for name, x in got.items()} == {
        "w": ("float32", [1.0, -2.5]),
        "b": ("float64", 2.0),
    }


@pytest.mark.parametrize("codec", [PLAIN, ps.Codec(ps.Uniform(), serializer="json", compressor="zlib")], ids=repr)
def test_every_bit_that_flips_is_found(codec):
    data = codec.dumps({"w": np.arange(3.0), "b": np.float32(1)})
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match=r"^Codec\.dumps writes no such bytes: They (are damaged|begin with)"):
            codec.loads(flipped)


def test_a_file_that_is_cut_short_or_longer_is_refused():
    data = PLAIN.dumps(TENSORS)
    for size in range(len(data)):
        with pytest.raises(ValueError, match=r"^Codec\.dumps writes no such bytes: They [^.]*\."):
            PLAIN.loads(data[:size])
    for more in (b"\0", b"x", bytes(64), data):
        with pytest.raises(ValueError, match="They are damaged, or cut short: their CRC-32 does not fit"):
            PLAIN.loads(data + more)


@pytest.mark.parametrize(
    "other",
    [b"", b"garbage", b'{"w": [1, 2]}', b"PK\x03\x04" + bytes(99), b"\x89PNG\r\n\x1a\n" + bytes(99), b"\x93NUMPY"],
)
def test_another_file_is_said_to_be_another_one(other):
    with pytest.raises(ValueError, match=r"^Codec\.dumps writes no such bytes: They begin with b'") as refused:
        PLAIN.loads(other)
    assert repr(other[:4]).strip("b'\"")[:2] in str(refused.value)
    assert "frames" not in str(refused.value)


@pytest.mark.parametrize("frames", [None, 5, "w", b"w", [1], ["w"], [None], {"w": b""}])
def test_what_is_not_a_list_of_frames_is_refused(frames):
    receiver = PLAIN.receiver()
    with pytest.raises(TypeError, match=r"^decode takes the frames that encode gave, a list of bytes; got "):
        receiver.decode(frames)
    for kind in (bytes, bytearray, memoryview, lambda frame: np.frombuffer(frame, np.uint8)):
        got = receiver.decode([*map(kind, PLAIN.sender().encode(TENSORS))])
        assert all((got[name] == x).all() for name, x in TENSORS.items())


def test_a_saved_run_is_not_the_state_of_an_end():
    run = saved.to_arrays({"params": {"w": np.ones(2)}})
    for end, name in ((PLAIN.sender(), "sender"), (PLAIN.receiver(), "receiver")):
        with pytest.raises(ValueError, match=f"^This state is not one that a {name} gave: an entry is missing"):
            end.restore(run)


# The state of a codec alone


STATEFUL = [
    ps.Codec(ps.Sign(), ps.ErrorFeedback()),
    ps.Codec(ps.TopK(0.5), ps.MomentumCorrection()),
    ps.Codec(ps.Uniform(bits=4), ps.Delta()),
    ps.Codec({"a/*": ps.QSGD(), "*": ps.Exact()}, ps.ErrorFeedback()),
    ps.Codec(ps.Ternary()),
]
NAMES = ["w", "a/b", "b.npy", "b", "a\0b", "minips", ""]


@pytest.mark.parametrize("codec", STATEFUL, ids=repr)
def test_both_ends_go_on_from_files_to_the_same_bits(codec, tmp_path):
    draws = np.random.default_rng(0)
    messages = [{name: draws.normal(size=5) for name in NAMES} for _ in range(6)]
    sender, receiver = codec.sender(3), codec.receiver()
    for x in messages[:3]:
        receiver.decode(sender.encode(x))
    np.savez(tmp_path / "sender.npz", **sender.state())
    np.savez(tmp_path / "receiver.npz", **receiver.state())
    expected = [receiver.decode(sender.encode(x)) for x in messages[3:]]
    sender, receiver = codec.sender(), codec.receiver()
    for end, name in ((sender, "sender"), (receiver, "receiver")):
        with np.load(tmp_path / f"{name}.npz") as kept:
            end.restore(kept)
    for x, before in zip(messages[3:], expected, strict=True):
        after = receiver.decode(sender.encode(x))
        assert list(after) == NAMES
        for name in NAMES:
            np.testing.assert_array_equal(after[name], before[name], strict=True)


def test_a_state_is_not_changed_by_later_messages():
    codec = ps.Codec(ps.Sign(), ps.Delta())
    sender, receiver = codec.sender(), codec.receiver()
    states = []
    for _ in range(3):
        receiver.decode(sender.encode(TENSORS))
        states.append([{name: x.tobytes() for name, x in end.state().items()} for end in (sender, receiver)])
        kept = sender.state(), receiver.state()
        receiver.decode(sender.encode(TENSORS))
        assert [{name: x.tobytes() for name, x in state.items()} for state in kept] == states[-1]
        sender.restore(kept[0])
        receiver.restore(kept[1])


def test_a_state_of_another_end_or_of_none_is_refused_and_changes_nothing():
    codec = ps.Codec(ps.Sign(), ps.Delta())
    sender, receiver = codec.sender(), codec.receiver()
    receiver.decode(sender.encode({"w": np.ones(2)}))
    other = ps.Codec(ps.Sign(), ps.ErrorFeedback())
    good = sender.state()
    whole = saved.from_arrays(good, "a state")
    wrong = [{}, None, 3, {"minips": np.zeros(3)}, other.sender().state(), saved.to_arrays({"end": "sender"})]
    for key, value in (("count", "1"), ("memory", [1]), ("memory", {"w": 1}), ("draws", {}), ("shapes", {"w": 3})):
        wrong.append(saved.to_arrays({**whole, key: value}))
    wrong += [{name: x for name, x in good.items() if name != lost} for lost in good]
    for end, theirs in ((sender, receiver), (receiver, sender)):
        kept = {name: x.tobytes() for name, x in end.state().items()}
        for state in [*(wrong if end is sender else wrong[:6]), theirs.state()]:
            with pytest.raises(ValueError, match=r"^(This state|A sender|A receiver).*\.$"):
                end.restore(state)
            assert {name: x.tobytes() for name, x in end.state().items()} == kept
    assert receiver.decode(sender.encode({"w": np.ones(2)}))["w"].shape == (2,)
