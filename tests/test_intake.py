"""Data as people have it: taken as it is meant, or refused in a sentence that names what does not fit."""

import warnings
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest
from scipy import sparse

import minips as ps
from minips.intake import as_array, as_number, is_missing
from minips.stages.aggregators import Contribution

rng = np.random.default_rng(0)
X = rng.normal(size=(12, 3))
Y = np.arange(12) % 2
TARGET = X @ [1.0, -2.0, 0.5]
TEXTS = np.array(["ant", "bee"])[Y]
CLICKS = np.column_stack([Y.astype(float), X])
ONE_STEP = ps.Config(workers=2, steps=2, batch_size=None)
MAKERS = {
    "linear": lambda *rows: ps.LinearRegression(*rows),
    "softmax": lambda *rows: ps.SoftmaxRegression(*rows),
    "mlp": lambda *rows: ps.MLP(*rows, hidden=3),
    "clicks": lambda *rows: ps.ClickModel(*rows),
}
every_maker = pytest.mark.parametrize("make", MAKERS.values(), ids=list(MAKERS))
classifiers = pytest.mark.parametrize("make", [MAKERS["softmax"], MAKERS["mlp"]], ids=["softmax", "mlp"])


class Table:
    """As much of a data frame as is looked at."""

    def __init__(self, **columns):
        self.columns, self._columns = list(columns), columns

    def __getitem__(self, names):
        return Table(**{name: self._columns[name] for name in names})

    def __array__(self, dtype=None, copy=None):
        return np.array(list(self._columns.values())).T


FRAME = Table(age=X[:, 0], height=X[:, 1], weight=X[:, 2])


# Masked arrays


MASKED = np.ma.masked_greater(X, 1.0)


class Masked(ps.LinearRegression):
    """Its parameters, its gradient or its loss is a masked array."""

    def __init__(self, what):
        super().__init__(X, TARGET, X, TARGET)
        self.what = what

    def init(self, rng):
        params = super().init(rng)
        return {**params, "w": np.ma.array(params["w"])} if self.what == "params" else params

    def loss_and_gradient(self, params, rows=None):
        loss, gradient = super().loss_and_gradient(params, rows)
        if self.what == "gradient":
            gradient["w"] = np.ma.array(gradient["w"])
        return (np.ma.array([loss]) if self.what == "loss" else loss), gradient


@contextmanager
def by_hand():
    """A server of three parameters, and a client."""
    server = ps.Server({"w": np.zeros(3)}, ps.Config(workers=1)).serve()
    with server, ps.connect(server.address, server.config, token=server.token) as client:
        yield server, client


def push(tensors):
    with by_hand() as (_, client):
        client.push(tensors)


def combine(aggregator):
    return aggregator.combine([Contribution(worker, 0, 0, {"w": MASKED}) for worker in range(4)])


DOORS = {
    "X": lambda: ps.LinearRegression(MASKED, TARGET),
    "X without a masked value": lambda: ps.LinearRegression(np.ma.array(X), TARGET),
    "a list of masked rows": lambda: ps.LinearRegression(list(MASKED), TARGET),
    "a masked value in a list": lambda: ps.LinearRegression([[1.0], [np.ma.masked]], [0.0, 1.0]),
    "y": lambda: ps.SoftmaxRegression(X, np.ma.array(Y, mask=Y == 1)),
    "X_validation": lambda: ps.MLP(X, Y, MASKED, Y),
    "y_validation": lambda: ps.SoftmaxRegression(X, Y, X, np.ma.array(Y)),
    "clicks": lambda: ps.ClickModel(np.ma.array(CLICKS), Y),
    "weights": lambda: ps.LinearRegression(X, TARGET, weights=np.ma.array(np.ones(12))),
    "predict": lambda: ps.LinearRegression(X, TARGET).predict({"w": np.ones(3), "b": np.zeros(())}, MASKED),
    "predict_proba": lambda: ps.SoftmaxRegression(X, Y).predict_proba({"W": X[:3, :2], "b": X[0, :2]}, MASKED),
    "Run.predict": lambda: ps.train(ps.SoftmaxRegression(X, Y), ONE_STEP, engine="simulated").predict(MASKED),
    "fourier": lambda: ps.datasets.fourier(MASKED, 4),
    "Server": lambda: ps.Server({"w": MASKED}, ps.Config()),
    "Shard": lambda: ps.Shard.of(ps.Config(), {"w": MASKED}),
    "push": lambda: push({"w": np.ma.array(np.zeros(3))}),
    "dumps": lambda: ps.Codec().dumps({"w": MASKED}),
    "encode": lambda: ps.Codec().sender().encode({"w": MASKED}),
    "Rows": lambda: ps.Rows([1, 0], np.ma.array(np.ones((2, 3)))).summed(),
    "row numbers": lambda: ps.Rows(np.ma.array([1, 0]), np.ones((2, 3))).summed(),
    "Mean": lambda: combine(ps.Mean()),
    "Median": lambda: combine(ps.Median()),
    "Krum": lambda: combine(ps.Krum(bad=0)),
    "WeightedMean": lambda: combine(ps.WeightedMean()),
    "init": lambda: ps.train(Masked("params"), ONE_STEP, engine="threads"),
}


