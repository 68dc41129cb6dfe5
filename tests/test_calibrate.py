"""Lines through made-up timings, and one calibration of each kind of engine."""

import json
import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import psutil
import pytest

import minips as ps
from minips import cost
from minips.cost import microbenchmarks, noise
from minips.cost.calibrate import MOST_CROWDED, _server_crowd
from minips.cost.performance_model import PerformanceModel, Workload
from minips.machines.calibration import Calibration
from minips.machines.fit import Line

calibrate = import_module("minips.cost.calibrate")  # minips.cost gives the function of that name
PROBLEM = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=400, classes=3))


def test_a_line_is_found_in_spite_of_outliers():
    rng = np.random.default_rng(0)
    x = np.repeat([1e3, 1e4, 1e5, 1e6], 9)
    y = (2e-4 + 3e-9 * x) * rng.uniform(0.95, 1.05, size=len(x))
    y[::5] *= 30  # a fifth of the calls were interrupted
    line = Line.fit(list(zip(x, y, strict=True)))
    assert line.fixed_s == pytest.approx(2e-4, rel=0.05)
    assert line.each_s == pytest.approx(3e-9, rel=0.05)
    assert 0.9 < line.low <= 1 <= line.high < 1.1
    assert line.bound("low").at(1e5) < line.at(1e5) < line.bound("high").at(1e5)


def test_a_drift_is_that_of_the_same_calls_whatever_their_size():
    def block(size, wall):
        return microbenchmarks.Block(size, wall, 0.0, 0.0, 1, 0.0, 1.0, {})

    steady = [block(size, size * off) for off in (1, 2, 1, 9, 2, 1, 1) for size in (1.0, 10.0, 100.0)]
    assert calibrate._drift(steady) == 1.0
    slower = [block(size, size * off) for off in (1, 1, 1, 2, 2, 2) for size in (1.0, 10.0)]
    assert calibrate._drift([*slower, block(100.0, 1.0), block(100.0, 9.0)]) == 2.0
    assert calibrate._drift([block(1.0, 1.0), block(1.0, 2.0)]) == 1.0


def test_neither_part_of_a_line_is_below_zero():
    assert Line.fit([(10.0, 5.0), (20.0, 4.0)]).each_s == 0.0
    falls_short = Line.fit([(10.0, 1.0), (20.0, 3.0)])
    assert (falls_short.fixed_s, falls_short.each_s > 0) == (0.0, True)
    assert Line.fit([(10.0, 2.0), (10.0, 4.0), (10.0, 3.0)]).at(999) == 3.0
    assert Line.fit([(10.0, 0.0), (10.0, 0.0), (10.0, 5.0), (20.0, 0.0)]) == Line()
    assert Line(3.0, 2.0).less(Line(1.0, 3.0), Line(0.5)) == Line(1.5, 0.0)
    assert Line(1.0, 2.0).times(2) == Line(2.0, 4.0)


def check(calibration: Calibration, codec: ps.Codec) -> None:
    assert {"compensate", "quantize", "serialize", "compress", "deserialize"} <= set(calibration.worker)
    assert {"decompress", "deserialize", "dequantize", "aggregate", "apply"} <= set(calibration.server)
    assert calibration.alpha_s > 0
    assert calibration.beta_s > 0
    assert calibration.transfer.at(1e4) > 0
    assert calibration.worker_rest.at(1e4) > 0
    assert 0.25 <= calibration.ratios["quantize"] < 0.4
    plain = json.loads(json.dumps(calibration.to_dict()))
    assert Calibration.from_dict(plain) == calibration
    assert all(word in str(calibration) for word in ("α", "β", "worker quantize", "server apply"))
    assert json.loads(calibration.subject)["push"] == codec.to_dict()
    slower = calibration.bound("high")
    assert slower.bound("low").worker.keys() == calibration.worker.keys()
    assert all(slower.server[name].at(1e3) >= line.at(1e3) for name, line in calibration.server.items())


def test_two_processes_measure_every_span_of_a_push_and_a_pull():
    codec = ps.Codec(ps.Uniform(), ps.ErrorFeedback(), compressor=ps.Lz4())
    shares = []
    calibration = cost.calibrate(ps.Config(push=codec), progress=shares.append)
    check(calibration, codec)
    assert calibration.hop_rest.at(1e4) > 0
    assert shares == sorted(shares)
    assert shares[-1] > 0.8
    assert (calibration.gradient, calibration.problem, calibration.together) == (None, "", 4)


@pytest.mark.soak
def test_a_problems_own_gradients_are_measured_in_one_process_too_and_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(noise.NoiseMeter, "disturbance", lambda self, drift: noise.Disturbance(2))  # a busy one is not
    codec, path = ps.Codec(ps.Uniform(), ps.ErrorFeedback()), tmp_path / "here.json"
    config = ps.Config(push=codec, transport=ps.InProc(), aggregator=ps.Median(), workers=3)
    calibration = cost.calibrate(config, PROBLEM, cache=path)
    check(calibration, codec)
    assert min(calibration.gradient.at(32), calibration.next_gradient.at(32)) > 0
    assert "63 values" in calibration.problem
    assert (calibration.cores, calibration.others) == (1, 0.0)
    assert cost.calibrate(replace(config, link=ps.Link(), steps=3), PROBLEM, cache=path) == calibration
    other = cost.calibrate(replace(config, push=ps.Codec()), PROBLEM, cache=path)
    assert other != calibration
    assert Calibration.load(path) == other


