"""A link's bandwidth and latency. A shaped transfer cannot be sooner than its formula."""

import threading
import time

import numpy as np
import pytest

import minips as ps
from minips.stages.transports.link import _Direction
from minips.testing.transports import CHECKS, run

WAIT_S = 30.0
MB = bytes(1_000_000)


def echo(frames):
    return frames


def swallow(frames):
    return []


class Clock:
    """Seconds since it was made."""

    def __init__(self):
        self.start = time.monotonic()

    def __call__(self):
        return time.monotonic() - self.start


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_fast_link_is_a_transport_like_any_other(check):
    run(check, ps.Link(bandwidth_bps=1e12, latency_s=0).around(ps.Tcp()))


def test_seconds_are_bits_over_bandwidth_plus_latency():
    assert ps.Link(bandwidth_bps=8e6, latency_s=0.5).seconds(2_000_000) == 2.5
    assert ps.Link(bandwidth_bps=8e6, latency_s=0.5).seconds(0) == 0.5


def test_a_direction_takes_one_transfer_after_the_other():
    way = _Direction(bytes_per_s=100.0)
    assert way.take(10.0, 200) == (10.0, 12.0)
    assert way.take(10.0, 100) == (12.0, 13.0)  # waits until the first has left
    assert way.take(20.0, 100) == (20.0, 21.0)  # finds it free
    assert way.take(20.0, 0) == (21.0, 21.0)
    assert way.take(50.0, 0) == (50.0, 50.0)
    assert way.take(10.0, 100) == (21.0, 22.0)  # what is empty holds nobody up


@pytest.mark.parametrize("transport", [ps.InProc(), ps.Tcp()], ids=lambda t: t.name)
def test_bytes_leave_at_the_bandwidth_and_arrive_after_the_latency(transport):
    link = ps.Link(bandwidth_bps=80e6, latency_s=0.05)  # 1 MB takes 0.1 s
    with link.around(transport).serve(swallow) as endpoint, link.around(transport).connect(endpoint.address) as channel:
        clock = Clock()
        future = channel.call([MB])
        assert future.result(WAIT_S) == []
        assert clock() >= 0.1 + 2 * 0.05


def test_the_handler_hears_of_a_message_once_it_has_arrived():
    link, heard, clock = ps.Link(bandwidth_bps=80e6, latency_s=0.05), [], Clock()

    def handler(frames):
        heard.append(clock())
        return []

    with link.around(ps.Tcp()).serve(handler) as endpoint, link.around(ps.Tcp()).connect(endpoint.address) as channel:
        clock.start = time.monotonic()
        channel.call([MB]).result(WAIT_S)
        assert heard[0] >= 0.15


def test_there_and_back_each_take_their_time():
    link = ps.Link(bandwidth_bps=80e6, latency_s=0.02)
    with link.around(ps.Tcp()).serve(echo) as endpoint, link.around(ps.Tcp()).connect(endpoint.address) as channel:
        clock = Clock()
        (back,) = channel.call([MB]).result(WAIT_S)
        assert clock() >= 2 * link.seconds(len(MB))
        assert bytes(back) == MB


def test_the_call_itself_returns_at_once():
    link = ps.Link(bandwidth_bps=1e6, latency_s=0)  # 100 kB take 0.8 s
    with link.around(ps.Tcp()).serve(swallow) as endpoint, link.around(ps.Tcp()).connect(endpoint.address) as channel:
        clock = Clock()
        future = channel.call([bytes(100_000)])
        done, seconds = future.done(), clock()
        assert not done or seconds >= 0.8
        future.result(WAIT_S)
        assert clock() >= 0.8


def test_one_after_the_other_over_one_link_latency_paid_once_each_way():
    link = ps.Link(bandwidth_bps=80e6, latency_s=0.05)
    with link.around(ps.Tcp()).serve(swallow) as endpoint, link.around(ps.Tcp()).connect(endpoint.address) as channel:
        clock = Clock()
        futures = [channel.call([MB]) for _ in range(3)]
        for i, future in enumerate(futures, start=1):
            future.result(WAIT_S)
            assert clock() >= 0.1 * i + 0.1


def push_from(nodes, address):
    """Each node pushes 1 MB at the same time. When did the last one have its answer?"""
    ready, ends, clock = threading.Barrier(len(nodes)), [], Clock()

    def worker(node):
        with node.connect(address) as channel:
            ready.wait(WAIT_S)
            clock.start = time.monotonic()
            channel.call([MB]).result(WAIT_S)
            ends.append(clock())

    threads = [threading.Thread(target=worker, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert len(ends) == len(nodes)
    return max(ends)


def test_workers_share_the_servers_link():
    link = ps.Link(bandwidth_bps=80e6, latency_s=0.05)
    arrived = []

    def handler(frames):
        arrived.append(time.monotonic())
        return []

    with link.around(ps.Tcp()).serve(handler) as endpoint:
        start = time.monotonic()
        assert push_from([link.around(ps.Tcp()) for _ in range(4)], endpoint.address) >= 0.25
        assert sorted(arrived)[-1] - start >= 4 * 0.1 + 0.05  # nS/B + α


def test_channels_of_one_node_share_its_link():
    link = ps.Link(bandwidth_bps=80e6, latency_s=0.0)
    node = link.around(ps.Tcp())
    servers = [link.around(ps.Tcp()).serve(swallow) for _ in range(3)]
    try:
        channels = [node.connect(server.address) for server in servers]
        clock = Clock()
        for future in [channel.call([MB]) for channel in channels]:
            future.result(WAIT_S)
        assert clock() >= 3 * 0.1
        for channel in channels:
            channel.close()
    finally:
        for server in servers:
            server.close()


def test_each_servers_link_is_its_own():
    """Two servers on links of their own take in their halves at the same time: that is what several servers are for."""
    link = ps.Link(bandwidth_bps=8e6, latency_s=0)
    incoming = [link.around(ps.InProc())._in for _ in range(2)]
    assert [way.take(0.0, len(MB) // 2) for way in incoming] == [(0.0, 0.5)] * 2


def test_a_bare_peer_is_told_that_both_sides_need_the_link():
    link = ps.Link()
    with link.around(ps.Tcp()).serve(echo) as endpoint, ps.Tcp().connect(endpoint.address) as bare:
        for frames in ([], [b"no departure"]):
            with pytest.raises(ValueError, match="The peer is not behind a link, and this side is"):
                bare.call(frames).result(WAIT_S)
    with ps.Tcp().serve(echo) as endpoint, link.around(ps.Tcp()).connect(endpoint.address) as channel:
        assert channel.call([b"a"]).result(WAIT_S) is not None  # an echo sends the departure back


@pytest.mark.parametrize("start", [1e9, -1e9, np.inf, np.nan], ids=repr)
def test_a_departure_that_cannot_be_is_refused(start):
    node = ps.Link().around(ps.InProc())
    with pytest.raises(ValueError, match="The peer says that its message left"):
        node.arrive([np.float64(start).tobytes(), b"data"])


@pytest.mark.parametrize(("field", "value"), [("bandwidth_bps", 0), ("bandwidth_bps", -1), ("latency_s", -1e-9)])
def test_a_link_that_cannot_be_is_refused(field, value):
    with pytest.raises(ValueError, match=rf"Link\.{field} must be"):
        ps.Link(**{field: value})