@pytest.mark.parametrize("door", DOORS.values(), ids=list(DOORS))
def test_a_masked_array_is_refused_wherever_it_comes_in(door):
    with pytest.raises(ValueError, match=r"^[XyTA].* is a masked array.*\.filled\(value\)"):
        door()


@pytest.mark.parametrize("what", ["gradient", "loss"])
@pytest.mark.parametrize(
    "fields",
    [{}, {"accumulate": 2}, {"exchange": "ring"}, {"local": ps.LocalSteps(2), "optimizer": ps.SGD(1.0)}],
    ids=["one batch", "two batches", "ring", "local steps"],
)
def test_a_masked_gradient_or_loss_ends_the_run_with_its_name(what, fields):
    name = "The gradient of 'w'" if what == "gradient" else "The loss"
    with pytest.raises(RuntimeError, match=f"ValueError: {name} is a masked array"):
        ps.train(Masked(what), replace(ONE_STEP, **fields), engine="simulated")


def test_masked_rows_do_not_reach_a_scikit_learn_estimator():
    from minips.sklearn import PSClassifier

    with pytest.raises(ValueError, match="X is a masked array"):
        PSClassifier().fit(MASKED, Y)
    fitted = PSClassifier(steps=2).fit(X, Y)
    with pytest.raises(ValueError, match="X is a masked array"):
        fitted.predict(MASKED)


# Labels


