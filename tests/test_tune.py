"""Probing rounds are a run's to the bit; a tuning ranks, tries, and says how good it was."""

import sys
from dataclasses import replace

import numpy as np
import pytest

import minips as ps
from minips import cost
from minips.cost.tune import Choice, Tuning, candidates_of, words
from minips.machines.fit import Line

PROBLEM = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=300, classes=3))
RANDOM = ps.Codec(ps.QSGD(levels=4), ps.ErrorFeedback())


@pytest.mark.parametrize(
    "changes",
    [
        {"push": ps.Codec(ps.Uniform(4), ps.ErrorFeedback())},
        {"push": RANDOM, "servers": 2, "pull": ps.Codec(ps.Float16()), "accumulate": 2},
        {"push": ps.Codec(ps.TopK(0.2), ps.ErrorFeedback()), "aggregator": ps.Median(), "optimizer": ps.Adam()},
        {"push": RANDOM, "exchange": ps.RingAllReduce()},
        {"push": RANDOM, "exchange": ps.TwoShot()},
        {"exchange": ps.TreeAllReduce(), "optimizer": ps.SGD(momentum=0.9)},
    ],
    ids=repr,
)
def test_rounds_are_those_of_a_run(changes):
    config = replace(ps.Config(workers=3, steps=5, transport="inproc"), **changes)
    *_, last = cost.rounds(PROBLEM, replace(config, delays=ps.Delays(60.0)))  # nobody waits in a probe
    run = ps.train(PROBLEM, config, engine="threads")
    for name, p in run.params.items():
        np.testing.assert_array_equal(p, last[name])


def test_steps_are_counted_to_the_first_look_that_finds_the_accuracy():
    config = ps.Config(workers=2, steps=40, transport="inproc")
    steps = cost.steps_to(PROBLEM, config, 0.85)
    assert steps % 5 == 0
    run = ps.train(PROBLEM, replace(config, steps=steps), engine="threads")
    assert run.accuracy >= 0.85
    assert cost.steps_to(PROBLEM, config, 1.01) is None
    regression = ps.LinearRegression(*ps.datasets.synthetic(rows=100))
    with pytest.raises(ValueError, match="LinearRegression has no accuracy"):
        cost.steps_to(regression, config, 0.5)


def test_epochs_are_counted_as_steps_of_the_problem():
    config = ps.Config(workers=2, epochs=3, batch_size=50, transport="inproc")
    steps = config.for_rows(PROBLEM.rows).steps
    assert sum(1 for _ in cost.rounds(PROBLEM, config)) == steps < config.steps
    assert cost.steps_to(PROBLEM, config, 1.01) is None
    assert cost.tune(PROBLEM, None, 0.0, candidates=[config], tried=0).choices[0].steps == 5


def test_there_are_30_candidates_and_all_are_sound_and_told_apart():
    candidates = list(candidates_of(ps.Config(steps=30, consistency="asp", workers=2)))
    assert len(candidates) == len({words(config) for config in candidates}) == 30
    assert all(config.consistency == ps.BSP() and config.steps == 30 for config in candidates)


@pytest.mark.soak
def test_the_first_choices_are_tried_for_real_and_what_cannot_get_there_comes_last():
    start = ps.Config(workers=2, steps=40, transport="inproc")
    dead = replace(start, push=ps.Codec(ps.Threshold(1e9)))  # nothing is ever sent
    candidates = [dead, replace(start, push=ps.Codec(ps.Float16())), start, replace(start, servers=2)]
    told = []
    tuning = cost.tune(
        PROBLEM,
        ps.Link(1e6, 1e-3),
        0.8,
        candidates=candidates,
        tried=2,
        engine="threads",
        watch=lambda *what: told.append(what),
    )
    assert [choice.predicted_s is None for choice in tuning.choices] == [False, False, False, True]
    predicted = [choice.predicted_s for choice in tuning.choices[:3]]
    assert predicted == sorted(predicted)
    assert [choice.measured_s is None for choice in tuning.choices] == [False, False, True, True]
    assert all(choice.accuracy >= 0.8 for choice in tuning.tried)
    assert tuning.best in [choice.config for choice in tuning.tried]
    assert all(choice.config.link == ps.Link(1e6, 1e-3) for choice in tuning.choices)
    assert [share for _, share in told] == sorted(share for _, share in told)
    assert "tried; " in str(tuning)


