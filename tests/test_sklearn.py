"""The scikit-learn estimators, by scikit-learn's own checks and against its own models."""

import inspect

import numpy as np
import pytest
from joblib.externals.loky import get_reusable_executor
from scipy import sparse
from sklearn import datasets
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.estimator_checks import parametrize_with_checks

import minips as ps
from minips.sklearn import PSClassifier, PSRegressor

LIKE_SGD = "sample weights change the batches that are drawn, as in scikit-learn's own SGDClassifier and SGDRegressor"


def expected_failures(estimator):
    return {
        "check_sample_weight_equivalence_on_dense_data": LIKE_SGD,
        "check_sample_weight_equivalence_on_sparse_data": LIKE_SGD,
    }


@pytest.mark.soak
@parametrize_with_checks([PSClassifier(), PSRegressor()], expected_failed_checks=expected_failures)
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


@pytest.mark.soak
@pytest.mark.parametrize(
    ("load", "ours", "theirs", "within"),
    [
        (datasets.load_digits, PSClassifier, LogisticRegression(max_iter=1000), 0.01),
        (datasets.load_breast_cancer, PSClassifier, LogisticRegression(max_iter=1000), 0.01),
        (datasets.load_diabetes, PSRegressor, Ridge(), 0.02),
    ],
    ids=["digits", "breast_cancer", "diabetes"],
)
def test_as_good_as_scikit_learns_own_models(load, ours, theirs, within):
    X, y = load(return_X_y=True)
    mine, reference = (
        cross_val_score(make_pipeline(StandardScaler(), model), X, y, cv=5).mean()
        for model in (ours(random_state=0), theirs)
    )
    assert mine >= reference - within


X, Y = datasets.load_iris(return_X_y=True)
X = StandardScaler().fit_transform(X)
NAMES = np.array(["setosa", "versicolor", "virginica"])


def test_stages_by_value_by_name_and_with_their_fields():
    exact = PSClassifier(random_state=0).fit(X, Y)
    same = PSClassifier(random_state=0, consistency=ps.BSP(), quantizer={"name": "exact"}).fit(X, Y)
    fewer = PSClassifier(
        random_state=0, quantizer="topk:fraction=0.1", memory="errorfeedback", optimizer="sgd:lr=0.2"
    ).fit(X, Y)
    np.testing.assert_array_equal(same.coef_, exact.coef_)
    assert fewer.score(X, Y) > 0.9
    assert not (fewer.coef_ == exact.coef_).all()


@pytest.mark.soak
@pytest.mark.alone
@pytest.mark.outside  # joblib keeps a pipe
def test_any_labels_in_a_pipeline_a_grid_and_several_processes(monkeypatch, tmp_path):
    monkeypatch.setenv("JOBLIB_TEMP_FOLDER", str(tmp_path))
    grid = GridSearchCV(
        make_pipeline(StandardScaler(), PSClassifier(steps=100, random_state=0)),
        {"psclassifier__quantizer": ["exact", "sign"], "psclassifier__memory": ["errorfeedback"]},
        n_jobs=2,
        cv=3,
    )
    try:
        grid.fit(X, NAMES[Y])
    finally:
        get_reusable_executor().shutdown(wait=True, kill_workers=True)  # joblib would keep them
    assert grid.score(X, NAMES[Y]) > 0.9
    assert set(grid.predict(X)) <= set(NAMES)
    np.testing.assert_allclose(grid.predict_proba(X).sum(axis=1), 1)


def test_sparse_rows_give_what_dense_ones_give():
    dense = PSClassifier(steps=50, random_state=0).fit(X, Y)
    thin = PSClassifier(steps=50, random_state=0).fit(sparse.csr_matrix(X), Y)
    np.testing.assert_allclose(thin.coef_, dense.coef_)


def test_a_weight_of_zero_leaves_a_row_out_of_the_loss():
    weights = (Y != 2).astype(float)
    fitted = PSClassifier(batch_size=None, random_state=0).fit(X, Y, sample_weight=weights)
    assert not (fitted.predict(X) == 2).any()


def test_partial_fit_goes_on():
    model = PSClassifier(random_state=0)
    for _ in range(30):
        model.partial_fit(X, NAMES[Y], classes=NAMES)
    assert model.score(X, NAMES[Y]) > 0.9
    assert model.n_iter_ == 30 * 3 == len(model.history_)
    with pytest.raises(ValueError, match="'rose', which is not one of the classes"):
        model.partial_fit(X[:2], np.array(["setosa", "rose"]))