@classifiers
@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["a", None, "b"], "{} has None in place of a label in row 1"),
        (["a", np.nan, "b"], "{} has nan in place of a label in row 1"),
        (np.array(["a", np.nan, "b"], object), "{} has nan in place of a label in row 1"),
        (np.array(["a", None, "b"], np.dtypes.StringDType(na_object=None)), "{} has None in place of a label in row 1"),
        ([0.0, np.nan, 1.0], "{} has NaN in place of a label in row 1"),
        ([0, None, 1], "{} has None in place of a label in row 1"),
        (["a", 1, "b"], "{} holds labels of several kinds, 'a' in row 0 and 1 in row 1"),
        (["a", b"b", "b"], "{} holds labels of several kinds"),
        (["a", True, "b"], "{} holds labels of several kinds"),
        (["a", "a\0", "b"], r"{} holds 'a\\x00' in row 1.*the class 'a'"),
        ([b"a", b"b", b"c"], r"{} takes class numbers, texts or truth values; got \|S1"),
        ([0, 0.5, 1], "{} takes class numbers 0, 1, 2, .*it holds 0.5 in row 1"),
        ([0, np.inf, 1], "{} takes class numbers 0, 1, 2, .*it holds inf in row 1"),
        ([0, -1, 1], "{} takes class numbers 0, 1, 2, .*it holds -1"),
        ([0, 10**400, 1], "{} takes class numbers 0, 1, 2"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_labels_that_are_none_are_refused_with_the_row(make, labels, words):
    with pytest.raises(ValueError, match=words.format("y")):
        make(X[:3], labels)
    known = [0, 1, 2] if isinstance(labels[0], int | float) else ["a", "b", "c"]
    with pytest.raises(ValueError, match=words.format("y_validation")):
        make(X[:3], known, X[:3], np.array(labels, object) if isinstance(labels[0], bytes) else labels)


@classifiers
@pytest.mark.parametrize("dtype", [float, np.float32, np.float16, object, np.uint8])
def test_whole_numbers_of_any_dtype_are_class_numbers(make, dtype):
    problem = make(X, Y.astype(dtype), X, Y.astype(dtype))
    assert problem.y.dtype.kind in "iu"
    np.testing.assert_array_equal(problem.y, Y)
    np.testing.assert_array_equal(problem.held_out().y, Y)
    assert problem.labels is None


def test_truth_values_and_texts_are_predicted_as_they_were_given():
    for labels in (Y == 1, (Y == 1).astype(object), TEXTS, TEXTS.astype(object), TEXTS.astype(np.dtypes.StringDType())):
        problem = ps.SoftmaxRegression(X, labels, X, labels)
        predicted = problem.predict({"W": np.zeros((3, 2)), "b": np.array([0.0, 1.0])}, X)
        assert predicted.tolist() == [labels[1]] * 12
        np.testing.assert_array_equal(problem.held_out().y, Y)


@classifiers
@pytest.mark.parametrize("labels", [[0] * 12, [2.0] * 12, ["a"] * 12, [True] * 12], ids=repr)
def test_one_class_is_refused_unless_the_number_of_classes_is_given(make, labels):
    with pytest.raises(ValueError, match=r"y holds one class, .*, in all its rows.*classes="):
        make(X, labels)


def test_a_part_of_the_rows_may_hold_one_class():
    problem = ps.SoftmaxRegression(X, np.sort(Y), X[:3], [0, 0, 0])
    assert {problem.shard(0, 2).classes, problem.subset([0, 1]).classes, problem.held_out().classes} == {2}
    assert ps.SoftmaxRegression(X, np.zeros(12, int), classes=2).classes == 2
    with pytest.raises(ValueError, match="one class, 0"):
        ps.SoftmaxRegression(X, np.zeros(12, int), classes=1)
    with pytest.raises(ValueError, match="y has 2 labels but classes=3"):
        ps.SoftmaxRegression(X, TEXTS, classes=3)
    assert ps.SoftmaxRegression(X, np.zeros(12, int), classes=np.int64(2)).classes == 2
    for wrong in ([0, 1], "2", 2.0, True, 0, -1):
        with pytest.raises(ValueError, match="classes must be a whole number of at least 1"):
            ps.SoftmaxRegression(X, TEXTS, classes=wrong)


# Numbers


def spoilt(values, value):
    values = np.array(values)
    values[2, -1] = value
    return values


KINDS = {
    "dense": lambda rows: rows,
    "float32": lambda rows: rows.astype("f4"),
    "sparse": sparse.csr_matrix,
    "coordinates": sparse.coo_array,
    "objects": lambda rows: rows.astype(object),
    "transposed": lambda rows: np.asfortranarray(rows),
}


@every_maker
@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_in_the_rows_is_refused_with_its_column(make, kind, value):
    rows, last = (CLICKS, 3) if make is MAKERS["clicks"] else (X, 2)
    held = "NaN or no value" if np.isnan(value) else "infinity"
    with pytest.raises(ValueError, match=f"The column {last} of X holds {held} in row 2"):
        make(kind(spoilt(rows, value)), Y)
    with pytest.raises(ValueError, match=f"The column {last} of X_validation holds {held} in row 2"):
        make(rows, Y, kind(spoilt(rows, value)), Y)
    problem = make(rows, Y)
    params = problem.init(np.random.default_rng(0))
    with pytest.raises(ValueError, match=f"The column {last} of X holds {held} in row 2"):
        problem.predict(params, kind(spoilt(rows, value)))


class NotAvailable:
    """As pandas.NA, which is neither true nor false where it is compared."""

    def __eq__(self, other):
        return self

    def __hash__(self):
        return 0

    def __repr__(self):
        return "<NA>"

    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")


@pytest.mark.parametrize("hole", [None, np.nan, NotAvailable(), np.datetime64("NaT", "s")], ids=repr)
def test_a_hole_in_a_column_of_objects_is_named(hole):
    frame = Table(age=np.array([1, hole, 3], object), height=np.array([1, 2, 3], object))
    assert is_missing(hole)
    with pytest.raises(ValueError, match="The column 'age' of X holds NaN or no value in row 1"):
        ps.LinearRegression(frame, [0, 1, 2])
    with pytest.raises(ValueError, match="y holds NaN or no value in row 1"):
        ps.LinearRegression(X[:3], np.array([1, hole, 3], object))


@pytest.mark.parametrize(("value", "words"), [(np.nan, "NaN or no value"), (np.inf, "infinity"), (1e300, r"1e\+300")])
def test_targets_are_finite_in_the_type_of_the_rows(value, words):
    y = [0.0, value, 2.0]
    with pytest.raises(ValueError, match=f"y holds {words} in row 1"):
        ps.LinearRegression(X[:3].astype("f4"), y)
    with pytest.raises(ValueError, match=f"y_validation holds {words} in row 1"):
        ps.LinearRegression(X.astype("f4"), TARGET, X[:3].astype("f4"), y)
    if np.isfinite(value):
        assert ps.LinearRegression(X[:3], y).y[1] == value


def test_whole_numbers_beyond_floats_are_named():
    with pytest.raises(ValueError, match="The column 1 of X holds something that is not a number: int too large"):
        ps.LinearRegression([[1, 10**400]], [0])
    with pytest.raises(ValueError, match="y holds something that is not a number: int too large"):
        ps.LinearRegression([[1]], [10**400])
    with pytest.raises(ValueError, match=r"X cannot be made an array: .*inhomogeneous"):
        ps.LinearRegression([[1, 2], [3]], [0, 1])


def test_an_own_problem_may_hold_what_it_can_use():
    class Imputes(ps.Problem):
        def init(self, rng):
            return {"w": np.zeros(1)}

        def loss_and_gradient(self, params, rows=None):
            return float(np.nansum(self.X)), {"w": np.zeros(1)}

    problem = Imputes([[np.nan], [2.0]], ["a", None])
    assert problem.loss({}) == 2.0
    assert problem.y.tolist() == ["a", None]


# Half floats

MANY = 70_000
"""More rows than the largest half float."""


def halves(make, dtype, **options):
    draws = np.random.default_rng(0)
    rows = draws.normal(size=(MANY, 3)).astype("f2")
    y = (rows @ np.array([1, -2, 3], "f4") > 0).astype(int)
    if make is ps.ClickModel:
        rows = np.column_stack([draws.integers(0, 3, MANY), rows])
    return make(rows.astype(dtype), y, **options)


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (ps.LinearRegression, {"l2": 0.1}),
        (ps.SoftmaxRegression, {"l2": 0.1}),
        (ps.SoftmaxRegression, {"weights": np.arange(MANY) == 7}),
        (ps.LinearRegression, {"weights": np.arange(MANY) % 2}),
        (ps.MLP, {"hidden": 3, "l2": 0.1}),
        (ps.ClickModel, {}),
        (ps.ClickModel, {"rows": False}),
    ],
    ids=["linear", "softmax", "softmax of one row", "linear with weights", "mlp", "rows", "no rows"],
)
def test_half_floats_are_summed_and_divided_in_float32(make, options):
    half, single = halves(make, "f2", **options), halves(make, "f4", **options)
    params = {name: p + np.float16(0.25) for name, p in half.init(np.random.default_rng(0)).items()}
    wide = {name: p.astype("f4") for name, p in params.items()}
    (loss, gradient), (expected, exact) = half.loss_and_gradient(params), single.loss_and_gradient(wide)
    assert loss == pytest.approx(expected, rel=1e-4)
    assert half.held_out() is None
    for name, g in gradient.items():
        assert g.dtype == np.float16
        ours, theirs = (x.summed().values if isinstance(x, ps.Rows) else x for x in (g, exact[name]))
        np.testing.assert_allclose(ours.astype("f4"), theirs, rtol=2e-3, atol=1e-6)
        assert np.any(ours)
    assert half.accuracy(params) == single.accuracy(wide)
    np.testing.assert_allclose(half.predict(params, half.X), single.predict(wide, single.X), rtol=1e-4)


