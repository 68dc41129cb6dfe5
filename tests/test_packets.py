"""Predictions of hosts: frames against arithmetic, queues against closed forms, and what is not predicted is said."""

from dataclasses import replace

import pytest
from test_predict import CALIBRATION

import minips as ps
from minips import cost
from minips.cost.packets import BURST_BYTES, Queues
from minips.cost.performance_model import PerformanceModel, Workload
from minips.drivers.events import EventLoop
from minips.machines.calibration import Calibration
from minips.machines.fit import Line

RATE = 1e6
STAR = ps.Star(8 * RATE, latency_s=0.0)
PROBLEM = ps.LinearRegression(*ps.datasets.synthetic(rows=64, features=4))
NOTHING = Calibration(cores=64, gradient=Line(), problem=cost.problem_words(PROBLEM))


def arrivals(*messages, topology=STAR, ahead=1, flight_s=0.0):
    """When each message (start, source, target, bytes) is there, and the most bytes in a queue."""
    events, came = EventLoop(at_once=True), {}
    queues = Queues(events, topology.graph(4, 2), ahead)

    def send(number, start, source, target, nbytes):
        yield start
        yield from queues.travel(source, target, nbytes, flight_s)
        came[number] = events.now

    for number, message in enumerate(messages):
        events.start(send(number, *message))
    events.run(lambda: False)
    return [came[number] for number in range(len(messages))], queues.deepest


