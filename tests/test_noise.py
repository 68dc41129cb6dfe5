"""Was the machine quiet? The decision, with given numbers; and a program that really spins."""

import os
import subprocess
import sys
from dataclasses import replace
from importlib import import_module

import pytest

import minips as ps
from benchmarks import cost as cost_table
from minips import cost, demo
from minips.cost import noise
from minips.cost.noise import Disturbance
from minips.lab.measure.turns import Spread
from minips.machines.calibration import Calibration
from minips.machines.fit import Line

calibrate = import_module("minips.cost.calibrate")  # minips.cost gives the function of that name
BUSY = Disturbance(2, 1.3)
AGAIN = "the times may be off. Run it again on a quiet machine."
TOOK = f"Other programs took 1.3 of 2 cores while this was measured; {AGAIN}"


@pytest.mark.parametrize(
    ("disturbance", "note"),
    [
        (Disturbance(2), ""),
        (Disturbance(2, 0.39, 1.4), ""),
        (Disturbance(64, 12.0, 0.7), ""),
        (BUSY, TOOK),
        (Disturbance(2, 1.3, 4.0), TOOK),
        (Disturbance(2, 0.3, 1.8), f"One half of the same measurements took 1.8 times as long as the other; {AGAIN}"),
        (Disturbance(2, 0.3, 0.5), f"One half of the same measurements took 2.0 times as long as the other; {AGAIN}"),
    ],
)
def test_the_sentence_follows_from_the_numbers(disturbance, note):
    assert disturbance.note == note
    assert bool(note) == (disturbance.size > 1)


class Machine:
    """A machine on which others take so many cores, one number after the other."""

    def __init__(self, monkeypatch, *others):
        self.others, self.measured = list(others), 0
        monkeypatch.setattr(noise.NoiseMeter, "disturbance", self.disturbance)

    def disturbance(self, drift=1.0):
        return Disturbance(2, self.others[self.measured - 1], drift)

    def measure(self):
        self.measured += 1
        return self.measured


@pytest.mark.parametrize(
    ("others", "attempts", "result", "taken", "said"),
    [
        ([0.1], 3, 1, 1, ""),
        ([1.0, 0.1], 3, 2, 2, ""),
        ([1.4, 0.9, 1.3], 3, 2, 3, "Other programs took 0.9 of 2 cores"),
        ([1.4, 0.1], 1, 1, 1, "Other programs took 1.4 of 2 cores"),
    ],
)
def test_it_is_measured_again_until_it_is_quiet_or_enough_and_the_quietest_counts(
    monkeypatch, others, attempts, result, taken, said
):
    machine = Machine(monkeypatch, *others)
    found, note = noise.measure_quietly(machine.measure, attempts)
    assert (found, machine.measured) == (result, taken)
    assert note.startswith(said)
    assert bool(note) == bool(said)


def test_what_does_not_repeat_is_measured_again(monkeypatch):
    machine = Machine(monkeypatch, 0.0, 0.0)
    assert noise.measure_quietly(machine.measure, 3, lambda result: {1: 3.0, 2: 1.1}[result]) == (2, "")


def test_a_calibration_is_repeated_and_keeps_the_note_and_a_busy_one_in_a_cache_is_made_again(monkeypatch, tmp_path):
    monkeypatch.setattr(calibrate, "ATTEMPTS", 3)
    machine, shares, path = Machine(monkeypatch, 1.4, 1.3, 1.6, 1.3, 0.1), [], tmp_path / "here.json"

    def measure(config, problem, show, stop):
        show(0.0)
        show(0.875)
        return Calibration(late_s=machine.measure(), cores=calibrate._cores(config)), 1.0

    monkeypatch.setattr(calibrate, "_measure", measure)
    known = cost.calibrate(ps.Config(), progress=shares.append, cache=path)
    assert (known.late_s, known.note) == (2, TOOK)
    assert shares == sorted(shares)
    assert len(shares) == 6
    assert Calibration.load(path) == known
    again = cost.calibrate(ps.Config(), cache=path)
    assert (again.late_s, again.note) == (5, "")
    assert cost.calibrate(ps.Config(), cache=path) == again
    old = {name: value for name, value in again.to_dict().items() if name != "note"}
    assert Calibration.from_dict(old) == again


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system does not say which cores it gives")
def test_a_calibration_has_the_cores_that_this_process_may_use(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 5, 9})
    assert calibrate._cores(ps.Config()) == 3
    assert calibrate._cores(ps.Config(transport="inproc")) == 1


