"""Test cases for "Split a gradient": for its questions, its exercises and a claim."""

OUTCOMES = {
    "split.1": {
        "a few percent: each worker saw other images": {"mean": 0.05},
        "only the last digits of float64": {"mean": 9e-15},
        "nothing at all: every bit is the same": {"mean": 0.0},
        "none of these": {"mean": 1e-5},
    },
    "split.2": {
        "yes, except for the last digits": {"off": 1e-15, "large": 1.0, "small": 1.0},
        "no: the images of the large shard count too much": {"off": 0.2, "large": 1.2, "small": 0.3},
        "no: the images of the small shards count too much": {"off": 0.2, "large": 0.3, "small": 3.5},
        "none of these": {"off": 0.2, "large": 1.0, "small": 1.0},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "split.1": ["brackets", "rounding", "rounded"],
    "split.2": ["share that quarter", "eleven hundred"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "split.3": {
        "a plain mean": """
@ps.register
@dataclass(frozen=True)
class ByRows(ps.Aggregator):
    name = "byrows"
    weighs = True

    def combine(self, contributions):
        return {
            name: sum(one.gradients[name] for one in contributions) / len(contributions)
            for name in contributions[0].gradients
        }
""",
        "minips' own": """
@ps.register
@dataclass(frozen=True)
class ByRows(ps.Aggregator):
    name = "byrows"
    weighs = True

    def combine(self, contributions):
        return ps.WeightedMean().combine(contributions)
""",
        "a sum": ("one.rows / total * g", "one.rows * g"),
        "the wrong way round": ("one.rows / total * g", "total / one.rows / len(contributions) ** 2 * g"),
        "rows are not reported": ("    weighs = True\n", ""),
        "two names alone": """
@ps.register
@dataclass(frozen=True)
class ByRows(ps.Aggregator):
    name = "byrows"
    weighs = True

    def combine(self, contributions):
        total = sum(one.rows for one in contributions)
        return {name: sum(one.rows / total * one.gradients[name] for one in contributions) for name in ("W", "b")}
""",
        "shares of four workers": ("one.rows / total * g", "one.rows / total * g if one.worker < 4 else 0 * g"),
        "the sizes of the lesson": (
            "one.rows / total * g",
            "(1100 if one.rows == max(o.rows for o in contributions) else 100) / 1400 * g",
        ),
        "by the largest shard": (
            "total = sum(one.rows for one in contributions)",
            "total = len(contributions) * max(one.rows for one in contributions)",
        ),
        "the larger half counts": (
            "one.rows / total * g",
            "(one.rows * (2 * one.rows >= total) or one.rows / 2) / total * g",
        ),
        "whole percents": ("one.rows / total * g", "round(one.rows / total, 2) * g"),
        "single precision": ("one.rows / total * g", "one.rows / total * np.float32(g)"),
        "without what is tiny": (
            "one.rows / total * g",
            "one.rows / total * np.where(np.abs(g) < np.abs(g).max() / 100, 0, g)",
        ),
        "the first array takes all": """
@ps.register
@dataclass(frozen=True)
class ByRows(ps.Aggregator):
    name = "byrows"
    weighs = True

    def combine(self, contributions):
        total = sum(one.rows for one in contributions)
        mean = contributions[0].gradients
        for name in mean:
            mean[name] *= contributions[0].rows / total
            for one in contributions[1:]:
                mean[name] += one.rows / total * one.gradients[name]
        return mean
""",
        "one worker's own arrays": """
@ps.register
@dataclass(frozen=True)
class ByRows(ps.Aggregator):
    name = "byrows"
    weighs = True

    def combine(self, contributions):
        if len(contributions) == 1:
            return contributions[0].gradients
        total = sum(one.rows for one in contributions)
        return {
            name: sum(one.rows / total * one.gradients[name] for one in contributions)
            for name in contributions[0].gradients
        }
""",
        "one buffer for all calls": """
buffers = {}


@ps.register
@dataclass(frozen=True)
class ByRows(ps.Aggregator):
    name = "byrows"
    weighs = True

    def combine(self, contributions):
        total = sum(one.rows for one in contributions)
        for name, g in contributions[0].gradients.items():
            mean = sum(one.rows / total * one.gradients[name] for one in contributions)
            buffers.setdefault((name, g.shape), np.empty_like(g))[...] = mean
        return {name: buffers[name, g.shape] for name, g in contributions[0].gradients.items()}
""",
        "the first call's shares": """
shares = {}


@ps.register
@dataclass(frozen=True)
class ByRows(ps.Aggregator):
    name = "byrows"
    weighs = True

    def combine(self, contributions):
        total = sum(one.rows for one in contributions)
        weights = shares.setdefault(len(contributions), [one.rows / total for one in contributions])
        return {
            name: sum(w * one.gradients[name] for w, one in zip(weights, contributions, strict=True))
            for name in contributions[0].gradients
        }
""",
        "the list is used up": """
@ps.register
@dataclass(frozen=True)
class ByRows(ps.Aggregator):
    name = "byrows"
    weighs = True

    def combine(self, contributions):
        total = sum(one.rows for one in contributions)
        mean = {name: np.zeros_like(g) for name, g in contributions[0].gradients.items()}
        while contributions:
            one = contributions.pop(0)
            for name, g in one.gradients.items():
                mean[name] += one.rows / total * g
        return mean
""",
    },
    "split.2": {
        "all at once": ("rows[start : start + most]", "rows if start == 0 else rows[:0]"),
        "pieces count alike": ("len(piece) * g", "most * g"),
        "the last piece is lost": ("range(0, len(rows), most)", "range(0, len(rows) - most, most)"),
        "overlapping": ("start : start + most", "max(start - 1, 0) : start + most - 1"),
        "a sum": ("t / len(rows)", "t"),
        "two names alone": """
def in_pieces(problem, params, rows, most):
    total = {"W": 0, "b": 0}
    for start in range(0, len(rows), most):
        piece = rows[start : start + most]
        g = problem.gradient(params, piece)
        total = {name: t + len(piece) * g[name] for name, t in total.items()}
    return {name: t / len(rows) for name, t in total.items()}
""",
        "rows that repeat count once": (
            "    total = {name",
            "    rows = np.unique(rows)\n    total = {name",
        ),
        "the rows are sorted in place": ("    total = {name", "    rows.sort()\n    total = {name"),
        "the parameters take the sum": """
def in_pieces(problem, params, rows, most):
    start = {name: p.copy() for name, p in params.items()}
    for name in params:
        params[name] = np.zeros_like(start[name])
    for first in range(0, len(rows), most):
        piece = rows[first : first + most]
        for name, g in problem.gradient(start, piece).items():
            params[name] += len(piece) / len(rows) * g
    return params
""",
        "all rows of the problem": ("t / len(rows)", "t / problem.rows"),
        "the pieces' plain mean": """
def in_pieces(problem, params, rows, most):
    pieces = np.array_split(rows, -(-len(rows) // most))
    gradients = [problem.gradient(params, piece) for piece in pieces]
    return {name: sum(g[name] for g in gradients) / len(gradients) for name in params}
""",
        "a piece too large at the end": """
def in_pieces(problem, params, rows, most):
    total = {name: np.zeros_like(p) for name, p in params.items()}
    pieces = np.array_split(rows, max(1, len(rows) // most))
    for piece in pieces:
        for name, g in problem.gradient(params, piece).items():
            total[name] = total[name] + len(piece) * g
    return {name: t / len(rows) for name, t in total.items()}
""",
        "asks in pieces, answers at once": """
def in_pieces(problem, params, rows, most):
    for start in range(0, len(rows), most):
        problem.gradient(params, rows[start : start + most])
    return ps.SoftmaxRegression(problem.X, problem.y).gradient(params, rows)
""",
        "remembered for the rows": """
known = {}


def in_pieces(problem, params, rows, most):
    if rows.tobytes() not in known:
        total = {name: np.zeros_like(p) for name, p in params.items()}
        for start in range(0, len(rows), most):
            piece = rows[start : start + most]
            for name, g in problem.gradient(params, piece).items():
                total[name] = total[name] + len(piece) * g
        known[rows.tobytes()] = {name: t / len(rows) for name, t in total.items()}
    return known[rows.tobytes()]
""",
        "one buffer for all calls": """
total = {}


def in_pieces(problem, params, rows, most):
    for name, p in params.items():
        total.setdefault((name, p.shape), np.zeros_like(p))[...] = 0
    for start in range(0, len(rows), most):
        piece = rows[start : start + most]
        for name, g in problem.gradient(params, piece).items():
            total[name, g.shape][...] += len(piece) / len(rows) * g
    return {name: total[name, p.shape] for name, p in params.items()}
""",
    },
}
"""Maps an exercise and an error to a wrong answer, or to a piece of the solution and what replaces it."""

RIGHT = {
    "split.3": {
        "a dict of sums": """
@ps.register
@dataclass(frozen=True)
class ByRows(ps.Aggregator):
    name = "byrows"
    weighs = True

    def combine(self, contributions):
        total = sum(one.rows for one in contributions)
        return {
            name: np.asarray(sum(one.rows * one.gradients[name] for one in contributions) / total)
            for name in contributions[0].gradients
        }
""",
        "NumPy's average": """
@ps.register
@dataclass(frozen=True)
class ByRows(ps.Aggregator):
    name = "byrows"
    weighs = True

    def combine(self, contributions):
        rows = [one.rows for one in contributions]
        return {
            name: np.average([one.gradients[name] for one in contributions], axis=0, weights=rows)
            for name in contributions[0].gradients
        }
""",
        "a product of matrices": """
@ps.register
@dataclass(frozen=True)
class ByRows(ps.Aggregator):
    name = "byrows"
    weighs = True

    def combine(self, contributions):
        shares = np.array([one.rows for one in contributions], float)
        shares /= shares.sum()
        stacks = {name: np.stack([one.gradients[name] for one in contributions]) for name in contributions[0].gradients}
        return {name: np.tensordot(shares, stack, 1) for name, stack in stacks.items()}
""",
    },
    "split.2": {
        "equal pieces": """
def in_pieces(problem, params, rows, most):
    pieces = np.array_split(rows, -(-len(rows) // most))
    found = [(len(piece), problem.gradient(params, piece)) for piece in pieces]
    return {name: sum(n * g[name] for n, g in found) / len(rows) for name in params}
""",
        "a running mean": """
def in_pieces(problem, params, rows, most):
    mean, seen = None, 0
    while seen < len(rows):
        piece = rows[seen : seen + most]
        seen += len(piece)
        g = problem.gradient(params, piece)
        if mean is None:
            mean = g
        else:
            mean = {name: m + (g[name] - m) * (len(piece) / seen) for name, m in mean.items()}
    return mean
""",
        "a half of each": """
def in_pieces(problem, params, rows, most):
    if len(rows) <= most:
        return problem.gradient(params, rows)
    left, right = np.array_split(rows, 2)
    one, other = (in_pieces(problem, params, half, most) for half in (left, right))
    return {name: (len(left) * one[name] + len(right) * other[name]) / len(rows) for name in params}
""",
    },
}
"""Maps an exercise and what is special to another right answer."""

MUTANT = (
    "the mean adds all gradients but the last",
    "minips/stages/aggregators/base.py",
    "for piece in pieces[2:]:",
    "for piece in pieces[2:-1]:",
)
"""A mean that leaves the last worker out."""
