"""Lesson 09: values under which each option of its questions comes true, and none."""

from math import inf, nan

OUTCOMES = {
    "09.1": {
        "from one worker on": {"workers": 1},
        "from a few on, 2 to 10": {"workers": 2},
        "from more than 10 on": {"workers": 64},
        "never, however many they are": {"workers": inf},
        "none of these": {"workers": nan},
    },
    "09.2": {
        "more than twice as far": {"ratio": 4.0},
        "about as far": {"ratio": 1.05},
        "less than half as far": {"ratio": 0.3},
        "none of these": {"ratio": 1.6},
    },
}

TELLING = {
    "09.1": ["a bias, which no average", "divides its variance", "from 2 workers"],
    "09.2": ["acts like random rounding", "averages out"],
}
"""Words that would give the answer away between the question and its outcome."""
