"""`lab.best_of`: each scheme at its own best rate, in pairs, kept by all that its runs depend on."""

import json
import linecache
import math
import re
import subprocess
import sys
from dataclasses import replace
from functools import partial
from importlib import import_module

import make_sweeps
import numpy as np
import pytest
from matplotlib import pyplot

import minips as ps
from minips import lab
from minips.lab.course import state, sweeps
from minips.lab.course.best import LEAST, WIDER, Best, Figure, Metric, Sweep
from minips.lab.course.courses import chosen
from minips.lab.course.lessons import read, source
from minips.lab.course.recorded import load
from minips_course.ddp import sweep as ddp_sweep

RATES = (0.01, 0.1, 1.0, 10.0, 100.0)
CONFIG = ps.Config(workers=2, steps=5, transport=ps.InProc())
SIGN = replace(CONFIG, push=ps.Codec(ps.Sign()))

SLOW = {"local"}
"""The lessons whose sweeps take a minute even for their first seed."""


@pytest.fixture
def somebody(tmp_path, monkeypatch):
    """Somebody is there, whose sweeps are kept in a folder of this test."""
    monkeypatch.delenv("MINIPS_AUTOPLAY")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "minips" / "sweeps"


@pytest.fixture
def counted(monkeypatch):
    """The configs of all runs, which only count: the metric is least at the rate 1."""
    seen = []

    def of(self, problem, config, engine):
        seen.append(config)
        return (math.log10(config.optimizer.lr) ** 2 + config.seed if self.accuracy is None else math.inf), 8.0

    monkeypatch.setattr(Metric, "of", of)
    return seen


def problem(seed=0):
    return ps.SoftmaxRegression(*ps.datasets.synthetic(rows=80, classes=3, seed=seed, validation=0.5))


def made(values, metric="loss"):
    """A sweep with these rows of values by rate."""
    measured = Metric(metric, None, None, 10)
    return Sweep(CONFIG, measured, {rate: np.array([[x, 8.0] for x in row]) for rate, row in values.items()})


def test_each_scheme_is_taken_at_its_own_best_rate_in_pairs_of_seeds():
    best = lab.best_of({"all": CONFIG, "sign": SIGN}, problem(), RATES, seeds=2, metric="loss")
    for name, config in (("all", CONFIG), ("sign", SIGN)):
        means = {rate: np.mean(best.values(name, rate)) for rate in best.sweeps[name].rates}
        assert best.rates[name] == min(means, key=means.get)
        assert best.config(name) == replace(config, optimizer=ps.SGD(lr=float(best.rates[name])))
        for rate in (0.1, float(best.rates[name])):  # the bits of every engine
            ready = [replace(config, seed=seed, optimizer=ps.SGD(lr=rate)) for seed in range(2)]
            runs = [ps.train(problem(), one, engine="threads") for one in ready]
            assert best.values(name, rate).tolist() == [run.validation_loss for run in runs]
    pairs = best.values("sign") - best.values("all")
    assert best.difference("sign", "all") == lab.interval(pairs)
    assert best.ratio("sign", "all") == lab.interval(best.values("sign") / best.values("all"))
    assert best.difference("sign", "all", rate=0.1) == lab.interval(best.values("sign", 0.1) - best.values("all", 0.1))


def test_each_rate_is_tried_with_each_seed(counted):
    best = lab.best_of({"all": CONFIG, "sign": SIGN}, problem(), RATES, seeds=3, metric="loss")
    expected = {(codec, rate, seed) for codec in (CONFIG.push, SIGN.push) for rate in RATES for seed in range(3)}
    assert {(config.push, config.optimizer.lr, config.seed) for config in counted} == expected
    assert len(counted) == len(expected)
    assert best.rates == {"all": 1.0, "sign": 1.0}
    assert best.values("all").tolist() == [0.0, 1.0, 2.0]


def test_a_problem_for_each_seed_is_trained_with_its_seed():
    two = [problem(0), problem(1)]
    best = lab.best_of({"all": CONFIG}, two, RATES, seeds=2)
    (rate,) = best.rates.values()
    ready = replace(CONFIG, optimizer=ps.SGD(lr=float(rate)))
    runs = [ps.train(p, replace(ready, seed=seed), engine="threads").accuracy for seed, p in enumerate(two)]
    assert best.values("all").tolist() == runs