def test_half_floats_train_as_single_ones_do():
    config = ps.Config(workers=1, steps=20, batch_size=None, optimizer=ps.SGD(lr=1.0))
    runs = [ps.train(halves(ps.SoftmaxRegression, dtype), config, engine="simulated") for dtype in ("f2", "f4")]
    np.testing.assert_allclose(runs[0].params["W"], runs[1].params["W"], atol=0.02)
    exact = halves(ps.LinearRegression, "f4").solution()
    np.testing.assert_allclose(halves(ps.LinearRegression, "f2").solution()["w"], exact["w"], rtol=2e-3)


BIG = np.full(4, 60_000, "f2")


@pytest.mark.parametrize(
    "aggregator",
    [ps.Mean(), ps.Median(), ps.TrimmedMean(), ps.WeightedMean(), ps.StalenessWeighted(), ps.Krum(bad=0, select=2)],
    ids=repr,
)
def test_aggregators_combine_half_floats_in_float32(aggregator):
    some = [Contribution(worker, 0, 0, {"w": BIG}, rows=1.0 + 3 * worker) for worker in range(4)]
    combined = aggregator.combine(some)["w"]
    np.testing.assert_array_equal(combined, BIG, strict=True)
    tiny = [Contribution(worker, 0, 0, {"w": np.full(1, 0.001 * (worker == 0) + 1, "f2")}) for worker in range(3)]
    if isinstance(aggregator, ps.Mean | ps.StalenessWeighted):  # 1.001 and two times 1, rounded once
        expected = np.mean([one.gradients["w"].astype(float) for one in tiny], axis=0).astype("f2")
        np.testing.assert_array_equal(aggregator.combine(tiny)["w"], expected)