@pytest.mark.parametrize("make", [PSClassifier, PSRegressor])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize(("first", "then"), [("f4", "f8"), ("f8", "f4")])
def test_partial_fit_keeps_the_type_of_the_first_rows(make, form, first, then):
    model = make(random_state=0)
    classes = {"classes": [0, 1, 2]} if make is PSClassifier else {}
    model.partial_fit(form(X.astype(first)), Y, **classes).partial_fit(
        form(X.astype(then)), Y, sample_weight=np.ones(len(Y))
    )
    assert model.coef_.dtype == model.intercept_.dtype == first


@pytest.mark.parametrize("make", [PSClassifier, PSRegressor])
def test_no_steps_and_no_workers_are_refused(make):
    with pytest.raises(ValueError, match=r"Config\.steps must be at least 1; got 0"):
        make(steps=0).fit(X, Y)
    classes = {"classes": [0, 1, 2]} if make is PSClassifier else {}
    for train, more in (("fit", {}), ("partial_fit", classes)):
        with pytest.raises(ValueError, match=r"^workers must be at least 1; got 0\.$"):
            getattr(make(workers=0), train)(X, Y, **more)


def test_a_run_that_diverges_warns():
    with pytest.warns(ConvergenceWarning, match="Lower the learning rate"):
        PSRegressor(optimizer="sgd:lr=1e30", random_state=0).fit(X, Y)


@pytest.mark.parametrize(
    "labels",
    [NAMES[Y], pytest.param(Y, marks=pytest.mark.soak), pytest.param(Y.astype(float), marks=pytest.mark.soak)],
    ids=["texts", "whole", "floats"],
)
def test_class_weights_are_those_of_logistic_regression(labels):
    classes = np.unique(labels).tolist()
    rows, half = Y < 2, np.where(Y == 1, 0.5, 1.0)  # fewer rows of the last class
    rows[-7:] = True
    given = {"balanced": "balanced", "some": {classes[1]: 3.0}, "none": {}}
    for weights in (None, half[rows]):
        for class_weight in given.values():
            theirs = compute_class_weight(
                class_weight, classes=np.array(classes), y=labels[rows], sample_weight=weights
            )[Y[rows]]
            plain = PSClassifier(steps=20, random_state=0)
            expected = plain.fit(X[rows], labels[rows], theirs if weights is None else theirs * weights).coef_
            fitted = PSClassifier(steps=20, random_state=0, class_weight=class_weight)
            fitted.fit(X[rows], labels[rows], weights)
            np.testing.assert_allclose(fitted.coef_, expected, rtol=1e-12)


def test_a_balanced_classifier_finds_the_rare_class_as_logistic_regression_does():
    rng = np.random.default_rng(0)
    y = (rng.random(2000) < 0.03).astype(int)
    rows = rng.normal(size=(2000, 2)) + y[:, None]
    ours = PSClassifier(class_weight="balanced", batch_size=None, steps=100, random_state=0).fit(rows, y)
    theirs = LogisticRegression(class_weight="balanced").fit(rows, y)
    assert (ours.predict(rows) == theirs.predict(rows)).mean() > 0.99
    plain = PSClassifier(batch_size=None, steps=100, random_state=0).fit(rows, y)
    assert plain.predict(rows).sum() < ours.predict(rows).sum() / 5


@pytest.mark.parametrize(
    ("class_weight", "said"),
    [
        ("balance", "class_weight takes None, 'balanced', or a dict of weights by class; got 'balance'"),
        ([1, 2, 3], "class_weight takes None, 'balanced', or a dict"),
        ({0: -1}, "class_weight has -1 for 0; expected a finite number of at least 0"),
        ({0: np.nan}, "class_weight has nan for 0"),
        ({0: "2"}, "class_weight has '2' for 0"),
        ({0: 1, 7: 2}, r"class_weight has 7, which is not one of the classes \[0, 1, 2\]"),
        ({0: 0, 1: 0, 2: 0}, "All weights are 0"),
    ],
)
def test_wrong_class_weights_are_refused_in_a_sentence(class_weight, said):
    with pytest.raises(ValueError, match=said):
        PSClassifier(class_weight=class_weight).fit(X, Y)


