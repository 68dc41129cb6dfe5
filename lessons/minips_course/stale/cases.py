"""Test cases for "Learn from old gradients": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "stale.1": {
        "with one backup, not under ASP": {"backup": 0.0, "asp": 0.85},
        "under ASP, not with one backup": {"backup": 0.9, "asp": 0.2},
        "under both": {"backup": 0.0, "asp": 0.2},
        "under neither": {"backup": 0.9, "asp": 0.85},
        "none of these": {"backup": nan, "asp": nan},
    },
    "stale.2": {
        "higher than BSP": {"ratio": 1.3},
        "a little lower, as without momentum": {"ratio": 0.9},
        "about half of it": {"ratio": 0.5},
        "less than a tenth of it": {"ratio": 0.04},
        "none of these": {"ratio": 0.2},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "stale.1": ["each of its pushes is dropped", "all pushes of worker 3 are late", "as much as under BSP"],
    "stale.2": ["past the minimum for some ten", "only where gradients are fresh", "nearly all that momentum"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "stale.1": {
        "one age": ("x[-1 - age]", "x[-1 - round(np.mean(ages))]"),
        "fresh gradients": ("x[-1 - age]", "x[-1]"),
        "the oldest of all": ("x[-1 - age]", "x[-1 - max(ages)]"),
        "the youngest of all": ("x[-1 - age]", "x[-1 - min(ages)]"),
        "a push younger": ("x[-1 - age]", "x[-age]"),
        "a push older": ("x[-1 - age]", "x[-2 - age]"),
        "once through the ages": ("5000 // len(ages)", "1"),
        "a rate for all the workers": ("- rate *", "- 4 * rate *"),
        "the formula with the mean age": (
            "x[-1] - rate * x[-1 - age]",
            "x[-1] - rate * (x[-1 - round(sum(ages) / len(ages))])",
        ),
        "never": ("return True", "return False"),
        "no answer": ("return True", "return None"),
    },
    "stale.2": {
        "the usual weight": ("min(1, (1 + self.usual) / (1 + one.staleness))", "1"),
        "as StalenessWeighted": ("(1 + self.usual) / (1 + one.staleness)", "1 / (1 + one.staleness)"),
        "a jump": (
            "min(1, (1 + self.usual) / (1 + one.staleness))",
            "1 if one.staleness <= self.usual else 1 / (1 + one.staleness)",
        ),
        "young ones count more": (
            "min(1, (1 + self.usual) / (1 + one.staleness))",
            "(1 + self.usual) / (1 + one.staleness)",
        ),
        "old ones are dropped": (
            "min(1, (1 + self.usual) / (1 + one.staleness))",
            "float(one.staleness <= self.usual)",
        ),
        "one off": ("(1 + self.usual) / (1 + one.staleness)", "self.usual / max(one.staleness, 1)"),
        "usual is a constant": ("1 + self.usual", "4"),
        "the sum": ("weight / len(weights)", "weight"),
        "weights that add up to one": ("weight / len(weights)", "weight / sum(weights)"),
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it."""

MUTANT = (
    "a push of one worker counts as much as a round of all",
    "minips/core/shard.py",
    "1.0 if in_rounds else 1 / self.workers",
    "1.0 if in_rounds else 1.0",
)
"""An ASP under which each push moves the parameters as far as a whole round does."""
