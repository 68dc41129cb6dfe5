"""Every gradient has a formula, and every answer a check."""

import numpy as np
import pytest
from scipy import sparse

import minips as ps

rng = np.random.default_rng(0)
X = rng.normal(size=(60, 4))
TARGET = X @ [1.0, -2.0, 0.5, 0.0] + 3 + 0.1 * rng.normal(size=60)
CLASSES = (X[:, :3] + 0.5 * rng.normal(size=(60, 3))).argmax(axis=1)

PROBLEMS = {
    "regression": ps.LinearRegression(X, TARGET),
    "ridge": ps.LinearRegression(X, TARGET, l2=0.3),
    "softmax": ps.SoftmaxRegression(X, CLASSES),
    "softmax with l2": ps.SoftmaxRegression(X, CLASSES, l2=0.3),
    "softmax with an empty class": ps.SoftmaxRegression(X, CLASSES, classes=5),
    "mlp": ps.MLP(X, CLASSES, hidden=6),
    "mlp with l2": ps.MLP(X, CLASSES, hidden=6, l2=0.3),
}
every_problem = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=list(PROBLEMS))


def somewhere(problem):
    draws = np.random.default_rng(1)
    return {name: draws.normal(size=x.shape) for name, x in problem.init(draws).items()}


@every_problem
@pytest.mark.parametrize("rows", [None, slice(10, 30), np.array([3, 1, 1, 7])], ids=["all", "slice", "indices"])
def test_gradients_agree_with_finite_differences(problem, rows):
    params, step = somewhere(problem), 1e-6
    loss, gradients = problem.loss_and_gradient(params, rows)
    assert loss == problem.loss(params, rows)
    for name, x in params.items():
        numeric = np.zeros(x.shape)
        for index in np.ndindex(x.shape):
            shifted = {**params, name: x.copy()}
            shifted[name][index] = x[index] + step
            above = problem.loss(shifted, rows)
            shifted[name][index] = x[index] - step
            numeric[index] = (above - problem.loss(shifted, rows)) / (2 * step)
        np.testing.assert_allclose(gradients[name], numeric, rtol=1e-6, atol=1e-8)


@every_problem
def test_gradients_of_equal_shards_average_to_the_gradient_of_the_whole(problem):
    params = somewhere(problem)
    parts = [problem.shard(worker, 4).gradient(params) for worker in range(4)]
    for name, whole in problem.gradient(params).items():
        np.testing.assert_allclose(np.mean([part[name] for part in parts], axis=0), whole, rtol=1e-12, atol=1e-15)


@every_problem
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_gradients_have_the_shapes_and_the_dtype_of_the_parameters(problem, dtype):
    small = type(problem)(problem.X.astype(dtype), problem.y, l2=problem.l2)
    params = small.init(np.random.default_rng(0))
    for name, gradient in small.gradient(params, slice(0, 5)).items():
        assert (gradient.shape, gradient.dtype) == (params[name].shape, np.dtype(dtype))


@every_problem
def test_the_parameters_are_not_changed(problem):
    params = somewhere(problem)
    kept = {name: x.copy() for name, x in params.items()}
    problem.loss_and_gradient(params)
    problem.accuracy(params)
    for name in params:
        np.testing.assert_array_equal(params[name], kept[name])


def test_shards_are_contiguous_complete_and_near_equal():
    problem = PROBLEMS["softmax"]
    parts = [problem.shard(worker, 7) for worker in range(7)]
    np.testing.assert_array_equal(np.concatenate([part.X for part in parts]), problem.X)
    np.testing.assert_array_equal(np.concatenate([part.y for part in parts]), problem.y)
    assert {part.rows for part in parts} == {8, 9}
    assert all(part.classes == problem.classes for part in parts)


def test_more_workers_than_rows_are_refused():
    with pytest.raises(ValueError, match="60 training rows cannot be shared among 61 workers"):
        PROBLEMS["softmax"].shard(0, 61)


# Answers