@pytest.mark.soak
def test_the_progress_of_a_search_is_told_once(capfd):
    start, told, watched = ps.Config(workers=1, steps=10, transport="inproc"), [], []
    for given in ({"progress": lambda *news: told.append(news)}, {"watch": lambda *news: watched.append(news)}):
        cost.tune(PROBLEM, None, 0.0, candidates=[start], tried=1, engine="threads", **given)
    assert told == watched
    assert [text.split()[0] for text, _ in told] == ["probing", "trying"]
    cost.tune(PROBLEM, None, 0.0, candidates=[start], tried=1, engine="threads", progress=True)
    assert capfd.readouterr().out == ""  # which is no terminal


def test_the_share_that_is_done_comes_to_its_end_where_more_are_to_be_tried_than_there_are():
    told = []
    start = ps.Config(workers=1, steps=10, transport="inproc")
    cost.tune(
        PROBLEM, None, 0.0, candidates=[start], tried=300, engine="threads", watch=lambda *what: told.append(what)
    )
    assert [share for _, share in told] == [0.0, 0.5]


def test_a_tuning_says_how_good_its_ranking_was():
    def choice(predicted, measured):
        return Choice(ps.Config(), 10, predicted, measured, None if measured is None else 0.9)

    tuning = Tuning(0.9, [choice(1.0, 2.2), choice(1.1, 2.0), choice(1.2, 3.0), choice(1.3, None)])
    assert tuning.regret == pytest.approx(0.1)
    assert tuning.agreement == pytest.approx(2 / 3)
    assert "10% longer than the best of the 3" in str(tuning)
    nothing = Tuning(0.9, [Choice(ps.Config(), None, None)])
    assert (nothing.regret, nothing.agreement) == (0.0, 1.0)
    with pytest.raises(ValueError, match="No candidate reached"):
        _ = nothing.best


START = ps.Config(workers=2, steps=20, transport="inproc")
OFFICE = cost.Cluster(machines=3, bandwidth_bps=1e6, latency_s=1e-3, compute_s=0.01)


@pytest.fixture
def calibrated(monkeypatch):
    """A calibration that is not measured, of a gradient of a millisecond."""
    known = cost.Calibration(gradient=Line(1e-3), problem=cost.problem_words(PROBLEM))
    monkeypatch.setattr(sys.modules["minips.cost.tune"], "calibrate", lambda *given: known)


@pytest.mark.parametrize(
    "where", [{"cluster": OFFICE}, {"engine": ps.Simulated(cluster=OFFICE)}, {"cluster": OFFICE, "engine": "simulated"}]
)
def test_a_cluster_is_tuned_and_its_best_are_simulated_on_it(calibrated, where):
    candidates = [replace(START, push=ps.Codec(push)) for push in (ps.Exact(), ps.Uniform(bits=4))]
    tuning = cost.tune(PROBLEM, target_accuracy=0.5, candidates=candidates, **where)
    assert len(tuning.tried) == 2
    for choice in tuning.choices:
        assert choice.config.link is None
        assert choice.predicted_s > 0.01 * choice.steps  # the cluster's compute_s
        assert 0.7 < choice.predicted_s / choice.measured_s < 1.4  # both in virtual time, calibrated alike
    assert tuning.best.push.quantizer == ps.Uniform(bits=4)  # an exact push takes 3 ms of that link
    assert "The tried runs are simulated" in str(tuning)


