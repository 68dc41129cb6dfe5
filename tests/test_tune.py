"""Probing rounds are a run's to the bit; a tuning ranks, tries, and says how good it was."""

from dataclasses import replace

import numpy as np
import pytest

import minips as ps
from minips import cost
from minips.cost.tune import Choice, Tuning, candidates_of, words

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
    assert "were tried" in str(tuning)


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