def test_balanced_class_weights_need_all_rows():
    with pytest.raises(ValueError, match=r"partial_fit sees only some .* class_weight='balanced' needs all"):
        PSClassifier(class_weight="balanced").partial_fit(X, Y, classes=[0, 1, 2])
    weighed = PSClassifier(class_weight={2: 0.0}, random_state=0)
    for _ in range(5):
        weighed.partial_fit(X, Y, classes=[0, 1, 2])
    assert not (weighed.predict(X) == 2).any()


def test_parameters_are_cloned_searched_and_named():
    model = PSClassifier(class_weight={0: 2.0}, engine=ps.Simulated(compute_s=1), pull=ps.Codec("sign"))
    assert clone(model).get_params() == model.get_params()
    assert clone(model).set_params(class_weight="balanced").class_weight == "balanced"
    assert "class_weight" in inspect.signature(PSClassifier).parameters
    assert "class_weight" not in PSRegressor().get_params()
    assert {*PSClassifier().get_params()} == {*PSRegressor().get_params(), "class_weight"}
    grid = {"class_weight": [None, "balanced", {0: 5.0}], "engine": ["threads", "simulated"]}
    found = GridSearchCV(PSClassifier(steps=5, random_state=0), grid, cv=2).fit(X, Y).cv_results_["mean_test_score"]
    np.testing.assert_array_equal(found[::2], found[1::2])  # the engines give the same

    for make, given, said in (
        (PSClassifier, {"optimiser": "adam"}, r"^PSClassifier has no parameter 'optimiser'.*Did you mean optimizer\?$"),
        (PSRegressor, {"class_weight": None}, r"^PSRegressor has no parameter 'class_weight'\. Known: .*steps"),
    ):
        with pytest.raises(TypeError, match=said):
            make(**given)
    with pytest.raises(TypeError, match=r"^PSClassifier takes its parameters by name, such as workers=2; got 4\.$"):
        PSClassifier(4)


class Named(PSRegressor):
    def __init__(self, penalty, steps=10):
        super().__init__(steps=steps)
        self.penalty = penalty


class Plain(PSClassifier):
    pass


def test_a_subclass_has_its_own_name_and_parameters():
    assert clone(Named(3)).get_params() == {"penalty": 3, "steps": 10}
    assert clone(Plain(workers=3, class_weight="balanced")).get_params()["class_weight"] == "balanced"
    for make, given, said in (
        (Named, {"penality": 3}, r"^Named\.__init__\(\) got an unexpected keyword argument 'penality'"),
        (Plain, {"worker": 3}, r"^Plain has no parameter 'worker'\. Known: .*Did you mean workers\?$"),
    ):
        with pytest.raises(TypeError, match=said):
            make(**given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"workers": "2"}, r"workers must be at least 1; got '2'"),
        ({"workers": 2.5}, r"workers must be at least 1; got 2\.5"),
        ({"batch_size": "all"}, r"Config\.batch_size takes an int, got 'all'"),
        ({"l2": -1}, r"l2 must be a finite number of at least 0; got -1"),
        ({"l2": "much"}, r"l2 must be a finite number of at least 0; got 'much'"),
        ({"pull": 5}, r"Config\.pull takes a Codec, got 5"),
        ({"quantizer": "topkk:fraction=1"}, r"no quantizer named 'topkk'.*Did you mean topk\?"),
        ({"engine": "thread"}, r"no engine named 'thread'.*Did you mean threads\?"),
        ({"engine": "processes", "transport": "inproc"}, r"Processes\(\) cannot use InProc\(\)"),
    ],
    ids=str,
)
def test_wrong_values_are_refused_in_a_sentence(given, said):
    for make in (PSClassifier, PSRegressor):
        with pytest.raises(ValueError, match=said):
            make(**given).fit(X, Y)


LOUD = np.where(np.arange(4) == 2, 1e100, 1)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("make", [PSClassifier, PSRegressor])
@pytest.mark.parametrize(
    ("scale", "dtype", "column"),
    [
        (1e150, "f8", r"\d"),
        (1e-200, "f8", r"\d"),
        (5e307, "f8", r"\d"),
        (5e-320, "f8", r"\d"),
        (LOUD, "f8", "2"),
        (1e20, "f4", r"\d"),
        (1e-20, "f4", r"\d"),
        (1e-42, "f4", r"\d"),
    ],
    ids=str,
)
def test_rows_out_of_range_are_refused_by_their_column(form, make, scale, dtype, column):
    with pytest.raises(ValueError, match=rf"^The column {column} of X has values up to .*scale X"):
        make(steps=5).fit(form((X * scale).astype(dtype)), Y)


