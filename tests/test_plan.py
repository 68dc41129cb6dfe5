"""What of a link's exact messages is the same is found once: bytes, arrays and errors are those of the general way."""

from collections import Counter
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minips as ps
from minips.core.codec import Decoder, Encoder, unpack
from minips.core.limits import of_anything
from minips.core.local import warn_of_outer
from minips.core.message import Header, Message
from minips.core.plan import Plan
from minips.results.trace import UNTIMED, Trace
from minips.stage import _KINDS, DEFAULTS, Frames, Tensors

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
TENSORS = st.dictionaries(st.sampled_from("abc"), ARRAYS, max_size=2)
HEADERS = st.dictionaries(st.sampled_from(["kind", "clock"]), st.integers(-1, 300))
PLAIN = ps.Codec()
CODECS = (PLAIN, ps.Codec(ps.Float16()), ps.Codec(compressor=ps.Zlib()), ps.Codec(serializer=ps.Json()))
FEW = st.lists(st.tuples(HEADERS, TENSORS), min_size=1, max_size=3)


def encoder(codec: ps.Codec, planned: bool) -> Encoder:
    one = Encoder(codec, np.random.default_rng(0), UNTIMED)
    if not planned:
        one._plan = None
    return one


def decoded(frames: Frames, plan: Plan | None = None) -> tuple[Header, Header, list[Any]]:
    packet, told, *_ = unpack(frames, PLAIN, UNTIMED, plan)
    message = Decoder(UNTIMED).decode(packet)
    return told, message.header, [(name, x.dtype, x.shape, x.tobytes()) for name, x in message.tensors.items()]


@given(
    FEW.flatmap(lambda few: st.lists(st.tuples(st.sampled_from(few), st.sampled_from((0, 0, 0, 1, 2, 3))), max_size=8))
)
def test_a_plan_writes_and_reads_what_the_stages_do(messages: list[tuple[tuple[Header, Tensors], int]]) -> None:
    reads = Plan()
    writes, general = ([encoder(codec, planned) for codec in CODECS] for planned in (True, False))
    for (header, tensors), number in messages:
        floats = {name: x for name, x in tensors.items() if number != 1 or x.dtype.kind == "f"}
        frames = [bytes(frame) for frame in writes[number].encode(Message(header, floats))]
        assert frames == [bytes(frame) for frame in general[number].encode(Message(header, floats))]
        for buffers in (frames, [*map(bytearray, frames)], [*map(memoryview, frames)]):
            assert decoded(buffers, reads) == decoded(buffers)


W = {"w": np.arange(3, dtype="f4")}
ENVELOPE, HEAD, BODY = map(bytes, encoder(PLAIN, planned=False).encode(Message({"clock": 1}, W)))
INDEX = HEAD[HEAD.index(msgpack.packb([["w", "exact", [["values", "float32", [3]]]]])) :]
MALFORMED = {
    "no frames": [],
    "an empty head": [b"", BODY],
    "the index alone": [INDEX, BODY],
    "a header that is no map": [b"\x92" + msgpack.packb(3) + INDEX, BODY],
    "two headers": [b"\x92" + msgpack.packb({}) + msgpack.packb({}) + INDEX, BODY],
    "an array of three": [b"\x93" + msgpack.packb({}) + INDEX, BODY],
    "a memory that there is not": [b"\x92" + msgpack.packb({"memory": "elephant"}) + INDEX, BODY],
    "a frame too few": [HEAD],
    "a frame too short": [HEAD, BODY[:-1]],
    "a frame too long": [HEAD, BODY + b"\0"],
}


@pytest.mark.parametrize("frames", MALFORMED.values(), ids=MALFORMED)
def test_a_plan_refuses_what_the_stages_refuse(frames: list[bytes]) -> None:
    plan = Plan()
    assert decoded([ENVELOPE, HEAD, BODY], plan) == decoded([ENVELOPE, HEAD, BODY])
    with pytest.raises(ValueError, match=r"The frames are not a packet|There is no memory") as general:
        decoded([ENVELOPE, *frames])
    with pytest.raises(ValueError, match=r"The frames are not a packet|There is no memory") as refused:
        decoded([ENVELOPE, *frames], plan)
    assert str(refused.value) == str(general.value)
    assert decoded([ENVELOPE, HEAD, BODY], plan) == decoded([ENVELOPE, HEAD, BODY])


