"""The lesson "Match a schedule to a network": its rings, its panel, and what it shows where no hosts can be made."""

import doctest

import numpy as np
import pages
import pytest

import minips as ps
from minips.engines import hosts
from minips_course.hosts import Network, NotMadeError
from minips_course.network import timing
from minips_course.network.panel import Place, SchedulesOnNetworks

RACKS = ps.TwoRacks(bandwidth_bps=1e8, latency_s=1e-3, uplink_bps=2e7)


def test_the_zigzag_ring_is_an_all_reduce_whose_neighbours_are_in_different_halves() -> None:
    problem = ps.LinearRegression(*ps.datasets.diabetes())
    ends = [
        ps.train(problem, ps.Config(workers=5, steps=3, exchange=one), engine=ps.Threads()).params["w"]
        for one in (timing.ZigzagRing(), ps.RingAllReduce())
    ]
    np.testing.assert_allclose(*ends, rtol=1e-4)
    (to,) = {hop.to for hop in timing.ZigzagRing().schedule(1, 4)}
    assert to is not None
    assert to >= 2


def test_workers_in_zigzag_are_in_racks_of_even_and_odd_ones() -> None:
    graph = timing.placed(RACKS, timing.zigzag(5))
    assert {worker for worker in graph["rack 0"] if worker != "rack 1"} == {"worker 0", "worker 2", "worker 4"}


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        (Place(kilobytes=1), "servers"),
        (Place(kilobytes=1_000), "halving"),
        (Place(topology=RACKS, kilobytes=400), "ring"),
        (Place(topology=RACKS, numbering="in zigzag", kilobytes=400), "halving"),
    ],
    ids=["few bytes", "many bytes", "two racks", "two racks in zigzag"],
)
def test_which_is_the_first_depends_on_bytes_network_and_numbering(asked: Place, first: str) -> None:
    panel = SchedulesOnNetworks()
    found = panel.find(asked)
    assert found.first == first
    assert f"The fastest: {first}." in panel.words(found)


def test_a_schedule_that_does_not_allow_so_many_workers_is_left_out() -> None:
    assert "halving" not in SchedulesOnNetworks().find(Place(workers=6)).curves


def test_where_no_hosts_can_be_made_the_recorded_runs_are_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hosts, "lacking", lambda: "No hosts here.")
    real, ways = Network("network.hosts"), {**timing.ways(4), "zigzag": {"exchange": timing.ZigzagRing()}}
    del ways["server"]
    assert "No hosts here.\nThe values were recorded elsewhere: " in capsys.readouterr().out
    found = timing.both(real, ways, ps.TwoRacks(40e6, 0.0, uplink_bps=10e6))
    assert all(len(pair.runs.seconds) == 3 for pair in found.values())
    two = {way: ways[way] for way in ("ring", "servers")}
    star, own = ps.Star(40e6, 0.0), {"host_buffer_bytes": 4_000_000}
    deep, shallow = (timing.both(real, two, star, buffer_bytes=n, **own) for n in (4_000_000, 20_000))
    assert shallow["servers"].median > deep["servers"].median
    assert "two racks, zigzag" in timing.hosts_table({"two racks": found, "star": deep})
    with pytest.raises(NotMadeError):
        timing.both(real, two, ps.Star(41e6, 0.0))


def test_other_traffic_takes_its_share_of_a_link() -> None:
    page = "\n".join(pages.blocks("lessons/further-cost.md", "pycon"))
    example = doctest.DocTestParser().get_doctest(page, {}, "traffic", "lessons/further-cost.md", 0)
    assert doctest.DocTestRunner().run(example) == (0, 8)
