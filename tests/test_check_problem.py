"""The check of problems: those of minips pass, and each seeded mistake is caught."""

import misfits
import numpy as np
import pytest

import minips as ps

X, Y, X_TEST, Y_TEST = ps.datasets.synthetic(rows=80, features=5, classes=3)


@pytest.mark.parametrize(
    "problem",
    [
        ps.SoftmaxRegression(X, Y, l2=0.1),
        ps.SoftmaxRegression(X.astype("f8"), Y, weights=np.arange(len(Y)) % 3),
        ps.LinearRegression(X, Y, l2=0.1),
        ps.MLP(X.astype("f8"), Y, hidden=7),
    ],
    ids=repr,
)
def test_the_problems_of_minips_pass(problem):
    if problem.weights is not None:
        problem.weights[:] = 1 + 0 * problem.weights  # halves of unequal weight do not average
    ps.testing.check(problem)


class Doubled(ps.SoftmaxRegression):
    def loss_and_gradient(self, params, rows=None):
        loss, gradient = super().loss_and_gradient(params, rows)
        return loss, {name: 2 * g for name, g in gradient.items()}


class Summed(ps.LinearRegression):
    def loss_and_gradient(self, params, rows=None):
        loss, gradient = super().loss_and_gradient(params, rows)
        count = len(self._select(rows)[1])
        return loss * count, {name: np.asarray(g * g.dtype.type(count)) for name, g in gradient.items()}


class Sharded(ps.LinearRegression):
    def shard(self, worker, workers):
        part = super().shard(worker, workers)
        part.y = part.y + 100 * (worker == 0) * (workers > 1)
        return part


class Wide(ps.SoftmaxRegression):
    def loss_and_gradient(self, params, rows=None):
        loss, gradient = super().loss_and_gradient(params, rows)
        return loss, {name: g.astype("f8") for name, g in gradient.items()}


class Greedy(ps.SoftmaxRegression):
    def loss_and_gradient(self, params, rows=None):
        loss, gradient = super().loss_and_gradient(params, rows)
        params["W"] -= gradient["W"]
        return loss, gradient


class Noisy(ps.SoftmaxRegression):
    count = 0

    def loss_and_gradient(self, params, rows=None):
        loss, gradient = super().loss_and_gradient(params, rows)
        Noisy.count += 1
        return loss, {name: g + np.float32(1e-3 * Noisy.count) for name, g in gradient.items()}


class Silent(ps.SoftmaxRegression):
    def loss_and_gradient(self, params, rows=None):
        super().loss_and_gradient(params, rows)


class Swapped(ps.SoftmaxRegression):
    def loss_and_gradient(self, params, rows=None):
        loss, gradient = super().loss_and_gradient(params, rows)
        return gradient, loss


class WholeBatch(ps.SoftmaxRegression):
    """Forgets ``rows``."""

    def loss_and_gradient(self, params, rows=None):
        return super().loss_and_gradient(params)


class Unweighted(ps.SoftmaxRegression):
    """Forgets the rows' weights."""

    def loss_and_gradient(self, params, rows=None):
        X, y = self._select(rows)
        return ps.SoftmaxRegression(X, y, classes=3).loss_and_gradient(params)


class Scales(ps.LinearRegression):
    """Normalises its rows, in place."""

    def loss_and_gradient(self, params, rows=None):
        self.X /= np.float32(1.01)
        return super().loss_and_gradient(params, rows)


class Global(ps.SoftmaxRegression):
    """Dropout of NumPy's global generator, seeded so that it repeats."""

    def loss_and_gradient(self, params, rows=None):
        np.random.seed(0)
        np.random.random(3)
        return super().loss_and_gradient(params, rows)


class Lends(ps.LinearRegression):
    """Its gradient is the parameter: that of |w|²/2."""

    def loss_and_gradient(self, params, rows=None):
        return sum(float(np.vdot(p, p)) for p in params.values()) / 2, dict(params)


class Undefined(ps.LinearRegression):
    def loss_and_gradient(self, params, rows=None):
        return float("nan"), super().loss_and_gradient(params, rows)[1]


class Renames(ps.SoftmaxRegression):
    def loss_and_gradient(self, params, rows=None):
        loss, gradient = super().loss_and_gradient(params, rows)
        return loss, {name.upper(): g for name, g in gradient.items()}


class Whole(ps.LinearRegression):
    """Parameters in integers."""

    def init(self, rng):
        return {name: p.astype(int) for name, p in super().init(rng).items()}


class DrawnInit(ps.SoftmaxRegression):
    def init(self, rng):
        return {name: p + np.random.default_rng().random() for name, p in super().init(rng).items()}


