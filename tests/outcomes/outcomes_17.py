"""Lesson 17: values under which each option of its questions comes true, and none."""

from math import nan

OUTCOMES = {
    "17.1": {
        "less than 3 times as long": {"longer": 1.6},
        "3 to 30 times as long": {"longer": 12.0},
        "30 to 300 times as long": {"longer": 90.0},
        "more than 300 times as long": {"longer": 900.0},
        "none of these": {"longer": nan},
    },
    "17.2": {"expected": {"seconds": 0.174}, "otherwise": {"seconds": 0.9}},
    "17.3": {
        "about 0.003 s": {"seconds": 0.004},
        "about 0.03 s": {"seconds": 0.028},
        "about 0.3 s": {"seconds": 0.2},
        "none of these": {"seconds": 2.0},
    },
    "17.4": {
        "none of them": {"paying": 0},
        "one or two": {"paying": 2},
        "three or more": {"paying": 4},
        "none of these": {"paying": nan},
    },
}

TELLING = {
    "17.1": ["does not depend on its size", "waking up the other side"],
    "17.2": ["0.170", "0.17", "0.074", "0.174", "0.173"],
    "17.3": ["256 million", "0.0256", "0.026"],
    "17.4": ["0.08 ns", "none is here"],
}
"""Words that would give the answer away between the question and its outcome."""
