"""Lesson 08: values under which each option of its questions comes true, and none."""

from math import nan

OUTCOMES = {
    "08.1": {"expected": {"ratio": 9.04}, "otherwise": {"ratio": 26.9}},
    "08.2": {
        "fewer than half": {"times": 0.4},
        "about as many": {"times": 0.97},
        "two to ten times as many": {"times": 2.5},
        "about 32 times as many, or it never gets there": {"times": 32.0},
        "none of these": {"times": nan},
    },
}

TELLING = {
    "08.1": ["9 times", "nine times", "ten times", "10 times"],
    "08.2": ["no more steps", "as many steps"],
}
"""Words that would give the answer away between the question and its outcome."""
