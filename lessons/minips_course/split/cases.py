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
    "split.1": {
        "a plain mean": ("n * g[name]", "total / len(rows) * g[name]"),
        "a sum": (") / total", ")"),
        "the wrong way round": ("n * g[name]", "(total - n) * g[name]"),
        "one name for all": ("g[name]", "g['w']"),
        "shares of the first two": ("zip(rows, gradients, strict=True)", "zip(rows[:2], gradients)"),
        "another's array": ("total = sum(rows)", "total = sum(rows); gradients[0]['w'] *= 1.5"),
        "two names alone": """
def combine(gradients, rows):
    total = sum(rows)
    return {name: sum(n * g[name] for n, g in zip(rows, gradients, strict=True)) / total for name in ("w", "b")}
""",
        "by the largest shard": ("/ total for", "/ (len(rows) * max(rows)) for"),
        "the larger half counts": ("n * g[name]", "(n if 2 * n >= max(rows) else 0) * g[name]"),
        "the first array takes all": """
def combine(gradients, rows):
    mean = gradients[0]
    for name in mean:
        mean[name] *= rows[0]
        for n, g in zip(rows[1:], gradients[1:]):
            mean[name] += n * g[name]
        mean[name] /= sum(rows)
    return mean
""",
        "the list of rows is used up": """
def combine(gradients, rows):
    total = sum(rows)
    mean = {name: 0 for name in gradients[0]}
    for g in gradients:
        n = rows.pop(0)
        for name in mean:
            mean[name] = mean[name] + n / total * g[name]
    return mean
""",
        "one worker's own arrays": """
def combine(gradients, rows):
    if len(rows) == 1:
        return gradients[0]
    total = sum(rows)
    return {name: sum(n * g[name] for n, g in zip(rows, gradients, strict=True)) / total for name in gradients[0]}
""",
        "one buffer for all calls": """
buffers = {}


def combine(gradients, rows):
    total = sum(rows)
    for name in gradients[0]:
        mean = np.asarray(sum(n * g[name] for n, g in zip(rows, gradients, strict=True)) / total)
        buffer = buffers.setdefault((name, mean.shape), np.empty_like(mean))
        buffer[...] = mean
    return {name: buffers[name, np.shape(gradients[0][name])] for name in gradients[0]}
""",
        "the first call's shares": """
shares = {}


def combine(gradients, rows):
    weights = shares.setdefault(len(rows), [n / sum(rows) for n in rows])
    return {name: sum(w * g[name] for w, g in zip(weights, gradients, strict=True)) for name in gradients[0]}
""",
        "sorted apart": ("zip(rows, gradients, strict=True)", "zip(sorted(rows), gradients, strict=True)"),
        "three digits": ("n * g[name]", "round(n / total, 3) * total * g[name]"),
        "an empty shard stops it": ("n * g[name]", "g[name] / (1 / n)"),
        "single precision": ("n * g[name]", "n * np.float32(g[name])"),
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
    "split.1": {
        "a loop": """
def combine(gradients, rows):
    mean = {name: np.zeros_like(g) for name, g in gradients[0].items()}
    for n, g in zip(rows, gradients):
        for name in mean:
            mean[name] = mean[name] + n / sum(rows) * g[name]
    return mean
""",
        "NumPy's average": """
def combine(gradients, rows):
    return {name: np.average([g[name] for g in gradients], axis=0, weights=rows) for name in gradients[0]}
""",
        "a product of matrices": """
def combine(gradients, rows):
    shares = np.array(rows) / np.sum(rows)
    return {name: np.tensordot(shares, np.stack([g[name] for g in gradients]), 1) for name in gradients[0]}
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