def test_of_several_configs_under_a_name_the_best_counts():
    moving = [replace(CONFIG, optimizer=ps.SGD(momentum=momentum)) for momentum in (0.0, 0.5, 0.9)]
    alone = [lab.best_of({"one": config}, problem(), RATES, seeds=2, metric="loss") for config in moving]
    best = lab.best_of({"momentum": moving}, problem(), RATES, seeds=2, metric="loss")
    assert best.mean("momentum") == min(one.mean("one") for one in alone)


@pytest.mark.parametrize(
    ("metric", "target"), [("steps", {"accuracy": 0.7}), ("steps", {"loss": 0.6}), ("seconds", {"loss": 0.6})]
)
def test_steps_and_seconds_count_to_the_target(metric, target):
    config = replace(CONFIG, steps=20, delays=ps.Delays(seconds=0.5))
    best = lab.best_of({"all": config}, problem(), RATES, seeds=2, metric=metric, every=1, **target)
    ready = best.config("all")
    for seed, value in enumerate(best.values("all")):
        evaluated = []
        run = ps.train(problem(), replace(ready, seed=seed), engine=ps.Simulated(), every=1, on_eval=evaluated.append)
        if "loss" in target:
            at = next((seconds, step) for seconds, step, loss in run.losses if loss <= 0.6)
            assert value == at[metric == "steps"]
        else:
            held_out = problem().held_out()
            assert value == next(e.step for e in evaluated if held_out.accuracy(e.params) >= 0.7)
    pushes = 2 * (best.values("all") if metric == "steps" else best.values("all") / 0.5)
    each = run.bytes_sent / run.updates
    assert np.all(np.abs(best.bytes_sent("all") - pushes * each) <= each)  # a run that is ended has asked once more


def test_a_run_that_does_not_get_there_is_infinite_and_never_compared():
    best = lab.best_of({"all": CONFIG}, problem(), RATES, seeds=2, metric="steps", accuracy=1.01)
    assert best.reached("all") == 0
    assert best.unsettled == ["all"]
    assert "0 of 2 got there" in str(best)
    assert "may lie outside" in str(best)
    assert math.isnan(best.difference("all", "all").mean)
    best.show()


def test_a_run_that_diverges_is_the_worst():
    steep = ps.LinearRegression(*ps.datasets.diabetes())
    best = lab.best_of({"all": CONFIG}, steep, (0.01, 0.1, 1.0, 1e19, 1e38), seeds=2, metric="loss")
    assert best.values("all", 1e38).tolist() == [np.inf, np.inf]
    assert best.rates["all"] <= 1


def test_a_sweep_whose_best_rate_is_at_an_end_is_widened_by_its_own_ratio():
    low = lab.best_of({"all": CONFIG}, problem(), (1e-5, 1e-4, 1e-3, 1e-2, 1e-1), seeds=2, metric="loss")
    sweep = low.sweeps["all"]
    assert sweep.rates[5:] == pytest.approx([10.0**n for n in range(len(sweep.rates) - 5)])
    assert len(sweep.rates) > 5
    assert low.unsettled == []
    assert sweep.rates[0] < low.rates["all"] < sweep.rates[-1]


@pytest.mark.parametrize(("slope", "beyond"), [(1, 0.125), (-1, 32.0)])
def test_a_sweep_is_widened_at_either_end_at_most_so_often(slope, beyond):
    sweep = made({rate: [slope * math.log(rate)] * 2 for rate in (0.25, 0.5, 1.0, 2.0, 8.0)})
    assert sweep.beyond() == beyond
    assert not sweep.settled
    for count, rate in enumerate(sweep.rates_to_try([])):
        assert count < WIDER
        sweep.runs[rate] = np.array([[slope * math.log(rate), 8.0]] * 2)
    assert Best({"x": sweep}).unsettled == ["x"]


def test_of_equally_good_rates_the_middle_one_is_taken():
    assert made({1.0: [3.0, 3.0], 2.0: [2.0, 2.0], 4.0: [2.0, 2.0], 8.0: [2.0, 2.0], 16.0: [3.0, 3.0]}).best == 4.0
    assert made({1.0: [0.1, 0.1], 2.0: [0.2, 0.2], 4.0: [0.1, 0.2]}, "accuracy").best == 2.0
    assert made({1.0: [1.0, np.inf], 2.0: [9.0, 9.0], 4.0: [np.inf, np.inf]}).best == 2.0


