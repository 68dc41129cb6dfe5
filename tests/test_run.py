"""What can be done with a finished run."""

import re
from pathlib import Path

import numpy as np
import pytest

import minips as ps
from minips.cost.tune import candidates_of
from minips.results.status import Status, WorkerStatus

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
    with pytest.raises(ValueError, match="the class 'd', and y does not"):
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
    above, _, *lines = str(table).splitlines()
    assert len(lines) == 3
    assert "optimizer." in above
    assert "TopK(fraction=0.01)" in lines[1]  # the column of the fraction is in that of its stage
    assert table._repr_html_().count("<tr>") == 4
    assert str(ps.RunTable([])) == ""


LONG = [
    *(ps.Exact(), ps.Float16(), ps.BFloat16(), ps.Uniform(bits=4), ps.QSGD(), ps.Ternary(), ps.Sign(), ps.TwoBit()),
    *(ps.TopK(fraction=0.01), ps.RandomK(fraction=0.01), ps.Threshold(), ps.PowerSGD(), ps.Adaptive()),
]


def widths(text):
    return {len(line) for line in text.splitlines()}


def test_a_table_of_all_quantizers_fits_100_columns_and_tells_them_apart():
    configs = [CONFIG.with_({"push.quantizer": quantizer, "steps": 2}) for quantizer in LONG]
    table = ps.RunTable(ps.sweep(ps.SoftmaxRegression(*DATA), configs, engine="threads"))
    lines = str(table).splitlines()
    assert max(widths(str(table))) <= 100
    assert len(lines) == len(LONG) + 2  # the headings take two lines
    for line, quantizer in zip(lines[2:], LONG[:4], strict=False):
        assert type(quantizer).__name__ in line
    assert "push.quantizer.fraction" in table.rows[0]  # rows have the columns by their paths
    head, *rows = re.findall(r"<tr>(.*?)</tr>", table._repr_html_())
    assert (head.count("<th>"), len(rows)) == (7, len(LONG))
    assert "TopK(fraction=0.01)" in rows[8]


def test_a_table_whose_columns_do_not_fit_goes_on_below():
    name = "a name of which one could think that it is far too long for any table, such as number "
    configs = {
        f"{name}{lr} {consistency}": CONFIG.with_(
            {"optimizer.lr": lr, "push.quantizer": quantizer, "consistency": consistency}
        )
        for lr, quantizer in ((0.1, "exact"), (0.2, ps.Adaptive()), (0.3, ps.RandomK(fraction=0.123456)))
        for consistency in ("bsp", "ssp")
    }
    configs |= {"diverging": CONFIG.with_({"optimizer.lr": 1e30})}
    table = ps.RunTable(ps.sweep(ps.LinearRegression(*ps.datasets.diabetes()), configs, engine="threads"))
    assert table.runs[-1].diverged
    text = str(table)
    assert max(widths(text)) <= 100
    blocks = text.split("\n\n")
    assert len(blocks) > 1
    for block in blocks:  # each has all the rows, in their order
        assert [line.split()[0] for line in block.splitlines()[-len(configs) :]] in (
            [*("a",) * 6, "diverging"],
            [*map(str, range(1, 8))],
        )
    assert max(widths(str(ps.RunTable(table.runs[:1])))) <= 100


def test_rows_that_their_first_columns_do_not_tell_apart_have_numbers():
    rows = [{f"column number {column}": "the same" for column in range(12)} for _ in range(3)]
    table = ps.RunTable([])
    table.rows = rows
    first, second = str(table).split("\n\n")
    for block in (first, second):
        assert [line.split()[0] for line in block.splitlines()[-3:]] == ["1", "2", "3"]
        assert max(widths(block)) <= 100


