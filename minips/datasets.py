"""Data sets: three small bundled ones, two synthetic ones, and random features for larger problems.

Each set is shuffled, standardised by its training rows, and has held-out rows: ``SoftmaxRegression(*digits())``.
"""

from functools import cache
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import DTypeLike

from minips import seeds
from minips.arithmetic import one_blas_thread
from minips.halves import widen
from minips.intake import as_array
from minips.stage import Array
from minips.words import check_type

__all__ = ["Dataset", "breast_cancer", "clicks", "diabetes", "digits", "fourier", "synthetic"]


class Dataset(NamedTuple):
    """Training rows and held-out rows: X of shape (n, d), y of shape (n,)."""

    X: Array
    y: Array
    X_validation: Array
    y_validation: Array


def digits(validation: float = 0.2, seed: int = 0, dtype: DTypeLike = "float32") -> Dataset:
    """1797 handwritten digits of 8 × 8 pixels, in ten classes. Source: UCI repository, via scikit-learn."""
    return _classes("digits", validation, seed, dtype)


def breast_cancer(validation: float = 0.2, seed: int = 0, dtype: DTypeLike = "float32") -> Dataset:
    """569 tumours with 30 measurements each, in two classes. Source: UCI repository, via scikit-learn."""
    return _classes("breast_cancer", validation, seed, dtype)


def diabetes(validation: float = 0.2, seed: int = 0, dtype: DTypeLike = "float32") -> Dataset:
    """442 patients: 10 measurements each, and the disease after a year, standardised. Source: Efron et al. 2004."""
    X, y = _table("diabetes")
    X = (X - X.mean(axis=0)) / X.std(axis=0) / len(X) ** 0.5  # as Efron et al. scale them
    data = _split(X, y, validation, seeds.split(seed), dtype)
    y, held_out = widen(data.y), widen(data.y_validation)
    mean, deviation = y.mean(), y.std()
    scaled = (y - mean) / deviation, (held_out - mean) / deviation
    return data._replace(y=scaled[0].astype(data.y.dtype), y_validation=scaled[1].astype(data.y.dtype))


@one_blas_thread
def synthetic(
    rows: int = 1000,
    features: int = 20,
    classes: int | None = None,
    noise: float = 0.1,
    validation: float = 0.2,
    seed: int = 0,
    dtype: DTypeLike = "float32",
) -> Dataset:
    """Normal features; targets from a linear model with normal noise: numbers, or classes if ``classes`` is given."""
    check_type("synthetic", classes, int | None, "a number of classes")
    rng = seeds.synthetic(seed)
    X = rng.normal(size=(rows, features))
    scores = X @ rng.normal(size=(features, classes or 1)) / np.sqrt(features)
    scores += noise * rng.normal(size=scores.shape)
    y = scores.argmax(axis=1) if classes else scores[:, 0]
    return _split(X, y, validation, rng, dtype)


def clicks(
    rows: int = 50_000,
    items: int = 100_000,
    width: int = 16,
    exponent: float = 1.0,
    validation: float = 0.2,
    seed: int = 0,
    dtype: DTypeLike = "float32",
) -> Dataset:
    """Clicks on items under Zipf's law, for `ClickModel`. The first column of X is the item i, drawn with probability
    proportional to ``1/(i + 1)^exponent``, so item 0 is the most frequent. The other columns, x, are normal. The odds
    of a click are ``exp(x·(u + v_i))``; u and all v_i are normal, each with variance 9/width. Raises ValueError if
    ``items`` is less than 1, or more than the dtype can number (float32: 2**24).
    """
    most = int(2 / np.finfo(dtype).eps)
    if not 1 <= items <= most:
        raise ValueError(f"items must be 1 to {most} in {np.dtype(dtype)}; got {items}.")
    rng = seeds.clicks(seed)
    shares = np.cumsum(np.arange(1, items + 1) ** -float(exponent))
    drawn = np.searchsorted(shares, rng.random(rows) * shares[-1], side="right")
    seen, place = np.unique(drawn, return_inverse=True)
    X = rng.normal(size=(rows, width))
    weights = (rng.normal(size=width) + rng.normal(size=(len(seen), width))[place]) * (3 / np.sqrt(width))
    y = (rng.random(rows) < 1 / (1 + np.exp(-np.einsum("nd,nd->n", X, weights)))).astype(np.int64)
    return _split(np.column_stack([drawn, X]), y, validation, rng, dtype, numbers=1)