@pytest.mark.parametrize("count", range(LEAST))
def test_fewer_than_five_rates_decide_nothing(count, counted):
    with pytest.raises(ValueError, match="at least 5 different learning rates"):
        lab.best_of({"all": CONFIG}, problem(), RATES[:count])
    assert counted == []


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ({"rates": (0.1, 0.1, 0.1, 1, 10)}, ValueError, "5 different"),
        ({"rates": (0.0, 0.1, 1, 10, 100)}, ValueError, "above 0"),
        ({"seeds": 1}, ValueError, "two seeds or more"),
        ({"problem": [problem()] * 3}, ValueError, "5 seeds and 3 problems"),
        ({"problem": "digits"}, TypeError, "takes a problem"),
        ({"configs": {}}, ValueError, "at least one config"),
        ({"configs": {"all": []}}, ValueError, "at least one config"),
        ({"configs": CONFIG}, TypeError, "mapping of names"),
        ({"configs": {"all": "asp"}}, TypeError, "also under 'all'"),
        ({"metric": "acuracy"}, ValueError, "accuracy"),
        ({"metric": "steps"}, ValueError, "need one target"),
        ({"metric": "steps", "loss": 1.0, "accuracy": 0.9}, ValueError, "need one target"),
        ({"loss": 1.0}, ValueError, "take none"),
        ({"engine": "thread"}, ValueError, "threads"),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(wrong, error, words, counted):
    with pytest.raises(error, match=words):
        lab.best_of(**{"configs": {"all": CONFIG}, "problem": problem(), "rates": RATES, **wrong})
    assert counted == []


def test_a_metric_that_the_problem_does_not_have_is_named():
    bare = ps.LinearRegression(np.ones((4, 1)), np.ones(4))
    for metric in ({"metric": "accuracy"}, {"metric": "loss"}, {"metric": "steps", "accuracy": 0.9}):
        with pytest.raises(ValueError, match="held-out rows"):
            lab.best_of({"all": CONFIG}, bare, RATES, seeds=2, **metric)


def test_unknown_schemes_and_rates_are_named():
    best = Best({"all": made({1.0: [3.0, 3.0], 2.0: [2.0, 2.0], 4.0: [3.0, 3.0]})})
    with pytest.raises(ValueError, match="There is no scheme 'al'"):
        best.values("al")
    with pytest.raises(ValueError, match="3 was not tried"):
        best.mean("all", rate=3)


def test_what_is_made_of_a_figure_is_one():
    best = Best({name: made({1.0: [3.0, 4.0], 2.0: [x, 1.0], 4.0: [3.0, 4.0]}) for name, x in (("a", 2.0), ("b", 0.5))})
    (mean, half), (times, _) = best.difference("a", "b"), best.ratio("a", "b")
    made_of_it = [mean, half, times, 100 * mean, mean / 2, 1 - mean, -mean, abs(mean), mean - half, best.mean("a")]
    made_of_it += [best.reached("a"), best.rates["a"], min(mean, half)]
    assert {type(one) for one in made_of_it} == {Figure}
    assert f"{mean:.2f} {times:.0%} {best.rates['a']:g}" == "0.75 250% 2"
    assert type(float(mean)) is float


def test_the_picture_shows_every_curve_and_marks_the_best_rates():
    values = {1.0: np.array([3.0, 4.0]), 2.0: np.array([2.0, 2.0]), 4.0: np.array([3.0, np.inf])}
    names = [f"scheme {number}" for number in range(8)]
    ax = lab.plots.rates(dict.fromkeys(names, values), dict.fromkeys(names, 2.0), label="loss")
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert [text.get_text() for text in ax.get_legend().get_texts()] == names
    drawn = [box.lines[0] for box in ax.containers]
    assert len({(line.get_color(), line.get_marker(), line.get_markerfacecolor()) for line in drawn}) == len(names)
    assert all(line.get_xydata().tolist() == [[1.0, 3.5], [2.0, 2.0]] for line in drawn)
    rings = [line for line in ax.lines if line.get_markersize() == 12]
    assert [line.get_xydata().tolist() for line in rings] == [[[2.0, 2.0]]] * len(names)
    pyplot.close(ax.figure)