def test_a_summary_fits_100_columns():
    push = ps.Codec(
        {"W*": ps.TopK(fraction=0.01), "b*": ps.QSGD(), "*": ps.Adaptive()}, ps.MomentumCorrection(), "json"
    )
    run = ps.train(ps.SoftmaxRegression(*DATA), CONFIG.with_({"push": push, "steps": 2}), engine="threads")
    run.events += [(1.0, "something happened that takes a great many words to tell, " * 4)]
    assert max(widths(run.summary())) <= 100
    assert " ".join(value for _, value in run.rows()).split() == [
        word for line in run.summary().splitlines() for word in line[21:].split()
    ]


def test_a_status_and_a_tuning_fit_100_columns():
    everyone = [WorkerStatus(n, True, n < 9, 10**6, 12345.6, [*range(40)], 10**12, 10**12) for n in range(40)]
    counts = {"applied": 10**6, "updates": 2 * 10**6, "late": 9, "duplicates": 1, "version": 9, "loss": 0.1}
    diverged = "At step 1234 of worker 3: the gradient of 'W' would hold NaN. Lower the learning rate, or scale X."
    status = Status(0, 2, everyone, **counts, seconds=99999.9, done=False, diverged=diverged, stuck="")
    tuning = ps.cost.Tuning(0.9, [ps.cost.Choice(one, 10**5, 1e4, 1e4, 0.9) for one in candidates_of(CONFIG)])
    for text in map(str, (status, tuning)):
        assert max(widths(text)) <= 100
    assert " ".join(str(status).split()).find(diverged) > 0


def named(**figures):
    """A run that ended with these figures."""
    losses = [(0.0, 1, figures.pop("loss", 1.0))]
    return ps.Run(CONFIG, {}, losses, figures.pop("seconds", 1.0), 2, **figures)


def front(runs, *columns):
    return [row["name"] for row in ps.RunTable(runs).pareto(*columns)]


def test_a_pareto_front_has_the_runs_that_no_other_dominates():
    runs = {
        "small": named(bytes_sent=10, validation_loss=0.9, accuracy=0.5, seconds=3.0),
        "best": named(bytes_sent=90, validation_loss=0.1, accuracy=0.9, seconds=2.0),
        "middle": named(bytes_sent=40, validation_loss=0.4, accuracy=0.9, seconds=1.0),
        "twin": named(bytes_sent=40, validation_loss=0.4, accuracy=0.8, seconds=4.0),
        "worse": named(bytes_sent=40, validation_loss=0.5, accuracy=0.9, seconds=9.0),
        "far": named(bytes_sent=99, validation_loss=0.1, accuracy=0.9, seconds=2.0),
    }
    assert front(runs) == ["small", "middle", "twin", "best"]  # equal runs stay together
    assert front(runs, "seconds", "accuracy") == ["middle"]  # of accuracy more is better
    assert front(runs, "accuracy", "bytes_sent") == ["middle", "worse", "small"]
    assert front(runs, "bytes_sent") == ["small"]
    assert front(runs, "bytes_sent", "validation_loss", "seconds") == ["small", "middle", "best"]
    table = ps.RunTable(runs)
    assert table.pareto().rows == [table.rows[number] for number in (0, 2, 3, 1)]
    assert [run.name for run in table.pareto().runs] == ["small", "middle", "twin", "best"]
    assert str(table.pareto()).count("\n") == 4 + str(table.pareto()).count("validation_\n")
    assert len(table) == 6


def test_a_run_without_a_number_is_not_on_a_pareto_front():
    good = named(bytes_sent=50, validation_loss=0.5)
    nothing, lost = (
        named(bytes_sent=10, validation_loss=float("nan")),
        named(bytes_sent=1, validation_loss=float("inf")),
    )
    diverged = named(bytes_sent=1, validation_loss=0.1, diverged="At step 3 …")
    runs = {"good": good, "nan": nothing, "inf": lost, "diverged": diverged, "none": named(bytes_sent=5)}
    assert front(runs) == ["good"]
    assert front({"one": good}) == ["one"]
    assert front({"diverged": diverged}) == front({"nan": nothing, "inf": lost}) == []
    assert front({"a": named(bytes_sent=2, loss=0.3), "b": named(bytes_sent=1, loss=0.3)}) == ["b"]  # no rows held out
    assert len(ps.RunTable([]).pareto()) == 0
    table = ps.RunTable(runs)
    with pytest.raises(ValueError, match=r"no column 'acuracy'\. Known: name, loss, .*"):
        table.pareto("acuracy")
    with pytest.raises(ValueError, match=r"no column \['loss'\]\. Known: name, loss, .*"):
        table.pareto(["loss"])
    for wrong in (good, [CONFIG], {"a": 1}):
        with pytest.raises(TypeError, match=r"RunTable takes (several )?runs; got"):
            ps.RunTable(wrong)
    with pytest.raises(ValueError, match="A Pareto front needs numbers, but the column 'name' has 'good'"):
        table.pareto("name", "loss")


