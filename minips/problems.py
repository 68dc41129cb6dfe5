"""Problems to train: the contract, `Problem`, and models with gradients in closed form."""

import copy
import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from minips import intake
from minips.halves import in_float32, widen
from minips.stage import Array, Tensors

PLAUSIBLE_CLASSES = 1_000
"""A number of classes above this is accepted only with at least as many rows, or if it is given as ``classes``."""


class Problem(ABC):
    """Subclass this: define the first parameters, the loss and its gradient. ``X`` and ``y`` hold the training rows.

    ``X`` may be a data frame or a SciPy sparse matrix, which is kept as CSR. ``validation`` is None, or ``(X, y)`` with
    held-out rows that are shaped like training rows. Raises ValueError if X or y is missing from a pair or their
    lengths differ, for masked arrays, and for frames whose columns, or their order, differ from those of the training
    rows. Every term that depends on the rows must be an average over them, so that the average of equal shards'
    gradients is the gradient of the whole. ``weights`` are the rows' weights in that average, scaled to a mean of 1.

    If ``loss_and_gradient`` accepts ``rng=None``, each step of a training run passes a generator for random draws, such
    as dropout, seeded by the run's seed, the worker and its clock. All other calls leave ``rng`` as None.
    """

    l2: float = 0.0
    """The factor of a penalty on the parameters. The loss on held-out rows omits the penalty."""
    weights: Array | None = None
    feature_names: Sequence[Any] | None = None
    """The column names of X if it was a data frame. A frame passed to `predict` must have the same columns."""
    tables: tuple[str, ...] = ()
    """The tensors of which a batch uses only a few rows. Their gradients are `Rows`, and only these rows are sent."""
    draws: ClassVar[bool] = False
    """True if ``loss_and_gradient`` accepts ``rng``."""

    def __init_subclass__(cls, **others: Any) -> None:
        super().__init_subclass__(**others)
        cls.draws = "rng" in inspect.signature(cls.loss_and_gradient).parameters

    def __init__(
        self,
        X: Array,
        y: Array,
        X_validation: Array | None = None,
        y_validation: Array | None = None,
        *,
        weights: Array | None = None,
    ) -> None:
        self.X, self.y = intake.as_rows(X, y)
        if names := intake.column_names(X):
            self.feature_names = names
        if weights is not None:
            self.weights = intake.row_weights(weights, self.rows)
        self.validation: tuple[Array, Array] | None = None
        if X_validation is not None or y_validation is not None:
            self.validation = intake.as_rows(X_validation, y_validation, "_validation")
            intake.check_columns(X_validation, self.feature_names, "X_validation")
            intake.check_alike("X", self.validation[0], self.X)
            intake.check_alike("y", self.validation[1], self.y)

    @property
    def rows(self) -> int:
        """The number of training rows. Raises ValueError for a problem restored from a saved run, which has no rows."""
        if not hasattr(self, "X"):
            raise ValueError("This problem was loaded without its rows. Make a problem with rows to train on.")
        return int(self.X.shape[0])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {', '.join(self._sizes())}>" if hasattr(self, "X") else super().__repr__()

    def _sizes(self) -> list[str]:
        """The problem's sizes, for its repr."""
        return [f"{self.rows} rows", *([f"{self.X.shape[1]} features"] if np.ndim(self.X) == 2 else [])]

    @abstractmethod
    def init(self, rng: np.random.Generator) -> Tensors:
        """The parameters before the first step."""

    @abstractmethod
    def loss_and_gradient(self, params: Tensors, rows: Any = None) -> tuple[float, Tensors]:
        """The mean loss over some rows (indices or a slice; None: all) and its gradient, shaped like ``params``.

        Return new arrays each time. A later call must not write into earlier arrays: they may still wait to be sent.
        """

    def rows_needed(self, rows: Any = None) -> dict[str, Array]:
        """The rows of each table that ``loss_and_gradient`` needs for these training rows; it gets no others."""
        raise NotImplementedError(f"{type(self).__name__} has tables; override rows_needed(rows).")

    def loss(self, params: Tensors, rows: Any = None) -> float:
        """The mean loss over the given training rows."""
        return intake.as_number(self.loss_and_gradient(params, rows)[0], "The loss")

    def gradient(self, params: Tensors, rows: Any = None) -> Tensors:
        """The gradient of ``loss``."""
        return self.loss_and_gradient(params, rows)[1]

    def accuracy(self, params: Tensors) -> float | None:
        """The share of rows that are classified correctly; None if the problem is not a classifier."""
        return None

    def predict(self, params: Tensors, X: Array) -> Array:
        """The predictions for rows of ``X``."""
        raise NotImplementedError(f"{type(self).__name__} cannot predict; override predict(params, X).")

    def predict_proba(self, params: Tensors, X: Array) -> Array:
        """The probabilities of each class for rows of ``X``, shape (n, classes)."""
        raise NotImplementedError(f"{type(self).__name__} has no probabilities; override predict_proba(params, X).")

    def kept(self) -> dict[str, Any]:
        """The attributes that predictions need: all except rows and weights. `Run.save` can write numbers, texts,
        arrays, and lists, tuples and dicts that contain these.
        """
        return {name: x for name, x in vars(self).items() if name not in ("X", "y", "validation", "weights")}

    @classmethod
    def restored(cls, kept: Mapping[str, Any]) -> Self:
        """A problem without rows that predicts like the problem from which ``kept`` was taken."""
        problem = cls.__new__(cls)
        vars(problem).update(kept, validation=None)
        return problem

    def fingerprint(self) -> str:
        """The SHA-256 of X and y: shapes, dtypes and bytes. Empty if X or y is not an array, or holds objects."""
        digest = hashlib.sha256()
        for name in ("X", "y"):
            rows: Any = getattr(self, name, None)
            for part in (rows.indptr, rows.indices, rows.data) if hasattr(rows, "indptr") else (rows,):
                if not isinstance(part, np.ndarray) or part.dtype.hasobject:
                    return ""
                digest.update(f"{rows.shape} {part.dtype.str}".encode())
                digest.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
        return digest.hexdigest()

    def shard(self, worker: int, workers: int) -> Self:
        """One worker's part of this problem, without held-out rows. Parts are contiguous and of nearly equal size."""
        if self.rows < workers:
            raise ValueError(f"{self.rows} training rows cannot be shared among {workers} workers; use fewer workers.")
        least, more = divmod(self.rows, workers)  # the first `more` shards have one extra row
        start = worker * least + min(worker, more)
        return self.subset(slice(start, start + least + (worker < more)))

    def subset(self, rows: Any) -> Self:
        """This problem with only these rows (indices or a slice), without held-out rows. Shards are made this way."""
        part = copy.copy(self)
        (part.X, part.y), part.weights, part.validation = self._select(rows), self._weights_of(rows), None
        return part

    def held_out(self) -> "Self | None":
        """This problem on its held-out rows, without penalty; None if it has no held-out rows."""
        if self.validation is None:
            return None
        part = copy.copy(self)
        (part.X, part.y), part.validation, part.weights, part.l2 = self.validation, None, None, 0.0
        return part

    def _select(self, rows: Any) -> tuple[Array, Array]:
        return (self.X, self.y) if rows is None else (self.X[rows], self.y[rows])

    def _weights_of(self, rows: Any) -> Array | None:
        return self.weights if rows is None or self.weights is None else self.weights[rows]

    def _weigh(self, values: Array, rows: Any) -> Array:
        """Multiply each row's value by the row's weight."""
        weights = self._weights_of(rows)
        return values if weights is None else values * weights.astype(values.dtype)

    def _tabulate(self, X_validation: Any) -> None:
        """Convert X to finite floats, for the training and the held-out rows. The parameters get the dtype of X."""
        intake.check_table(self.X, self.y)
        self.X = intake.as_features(self.X, "X", self.feature_names)
        if self.validation:
            names = intake.column_names(X_validation) or self.feature_names
            self.validation = intake.as_features(self.validation[0], "X_validation", names), self.validation[1]

    def _features(self, X: Any, columns: int) -> Any:
        """Convert rows to predict. Raises ValueError unless they have the training rows' columns."""
        intake.check_columns(X, self.feature_names, "X")
        names, X = intake.column_names(X) or self.feature_names, intake.sparse_or_array(X, "X")
        if X.ndim != 2 or X.shape[1] != columns:
            raise ValueError(f"Expected X of shape (rows, {columns}), as the training rows have; got {X.shape}.")
        return intake.as_features(X, "X", names)


