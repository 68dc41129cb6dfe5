"""Lesson 18: values under which each option of its questions comes true, and none."""

from math import nan

OUTCOMES = {
    "18.1": {
        "none of them": {"paying": 0},
        "one to three": {"paying": 2},
        "four to six": {"paying": 5},
        "all seven": {"paying": 7},
        "none of these": {"paying": nan},
    },
    "18.2": {
        "less than 1.5 times as soon": {"times": 1.2},
        "1.5 to 8 times as soon": {"times": 4.4},
        "8 to 30 times as soon": {"times": 12.0},
        "30 times as soon, or more": {"times": 45.0},
        "none of these": {"times": nan},
    },
}

TELLING = {
    "18.1": ["0.32 ns", "few passes", "none is"],
    "18.2": ["no shorter than", "all but vanished", "4.4", "4.5"],
}
"""Words that would give the answer away between the question and its outcome."""
