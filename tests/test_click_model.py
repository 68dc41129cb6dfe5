"""The problem that needs tables: its numbers, its training under each engine, what it loads and what it sends."""

from dataclasses import replace

import numpy as np
import pytest

import minips as ps
from minips.testing import check_problem

ITEMS = 500
DATA = ps.datasets.clicks(rows=2000, items=ITEMS, width=4, dtype="float64")
CONFIG = ps.Config(workers=4, steps=12, optimizer=ps.Adagrad(lr=0.3))


def problem(rows=True):
    return ps.ClickModel(*DATA, items=ITEMS, rows=rows)


def same(one, other):
    return all(np.array_equal(one.params[name], x) for name, x in other.params.items())


def test_the_dense_run_is_a_problem_and_the_rows_are_its_gradient():
    check_problem(problem(rows=False))
    params = {name: x + 0.1 for name, x in problem().init(np.random.default_rng(0)).items()}
    batch = np.arange(50)
    (loss, rows), (other, dense) = (one.loss_and_gradient(params, batch) for one in (problem(), problem(rows=False)))
    ids, values = rows["E"].summed()
    assert loss == other
    assert np.array_equal(ids, problem().rows_needed(batch)["E"])
    assert np.array_equal(ids, np.flatnonzero(dense["E"].any(axis=1)))
    assert np.array_equal(values, dense["E"][ids])


FIELDS = [
    {},
    {"servers": 3, "placement": "modulo"},
    {"overlap": True, "servers": 2},
    {"accumulate": 3, "optimizer": ps.SGD(lr=1.0)},
    {"batch_size": None},
    {"consistency": ps.SSP()},
    {"overlap": True, "servers": 2, "consistency": ps.BSP(backup=1)},
    {"aggregator": ps.WeightedMean(), "shards": ps.ByLabel(), "workers": 3},
]


@pytest.mark.parametrize("fields", FIELDS, ids=repr)
def test_rows_end_at_the_dense_runs_bits(fields):
    engine = ps.Simulated(compute_s=0.1, exponential=True)
    by_rows, dense = (ps.train(one, replace(CONFIG, **fields), engine=engine) for one in (problem(), problem(False)))
    assert same(by_rows, dense)
    assert by_rows.bytes_sent < dense.bytes_sent
    assert len(by_rows.server_rows) == by_rows.config.servers
    assert dense.server_rows == []


@pytest.mark.parametrize("engine", [ps.Threads(), ps.Processes()], ids=repr)
@pytest.mark.parametrize("fields", FIELDS[:3], ids=repr)
def test_every_engine_ends_at_the_same_bits_and_bytes(engine, fields):
    one, other = (ps.train(problem(), replace(CONFIG, **fields), engine=each) for each in (engine, ps.Simulated()))
    assert same(one, other)
    assert one.server_rows == other.server_rows
    if not fields.get("overlap"):
        assert (one.bytes_sent, one.bytes_received) == (other.bytes_sent, other.bytes_received)


@pytest.mark.parametrize("fields", [{}, {"overlap": True, "servers": 2}], ids=repr)
def test_a_saved_run_goes_on_to_the_same_bits(fields, tmp_path):
    config = replace(CONFIG, optimizer=ps.Adam(lr=0.1), **fields)
    whole = ps.train(problem(), config, engine=ps.Simulated())
    ps.train(problem(), replace(config, steps=5), engine=ps.Simulated()).save(tmp_path / "run.npz")
    resumed = ps.train(problem(), config, engine=ps.Simulated(), resume=tmp_path / "run.npz")
    assert same(resumed, whole)
    assert resumed.server_rows == whole.server_rows


@pytest.mark.parametrize(
    "fields", [{}, {"servers": 2, "placement": "modulo", "accumulate": 2, "shards": ps.Shuffled()}], ids=repr
)
def test_bytes_are_predicted(fields):
    config = replace(CONFIG, **fields)
    prediction = ps.cost.predict(problem(), config, ps.cost.Calibration())
    run = ps.train(problem(), config, engine=ps.Threads())
    assert prediction.exact_bytes
    assert (prediction.bytes_sent, prediction.bytes_received) == (run.bytes_sent, run.bytes_received)


def test_training_refuses_stages_that_do_not_know_rows():
    for fields in ({"exchange": ps.RingAllReduce()}, {"aggregator": ps.Krum(bad=0)}, {"local": ps.LocalSteps(3)}):
        with pytest.raises(ValueError, match="E would travel by rows"):
            ps.train(problem(), replace(CONFIG, **fields))


def test_auc_is_the_share_of_pairs_in_order():
    rng = np.random.default_rng(0)
    params = {name: rng.normal(size=x.shape).round(1) for name, x in problem().init(rng).items()}
    scores, y = problem().scores(params, DATA.X_validation), DATA.y_validation
    pairs = scores[y == 1][:, None] - scores[y == 0]
    assert problem().auc(params) == pytest.approx((pairs > 0).mean() + (pairs == 0).mean() / 2)


def test_clicks_follow_a_zipf_law_and_repeat():
    data = ps.datasets.clicks(rows=50_000, items=1000, width=2)
    share = 1 / np.sum(1 / np.arange(1, 1001))
    for item in range(3):
        assert (data.X[:, 0] == item).mean() == pytest.approx(share / (item + 1), rel=0.1)
    assert np.array_equal(data.X, ps.datasets.clicks(rows=50_000, items=1000, width=2).X)
    with pytest.raises(ValueError, match="16777216"):
        ps.datasets.clicks(items=2**24 + 1)


@pytest.mark.parametrize(("X", "y"), [([[0.5, 1]], [0]), ([[-1.0, 1]], [0]), ([[9.0, 1]], [0]), ([[0.0, 1]], [2])])
def test_what_is_no_item_and_no_click_is_refused(X, y):
    with pytest.raises(ValueError, match=r"ClickModel takes|items are 0 to 8"):
        ps.ClickModel(np.array(X), np.array(y), items=9)


@pytest.mark.soak
def test_a_million_rows_learn_with_a_fraction_of_the_bytes():
    found = []
    for seed in range(5):
        model = ps.ClickModel(*ps.datasets.clicks(rows=100_000, items=1_000_000, seed=seed), items=1_000_000)
        config = ps.Config(workers=4, servers=2, steps=300, batch_size=100, optimizer=ps.Adagrad(lr=0.3), seed=seed)
        run = ps.train(model, config)
        dense = config.workers * config.steps * 64_000_000  # and the headers
        found.append(model.auc(run.params))
        assert max(run.bytes_sent, run.bytes_received) <= dense / 500
    assert all(0.82 < auc < 0.88 for auc in found)  # the figures of ClickModel's docstring
    assert round(float(np.mean(found)), 2) == 0.84
