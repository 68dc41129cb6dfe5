"""Test cases for "Hide and survive": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "hide.1": {
        "about 1 and about 1": {"tiny": 1.01, "large": 1.05},
        "about 1 and about 7": {"tiny": 1.01, "large": 7.0},
        "about 1 and about 10": {"tiny": 1.01, "large": 9.9},
        "about 10 and about 10": {"tiny": 10.0, "large": 9.9},
        "none of these": {"tiny": nan, "large": 7.0},
    },
    "hide.2": {
        "all, within half a second": {"answered": 200, "last": 0.2},
        "all, after some seconds": {"answered": 200, "last": 3.1},
        "at least half": {"answered": 130, "last": 3.1},
        "about a quarter": {"answered": 50, "last": 0.05},
        "none of these": {"answered": 2, "last": 0.05},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "hide.1": ["0.84", "0.12 s", "once for all", "hide latency"],
    "hide.2": ["grows for ever", "nobody waits for", "a quarter", "first 50"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "hide.1": {
        "never again": ("range(attempts)", "range(1)"),
        "one too few": ("range(attempts)", "range(attempts - 1)"),
        "no error in the end": ("attempts - 1:", "attempts:"),
        "any error": ("except ConnectionError", "except Exception"),
        "a time-out too": ("except ConnectionError", "except OSError"),
        "left open": ("with connect() as channel:", "for channel in [connect()]:"),
        "no wait": ("sleep(rng.uniform(0, 0.4 * 2**attempt))", "pass"),
        "the bound itself": ("rng.uniform(0, 0.4 * 2**attempt)", "0.4 * 2**attempt"),
        "always the same bound": ("2**attempt", "1"),
        "half the bound": ("uniform(0, 0.4 * 2**attempt)", "uniform(0, 0.2 * 2**attempt)"),
        "a wait of nothing": ("rng.uniform(0, 0.4 * 2**attempt)", "0"),
        "a wait after the last": ("                raise\n", "                sleep(0)\n                raise\n"),
        "a wait while it is open": (
            "with connect() as channel:\n",
            "with connect() as channel:\n                sleep(0)\n",
        ),
        "its own error": ("                raise", "                raise ConnectionError('no luck') from None"),
    },
    "hide.2": {
        "counts again": ("number > known:", "number >= known:"),
        "counts everything": ("number > known:", "True:"),
        "one number for all": ("self.last.get(caller, (-1, None))", "max(self.last.values(), default=(-1, None))"),
        "another answer": ("return answer", "return self.total"),
        "late copies are answered": ("raise ValueError(", "return answer or str("),
        "late copies count": ("if number < known:\n", "if number < known:\n            self.total += amount\n"),
        "remembers all calls": ("= number, answer", "= number, answer\n            self.last[caller, number] = answer"),
        "the first one is lost": ("(-1, None)", "(0, None)"),
        "forgets": ("self.last[caller] = number, answer", "self.last = {caller: (number, answer)}"),
        "the number of answers": ("= number, answer", "= len(self.last), answer"),
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it."""

MUTANT = (
    "a push is new each time that it comes",
    "minips/core/shard.py",
    "return clock == at or clock in self._missed[worker]",
    "return clock <= at",
)
"""A server that applies a repeated push again."""