class Steep(ps.LinearRegression):
    """Its gradient is near the end of half floats."""

    def loss_and_gradient(self, params, rows=None):
        return 1.0, {"w": np.full(3, 60_000, "f2"), "b": np.zeros((), "f2")}


def test_batches_of_half_floats_are_averaged_in_float32():
    config = ps.Config(workers=1, steps=1, accumulate=3, batch_size=4, optimizer=ps.SGD(lr=1e-4))
    run = ps.train(Steep(X.astype("f2"), Y), config, engine="simulated")
    assert run.diverged is None
    np.testing.assert_allclose(run.params["w"], -6.0, rtol=1e-3)
    rows = ps.Rows([1, 1, 1], np.full((3, 1), 1000.5, "f2"))
    assert rows.summed().values.dtype == np.float16
    many = ps.Rows(np.zeros(5000, int), np.full((5000, 1), 2**-10, "f2")).summed()
    assert many.values == np.float16(5000 * 2**-10)


def test_data_sets_of_half_floats_are_standardised():
    half, single = (ps.datasets.diabetes(dtype=dtype) for dtype in ("f2", "f4"))
    assert half.y.dtype == np.float16
    np.testing.assert_allclose(half.y, single.y, atol=0.01)


# The columns of a frame


@pytest.fixture(scope="module")
def framed():
    return ps.train(ps.SoftmaxRegression(FRAME, TEXTS, FRAME, TEXTS), ONE_STEP, engine="simulated")


OTHER = [
    (["height", "age", "weight"], "X has 'height' in the place of 'age'"),
    (["age", "height"], "X lacks 'weight'"),
    (["age", "height", "weight", "shoe"], "X also has 'shoe'"),
]


@pytest.mark.parametrize(("names", "words"), OTHER, ids=["order", "fewer", "more"])
def test_a_frame_of_other_columns_is_not_predicted(framed, names, words, tmp_path):
    frame = Table(age=X[:, 0], height=X[:, 1], weight=X[:, 2], shoe=X[:, 2])[names]
    framed.save(tmp_path / "run.npz")
    for run in (framed, ps.Run.load(tmp_path / "run.npz")):
        for how in (run.predict, run.predict_proba):
            with pytest.raises(
                ValueError, match=f"in the same order: {words}. Choose the columns 'age', 'height', 'wei"
            ):
                how(frame)
        with pytest.raises(ValueError, match=words):
            run.problem.predict(run.params, frame)
    with pytest.raises(ValueError, match=words.replace("X", "X_validation")):
        ps.LinearRegression(FRAME, TARGET, frame, TARGET)


@pytest.mark.parametrize("make", [ps.LinearRegression, ps.MLP, ps.ClickModel])
def test_every_problem_remembers_the_columns(make):
    frame = Table(item=Y, age=X[:, 0])
    run = ps.train(make(frame, Y), ONE_STEP, engine="simulated")
    assert run.problem.feature_names == ["item", "age"]
    assert run.problem.shard(0, 2).feature_names == ["item", "age"]
    np.testing.assert_array_equal(run.predict(frame), run.predict(np.asarray(frame)))
    with pytest.raises(ValueError, match="X has 'age' in the place of 'item'"):
        run.predict(frame[["age", "item"]])


def test_an_own_problem_gets_the_frame_and_only_of_its_columns():
    class Own(ps.LinearRegression):
        def predict(self, params, X):
            return X

    run = ps.train(Own(FRAME, TARGET), ONE_STEP, engine="simulated")
    assert run.predict(FRAME) is FRAME
    with pytest.raises(ValueError, match="X has 'weight' in the place of 'age'"):
        run.predict(FRAME[["weight", "age", "height"]])


