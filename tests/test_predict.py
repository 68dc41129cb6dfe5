"""Predicted bytes are a run's, predicted names are its trace's, and what is slower is predicted to be."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from tap import tapped

import minips as ps
from minips import cost
from minips.core.codec import Encoder
from minips.core.message import Message
from minips.machines.calibration import Calibration
from minips.machines.fit import Line
from minips.results.trace import SPANS, Trace

PROBLEM = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=400, features=200, classes=3))
STAGES = ("compensate", "quantize", "serialize", "compress", "decompress", "deserialize", "dequantize")
CALIBRATION = Calibration(
    worker={name: Line(1e-5, 1e-8, 0.9, 1.2) for name in STAGES},
    server={name: Line(1e-5, 1e-8, 0.9, 1.2) for name in (*STAGES, "aggregate", "apply")},
    worker_rest=Line(2e-4, 1e-9, 0.9, 1.3),
    server_rest=Line(2e-4, 1e-9, 0.9, 1.3),
    idle=Line(1e-4, 0.0, 0.8, 1.5),
    late_s=1e-4,
    cores=2,
)


@pytest.mark.parametrize(
    "codec",
    [
        ps.Codec(),
        ps.Codec(ps.Uniform(4), ps.ErrorFeedback(), ps.Pickle()),
        ps.Codec(ps.TopK(0.1)),
    ],
    ids=repr,
)
@pytest.mark.parametrize("servers", [1, 2])
def test_where_only_shapes_count_the_bytes_are_exact(codec, servers):
    config = ps.Config(push=codec, workers=3, servers=servers, steps=140, transport=ps.InProc())
    prediction = cost.predict(PROBLEM, config, CALIBRATION)
    run = ps.train(PROBLEM, config, engine=ps.Threads())
    assert prediction.exact_bytes
    assert (prediction.bytes_sent, prediction.bytes_received) == (run.bytes_sent, run.bytes_received)


@pytest.mark.parametrize(("workers", "steps", "servers"), [(1, 1, 1), (2, 1, 1), (200, 1, 1), (200, 3, 1), (300, 1, 2)])
def test_the_bytes_of_many_workers_are_counted_on_two_of_them(workers, steps, servers):
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=500, features=4, classes=2))
    config = ps.Config(workers=workers, steps=steps, servers=servers, batch_size=1)
    prediction = cost.predict(problem, config, CALIBRATION)
    run = ps.train(problem, config, engine=ps.Simulated())
    assert (prediction.bytes_sent, prediction.bytes_received) == (run.bytes_sent, run.bytes_received)


def test_the_bytes_are_the_same_where_no_network_can_be_simulated(monkeypatch):
    push = ps.Codec(ps.TopK(0.1), ps.ErrorFeedback(), compressor=ps.Zlib())
    for changes in ({"servers": 2}, {"exchange": ps.RingAllReduce()}):
        config = ps.Config(push=push, workers=3, steps=140, **changes)
        simulated = cost.predict(PROBLEM, config, CALIBRATION)
        with monkeypatch.context() as absent:
            absent.setitem(sys.modules, "networkx", None)
            without = cost.predict(PROBLEM, config, CALIBRATION)
        assert (simulated.bytes_sent, simulated.bytes_received) == (without.bytes_sent, without.bytes_received)


@pytest.mark.parametrize(
    "exchange", [ps.RingAllReduce(), ps.TreeAllReduce(), ps.HalvingDoubling(), ps.TwoShot()], ids=repr
)
def test_the_bytes_of_an_all_reduce_are_exact_too(exchange):
    config = ps.Config(
        push=ps.Codec(ps.Float16(), ps.ErrorFeedback()), workers=4, steps=140, transport=ps.InProc(), exchange=exchange
    )
    prediction = cost.predict(PROBLEM, config, CALIBRATION)
    run = ps.train(PROBLEM, config, engine=ps.Threads())
    assert prediction.exact_bytes
    assert (prediction.bytes_sent, prediction.bytes_received) == (run.bytes_sent, run.bytes_received)
    assert set(run.trace.seconds()) - {"wait"} == set(prediction.spans) - {"wait"}


@pytest.mark.parametrize(
    "changes",
    [
        {"push": ps.Codec(compressor=ps.Zlib())},
        {"push": ps.Codec(serializer=ps.Json())},
        {"push": ps.Codec(serializer=ps.Protobuf())},
        {"push": ps.Codec(ps.Threshold(1e-4))},
        {"consistency": ps.ASP()},
    ],
    ids=repr,
)
def test_where_values_or_luck_count_the_bytes_are_near(changes):
    config = replace(ps.Config(workers=2, steps=20, transport=ps.InProc()), **changes)
    prediction = cost.predict(PROBLEM, config, CALIBRATION)
    run = ps.train(PROBLEM, config, engine=ps.Threads())
    assert not prediction.exact_bytes
    assert run.bytes_sent == pytest.approx(prediction.bytes_sent, rel=0.2)
    assert run.bytes_received == pytest.approx(prediction.bytes_received, rel=0.05)


def test_the_names_are_those_of_the_trace_and_a_comparison_joins_them():
    config = ps.Config(push=ps.Codec(ps.Uniform(), ps.ErrorFeedback()), workers=2, steps=10, transport=ps.InProc())
    prediction = cost.predict(PROBLEM, config, CALIBRATION)
    run = ps.train(PROBLEM, config, engine=ps.Threads())
    comparison = cost.compare(prediction, run)
    names = [name for name, _, _ in comparison.rows]
    assert names == [*(name for name in SPANS if name in names), "total"]
    assert set(run.trace.seconds()) == set(prediction.spans)
    assert comparison.rows[-1] == ("total", prediction.seconds_per_step, run.seconds_per_step)
    assert all(name in str(comparison) for name in ("predicted", "measured", "ratio", *names))
    assert prediction.seconds == pytest.approx(10 * prediction.seconds_per_step)


@pytest.mark.parametrize("kept", [40, 1000], ids=["a part", "all"])
def test_a_comparison_counts_the_updates_whose_spans_are_kept(kept, tmp_path):
    """Fifty steps of a second, of which a server's trace ends after the twentieth."""
    worker, server = Trace("worker 0"), Trace("server 0", limit=kept)
    for step in range(50):
        worker.add("compute", step, 0.5)
        server.laps(("aggregate", "apply"), (step + 0.5, step + 0.75, step + 1.0))
    config = ps.Config(workers=1, steps=50)
    run = ps.train(PROBLEM, config, engine=ps.Simulated(compute_s=1.0))
    run = replace(run, trace=worker + server, seconds=50.0)
    run.save(tmp_path / "run.npz")
    prediction = cost.predict(PROBLEM, config, CALIBRATION)
    for one in (run, ps.Run.load(tmp_path / "run.npz")):
        measured = {name: seconds for name, _, seconds in cost.compare(prediction, one).rows}
        found = [measured[name] for name in ("compute", "aggregate", "apply")]
        assert found == pytest.approx([0.5, 0.25, 0.25], rel=0.03)
        assert kept < 1000 or found == [0.5, 0.25, 0.25]
    assert measured["total"] == 1.0