class LinearRegression(Problem):
    """Least squares: loss ``|Xw + b − y|² / 2n + l2·|w|²/2`` for X of shape (n, d) and y of shape (n,).

    Parameters: ``w`` (d,) and ``b`` (), both zero at first. Gradients: ``Xᵀr/n + l2·w`` and ``mean(r)`` with ``r = Xw +
    b − y``. Source: Hastie, Tibshirani and Friedman 2009, "The Elements of Statistical Learning", 3.2 and 3.4.1.
    """

    def __init__(
        self,
        X: Array,
        y: Array,
        X_validation: Array | None = None,
        y_validation: Array | None = None,
        *,
        l2: float = 0.0,
        weights: Array | None = None,
    ) -> None:
        super().__init__(X, y, X_validation, y_validation, weights=weights)
        intake.check_penalty(l2)
        self._tabulate(X_validation)
        self.y, self.l2 = intake.as_targets(self.y, self.X.dtype, "y"), l2
        if self.validation:
            X, y = self.validation
            self.validation = X, intake.as_targets(y, self.X.dtype, "y_validation")

    def init(self, rng: np.random.Generator) -> Tensors:
        return {"w": np.zeros(self.X.shape[1], self.X.dtype), "b": np.zeros((), self.X.dtype)}

    def loss_and_gradient(self, params: Tensors, rows: Any = None) -> tuple[float, Tensors]:
        if self.X.dtype.itemsize < 4:
            return in_float32(LinearRegression, self, params, rows)
        X, y = self._select(rows)
        w = params["w"]
        residual = X @ w + params["b"] - y  # (n,)
        weighted = self._weigh(residual, rows)
        loss = float(residual @ weighted) / (2 * len(y)) + self.l2 / 2 * float(w @ w)
        gradient = weighted @ X / X.dtype.type(len(y)) + X.dtype.type(self.l2) * w
        return loss, {"w": gradient, "b": np.asarray(weighted.mean(), X.dtype)}

    def predict(self, params: Tensors, X: Array) -> Array:
        return np.asarray(widen(self._features(X, len(params["w"]))) @ widen(params["w"]) + widen(params["b"]))

    def solution(self) -> Tensors:
        """The parameters that minimise the loss, from the normal equations of the centred data."""
        X, y = widen(self.X.toarray() if hasattr(self.X, "toarray") else self.X), widen(self.y)
        centre, level = np.average(X, axis=0, weights=self.weights), np.average(y, weights=self.weights)
        A, r = X - centre, y - level
        B = A.T if self.weights is None else A.T * self.weights
        w = np.linalg.lstsq(B @ A / self.rows + self.l2 * np.eye(A.shape[1]), B @ r / self.rows, rcond=None)[0]
        return {"w": w.astype(self.X.dtype), "b": np.asarray(level - centre @ w, self.X.dtype)}


