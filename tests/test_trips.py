"""Packets that lesson 05 sends through a local socket."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import minips as ps
from minips_course.wire import trips

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
