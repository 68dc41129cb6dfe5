"""The index that the messages of a link have in common is made once: bytes, arrays and errors are those of MsgPack."""

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minips as ps
from minips.core.plan import Plan, planned
from minips.stages.serializers import Packet

DTYPES = ("f4", "f8", "f2", "u1", "i8", ">f4", "?")
ARRAYS = st.builds(
    lambda dtype, shape, seed, turned: np.asarray(
        np.random.default_rng(seed).integers(0, 2, shape).astype(dtype).T if turned else np.zeros(shape, dtype)
    ),
    st.sampled_from(DTYPES),
    st.sampled_from([(), (0,), (3,), (2, 3), (1, 0, 2)]),
    st.integers(0, 9),
    st.booleans(),
)
TENSORS = st.dictionaries(
    st.sampled_from("abc"),
    st.tuples(st.sampled_from(["exact", "sign"]), st.dictionaries(st.sampled_from(["values", "like"]), ARRAYS)),
    max_size=2,
)
PACKETS = st.builds(Packet, st.dictionaries(st.sampled_from(["kind", "clock"]), st.integers(-1, 300)), TENSORS)


def same(one: Packet, other: Packet) -> bool:
    def told(packet: Packet) -> list[object]:
        parts = [
            (name, quantizer, [(part, x.dtype, x.shape, x.tobytes()) for part, x in parts.items()])
            for name, (quantizer, parts) in packet.tensors.items()
        ]
        return [packet.header, parts]

    return told(one) == told(other)


FEW = st.lists(PACKETS, min_size=1, max_size=3)


@given(FEW.flatmap(lambda few: st.lists(st.sampled_from(few), max_size=8)))
def test_a_plan_writes_and_reads_what_messagepack_does(packets: list[Packet]) -> None:
    general, writes, reads = ps.MsgPack(), Plan(), Plan()
    for packet in packets:
        frames = [bytes(frame) for frame in writes.dumps(packet)]
        assert frames == [bytes(frame) for frame in general.dumps(packet)]
        for buffers in (frames, [*map(bytearray, frames)], [*map(memoryview, frames)]):
            assert same(reads.loads(buffers), general.loads(buffers))


W = {"w": ("exact", {"values": np.arange(3, dtype="f4")})}
HEAD, BODY = ps.MsgPack().dumps(Packet({"clock": 1}, W))
INDEX = HEAD[HEAD.index(msgpack.packb([["w", "exact", [["values", "float32", [3]]]]])) :]
MALFORMED = {
    "no frames": [],
    "an empty head": [b"", BODY],
    "the index alone": [INDEX, BODY],
    "a header that is no map": [b"\x92" + msgpack.packb(3) + INDEX, BODY],
    "two headers": [b"\x92" + msgpack.packb({}) + msgpack.packb({}) + INDEX, BODY],
    "an array of three": [b"\x93" + msgpack.packb({}) + INDEX, BODY],
    "a frame too few": [HEAD],
    "a frame too short": [HEAD, BODY[:-1]],
    "a frame too long": [HEAD, bytes(BODY) + b"\0"],
}


@pytest.mark.parametrize("frames", MALFORMED.values(), ids=MALFORMED)
def test_a_plan_refuses_what_messagepack_refuses(frames: list[bytes]) -> None:
    plan = Plan()
    assert same(plan.loads([HEAD, BODY]), Packet({"clock": 1}, W))
    with pytest.raises(ValueError, match="The frames are not a packet in MessagePack") as general:
        ps.MsgPack().loads(frames)
    with pytest.raises(ValueError, match="The frames are not a packet in MessagePack") as refused:
        plan.loads(frames)
    assert str(refused.value) == str(general.value)
    assert same(plan.loads([HEAD, BODY]), Packet({"clock": 1}, W))


def test_a_known_message_is_not_described_again(monkeypatch: pytest.MonkeyPatch) -> None:
    writes, reads = Plan(), Plan()
    frames = writes.dumps(Packet({"clock": 0}, W))
    reads.loads(frames)
    monkeypatch.delattr(ps.MsgPack, "dumps")
    monkeypatch.delattr(ps.MsgPack, "loads")
    frames = writes.dumps(Packet({"clock": 1}, W))
    assert same(reads.loads(frames), Packet({"clock": 1}, W))


def test_other_serializers_have_no_plan() -> None:
    assert type(planned(ps.MsgPack())) is Plan
    assert planned(ps.Json()) == ps.Json()