def test_hosts_are_tuned_on_their_network_whose_latency_is_found_once(calibrated, monkeypatch):
    found, tried = [], []
    star = ps.Star(1e6, 0.0)
    monkeypatch.setattr(ps.Hosts, "measured_topology", lambda self: found.append(self) or star)
    monkeypatch.setattr(ps.Hosts, "run", lambda self, job: tried.append(self) or ps.Threads().run(job))
    hosts, candidates = ps.Hosts(star), [replace(START, transport="tcp", servers=servers) for servers in (1, 2)]
    tuning = cost.tune(PROBLEM, target_accuracy=0.5, candidates=candidates, tried=1, engine=hosts)
    assert (found, tried) == ([hosts], [hosts])
    first = tuning.choices[0]
    alike = tuning.choices[0].config.with_({"link": ps.Link(1e6, 0.0)})
    known = cost.Calibration(gradient=Line(1e-3), problem=cost.problem_words(PROBLEM))
    bare, behind = (cost.predict(PROBLEM, config, known).seconds for config in (first.config, alike))
    assert bare < 0.5 * behind < first.predicted_s < 2 * behind


@pytest.mark.parametrize(
    ("where", "error", "words"),
    [
        ({}, ValueError, r"tune needs a target_accuracy, such as 0\.9, .*; got None"),
        ({"link": ps.Link(), "cluster": OFFICE}, ValueError, r"The cluster has its own network.*Use link=None"),
        ({"link": ps.Link(), "engine": ps.Hosts(), "candidates": [ps.Config()]}, ValueError, "would be two links"),
        ({"cluster": OFFICE, "engine": ps.Hosts()}, ValueError, r"and Cluster.* each have a network"),
        ({"cluster": OFFICE, "engine": "threads"}, ValueError, r"runs on this machine, not on Cluster.*ps\.Ray"),
        (
            {"cluster": OFFICE, "engine": ps.Simulated(cluster=replace(OFFICE, machines=2))},
            ValueError,
            "Got two clusters",
        ),
        ({"engine": ps.Simulated("tworacks")}, ValueError, "A prediction cannot use the network of .*Give a link"),
        ({"link": 20e6}, TypeError, r"tune takes a ps\.Link, or None; got 20000000\.0"),
        ({"cluster": 8}, TypeError, r"tune takes a cluster, such as ps\.cost\.Cluster\(machines=8\); got 8"),
        ({"target_accuracy": 90}, ValueError, "from 0 to 1; got 90"),
        ({"target_accuracy": float("nan")}, ValueError, "from 0 to 1; got nan"),
        ({"candidates": START}, TypeError, "tune takes several configs as its candidates, or None"),
        ({"candidates": {"a": START}}, TypeError, "tune takes a Config for each candidate; got 'a'"),
        ({"tried": -1}, ValueError, "tried is the number of best candidates to run, at least 0; got -1"),
        ({"candidates": [ps.Config(transport="inproc")]}, ValueError, r"Processes\(\) cannot use InProc\(\)"),
        ({"engine": "hosts"}, ValueError, "Only a network joins Hosts"),  # the candidates' transport is not over one
    ],
)
def test_a_tuning_that_has_two_networks_or_none_is_refused_before_anything_runs(monkeypatch, where, error, words):
    monkeypatch.setattr(sys.modules["minips.cost.tune"], "steps_to", lambda *given: pytest.fail("it was probed"))
    given = {"target_accuracy": 0.5} if where else {}
    with pytest.raises(error, match=words):
        cost.tune(PROBLEM, **{"candidates": [START], **given, **where})


def test_a_prediction_takes_hosts_alone_as_its_engine():
    with pytest.raises(TypeError, match=r"predict takes ps\.Hosts\(…\) as its engine.*; got Threads"):
        cost.predict(PROBLEM, START, cost.Calibration(), engine=ps.Threads())