def test_a_simulated_run_says_from_when_on_its_spans_are_missing(monkeypatch):
    monkeypatch.setattr("minips.engines.simulated.simulation.MAX_SPANS", 5)
    run = ps.train(PROBLEM, ps.Config(workers=1, steps=9), engine=ps.Simulated(compute_s=1.0))
    assert (len(run.trace), run.trace.until) == (5, 5.0)


def test_the_interval_holds_the_prediction_and_narrows_with_the_calibrations():
    config = ps.Config(workers=2, steps=10)
    prediction = cost.predict(PROBLEM, config, CALIBRATION)
    low, high = prediction.interval_s
    assert low < prediction.seconds_per_step < high
    lines = {"worker_rest": Line(2e-4), "server_rest": Line(2e-4), "idle": Line(1e-4)}
    narrow = cost.predict(PROBLEM, config, replace(CALIBRATION, **lines)).interval_s
    assert narrow[1] - narrow[0] < high - low


def test_what_costs_more_is_predicted_to():
    def seconds(**changes):
        return cost.predict(PROBLEM, replace(ps.Config(workers=4, steps=40), **changes), CALIBRATION).seconds_per_step

    link = ps.Link(1e6, 1e-3)
    assert seconds() < seconds(link=ps.Link(1e8, 1e-3)) < seconds(link=link)
    assert seconds(link=link, push=ps.Codec(ps.Uniform(4)), pull=ps.Codec(ps.Float16())) < 0.7 * seconds(link=link)
    assert seconds(link=link, servers=2) < seconds(link=link)
    delays = ps.Delays(0.02, exponential=True)
    assert seconds(delays=delays, consistency=ps.ASP()) < seconds(delays=delays, consistency=ps.SSP(1))
    assert seconds(delays=delays, consistency=ps.SSP(1)) < seconds(delays=delays)
    assert seconds(delays=delays, overlap=True, link=link) < seconds(delays=delays, link=link)


