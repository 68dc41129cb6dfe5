"""The performance model against closed forms, and its parts against arithmetic."""

import math
from dataclasses import replace

import pytest

import minips as ps
from minips import cost
from minips.cost.packets import Links
from minips.cost.performance_model import Declared, PerformanceModel, Workload
from minips.drivers.events import EventLoop
from minips.machines.calibration import Calibration
from minips.machines.fit import Line

NOTHING = Calibration(cores=64)


def model(config, calibration=NOTHING, nbytes=80_000):
    return PerformanceModel(config, calibration, Workload(20_000, 1, nbytes / config.servers, nbytes / config.servers))


def pace(config, calibration=NOTHING):
    """Seconds per step of a long run, without its beginning and its end."""
    short, long = (model(replace(config, steps=steps), calibration).seconds for steps in (20, 200))
    return (long - short) / 180


def test_a_link_is_first_come_first_served():
    events, came = EventLoop(at_once=True), {}
    links = Links(events, ps.Link(8e6, 0.5), 0.25, {"neighbour": "a", "a": "a"})

    def send(name, start, source, target, nbytes):
        yield start
        yield from links.travel(source, target, nbytes)
        came[name] = events.now

    for message in (
        ("first", 3.0, "a", "b", 1_000_000),
        ("second", 3.0, "a", "c", 2_000_000),  # leaves when the first one has left
        ("third", 3.0, "neighbour", "d", 1_000),  # shares the machine's link
        ("next", 3.0, "e", "b", 1_000_000),  # arrives when the first one has arrived
        ("empty", 3.0, "f", "b", 0),  # behind them
        ("within", 3.0, "a", "neighbour", 1e9),
    ):
        events.start(send(*message))
    events.run(lambda: "within" in came)
    assert events.now == 3.0
    assert max(links.left()) == pytest.approx(3.001)
    events.run(lambda: False)
    late = 0.5 + 0.25
    assert came["first"] == 4.0 + late
    assert came["second"] == 6.0 + late
    assert came["third"] == pytest.approx(6.001 + late)
    assert came["next"] == came["empty"] == 5.0 + late
    assert came["within"] == 3.0
    assert set(links.left()) == {0.0}


@pytest.mark.parametrize("workers", [1, 2, 4, 16])
def test_over_a_full_duplex_link_the_pushes_overlap_the_pulls_of_the_step_before(workers):
    config = ps.Config(workers=workers, steps=20, link=ps.Link(100e6, 2e-3))
    step = cost.parameter_server_step_s(workers, 80_000, 100e6 / 8, 2e-3)
    assert pace(config) == pytest.approx(step)
    first_pulls, last_pull = 2 * 2e-3, 80_000 / (100e6 / 8) + 2e-3  # and nobody waits for the last one
    assert model(config).seconds == pytest.approx(20 * step + first_pulls - last_pull + 80_000 / (100e6 / 8))


@pytest.mark.parametrize("steps", [1, 10, 24, 1000])
@pytest.mark.parametrize("workers", [1, 4])
def test_the_spans_of_a_worker_add_up_from_its_first_pull_to_its_last_answer(workers, steps):
    done = model(ps.Config(workers=workers, steps=steps, link=ps.Link(100e6, 2e-3)))
    each = 80_000 / (100e6 / 8)
    last_answer = 2e-3 + each * (workers + 1) / 2  # the workers' mean, after the last update
    assert {*done.spans} == {"compute", "transfer", "wait"}
    assert sum(done.spans.values()) * steps == pytest.approx(done.seconds + last_answer)


@pytest.mark.parametrize(("workers", "servers"), [(1, 2), (2, 2), (4, 2), (16, 2), (4, 4), (3, 5)])
def test_several_servers_share_the_load(workers, servers):
    config = ps.Config(workers=workers, servers=servers, link=ps.Link(100e6, 2e-3))
    step = cost.parameter_server_step_s(workers, 80_000, 100e6 / 8, 2e-3, servers)
    assert pace(config) == pytest.approx(step)