class Dropout(ps.SoftmaxRegression):
    """Drops features where it trains: a right one."""

    def loss_and_gradient(self, params, rows=None, rng=None):
        X, y = self._select(rows)
        kept = self.kept_features(X, rng)
        problem = ps.SoftmaxRegression(X * np.asarray(kept, X.dtype), y, classes=3)
        return problem.loss_and_gradient(self.scaled(params))

    def kept_features(self, X, rng):
        return np.ones(X.shape) if rng is None else (rng.random(X.shape) < 0.8) / 0.8

    def scaled(self, params):
        return params


class DropsAlways(Dropout):
    def kept_features(self, X, rng):
        return super().kept_features(X, np.random.default_rng() if rng is None else rng)


class DropsGlobally(Dropout):
    def kept_features(self, X, rng):
        return super().kept_features(X, rng and np.random.default_rng())


class ForgetsTheMask(Dropout):
    """The gradient is that without dropout."""

    def loss_and_gradient(self, params, rows=None, rng=None):
        loss, _ = super().loss_and_gradient(params, rows, rng)
        return loss, super().loss_and_gradient(params, rows, None)[1]


CLICKS = ps.datasets.clicks(rows=300, items=40, width=3, dtype="float64")


class Clicks(ps.ClickModel):
    def __init__(self):
        super().__init__(*CLICKS, items=40)


class ForgetsARow(Clicks):
    def rows_needed(self, rows=None):
        return {"E": super().rows_needed(rows)["E"][1:]}


class ReadsTheNeighbours(Clicks):
    """Its rows_needed knows the gradient's rows, and not those that the log-odds read, too."""

    def _log_odds(self, params, X):
        beside = params["E"][(X[:, 0].astype(int) + 1) % 40]
        return super()._log_odds(params, X) + np.where(beside.sum(axis=1) > 1, 1e-9, 0)


class PenaltyOnAll(Clicks):
    """A penalty on the whole table, whose gradient is left out."""

    def loss_and_gradient(self, params, rows=None):
        loss, gradient = super().loss_and_gradient(params, rows)
        return loss + 1e-9 * float(np.square(params["E"]).mean()), gradient


class ReadsFarBelow(Clicks):
    """Rows that are far below zero count."""

    def loss_and_gradient(self, params, rows=None):
        loss, gradient = super().loss_and_gradient(params, rows)
        return loss + 1e-9 * float((params["E"] < -100).any()), gradient


class KnowsNoRest(Clicks):
    """Takes None, which is all rows, for none."""

    def rows_needed(self, rows=None):
        return super().rows_needed([] if rows is None else rows)


class CountsFromOne(Clicks):
    def rows_needed(self, rows=None):
        return {"E": super().rows_needed(rows)["E"] + 1}


class Masks(Clicks):
    def rows_needed(self, rows=None):
        return {"E": np.isin(np.arange(40), super().rows_needed(rows)["E"])}


class NamesAnother(Clicks):
    def rows_needed(self, rows=None):
        return {"e": super().rows_needed(rows)["E"]}


class IsDense(Clicks):
    def loss_and_gradient(self, params, rows=None):
        loss, gradient = super().loss_and_gradient(params, rows)
        E = np.zeros_like(params["E"])
        np.add.at(E, *gradient["E"])
        return loss, gradient | {"E": E}


class KeepsTheLast(Clicks):
    """Of an item that comes twice only the last gradient."""

    def loss_and_gradient(self, params, rows=None):
        loss, gradient = super().loss_and_gradient(params, rows)
        rows = np.arange(self.rows)[slice(None) if rows is None else rows]
        last = [*{self.X[row, 0]: row for row in rows}.values()]
        ids, values = super().loss_and_gradient(params, last)[1]["E"]
        return loss, gradient | {"E": ps.Rows(ids, values * len(last) / len(rows))}


class BeyondTheTable(Clicks):
    def loss_and_gradient(self, params, rows=None):
        loss, gradient = super().loss_and_gradient(params, rows)
        return loss, gradient | {"E": ps.Rows(gradient["E"].ids + 40, gradient["E"].values)}


class OtherWidth(Clicks):
    def loss_and_gradient(self, params, rows=None):
        loss, gradient = super().loss_and_gradient(params, rows)
        return loss, gradient | {"E": ps.Rows(gradient["E"].ids, gradient["E"].values[:, :2])}


class TouchesMore(Clicks):
    """Rows of zeros for all that there are."""

    def loss_and_gradient(self, params, rows=None):
        loss, gradient = super().loss_and_gradient(params, rows)
        ids, values = gradient["E"]
        more = np.arange(40)
        return loss, gradient | {"E": ps.Rows(np.append(ids, more), np.append(values, np.zeros((40, 3)), axis=0))}


class SaysNotWhich(Clicks):
    def rows_needed(self, rows=None):
        return ps.Problem.rows_needed(self, rows)


class NamedByAText(Clicks):
    def __init__(self):
        super().__init__()
        self.tables = "E"


