"""scikit-learn: a classifier and a regressor that are trained by `minips.train`.

scikit-learn is not installed along with minips, and nothing else in it imports this module.
"""

import warnings
from typing import Any, Self

import numpy as np

from minips.core.codec import Codec
from minips.core.config import Config
from minips.intake import check_unmasked
from minips.notation import parse_stage
from minips.problems import LinearRegression, Problem, SoftmaxRegression, softmax
from minips.results.run import Run
from minips.stage import Array, Tensors
from minips.stages.optimizers import SGD
from minips.training.train import train

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d, validate_data
except ModuleNotFoundError:
    raise ModuleNotFoundError('minips.sklearn needs scikit-learn: pip install "minips[lab]".') from None

__all__ = ["PSClassifier", "PSRegressor"]
_READ: Any = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}
"""The rows that scikit-learn's check lets through."""
_CODEC = ("quantizer", "memory", "serializer", "compressor")
_STAGES = ("transport", "aggregator", "consistency", "optimizer", "exchange")


class _Trained(BaseEstimator):  # type: ignore[misc]
    """A linear model whose parameters were trained by several workers."""

    def __init__(
        self,
        *,
        quantizer: Any = "exact",
        memory: Any = "none",
        serializer: Any = "msgpack",
        compressor: Any = "none",
        pull: Codec | None = None,
        transport: Any = "inproc",
        aggregator: Any = "mean",
        consistency: Any = "bsp",
        optimizer: Any = None,
        exchange: Any = "ps",
        workers: int = 2,
        servers: int = 1,
        steps: int = 400,
        batch_size: int | None = 32,
        l2: float = 0.0,
        engine: Any = "threads",
        random_state: Any = None,
    ) -> None:
        self.quantizer, self.memory, self.serializer, self.compressor = quantizer, memory, serializer, compressor
        self.pull, self.transport, self.aggregator, self.consistency = pull, transport, aggregator, consistency
        self.optimizer, self.exchange, self.workers, self.servers = optimizer, exchange, workers, servers
        self.steps, self.batch_size, self.l2, self.engine = steps, batch_size, l2, engine
        self.random_state = random_state

    _second_derivative: float
    """The largest second derivative of a row's loss by its prediction."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def config(self, X: Any, steps: int) -> Config:
        """The experiment that `fit` trains on the rows of X."""
        rows = X.shape[0]
        codec = Codec(**{kind: parse_stage(kind, getattr(self, kind)) for kind in _CODEC})
        stages = {kind: parse_stage(kind, stage) for kind in _STAGES if (stage := getattr(self, kind)) is not None}
        if self.optimizer is None:
            batch = min(self.batch_size or rows, rows) * min(self.workers, rows)
            stages["optimizer"] = SGD(lr=1 / (self._second_derivative * _curvature(X, batch) + self.l2))
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        return Config(
            push=codec,
            pull=self.pull or Codec(),
            workers=min(self.workers, rows),
            servers=self.servers,
            steps=steps,
            batch_size=self.batch_size,
            seed=int(seed),
            **stages,
        )

    def _table(self, X: Any, y: Any, sample_weight: Any, reset: bool) -> tuple[Any, Array, Array | None]:
        for what, given in (("X", X), ("y", y), ("sample_weight", sample_weight)):
            check_unmasked(given, what)
        X, y = validate_data(self, X, y, multi_output=True, reset=reset, **_READ)
        if self.workers < 1:
            raise ValueError(f"workers must be at least 1; got {self.workers}.")
        if not reset:  # the parameters keep the type that the first rows gave them
            X = X.astype(next(iter(self._params.values())).dtype, copy=False)
        y = column_or_1d(y, warn=True)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=X.dtype)
        return X, y, weights

    def _train(self, problem: Problem, before: Tensors | None, steps: int | None) -> Tensors:
        """Train for so many steps; None for one pass over the rows."""
        if steps is None:
            one_pass = Config(workers=min(self.workers, problem.rows), batch_size=self.batch_size, epochs=1)
            steps = one_pass.for_rows(problem.rows).steps
        if before:
            problem.init = lambda rng: {name: p.copy() for name, p in before.items()}  # type: ignore[method-assign]
        run: Run = train(problem, self.config(problem.X, steps), engine=self.engine)
        if run.diverged:
            warnings.warn(f"{run.diverged}", ConvergenceWarning, stacklevel=3)
        self.n_iter_ = run.clocks + (getattr(self, "n_iter_", 0) if before else 0)
        self.history_: list[tuple[float, int, float]] = [*(self.history_ if before else []), *run.losses]
        self._params = run.params
        return run.params

    def _features(self, X: Any) -> Any:
        check_is_fitted(self)
        check_unmasked(X, "X")
        return validate_data(self, X, reset=False, **_READ)


class PSRegressor(RegressorMixin, _Trained):  # type: ignore[misc]
    """Least squares, trained by `minips.train`; its parameters are those of `PSClassifier`."""

    _second_derivative = 1.0

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on all rows anew."""
        return self._fit(X, y, sample_weight, None, self.steps)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Go on from the parameters for one pass over these rows; the optimizer's state begins anew."""
        return self._fit(X, y, sample_weight, getattr(self, "_params", None), None)

    def predict(self, X: Any) -> Array:
        """The predicted value of each row."""
        X = self._features(X)
        return np.asarray(X @ self.coef_ + self.intercept_)

    def _fit(self, X: Any, y: Any, sample_weight: Any, before: Tensors | None, steps: int | None) -> Self:
        X, y, weights = self._table(X, y, sample_weight, reset=before is None)
        problem = LinearRegression(X, y.astype(X.dtype), l2=self.l2, weights=weights)
        params = self._train(problem, before, steps)
        self.coef_, self.intercept_ = params["w"], params["b"]
        return self


