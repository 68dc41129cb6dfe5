"""The walk in virtual time against closed forms, predicted bytes against a run."""

import math
from dataclasses import replace

import numpy as np
import pytest

import minips as ps
from minips import cost
from minips.cost.calibrate import Calibration, Line
from minips.cost.predict import _Walk
from minips.runtime.trace import SPANS

NOTHING = Calibration(worker={}, server={}, transfer=Line(0.0, 0.0), cores=64)


def walk(config: ps.Config, gradient_s: float = 0.0, nbytes: float = 80_000) -> float:
    return _Walk(config, NOTHING, gradient_s, 20_000, nbytes, nbytes).run()


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
