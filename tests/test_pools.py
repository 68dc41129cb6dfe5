"""Several TCP connections that carry large messages together."""

import contextlib
import hmac
import itertools
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minips as ps
from minips.stages.transports import pools
from minips.stages.transports.framing import MOST_FRAMES, padded, size
from minips.stages.transports.pools import SHARED_BYTES, Pool, Pools, between
from minips.stages.transports.tcp import _TcpWire
from minips.stages.transports.wire import CALL, POOL

WAIT_S, TOKEN = 20.0, "token"
LARGE = np.random.default_rng(0).bytes(SHARED_BYTES + 12_345)


def pairs(count):
    """So many connections, as the wires at their two ends."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        for _ in range(count):
            here = socket.create_connection(listener.getsockname())
            yield _TcpWire(here, 2**30), _TcpWire(listener.accept()[0], 2**30)


@pytest.fixture(params=[2, 3])
def ends(request):
    """Both ends of a pool."""
    here, there = zip(*pairs(request.param), strict=True)
    with Pool(here).first as one, Pool(there).first as other:
        yield one, other


@pytest.fixture
def written(monkeypatch):
    """Bytes by wire."""
    written = {}
    write = _TcpWire.write

    def count(self, buffers, *rest):
        written[self] = written.get(self, 0) + size(buffers)
        write(self, buffers, *rest)

    monkeypatch.setattr(_TcpWire, "write", count)
    return written


def sending(wire, *messages):
    """A thread that sends them."""

    def send():
        with contextlib.suppress(OSError):
            for frames in messages:
                wire.send(CALL, frames)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


def test_all_connections_carry_their_share_of_a_large_message(ends, written):
    one, other = ends
    thread = sending(one, [b"head", LARGE, b"", b"tail"])
    tag, frames = other.receive(WAIT_S)
    thread.join(WAIT_S)
    assert (tag, [bytes(frame) for frame in frames]) == (CALL, [b"head", LARGE, b"", b"tail"])
    shares = [*written.values()]
    assert len(shares) == 1 + len(one.pool.others)
    assert max(shares) - min(shares) < 1000


def test_small_messages_travel_over_the_first(ends, written):
    one, other = ends
    for _ in range(5):
        one.send(CALL, [b"small"])
        assert [bytes(frame) for frame in other.receive(WAIT_S)[1]] == [b"small"]
    assert [*written] == [one]


def test_messages_of_all_sizes_stay_in_order_both_ways(ends):
    sizes = [0, 7, SHARED_BYTES - 1, SHARED_BYTES, 5, SHARED_BYTES + 1, 2 * SHARED_BYTES + 64, 1]
    messages = [[bytes([number]) * nbytes] for number, nbytes in enumerate(sizes)]
    threads = [sending(wire, *messages) for wire in ends]
    for wire in ends:
        for frames in messages:
            assert [bytes(frame) for frame in wire.receive(WAIT_S)[1]] == frames
    for thread in threads:
        thread.join(WAIT_S)


def test_a_wait_that_ends_in_the_middle_of_a_large_message_loses_nothing(ends):
    one, other = ends
    body = padded([LARGE])
    own, *shares = one.pool._shares(size(body))
    one.send(POOL, [bytes([CALL]), struct.pack("<Q", len(LARGE))])
    for part in (slice(0, 100), slice(100, 2**20), slice(2**20, own.stop)):
        with pytest.raises(TimeoutError):
            other.receive(0.05)
        one.write(between(body, part))
    for wire, share in zip(one.pool.others, shares, strict=True):
        with pytest.raises(TimeoutError):
            other.receive(0.05)
        wire.write(between(body, share))
    assert bytes(other.receive(WAIT_S)[1][0]) == LARGE


@pytest.mark.parametrize("place", [0, 1])
def test_a_connection_that_breaks_takes_the_pool_with_it(ends, place):
    one, other = ends
    (other, *other.pool.others)[place].shutdown()
    thread = sending(one, [LARGE])
    with pytest.raises((EOFError, OSError)):
        other.receive(WAIT_S)
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_a_client_whose_pool_broke_goes_on_with_a_new_one():
    params = {"w": np.zeros(SHARED_BYTES // 4, "f4")}
    config = ps.Config(workers=1, transport=ps.Tcp(pool=2), optimizer=ps.SGD(lr=0.5))
    ones = {name: np.ones_like(p) for name, p in params.items()}
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ps.Server(params, config).serve())
        client = stack.enter_context(ps.connect(server.address, config, token=server.token))
        for _ in range(3):
            client.push_pull(ones).result(WAIT_S)
            client._connections[0].channel._wire.pool.others[0].shutdown()
        pulled = client.pull().result(WAIT_S)
    np.testing.assert_array_equal(pulled["w"], np.float32(-1.5))


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ([], "does not say"),
        ([bytes(16)], "does not say"),
        ([bytes(15), bytes([0, 2])], "does not say"),
        ([bytes(16), bytes([2, 2])], "does not say"),
        ([bytes(16), bytes([0, 1])], "does not say"),
        ([bytes(16), bytes([0, 17])], "does not say"),
        ([bytes(16), bytes([0, 2])], "already"),
    ],
)
def test_a_place_that_cannot_be_is_a_value_error(said, words):
    all_pools = Pools()
    all_pools._come[bytes(16)] = {0: None}
    with pytest.raises(ValueError, match=words):
        all_pools.join(None, said)


def test_connections_that_disagree_on_their_number_are_no_pool(monkeypatch):
    monkeypatch.setattr(pools, "COMPLETE_S", 0.2)
    all_pools = Pools()
    with ThreadPoolExecutor(2) as threads:
        said = [[bytes(16), bytes(place)] for place in ((0, 2), (2, 3))]
        for one in [threads.submit(all_pools.join, None, frames) for frames in said]:
            with pytest.raises(TimeoutError, match="connections of a pool came"):
                one.result(WAIT_S)


def test_a_pool_that_does_not_become_complete_is_hung_up_on(monkeypatch):
    monkeypatch.setattr(pools, "COMPLETE_S", 0.1)
    transport = ps.Tcp()
    with transport.serve(lambda frames: frames, token=TOKEN) as endpoint:
        lonely = ps.Tcp(pool=1).connect(endpoint.address, TOKEN)
        with lonely, ps.Tcp(pool=1).connect(endpoint.address, TOKEN) as channel:
            lonely._wire.send(POOL, [bytes(16), bytes([0, 2])])
            with pytest.raises(ConnectionError):
                lonely.call([b"anybody?"]).result(WAIT_S)
            assert bytes(channel.call([b"here"]).result(WAIT_S)[0]) == b"here"
        deadline = time.monotonic() + WAIT_S
        while endpoint._wires and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not endpoint._wires


def test_other_transports_hang_up_on_a_word_of_a_pool():
    pipe = ps.Pipe()
    with pipe.serve(lambda frames: frames, token=TOKEN) as endpoint, pipe.connect(endpoint.address, TOKEN) as channel:
        channel._wire.send(POOL, [bytes(16), bytes([0, 2])])
        with pytest.raises(ConnectionError):
            channel.call([b"anybody?"]).result(WAIT_S)


def test_the_bytes_are_those_that_the_protocol_says():
    """A client of plain sockets: it proves itself on two of them, says where they belong, and sends its two halves."""

    def message(tag, *frames):
        head = struct.pack(f"<BxxxI{len(frames)}Q", tag, len(frames), *map(len, frames))
        return b"".join(part + bytes(-len(part) % 64) for part in (head, *frames))

    def hear(stream, nbytes):
        heard = bytearray()
        while len(heard) < nbytes:
            some = stream.recv(nbytes - len(heard))
            assert some
            heard += some
        return bytes(heard)

    with ps.Tcp().serve(lambda frames: frames, token=TOKEN) as endpoint, contextlib.ExitStack() as stack:
        host, port = endpoint.address.removeprefix("tcp://").split(":")
        both = [stack.enter_context(socket.create_connection((host, int(port)), WAIT_S)) for _ in range(2)]
        for stream in both:
            theirs, ours = hear(stream, 192)[128:160], bytes(32)
            stream.sendall(message(2, ours, hmac.digest(TOKEN.encode(), b"client" + theirs + ours, "sha256")))
            hear(stream, 128)
        for place, stream in enumerate(both):
            stream.sendall(message(3, b"k" * 16, bytes([place, 2])))
        announced = message(3, bytes(1), struct.pack("<2Q", 5, len(LARGE)))
        body = b"hello".ljust(64, b"\0") + LARGE + bytes(-len(LARGE) % 64)
        half = -(-len(body) // 128) * 64
        for stream, part in zip(both, (announced + body[:half], body[half:]), strict=True):
            stream.sendall(part)
        assert hear(both[0], len(announced)) == announced
        assert hear(both[0], half) + hear(both[1], len(body) - half) == body


@given(st.lists(st.binary(max_size=200), max_size=6), st.lists(st.integers(0, 700), max_size=4))
def test_shares_are_the_whole(buffers, cuts):
    whole = b"".join(buffers)
    edges = sorted([0, *cuts, max([len(whole), *cuts])])
    shares = [between(buffers, slice(a, b)) for a, b in itertools.pairwise(edges)]
    assert b"".join(b"".join(share) for share in shares) == whole


def test_a_large_message_of_too_many_frames_is_not_begun(ends):
    one, other = ends
    one.send(POOL, [bytes([CALL]), bytes(8 * (MOST_FRAMES + 1))])
    with pytest.raises(ValueError, match="65537 frames"):
        other.receive(WAIT_S)