class OneHot(Clicks):
    """Multiplies the whole table by zeros and ones, which needs no more rows than the ones: a right one."""

    def loss_and_gradient(self, params, rows=None):
        X, _ = self._select(rows)
        hot = X[:, :1] == np.arange(40)
        loss, gradient = super().loss_and_gradient(params | {"E": self.spread(hot, params["E"])}, rows)
        return loss, gradient

    def spread(self, hot, E):
        rows = hot.astype(float) @ E
        whole = np.zeros_like(E)
        whole[hot.argmax(axis=1)] = rows
        return whole


@pytest.mark.parametrize("problem", [Clicks(), OneHot(), Dropout(X, Y)], ids=["tables", "one-hot", "draws"])
def test_tables_and_problems_that_draw_pass(problem):
    ps.testing.check(problem)


@pytest.mark.soak
def test_the_click_model_on_its_own_data_passes():
    ps.testing.check(ps.ClickModel(*ps.datasets.clicks()))


NOT_A_PAIR = [
    (Silent(X, Y), r"loss_and_gradient returns the loss and a dict of gradients; got None\."),
    (Swapped(X, Y), r"loss_and_gradient returns the loss and a dict of gradients; got \({'W': array.*}, \d\.\d+\)\."),
]


@pytest.mark.parametrize(("problem", "said"), NOT_A_PAIR, ids=["none", "swapped"])
def test_a_run_says_what_loss_and_gradient_returns(problem, said):
    with pytest.raises(RuntimeError, match=f"worker 0 failed: TypeError: {said}"):
        ps.train(problem, ps.Config(workers=1, steps=2, timeout_s=5), engine="threads")


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        *NOT_A_PAIR,
        (Doubled(X, Y), "the gradient is not that of the loss"),
        (Summed(X, Y), "two halves of the rows do not average"),
        (Wide(X, Y), r"gradient of 'W' is float64 of \(5, 3\), the parameter float32"),
        (Greedy(X, Y), "changed the parameter 'W'"),
        (misfits.Reuses(X, Y), "writes into arrays that it returned before"),
        (Sharded(X, Y), "two halves of the rows do not average"),
        (Noisy(X, Y), "other bits the second time"),
        (WholeBatch(X, Y), r"rows 0 to \d+: the loss is .*, and that of a problem of only these rows is"),
        (Unweighted(X, Y, weights=1 + np.arange(len(Y)) % 3), "does not follow the rows' weights"),
        (Scales(X, Y), "other bits the second time|changed the rows, X or y"),
        (Global(X, Y), "uses a global generator"),
        (Lends(X, Y), "the gradient of 'w' is the parameter's own array"),
        (Undefined(X, Y), "the loss is nan near the initial parameters"),
        (Renames(X, Y), r"the gradient names \['W', 'B'\], the parameters are \['W', 'b'\]"),
        (Whole(X, Y), "init makes 'w' of int64; parameters must be floats"),
        (DrawnInit(X, Y), "init makes a different 'W' from the same generator"),
        (DropsAlways(X, Y), "rng not given: .*other bits the second time; .*nothing if it is None"),
        (DropsGlobally(X, Y), "rng given: .*other bits the second time"),
        (ForgetsTheMask(X, Y), "rng given: the gradient is not that of the loss"),
        (ForgetsARow(), "rows_needed.*the gradient of 'E' has rows that it omits"),
        (ReadsTheNeighbours(), "rows_needed.*it omits rows that loss_and_gradient reads"),
        (PenaltyOnAll(), "rows_needed.*it omits rows that loss_and_gradient reads"),
        (ReadsFarBelow(), "rows_needed.*it omits rows that loss_and_gradient reads"),
        (KnowsNoRest(), r"rows_needed\(None, for all rows\): the gradient of 'E' has rows that it omits"),
        (CountsFromOne(), "rows_needed.*has the rows 0 to 39; got|the gradient of 'E' has rows that it omits"),
        (Masks(), "rows_needed.*Rows are a list of whole numbers, which np.flatnonzero makes of a mask"),
        (NamesAnother(), "expected a dict with the rows of each of E"),
        (IsDense(), r"'E' is a table, so its gradient must be ps.Rows\(ids, values\); got ndarray"),
        (KeepsTheLast(), "the gradient is not that of the loss"),
        (BeyondTheTable(), "the gradient of 'E': .*A tensor of shape .* has the rows 0 to 39; got"),
        (OtherWidth(), r"Rows has values of float64 of \(\d+, 2\) for \d+ rows; the table is float64 of \(40, 3\)"),
        (TouchesMore(), "the gradient of 'E' has rows that it omits"),
        (SaysNotWhich(), "NotImplementedError: SaysNotWhich has tables; override rows_needed"),
        (NamedByAText(), r"tables must be a tuple of names .* got 'E'"),
    ],
)
def test_a_mistake_is_said(problem, said):
    with pytest.raises(AssertionError, match=said):
        ps.testing.check(problem)
