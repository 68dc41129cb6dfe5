"""Faults that are made on purpose: in virtual time all of them, in real processes the deaths."""

import re
from dataclasses import replace

import numpy as np
import pytest

import minips as ps
from minips import lab

PROBLEM = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=64, classes=3)[:2])
CONFIG = ps.Config(workers=2, steps=20, batch_size=8, optimizer=ps.Adam())
CODECS = {
    "exact": ps.Codec(),
    "error feedback": ps.Codec(ps.TopK(fraction=0.2), ps.ErrorFeedback()),
    "delta": ps.Codec(ps.TopK(fraction=0.2), ps.Delta()),
    "qsgd": ps.Codec(ps.QSGD()),
}
EVERYTHING = ps.Faults(
    kill={"worker 0": 7, "server 1": 9},
    cut=0.05,
    delay_s=0.01,
    pause={"worker 1": (3, 0.2), "server 0": (4, 0.1)},
    seed=3,
)


def train(config=CONFIG, faults=None, **others):
    engine = ps.Simulated(compute_s=0.1, **{"restart": 1, **others.pop("engine", {})})
    return ps.train(PROBLEM, config, engine=engine, faults=faults, **others)


def assert_same(run, undisturbed):
    assert run.updates == undisturbed.updates
    for name, x in undisturbed.params.items():
        np.testing.assert_array_equal(run.params[name], x)


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("codec", CODECS)
def test_deaths_leave_no_trace_in_the_parameters(codec, servers):
    config = replace(CONFIG, push=CODECS[codec], servers=servers)
    undisturbed = train(config)
    deaths = [{"server 0": 7}, {"worker 1": 7}, {"worker 0": 0}, {"server 0": 20}, {"worker 0": 3, "server 0": 7}]
    for kill in [*deaths, {"worker 0": 9, "worker 1": 9, f"server {servers - 1}": 9}]:
        run = train(config, ps.Faults(kill=kill))
        assert_same(run, undisturbed)
        assert [loss for *_, loss in run.losses] == [loss for *_, loss in undisturbed.losses]
        texts = [text for _, text in run.events]
        for who, clock in kill.items():
            assert f"{who} was killed at clock {clock}" in texts
            assert any(text.startswith(f"{who} was started again after 0.5 s") for text in texts)


def test_a_restarted_server_says_what_its_journal_had():
    run = train(faults=ps.Faults(kill={"server 0": 7}))
    assert [text for _, text in run.events] == [
        "server 0 was killed at clock 7",
        "server 0 was started again after 0.5 s, with 14 pushes from its journal",
    ]
    assert [at for at, _ in run.events] == pytest.approx([0.7, 1.2])


def test_local_steps_evaluations_and_a_resumed_run_survive_deaths():
    local = replace(CONFIG, local=ps.LocalSteps(4, optimizer=ps.Adam()))
    assert_same(train(local, ps.Faults(kill={"worker 0": 2, "server 0": 3})), train(local))
    kill = ps.Faults(kill={"worker 0": 7, "server 1": 8})  # server 1 dies at the clock of an evaluation
    two = replace(CONFIG, servers=2)
    run, undisturbed = train(two, kill, every=4), train(two, every=4)
    assert_same(run, undisturbed)
    assert [row[1:] for row in run.evaluations] == [row[1:] for row in undisturbed.evaluations]
    lossy = replace(CONFIG, push=CODECS["error feedback"])
    half = train(replace(lossy, steps=10))
    for who in ("worker 0", "server 0"):
        for clock in (10, 12):
            assert_same(train(lossy, ps.Faults(kill={who: clock}), resume=half), train(lossy, resume=half))


def test_a_worker_that_does_not_come_back_leaves():
    run = train(faults=ps.Faults(kill={"worker 1": 7}), engine={"restart": 0, "rejoin_s": 0.4})
    killed, gone = run.events
    assert killed[1] == "worker 1 was killed at clock 7"
    assert gone[1] == "server 0: worker 1 is gone: its connection closed without a goodbye"
    assert gone[0] - killed[0] == pytest.approx(0.4)
    assert (run.updates, run.missing) == (27, 13)


@pytest.mark.parametrize(("exchange", "who"), [("ps", "server 0"), ("ring", "worker 1"), ("ps", "worker 1")])
def test_a_death_that_ends_the_run(exchange, who):
    kill = {"worker 0": 3, who: 7} if (exchange, who) == ("ps", "worker 1") else {who: 7}
    with pytest.raises(RuntimeError, match=f"{who} ended before its work was done: its process was killed by SIGKILL"):
        train(replace(CONFIG, exchange=exchange), ps.Faults(kill=kill), engine={"restart": 0})


@pytest.mark.parametrize("servers", [1, 2])
def test_cut_connections_change_no_bit(servers):
    config = replace(CONFIG, servers=servers, push=CODECS["delta"])
    for seed in range(5):
        run = train(config, ps.Faults(cut=0.1, seed=seed))
        assert_same(run, train(config))
        assert any("broke behind the request" in text for _, text in run.events)
        assert any("broke behind the answer" in text for _, text in run.events)


def test_everything_at_once_and_twice_the_same():
    config = replace(CONFIG, servers=2, push=CODECS["error feedback"])
    run = train(config, EVERYTHING)
    assert_same(run, train(config))
    again = train(config, EVERYTHING)
    assert (run.events, run.losses, run.messages) == (again.events, again.losses, again.messages)
    assert run.events != train(config, replace(EVERYTHING, seed=4)).events


