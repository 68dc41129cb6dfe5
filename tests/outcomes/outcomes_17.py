"""Lesson 17: values under which each option of its questions comes true, and none."""

from math import nan

OUTCOMES = {
    "17.1": {
        "by less than 5 %": {"factor": 1.02},
        "by more than 5 %, but less than a factor of 2": {"factor": 1.4},
        "by a factor of 2 or more": {"factor": 3.0},
        "none of these": {"factor": nan},
    },
    "17.2": {"expected": {"seconds": 0.174}, "otherwise": {"seconds": 0.9}},
}

TELLING = {
    "17.1": ["no constant", "not constant", "caches", "no straight line", "roughly right"],
    "17.2": ["0.170", "0.17", "0.074", "0.174", "0.173"],
}
"""Words that would give the answer away between the question and its outcome."""