@pytest.mark.parametrize("nbytes", [1, 1448, 1449, 100_000, 3_000_000])
def test_a_message_travels_in_frames_of_1514_bytes_of_which_1448_are_its_own(nbytes):
    [came], _ = arrivals((0.0, "worker 0", "server 0", nbytes))
    assert came == pytest.approx((nbytes + -(-nbytes // 1448) * (14 + 20 + 32)) / RATE)
    if nbytes >= 100_000:
        assert nbytes / came / RATE == pytest.approx(1448 / 1514, rel=1e-3)


def test_a_message_takes_the_latency_of_its_links_and_no_less_than_without_a_network():
    slow = replace(STAR, latency_s=0.25)
    assert arrivals((0.0, "worker 0", "server 0", 0), topology=slow) == ([0.5], 0.0)
    assert arrivals((0.0, "worker 0", "server 0", 0), topology=slow, flight_s=2.0) == ([2.0], 0.0)


def test_what_meets_at_a_link_waits_first_in_first_out():
    """Half of the later message is behind the earlier one; of the second half there is one packet each in turn."""
    size, frame = 10 * 1448, 1514 / RATE
    (first, second), deepest = arrivals((0.0, "worker 0", "server 0", size), (5 * frame, "worker 1", "server 0", size))
    assert first == pytest.approx(15 * frame, abs=1.1 * frame)
    assert second == pytest.approx(20 * frame)
    assert deepest == pytest.approx(10 * 1514)  # as a whole message at its sender


def test_connections_of_a_host_take_turns_after_each_burst_and_messages_of_a_rank_after_two():
    two = [(0.0, "server 0", f"worker {rank}", 90 * 1448) for rank in (0, 1)]
    (first, second), _ = arrivals(*two)
    burst = BURST_BYTES / RATE
    assert (first, second) == (pytest.approx(3 * burst, rel=0.02), pytest.approx(4 * burst, rel=0.02))
    (first, second), _ = arrivals(*two, ahead=2)
    assert (first, second) == (pytest.approx(2 * burst, rel=0.02), pytest.approx(4 * burst, rel=0.02))
    (first, second), _ = arrivals(*((*message[:3], 180 * 1448) for message in two), ahead=2)
    assert (first, second) == (pytest.approx(6 * burst, rel=0.04), pytest.approx(8 * burst, rel=0.04))


def test_acknowledgements_take_their_share_of_the_way_back():
    there, back = (0.0, "worker 0", "worker 1", 1_448_000), (0.0, "worker 1", "worker 0", 1_448_000)
    (one, other), _ = arrivals(there, back)
    assert one == pytest.approx(1.514 * (1 + 33 / 1514), rel=2e-3)
    assert other == pytest.approx(one, rel=2e-3)


def test_an_uplink_is_shared():
    racks = ps.TwoRacks(8 * RATE, 0.0, uplink_bps=4 * RATE)
    both, _ = arrivals(*((0.0, f"worker {rank}", f"worker {rank + 2}", 144_800) for rank in (0, 1)), topology=racks)
    assert max(both) == pytest.approx(2 * 151_400 / (RATE / 2), rel=0.01)
    assert min(both) > 0.9 * max(both)


def test_servers_answer_in_an_order_of_their_own():
    """So a worker has not all answers early, and its next push waits: slower than one behind the other."""
    config = ps.Config(workers=4, servers=2, steps=40)
    load = Workload(2, 0, 14_480, 14_480)
    behind_links = replace(config, link=ps.Link(8 * RATE * 1448 / 1514, 0.0))
    hosts = PerformanceModel(config, NOTHING, load, net=STAR.graph(4, 2)).seconds_per_step
    assert 1.05 < hosts / PerformanceModel(behind_links, NOTHING, load).seconds_per_step < 1.3
    assert hosts == PerformanceModel(config, NOTHING, load, net=STAR.graph(4, 2)).seconds_per_step
    assert hosts != PerformanceModel(replace(config, seed=1), NOTHING, load, net=STAR.graph(4, 2)).seconds_per_step


@pytest.fixture
def measured(monkeypatch):
    """Hosts whose latency is not measured, so that they need not be made."""
    monkeypatch.setattr(ps.Hosts, "graph", lambda self, *counts: (self.topology or STAR).graph(*counts))


def predicted(config, calibration=NOTHING, **engine):
    return cost.predict(PROBLEM, config, calibration, engine=ps.Hosts(**{"topology": STAR, **engine}))


def test_a_prediction_for_hosts_has_their_network(measured):
    fast, slow = (predicted(ps.Config(workers=2), topology=ps.Star(bits, 0.0)) for bits in (1e6, 1e5))
    assert slow.seconds_per_step == pytest.approx(10 * fast.seconds_per_step, rel=0.01)
    assert fast.bytes_sent == cost.predict(PROBLEM, ps.Config(workers=2), NOTHING).bytes_sent
    ring = predicted(ps.Config(workers=4, exchange="ring"), topology=ps.TwoRacks(1e6, 0.0, uplink_bps=1e5))
    assert ring.seconds_per_step > 0
    assert not any(one.limits for one in (fast, slow, ring))


def test_where_a_queue_or_the_cores_are_not_enough_the_prediction_says_so(measured):
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=64, features=2_000, classes=3))
    known = replace(NOTHING, problem=cost.problem_words(problem))

    def limits(nbytes, calibration=known):
        engine = ps.Hosts(STAR, buffer_bytes=nbytes)
        return cost.predict(problem, ps.Config(workers=4, steps=5), calibration, engine=engine)

    (sentence,) = limits(50_000).limits
    assert sentence.startswith("One queue would need ")
    assert sentence.endswith("and has 50,000: packets are lost, and each costs time.")
    held = int(sentence.split()[4].replace(",", ""))
    assert 3 * 24_000 < held < 4 * 26_500
    assert limits(held - 1).limits
    assert limits(held + 1).limits == ()
    (sentence,) = limits(10**6, replace(known, cores=1, gradient=Line(0.1))).limits
    assert sentence.endswith("% of a step, whatever the network: packets wait for a core, too.")
    assert str(limits(50_000)).splitlines()[-1] == limits(50_000).limits[0]


def test_a_prediction_on_two_networks_is_refused(measured):
    for changes, cluster, words in (
        ({}, cost.Cluster(), "and Cluster.* each have a network"),
        ({"link": ps.Link()}, None, r"there would be two links\. Use link=None"),
        ({"transport": "shm"}, None, "Only a network joins Hosts"),
    ):
        with pytest.raises(ValueError, match=words):
            cost.predict(PROBLEM, ps.Config(**changes), NOTHING, cluster=cluster, engine=ps.Hosts())


def test_where_the_machine_was_busy_a_prediction_has_two_digits():
    push = ps.Codec(ps.Uniform(), ps.ErrorFeedback())
    config, busy = ps.Config(workers=2, steps=10, push=push), replace(CALIBRATION, note="It was busy.")
    quiet, told = (cost.predict(PROBLEM, config, one) for one in (CALIBRATION, busy))
    assert f"{quiet.seconds_per_step * 1e3:.3f} ms ({quiet.interval_s[0] * 1e3:.3f} to " in str(quiet)
    step, run = (next(line for line in str(told).splitlines() if line.startswith(name)) for name in ("a st", "the r"))
    assert f"{told.seconds_per_step * 1e3:.2g} ms ({told.interval_s[0] * 1e3:.2g} to " in step
    assert f"{told.seconds:.2g} s for 10 steps" in run
    compared = str(cost.compare(told, ps.train(PROBLEM, config, engine="threads")))
    (total,) = (line for line in compared.splitlines() if line.startswith("total"))
    assert total.split()[1:3] == [f"{told.seconds_per_step * 1e3:.2g}", "ms"]


def test_the_workbench_predicts_hosts_where_it_runs_on_them(monkeypatch):
    workbench, asked = pytest.importorskip("minips.lab.workbench"), []
    monkeypatch.setattr(cost, "predict", lambda *given, engine: asked.append(engine))
    monkeypatch.setattr(cost, "calibrate", lambda *given, **more: NOTHING)
    network = ps.Hosts(STAR)
    for engine in ("hosts", network, "threads"):
        bench = workbench.Workbench(PROBLEM, engine=engine, predict=True)
        bench._predict("A", ps.Config())
    assert asked == [ps.Hosts(), network, None]
