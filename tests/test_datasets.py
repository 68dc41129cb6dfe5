"""Data to train on."""

import numpy as np
import pytest
import sklearn.datasets

from minips import datasets, seeds

BUNDLED = {datasets.digits: (1797, 64, 10), datasets.breast_cancer: (569, 30, 2), datasets.diabetes: (442, 10, None)}
MAKERS = [*BUNDLED, datasets.synthetic]
every_set = pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)


@pytest.mark.parametrize(("make", "size"), BUNDLED.items(), ids=lambda part: getattr(part, "__name__", None))
def test_sizes_and_classes(make, size):
    rows, features, classes = size
    data = make()
    assert data.X.shape == (rows - round(0.2 * rows), features)
    assert data.X_validation.shape == (round(0.2 * rows), features)
    assert (len(data.y), len(data.y_validation)) == (len(data.X), len(data.X_validation))
    if classes:
        assert data.y.dtype.kind == "i"
        assert set(data.y) == set(range(classes))


@every_set
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_features_are_standardised_on_the_training_rows(make, dtype):
    data = make(dtype=dtype)
    assert data.X.dtype == data.X_validation.dtype == dtype
    np.testing.assert_allclose(data.X.mean(axis=0, dtype="f8"), 0, atol=1e-5)
    deviation = data.X.std(axis=0, dtype="f8")
    np.testing.assert_allclose(deviation[deviation > 0], 1, rtol=1e-5)
    assert abs(data.X_validation.mean(axis=0)).max() > 1e-4  # these have a mean of their own


def test_real_targets_have_the_dtype_and_are_standardised():
    data = datasets.diabetes(dtype="f4")
    assert data.y.dtype == data.y_validation.dtype == np.dtype("f4")
    assert (data.y.mean(), data.y.std()) == (pytest.approx(0, abs=1e-6), pytest.approx(1))


@every_set
def test_a_seed_repeats_and_another_differs(make):
    for one, again, other in zip(make(seed=3), make(seed=3), make(seed=4), strict=True):
        np.testing.assert_array_equal(one, again, strict=True)
        assert not np.array_equal(one, other)


@pytest.mark.parametrize("validation", [0.1, 0.5])
def test_the_split_is_disjoint_and_complete(validation):
    from sklearn.datasets import load_breast_cancer

    data = datasets.breast_cancer(validation=validation, dtype="f8")
    assert len(data.X_validation) == round(validation * 569)
    whole = np.vstack([data.X, data.X_validation])
    assert len(np.unique(whole, axis=0)) == 569
    original, labels = load_breast_cancer(return_X_y=True)
    first, second = (np.sort((rows - rows.min(axis=0)) / np.ptp(rows, axis=0), axis=0) for rows in (whole, original))
    np.testing.assert_allclose(first, second, atol=1e-12)
    assert sorted(np.r_[data.y, data.y_validation]) == sorted(labels)


@pytest.mark.parametrize("validation", [0, 1, -0.1, 2])
def test_a_share_outside_of_zero_and_one_is_refused(validation):
    with pytest.raises(ValueError, match="between 0 and 1"):
        datasets.synthetic(validation=validation)


def test_a_share_that_leaves_no_training_rows_is_refused():
    with pytest.raises(ValueError, match="no rows to train on"):
        datasets.synthetic(rows=3, validation=0.9)


def test_synthetic_without_noise_is_linear():
    data = datasets.synthetic(rows=200, features=5, noise=0.0, dtype="f8")
    A = np.c_[data.X, np.ones(len(data.X))]
    fit = np.linalg.lstsq(A, data.y, rcond=None)[0]
    np.testing.assert_allclose(A @ fit, data.y, atol=1e-10)
    np.testing.assert_allclose(np.c_[data.X_validation, np.ones(40)] @ fit, data.y_validation, atol=1e-10)


def test_synthetic_classes_are_whole_numbers():
    data = datasets.synthetic(rows=300, features=8, classes=4)
    assert data.y.dtype.kind == "i"
    assert set(data.y) == {0, 1, 2, 3}


@pytest.mark.parametrize("name", ["digits", "breast_cancer", "diabetes"])
def test_the_sets_are_those_of_scikit_learn_and_do_without_it(monkeypatch, name):
    X, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    monkeypatch.setattr(sklearn.datasets, f"load_{name}", None)
    expected = datasets._split(X, y, 0.2, seeds.split(5), "float64")
    got = getattr(datasets, name)(seed=5, dtype="float64")
    np.testing.assert_array_equal(got.X, expected.X)
    np.testing.assert_array_equal(got.X_validation, expected.X_validation)
    if name != "diabetes":
        np.testing.assert_array_equal(got.y, expected.y, strict=True)


# Random features


def test_fourier_features_approximate_a_gaussian_kernel():
    X = np.random.default_rng(0).normal(size=(20, 6))
    lifted = datasets.fourier(X, 50_000, scale=2.0)
    squares = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(lifted @ lifted.T, np.exp(-squares / (2 * 2.0**2)), atol=0.03)


def test_the_scale_is_the_root_of_the_dimension_unless_given():
    X = np.random.default_rng(0).normal(size=(5, 9))
    np.testing.assert_array_equal(datasets.fourier(X, 32), datasets.fourier(X, 32, scale=3.0))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_lifting_keeps_the_dtype_and_makes_rows_of_length_one(dtype):
    lifted = datasets.fourier(np.random.default_rng(0).normal(size=(7, 3)).astype(dtype), 4000)
    assert (lifted.shape, lifted.dtype) == ((7, 4000), np.dtype(dtype))
    np.testing.assert_allclose(np.linalg.norm(lifted, axis=1), 1, atol=0.05)


def test_the_same_seed_lifts_the_same_and_another_differs():
    data = datasets.synthetic(rows=50, features=4)
    lifted = datasets.fourier(data, 16, seed=2)
    np.testing.assert_array_equal(lifted.X, datasets.fourier(data.X, 16, seed=2))
    np.testing.assert_array_equal(lifted.X_validation, datasets.fourier(data.X_validation, 16, seed=2))
    np.testing.assert_array_equal(lifted.y, data.y)
    assert not np.array_equal(lifted.X, datasets.fourier(data.X, 16, seed=3))


def test_lifting_leaves_the_rows_alone():
    data = datasets.synthetic(rows=20, features=4)
    kept = data.X.copy()
    datasets.fourier(data, 8)
    np.testing.assert_array_equal(data.X, kept)