@overload
def fourier(X: Array, features: int, seed: int = 0, *, scale: float | None = None) -> Array: ...
@overload
def fourier(X: Dataset, features: int, seed: int = 0, *, scale: float | None = None) -> Dataset: ...
@one_blas_thread
def fourier(X: Array | Dataset, features: int, seed: int = 0, *, scale: float | None = None) -> Array | Dataset:
    """Random Fourier features: ``√(2/features) · cos(XΩ + φ)``, Ω normal, φ uniform; (n, d) becomes (n, features).

    A linear model on these features approximates a model with a Gaussian kernel of width ``scale`` (None: √d, the
    typical length of a standardised row). The same seed gives the same features, so you may convert training rows and
    held-out rows separately, or a whole `Dataset` in one call. The new rows have a length near 1, so learning rates of
    a few units suit them. Raises ValueError if ``features`` is less than 1. Source: Rahimi and Recht 2007, "Random
    Features for Large-Scale Kernel Machines", algorithm 1.
    """
    if features < 1:
        raise ValueError(f"features must be at least 1; got {features}.")
    if isinstance(X, Dataset):
        train, rest = (fourier(part, features, seed, scale=scale) for part in (X.X, X.X_validation))
        return X._replace(X=train, X_validation=rest)
    rng, X = seeds.fourier(seed), as_array(X, "X")
    d = X.shape[1]
    directions = (rng.normal(size=(d, features)) / (scale or np.sqrt(d))).astype(X.dtype)
    phases = rng.uniform(0, 2 * np.pi, features).astype(X.dtype)
    lifted: Array = X @ directions
    lifted += phases
    np.cos(lifted, out=lifted)
    lifted *= X.dtype.type(np.sqrt(2 / features))
    return lifted


def _classes(name: str, validation: float, seed: int, dtype: DTypeLike) -> Dataset:
    X, y = _table(name)
    return _split(X, y.astype(np.int64), validation, seeds.split(seed), dtype)


@cache
def _table(name: str) -> tuple[Array, Array]:
    """The features and the target of a data set in ``minips/data``."""
    from importlib import resources  # slow to import

    with resources.as_file(resources.files("minips").joinpath("data", f"{name}.csv.gz")) as path:
        rows = np.loadtxt(path, delimiter=",", encoding="ascii")
    return rows[:, :-1], rows[:, -1]


def _split(X: Array, y: Array, validation: float, rng: np.random.Generator, dtype: Any, numbers: int = 0) -> Dataset:
    """Shuffle the rows and standardise all columns except the first ``numbers`` columns."""
    if not 0 < validation < 1:
        raise ValueError(f"validation is the share of held-out rows, between 0 and 1; got {validation}.")
    order = rng.permutation(len(X))
    held = max(1, round(validation * len(X)))
    if held >= len(X):
        raise ValueError(f"{validation} of {len(X)} rows held out leaves no rows to train on; hold out fewer.")
    y = y if y.dtype.kind in "iu" else y.astype(dtype)
    train, rest = order[held:], order[:held]
    mean, deviation = X[train].mean(axis=0), X[train].std(axis=0)
    mean[:numbers], deviation[:numbers] = 0, 1
    X = ((X - mean) / np.where(deviation > 0, deviation, 1)).astype(dtype)
    return Dataset(X[train], y[train], X[rest], y[rest])


def __dir__() -> list[str]:
    return __all__
