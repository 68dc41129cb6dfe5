"""Test cases for "Trust nobody": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "trust.1": {
        "nearly as many": {"share": 0.9},
        "about half as many": {"share": 0.5},
        "at most a third of them": {"share": 0.21},
        "none of these": {"share": nan},
    },
    "trust.2": {
        "the mean": {"Mean": 0.5, "Median": 0.9, "TrimmedMean": 0.9, "Krum": 0.9},
        "the median": {"Mean": 0.9, "Median": 0.4, "TrimmedMean": 0.9, "Krum": 0.9},
        "the trimmed mean, trim = 1": {"Mean": 0.9, "Median": 0.9, "TrimmedMean": 0.3, "Krum": 0.9},
        "Krum, bad = 1": {"Mean": 0.9, "Median": 0.9, "TrimmedMean": 0.9, "Krum": 0.2},
        "no rule: they differ by less than 10 percentage points": {
            "Mean": 0.9,
            "Median": 0.9,
            "TrimmedMean": 0.9,
            "Krum": 0.9,
        },
        "none of these": {"Mean": nan, "Median": 0.9, "TrimmedMean": 0.9, "Krum": 0.9},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "trust.1": ["a fifth of 100", "follow the noise", "cannot make up"],
    "trust.2": ["nearer to them", "takes the zeros", "chooses the zeros", "one whole gradient"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "trust.1": {
        "the mean": (" * (1 if length <= limit else limit / length)", ""),
        "all of one length": ("1 if length <= limit else limit / length", "limit / max(length, 1e-9)"),
        "the mean length": ("np.median(lengths)", "np.mean(lengths)"),
        "the shortest": ("np.median(lengths)", "np.min(lengths)"),
        "one tensor's length": ("c.gradients.values()", "list(c.gradients.values())[:1]"),
        "squared lengths": ("np.sqrt(sum(", "float(sum("),
        "nothing over nothing": ("length <= limit", "length < limit"),
        "always float64": ("np.asarray(total / len(contributions), first.dtype)", "total / len(contributions)"),
        "a worker's own array": ("np.zeros(first.shape)", "first"),
        "a sum": ("total / len(contributions)", "total"),
    },
    "trust.2": {
        "noise": ("np.sign(g)", "part.rng.normal(size=g.shape)"),
        "each its own side": ("part.truth(params)", "gradient"),
        "downhill": ("-1000", "1000"),
        "too gently": ("-1000", "-0.001"),
        "one tensor": ("-1000 * np.sign(g)", "-1000 * np.sign(g) if name == 'b' else g"),
        "not finite": ("-1000", "-np.inf"),
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it."""

MUTANT = (
    "the median takes the largest value of each coordinate",
    "minips/stages/aggregators/robust.py",
    "np.median(pieces, axis=0)",
    "np.max(pieces, axis=0)",
)
"""A median that returns the largest value of each coordinate."""