def test_pauses_take_time_and_delays_too():
    for exchange in ("ps", "ring"):
        config = replace(CONFIG, exchange=exchange)
        undisturbed = train(config)
        paused = train(config, ps.Faults(pause={"worker 1": (7, 0.5)}))
        assert_same(paused, undisturbed)
        assert paused.seconds == pytest.approx(undisturbed.seconds + 0.5)
        assert paused.events == [(pytest.approx(0.7), "worker 1 pauses for 0.5 s at clock 7")]
        late = train(config, ps.Faults(delay_s=0.01))
        assert_same(late, undisturbed)
        assert late.seconds > undisturbed.seconds
    server = train(faults=ps.Faults(pause={"server 0": (7, 0.5)}))
    assert server.seconds == pytest.approx(2.5)


@pytest.mark.parametrize("rule", ["ssp", "asp"])
def test_without_rounds_a_run_with_deaths_ends(rule):
    config = replace(CONFIG, consistency=rule, servers=2)
    run = train(config, EVERYTHING)
    assert (run.updates, run.missing) == (40, 0)


def test_a_lost_answer_has_no_end_and_the_replay_says_why():
    run = train(faults=ps.Faults(kill={"server 0": 7}))
    (lost,) = [message for message in run.messages if message.end is None]
    assert (lost.kind, lost.sender, lost.start) == ("reply", "server 0", pytest.approx(0.7))
    (late,) = [message for message in run.messages if message.end and message.end > message.start]
    assert (late.kind, late.receiver, late.start) == ("push_pull", "server 0", pytest.approx(0.7))
    words = lab.replay(run).sentence
    assert "Of one message only one end is known: its line breaks off." in words
    assert "server 0 was killed at clock 7" in words


def test_empty_faults_change_nothing():
    for exchange in ("ps", "ring"):
        config = replace(CONFIG, exchange=exchange, link=ps.Link(1e6, 1e-3))
        run, undisturbed = train(config, ps.Faults()), train(config)
        assert_same(run, undisturbed)
        assert (run.seconds, run.bytes_sent, run.bytes_received) == (
            undisturbed.seconds,
            undisturbed.bytes_sent,
            undisturbed.bytes_received,
        )
        assert run.messages == undisturbed.messages


@pytest.mark.parametrize(
    ("engine", "faults", "words"),
    [
        ("processes", ps.Faults(cut=0.1), "Processes() cannot make the faults cut. Use engine=Simulated."),
        ("threads", ps.Faults(kill={"worker 0": 1}), "a thread cannot be killed. Use engine="),
        ("simulated", ps.Faults(kill={"server 1": 1}), "Known: worker 0, worker 1, server 0"),
        ("simulated", ps.Faults(pause={"worker 2": (1, 1.0)}), "Faults.pause names 'worker 2'"),
    ],
)
def test_faults_that_cannot_be_made_are_refused(engine, faults, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        ps.train(PROBLEM, CONFIG, engine=engine, faults=faults)


def test_an_all_reduce_has_no_server_and_does_not_reconnect():
    ring = replace(CONFIG, exchange="ring")
    with pytest.raises(ValueError, match=r"Faults\.cut needs servers"):
        train(ring, ps.Faults(cut=0.1))
    with pytest.raises(ValueError, match="Known: worker 0, worker 1"):
        train(ring, ps.Faults(kill={"server 0": 1}))


def test_a_gradient_that_was_given_up_is_in_no_journal():
    backup = replace(CONFIG, workers=4, consistency=ps.BSP(backup=1))
    kill = ps.Faults(kill={"server 0": 7})
    with pytest.raises(ValueError, match="abandon=False"):
        train(backup, kill)
    run, undisturbed = train(backup, kill, engine={"abandon": False}), train(backup, engine={"abandon": False})
    assert run.updates == undisturbed.updates


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"kill": {"worker 0": -1}}, "at least 0; got 'worker 0': -1"),
        ({"pause": {"worker 0": (1, 0.0)}}, "above 0; got 'worker 0': (1, 0.0)"),
        ({"pause": {"worker 0": (1,)}}, "Faults.pause takes 2 values, got (1,)"),
        ({"cut": 1.0}, "at least 0 and below 1"),
    ],
)
def test_wrong_fields_are_sentences(fields, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        ps.Faults(**fields)


@pytest.mark.soak
def test_processes_die_where_the_faults_say():
    config = replace(CONFIG, delays=ps.Delays(0.005))
    for kill in ({"server 0": 9}, {"worker 1": 7}):
        run = ps.train(PROBLEM, config, engine=ps.Processes(restart=1), faults=ps.Faults(kill=kill))
        assert_same(run, train())
        assert any("was started again" in text for _, text in run.events)
    run = ps.train(PROBLEM, config, engine="processes", faults=ps.Faults(kill={"worker 1": 7}))
    assert (run.updates, run.missing) == (27, 13)
    for exchange, who in (("ps", "server 0"), ("ring", "worker 1")):
        with pytest.raises(RuntimeError, match=f"{who} ended before its work was done: its process was killed by SIG"):
            ps.train(PROBLEM, replace(config, exchange=exchange), faults=ps.Faults(kill={who: 7}))
