"""The data of the race: each message of a step is there once, on the way that it takes; the loads are arithmetic."""

from collections import Counter
from functools import cache
from itertools import pairwise
from math import dist, inf

import networkx as nx
import pytest

import minips as ps
from minips import cost, lab
from minips.lab.views.race import Load, bottleneck_words, colour, loads, places, race
from minips.results.messages import Message

TOPOLOGIES = [ps.build("topology", name) for name in ps.names("topology")]
SLOW_UPLINK = cost.TwoRacks(8e6, 0.0, uplink_bps=8e5)


@cache
def found(**asked):
    panel = lab.Collectives(**{"workers": 4, "kilobytes": 100, **asked})
    return panel.find(panel.form.value())


@pytest.mark.parametrize(
    ("exchange", "topology"),
    [
        pytest.param(exchange, topology, marks=[] if place == number else [pytest.mark.soak])
        for number, exchange in enumerate([ps.RingAllReduce(), ps.HalvingDoubling(), ps.PS()])
        for place, topology in enumerate(TOPOLOGIES)
    ],
    ids=lambda one: one.name,
)
def test_each_message_of_a_step_is_there_once_on_its_way(exchange, topology):
    met = found(exchange=exchange, topology=topology, servers=2)
    (side, *_) = race(met.laps, met.seconds)["sides"]
    lap = met.laps[0]
    at = {name: (x, y) for name, _, x, y in side["nodes"]}
    ends = [link["words"].partition(":")[0].split(" → ") for link in side["links"]]
    assert len(side["pieces"]) == len(lap.messages)
    for (start, end, nbytes, _, *way), message in zip(side["pieces"], lap.messages, strict=True):
        assert 0 <= start <= end <= side["end"]
        assert nbytes == message.nbytes
        stops = [ends[way[0]][0], *(ends[number][1] for number in way)]
        assert (stops[0], stops[-1]) == (message.sender, message.receiver)
        assert all(ends[one][1] == ends[other][0] for one, other in pairwise(way))
    assert set(met.graph) == set(at)


def test_a_step_has_the_messages_that_its_schedule_has_and_an_answer_for_each_push():
    ring, served = found(), found(exchange=ps.PS(), servers=2)
    assert Counter(message.kind for message in ring.laps[0].messages) == {"hop": 4 * 2 * 3}
    assert Counter(message.kind for message in served.laps[0].messages) == {"push_pull": 8, "reply": 8}
    (first, *_), (*_, last) = (served.laps[0].messages,) * 2
    assert (first.kind, last.kind, first.start) == ("push_pull", "reply", 0.0)


@pytest.mark.parametrize("exchange", [ps.RingAllReduce(), ps.PS()], ids=lambda one: one.name)
def test_the_bytes_of_the_dots_are_those_of_the_links_and_headers(exchange):
    lap = found(exchange=exchange).laps[0]
    sent = sum(message.nbytes for message in lap.messages)
    carried = sum(load.nbytes for load in lap.loads) / 2  # each message crosses two links
    assert carried <= sent <= 1.01 * carried + 200 * len(lap.messages)


def test_the_link_that_takes_longest_is_first_though_others_carry_more():
    lap = found(topology=SLOW_UPLINK, exchange=ps.PS()).laps[0]
    by_ends = {load.ends: load for load in lap.loads}
    uplink, server = by_ends["rack 1", "rack 0"], by_ends["rack 0", "server 0"]
    assert (uplink.nbytes, server.nbytes) == (200e3, 400e3)
    assert (uplink.busy_s, server.busy_s) == (pytest.approx(2.0), pytest.approx(0.4))
    assert {load.ends for load in lap.loads[:2]} == {("rack 0", "rack 1"), ("rack 1", "rack 0")}


def test_what_is_lost_is_sent_again():
    clean, lossy = (found(topology=cost.Star(8e6, 0.0, loss=loss)).laps[0].loads[0] for loss in (0.0, 0.5))
    assert lossy.nbytes == clean.nbytes
    assert lossy.busy_s == pytest.approx(clean.busy_s / 0.25)  # a message crosses two links


