"""Shared memory: what is shared, what is used again, and what a peer cannot do to its neighbour."""

import gc
import os
import socket
import struct
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import minips as ps
from minips.stages.transports.framing import AHEAD_BYTES
from minips.stages.transports.shm import _HEAD, _ShmWire

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the transport shm needs Linux's memory descriptors")

LARGE = 100_000


@pytest.fixture
def ends():
    one, other = (_ShmWire(sock, 2**24) for sock in socket.socketpair())
    yield one, other
    one.close()
    other.close()


def test_large_frames_are_the_senders_memory_and_small_ones_are_not(ends):
    one, other = ends
    one.send(0, [bytes(10)])
    assert len(one._mine) == 0
    other.receive(1)
    one.send(0, [np.arange(LARGE, dtype=np.uint8).data, b"", b"abc"])
    _, frames = other.receive(1)
    assert [len(frame) for frame in frames] == [LARGE, 0, 3]
    assert bytes(frames[2]) == b"abc"
    frames[0][0] = 77
    assert one._mine[0][0] == 77


def padded(data):
    return data.ljust(-(-len(data) // 64) * 64, b"\0")


def test_a_message_through_the_socket_is_a_head_and_its_frames(ends):
    one, other = ends
    lengths, frames = struct.pack("<QQQ", 5, 0, 70), padded(b"abcde") + padded(bytes(range(70)))
    for done in (b"", struct.pack("<I", 3)):
        one._done += [3] if done else []
        one.send(7, [b"abcde", b"", bytes(range(70))])
        head = struct.pack("<BBxxIII", 7, 0, 3, len(done) // 4, 0)
        assert other._sock.recv(AHEAD_BYTES) == padded(head + lengths + done) + frames


def test_a_descriptor_that_arrives_with_the_message_before_it_is_kept(ends):
    one, other = ends
    for number in range(3):
        one.send(0, [b"small"])
        one.send(0, [bytes([number]) * LARGE])
    for number in range(3):
        assert bytes(other.receive(1)[1][0]) == b"small"
        assert bytes(other.receive(1)[1][0]) == bytes([number]) * LARGE


def test_a_segment_is_used_again_once_nobody_looks_at_it(ends):
    one, other = ends
    kept = []
    for _ in range(3):
        one.send(0, [bytes(LARGE)])
        kept.append(np.frombuffer(other.receive(1)[1][0], np.uint8))
    assert len(one._mine) == 3
    views = [array[10:20] for array in kept]
    del kept
    gc.collect()
    other.send(0, [])
    one.receive(1)
    assert not one._free  # a part of each is still in use
    views.clear()
    other.send(0, [])
    one.receive(1)
    assert one._free == {0, 1, 2}
    for _ in range(10):
        one.send(0, [bytes(LARGE)])
        other.receive(1)
        other.send(0, [])
        one.receive(1)
    assert len(one._mine) == 3


def test_what_was_received_outlives_the_connection(ends):
    one, other = ends
    one.send(0, [b"x" * LARGE])
    _, frames = other.receive(1)
    one.close()
    other.close()
    assert bytes(frames[0]) == b"x" * LARGE


def test_a_segment_that_could_be_pulled_away_is_refused(ends):
    one, other = ends
    loose = os.memfd_create("loose")
    os.ftruncate(loose, 2**20)
    head = (_HEAD.pack(0, 2, 1, 0, 0) + struct.pack("<Q", LARGE)).ljust(64, b"\0")
    socket.send_fds(one._sock, [head], [loose])
    os.close(loose)
    with pytest.raises(ValueError, match="not sealed"):
        other.receive(1)


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (_HEAD.pack(0, 1, 1, 0, 7) + struct.pack("<Q", LARGE), "no segment 7"),
        (_HEAD.pack(0, 2, 1, 0, 0) + struct.pack("<Q", LARGE), "without a descriptor"),
        (_HEAD.pack(0, 0, 0, 9, 0), "9 segments are returned"),
        (_HEAD.pack(0, 0, 1, 0, 0) + struct.pack("<Q", 2**40), "larger than"),
    ],
)
def test_a_head_that_lies_is_a_value_error(ends, head, words):
    one, other = ends
    one._sock.sendall(head.ljust(64, b"\0"))
    with pytest.raises(ValueError, match=words):
        other.receive(1)


def test_a_stranger_cannot_offer_memory(ends):
    one, other = ends
    one.send(2, [bytes(LARGE)])
    with pytest.raises(ValueError, match="has not proved itself"):
        other.receive(1, limit=1024)


@pytest.mark.alone
def test_nothing_is_left_of_a_process_that_is_killed(tmp_path):
    before = set(os.listdir("/dev/shm"))
    script = tmp_path / "dies.py"
    script.write_text(
        textwrap.dedent("""
        import os, signal
        import numpy as np
        import minips as ps

        config = ps.Config(workers=1, transport="shm")
        with ps.Server({"w": np.zeros(100_000)}, config).serve() as server:
            with ps.connect(server.address, config, token=server.token) as client:
                client.push_pull({"w": np.ones(100_000)}).result()
                os.kill(os.getpid(), signal.SIGKILL)
        """)
    )
    assert subprocess.run([sys.executable, script], timeout=60).returncode == -9
    assert set(os.listdir("/dev/shm")) <= before


@pytest.mark.parametrize("servers", [1, 2])
def test_bsp_is_the_same_to_the_bit_as_over_tcp(servers):
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=200, features=3000, classes=4))
    config = ps.Config(workers=2, servers=servers, steps=5, seed=3)
    runs = [ps.train(problem, config, engine="threads")]
    runs.append(ps.train(problem, ps.Config.from_dict({**config.to_dict(), "transport": "shm"}), engine="processes"))
    for name, p in runs[0].params.items():
        np.testing.assert_array_equal(p, runs[1].params[name])


def test_memory_that_cannot_be_had_is_a_sentence_on_either_side():
    code = """
        import resource, numpy as np, minips as ps
        with ps.SharedMemory().serve(lambda frames: [bytes(10**6)] if frames else [], token="t") as endpoint:
            with ps.SharedMemory().connect(endpoint.address, "t") as channel:
                resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
                for say in (lambda: channel.call([b"a"]).result(20), lambda: channel.call([bytes(10**6)])):
                    try:
                        say()
                    except RuntimeError as error:
                        print(error)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    words = "There is no shared memory of 1048576 bytes for a message: File too large. Raise the limit"
    assert [line.startswith(words) for line in done.stdout.splitlines()] == [True, True]
    assert done.stderr == ""