@pytest.mark.parametrize("l2", [0.0, 0.5])
def test_the_solution_is_that_of_least_squares(l2):
    problem = ps.LinearRegression(X, TARGET, l2=l2)
    # The ridge penalty as further rows: √(n·l2) times the unit matrix, without a bias, with zeros for targets.
    A = np.vstack([np.c_[X, np.ones(60)], np.c_[np.sqrt(60 * l2) * np.eye(4), np.zeros(4)]])
    expected = np.linalg.lstsq(A, np.r_[TARGET, np.zeros(4)], rcond=None)[0]
    solution = problem.solution()
    np.testing.assert_allclose(solution["w"], expected[:4], rtol=1e-9)
    np.testing.assert_allclose(solution["b"], expected[4], rtol=1e-9)
    for gradient in problem.gradient(solution).values():
        np.testing.assert_allclose(gradient, 0, atol=1e-12)


def test_the_solution_of_dependent_columns_is_still_of_least_loss():
    problem = ps.LinearRegression(np.c_[X, X[:, 0]], TARGET)
    assert problem.loss(problem.solution()) == pytest.approx(
        PROBLEMS["regression"].loss(PROBLEMS["regression"].solution())
    )


def test_softmax_agrees_with_scikit_learn():
    from sklearn.linear_model import LogisticRegression

    l2 = 0.05
    problem = ps.SoftmaxRegression(X, CLASSES, l2=l2)
    theirs = LogisticRegression(C=1 / (l2 * 60), tol=1e-10, max_iter=10_000).fit(X, CLASSES)
    optimum = {"W": theirs.coef_.T, "b": theirs.intercept_}
    for gradient in problem.gradient(optimum).values():
        np.testing.assert_allclose(gradient, 0, atol=1e-6)
    assert problem.accuracy(optimum) == theirs.score(X, CLASSES)
    from sklearn.metrics import log_loss

    plain = ps.SoftmaxRegression(X, CLASSES)
    assert plain.loss(optimum) == pytest.approx(log_loss(CLASSES, theirs.predict_proba(X)))


def test_large_logits_do_not_overflow():
    problem = ps.SoftmaxRegression(np.array([[1.0], [-1.0]]), np.array([0, 1]))
    loss, gradients = problem.loss_and_gradient({"W": np.array([[1e4, -1e4]]), "b": np.zeros(2)})
    assert loss == pytest.approx(0)
    assert all(np.isfinite(g).all() for g in gradients.values())


def test_accuracy_is_the_share_of_rows_that_are_right():
    problem = ps.SoftmaxRegression(np.eye(4), np.array([0, 1, 2, 2]))
    assert problem.accuracy({"W": np.eye(4, 3), "b": np.zeros(3)}) == 0.75
    assert PROBLEMS["regression"].accuracy(PROBLEMS["regression"].solution()) is None


# Held-out rows


def test_held_out_is_the_same_problem_on_other_rows():
    problem = ps.LinearRegression(X[:40], TARGET[:40], X[40:], TARGET[40:], l2=0.1)
    other = problem.held_out()
    np.testing.assert_array_equal(other.X, X[40:])
    assert (problem.l2, other.l2) == (0.1, 0)  # the loss of held-out rows is the loss alone
    assert other.held_out() is None
    assert problem.rows == 40
    assert problem.shard(0, 2).held_out() is None


def test_without_held_out_rows_there_is_no_such_problem():
    assert PROBLEMS["softmax"].held_out() is None


def test_a_class_that_only_the_held_out_rows_have_counts():
    problem = ps.SoftmaxRegression(X[:4], np.array([0, 1, 0, 1]), X[4:6], np.array([0, 2]))
    assert problem.classes == 3
    assert np.isfinite(problem.held_out().loss(problem.init(np.random.default_rng(0))))


# What does not fit


def test_lists_and_whole_numbers_are_taken():
    problem = ps.LinearRegression([[1, 2], [3, 4], [5, 7]], [1, 2, 3], [[1, 1]], [2])
    params = problem.init(np.random.default_rng(0))
    assert params["w"].dtype == float
    assert problem.held_out().loss(params) == 2.0


def test_whole_number_targets_leave_the_gradient_single():
    problem = ps.LinearRegression(X.astype("f4"), CLASSES)
    gradients = problem.gradient(problem.init(np.random.default_rng(0)))
    assert {g.dtype for g in gradients.values()} == {np.dtype("f4")}


