"""Predicted bytes are a run's, predicted names are its trace's, and what is slower is predicted to be."""

import json
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


MANY = [pytest.param(*case, marks=pytest.mark.soak) for case in ((200, 3, 1), (300, 1, 2))]


@pytest.mark.parametrize(("workers", "steps", "servers"), [(1, 1, 1), (2, 1, 1), (200, 1, 1), *MANY])
def test_the_bytes_of_many_workers_are_counted_on_two_of_them(workers, steps, servers):
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=500, features=4, classes=2))
    config = ps.Config(workers=workers, steps=steps, servers=servers, batch_size=1)
    prediction = cost.predict(problem, config, CALIBRATION)
    run = ps.train(problem, config, engine=ps.Simulated())
    assert (prediction.bytes_sent, prediction.bytes_received) == (run.bytes_sent, run.bytes_received)


@pytest.mark.parametrize("worker", [0, 2, 3])
def test_the_bytes_are_exact_whichever_worker_is_slow(worker):
    config = ps.Config(workers=4, steps=12, delays=ps.Delays(1e-3, slow={worker: 4.0}))
    prediction = cost.predict(PROBLEM, config, CALIBRATION)
    run = ps.train(PROBLEM, config, engine=ps.Simulated())
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
    "exchange",
    [
        ps.RingAllReduce(),
        *(pytest.param(e, marks=pytest.mark.soak) for e in (ps.TreeAllReduce(), ps.HalvingDoubling(), ps.TwoShot())),
    ],
    ids=repr,
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
    with pytest.raises(ValueError, match="The cluster has its own network"):
        cost.predict(PROBLEM, replace(config, link=ps.Link()), calibration, cluster=cluster)


SEEN = ps.Config(push=ps.Codec(ps.Uniform(), ps.ErrorFeedback()), workers=3, steps=20)
CALIBRATED = replace(CALIBRATION, gradient=Line(1e-3), problem=cost.problem_words(PROBLEM))
SLOW = cost.Cluster(machines=3, bandwidth_bps=1e7, latency_s=1e-3, compute_s=5e-3, cores=2)


def compared(engine, calibration=CALIBRATED, cluster=None, **changes):
    config = replace(SEEN, **changes)
    prediction = cost.predict(PROBLEM, config, calibration, cluster=cluster)
    return cost.compare(prediction, ps.train(PROBLEM, config, engine=engine))


@pytest.mark.parametrize(
    ("engine", "cluster", "changes", "total"),
    [
        (ps.Simulated(cluster=SLOW), SLOW, {}, (0.8, 1.2)),
        (ps.Simulated(cluster=SLOW), SLOW, {"servers": 2}, (0.6, 1.5)),
        (ps.Simulated(), None, {"link": ps.Link(1e7, 1e-3)}, (0.8, 1.2)),
        (ps.Simulated(), None, {"link": ps.Link(1e7, 1e-3), "overlap": True}, (0.6, 1.5)),
        (ps.Simulated(), None, {"link": ps.Link(1e7, 1e-3), "exchange": "ring", "push": ps.Codec()}, (0.9, 1.1)),
        (ps.Simulated(), None, {"delays": ps.Delays(0.02)}, (0.99, 1.01)),
        (ps.Simulated(compute_s=0.001), None, {}, (0.99, 1.01)),
        (ps.Simulated(compute_s=0.001), None, {"local": ps.LocalSteps(5, ps.SGD(0.1))}, (0.99, 1.01)),
    ],
    ids=repr,
)
@pytest.mark.filterwarnings("ignore:With local steps the optimizer is the outer one")
def test_what_a_simulation_does_not_count_is_compared_with_nothing(engine, cluster, changes, total):
    comparison = compared(engine, cluster=cluster, **changes)
    rows = {name: (predicted, measured) for name, predicted, measured in comparison.rows}
    for name in (*STAGES[1:], "aggregate", "apply"):
        assert rows[name][0] > 0
        assert rows[name][1] is comparison.ratios[name] is None
    low, high = total
    assert low < comparison.ratios["total"] < high
    assert all(ratio is None or ratio < 10 for ratio in comparison.ratios.values())
    assert [row[0] for row in comparison.counted][-3:] == ["transfer", "wait", "total"]
    (sentence,) = comparison.reasons
    assert sentence.endswith("stages, calls and waits for a core: the other rows are predicted without it.")
    assert ("compute, " in sentence) == (rows["compute"][1] is None)
    text = str(comparison)
    assert " ".join(text.splitlines()).find(sentence) > 0
    assert max(map(len, text.splitlines())) <= 100
    assert sentence in comparison._repr_html_()


