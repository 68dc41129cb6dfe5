"""Test cases for "Round at random": for its questions, its exercises and a claim."""

from math import inf, nan

OUTCOMES = {
    "rounding.1": {
        "from one worker on": {"workers": 1},
        "from a few on, 2 to 10": {"workers": 2},
        "from more than 10 on": {"workers": 64},
        "never, however many they are": {"workers": inf},
        "none of these": {"workers": nan},
    },
    "rounding.2": {
        "more than twice as far": {"ratio": 4.0},
        "about as far": {"ratio": 1.05},
        "less than half as far": {"ratio": 0.3},
        "none of these": {"ratio": 1.6},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "rounding.1": ["a bias, which no average", "divides its variance", "from 2 workers"],
    "rounding.2": ["acts like random rounding", "averages out"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "rounding.1": {
        "to the nearest": ("np.floor(x / step + rng.random(x.shape))", "np.rint(x / step)"),
        "cut towards zero": ("np.floor(x / step + rng.random(x.shape))", "x / step + rng.random(x.shape)"),
        "always up": ("rng.random(x.shape)", "1"),
        "one draw for all": ("rng.random(x.shape)", "rng.random()"),
        "the same draws each time": ("rng.random", "np.random.default_rng(0).random"),
        "draws of its own": ("rng.random", "np.random.default_rng().random"),
        "long steps": ("/ self.steps", "/ 10"),
        "two bytes a value": ("np.int8", "np.int16"),
    },
    "rounding.2": {
        "the border itself": ("np.floor(variance / bias) + 1", "np.ceil(variance / bias)"),
        "lengths, not squares": ("variance / bias", "np.sqrt(variance / bias)"),
        "the variance without 1 - p": ("p * (1 - p)", "p * p"),
        "never infinite": (" if bias else np.inf", " if bias else 1"),
        "bias of rounding down": ("np.rint(r)", "np.floor(r)"),
        "steps forgotten": ("r = x / step", "r = x"),
        "by drawing": (
            "(p * (1 - p)).sum()",
            "((np.floor(r + np.random.default_rng(0).random(r.size)) - r) ** 2).sum()",
        ),
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it."""

MUTANT = (
    "random rounding goes up too often",
    "minips/stages/quantizers/integers.py",
    "noise += wide.type(0.5)",
    "noise += wide.type(2.0**13)",
)
"""A dither that rounds up too often."""
