"""Lesson 12: values under which each option of its questions comes true, and none."""

from math import nan

OUTCOMES = {
    "12.1": {
        "less than 3 times": {"times": 1.4},
        "3 to 10 times": {"times": 5.0},
        "more than 10 times": {"times": 204.0},
        "none of these": {"times": nan},
    },
    "12.2": {
        "HTTP is faster": {"times": 0.7},
        "less than twice as long": {"times": 1.4},
        "at least twice as long": {"times": 6.6},
        "none of these": {"times": nan},
    },
    "12.3": {"expected": {"times": 5.4}, "otherwise": {"times": 2.0}},
    "12.4": {
        "less than twice as long": {"times": 1.02},
        "2 to 6 times as long": {"times": 5.0},
        "more than 6 times as long": {"times": 10.0},
        "none of these": {"times": nan},
    },
    "12.5": {"expected": {"times": 7.0}, "otherwise": {"times": 1.1}},
}

TELLING = {
    "12.1": ["decimal digits", "one number after the other", "copied as one block"],
    "12.2": ["hardly count", "event loops'"],
    "12.3": ["five rounds", "at a time"],
    "12.4": ["at the same time", "once for all"],
    "12.5": ["0.84", "hide latency", "no bandwidth"],
}
"""Words that would give the answer away between the question and its outcome."""