@pytest.mark.parametrize("make", [PSClassifier, PSRegressor])
@pytest.mark.parametrize("form", [np.asarray, pytest.param(sparse.csr_matrix, marks=pytest.mark.soak)])
@pytest.mark.parametrize(
    ("scale", "dtype"),
    [(1e70, "f8"), (1e-70, "f8"), (1e9, "f4"), (0, "f8"), ([1, 1e-200, 0, 1e-310], "f8"), ([1, 1e-44, 0, 1], "f4")],
    ids=str,
)
def test_rows_within_range_are_trained_on(make, form, scale, dtype):
    with np.errstate(all="raise", under="ignore"):
        fitted = make(steps=5).fit(form((X * scale).astype(dtype)), Y)
    assert np.isfinite(fitted.coef_).all()
    assert fitted.history_[-1][2] <= fitted.history_[0][2] * 1.1


def test_predictions_and_later_rows_are_in_range_too():
    model = PSClassifier(steps=5).fit(X.astype("f4"), Y)
    with pytest.raises(ValueError, match=r"The column \d of X has values up to .* In float32 the largest"):
        model.predict_proba(X * 1e30)
    with pytest.raises(ValueError, match=r"The column \d of X has values up to .* In float32 the largest"):
        model.partial_fit(X * 1e60, Y)
    with pytest.raises(ValueError, match=r"^y has values up to inf\. In float32 they must be at most 4e\+09: scale y"):
        PSRegressor().fit(X.astype("f4"), Y * 1e60)


@pytest.mark.parametrize("make", [PSClassifier, pytest.param(PSRegressor, marks=pytest.mark.soak)])
@pytest.mark.parametrize("engine", ["simulated:compute_s=0.5", ps.Threads(), "processes"], ids=str)
def test_every_engine_fits_the_same_as_it_stands(make, engine):
    here = make(steps=5, random_state=0).fit(X, Y)
    there = make(steps=5, random_state=0, engine=engine).fit(X, Y)
    np.testing.assert_array_equal(there.coef_, here.coef_)


@pytest.mark.soak
@pytest.mark.outside  # joblib keeps a pipe
def test_processes_are_started_from_those_of_a_grid_search(monkeypatch, tmp_path):
    monkeypatch.setenv("JOBLIB_TEMP_FOLDER", str(tmp_path))
    grid = {"engine": ["threads", "processes"]}
    try:
        found = GridSearchCV(PSClassifier(steps=20, random_state=0), grid, n_jobs=2, cv=2).fit(X, Y)
    finally:
        get_reusable_executor().shutdown(wait=True, kill_workers=True)
    assert len({*found.cv_results_["mean_test_score"]}) == 1


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (["a", None, "b", "a"], "y has None in place of a label in row 1"),
        (np.array(["a", 1, "b", "a"], object), "y holds labels of several kinds, 'a' in row 0 and 1 in row 1"),
        (["a", "a\0", "b", "a"], "y holds 'a.*' in row 1: NumPy strips a NUL"),
    ],
    ids=["hole", "kinds", "nul"],
)
def test_labels_that_scikit_learn_would_confuse_are_refused_in_a_sentence(labels, words):
    X = np.eye(4)
    with pytest.raises(ValueError, match=words):
        PSClassifier(steps=1).fit(X, labels)
    with pytest.raises(ValueError, match=words):
        PSClassifier(steps=1).partial_fit(X, labels, classes=["a", "b"])
    with pytest.raises(ValueError, match=words.replace("y ", "classes ", 1)):
        PSClassifier(steps=1).partial_fit(X, ["a", "b", "b", "a"], classes=labels)


@pytest.mark.parametrize("make", [PSClassifier, PSRegressor])
def test_a_score_refuses_masked_arrays_and_a_regressor_texts(make):
    X, y = np.eye(4), [0, 1, 1, 0]
    model = make(steps=1).fit(X, y)
    assert model.score(X, y) <= 1
    with pytest.raises(ValueError, match="y is a masked array"):
        model.score(X, np.ma.array(y, mask=[1, 0, 0, 0]))
    if make is PSRegressor:
        with pytest.raises(ValueError, match="got y of <U1"):
            make(steps=1).fit(X, ["a"] * 4)