def test_the_model_waits_for_the_slowest_under_bsp_and_for_nobody_under_asp():
    slow = ps.Config(workers=4, steps=200, delays=ps.Delays(0.01, slow={1: 5.0}))
    assert model(slow).seconds_per_step == pytest.approx(0.05, rel=1e-6)
    # Three workers push 100 times a second and one 20 times; one clock of all the workers is four pushes.
    asynchronous = 4 * cost.asynchronous_update_s([0.01, 0.05, 0.01, 0.01])
    assert model(replace(slow, consistency=ps.ASP())).seconds_per_step == pytest.approx(asynchronous, rel=0.02)
    assert model(replace(slow, consistency=ps.SSP(2))).seconds_per_step == pytest.approx(0.05, rel=0.03)
    assert model(replace(slow, consistency=ps.BSP(backup=1))).seconds_per_step < 0.02


def test_the_model_averages_the_largest_of_exponential_times_under_bsp():
    config = ps.Config(workers=4, steps=200, delays=ps.Delays(0.01, exponential=True))
    deviation = 0.01 * math.sqrt(sum(1 / k**2 for k in range(1, 5)) / 200)
    seconds = model(config).seconds_per_step
    assert seconds == pytest.approx(cost.exponential_round_s(0.01, 4), abs=4 * deviation)
    assert model(replace(config, consistency=ps.SSP(3))).seconds_per_step < seconds


def test_two_cores_work_for_four_workers_and_overlap_hides_the_shorter_half():
    busy = replace(NOTHING, cores=2, gradient=Line(0.0, 0.01))
    assert pace(ps.Config(workers=4), busy) == pytest.approx(0.02)
    assert pace(ps.Config(workers=4, accumulate=3), busy) == pytest.approx(0.06)
    alone = replace(NOTHING, gradient=Line(0.015))
    config = ps.Config(workers=1, link=ps.Link(1e12, 5e-3))
    assert pace(config, alone) == pytest.approx(0.025, rel=1e-3)
    assert pace(replace(config, overlap=True), alone) == pytest.approx(0.015, rel=1e-3)


def test_with_overlap_a_gradient_begins_when_all_is_sent_and_hides_what_comes_after():
    calibration = Calibration(
        worker={"quantize": Line(1e-3), "dequantize": Line(2e-3)},
        server={"dequantize": Line(3e-3)},
        worker_rest=Line(4e-3),
        idle=Line(6e-3),
        gradient=Line(9e-3),
        cores=64,
    )
    sent, gradient, back = 1e-3 + 2e-3, 9e-3, 6e-3 + 3e-3 + (2e-3 + 2e-3)
    assert pace(ps.Config(workers=1), calibration) == pytest.approx(sent + gradient + back)
    assert pace(ps.Config(workers=1, overlap=True), calibration) == pytest.approx(sent + max(gradient, back))
    slower = replace(calibration, gradient=Line(20e-3))
    assert pace(ps.Config(workers=1, overlap=True), slower) == pytest.approx(sent + 20e-3)
    # And to two servers: all is encoded, then all is sent.
    assert pace(ps.Config(workers=1, servers=2, overlap=True), slower) == pytest.approx(2 * sent + 20e-3)


def test_a_single_worker_takes_what_was_measured_of_one_and_a_round_aggregates_once():
    calibration = Calibration(
        worker={"quantize": Line(1e-3, 1e-7), "dequantize": Line(2e-3)},
        server={"dequantize": Line(3e-3), "aggregate": Line(0.0, 2e-7), "quantize": Line(1e-3)},
        worker_rest=Line(4e-3),
        server_rest=Line(5e-3),
        idle=Line(6e-3, 1e-7),
        gradient=Line(7e-3, 1e-3),
        cores=64,
    )
    config = ps.Config(workers=1)
    each = 1e-3 + 20_000 * 4e-7 + 2e-3 + 3e-3 + 1e-3 + 4e-3 + 5e-3 + 6e-3 + 8e-3
    assert pace(config, calibration) == pytest.approx(each)
    spans = model(config, calibration).spans
    expected = {"compute": 8e-3, "quantize": 1e-3 + 2e-3 + 1e-3, "dequantize": 5e-3, "aggregate": 4e-3}
    assert {name: spans[name] for name in expected} == pytest.approx(expected, rel=0.1)  # the first pull is in it
    four = model(ps.Config(workers=4), replace(calibration, together=4)).spans
    assert four["aggregate"] == pytest.approx(1e-3, rel=0.01)