def test_where_both_count_all_nothing_is_left_out_of_a_comparison():
    comparison = compared(ps.Simulated(calibration=CALIBRATED, cluster=SLOW), cluster=SLOW)
    assert comparison.reasons == ()
    assert len(comparison.counted) == len(comparison.rows) == len(SPANS) + 1
    for name in STAGES:
        assert comparison.ratios[name] == pytest.approx(1.0, rel=1e-6)
    assert comparison.rows[-1][1] == cost.predict(PROBLEM, SEEN, CALIBRATED, cluster=SLOW).seconds_per_step


def test_what_is_next_to_nothing_of_a_step_is_not_divided_by():
    rows = [("compute", 1.0, 2.0), ("wait", 0.6e-3, 3e-9), ("apply", 0.0, 0.0), ("total", 1.1, 2.1)]
    comparison = cost.Comparison(rows)
    assert comparison.ratios == {"compute": 0.5, "wait": None, "apply": None, "total": pytest.approx(1.1 / 2.1)}
    assert str(comparison).splitlines()[-1] == "Times below 0.1% of a measured step have no ratio."
    assert "no ratio" not in str(cost.Comparison(rows[:1] + rows[2:]))


def test_a_prediction_without_stages_has_no_total_for_a_run_that_has_them():
    none = cost.Calibration(gradient=Line(1e-3), problem=CALIBRATED.problem)
    comparison = compared("threads", none, transport=ps.InProc())
    rows = {name: row for name, *row in comparison.rows}
    assert comparison.ratios["compute"] > 0
    assert all(rows[name][0] is None and rows[name][1] > 0 for name in ("quantize", "transfer", "wait", "total"))
    assert "The prediction counts no time for compensate, quantize," in comparison.reasons[0]
    assert comparison.reasons[0].endswith("and apply, so there is no total to compare.")
    fewer = replace(CALIBRATED, worker={}, server={name: Line(1e-5) for name in STAGES if name != "compensate"})
    comparison = compared("threads", fewer, transport=ps.InProc())
    without = [name for name, predicted, _ in comparison.rows if predicted is None]
    assert without == ["compensate", "aggregate", "apply", "total"]


def test_a_span_that_a_calibration_of_the_same_codec_did_not_have_is_predicted_to_take_nothing():
    worker, server = (
        {name: line for name, line in lines.items() if name != "dequantize"}
        for lines in (CALIBRATED.worker, CALIBRATED.server)
    )
    known = replace(CALIBRATED, worker=worker, server=server)
    assert compared("threads", known, transport=ps.InProc()).rows[-1][1] is None
    codecs = json.dumps({"push": SEEN.push.to_dict(), "pull": SEEN.pull.to_dict()})
    comparison = compared("threads", replace(known, subject=codecs), transport=ps.InProc())
    assert ("dequantize", 0.0) in [(name, said) for name, said, _ in comparison.rows]
    assert comparison.rows[-1][1] > 0


def test_what_is_not_a_prediction_and_a_run_is_not_compared():
    prediction = cost.predict(PROBLEM, SEEN, CALIBRATED)
    with pytest.raises(TypeError, match=r"compare takes a prediction, which ps\.cost\.predict makes, and then a run"):
        cost.compare(None, prediction)
    with pytest.raises(
        TypeError, match=r"compare takes a prediction, and then the run that ps\.train returns; got None"
    ):
        cost.compare(prediction, None)


def test_a_long_note_is_folded():
    note = "Other programs took 1.4 of 2 cores while this was measured; the times may be off. " * 2
    prediction = cost.predict(PROBLEM, SEEN, replace(CALIBRATED, note=note))
    texts = prediction, cost.Comparison([("total", 1.0, 1.0)], note), cost.Tuning(0.9, [], note)
    assert all(max(map(len, str(text).splitlines())) <= 100 for text in texts)


@pytest.mark.parametrize("seen", [["server 0", "server 1"], ["server 0"]])
def test_of_workers_started_by_hand_a_run_has_no_spans(seen):
    config = replace(SEEN, servers=2, transport=ps.InProc())
    run = ps.train(PROBLEM, config, engine="threads")
    run = replace(run, trace=Trace(spans=[span for span in run.trace if span.who in seen]))
    prediction = cost.predict(PROBLEM, config, CALIBRATED)
    comparison = cost.compare(prediction, run)
    both = ["aggregate", "apply", "total"] if len(seen) == 2 else ["total"]
    assert [name for name, *_ in comparison.counted] == both
    assert comparison.rows[-1] == ("total", prediction.seconds_per_step, run.seconds_per_step)
    assert "no spans of workers" in str(comparison)