@pytest.mark.parametrize("factor", [1.0, 2.5])
def test_what_a_server_takes_for_a_crowd_is_found_in_the_crowds_own_time(factor):
    config = ps.Config(workers=microbenchmarks.CROWD, steps=24)
    known = Calibration(cores=2, worker_rest=Line(2e-4), server_rest=Line(3e-4), server_crowd=factor)
    wall = PerformanceModel(config, known, Workload(1e4, 0.0)).seconds_per_step
    rows = [(1e4, wall * off, 0.0, 0.0) for off in (1.0, 1.0, 7.0)]  # one block was disturbed
    found = _server_crowd(rows, replace(known, server_crowd=1.0), replace(config, steps=1))
    assert found == pytest.approx(factor, rel=0.02)
    slow = [(1e4, 1.0, 0.0, 0.0)]
    assert _server_crowd(slow, known, config) == pytest.approx(MOST_CROWDED, rel=0.01)


def test_a_gradients_time_is_the_calibrations_only_for_the_same_problem(monkeypatch):
    calibration = Calibration(gradient=Line(1.0), problem=cost.problem_words(PROBLEM), cores=8)
    config = ps.Config(workers=2, steps=3)
    assert cost.predict(PROBLEM, config, calibration).seconds_per_step == pytest.approx(1.0, rel=0.01)
    other = replace(calibration, problem="another one")
    assert cost.predict(PROBLEM, config, other).seconds_per_step < 0.5


@pytest.mark.parametrize("transport", [ps.Tcp(), ps.InProc()], ids=repr)
def test_a_calibration_can_be_stopped(transport):
    shares = []
    with pytest.raises(RuntimeError, match="stopped"):
        cost.calibrate(ps.Config(transport=transport), progress=shares.append, stop=lambda: len(shares) > 1)
    assert len(shares) == 2


def test_a_process_that_dies_ends_a_calibration_in_a_sentence():
    def kill(share):
        for process in psutil.Process().children(recursive=True):
            if not process.children() and "resource_tracker" not in " ".join(process.cmdline()):
                process.kill()

    words = r"process .*left before its work was done: its process was killed by SIGKILL"
    with pytest.raises(RuntimeError, match=words):
        cost.calibrate(ps.Config(), progress=kill)


def test_what_a_process_could_not_do_is_said():
    class Broken(ps.SoftmaxRegression):
        calls = 0

        def loss_and_gradient(self, params, rows=None):
            Broken.calls += 1
            if Broken.calls > 1:
                raise ArithmeticError("out of numbers")
            return super().loss_and_gradient(params, rows)

    problem = Broken(*ps.datasets.synthetic(rows=50, classes=2))
    with pytest.raises(RuntimeError, match=r"asks failed: ArithmeticError: out of numbers"):
        cost.calibrate(ps.Config(transport=ps.InProc(), workers=2), problem)


SPOILT = {
    "empty": b"",
    "no JSON": b"xx",
    "a list": b"[]",
    "null": b"null",
    "cut short": json.dumps(Calibration().to_dict()).encode()[:100],
    "no text": np.random.default_rng(0).bytes(1000),
    "other fields": b'{"worker": 5}',
    "something else": b'{"steps": 5}',
    "very deep": b"[" * 100_000,
}


@pytest.mark.parametrize("spoilt", SPOILT.values(), ids=SPOILT)
def test_a_cache_that_cannot_be_read_is_measured_anew_and_a_file_that_was_named_is_a_sentence(
    spoilt, tmp_path, monkeypatch
):
    path = tmp_path / "here.json"
    path.write_bytes(spoilt)
    with pytest.raises(ValueError, match=r"here\.json does not contain a valid calibration.*measure again with"):
        Calibration.load(path)
    measured = Calibration(late_s=1.0, cores=calibrate._cores(ps.Config()))
    monkeypatch.setattr(calibrate, "_measure", lambda *_: (measured, 1.0))
    assert cost.calibrate(ps.Config(), cache=path).late_s == 1.0
    assert Calibration.load(path).late_s == 1.0
    monkeypatch.setattr(calibrate, "_measure", None)
    assert cost.calibrate(ps.Config(), cache=path).late_s == 1.0


def test_a_calibration_that_cannot_be_written_is_a_sentence(tmp_path, monkeypatch):
    with pytest.raises(OSError, match=r"cannot be written to .*: Is a directory\. Choose another file"):
        Calibration().save(tmp_path)
    monkeypatch.setattr(calibrate, "_measure", None)
    with pytest.raises(OSError, match=r"folder of the cache .* does not exist. Make .*nowhere, or choose another"):
        cost.calibrate(ps.Config(), cache=tmp_path / "nowhere" / "here.json")
    with pytest.raises(OSError, match=r"The cache .* is a folder\. Name a file in it, such as .*calibration\.json\."):
        cost.calibrate(ps.Config(), cache=tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match=r"loop cannot be written: too many levels of symbolic links\."):
        cost.calibrate(ps.Config(), cache=tmp_path / "loop")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_disk_is_a_sentence():
    with pytest.raises(OSError, match=r"cannot be written to /dev/full: No space left on device"):
        Calibration().save("/dev/full")


def test_the_columns_of_a_printed_calibration_never_touch():
    line = Line(6.8e-9, 6.8e-13, 0.91234, 1.17654)
    text = str(Calibration(worker={"dequantize": line, "compress": line.times(1e9)}, ratios={"compress": 0.25}))
    _, _, heading, *rows = text.splitlines()
    assert len(rows) == 2
    for row in rows:
        assert not re.search(r"\)\S", row)
        assert row.index(")") + 1 == heading.index("µs") + 2