class SoftmaxRegression(Problem):
    """Multinomial logistic regression: loss ``mean(−log softmax(XW + b)[y]) + l2·|W|²/2``. ``y`` holds class numbers,
    texts or truth values. Texts and truth values are numbered in sorted order and kept as ``labels``. ``classes`` is
    the number of classes (None: the largest in ``y``, plus 1). Raises ValueError if it is None and ``y`` has one class.

    Parameters: ``W`` (d, classes) and ``b`` (classes,), both zero at first. Gradients: ``XᵀR/n + l2·W`` and the column
    means of R = softmax(XW + b) − onehot(y). Source: Bishop 2006, "Pattern Recognition and Machine Learning", 4.3.4.
    """

    def __init__(
        self,
        X: Array,
        y: Array,
        X_validation: Array | None = None,
        y_validation: Array | None = None,
        *,
        classes: int | None = None,
        l2: float = 0.0,
        weights: Array | None = None,
    ) -> None:
        super().__init__(X, y, X_validation, y_validation, weights=weights)
        intake.check_penalty(l2)
        self._tabulate(X_validation)
        classes = None if classes is None else intake.as_count(classes, "classes")
        self.labels: Array | None
        """The names of the classes, if y holds texts or truth values."""
        self.y, self.labels = intake.number_labels(self.y, "y")
        classes_seen = int(self.y.max()) + 1
        if self.validation:
            numbers = intake.known_labels(self.validation[1], "y_validation", self.labels)
            self.validation, classes_seen = (self.validation[0], numbers), max(classes_seen, int(numbers.max()) + 1)
        if (classes or 1) == 1 and (self.y == self.y[0]).all():
            first = self.y[0].item() if self.labels is None else self.labels[0].item()
            raise ValueError(
                f"y holds one class, {first!r}, in all its rows, and a classifier needs two. If the others occur "
                "elsewhere, number the classes 0, 1, 2, … and give their number as classes=."
            )
        if classes is None and classes_seen > max(len(self.y), PLAUSIBLE_CLASSES):
            raise ValueError(
                f"y holds the class {classes_seen - 1} in {len(self.y)} rows. Classes are numbered 0, 1, 2, …: number "
                "them with np.unique(y, return_inverse=True)[1], or give their number as classes=."
            )
        self.classes, self.l2 = classes or classes_seen, l2
        if self.classes < classes_seen:
            raise ValueError(f"y holds the class {classes_seen - 1}, but classes are 0 to {self.classes - 1} only.")
        if self.labels is not None and self.classes > len(self.labels):
            raise ValueError(f"y has {len(self.labels)} labels but classes={classes}: give y as class numbers.")

    def init(self, rng: np.random.Generator) -> Tensors:
        return {"W": np.zeros((self.X.shape[1], self.classes), self.X.dtype), "b": np.zeros(self.classes, self.X.dtype)}

    def loss_and_gradient(self, params: Tensors, rows: Any = None) -> tuple[float, Tensors]:
        if self.X.dtype.itemsize < 4:
            return in_float32(SoftmaxRegression, self, params, rows)
        X, y = self._select(rows)
        W = params["W"]
        loss, R = cross_entropy(X @ W + params["b"], y, self._weights_of(rows))
        gradient = X.T @ R
        if self.l2:
            gradient += X.dtype.type(self.l2) * W
        return loss + self.l2 / 2 * float(np.vdot(W, W)), {"W": gradient, "b": R.sum(axis=0)}

    def accuracy(self, params: Tensors) -> float:
        return float((self.scores(params).argmax(axis=1) == self.y).mean())

    def scores(self, params: Tensors, X: Array | None = None) -> Array:
        """The score of each class for each row of ``X`` (None: the training rows), shape (n, classes). The class with
        the largest score is predicted.
        """
        X = self.X if X is None else self._features(X, len(params["W"]))
        return np.asarray(widen(X) @ widen(params["W"]) + widen(params["b"]))

    def predict(self, params: Tensors, X: Array) -> Array:
        """The predicted class of each row: its label, or its number if there are no labels."""
        numbers = self.scores(params, X).argmax(axis=1)
        return np.asarray(numbers if self.labels is None else self.labels[numbers])

    def predict_proba(self, params: Tensors, X: Array) -> Array:
        """The probability of each class for each row, shape (n, classes)."""
        return softmax(self.scores(params, X))

    def _sizes(self) -> list[str]:
        return [*super()._sizes(), f"{self.classes} classes"]


