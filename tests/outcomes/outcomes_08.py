"""Lesson 08: values under which each option of its questions comes true, and none."""

from math import inf, nan

OUTCOMES = {
    "08.1": {"expected": {"ratio": 9.04}, "otherwise": {"ratio": 26.9}},
    "08.2": {
        "from one worker on": {"workers": 1},
        "from a few on, 2 to 10": {"workers": 2},
        "from more than 10 on": {"workers": 64},
        "never, however many they are": {"workers": inf},
        "none of these": {"workers": nan},
    },
    "08.3": {
        "fewer: the memory repeats itself": {"times": 0.5},
        "about as many: each push moves one": {"times": 1.05},
        "about twice as many": {"times": 2.2},
        "many times as many": {"times": 6.0},
        "none of these": {"times": nan},
    },
}

TELLING = {
    "08.1": ["9 times", "nine times", "ten times", "10 times"],
    "08.2": ["a bias, which no average", "divides its variance", "from 2 workers"],
    "08.3": ["win again and again", "turn comes", "twice as many"],
}
"""Words that would give the answer away between the question and its outcome."""
