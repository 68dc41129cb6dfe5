"""Lesson 20: values under which each option of its questions comes true, and none."""

from math import nan

OUTCOMES = {
    "20.1": {
        "with the first gradient that is ready": {"first": 10.0, "last": 30.0, "begin": 10.5},
        "in the middle of backward": {"first": 10.0, "last": 30.0, "begin": 20.0},
        "after the last gradient is ready": {"first": 10.0, "last": 30.0, "begin": 30.5},
        "none of these": {"first": 10.0, "last": 30.0, "begin": nan},
    },
    "20.2": {"expected": {"percent": 20.0}, "otherwise": {"percent": 60.0}},
}

TELLING = {
    "20.1": ["all of them are in one bucket", "holds 1 MB", "nothing overlaps"],
    "20.2": ["28 times fewer", "a sixth of all"],
}
"""Words that would give the answer away between the question and its outcome."""