def test_a_known_message_goes_through_no_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    writes, reads = encoder(PLAIN, planned=True), Plan()
    decoded(writes.encode(Message({"clock": 0}, W)), reads)
    for stage in (ps.MsgPack, ps.Exact):
        for way in ("dumps", "loads", "encode", "decode"):
            monkeypatch.delattr(stage, way, raising=False)
    told, header, tensors = decoded(writes.encode(Message({"clock": 1}, W)), reads)
    assert told["v"] == 3
    assert header == {"clock": 1, "memory": "none"}
    assert tensors == [("w", np.dtype("f4"), (3,), W["w"].tobytes())]


def test_an_empty_envelope_is_refused_alike() -> None:
    for plan in (None, Plan()):
        with pytest.raises(ValueError, match="The first frame is not a minips envelope: it is not a map"):
            decoded([b"", HEAD, BODY], plan)


@pytest.mark.parametrize("like", [{"w": np.zeros(4, "f4")}, {"v": W["w"]}], ids=["a shape", "a name"])
def test_arrays_that_do_not_fit_are_refused_each_time(like: Tensors) -> None:
    plan, refused = Plan(), set()
    for known in (plan, plan, plan, None):
        with pytest.raises(ValueError, match=r"must be float32 of shape \(4,\)|Expected gradients of v") as error:
            Decoder(UNTIMED).decode(unpack([ENVELOPE, HEAD, BODY], PLAIN, UNTIMED, known, like=like)[0], like)
        refused.add(str(error.value))
    assert len(refused) == 1


def test_what_is_learned_is_what_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer over shared memory writes over its frames while they are read: no other's message is read by that."""
    a, b = np.arange(3, dtype="f4"), np.arange(3, 6, dtype="f4")
    honest = [*map(bytes, encoder(PLAIN, planned=False).encode(Message({"clock": 1}, {"a": a, "b": b})))]
    turned = [*map(bytearray, encoder(PLAIN, planned=False).encode(Message({"clock": 1}, {"b": b, "a": a})))]
    loads, unpackb, plan = ps.MsgPack.loads, msgpack.unpackb, Plan()
    other = bytes(encoder(CODECS[3], planned=False).encode(Message({}, {}))[0]).replace(b"json", b"none")

    def loaded(self: ps.MsgPack, frames: Frames) -> Any:
        packet = loads(self, frames)
        turned[1][:] = honest[1]
        turned[0][: len(other)] = other
        return packet

    monkeypatch.setattr(ps.MsgPack, "loads", loaded)
    decoded([*map(memoryview, turned)], plan)
    monkeypatch.undo()
    assert plan.opening[0] in (None, honest[0])
    assert unpackb(honest[0]) == plan.opening[1]
    assert decoded(honest, plan) == decoded(honest)


def test_a_large_head_is_read_and_not_learned() -> None:
    head = msgpack.packb([{"clock": 1, "note": "x" * 2**22}, [["w", "exact", [["values", "float32", [3]]]]]])
    plan = Plan()
    assert decoded([ENVELOPE, head, BODY], plan) == decoded([ENVELOPE, head, BODY])
    assert plan._last == Plan()._last


def test_a_name_told_twice_is_refused_and_not_planned() -> None:
    entry = ["w", "exact", [["values", "float32", [3]]]]
    frames = [ENVELOPE, msgpack.packb([{"clock": 1}, [entry, entry]]), bytes(12), BODY]
    for plan in (Plan(), None):
        with pytest.raises(ValueError, match="the tensor 'w', or a part of it, occurs twice"):
            decoded(frames, plan)