@pytest.mark.parametrize("cls", [ps.LinearRegression, ps.SoftmaxRegression])
@pytest.mark.parametrize(
    ("rows", "targets", "words"),
    [
        (X, CLASSES[:-1], "as many rows"),
        (X[:0], CLASSES[:0], "at least one"),
        (X, CLASSES[:, None], r"y of shape \(rows,\)"),
        (X[:, 0], CLASSES, r"X of shape \(rows, features\)"),
    ],
    ids=["too few", "none", "a column", "no features"],
)
def test_rows_that_do_not_fit_are_refused(cls, rows, targets, words):
    with pytest.raises(ValueError, match=words):
        cls(rows, targets)


class Own(ps.Problem):
    """A learner's problem, of rows of any shape."""

    def init(self, rng):
        return {"w": np.zeros(1)}

    def loss_and_gradient(self, params, rows=None):
        return 0.0, {"w": np.zeros(1)}


@pytest.mark.parametrize("cls", [ps.LinearRegression, ps.SoftmaxRegression, ps.MLP, Own])
@pytest.mark.parametrize(
    ("rows", "targets", "words"),
    [
        (X, CLASSES[:-1], "as many rows of X_validation as of y_validation"),
        (X[:0], CLASSES[:0], "at least one"),
        (X, CLASSES[:, None], r"y_validation has the shape \(60, 1\), y has \(60,\).*[Rr]eshape"),
        (X[:, :3], CLASSES, r"X_validation has the shape \(60, 3\), X has \(60, 4\)"),
        (X, CLASSES.astype(str), "y_validation holds <U21, y holds int64"),
        (X.astype(str), CLASSES, "X_validation holds <U32, X holds float64"),
        (X, None, "X_validation was given without y_validation"),
        (None, CLASSES, "y_validation was given without X_validation"),
        (X, 3, "y_validation must be an array of rows"),
    ],
    ids=["too few", "none", "a column", "narrower", "text", "text rows", "no y", "no X", "a number"],
)
def test_held_out_rows_that_do_not_fit_are_refused(cls, rows, targets, words):
    with pytest.raises(ValueError, match=words):
        cls(X, CLASSES, rows, targets)


@pytest.mark.parametrize("cls", [ps.LinearRegression, ps.SoftmaxRegression, ps.MLP, Own])
@pytest.mark.parametrize(
    ("rows", "targets", "words"),
    [
        (X, None, "X was given without y"),
        (None, CLASSES, "y was given without X"),
        (1.0, CLASSES, "X must be an array"),
    ],
)
def test_rows_without_targets_and_targets_without_rows_are_refused(cls, rows, targets, words):
    with pytest.raises(ValueError, match=words):
        cls(rows, targets)


def test_rows_of_a_problem_of_ones_own_may_have_any_shape():
    problem = Own(X.reshape(60, 2, 2), X, X.reshape(60, 2, 2)[:7], X[:7])
    assert problem.held_out().y.shape == (7, 4)


@pytest.mark.parametrize("cls", [ps.LinearRegression, ps.SoftmaxRegression])
def test_rows_of_text_are_refused(cls):
    with pytest.raises(ValueError, match="takes numbers"):
        cls(X.astype(str), CLASSES)


@pytest.mark.parametrize("y", [CLASSES + 0.5, CLASSES - 1], ids=["floats", "negative"])
def test_softmax_takes_class_numbers_of_held_out_rows(y):
    with pytest.raises(ValueError, match="class numbers"):
        ps.SoftmaxRegression(X, CLASSES, X, y)


def test_held_out_targets_have_the_dtype_of_the_rows():
    problem = ps.LinearRegression(X.astype("f4"), TARGET, (9 * X).astype(int), CLASSES)
    assert problem.y.dtype == problem.held_out().y.dtype == np.dtype("f4")
    assert problem.held_out().X.dtype.kind == "f"


@pytest.mark.parametrize("y", [CLASSES + 0.5, CLASSES - 1], ids=["floats", "negative"])
def test_softmax_takes_class_numbers(y):
    with pytest.raises(ValueError, match="class numbers"):
        ps.SoftmaxRegression(X, y)