def test_a_prediction_a_comparison_and_a_clusters_table_say_it():
    problem = ps.LinearRegression(*ps.datasets.synthetic(rows=64, features=4))
    config = ps.Config(workers=2, steps=5)
    known = Calibration(note=TOOK, problem=cost.problem_words(problem), gradient=Line(1e-3))
    prediction = cost.predict(problem, config, known)
    assert " ".join(str(prediction).split()).endswith(TOOK)
    run = ps.train(problem, config, engine=ps.Simulated())
    assert " ".join(str(cost.compare(prediction, run)).split()).endswith(TOOK)
    assert cost.Cluster().compare(1e6, "ring", calibration=known).caption.endswith(TOOK)
    assert " ".join(str(cost.Tuning(0.9, [], TOOK)).split()).endswith(TOOK)


def test_where_the_processors_time_is_not_known_nothing_is_said(monkeypatch):
    monkeypatch.setattr(noise, "_processor_seconds", lambda: None)
    assert noise.NoiseMeter().disturbance() == Disturbance(len(noise.usable_cores()))


SPIN = "import time\nwhile time.process_time() < {}: pass"


@pytest.mark.skipif(sys.platform != "linux", reason="wants /proc")
def test_a_child_is_no_other_program():
    before = noise._processor_seconds()
    subprocess.run([sys.executable, "-c", SPIN.format(0.5)], check=True, timeout=60)
    everybodys, ours = (now - then for now, then in zip(noise._processor_seconds(), before, strict=True))
    assert everybodys > 0.4
    assert ours > 0.45


@pytest.mark.skipif(sys.platform != "linux", reason="wants /proc")
def test_a_program_of_others_that_spins_is_noticed_and_a_repetition_bounded(monkeypatch):
    core = min(os.sched_getaffinity(0))
    monkeypatch.setattr(noise, "usable_cores", lambda: {core})
    code = f"import os\nos.sched_setaffinity(0, [{core}])\nprint(flush=True)\n" + SPIN.format(0.4)
    tries = []

    def measure():  # a shell that has ended is no parent: the program is not ours
        script = 'exec "$0" -c "$1" &'
        with subprocess.Popen(["sh", "-c", script, sys.executable, code], stdout=subprocess.PIPE) as shell:
            tries.append(shell.stdout.read())  # until it has ended

    _, note = noise.measure_quietly(measure, attempts=2)
    assert tries == [b"\n", b"\n"]
    assert note.startswith("Other programs took ")
    assert " of 1 cores while this was measured" in note


def rows(notes):
    """A row of the demo for each run, with a prediction of six times as much where there is a note."""
    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=64, classes=2))
    run = ps.train(problem, ps.Config(workers=2, steps=5), engine=ps.Simulated(compute_s=0.01))
    names = ("BSP", "SSP(2)", "ASP", "exact", "topk 1 %, feedback")
    return [
        demo.Row("part", name, run, run.seconds_per_step * (6 if note else 1.05), note)
        for name, note in zip(names, notes, strict=True)
    ]


def test_the_demos_verdict_judges_the_quiet_rows_alone():
    said = demo.verdict(rows(["", "", "", TOOK, TOOK]))
    assert f"exact; topk 1 %, feedback: {TOOK}" in said
    assert said.endswith("The predictions of the other rows were off by at most 5%.")
    assert demo.verdict(rows([""] * 5)).endswith("as they are. The predictions were off by at most 5%.")
    assert demo.verdict(rows([TOOK] * 5)).endswith(TOOK)
    assert rows([TOOK] * 5)[0].to_dict()["note"] == TOOK


def test_the_demo_measures_a_busy_row_again(monkeypatch):
    machine, (row, *_) = Machine(monkeypatch, 1.4, 0.1), rows([""] * 5)
    monkeypatch.setattr(demo, "predict", lambda *_: machine.measure() and row.run)
    monkeypatch.setattr(demo.ps, "train", lambda *_, **__: machine.measured)
    _, run, note = demo._predict_and_run(None, None, Calibration(), print)
    assert (run, note) == (2, "")


def test_the_benchmark_does_not_count_a_busy_row():
    quiet_row = cost_table.Row("exact, ring", "bare", *[Spread(1.0, 1.0, 1.0)] * 2, 0.1, 9, 9)
    busy_row = replace(quiet_row, error=5.0, note=TOOK)
    assert cost_table.verdict([quiet_row, busy_row]) == [
        "on the bare loopback: median error 10.0%, worst 10.0%",
        f"not counted: exact, ring, bare. {TOOK}",
    ]
