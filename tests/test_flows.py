"""Flows against arithmetic: alone, joined, in both directions, lossy, and beside others' traffic."""

from collections import Counter

import networkx as nx
import numpy as np
import pytest

from minips.cost import Star, Traffic
from minips.drivers.events import EventLoop
from minips.engines.simulated import flows
from minips.engines.simulated.flows import PACKET_BYTES, FlowNetwork
from minips.machines.topology import Network, Own

STAR = Star(bandwidth_bps=80.0, latency_s=0.5)  # ten bytes per second, a second from host to host


def arrivals(*messages, topology=STAR, traffic=(), workers=4, seed=0):
    """When each message of (start, source, target, bytes) arrives."""
    events = EventLoop()
    wire = FlowNetwork(events, Network(topology.graph(workers, 1)), traffic, np.random.default_rng(seed))
    came = [0.0] * len(messages)

    def message(number, start, source, target, nbytes):
        yield start
        yield from wire.travel(source, target, nbytes)
        came[number] = events.now

    ways = [events.start(message(number, *one)) for number, one in enumerate(messages)]
    events.run(lambda: all(way.triggered for way in ways))
    return came


def to_server(*workers, start=0.0, nbytes=100):
    return [(start, f"worker {i}", "server 0", nbytes) for i in workers]


def test_a_message_alone_takes_its_bytes_and_the_latency():
    assert arrivals(*to_server(0)) == [11.0]
    assert arrivals(*to_server(0, nbytes=0)) == [1.0]
    assert arrivals((2.0, "worker 0", "worker 0", 100)) == [2.0]


def test_messages_that_share_a_link_share_it_equally_and_those_that_do_not_do_not():
    assert arrivals(*to_server(0, 1, 2, 3)) == [41.0] * 4
    pairs = [(0.0, "worker 0", "worker 1", 100), (0.0, "worker 1", "worker 0", 100), (0.0, "worker 2", "worker 3", 100)]
    assert arrivals(*pairs) == [11.0] * 3


def test_one_that_joins_later_takes_half_from_then_on():
    assert arrivals(*to_server(0), *to_server(1, start=5.0, nbytes=50)) == pytest.approx([16.0, 16.0])
    assert arrivals(*to_server(0), *to_server(1, start=5.0, nbytes=20)) == pytest.approx([13.0, 10.0])


def test_messages_between_the_same_two_follow_each_other():
    assert arrivals(*to_server(0, 0, 0)) == [11.0, 21.0, 31.0]


def test_a_thousand_alike_are_shared_out_twice_and_not_a_thousand_times(monkeypatch):
    calls = Counter()

    def counted(*arguments):
        calls["fair_shares"] += 1
        return fair_shares(*arguments)

    fair_shares = flows.fair_shares
    monkeypatch.setattr(flows, "fair_shares", counted)
    assert arrivals(*to_server(*range(1000)), workers=1000) == pytest.approx([10_001.0] * 1000)
    assert calls["fair_shares"] <= 2


def test_what_takes_less_than_the_clock_can_tell_arrives_all_the_same():
    fast = Star(bandwidth_bps=1e15, latency_s=0.0)
    assert arrivals((1e6, "worker 0", "server 0", 1), topology=fast) == [1e6]


def test_an_infinitely_fast_link_holds_nobody_up():
    graph = nx.Graph()
    graph.add_edge("worker 0", "server 0", bandwidth_bps=float("inf"), latency_s=0.25)
    events = EventLoop()
    wire = FlowNetwork(events, Network(graph), (), np.random.default_rng(0))
    came = events.start(wire.travel("worker 0", "server 0", 1e12))
    events.run(lambda: came.triggered)
    assert events.now == 0.25


def test_others_traffic_takes_its_share_while_it_lasts():
    def beside(**options):
        return arrivals(*to_server(0), traffic=[Traffic("worker 1", "server 0", **options)])[0]

    assert beside() == 21.0
    assert beside(rate_bps=16.0) == pytest.approx(1 + 100 / 8)
    assert beside(rate_bps=1000.0) == 21.0
    assert beside(stop_s=6.0) == pytest.approx(1 + 6 + 70 / 10)
    assert beside(start_s=4.0, stop_s=6.0) == pytest.approx(12.0)
    assert arrivals(*to_server(0), traffic=[Traffic("server 0", "worker 0")]) == [11.0]  # the other direction


def test_lost_packets_are_sent_again():
    count, loss = 2000, 0.2
    lossy = Star(bandwidth_bps=8.0, latency_s=0.0, loss=1 - (1 - loss) ** 0.5)  # two links: 0.2 on the way
    [came] = arrivals((0.0, "worker 0", "server 0", count * PACKET_BYTES), topology=lossy)
    # Each packet is sent a geometric number of times: mean 1/(1 − p), variance p/(1 − p)².
    assert came / PACKET_BYTES == pytest.approx(count / (1 - loss), abs=4 * (count * loss) ** 0.5 / (1 - loss))
    assert [came] == arrivals((0.0, "worker 0", "server 0", count * PACKET_BYTES), topology=lossy)
    assert [came] != arrivals((0.0, "worker 0", "server 0", count * PACKET_BYTES), topology=lossy, seed=1)


def test_each_time_that_something_is_missing_costs_a_round_trip():
    lossy = Star(bandwidth_bps=float("inf"), latency_s=1.0, loss=1 - 0.5**0.5)
    rounds = [arrivals((0.0, "worker 0", "server 0", 100), topology=lossy, seed=seed)[0] for seed in range(400)]
    assert {(seconds - 2) % 4 for seconds in rounds} == {0.0}
    # One packet, lost with probability 1/2: a mean of one more round of four seconds, of standard deviation 4·√2.
    assert np.mean(rounds) == pytest.approx(2 + 4, abs=4 * 4 * 2**0.5 / 20)


def test_a_loss_of_nearly_all_takes_long_on_the_clock_alone_and_one_of_all_is_a_sentence():
    def came(loss, hops=1, nbytes=1000 * PACKET_BYTES):
        graph = nx.Graph()
        nx.add_path(graph, ["worker 0", *range(hops - 1), "server 0"], bandwidth_bps=np.inf, latency_s=1.0, loss=loss)
        return arrivals((0.0, "worker 0", "server 0", nbytes), topology=Own(graph), workers=1)[0]

    # The most of a thousand geometric numbers of mean 1/p is about ln(1000)/p, give or take 1/p; two seconds each.
    assert came(1 - 1e-9) / 2e9 == pytest.approx(np.log(1000), abs=6)
    assert came(1 - 1e-9, nbytes=0) == 1.0
    with pytest.raises(ValueError, match=r"Nothing gets from 'worker 0' to 'server 0': together the 20 links"):
        came(0.9, hops=20)