@pytest.mark.parametrize(
    ("exchange", "formula"),
    [
        (ps.RingAllReduce(), cost.ring_allreduce_s),
        (ps.TreeAllReduce(), cost.tree_allreduce_s),
        (ps.HalvingDoubling(), cost.halving_doubling_s),
        (ps.TwoShot(), cost.two_shot_allreduce_s),
    ],
    ids=lambda one: getattr(one, "__name__", repr(one)),
)
@pytest.mark.parametrize("workers", [1, 2, 4, 16])
def test_an_all_reduce_takes_what_its_formula_says(exchange, formula, workers):
    pieces = [20_000 / exchange.pieces(workers)] * exchange.pieces(workers)
    schedules = [exchange.schedule(rank, workers) for rank in range(workers)]
    parts = tuple(
        Declared(hops, [len(hop.sends) * 4 * pieces[0] for hop in hops], pieces, exchange.direct) for hops in schedules
    )
    config = ps.Config(workers=workers, exchange=exchange, steps=20, link=ps.Link(100e6, 2e-3))
    done = PerformanceModel(config, NOTHING, Workload(20_000, 1, parts=parts))
    assert done.seconds_per_step == pytest.approx(formula(workers, 80_000, 100e6 / 8, 2e-3), rel=1e-6)


def test_on_a_cluster_with_a_machine_for_each_all_is_as_behind_links_of_their_own():
    link = ps.Link(100e6, 2e-3)
    config = ps.Config(workers=4, servers=2, steps=20, link=link)
    calibration = replace(NOTHING, gradient=Line(1e-3), worker_rest=Line(1e-4), server_rest=Line(1e-4))
    load = Workload(20_000, 1, 40_000, 40_000)
    machines = cost.Cluster(machines=6, bandwidth_bps=100e6, latency_s=2e-3)
    alone = PerformanceModel(config, calibration, load)
    assert PerformanceModel(replace(config, link=None), calibration, load, machines).seconds == pytest.approx(
        alone.seconds, rel=1e-12
    )


@pytest.mark.parametrize(("machines", "cores", "seconds"), [(8, 1, 1.0), (4, 2, 1.0), (4, 1, 2.0), (1, 2, 4.0)])
def test_processes_of_one_machine_share_its_cores(machines, cores, seconds):
    cluster = cost.Cluster(machines=machines, cores=cores, bandwidth_bps=1e12, latency_s=0.0)
    calibration = replace(NOTHING, gradient=Line(1.0), cores=2)
    config, load = ps.Config(workers=8, steps=20), Workload(1, 1, 4, 4)
    assert PerformanceModel(config, calibration, load, cluster).seconds_per_step == pytest.approx(seconds, rel=1e-6)


def test_processes_of_one_machine_share_its_link_and_do_not_need_it_among_themselves():
    """Of four workers on two machines two are where the server is; the other machine's link carries two pushes."""
    cluster = cost.Cluster(machines=2, cores=8, bandwidth_bps=8e6, latency_s=0.0)
    config, load = ps.Config(workers=4, steps=20), Workload(1, 1, 1_000_000, 0)
    assert cluster.places(4, 1) == {"server 0": 0, "worker 0": 1, "worker 1": 0, "worker 2": 1, "worker 3": 0}
    assert PerformanceModel(config, NOTHING, load, cluster).seconds_per_step == pytest.approx(2.0, rel=1e-6)
    one = replace(cluster, machines=1)
    assert PerformanceModel(config, NOTHING, load, one).seconds == 0.0
