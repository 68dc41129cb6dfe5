"""Lesson 13: values under which each option of its questions comes true, and none."""

from math import nan

OUTCOMES = {
    "13.1": {
        "about 1 and about 1": {"tiny": 1.01, "large": 1.05},
        "about 1 and about 7": {"tiny": 1.01, "large": 7.0},
        "about 1 and about 10": {"tiny": 1.01, "large": 9.9},
        "about 10 and about 10": {"tiny": 10.0, "large": 9.9},
        "none of these": {"tiny": nan, "large": 7.0},
    },
    "13.2": {
        "all, within half a second": {"answered": 200, "last": 0.2},
        "all, after some seconds": {"answered": 200, "last": 3.1},
        "at least half": {"answered": 130, "last": 3.1},
        "about a quarter": {"answered": 50, "last": 0.05},
        "none of these": {"answered": 2, "last": 0.05},
    },
}

TELLING = {
    "13.1": ["0.84", "0.12 s", "once for all", "hide latency"],
    "13.2": ["grows for ever", "nobody waits for", "a quarter", "first 50"],
}
"""Words that would give the answer away between the question and its outcome."""
