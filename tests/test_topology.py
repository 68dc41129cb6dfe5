"""Networks that are what their names say, routes, and shares that are max-min fair."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minips as ps
from minips.machines.topology import Network, Own, Traffic, fair_shares, hosts

ALIKE = [ps.build("topology", name) for name in ps.names("topology")]
B = 1e9 / 8


def network(topology, workers=8, servers=0):
    return Network(topology.graph(workers, servers))


def shares(net, *pairs):
    """The fair bytes per second of one flow for each pair of nodes."""
    routes = [net.route(*pair).edges for pair in pairs]
    longest = max(map(len, routes))
    filled = [np.append(links, np.full(longest - len(links), len(net.capacity))) for links in routes]
    return list(fair_shares(np.array(filled, int).T, np.append(net.capacity, np.inf)))


@pytest.mark.parametrize("topology", ALIKE, ids=repr)
@pytest.mark.parametrize(("workers", "servers"), [(1, 1), (1, 0), (2, 0), (5, 2), (16, 0)])
def test_every_host_is_there_and_reaches_every_other(topology, workers, servers):
    graph = topology.graph(workers, servers)
    assert set(hosts(workers, servers)) <= set(graph)
    assert nx.is_connected(graph)
    others = [node for node in graph if node not in hosts(workers, servers)]
    assert all(node.startswith(("switch", "rack")) for node in others)


def test_a_star_has_two_links_between_any_two_and_a_ring_as_many_as_they_are_apart():
    star, ring = network(ps.cost.Star(latency_s=0.5)), network(ps.cost.Ring(latency_s=0.5))
    assert star.route("worker 0", "worker 4").latency_s == 1.0
    assert [ring.route("worker 0", f"worker {i}").latency_s for i in (1, 4, 7)] == [0.5, 2.0, 0.5]


def test_both_directions_of_a_link_have_all_of_its_bandwidth():
    assert shares(network(ps.cost.Star()), ("worker 0", "worker 1"), ("worker 1", "worker 0")) == [B, B]


def test_a_tree_is_narrow_at_its_root_and_a_fat_tree_is_not():
    across = [(f"worker {i}", f"worker {i + 8}") for i in range(8)]
    assert shares(network(ps.cost.Tree(), 16), *across) == [B / 4] * 8
    assert shares(network(ps.cost.FatTree(), 16), *across) == [B] * 8


def test_the_uplink_of_two_racks_is_shared_by_all_that_cross():
    net = network(ps.cost.TwoRacks(uplink_bps=8e8), 4, 2)
    inside, cross, another = ("worker 0", "worker 1"), ("worker 1", "worker 2"), ("worker 0", "server 1")
    assert shares(net, inside, cross, another) == [B - 5e7, 5e7, 5e7]
    assert len(net.route("worker 3", "server 1").edges) == 2


def test_two_racks_are_as_they_were_or_as_they_are_told():
    def in_rack_1(racks: str, workers: int, servers: int) -> set[str]:
        return {*ps.TwoRacks(racks=racks).graph(workers, servers)["rack 1"]} - {"rack 0"}

    assert in_rack_1("", 4, 2) == in_rack_1("0011 01", 4, 2) == {"worker 2", "worker 3", "server 1"}
    assert in_rack_1("1 0", 1, 1) == {"worker 0"}
    assert in_rack_1("000", 3, 0) == set()
    assert "racks" not in repr(ps.TwoRacks())
    assert repr(ps.TwoRacks(racks="01")).endswith(", racks='01')")


def test_racks_that_cannot_be_are_sentences():
    with pytest.raises(ValueError, match=r"a text of 0, 1 and spaces, such as '0011 01'; got '02'\.$"):
        ps.TwoRacks(racks="02")
    with pytest.raises(ValueError, match=r"racks='01' places 2 hosts, not 2 workers and 1 servers\.$"):
        ps.TwoRacks(racks="01").graph(2, 1)


def test_a_route_has_the_fewest_links_or_the_least_weight():
    graph = nx.Graph()
    link = {"bandwidth_bps": 8.0, "latency_s": 1.0}
    graph.add_edges_from([("a", "b"), ("b", "c")], **link)
    graph.add_edge("a", "c", **link)
    assert Network(graph).route("a", "c").latency_s == 1.0
    graph["a"]["c"]["weight"] = 3
    assert Network(graph).route("a", "c").latency_s == 2.0
    assert Network(graph).route("a", "a").latency_s == 0.0


@pytest.mark.parametrize("topology", ALIKE, ids=repr)
def test_every_route_is_as_short_as_can_be(topology):
    graph, ends = topology.graph(7, 2), hosts(7, 2)
    net = Network(graph)
    for source in ends:
        for target in ends:
            assert len(net.route(source, target).edges) == nx.shortest_path_length(graph, source, target)


def test_a_directed_graph_has_links_of_one_direction():
    graph = nx.DiGraph()
    graph.add_edge("a", "b", bandwidth_bps=8.0, latency_s=0.0)
    graph.add_edge("b", "a", bandwidth_bps=16.0, latency_s=1.0, loss=0.5)
    net = Network(graph)
    assert shares(net, ("a", "b"), ("b", "a")) == [1.0, 2.0]
    assert [net.route(*pair).loss for pair in (("a", "b"), ("b", "a"))] == [0.0, 0.5]


def test_losses_on_a_way_add_up():
    assert network(ps.cost.Star(loss=0.1)).route("worker 0", "worker 1").loss == pytest.approx(0.19)


@pytest.mark.parametrize(
    ("edge", "words"),
    [
        ({"bandwidth_bps": 1e6}, "'a' and 'b': it needs latency_s"),
        ({}, "bandwidth_bps and latency_s"),
        ({"bandwidth_bps": 0, "latency_s": 0}, "bandwidth_bps must be above 0; got 0"),
        ({"bandwidth_bps": 1e6, "latency_s": -1}, "latency_s must be at least 0"),
        ({"bandwidth_bps": 1e6, "latency_s": 0, "loss": 1}, "loss must be at least 0 and below 1"),
    ],
)
def test_an_edge_that_says_too_little_is_a_sentence(edge, words):
    graph = nx.Graph()
    graph.add_edge("a", "b", **edge)
    with pytest.raises(ValueError, match=words):
        Network(graph)


def test_graphs_that_cannot_be_are_sentences():
    with pytest.raises(ValueError, match="multigraph"):
        Network(nx.MultiGraph())
    graph = nx.Graph()
    graph.add_nodes_from(["worker 0", "server 0"])
    with pytest.raises(ValueError, match="no path from 'worker 0' to 'server 0'"):
        Network(graph).route("worker 0", "server 0")
    with pytest.raises(ValueError, match="no node 'worker 1'"):
        Network(graph).route("worker 0", "worker 1")
    with pytest.raises(ValueError, match="worker 1 is missing"):
        Own(graph).graph(2, 1)
    with pytest.raises(ValueError, match="cannot end at 1 s"):
        Traffic(start_s=2, stop_s=1)


ROUTES = st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=4, unique=True), min_size=1, max_size=12)


@settings(deadline=None, max_examples=200)
@given(ROUTES, st.lists(st.sampled_from([1.0, 2.0, 3.0, 10.0, 0.1]), min_size=8, max_size=8))
def test_every_flow_has_a_full_link_on_which_nobody_has_more(routes, capacity):
    """Which is what max-min fair means (Bertsekas and Gallager 1992, section 6.5.2)."""
    filled = np.array([[*links, *[8] * (4 - len(links))] for links in routes]).T
    rates = fair_shares(filled, np.array([*capacity, np.inf]))
    used = [sum(rate for rate, links in zip(rates, routes, strict=True) if link in links) for link in range(8)]
    assert all(used[link] <= capacity[link] * (1 + 1e-9) for link in range(8))
    for rate, links in zip(rates, routes, strict=True):
        assert any(
            used[link] >= capacity[link] * (1 - 1e-9)
            and all(rate >= other * (1 - 1e-9) for other, on in zip(rates, routes, strict=True) if link in on)
            for link in links
        )