def test_show_shows_the_picture_with_its_words_and_the_table(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    best = Best({"all": made({1.0: [3.0, 3.1], 2.0: [2.0, 2.1], 4.0: [3.0, 3.2]})})
    best.show()
    picture, table = shown
    assert picture.png.startswith(b"\x89PNG")
    assert picture.words == best.words
    assert "all: 2.050 ± " in best.words
    assert table is best
    assert "2.050" in repr(best)


def test_a_sweep_is_kept_and_answers_for_the_same_question_alone(somebody, counted):
    ask = {"configs": {"all": CONFIG}, "problem": problem(), "rates": RATES, "seeds": 2, "metric": "loss"}
    first = lab.best_of(**ask)
    ran = len(counted)
    assert ran >= 10
    again = lab.best_of(**ask)
    assert len(counted) == ran
    assert {r: again.values("all", r).tolist() for r in RATES} == {r: first.values("all", r).tolist() for r in RATES}
    others = [
        {"configs": {"all": replace(CONFIG, steps=9)}},
        {"problem": problem(seed=1)},
        {"rates": (*RATES, 1000.0)},
        {"seeds": 3},
        {"metric": "accuracy"},
        {"engine": "threads"},
    ]
    for other in others:
        before = len(counted)
        lab.best_of(**{**ask, **other})
        assert len(counted) > before, other
    before = len(counted)
    lab.best_of(**{**ask, "configs": {"another name": CONFIG, "sign": SIGN}})
    assert {config.push for config in counted[before:]} == {SIGN.push}
    assert len([*somebody.iterdir()]) == len(others) + 2


def test_infinite_numbers_are_kept_as_valid_json(somebody, counted):
    ask = {"configs": {"all": CONFIG}, "problem": problem(), "rates": RATES, "seeds": 2, "metric": "steps"}
    lab.best_of(**ask, accuracy=1.01)
    (file,) = somebody.iterdir()
    assert "Infinity" not in file.read_text()
    before = len(counted)
    assert lab.best_of(**ask, accuracy=1.01).reached("all") == 0
    assert len(counted) == before


def test_a_file_that_was_changed_or_cannot_be_read_answers_for_nothing(somebody, counted):
    ask = {"configs": {"all": CONFIG}, "problem": problem(), "rates": RATES, "seeds": 2, "metric": "loss"}
    lab.best_of(**ask)
    (file,) = somebody.iterdir()
    facts = json.loads(file.read_text())
    for text in (json.dumps({**facts, "rates": facts["rates"][:-1]}), "{", "[]", json.dumps({"runs": 3})):
        file.write_text(text)
        before = len(counted)
        lab.best_of(**ask)
        assert len(counted) > before


def test_an_unattended_run_keeps_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert state.autoplay()
    lab.best_of({"all": CONFIG}, problem(), RATES, seeds=2)
    assert [*tmp_path.iterdir()] == []


def test_a_folder_that_cannot_be_written_costs_no_result(tmp_path, monkeypatch):
    monkeypatch.delenv("MINIPS_AUTOPLAY")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert lab.best_of({"all": CONFIG}, problem(), RATES, seeds=2).rates


def test_configs_that_are_done_are_kept_if_the_sweep_is_interrupted(somebody, monkeypatch):
    measure = Metric.of

    def of(self, problem, config, engine):
        if config.push == SIGN.push:
            raise KeyboardInterrupt
        return measure(self, problem, config, engine)

    monkeypatch.setattr(Metric, "of", of)
    with pytest.raises(KeyboardInterrupt):
        lab.best_of({"all": CONFIG, "sign": SIGN}, problem(), RATES, seeds=2)
    assert len([*somebody.iterdir()]) == 1


HALVED = """
from dataclasses import dataclass
import minips as ps
import numpy as np

def factor():
    return {factor}

@ps.register
@dataclass(frozen=True)
class Halved(ps.Quantizer):
    name = "halved"

    def encode(self, x, rng):
        return {{"x": factor() * x}}

    def decode(self, parts):
        return np.asarray(parts["x"])
"""


@pytest.fixture
def edited(tmp_path, monkeypatch):
    """A function that returns one module for each factor in its source, each imported when it is asked for."""
    monkeypatch.syspath_prepend(tmp_path)

    def modules(source, *factors):
        for factor in factors:
            (tmp_path / "edited.py").write_text(source.format(factor=factor))
            sys.modules.pop("edited", None)
            linecache.checkcache()
            yield import_module("edited")

    yield modules
    sys.modules.pop("edited", None)


@pytest.mark.usefixtures("registry")
def test_another_code_of_a_stage_of_ones_own_is_another_sweep(edited):
    """Also where only a function is another that the stage calls."""
    stages = (module.Halved() for module in edited(HALVED, 0.5, 0.25, 0.5))
    codes = [sweeps.code_of(replace(CONFIG, push=ps.Codec(stage))) for stage in stages]
    assert codes[0] != codes[1]
    assert codes[0] == codes[2]
    assert codes[0] != sweeps.code_of(CONFIG)
    assert sweeps.code_of(CONFIG) == sweeps.code_of(SIGN)


def test_the_hash_of_a_problem_is_that_of_all_its_data():
    first = sweeps.digest(problem())
    assert sweeps.digest(problem()) == first
    for name, value in (("X", problem().X + 1), ("l2", 0.1), ("validation", problem(seed=1).validation)):
        other = problem()
        setattr(other, name, value)
        assert sweeps.digest(other) != first, name
    assert sweeps.digest(np.float32([1, 2])) != sweeps.digest(np.float64([1, 2]))
    assert sweeps.digest([[1], [2]]) != sweeps.digest([[1, 2]])


def test_the_last_bits_of_computed_data_do_not_make_another_sweep():
    """They depend on the machine's processor; a column, a row or a sign that is another does not."""
    drawn = np.random.default_rng(5).normal(size=(300, 64)).astype("f4")
    first = sweeps.digest(drawn)
    assert sweeps.digest(np.nextafter(drawn, np.float32(9))) == first
    for change in ((slice(None), 7), (7, slice(None))):
        other = drawn.copy()
        other[change] = -other[change]
        assert sweeps.digest(other) != first
    for other in (-drawn, 2 * drawn, drawn.T, drawn.astype("f8"), drawn[::-1]):
        assert sweeps.digest(other) != first
    whole = np.arange(9)
    assert sweeps.digest(whole + (whole == 3)) != sweeps.digest(whole)
    assert sweeps.digest(np.array([0.0, np.nan])) != sweeps.digest(np.array([np.nan, 0.0]))


def test_two_sweeps_are_alike_if_they_are_at_most_rates():
    ours = np.random.default_rng(5).normal(size=(5, 3, 2))
    anew = ours.copy()
    anew[4, 1, 0] += 1  # chaotic
    assert make_sweeps.alike(ours, anew)
    anew[2:, :, 0] += 1
    assert not make_sweeps.alike(ours, anew)
    fewer = ours.copy()
    fewer[0, 0, 1] -= 1
    assert not make_sweeps.alike(ours, fewer)


FUNCTIONS = """
FACTOR = {factor}


def lie(gradient, times={factor}):
    return scaled(gradient, times)


def scaled(gradient, times):
    return {factor} * times * gradient


def whole(gradient):
    return FACTOR * gradient


def each(gradients):
    return [FACTOR * gradient for gradient in gradients]
"""


@pytest.mark.parametrize("name", ["lie", "scaled", "whole", "each"])
def test_another_function_in_a_problem_is_another_sweep(name, edited):
    """By its source, its defaults, what it calls, and the constants that it uses."""
    found = [sweeps.digest({"lie": getattr(module, name)}) for module in edited(FUNCTIONS, 2, 3, 2)]
    assert found[0] != found[1]
    assert found[0] == found[2]


def test_a_function_of_more_than_its_source_is_run_anew_and_a_generator_is_its_state():
    def made(factor):
        return lambda gradient: factor * gradient

    for one, other in [(made(2), made(3)), (problem().loss, problem(seed=1).loss)]:
        assert sweeps.digest(one) != sweeps.digest(other)
    assert sweeps.digest(partial(np.multiply, 2)) == sweeps.digest(partial(np.multiply, 2))
    assert sweeps.digest(partial(np.multiply, 2)) != sweeps.digest(partial(np.multiply, 3))
    first, second = (np.random.default_rng(0) for _ in range(2))
    assert sweeps.digest(first) == sweeps.digest(second)
    second.normal()
    assert sweeps.digest(first) != sweeps.digest(second)


@pytest.fixture
def cached(monkeypatch, registry):
    """No run may be needed: what was asked, by key."""
    asked = {}
    look = sweeps.load

    def load(what):
        asked[sweeps.key_of(what)] = what
        return look(what)

    def of(self, problem, config, engine):
        raise AssertionError(f"No sweep is kept for {config!r}. Make it: python tests/make_sweeps.py")

    monkeypatch.setattr(sweeps, "load", load)
    monkeypatch.setattr(Metric, "of", of)
    return asked


@pytest.mark.parametrize(
    "word", [pytest.param(word, marks=[pytest.mark.soak] * (word == "spend")) for word in make_sweeps.swept()]
)
def test_a_lesson_keeps_the_sweeps_that_it_asks_for_and_each_has_five_rates_and_seeds(word, cached):
    make_sweeps.run_statements(word, make_sweeps.needed(word))
    assert {path.stem for path in make_sweeps.folder(word).iterdir()} == {*cached}
    for key, asked in cached.items():
        runs = sweeps.read(make_sweeps.folder(word) / f"{key}.json")
        assert len(asked["rates"]) >= 5
        assert {*asked["rates"]} <= {*runs}
        assert asked["seeds"] >= 5
        assert {rows.shape for rows in runs.values()} == {(asked["seeds"], 2)}
        assert Sweep(CONFIG, Metric(**asked["metric"]), runs).settled, asked["config"]


@pytest.mark.parametrize("word", make_sweeps.swept())
def test_a_lesson_without_one_of_its_rates_compares_nothing(word, cached):
    """Each sweep has five rates to begin with, so it is refused without the last of them."""
    rates = re.compile(r"(rates ?= ?\(|(?:problems|bigs), \()([\d., ]+), [\d.]+\)")
    whole = make_sweeps.needed(word)
    fewer = [rates.sub(r"\1\2)", text) for text in whole]
    assert fewer != whole
    with pytest.raises(ValueError, match="at least 5 different learning rates"):
        make_sweeps.run_statements(word, fewer)


def test_the_hooks_of_lesson_23_are_recorded_at_five_rates_with_five_seeds():
    values = load("ddp.torch")["values"]
    found = {float(name.removeprefix("rate ")): values[name]["found"] for name in values if "rate " in name}
    best = ddp_sweep.best_of(dict(sorted(found.items())))
    assert best.unsettled == []
    assert len(best.sweeps) == 3
    assert {len(best.values(name, rate)) for name in best.sweeps for rate in found} == {5}
    cells = map(source, read(chosen().paths()["ddp"])["cells"])
    (asked,) = re.findall(r"ranks\.best_of\(.*, rates=\(([\d., ]+)\)\)", "\n".join(cells))
    assert {*map(float, asked.split(","))} == {*found}
    for left in found:
        with pytest.raises(ValueError, match="at least 5 different learning rates"):
            ddp_sweep.best_of({rate: rows for rate, rows in found.items() if rate != left})
    low = {rate: rows for rate, rows in found.items() if rate < 0.4} | {0.01: found[0.05], 0.02: found[0.05]}
    with pytest.raises(ValueError, match="need more learning rates"):
        ddp_sweep.best_of(dict(sorted(low.items())))


def test_only_lessons_that_compare_keep_sweeps():
    folders = {path.parent.name for path in make_sweeps.LESSONS.glob("minips_course/*/sweeps")}
    assert folders == {*make_sweeps.swept()} >= {"bits", "rounding", "remember"}


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("word", "seeds"),
    [
        pytest.param(word, seeds, marks=pytest.mark.soak if seeds and word not in SLOW else pytest.mark.campaign)
        for seeds in (["--first"], [])
        for word in make_sweeps.swept()
    ],
)
def test_the_sweeps_of_a_lesson_come_out_as_they_are_kept(word, seeds):
    command = [sys.executable, make_sweeps.__file__, "--check", *seeds, word]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1100)
    assert done.returncode == 0, done.stdout + done.stderr