def test_a_sweep_of_named_configs_names_its_runs(tmp_path):
    configs = {"slow": CONFIG, "fast": CONFIG.with_({"optimizer.lr": 0.5})}
    runs = [*ps.sweep(ps.SoftmaxRegression(*DATA), configs, engine="threads")]
    assert [run.name for run in runs] == ["slow", "fast"]
    table = ps.RunTable(runs)
    assert [[row["name"], row["optimizer.lr"]] for row in table.rows] == [["slow", 0.1], ["fast", 0.5]]
    assert [*table.rows[0]][:2] == ["name", "optimizer.lr"]
    assert str(table).splitlines()[1].split()[:2] == ["slow", "0.1"]
    runs[0].save(tmp_path / "run.npz")
    assert ps.Run.load(tmp_path / "run.npz").name == "slow"
    assert [row["name"] for row in ps.RunTable({"other": runs[0]})] == ["other"]
    assert runs[0].name == "slow"
    with pytest.raises(TypeError, match="sweep takes a Config under each name, also under 'b'; got 3"):
        next(ps.sweep(ps.SoftmaxRegression(*DATA), {"a": CONFIG, "b": 3}))
    with pytest.raises(TypeError, match="sweep takes a Config for each run, also for run 2; got 'b'"):
        next(ps.sweep(ps.SoftmaxRegression(*DATA), [CONFIG, "b"]))


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


def test_a_pickle_in_a_file_is_never_read(tmp_path):
    class Trap:
        def __reduce__(self):
            return Path.touch, (tmp_path / "ran",)

    problem = ps.SoftmaxRegression(*ps.datasets.synthetic(rows=20, features=3, classes=2))
    config = ps.Config(workers=1, steps=2)
    ps.train(problem, config, engine="threads").save(tmp_path / "run.npz")
    with np.load(tmp_path / "run.npz") as kept:
        first, *others = kept.files
        arrays = {name: kept[name] for name in others}
    np.savez(tmp_path / "trap.npz", allow_pickle=True, **arrays, **{first: np.array([Trap()], object)})
    with pytest.raises(ValueError, match="allow_pickle"):
        ps.Run.load(tmp_path / "trap.npz")
    with pytest.raises(ValueError, match="allow_pickle"):
        ps.train(problem, config, resume=tmp_path / "trap.npz")
    assert not (tmp_path / "ran").exists()


def test_rows_of_queues_are_saved_and_joined_and_others_leave_a_file_as_it_was(tmp_path):
    run = ps.train(ps.SoftmaxRegression(*DATA), CONFIG, engine="threads")
    run.save(tmp_path / "none.npz")
    assert b"queues" not in (tmp_path / "none.npz").read_bytes()
    assert ps.Run.load(tmp_path / "none.npz").queues == {}
    run.queues = {"switch → server 0": [(-0.5, 0, 0), (0.25, 1514, 3)]}
    run.save(tmp_path / "some.npz")
    again = ps.Run.load(tmp_path / "some.npz")
    assert again.queues == run.queues
    run.seconds = 2.0
    assert again.after(run).queues["switch → server 0"] == [(-0.5, 0, 0), (0.25, 1514, 3), (1.5, 0, 0), (2.25, 1514, 3)]
