"""scikit-learn: a classifier and a regressor trained by `minips.train`.

minips does not install scikit-learn, and no other module imports this one.
"""

import inspect
import math
import warnings
from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, Self

import numpy as np

from minips.core.codec import Codec
from minips.core.config import Config
from minips.intake import as_targets, check_labels, check_penalty, check_unmasked
from minips.problems import LinearRegression, Problem, SoftmaxRegression, softmax
from minips.results.run import Run
from minips.stage import Array, Tensors
from minips.stages.optimizers import SGD
from minips.stages.transports import InProc, Tcp
from minips.training.train import engine_for, train
from minips.words import suggestion

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d, validate_data
except ModuleNotFoundError:
    raise ModuleNotFoundError('minips.sklearn needs scikit-learn: pip install "minips[lab]".') from None

__all__ = ["PSClassifier", "PSRegressor"]
_CODEC = ("quantizer", "memory", "serializer", "compressor")
_STAGES = ("aggregator", "consistency", "optimizer", "exchange")


class _Named:
    """An estimator whose error for an unknown parameter names the estimator's class."""

    def __new__(cls, *values: Any, **given: Any) -> Self:
        if cls.__init__.__module__ == __name__:  # otherwise Python's error names the subclass
            known = cls._get_param_names()  # type: ignore[attr-defined]
            for name in given:
                if name not in known:
                    raise TypeError(f"{cls.__name__} has no parameter {name!r}. {suggestion(name, known)}")
            if values:
                raise TypeError(f"{cls.__name__} takes its parameters by name, such as workers=2; got {values[0]!r}.")
        return super().__new__(cls)