def test_arrays_have_no_names_to_compare(framed):
    expected = framed.predict(FRAME)
    np.testing.assert_array_equal(framed.predict(X), expected)
    numbered = Table(**{str(number): column for number, column in enumerate(X.T)})
    numbered.columns = [0, 1, 2]  # as a frame has that was made of an array
    np.testing.assert_array_equal(framed.predict(numbered), expected)
    plain = ps.train(ps.SoftmaxRegression(X, TEXTS), ONE_STEP, engine="simulated")
    assert plain.problem.feature_names is None
    np.testing.assert_array_equal(plain.predict(FRAME), expected)
    with pytest.raises(ValueError, match=r"Expected X of shape \(rows, 3\), as the training rows have; got \(12, 2\)"):
        plain.predict(FRAME[["age", "height"]])


def test_a_run_is_not_taken_up_with_its_columns_in_another_order(framed, tmp_path):
    framed.save(tmp_path / "run.npz")
    turned = ps.SoftmaxRegression(FRAME[["weight", "height", "age"]], TEXTS)
    words = "differ in their columns: 'weight', 'height', 'age' and 'age', 'height', 'weight'"
    with pytest.raises(ValueError, match=words):
        ps.Run.load(tmp_path / "run.npz", turned)
    with pytest.raises(ValueError, match=words):
        ps.train(turned, replace(ONE_STEP, steps=4), engine="simulated", resume=tmp_path / "run.npz")


def test_a_problem_of_an_older_file_knows_no_columns(framed):
    kept = {name: x for name, x in framed.problem.kept().items() if name != "feature_names"}
    older = ps.SoftmaxRegression.restored(kept)
    expected = framed.predict(X)
    np.testing.assert_array_equal(older.predict(framed.params, FRAME[["age", "height", "weight"]]), expected)
    np.testing.assert_array_equal(older.predict(framed.params, X), expected)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_of_libraries(library):
    frames = pytest.importorskip(library)
    columns = {"age": [1.0, 2.0, 3.0, 5.0], "height": [2, 1, 4, 3]}
    frame = frames.DataFrame(columns)
    run = ps.train(ps.SoftmaxRegression(frame, frames.Series(["a", "b", "a", "b"])), ONE_STEP, engine="simulated")
    assert run.problem.feature_names == ["age", "height"]
    assert run.predict(frame).tolist() == run.predict(frame.to_numpy()).tolist()
    with pytest.raises(ValueError, match="X has 'height' in the place of 'age'"):
        run.predict(frame[["height", "age"]])
    with pytest.raises(ValueError, match="in place of a label in row 1"):
        ps.SoftmaxRegression(frame, frames.Series(["a", None, "a", "b"]))
    with pytest.raises(ValueError, match="The column 'height' of X holds NaN or no value in row 1"):
        ps.SoftmaxRegression(frames.DataFrame({**columns, "height": [2, None, 4, 3]}), [0, 1, 0, 1])
    if library == "pandas":
        nullable = frame.assign(height=frames.array([2, None, 4, 3], dtype="Int64"))
        with pytest.raises(ValueError, match="The column 'height' of X holds NaN or no value in row 1"):
            ps.LinearRegression(nullable, [0, 1, 0, 1])
        with pytest.raises(ValueError, match="in place of a label in row 1"):
            ps.SoftmaxRegression(frame, frames.array([0, None, 1, 0], dtype="Int64"))


# Losses


class Loses(ps.LinearRegression):
    """Its loss is of another type."""

    def __init__(self, of):
        super().__init__(X, TARGET, X, TARGET)
        self.of = of

    def loss_and_gradient(self, params, rows=None):
        loss, gradient = super().loss_and_gradient(params, rows)
        return self.of(loss), gradient


def an_array(loss):
    return np.array([loss])


WAYS = [
    ("threads", {}),
    ("threads", {"accumulate": 2}),
    ("simulated", {"exchange": "ring"}),
    ("simulated", {"local": ps.LocalSteps(2), "optimizer": ps.SGD(1.0)}),
]
every_way = pytest.mark.parametrize(("engine", "fields"), WAYS, ids=["threads", "batches", "ring", "local steps"])


@every_way
@pytest.mark.parametrize("of", [an_array, np.float64, np.array, Decimal], ids=["(1,)", "scalar", "()", "decimal"])
def test_a_loss_of_one_value_is_a_number(engine, fields, of):
    config, evals = replace(ONE_STEP, **fields), []
    run, plain = (ps.train(Loses(one), config, engine=engine, every=2, on_eval=evals.append) for one in (of, float))
    assert [(step, loss) for _, step, loss in run.losses] == [(step, loss) for _, step, loss in plain.losses]
    assert type(run.validation_loss) is float
    assert run.validation_loss == plain.validation_loss == evals[0].validation_loss
    assert type(evals[0].validation_loss) is float