class MLP(SoftmaxRegression):
    """Softmax regression on a hidden layer of ``hidden`` rectified units: scores ``max(XU + a, 0)W + b``.

    Parameters: ``U`` (d, hidden), ``a`` (hidden,), ``W`` (hidden, classes), ``b`` (classes,). U and W start normal with
    variance 2/d and 1/hidden (He et al. 2015, "Delving Deep into Rectifiers", section 2.2), a and b zero. The gradient
    is computed by back-propagation (Rumelhart, Hinton and Williams 1986). Each tensor tolerates a different bit width.
    """

    def __init__(
        self, *rows: Any, hidden: int = 32, classes: int | None = None, l2: float = 0.0, weights: Array | None = None
    ) -> None:
        super().__init__(*rows, classes=classes, l2=l2, weights=weights)
        self.hidden = intake.as_count(hidden, "hidden")

    def init(self, rng: np.random.Generator) -> Tensors:
        d, dtype = self.X.shape[1], self.X.dtype
        return {
            "U": (rng.normal(size=(d, self.hidden)) * np.sqrt(2 / d)).astype(dtype),
            "a": np.zeros(self.hidden, dtype),
            "W": (rng.normal(size=(self.hidden, self.classes)) * np.sqrt(1 / self.hidden)).astype(dtype),
            "b": np.zeros(self.classes, dtype),
        }

    def loss_and_gradient(self, params: Tensors, rows: Any = None) -> tuple[float, Tensors]:
        if self.X.dtype.itemsize < 4:
            return in_float32(MLP, self, params, rows)
        X, y = self._select(rows)
        U, W, l2 = params["U"], params["W"], X.dtype.type(self.l2)
        active = np.maximum(X @ U + params["a"], 0)  # (n, hidden)
        loss, R = cross_entropy(active @ W + params["b"], y, self._weights_of(rows))
        back = (R @ W.T) * (active > 0)
        penalty = self.l2 / 2 * (float(np.vdot(U, U)) + float(np.vdot(W, W)))
        return loss + penalty, {
            "U": X.T @ back + l2 * U,
            "a": back.sum(axis=0),
            "W": active.T @ R + l2 * W,
            "b": R.sum(axis=0),
        }

    def scores(self, params: Tensors, X: Array | None = None) -> Array:
        X = self.X if X is None else self._features(X, len(params["U"]))
        active = np.maximum(widen(X) @ widen(params["U"]) + widen(params["a"]), 0)
        return np.asarray(active @ widen(params["W"]) + widen(params["b"]))

    def _sizes(self) -> list[str]:
        return [*super()._sizes(), f"{self.hidden} hidden units"]


def softmax(scores: Array) -> Array:
    """``exp(scores) / Σ exp(scores)`` of each row, shape (n, classes)."""
    R = np.exp(widen(scores) - scores.max(axis=1, keepdims=True))
    return np.asarray(R / R.sum(axis=1, keepdims=True))


def cross_entropy(scores: Array, y: Array, weights: Array | None = None) -> tuple[float, Array]:
    """``mean(−log softmax(scores)[y])``, weighted by the rows' weights, and its gradient with respect to the scores, of
    shape (n, classes).
    """
    each = np.arange(len(y))
    scores = scores - scores.max(axis=1, keepdims=True)
    R = np.exp(scores)
    total = R.sum(axis=1, keepdims=True)
    losses = np.log(total[:, 0]) - scores[each, y]
    R /= total
    R[each, y] -= 1
    R /= len(y)
    if weights is not None:
        losses = losses * weights
        R *= weights[:, None].astype(R.dtype)
    return float(losses.mean()), R
