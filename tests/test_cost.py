"""Closed forms against arithmetic, the walk in virtual time against closed forms, predicted bytes against a run."""

import math
from dataclasses import replace

import numpy as np
import pytest

import minips as ps
from minips import cost
from minips.cost.calibrate import Calibration, Line
from minips.cost.predict import _Walk
from minips.runtime.trace import SPANS

MiB = 2**20
NOTHING = Calibration(worker={}, server={}, transfer=Line(0.0, 0.0), cores=64)
BYTES = 1_000_000.0


def walk(config: ps.Config, gradient_s: float = 0.0, nbytes: float = 80_000) -> float:
    return _Walk(config, NOTHING, gradient_s, 20_000, nbytes, nbytes).run()


def test_a_32_mib_gradient_takes_what_the_ring_formula_says_and_the_lectures_size_is_4_mib():
    bandwidth = 10 * 2**30 / 8
    assert cost.ring_allreduce_s(8, 32 * MiB, bandwidth) == 0.04375
    lecture = 1024 * 1024 * 32 / 8
    assert lecture == 4 * MiB
    assert [round(cost.ring_allreduce_s(8, lecture * bits / 32, bandwidth), 4) for bits in (32, 16, 8)] == [
        0.0055,
        0.0027,
        0.0014,
    ]
    # One millisecond in all, as the lecture adds it, not for each of the 14 messages, as a ring pays it.
    assert round(cost.ring_allreduce_s(8, lecture, bandwidth) + 1e-3, 4) == 0.0065
    assert cost.ring_allreduce_s(8, lecture, bandwidth, 1e-3) > 0.019


@pytest.mark.parametrize("workers", [2, 4, 8, 16, 64])
def test_latency_and_bandwidth_terms(workers):
    for formula, messages, copies in (
        (cost.ring_allreduce_s, 2 * (workers - 1), 2 * (workers - 1) / workers),
        (cost.tree_allreduce_s, 2 * math.log2(workers), 2 * math.log2(workers)),
        (cost.halving_doubling_s, 2 * math.log2(workers), 2 * (workers - 1) / workers),
        (cost.parameter_server_s, 2, 2 * workers),
    ):
        assert formula(workers, 0, BYTES, latency=1.0) == pytest.approx(messages)
        assert formula(workers, BYTES, BYTES) == pytest.approx(copies)


def test_servers_share_the_load_and_one_worker_needs_no_ring():
    assert cost.parameter_server_s(8, BYTES, BYTES, servers=4) == cost.parameter_server_s(8, BYTES, BYTES) / 4
    assert cost.ring_allreduce_s(1, BYTES, BYTES, 1.0) == 0


def test_impossible_sizes_are_refused_with_a_sentence():
    with pytest.raises(ValueError, match="power of two"):
        cost.halving_doubling_s(6, 1.0, 1.0)
    with pytest.raises(ValueError, match="at least one worker"):
        cost.ring_allreduce_s(0, 1.0, 1.0)
    with pytest.raises(ValueError, match="bandwidths above 0"):
        cost.tree_allreduce_s(2, 1.0, 0.0)
    with pytest.raises(ValueError, match="at least one server"):
        cost.parameter_server_s(2, 1.0, 1.0, servers=0)


@pytest.mark.parametrize("workers", [1, 2, 4, 16])
@pytest.mark.parametrize("servers", [1, 2])
def test_over_a_full_duplex_link_the_pushes_overlap_the_pulls_of_the_step_before(workers, servers):
    config = ps.Config(workers=workers, servers=servers, steps=20, link=ps.Link(100e6, 2e-3))
    latency, transfer = 2e-3, 80_000 / servers / (100e6 / 8)
    step = 2 * latency + (workers + 1) * transfer
    last_pull = latency + transfer  # nobody waits for it
    assert 20 * walk(config) == pytest.approx(20 * step - last_pull, rel=1e-9)
    phases = cost.parameter_server_s(workers, 80_000, 100e6 / 8, latency, servers)
    assert step == pytest.approx(phases) if workers == 1 else step < phases


def test_the_walk_waits_for_the_slowest_under_bsp_and_for_nobody_under_asp():
    slow = ps.Config(workers=4, steps=200, delays=ps.Delays(0.01, slow={1: 5.0}))
    assert walk(slow) == pytest.approx(0.05, rel=1e-6)
    # Three workers push 100 times a second and one 20 times; one clock of all the workers is four pushes.
    assert walk(replace(slow, consistency=ps.ASP())) == pytest.approx(4 / 320, rel=0.02)
    assert walk(replace(slow, consistency=ps.SSP(2))) == pytest.approx(0.05, rel=0.03)
    assert walk(replace(slow, consistency=ps.BSP(backup=1))) < 0.02


def test_the_walk_averages_the_largest_of_exponential_times_under_bsp():
    config = ps.Config(workers=4, steps=200, delays=ps.Delays(0.01, exponential=True))
    harmonic = 0.01 * (1 + 1 / 2 + 1 / 3 + 1 / 4)
    deviation = 0.01 * math.sqrt(sum(1 / k**2 for k in range(1, 5)) / 200)
    assert walk(config) == pytest.approx(harmonic, abs=4 * deviation)
    assert walk(replace(config, consistency=ps.SSP(3))) < walk(config)


def test_two_cores_work_for_four_workers_one_after_the_other():
    config = ps.Config(workers=4, steps=10)
    two = replace(NOTHING, cores=2)
    assert _Walk(config, two, 0.01, 1, 1, 1).run() == pytest.approx(0.02)


@pytest.mark.parametrize("codec", [ps.Codec(), ps.Codec(ps.TopK(), ps.ErrorFeedback(), compressor=ps.Zlib())], ids=repr)
def test_predicted_bytes_are_those_of_the_run_and_names_are_those_of_the_trace(codec):
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=400, classes=3))
    config = ps.Config(push=codec, workers=2, steps=20, transport=ps.InProc())
    prediction = cost.predict(problem, config)
    run = ps.train(problem, config, engine=ps.Threads())
    greetings = 2 * 1000  # hello, the first pull and goodbye of two workers
    slack = 0.2 if codec.compressor.name == "zlib" else 0.02
    assert run.bytes_sent == pytest.approx(prediction.bytes_sent, rel=slack, abs=greetings)
    assert run.bytes_received == pytest.approx(prediction.bytes_received, rel=0.02, abs=greetings)
    comparison = cost.compare(prediction, run)
    names = [name for name, _, _ in comparison.rows]
    assert names == [*(name for name in SPANS if name in names), "total"]
    assert {"compute", "quantize", "serialize", "transfer", "aggregate", "apply"} <= set(prediction.spans)
    assert sum(prediction.spans.values()) >= prediction.seconds_per_step * 0.999
    assert "predicted" in str(comparison)


def test_a_calibration_fits_every_span_of_a_push_and_a_pull():
    calibration = cost.calibrate(ps.Config(push=ps.Codec(ps.Uniform(), ps.ErrorFeedback(), compressor=ps.Lz4())))
    assert {"compensate", "quantize", "serialize", "compress", "deserialize"} <= set(calibration.worker)
    assert {"decompress", "deserialize", "dequantize", "aggregate", "apply"} <= set(calibration.server)
    lines = [*calibration.worker.values(), *calibration.server.values(), calibration.transfer]
    assert all(line.fixed_s >= 0 and line.per_value_s >= 0 for line in lines)
    assert np.isfinite([line.at(1e6) for line in lines]).all()
    assert calibration.transfer.at(1e6) > 0