@every_way
@pytest.mark.parametrize(
    "wrong",
    [
        complex,
        str,
        lambda loss: None,
        lambda loss: np.ones(2),
        lambda loss: np.array([]),
        lambda loss: np.complex128(1),
    ],
    ids=["complex", "text", "None", "two", "nothing", "complex scalar"],
)
def test_a_loss_that_is_not_one_number_is_named(engine, fields, wrong):
    with pytest.raises(RuntimeError, match=r"TypeError: The loss must be one number, .*got"):
        ps.train(Loses(wrong), replace(ONE_STEP, **fields), engine=engine)


def test_the_loss_of_a_push_is_a_number():
    with by_hand() as (server, client):
        with pytest.raises(TypeError, match=r"The loss of a push must be one number.*got an array of shape \(2,\)"):
            client.push({"w": np.ones(3)}, loss=np.ones(2))
        client.push_pull({"w": np.ones(3)}, loss=np.array([2.5])).result(10)
        assert ps.status(server.address, server.token).loss == 2.5


def test_a_problem_whose_loss_is_an_array_of_one_value_passes_its_check():
    ps.testing.check(Loses(an_array))


def test_numbers_are_one_value():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [as_number(x, "It") for x in (1, np.float32(2), np.array([[3]]), np.True_)] == [1, 2, 3, 1]
        assert as_array(["a", "b"], "It").dtype.kind == "U"
        assert as_array(["a", 1], "It").tolist() == ["a", 1]


# Rate or data


class Breaks(ps.LinearRegression):
    """Its loss or its gradient is not finite, from a clock of its worker on."""

    def __init__(self, what, moved):
        super().__init__(X, TARGET)
        self.what, self.moved = what, moved

    def loss_and_gradient(self, params, rows=None):
        loss, gradient = super().loss_and_gradient(params, rows)
        if params["w"].any() or not self.moved:
            return (np.nan, gradient) if self.what == "loss" else (loss, {**gradient, "w": np.full(3, np.inf)})
        return loss, gradient


@every_way
@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_before_any_update_the_data_are_to_blame_and_not_the_rate(engine, fields, what):
    with pytest.raises(
        RuntimeError, match="No update was made before, so the learning rate is not the cause"
    ) as caught:
        ps.train(Breaks(what, moved=False), replace(ONE_STEP, **fields), engine=engine)
    assert "Lower the learning rate" not in str(caught.value)
    run = ps.train(Breaks(what, moved=True), replace(ONE_STEP, steps=4, **fields), engine=engine)
    assert run.diverged.count("Lower the learning rate, or look for") == 1
    assert "No update" not in run.diverged


def test_a_rate_that_is_too_large_at_the_first_step_is_to_blame():
    for fields in ({}, {"exchange": "ring"}):
        config = ps.Config(workers=1, steps=3, optimizer=ps.SGD(lr=1e39), **fields)
        run = ps.train(ps.LinearRegression(X.astype("f4"), TARGET), config, engine="simulated")
        assert "Update 1 would make" in run.diverged
        assert "Lower the learning rate" in run.diverged
    config = ps.Config(workers=1, steps=1, optimizer=ps.SGD(lr=1), local=ps.LocalSteps(1, ps.SGD(lr=1e39)))
    run = ps.train(ps.LinearRegression(X.astype("f4"), TARGET), config, engine="simulated")
    assert "The difference of local steps" in run.diverged
    assert "Lower the learning rate" in run.diverged


def test_a_push_by_hand_says_what_may_be_the_cause():
    with by_hand() as (_, client):
        with pytest.raises(ValueError, match="No update was made before"):
            client.push({"w": np.full(3, np.nan)})
        client.push_pull({"w": np.ones(3)}).result(10)
        with pytest.raises(ValueError, match="Lower the learning rate"):
            client.push({"w": np.full(3, np.nan)})


# Clicks