def test_another_transfer_takes_its_share_of_the_link():
    graph = cost.Star(8e6, 0.0).graph(3, 0)
    apart = [Message("hop", "worker 0", f"worker {to}", 0, 100, to, to + 1.0) for to in (1, 2)]
    together = [message._replace(start=1.0, end=2.0) for message in apart]
    sent = [("worker 0", f"worker {to}", 100e3) for to in (1, 2)]
    others = (cost.Traffic("worker 0", "worker 1"),)
    for messages, share in ((apart, 1 / 2), (together, 2 / 3)):
        by_ends = {load.ends: load.busy_s for load in loads(graph, sent, messages, others)}
        assert by_ends["worker 0", "switch"] == pytest.approx(0.2 / share)
        assert by_ends["switch", "worker 1"] == pytest.approx(0.1 / (1 / 2))
        assert by_ends["switch", "worker 2"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("busy", "also"),
    [
        ([2.0, 1.0], ""),
        ([2.0, 1.999, 1.0], "; another link takes as long"),
        ([2.0, 1.999, 1.999], "; 2 other links take as long"),
    ],
)
def test_links_that_take_equally_long_are_counted(busy, also):
    lap = (
        found()
        .laps[0]
        ._replace(seconds=3.0, loads=[Load((f"a{i}", f"b{i}"), 2e3, seconds) for i, seconds in enumerate(busy)])
    )
    assert bottleneck_words(lap) == f"The link that takes longest: a0 → b0, 2 kB, 2 s of 3 s{also}."


def test_one_worker_crosses_no_link():
    met = found(workers=1)
    assert "No message crosses a link." in lab.Collectives(workers=1).words(met)
    (side, *_) = race(met.laps, met.seconds)["sides"]
    assert (side["pieces"], side["busy"]) == ([], [])


@pytest.mark.parametrize("topology", TOPOLOGIES, ids=lambda one: one.name)
@pytest.mark.parametrize(("workers", "servers"), [(1, 1), (4, 2), (16, 0)])
def test_no_two_nodes_have_the_same_place(topology, workers, servers):
    at = places(topology.graph(workers, servers))
    assert all(max(map(abs, xy)) <= 1 for xy in at.values())
    nearest = min((dist(one, other) for one in at.values() for other in at.values() if one is not other), default=inf)
    assert nearest > 0.1


def test_workers_of_a_rack_stand_together_on_its_side():
    at = places(cost.TwoRacks().graph(8, 2))
    racks = [[at[f"worker {i}"][0] for i in some] for some in (range(4), range(4, 8))]
    assert max(racks[0]) < min(racks[1])
    assert at["rack 0"][0] < at["rack 1"][0]


def test_a_network_of_ones_own_is_drawn_too():
    graph = nx.Graph()
    graph.add_edge("worker 0", "worker 1", bandwidth_bps=8e6, latency_s=0.0)
    (load,) = loads(graph, [("worker 0", "worker 1", 1e6)], [], ())
    assert load == Load(("worker 0", "worker 1"), 1e6, 1.0)
    assert len(places(graph)) == 2


def test_a_busy_link_has_another_colour_than_an_idle_one():
    assert [colour(share) for share in (0.0, 1.0, 1.5)] == ["#8b949e", "#d55e00", "#d55e00"]
    assert colour(0.5) not in (colour(0.4), colour(0.6))


def test_both_sides_have_one_clock_and_one_scale():
    met = found(kilobytes=400)
    data = race(met.laps, met.seconds)
    assert data["seconds"] == max(side["end"] for side in data["sides"])
    assert [side["end"] for side in data["sides"]] == pytest.approx([lap.seconds for lap in met.laps], rel=1e-3)
    widths = {load.ends: load.nbytes for lap in met.laps for load in lap.loads}
    widest = max(link["width"] for side in data["sides"] for link in side["links"])
    server = max(widths, key=widths.__getitem__)
    assert "server 0" in server
    assert [link["width"] for link in data["sides"][1]["links"] if "→ server 0:" in link["words"]] == [widest]


def test_a_lap_without_a_message_lasts_as_long_as_its_step():
    (lap, *_) = found().laps
    data = race([lap._replace(seconds=9.0, messages=[])], {"ring": 9.0})
    assert (data["seconds"], data["sides"][0]["pieces"]) == (9.0, [])