class PSClassifier(ClassifierMixin, _Trained):  # type: ignore[misc]
    """Softmax regression, trained by several workers through `minips.train`.

    A stage is given by value, by name, or by its name and fields: ``"topk:fraction=0.01"``. ``quantizer``, ``memory``,
    ``serializer`` and ``compressor`` are those of the pushed gradients. ``steps`` are clocks of all the workers, of
    ``batch_size`` rows each. ``engine`` is where workers run: ``"threads"`` starts no process. Without an ``optimizer``
    it is gradient descent, with one over the largest curvature of the loss as its learning rate.

    Fitted, it has ``coef_``, ``intercept_``, ``n_iter_``, the number of steps, and ``history_``, rows of (seconds,
    step, training loss). ConvergenceWarning where the run diverged.
    """

    _second_derivative = 0.5  # Böhning 1992, "Multinomial Logistic Regression Algorithm"

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on all rows anew. ``y`` may hold any labels."""
        X, y, weights = self._table(X, y, sample_weight, reset=True)
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        return self._fit(X, y, weights, None, self.steps)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Go on from the parameters for one pass over these rows; the optimizer's state begins anew. ``classes`` names
        all the classes in the first call.
        """
        before = getattr(self, "_params", None)
        X, y, weights = self._table(X, y, sample_weight, reset=before is None)
        check_classification_targets(y)
        if before is None:
            if classes is None:
                raise ValueError("classes must be passed on the first call to partial_fit.")
            self.classes_ = np.unique(classes)
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes={classes!r} is not what the first call to partial_fit got: {self.classes_}.")
        return self._fit(X, y, weights, before, None)

    def decision_function(self, X: Any) -> Array:
        """A number for each row and class; with two classes one for each row, above 0 for the second class."""
        X = self._features(X)
        scores = np.asarray(X @ self.coef_.T + self.intercept_)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Any) -> Array:
        """The probability of each row and class, shape (n, classes)."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            scores = np.column_stack([np.zeros_like(scores), scores])
        return softmax(scores)

    def predict(self, X: Any) -> Array:
        """The predicted label of each row."""
        scores = self.decision_function(X)
        return np.asarray(self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)])

    def _fit(self, X: Any, y: Array, weights: Array | None, before: Tensors | None, steps: int | None) -> Self:
        numbers = np.searchsorted(self.classes_, y)
        known = self.classes_[np.minimum(numbers, len(self.classes_) - 1)] == y
        if not known.all():
            stranger = y[~known].tolist()[0]
            raise ValueError(f"y has the label {stranger!r}, which is none of the classes {self.classes_}.")
        if len(self.classes_) < 2:
            raise ValueError(f"A classifier needs two classes; got 1 class, {self.classes_.tolist()[0]!r}.")
        problem = SoftmaxRegression(X, numbers, classes=len(self.classes_), l2=self.l2, weights=weights)
        params = self._train(problem, before, steps)
        W, b = params["W"].T, params["b"]
        if len(self.classes_) == 2:
            W, b = W[1:] - W[:1], b[1:] - b[:1]
        self.coef_, self.intercept_ = W, b
        return self


def _curvature(X: Any, batch: int) -> float:
    """The largest eigenvalue of the mean of ``xxᵀ``, x a row of X and a 1, by the power method; a batch has more."""
    v, one = np.full(X.shape[1], 1.0), 1.0
    largest = 0.0
    for _ in range(20):
        largest = float(np.sqrt(v @ v + one * one))
        v, one = v / largest, one / largest
        products = X @ v + one
        v, one = X.T @ products / X.shape[0], float(products.mean())
    squares = X.multiply(X) if hasattr(X, "multiply") else X * X
    return float(largest + squares.sum() / (X.shape[0] * batch))


def __dir__() -> list[str]:
    return __all__