def test_a_click_model_predicts():
    data = ps.datasets.clicks(rows=2000, items=20, width=3, dtype="float64")
    config = ps.Config(workers=2, steps=100, optimizer=ps.Adagrad(0.3))
    run = ps.train(ps.ClickModel(*data), config, engine="simulated")
    predicted, proba = run.predict(data.X_validation), run.predict_proba(data.X_validation)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_array_equal(predicted, proba.argmax(axis=1))
    assert (predicted == data.y_validation).mean() > 0.75  # half of the rows are clicks
    problem = ps.ClickModel(CLICKS, Y, items=4)
    far = {"E": np.full((4, 3), 1e4), "w": np.zeros(3), "b": np.zeros(())}
    assert np.isfinite(problem.predict_proba(far, CLICKS)).all()
    for item, words in ((4.0, "X holds the item 4, but items are 0 to 3"), (-1.0, "items 0, 1"), (0.5, "items 0, 1")):
        with pytest.raises(ValueError, match=words):
            problem.predict(far, np.column_stack([np.full(12, item), X]))
    with pytest.raises(ValueError, match="ClickModel needs dense rows; got X as a sparse matrix"):
        ps.ClickModel(sparse.csr_matrix(CLICKS), Y)
    with pytest.raises(ValueError, match="ClickModel takes y_validation of 0 and 1"):
        ps.ClickModel(CLICKS, Y, CLICKS, Y + 1)


# Arguments of problems, and other objects


class Hides:
    """An object of another library that turns out to be a masked array."""

    def __array__(self, dtype=None, copy=None):
        return MASKED


def test_an_object_that_becomes_a_masked_array_is_refused():
    with pytest.raises(ValueError, match="X is a masked array"):
        ps.SoftmaxRegression(Hides(), Y)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ps.SoftmaxRegression(X, Y, classes="2"), "classes must be a whole number of at least 1; got '2'"),
        (lambda: ps.SoftmaxRegression(X, Y, classes=2.0), "classes must be a whole number .* got 2.0"),
        (lambda: ps.MLP(X, Y, hidden=0), "hidden must be a whole number of at least 1; got 0"),
        (lambda: ps.ClickModel(CLICKS, Y, items="5"), "items must be a whole number of at least 1; got '5'"),
        (lambda: ps.LinearRegression(X, TARGET, l2="a"), "l2 must be a finite number of at least 0; got 'a'"),
        (lambda: ps.SoftmaxRegression(X, Y, l2=np.nan), "l2 must be a finite number of at least 0; got nan"),
        (lambda: ps.MLP(X, Y, l2=-1), "l2 must be a finite number of at least 0; got -1"),
        (lambda: ps.ClickModel(CLICKS + 0.5, Y), r"items 0, 1, 2, … in the first column of X; row 0 has 0\.5"),
        (lambda: ps.ClickModel(CLICKS, [*Y[:-1], None]), "y of 0 and 1; row 11 has None"),
        (lambda: ps.MLP(X, Y, weights=[np.nan] * 12), "A weight must be finite and at least 0; got nan for row 0"),
        (lambda: ps.MLP(X, Y, weights=[0] * 12), "All weights are 0"),
    ],
)
def test_wrong_arguments_of_problems_are_refused_when_they_are_made(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_numbers_of_numpy_count_and_weights_of_any_size_have_the_mean_1():
    assert ps.MLP(X, Y, hidden=np.int64(3), classes=np.int32(4)).init(rng)["W"].shape == (3, 4)
    for weights in ([1e308] * 12, [5e-324] * 12, [5e-324] + [0] * 11):
        assert ps.SoftmaxRegression(X, Y, weights=weights).weights.mean() == pytest.approx(1)


@pytest.mark.parametrize("names", [[0.5, 1.5, 2.5], [("a", 1), ("a", 2), ("b", 1)], [np.datetime64("2020"), 1, "c"]])
def test_names_that_are_not_texts_are_compared_too(names, tmp_path):
    def frame(order):
        table = Table(age=X[:, order[0]], height=X[:, order[1]], weight=X[:, order[2]])
        table.columns = [names[column] for column in order]
        return table

    ps.train(ps.SoftmaxRegression(frame([0, 1, 2]), Y), ONE_STEP, engine="simulated").save(tmp_path / "run.npz")
    run = ps.Run.load(tmp_path / "run.npz")
    assert run.predict(frame([0, 1, 2])).shape == (12,)
    for other in (frame([1, 0, 2]), FRAME):
        with pytest.raises(ValueError, match="The columns of X must be those of the training rows"):
            run.predict(other)
    with pytest.raises(ValueError, match="predict takes rows of X"):
        run.predict(None)
