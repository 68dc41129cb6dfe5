"""The benchmarks measure what they say; their figures are for people, not for tests."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest

import minips as ps
from benchmarks import base, codecs, pushpull, train, transports, ways
from benchmarks.__main__ import main
from minips.cost import noise
from minips.engines.supervisor import Supervisor
from minips.lab.measure import pairs, turns
from minips.lab.measure.turns import Spread
from minips.stage import missing, stage_class

ROOT = Path(__file__).parents[1]
BENCHMARKS = [sys.executable, "-m", "benchmarks"]
EVERYWHERE = ["memcpy", "echo", "pickle"]
ROUNDS = 2


def wanted(module):
    absent = importlib.util.find_spec(module) is None
    return pytest.param(module, marks=pytest.mark.skipif(absent, reason=f"{module} is a comparison that is not needed"))


def skip_where_ray_gave_up(words):
    """Ray gives itself 30 seconds to start, however busy the machine is."""
    if "timed out during startup" in words:
        pytest.skip(words)


# Turns and figures


def test_those_who_come_less_often_are_spread_over_the_rounds():
    plan = list(turns.rota({"fast": 10, "slow": 3}, 10))
    assert [number for number, name in plan if name == "fast"] == list(range(10))
    assert [number for number, name in plan if name == "slow"] == [0, 3, 6]
    assert plan == list(turns.rota({"fast": 10, "slow": 3}, 10))
    firsts = [name for _, name in turns.rota({"one": 20, "two": 20}, 20)][::2]
    assert set(firsts) == {"one", "two"}  # the order is drawn anew


def test_who_is_slow_gets_fewer_turns_and_never_none():
    takes = {"fast": 0.001, "slow": turns.BUDGET_S / 4.5, "slowest": 10 * turns.BUDGET_S}
    made, seen = [], []
    calls = {name: lambda name=name: made.append(name) or takes[name] for name in takes}
    first_s = {**takes, "fast": 0.9}  # a first call may take long
    seconds = turns.take_turns(calls, first_s, 20, lambda text, share: seen.append(share))
    assert {name: len(each) for name, each in seconds.items()} == {"fast": 20, "slow": 4, "slowest": 3}
    assert {name: made.count(name) for name in takes} == {"fast": 21, "slow": 4, "slowest": 3}
    assert set(seconds["slow"].values()) == {takes["slow"]}
    assert seen == sorted(seen)
    assert seen[-1] < 1


def test_a_ratio_is_taken_round_by_round_where_both_took_part():
    seconds = {"a": {0: 2.0, 1: 30.0, 2: 400.0}, "b": {0: 1.0, 2: 100.0}}
    assert turns.over(seconds, "a", "b") == (3.0, 2.5, 3.5)
    assert turns.over(seconds, "a", "c") is None
    assert Spread.of([5.0]) == (5.0, 5.0, 5.0)
    assert Spread.of([4.0, 1.0, 2.0, 3.0, 5.0]) == Spread(median=3.0, low=2.0, high=4.0)


def test_a_row_is_plain_enough_for_json():
    row = pushpull.Row(10, "tcp", Spread(2.0, 1.0, 3.0), {"echo": Spread(1.5, 1.0, 2.0)})
    assert json.loads(json.dumps(base.to_plain(row))) == {
        "values": 10,
        "contender": "tcp",
        "seconds": 2.0,
        "seconds_quartiles": [1.0, 3.0],
        "over": {"echo": 1.5},
        "over_quartiles": {"echo": [1.0, 2.0]},
        "skipped": "",
    }


@pytest.mark.parametrize(
    ("seconds", "shown"), [(2e-6, "2.00 µs [1.00, 4.00]"), (0.02, "20.0 ms [10.0, 40.0]"), (150, "150 s [75.0, 300]")]
)
def test_a_duration_has_one_unit(seconds, shown):
    assert base.duration(Spread(seconds, seconds / 2, seconds * 2)) == shown


# Processes


def test_what_a_process_raises_and_its_end_reach_the_conductor():
    with Supervisor(ps.Processes().start) as supervisor:
        (raises,) = supervisor.start("the one that raises")
        raises.assign(pairs.attend, {"serve": ways.minips_server, "parts": {"transport": ps.Tcp(), "values": -1}})
        with pytest.raises(RuntimeError, match=r"the one that raises failed: ValueError: "):
            supervisor.receive(raises, "ready", 30)
    with Supervisor(ps.Processes().start) as supervisor:
        (dies,) = supervisor.start("the one that dies")
        dies._process.kill()
        with pytest.raises(RuntimeError, match=r"the one that dies left before its work was done: .*SIGKILL"):
            supervisor.receive(dies, "ready", 30)
    with Supervisor(ps.Processes().start) as supervisor:
        (idle,) = supervisor.start("the one that says nothing")
        with pytest.raises(RuntimeError, match=r"says nothing sent nothing for 0\.1 seconds"):
            supervisor.receive(idle, "ready", 0.1)


def test_a_wrong_answer_is_not_timed():
    wrong = pairs.Contender("wrong", ways.memcpy, applies=True)  # which brings back the gradient instead
    right = pairs.Contender("right", ways.memcpy, applies=False)
    seconds, skipped = pairs.race([wrong, right], 10, 3, lambda text, share: None)
    assert list(seconds) == ["right"]
    words = "skipped: wrong's caller failed: RuntimeError: the first answer is not the right one"
    assert skipped["wrong"].startswith(words)


def test_a_run_that_fails_is_skipped_and_says_why(monkeypatch):
    def fail(problem, config, features):
        raise RuntimeError("the server left before its work was done")

    monkeypatch.setitem(train.RUN, "pickle", fail)
    floor, pickle = train.measure([10], contenders=["floor", "pickle"], steps=1, rounds=1)
    assert floor.skipped == ""
    assert pickle.skipped == "skipped: the server left before its work was done"
    assert pickle.loop_s is None


# pushpull


@pytest.mark.soak
def test_a_push_and_pull_over_every_transport_beside_what_needs_no_extra():
    rows = list(pushpull.measure([100], references=EVERYWHERE, rounds=ROUNDS))
    between_processes = [name for name in ps.names("transport") if name != "inproc"]
    assert [row.contender for row in rows] == [*EVERYWHERE, *between_processes]
    for row in rows:
        name = row.contender
        assert bool(row.skipped) == bool(name not in EVERYWHERE and missing(stage_class("transport", name)))
        if not row.skipped:
            assert 0 < row.seconds.low <= row.seconds.median <= row.seconds.high
            assert list(row.over) == list(pushpull.BASES)
            assert name not in row.over or row.over[name] == (1, 1, 1)
    assert pushpull.table(rows).row_count == len(rows) + 1
    chart = pushpull.chart(rows)
    assert list(chart.series) == ["100 values"]
    assert list(chart.series["100 values"]) == [row.contender for row in rows if not row.skipped]


@pytest.mark.parametrize(("module", "name"), [("grpc", "bare-grpc"), ("aiohttp", "aiohttp-json")])
def test_a_push_and_pull_over_what_an_extra_brings(module, name):
    pytest.importorskip(module, reason=f'{module} comes with pip install "minips[lab]"')
    (row,) = pushpull.measure([100], transports=[], references=[name], rounds=ROUNDS)
    assert not row.skipped
    assert row.seconds.median > 0


@pytest.mark.parametrize("name", [wanted("torch"), wanted("ray")])
def test_a_push_and_pull_over_what_is_only_compared(name):
    (row,) = pushpull.measure([100], transports=[], references=[name], rounds=ROUNDS)
    skip_where_ray_gave_up(row.skipped)
    assert row.skipped == ""
    assert row.seconds.median > 0


def test_what_is_not_installed_is_a_row_that_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: None)
    (row,) = pushpull.measure([100], transports=[], references=["torch"])
    assert (row.seconds, row.over) == (None, {})
    assert row.skipped == 'skipped: install torch with pip install "minips[compare]"'
    shown = pushpull.table([row])
    assert shown.caption.startswith("torch: skipped: install torch")
    assert pushpull.chart([row]).series == {}
    (row,) = transports.measure(transports=["zmq"], references=[])
    assert row.skipped == 'skipped: install zmq with pip install "minips[transports]"'
    assert transports.table([row]).row_count == 1
    (row,) = train.measure([10], contenders=["ray"])
    assert row.skipped == 'skipped: install ray with pip install "minips[compare]"'
    assert train.table([row]).row_count == 2


@pytest.mark.parametrize(
    ("measure", "given", "words"),
    [
        (pushpull.measure, {"transports": ["tpc"]}, "Did you mean tcp?"),
        (pushpull.measure, {"transports": ["inproc"]}, "no transport 'inproc' that joins two processes"),
        (pushpull.measure, {"references": ["ecco"]}, "Did you mean echo?"),
        (train.measure, {"contenders": ["flour"]}, "Did you mean floor?"),
        (train.measure, {"transport": "tpc"}, "Did you mean tcp?"),
    ],
)
def test_an_unknown_contender_is_one_sentence(measure, given, words):
    with pytest.raises(ValueError, match=words.replace("?", r"\?")):
        list(measure(**given))


# train


@pytest.fixture(scope="module")
def job():
    config = ps.Config(workers=2, steps=4, batch_size=64, optimizer=ps.SGD(lr=16.0), transport="pipe")
    problem = train.problem(20)
    return problem, config, ps.train(problem, config, engine="threads").params


def same(params, others):
    return params.keys() == others.keys() and all(np.array_equal(params[name], others[name]) for name in params)


def test_a_job_ends_at_the_same_parameters_on_pipes_and_on_minips(job):
    problem, config, params = job
    for name in ("minips", "pickle"):
        run = train.run(name, problem, config, 20)
        assert same(run.params, params)
        assert 0 < run.loop_s < run.total_s
        assert (run.cpu_s > 0) == (sys.platform != "win32")
    floor = train.RUN["floor"](problem, config, 20)
    assert floor.params is None
    assert 0 < floor.loop_s < floor.total_s


@pytest.mark.parametrize("name", [wanted("torch"), wanted("ray")])
def test_a_job_ends_at_the_same_parameters_on_what_is_only_compared(job, name):
    problem, config, params = job
    try:
        run = train.RUN[name](problem, config, 20)
    except RuntimeError as error:
        skip_where_ray_gave_up(str(error))
        raise
    assert same(run.params, params)
    assert 0 < run.loop_s < run.total_s


def test_runs_that_end_elsewhere_are_not_compared():
    def at(value):
        return {0: train.Job(1.0, 2.0, {"w": np.array([value, -1.0])})}

    train.check({"minips": at(10.0), "pickle": at(10.0 + 1e-6), "floor": {0: train.Job(1.0, 2.0, None)}})
    for off in (10.1, np.nan):
        with pytest.raises(RuntimeError, match="pickle and minips ended at different parameters"):
            train.check({"minips": at(10.0), "pickle": at(off)})


@pytest.mark.soak
def test_the_table_of_training_runs():
    rows = list(train.measure([10], "pipe", ["floor", "minips"], steps=2, rounds=ROUNDS))
    floor, minips = rows
    assert (floor.contender, minips.contender) == ("floor", "minips")
    assert floor.parameters == 110
    assert floor.loop_over_floor == minips.loop_over_minips == (1, 1, 1)
    assert minips.loop_over_floor.median > 0
    assert floor.share.median > 0
    assert minips.share is None
    assert minips.startup_s.median < minips.total_s.median
    assert (minips.cpu_s.median > 0) == (sys.platform != "win32")
    assert train.table(rows).row_count == 3
    assert train.chart(rows).series == {"D = 10": {"floor": floor.loop_s, "minips": minips.loop_s}}


def test_a_floor_that_had_to_share_its_cores_is_not_called_a_floor():
    def table(share):
        return train.table([train.Row(10, 110, "floor", *[Spread(1.0, 1.0, 1.0)] * 5, Spread(share, share, share))])

    assert table(0.97).caption is None
    assert table(0.15).caption.startswith("The floor had 15% of its cores")


@pytest.mark.parametrize(
    ("load", "words"), [(0.5, ""), (25.0, "This machine is busy: 25.0 processes compete for its 2 cores.")]
)
def test_a_busy_machine_is_named_before_it_is_measured(monkeypatch, load, words):
    monkeypatch.setattr(base.os, "getloadavg", lambda: (load, load, load), raising=False)
    monkeypatch.setattr(base.os, "cpu_count", lambda: 2)
    said = base.busy()
    assert said.startswith(words)
    assert bool(said) == bool(words)


# transports


@pytest.mark.soak
def test_a_frame_over_transports_alone():
    rows = list(transports.measure(["pipe", "tcp"], ["echo"], small=40, large=400, rounds=3))
    assert [row.contender for row in rows] == ["echo", "pipe", "tcp"]
    assert rows[0].large_over_echo == (1, 1, 1)
    for row in rows:
        assert row.bytes_per_s.median == pytest.approx(2 * 400 / row.large_s.median)
    assert transports.table(rows).row_count == 3
    assert list(transports.chart(rows).series["large frame"]) == ["echo", "pipe", "tcp"]


# codecs


@pytest.mark.soak
def test_every_quantizer_has_a_row():
    rows = {row.quantizer: row for row in codecs.measure(values=10_000)}
    assert list(rows) == ps.names("quantizer")
    assert {name for name, row in rows.items() if row.skipped} == {
        name for name in rows if missing(stage_class("quantizer", name))
    }
    bits = {name: row.bits_per_value for name, row in rows.items()}
    assert (bits["exact"], bits["float16"]) == (32, 16)
    assert bits["bfloat16"] == (None if rows["bfloat16"].skipped else 16)
    assert 8 < bits["uniform"] < 8.1
    assert 1 < bits["sign"] < 1.1
    assert 1.6 < bits["ternary"] < 1.7
    assert all(row.encode.low > 0 and row.decode.low > 0 for row in rows.values() if not row.skipped)
    steps = {name: row.steps for name, row in rows.items()}
    assert steps["exact"] is not None
    assert steps["exact"] <= steps["topk"] <= codecs.STEPS
    assert rows["topk"].steps_with_feedback < steps["topk"]
    assert steps["twobit"] is None  # nothing of these gradients reaches the threshold
    assert codecs.table(list(rows.values())).row_count == len(rows)
    assert codecs.chart(list(rows.values())).series["encode"]["topk"] == rows["topk"].encode


# The command


@pytest.mark.soak
def test_the_command_shows_writes_and_draws(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(noise.NoiseMeter, "disturbance", lambda self: noise.Disturbance(2, 1.3))
    file, picture = tmp_path / "rows.json", tmp_path / "rows.png"
    arguments = "pushpull --values 10 20 --transports tcp --references memcpy --rounds 2"
    assert main([*arguments.split(), "--json", str(file), "--plot", str(picture)]) == 0
    rows = json.loads(file.read_text())
    assert [(row["values"], row["contender"]) for row in rows] == [(n, c) for n in (10, 20) for c in ("memcpy", "tcp")]
    assert all(row["seconds"] > 0 and len(row["seconds_quartiles"]) == 2 for row in rows)
    assert picture.read_bytes().startswith(b"\x89PNG")
    shown, said = capsys.readouterr()
    assert "20 values" in shown
    assert "tcp" in shown
    assert "Other programs took 1.3 of 2 cores while this was measured" in said


@pytest.mark.parametrize(
    "arguments",
    [
        "codecs --rounds 0",
        "pushpull --values 10 0",
        "codecs --values=-5",
        "tune --features 0",
        "transports --small 1.5",
    ],
)
def test_a_count_is_a_whole_number_from_one_on(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments.split())
    assert "expected a whole number, from 1 on; got '" in capsys.readouterr().err


def test_an_unknown_option_is_2_and_names_the_nearest(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["codecs", "--vallues=3"])
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == "python -m benchmarks codecs: error: unknown: --vallues=3. Did you mean --values?"


def test_a_picture_wants_the_lab_and_says_so_before_it_measures():
    script = "import sys; sys.modules['matplotlib'] = None; from benchmarks.__main__ import main; sys.exit(main())"
    command = [sys.executable, "-c", script, "pushpull", "--plot", "rows.png"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert 'pip install "minips[lab]"' in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("file", "words"), [("none/rows.png", "There is no folder"), ("rows.xyz", "cannot be written as 'xyz'")]
)
def test_a_picture_that_cannot_be_written_is_one_sentence_before_it_measures(file, words, capsys, tmp_path):
    assert main(["codecs", "--plot", str(tmp_path / file)]) == 2
    shown, said = capsys.readouterr()
    assert (shown, words in said) == ("", True)


@pytest.mark.parametrize(
    "table",
    [
        pytest.param("pushpull --transports tcp pipe --references pickle", marks=pytest.mark.soak),
        pytest.param("train --contenders pickle", marks=pytest.mark.soak),
    ],
)
def test_ctrl_c_ends_a_bench_and_everything_that_it_started(table):
    command, pipe = [*BENCHMARKS, *table.split(), "--rounds", "100000"], subprocess.PIPE
    bench = subprocess.Popen(command, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, start_new_session=True)
    try:
        children = wait_for_children(bench, 3)
        os.killpg(bench.pid, signal.SIGINT)  # as a terminal does: to the children too
        out, error = bench.communicate(timeout=60)
    finally:
        bench.kill()
    assert bench.returncode == 130
    assert error.strip().splitlines()[-1].startswith("Stopped by Ctrl-C")
    assert "Traceback" not in out + error
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not alive


def wait_for_children(bench, count):
    while bench.poll() is None:
        children = psutil.Process(bench.pid).children(recursive=True)
        if len(children) >= count:
            return children
    raise AssertionError(f"the bench ended without {count} processes: {bench.communicate()[1]}")