class _Trained(_Named, BaseEstimator):  # type: ignore[misc]
    """A linear model trained by several workers."""

    def __init__(
        self,
        *,
        quantizer: Any = "exact",
        memory: Any = "none",
        serializer: Any = "msgpack",
        compressor: Any = "none",
        pull: Codec | None = None,
        transport: Any = None,
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
    """An upper bound of the second derivative of a row's loss with respect to its prediction."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def config(self, X: Any, steps: int) -> Config:
        """The config that `fit` uses to train on the rows of X."""
        rows = X.shape[0]
        near = engine_for(self.engine, ()).apart == InProc.reach
        transport = (InProc() if near else Tcp()) if self.transport is None else self.transport
        stages = {kind: stage for kind in _STAGES if (stage := getattr(self, kind)) is not None}
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        config = Config(
            push=Codec(**{kind: getattr(self, kind) for kind in _CODEC}),
            pull=self.pull or Codec(),
            transport=transport,
            workers=min(self.workers, rows),
            servers=self.servers,
            steps=steps,
            batch_size=self.batch_size,
            seed=int(seed),
            **stages,
        )
        if self.optimizer is not None:
            return config
        batch = min(config.batch_size or rows, rows) * config.workers
        return replace(config, optimizer=SGD(lr=1 / (self._second_derivative * _curvature(X, batch) + self.l2)))

    def _table(self, X: Any, y: Any, sample_weight: Any, reset: bool) -> tuple[Any, Array, Array | None]:
        _check_unmasked(X=X, y=y, sample_weight=sample_weight)
        X, y = self._read(X, y, multi_output=True, reset=reset)
        if not isinstance(self.workers, Integral) or self.workers < 1:
            raise ValueError(f"workers must be at least 1; got {self.workers!r}.")
        check_penalty(self.l2)
        # the parameters keep the dtype of the first rows
        dtype = X.dtype if reset else next(iter(self._params.values())).dtype
        self._check_range(X, dtype, learned=True)
        X = X.astype(dtype, copy=False)
        y = column_or_1d(y, warn=True)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, X, dtype=X.dtype)
        return X, y, weights

    def _train(self, problem: Problem, before: Tensors | None, steps: int | None) -> Tensors:
        """Train for ``steps`` steps or, if that is None, for one pass over the rows."""
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
        _check_unmasked(X=X)
        X = self._read(X, reset=False)
        self._check_range(X, next(iter(self._params.values())).dtype)
        return X

    def _read(self, *rows: Any, **options: Any) -> Any:
        """Let scikit-learn validate the rows. It computes their sum, so an overflow of this sum is ignored."""
        with np.errstate(over="ignore", invalid="ignore"):
            return validate_data(self, *rows, accept_sparse="csr", dtype=[np.float64, np.float32], **options)

    def _check_range(self, X: Any, dtype: Any, learned: bool = False) -> None:
        """Raise ValueError, naming the column of X, if squares or their sums could overflow. For training rows
        (``learned``), also raise it if all columns are so small that their gradients vanish.
        """
        high, low = (end.toarray()[0] if hasattr(end, "toarray") else end for end in (X.max(axis=0), X.min(axis=0)))
        sizes = np.maximum(high, -low)
        largest, most = float(sizes.max()), _most(dtype)
        if largest > most or (learned and 0 < largest < 1 / most):
            names = getattr(self, "feature_names_in_", range(sizes.size))
            raise ValueError(
                f"The column {names[sizes.argmax()]!r} of X has values up to {largest:g}. In {dtype} the largest "
                f"values should be between {1 / most:.0e} and {most:.0e}: scale X, for instance with scikit-learn's "
                "StandardScaler in a pipeline."
            )


def _check_unmasked(**given: Any) -> None:
    for what, array in given.items():
        check_unmasked(array, what)


class _Scored:
    """An estimator whose ``score`` rejects masked arrays, since scikit-learn would count their hidden values."""

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """A classifier's accuracy or a regressor's R², as scikit-learn computes them."""
        _check_unmasked(X=X, y=y, sample_weight=sample_weight)
        score: float = super().score(X, y, sample_weight)  # type: ignore[misc]
        return score


class PSRegressor(_Scored, RegressorMixin, _Trained):  # type: ignore[misc]
    """Least squares, trained by `minips.train`. It has the parameters of `PSClassifier`, except ``class_weight``."""

    _second_derivative = 1.0

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train from scratch on all rows."""
        return self._fit(X, y, sample_weight, None, self.steps)

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Continue from the current parameters for one pass over these rows, with a new optimizer state."""
        return self._fit(X, y, sample_weight, getattr(self, "_params", None), None)

    def predict(self, X: Any) -> Array:
        """The predicted value of each row."""
        X = self._features(X)
        return np.asarray(X @ self.coef_ + self.intercept_)

    def _fit(self, X: Any, y: Any, sample_weight: Any, before: Tensors | None, steps: int | None) -> Self:
        X, y, weights = self._table(X, y, sample_weight, reset=before is None)
        with np.errstate(over="ignore"):
            y = as_targets(y, float, "y").astype(X.dtype)
        if (largest := float(np.abs(y).max())) > (most := _most(X.dtype)):
            raise ValueError(f"y has values up to {largest:g}. In {X.dtype} they must be at most {most:.0e}: scale y.")
        problem = LinearRegression(X, y, l2=self.l2, weights=weights)
        params = self._train(problem, before, steps)
        self.coef_, self.intercept_ = params["w"], params["b"]
        return self


def _extend_signature(function: Any, **more: Any) -> inspect.Signature:
    """The signature of a function, with these keyword parameters and their defaults added."""
    known = inspect.signature(function)
    added = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=value) for name, value in more.items()]
    return known.replace(parameters=[*known.parameters.values(), *added])


class PSClassifier(_Scored, ClassifierMixin, _Trained):  # type: ignore[misc]
    """Softmax regression, trained by several workers through `minips.train`.

    A stage is given as a value, a name, or a name with fields: ``"topk:fraction=0.01"``. ``quantizer``, ``memory``,
    ``serializer`` and ``compressor`` apply to the pushed gradients. ``steps`` is the number of clocks; in each clock,
    every worker uses ``batch_size`` rows. ``engine`` runs the workers; ``"threads"`` starts no process. The default
    ``transport`` suits the engine. The default ``optimizer`` is gradient descent; its learning rate is 1 divided by the
    loss's largest curvature. Values in X above 1e77, or above 4e9 in float32, raise a ValueError that names their
    column.

    ``class_weight`` multiplies each row's weight by a weight for its class. It is a dict of weights by class (default
    1), or ``"balanced"`` for ``n / (classes · n_c)``: n_c is the class's total weight, n the total weight of all rows.

    A fitted classifier has ``coef_``, ``intercept_``, ``n_iter_`` (the number of steps), and ``history_`` (rows of
    seconds, step, training loss). Warns with ConvergenceWarning if the run diverged.
    """

    _second_derivative = 0.5  # Böhning 1992, "Multinomial Logistic Regression Algorithm"

    def __init__(self, *, class_weight: Any = None, **others: Any) -> None:
        super().__init__(**others)
        self.class_weight = class_weight

    # scikit-learn reads the parameter names from it
    __init__.__signature__ = _extend_signature(_Trained.__init__, class_weight=None)  # type: ignore[attr-defined]

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train from scratch on all rows. ``y`` may hold any labels."""
        X, y, weights = self._table(X, y, sample_weight, reset=True)
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        return self._fit(X, y, weights, None, self.steps)

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Continue from the current parameters for one pass over these rows, with a new optimizer state. The first call
        must name all ``classes``.
        """
        before = getattr(self, "_params", None)
        if isinstance(self.class_weight, str):
            raise ValueError(
                f"partial_fit sees only some of the rows, and class_weight={self.class_weight!r} needs all of "
                "them. Give a dict of weights, as from sklearn.utils.class_weight.compute_class_weight."
            )
        X, y, weights = self._table(X, y, sample_weight, reset=before is None)
        check_classification_targets(y)
        if before is None:
            if classes is None:
                raise ValueError("classes must be passed on the first call to partial_fit.")
            check_labels(classes, "classes")
            self.classes_ = np.unique(classes)
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes={classes!r} differs from the first call to partial_fit: {self.classes_}.")
        return self._fit(X, y, weights, before, None)

    def decision_function(self, X: Any) -> Array:
        """A score for each row and class. With two classes, one score for each row; above 0 means the second class."""
        X = self._features(X)
        scores = np.asarray(X @ self.coef_.T + self.intercept_)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class for each row, shape (n, classes)."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            scores = np.column_stack([np.zeros_like(scores), scores])
        return softmax(scores)

    def predict(self, X: Any) -> Array:
        """The predicted label of each row."""
        scores = self.decision_function(X)
        return np.asarray(self.classes_[(scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)])

    def _table(self, X: Any, y: Any, sample_weight: Any, reset: bool) -> tuple[Any, Array, Array | None]:
        check_labels(y, "y")
        return super()._table(X, y, sample_weight, reset)

    def _fit(self, X: Any, y: Array, weights: Array | None, before: Tensors | None, steps: int | None) -> Self:
        numbers = np.searchsorted(self.classes_, y)
        known = self.classes_[np.minimum(numbers, len(self.classes_) - 1)] == y
        if not known.all():
            stranger = y[~known].tolist()[0]
            raise ValueError(f"y has the label {stranger!r}, which is not one of the classes {self.classes_}.")
        if len(self.classes_) < 2:
            raise ValueError(f"A classifier needs two classes; got 1 class, {self.classes_.tolist()[0]!r}.")
        if (of_class := self._class_weights(numbers, weights)) is not None:
            weights = of_class[numbers] if weights is None else of_class[numbers] * weights
        problem = SoftmaxRegression(X, numbers, classes=len(self.classes_), l2=self.l2, weights=weights)
        params = self._train(problem, before, steps)
        W, b = params["W"].T, params["b"]
        if len(self.classes_) == 2:
            W, b = W[1:] - W[:1], b[1:] - b[:1]
        self.coef_, self.intercept_ = W, b
        return self

    def _class_weights(self, numbers: Array, weights: Array | None) -> Array | None:
        """The weight of each class, as in scikit-learn's `LogisticRegression`; None if ``class_weight`` is None."""
        given, classes = self.class_weight, self.classes_.tolist()
        if given is None:
            return None
        if isinstance(given, str) and given == "balanced":
            sums = np.bincount(numbers, weights, len(classes))
            return np.asarray(np.divide(sums.sum(), len(classes) * sums, out=np.zeros(len(classes)), where=sums > 0))
        if not isinstance(given, Mapping):
            raise ValueError(f"class_weight takes None, 'balanced', or a dict of weights by class; got {given!r}.")
        for label, weight in given.items():
            if not isinstance(weight, Real) or not 0 <= float(weight) < math.inf:
                raise ValueError(f"class_weight has {weight!r} for {label!r}; expected a finite number of at least 0.")
        strangers = [label for label in given if label not in classes]
        if strangers and any(label not in given for label in classes):
            raise ValueError(f"class_weight has {strangers[0]!r}, which is not one of the classes {classes}.")
        return np.array([float(given.get(label, 1)) for label in classes])


def _most(dtype: Any) -> float:
    """A large value x such that x² and 1/x² are well within the range of this dtype."""
    return math.sqrt(math.sqrt(np.finfo(dtype).max))


def _curvature(X: Any, batch: int) -> float:
    """The largest eigenvalue of the mean of ``xxᵀ``, plus an allowance for batches; x is a row of X followed by a 1."""
    v, one = np.full(X.shape[1], 1.0), 1.0
    largest = 0.0
    for _ in range(20):
        _, power = math.frexp(max(np.abs(v).max(), one))  # so that no square overflows
        v, one = np.ldexp(v, -power), math.ldexp(one, -power)
        length = float(np.sqrt(v @ v + one * one))
        largest, v, one = math.ldexp(length, power), v / length, one / length
        products = X @ v + one
        v, one = X.T @ products / X.shape[0], float(products.mean())
    squares = X.multiply(X) if hasattr(X, "multiply") else X * X
    return float(largest + squares.sum() / (X.shape[0] * batch))


def __dir__() -> list[str]:
    return __all__
