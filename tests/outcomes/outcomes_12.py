"""Lesson 12: values under which each option of its questions comes true, and none."""

from math import nan

OUTCOMES = {
    "12.1": {
        "Http is faster": {"times": 0.7},
        "less than twice as long": {"times": 1.4},
        "at least twice as long": {"times": 6.6},
        "none of these": {"times": nan},
    },
    "12.2": {
        "less than 3 times as many": {"times": 1.4},
        "3 to 8 times as many": {"times": 5.0},
        "about 16 times as many": {"times": 12.0},
        "none of these": {"times": nan},
    },
}

TELLING = {
    "12.1": ["hardly count", "event loops", "far less for a call"],
    "12.2": ["callers queue", "one interpreter", "can fill", "even be fewer"],
}
"""Words that would give the answer away between the question and its outcome."""