@pytest.mark.parametrize(
    "frames",
    [[HEAD, BODY, b"more"], [HEAD.replace(b"\x82", b"\x83\xa5clock\x01", 1), BODY]],
    ids=["a frame that no part uses", "a field that is there twice"],
)
def test_a_plan_reads_nothing_that_the_general_way_refuses(frames: list[bytes]) -> None:
    plan = Plan()
    decoded([ENVELOPE, HEAD, BODY], plan)
    for known in (plan, None):
        with pytest.raises(ValueError, match=r"there are more frames than parts|a key occurs twice in a map"):
            decoded([ENVELOPE, *frames], known)


@pytest.mark.parametrize("codec", CODECS[1:], ids=["float16", "zlib", "json"])
def test_other_stages_have_no_plan(codec: ps.Codec) -> None:
    assert encoder(codec, planned=True)._plan is None
    assert encoder(PLAIN, planned=True)._plan is not None


PACK, EXACT, MEMORY, PLAIN_BYTES = ps.MsgPack, ps.Exact, ps.NoMemory, ps.NoCompression
METHODS = {
    PACK: ("dumps", "loads"),
    EXACT: ("encode", "decode"),
    MEMORY: ("compensate", "update", "restore"),
    PLAIN_BYTES: ("compress", "decompress"),
}
PROBLEM = ps.LinearRegression(np.eye(8, 3, dtype="f4"), np.ones(8, "f4"))
STEPS, WORKERS = 10, 2


def renamed(base: type[Any], name: str = "renamed", **own: Any) -> Any:
    """A registered subclass of a stage, with methods of its ``own``."""
    return ps.register(dataclass(frozen=True)(type("Renamed", (base,), {"name": name, **own})))()


def counting(original: Any, name: str, called: Counter[str]) -> Any:
    """A method that does what the original does, and counts its calls."""

    def counted(self: Any, *values: Any) -> Any:
        called[name] += 1
        return original(self, *values)

    return counted