def test_a_class_beyond_the_last_is_refused():
    with pytest.raises(ValueError, match="y holds the class 2, but classes are 0 to 1 only"):
        ps.SoftmaxRegression(X, CLASSES, classes=2)


def test_an_mlp_learns_what_no_linear_model_can():
    corners = np.random.default_rng(3).uniform(-1, 1, (400, 2)).astype("f4")
    either = (corners[:, 0] * corners[:, 1] > 0).astype(int)  # exclusive or: no line separates it
    rows = (corners[:300], either[:300], corners[300:], either[300:])
    config = ps.Config(workers=2, steps=400, transport="inproc", optimizer=ps.Adam(lr=0.02))
    linear = ps.train(ps.SoftmaxRegression(*rows), config, engine="threads")
    layered = ps.train(ps.MLP(*rows, hidden=16), config, engine="threads")
    assert linear.accuracy < 0.7
    assert layered.accuracy > 0.9


def test_a_problem_says_what_it_is():
    rows = np.zeros((6, 4), "f4"), np.arange(6) % 3
    assert repr(ps.LinearRegression(*rows)) == "<LinearRegression of 6 rows, 4 features>"
    assert repr(ps.SoftmaxRegression(*rows)) == "<SoftmaxRegression of 6 rows, 4 features, 3 classes>"
    assert repr(ps.MLP(*rows, hidden=5)) == "<MLP of 6 rows, 4 features, 3 classes, 5 hidden units>"
    assert repr(ps.SoftmaxRegression(*rows).shard(0, 3)) == "<SoftmaxRegression of 2 rows, 4 features, 3 classes>"


def test_a_problem_with_rows_of_its_own_kind_or_none_has_a_repr():
    class Images(ps.Problem):
        def init(self, rng):
            return {}

        def loss_and_gradient(self, params, rows=None):
            return 0.0, {}

    class NoRows(Images):
        def __init__(self):
            pass

    assert repr(Images(np.zeros((5, 2, 2)), np.zeros(5))) == "<Images of 5 rows>"
    assert "NoRows object" in repr(NoRows())


@pytest.mark.parametrize("problem", [ps.SoftmaxRegression, ps.MLP])
def test_class_numbers_that_are_none_are_refused_and_many_classes_are_not(problem):
    with pytest.raises(ValueError, match=r"y holds the class 1000000000 in 2 rows.*np\.unique.*classes="):
        problem(np.eye(2), np.array([0, 10**9]))
    assert problem(np.eye(2), np.array([0, 999])).classes == 1000
    assert problem(np.eye(2), np.array([0, 5000]), classes=5001).classes == 5001
    assert problem(np.zeros((5001, 2)), np.arange(5001)).classes == 5001


# A problem of one's own, sparse rows, weights


class Bare(ps.Problem):
    """A problem that sets its rows itself."""

    def __init__(self):
        self.X, self.y, self.validation = np.zeros((8, 2)), np.zeros(8), None

    def init(self, rng):
        return {"w": np.zeros(2)}

    def loss_and_gradient(self, params, rows=None):
        return float((params["w"] - 1) @ (params["w"] - 1)) / 2, {"w": params["w"] - 1}


def test_a_problem_that_sets_its_rows_itself_trains():
    run = ps.train(Bare(), ps.Config(workers=2, steps=100, optimizer=ps.SGD(lr=0.5)), engine="threads")
    np.testing.assert_allclose(run.params["w"], 1)


def test_the_solution_of_sparse_and_of_weighted_rows():
    dense = ps.LinearRegression(X, TARGET, l2=0.1).solution()
    thin = ps.LinearRegression(sparse.csr_matrix(X), TARGET, l2=0.1).solution()
    counts = np.arange(len(X)) % 3
    weighted = ps.LinearRegression(X, TARGET, l2=0.1, weights=counts).solution()
    copies = ps.LinearRegression(np.repeat(X, counts, axis=0), np.repeat(TARGET, counts), l2=0.1).solution()
    for name, values in dense.items():
        np.testing.assert_allclose(thin[name], values)
        np.testing.assert_allclose(weighted[name], copies[name])
        assert not np.allclose(weighted[name], values)
