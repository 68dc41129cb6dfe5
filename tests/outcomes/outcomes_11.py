"""Lesson 11: values under which each option of its questions comes true, and none."""

from math import nan

OUTCOMES = {
    "11.1": {
        "more than two thirds": {"left": 0.9},
        "a third to two thirds": {"left": 0.5},
        "below a third": {"left": 0.07},
        "none of these": {"left": nan},
    },
    "11.2": {
        "more than three times as large": {"times": 6.4},
        "about as large": {"times": 1.0},
        "clearly smaller": {"times": 0.4},
        "none of these": {"times": nan},
    },
}

TELLING = {
    "11.1": ["most of the harm is gone", "arrives a few steps later", "a tenth of"],
    "11.2": ["size is not harm", "suffers more", "squeeze U"],
}
"""Words that would give the answer away between the question and its outcome."""
