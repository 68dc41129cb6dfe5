"""What can be done with a finished run."""

import numpy as np
import pytest

import minips as ps

DATA = ps.datasets.synthetic(rows=120, features=5, classes=3)
CONFIG = ps.Config(workers=2, steps=10)


def test_a_run_predicts():
    problem = ps.SoftmaxRegression(*DATA)
    run = ps.train(problem, CONFIG, engine="threads")
    assert (run.predict(DATA.X_validation) == DATA.y_validation).mean() == run.accuracy
    assert run.predict_proba(DATA.X_validation).shape == (len(DATA.y_validation), 3)
    np.testing.assert_allclose(run.predict_proba(DATA.X_validation).sum(axis=1), 1, rtol=1e-6)


def test_texts_are_labels_and_come_back():
    names = np.array(["a", "b", "c"])
    X, y, X_test, y_test = DATA
    run = ps.train(ps.SoftmaxRegression(X, names[y], X_test, names[y_test]), CONFIG, engine="threads")
    assert (run.predict(X_test) == names[y_test]).mean() == run.accuracy
    with pytest.raises(ValueError, match="'d', which y does not"):
        ps.SoftmaxRegression(X, names[y], X[:1], ["d"])


def test_a_regression_predicts_and_has_no_probabilities():
    data = ps.datasets.synthetic(rows=120, features=5)
    run = ps.train(ps.LinearRegression(*data), CONFIG, engine="threads")
    np.testing.assert_allclose(run.predict(data.X), data.X @ run.params["w"] + run.params["b"])
    with pytest.raises(NotImplementedError, match="LinearRegression has no probabilities"):
        run.predict_proba(data.X)


def test_fields_are_replaced_by_their_paths():
    config = CONFIG.with_({"push.quantizer": "sign", "optimizer.lr": 0.5, "workers": 3})
    assert (config.push.quantizer, config.optimizer, config.workers) == (ps.Sign(), ps.SGD(lr=0.5), 3)
    assert ps.Config(workers=2, steps=10) == CONFIG
    with pytest.raises(ValueError, match="Config has no field 'pushed'"):
        CONFIG.with_({"pushed.quantizer": "sign"})
    with pytest.raises(ValueError, match=r"link.latency_s does not exist: Config.link is None"):
        CONFIG.with_({"link.latency_s": 1.0})


def test_a_run_as_a_table():
    run = ps.train(ps.SoftmaxRegression(*DATA), CONFIG, engine="threads")
    try:
        frame = run.to_frame()
    except ModuleNotFoundError as error:
        assert "pip install pandas" in str(error)  # noqa: PT017 - either is right
    else:
        assert list(frame.columns) == ["seconds", "step", "loss"]
        assert len(frame) == len(run.losses)


def test_weights_count_as_copies_do():
    X, y = DATA.X[:30].astype(float), DATA.y[:30]
    weights = np.arange(30) % 3
    for kind, target in ((ps.SoftmaxRegression, y), (ps.LinearRegression, y.astype(float))):
        options = {"classes": 3} if kind is ps.SoftmaxRegression else {}
        copies = kind(np.repeat(X, weights, axis=0), np.repeat(target, weights), **options)
        weighted = kind(X, target, weights=weights, **options)
        params = {name: p + 0.1 for name, p in weighted.init(np.random.default_rng(0)).items()}
        (loss, gradient), (other, expected) = weighted.loss_and_gradient(params), copies.loss_and_gradient(params)
        assert loss == pytest.approx(other)
        for name, g in gradient.items():
            np.testing.assert_allclose(g, expected[name], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("weights", [[1.0] * 3, np.full(30, -1.0), np.zeros(30), ["a"] * 30, [np.nan] * 30])
def test_weights_that_are_none_are_refused(weights):
    with pytest.raises(ValueError, match=r"[Ww]eight"):
        ps.SoftmaxRegression(DATA.X[:30], DATA.y[:30], weights=weights)


def test_a_sweep_yields_runs_and_makes_one_table():
    problem = ps.SoftmaxRegression(*DATA)
    configs = [CONFIG, CONFIG.with_({"push.quantizer": "topk", "optimizer.lr": 0.5}), CONFIG.with_({"workers": 3})]
    runs = ps.sweep(problem, configs, engine="threads")
    assert next(runs).config == CONFIG
    table = ps.RunTable(ps.sweep(problem, configs, engine="threads"))
    assert [list(row)[:4] for row in table.rows] == [
        ["push.quantizer", "optimizer.lr", "workers", "push.quantizer.fraction"]
    ] * 3
    assert [row["push.quantizer"] for row in table.rows] == ["Exact", "TopK", "Exact"]
    assert [row["optimizer.lr"] for row in table.rows] == [0.1, 0.5, 0.1]
    assert [row["workers"] for row in table.rows] == [2, 2, 3]
    assert [row["accuracy"] for row in table.rows] == [run.accuracy for run in table.runs]
    figures = ["loss", "validation_loss", "accuracy", "seconds", "bytes_sent", "bytes_received"]
    assert [list(row)[4:] for row in table.rows] == [figures] * 3
    assert [row["bytes_sent"] for row in table.rows] == [run.bytes_sent for run in table.runs]
    above, head, *lines = str(table).splitlines()
    assert len(lines) == 3
    assert "optimizer." in above
    assert "TopK(fraction=0.01)" in lines[1]  # the column of the fraction is in that of its stage
    assert table._repr_html_().count("<tr>") == 4
    assert str(ps.RunTable([])) == ""


def ended(*losses, **others):
    return ps.Run(CONFIG, {}, [(0.1 * step, step, loss) for step, loss in enumerate(losses)], 1.0, 2, **others)


def test_a_loss_that_ends_above_where_it_began_comes_with_advice():
    rng = np.random.default_rng(0)
    problem = ps.LinearRegression(rng.normal(size=(200, 2)) * [1, 1e3], rng.normal(size=200))
    run = ps.train(problem, ps.Config(workers=2, steps=20, optimizer=ps.SGD(lr=1e-5)), engine="threads")
    assert run.diverged is None
    said = dict(run.rows())["advice"]
    assert said.startswith(
        f"the loss was {run.losses[0][2]:.4f} at first: lower the learning rate, or scale the columns"
    )
    assert f" advice {said} " in " ".join(run.summary().split())
    assert "advice" not in run.to_dict()


@pytest.mark.parametrize(
    "run",
    [
        ended(),
        ended(0.5),
        ended(0.5, 0.9),
        ended(*np.linspace(0.5, 0.9, 50)),
        ended(*[0.5] * 47, 3.0, 0.1, 0.1),  # at one step alone
        ended(-1.0, 5.0),  # of a likelihood, where twice means nothing
        ended(0.5, 9.0, diverged="at step 2"),
    ],
    ids=["none", "one", "two", "slowly", "spike", "negative", "diverged"],
)
def test_what_the_batches_chance_may_do_is_no_reason_for_advice(run):
    assert "advice" not in dict(run.rows())
