"""A server that is given nonsense over each transport refuses it in sentences and serves the others."""

import contextlib
import socket

import numpy as np
import pytest
from hostile import START, TRANSPORTS, Good, Hostile, Process, fault, packed

import minips as ps

MOST_MB = 64
"""The memory that hostile inputs may take beyond that of a server at rest."""


def besiege(transport, calls, streams, seed):
    with Process(transport) as server:
        good, hostile = Good(server), Hostile(server, transport, seed)
        good.start()
        try:
            hostile.attack(1, 0)  # loads what is loaded at the first call
            at_rest = server.high_mb
            hostile.attack(calls, streams)
        finally:
            good.end()
        grown = server.high_mb - at_rest
        print(
            f"{transport}: {calls} calls: {hostile.refused} refused, {hostile.taken} taken, {hostile.hung_up} cut; "
            f"{streams} streams; {good.served} good calls, the longest {good.longest_s:.3f} s; {grown:.1f} MB more"
        )
        assert server.lives
        assert not hostile.faults, hostile.faults[:20]
        assert good.failed is None
        assert good.served > 0
        np.testing.assert_array_equal(good.params, START)
        assert hostile.refused > calls / 2
        assert hostile.hung_up <= streams
        assert grown <= MOST_MB
    assert "Traceback" not in server.stderr


@pytest.mark.parametrize("transport", ["tcp", pytest.param("http", marks=pytest.mark.soak)])
def test_nonsense_is_refused_in_sentences(transport):
    besiege(transport, calls=400, streams=40, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize(("transport", "calls"), [("tcp", 3000), ("shm", 3000), ("http", 2000), ("zmq", 2000)])
def test_ten_thousand_hostile_inputs(transport, calls):
    besiege(transport, calls - calls // 10, calls // 10, seed=2)


@pytest.mark.campaign
@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("seed", range(4))
def test_a_hundred_thousand_hostile_inputs(transport, seed):
    besiege(transport, 4500, 500, seed=100 + seed)


@pytest.mark.parametrize(
    "text",
    ["", "unhashable type: 'list'", "It has no full stop", "'NoneType' object is not iterable.", "x" * 2001 + "."],
)
def test_what_is_no_sentence_is_a_fault(text):
    assert fault(text)
    assert not fault("There is no worker 5.")


def test_a_peer_of_another_zmtp_does_not_end_a_zmq_server():
    config = ps.Config(transport="zmq", workers=1)
    with ps.Server({"w": np.zeros(2)}, config).serve() as server:
        host, port = server.address.removeprefix("zmq://").rsplit(":", 1)
        with socket.create_connection((host, int(port)), 10) as stranger:
            stranger.sendall(b"\x01\x00" + b"\x02\x00x" * 5)  # ZMTP 1: no greeting of version 3
            stranger.settimeout(0.2)
            with contextlib.suppress(OSError):
                stranger.recv(64)
        assert ps.status(server.address, server.token).workers[0].clock == 0


def test_of_an_error_that_was_not_expected_the_events_have_the_words(monkeypatch):
    def broken(*_, **__):
        raise KeyError("a secret of the interpreter")

    config = ps.Config(transport="inproc", workers=1, consistency="asp")
    with (
        ps.Server({"w": np.zeros(2)}, config).serve(token="t") as server,
        ps.connect(server.address, config, token="t") as client,
    ):
        monkeypatch.setattr(server.shard, "take", broken)
        with pytest.raises(RuntimeError, match=r"^The server could not answer this request; its events say why\.$"):
            client.push({"w": np.ones(2)}).result(10)
        assert any("KeyError: 'a secret of the interpreter'" in text for _, text in server.events)
        monkeypatch.undo()
        assert client.push({"w": np.ones(2)}).result(10) == "applied"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"version": 1}, "pushed gradients of version 1; the newest is 0"),
        ({"of": {"w": [0]}}, "server has no tables"),
    ],
)
def test_gradients_of_a_version_to_come_and_rows_of_no_table_are_refused(fields, words):
    config = ps.Config(workers=1, consistency="asp")
    said = {"kind": "push", "worker": 0, "memory": "none", "clock": 0, "version": 0, **fields}
    frames = packed(said, [["w", "exact", [["values", "float32", [2]]]]], [bytes(8)])
    with (
        ps.Server({"w": np.zeros(2, "f4")}, config).serve() as server,
        ps.Tcp().connect(server.address, server.token) as channel,
    ):
        assert channel.call(packed({"kind": "hello", "worker": 0}, [], [])).result(10)
        with pytest.raises(ValueError, match=words):
            channel.call(frames).result(10)
        assert server.shard.clocks == [0]
