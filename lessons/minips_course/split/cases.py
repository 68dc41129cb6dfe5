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
    },
    "split.2": {
        "all at once": ("rows[start : start + most]", "rows if start == 0 else rows[:0]"),
        "pieces count alike": ("len(piece) * g", "most * g"),
        "the last piece is lost": ("range(0, len(rows), most)", "range(0, len(rows) - most, most)"),
        "overlapping": ("start : start + most", "max(start - 1, 0) : start + most - 1"),
        "a sum": ("t / len(rows)", "t"),
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it."""

MUTANT = (
    "the mean adds all gradients but the last",
    "minips/stages/aggregators/base.py",
    "for piece in pieces[2:]:",
    "for piece in pieces[2:-1]:",
)
"""A mean that leaves the last worker out."""