def trained(stage: Any) -> ps.Run:
    codec = ps.Codec(**{stage.kind: stage}) if stage.kind != "optimizer" else ps.Codec()
    config = ps.Config(workers=WORKERS, steps=STEPS, push=codec, pull=codec)
    return ps.train(PROBLEM, config.with_({"optimizer": stage} if stage.kind == "optimizer" else {}), engine="threads")


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("base", [*METHODS, ps.SGD])
def test_a_subclass_that_changes_nothing_is_planned(base: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    called: Counter[str] = Counter()
    for cls in (PACK, EXACT):
        for method in METHODS[cls]:
            monkeypatch.setattr(cls, method, counting(getattr(cls, method), method, called))
    known = trained(base())
    called.clear()
    run = trained(renamed(base))
    np.testing.assert_array_equal(run.params["w"], known.params["w"])
    assert max(called.values()) < WORKERS * STEPS
    assert run.trace.planned == known.trace.planned
    assert run.trace.planned.total() > WORKERS * STEPS
    assert f" {run.trace.planned['worker 0'] + run.trace.planned['worker 1']} of workers, " in run.summary()


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize(
    ("base", "method"), [(base, method) for base, methods in METHODS.items() for method in methods]
)
def test_a_subclass_that_overrides_a_method_is_called_for_each_message(base: type[Any], method: str) -> None:
    called: Counter[str] = Counter()
    run = trained(renamed(base, **{method: counting(getattr(base, method), method, called)}))
    np.testing.assert_array_equal(run.params["w"], trained(base()).params["w"])
    assert called[method] >= WORKERS * STEPS
    assert not run.trace.planned
    assert "planned" not in run.summary()


@pytest.mark.usefixtures("registry")
def test_an_inherited_method_of_a_mixin_counts_and_a_claim_of_ones_own_stands() -> None:
    loud = type("Loud", (), {"compress": lambda self, buffer: buffer})
    assert not renamed(type("Both", (loud, PLAIN_BYTES), {})).identity
    assert renamed(PLAIN_BYTES, "claims", compress=lambda self, buffer: buffer, identity=True).identity
    assert not renamed(PLAIN_BYTES, "denies", identity=False).identity
    assert not renamed(type(renamed(EXACT, "first", encode=lambda self, x, rng: {"values": x})), "second").identity


@pytest.mark.usefixtures("registry")
def test_a_stage_that_is_registered_again_is_read_as_it_is_then() -> None:
    plan, codec = Plan(), ps.Codec(renamed(EXACT))
    writes = encoder(codec, planned=True)
    for _ in range(3):
        frames = writes.encode(Message({}, W))
        assert decoded(frames, plan)[2][0][3] == W["w"].tobytes()
    renamed(EXACT, decode=lambda self, parts: parts["values"] + 1)
    assert decoded(frames, plan) == decoded(frames)
    assert decoded(frames, plan)[2][0][3] == (W["w"] + 1).tobytes()


@pytest.mark.usefixtures("registry")
def test_a_name_that_a_receiver_does_not_know_is_refused_each_time() -> None:
    codec = ps.Codec(renamed(EXACT))
    writes, plan = encoder(codec, planned=True), Plan()
    several = [writes.encode(Message({"clock": clock}, W)) for clock in range(3)]
    _KINDS["quantizer"].pop("renamed")
    DEFAULTS.pop(("quantizer", "renamed"), None)
    for frames in several:
        with pytest.raises(ValueError, match="There is no quantizer named 'renamed'"):
            decoded(frames, plan)


def test_a_planned_message_shares_its_time_between_the_stages() -> None:
    sent, received = Trace("worker 0", now=count().__next__), Trace("server 0", now=count().__next__)
    sender, receiver = PLAIN.sender(trace=sent), PLAIN.receiver(received)
    for _ in range(3):
        receiver.decode(sender.encode(W))
    assert sent.planned == {"worker 0": 2}
    assert [(span.name, span.seconds) for span in sent][-2:] == [("quantize", 1), ("serialize", 1)]
    spans = [(span.name, span.seconds) for span in received]
    assert spans[-3:] == [("decompress", 1), ("deserialize", 1), ("dequantize", 1)]
    assert (sent + received.since(1.0)).planned == sent.planned


def test_a_mapping_of_exact_quantizers_is_planned_and_one_with_another_is_not() -> None:
    assert encoder(ps.Codec({"b": ps.Exact(), "*": ps.Exact()}), planned=True)._plan is not None
    assert encoder(ps.Codec({"b": ps.Exact(), "*": ps.Float16()}), planned=True)._plan is None


def test_a_saved_run_tells_its_planned_messages(tmp_path: Path) -> None:
    run = trained(ps.Exact())
    run.save(tmp_path / "run.npz")
    assert ps.Run.load(tmp_path / "run.npz").summary() == run.summary()
    cut = replace(run, trace=Trace(limit=4, until=0.5, planned=run.trace.planned))
    assert "at least" in cut.summary()


@pytest.mark.usefixtures("registry")
def test_other_special_cases_go_by_behaviour_too() -> None:
    with pytest.warns(UserWarning, match="With local steps the optimizer is the outer one"):
        warn_of_outer(ps.LocalSteps(), renamed(ps.SGD))
    warn_of_outer(ps.LocalSteps(), renamed(ps.SGD, "steps", step=lambda self, params, grads, state: None))
    limits = of_anything()._replace(head=10)
    with pytest.raises(ValueError, match="The second frame has 11 bytes"):
        limits.check_head(renamed(PACK), [bytes(11)])
    limits.check_head(renamed(PACK, "reads", loads=lambda self, frames: frames), [bytes(11)])
    table = ps.Config(push=ps.Codec(memory=renamed(MEMORY)), workers=1)
    with (
        ps.Server({"w": np.zeros((4, 2), "f4")}, table, tables=("w",)).serve() as server,
        ps.connect(server.address, table, token=server.token) as client,
    ):
        pushed = ps.Rows([1], np.ones((1, 2), "f4"))
        assert client.push({"w": pushed}).result(10) == "applied"