def test_a_message_has_the_bytes_that_its_codec_makes_of_it():
    tensors = {"w": np.random.default_rng(0).normal(size=10_000).astype(np.float32)}
    sizes = [cost.message_nbytes(ps.Codec(quantizer), tensors) for quantizer in (ps.Exact(), ps.Uniform(8), ps.Sign())]
    assert sizes[0] > 40_000
    assert 10_000 < sizes[1] < 10_500
    assert 1250 < sizes[2] < 1400


@pytest.mark.parametrize(
    "codec",
    [
        ps.Codec(),
        ps.Codec(ps.Uniform(4), ps.ErrorFeedback()),
        ps.Codec(ps.Sign(), serializer=ps.Npy()),
        ps.Codec(ps.TopK(0.004), serializer=ps.Pickle()),
        ps.Codec(ps.TopK(0.004), compressor=ps.Zlib()),
    ],
    ids=repr,
)
def test_a_message_takes_the_bytes_of_a_stream_that_a_tap_counts(codec):
    tensors = {
        name: np.random.default_rng(0).normal(size=size).astype("f4") for name, size in (("W", 10_000), ("b", 10))
    }
    frames = Encoder(codec, np.random.default_rng(0), ps.Trace()).encode(Message({"kind": "push"}, tensors))
    with (
        ps.Tcp().serve(lambda frames: []) as endpoint,
        tapped(endpoint.address) as [tap],
        ps.Tcp().connect(tap.address) as channel,
    ):
        channel.call([b"warm"]).result(5)
        before = sum(map(len, tap.asked))
        channel.call(frames).result(5)
        took = sum(map(len, tap.asked)) - before
    assert cost.message_nbytes(codec, tensors, stream=True) == took
    assert cost.message_nbytes(codec, tensors) == sum(map(len, frames)) < took


def test_a_prediction_prints_as_a_table():
    problem = ps.LinearRegression(*ps.datasets.synthetic(rows=64, features=4))
    told = cost.predict(problem, ps.Config(workers=2, steps=10), CALIBRATION)
    lines = str(told).splitlines()
    names = ["a step", "the run", "sent by workers", "received by workers", "cores"]
    assert [line[:20].strip() for line in lines[-5:]] == names
    assert len(lines) == len(told.spans) + 5
    assert f"{told.seconds_per_step * 1e3:.3f} ms" in lines[-5]
    assert lines[-1].split(maxsplit=1)[1] == "2, shared by 2 workers and 1 server"
    ring = cost.predict(problem, ps.Config(workers=3, exchange="ring"), replace(CALIBRATION, note="It was busy."))
    assert str(ring).splitlines()[-2:] == [f"{'cores':<20}2, shared by 3 workers", "It was busy."]


def test_on_a_cluster_workers_do_not_share_the_cores_of_this_machine():
    config, calibration = ps.Config(workers=8, steps=20), replace(CALIBRATION, gradient=Line(0.1))
    calibration = replace(calibration, problem=cost.problem_words(PROBLEM))
    here = cost.predict(PROBLEM, config, calibration)
    cluster = cost.Cluster(machines=4, cores=8, bandwidth_bps=10e9, latency_s=5e-5)
    there = cost.predict(PROBLEM, config, calibration, cluster=cluster)
    assert here.seconds_per_step > 0.4  # 8 × 0.1 s on two cores
    assert 0.1 < there.seconds_per_step < 0.11
    assert there.bytes_sent == here.bytes_sent
    assert "8 on each of 4 machines, shared by 8 workers and 1 server" in str(there)
    slower = cost.predict(PROBLEM, config, calibration, cluster=replace(cluster, compute_s=0.3))
    assert 0.3 < slower.seconds_per_step < 0.31
    with pytest.raises(ValueError, match="The cluster has a network of its own"):
        cost.predict(PROBLEM, replace(config, link=ps.Link()), calibration, cluster=cluster)
