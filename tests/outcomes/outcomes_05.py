"""Lesson 05: values under which each option of its questions comes true, and none."""

from math import nan

OUTCOMES = {
    "05.1": {
        "about 40 000 bytes": {"ratio": 1.0},
        "about 80 000 bytes": {"ratio": 2.1},
        "more than 160 000 bytes": {"ratio": 5.9},
        "none of these": {"ratio": 3.3},
    },
    "05.2": {
        "about 25 times": {"times": 26.0},
        "about 5 times": {"times": 4.0},
        "less than 2.5 times": {"times": 0.9},
        "none of these": {"times": nan},
    },
}

TELLING = {
    "05.1": ["17", "six times"],
    "05.2": ["hands out", "uncopied", "not a copy", "own memory"],
}
"""Words that would give the answer away between the question and its outcome."""
