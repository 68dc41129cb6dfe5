"""The scikit-learn estimators, by scikit-learn's own checks and against its own models."""

import numpy as np
import pytest
from joblib.externals.loky import get_reusable_executor
from scipy import sparse
from sklearn import datasets
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
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
    with pytest.raises(ValueError, match="'rose', which is none of the classes"):
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
