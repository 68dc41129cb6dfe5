"""Packets that lesson "wire" sends through a local socket, and its training with two servers."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import minips as ps
from minips import lab
from minips.lab.course import own
from minips_course.wire import trips, two

PACKETS = [
    ps.Packet({"kind": "push"}, {"W": ("exact", {"values": np.arange(size, dtype="f4")})}) for size in (3, 300_000)
]


@dataclass(frozen=True)
class Remembering(ps.MsgPack):
    """MessagePack that keeps what it was given to load."""

    read: list[Any] = field(default_factory=list)

    def loads(self, frames: Any) -> ps.Packet:
        packet = super().loads(frames)
        self.read.append(packet.tensors["W"][1]["values"])
        return packet


def test_each_packet_arrives_in_other_memory_and_each_turn_but_the_first_counts() -> None:
    serializer = Remembering()
    times = trips.microseconds(serializer, PACKETS, repeat=2)
    assert times.shape == (2, 2)
    assert (times > 0).all()
    sent = [packet.tensors["W"][1]["values"] for packet in PACKETS] * 3
    assert len(serializer.read) == len(sent)
    for there, here in zip(serializer.read, sent, strict=True):
        assert np.array_equal(there, here)
        assert not np.shares_memory(there, here)


def test_a_reader_that_fails_is_heard_of() -> None:
    class Broken(ps.MsgPack):
        def loads(self, frames: Any) -> ps.Packet:
            raise ValueError("These are not a packet.")

    with pytest.raises(ValueError, match="These are not a packet"):
        trips.microseconds(Broken(), PACKETS[:1])


def test_a_table_has_times_over_those_of_msgpack() -> None:
    times = {"msgpack": np.array([[1.0, 3.0, 2.0], [4.0, 4.0, 4.0]]), "json": np.array([[8.0] * 3, [20.0] * 3])}
    assert trips.table({"msgpack": 51, "json": 1234}, times).split() == [
        *("format", "bytes", "added", "small", "array", "large", "array"),
        *("msgpack", "51", "1.0", "1.0"),
        *("json", "1,234", "4.0", "5.0"),
    ]


def test_what_has_not_its_library_is_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def build(kind: str, name: str) -> ps.Serializer:
        if name == "json":
            raise ModuleNotFoundError("Install something first.")
        return ps.MsgPack()

    monkeypatch.setattr(ps, "build", build)
    assert {*trips.installed()} == {*ps.names("serializer")} - {"json"}
    assert capsys.readouterr().out == "Install something first.\n"


@pytest.mark.parametrize("servers", [1, 2, 3])
def test_servers_with_a_part_of_the_keys_train_as_one_does(servers: int) -> None:
    def split(tensors: Any, servers: int) -> list[Any]:
        return [{name: x.reshape(-1)[i::servers] for name, x in tensors.items()} for i in range(servers)]

    def join(pieces: Any, like: Any) -> Any:
        whole = {name: np.empty(x.size, x.dtype) for name, x in like.items()}
        for i, piece in enumerate(pieces):
            for name, x in piece.items():
                whole[name][i :: len(pieces)] = x
        return {name: whole[name].reshape(x.shape) for name, x in like.items()}

    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=80, features=4, classes=3))
    server = own.load(own.given(), "bits")
    one = lab.train_own(server, problem, workers=2, steps=5)
    params, received = two.train(server, split, join, problem, workers=2, steps=5, servers=servers)
    assert all(np.allclose(params[name], one.params[name], rtol=1e-6, atol=1e-7) for name in params)
    assert len(received) == servers
    assert servers > 1 or sum(received) == pytest.approx(one.bytes_sent, rel=0.1)
