"""Lesson 02: values under which each option of its questions comes true, and none."""

OUTCOMES = {
    "02.1": {
        "sixteen times smaller": {"ratio": 16.0},
        "about four times smaller": {"ratio": 4.3},
        "less than twice smaller": {"ratio": 1.1},
        "none of these": {"ratio": 2.5},
    },
    "02.2": {
        "eight times as long": {"ratio": 8.0},
        "longer, and clearly less than eight times": {"ratio": 4.4},
        "no longer": {"ratio": 1.0},
        "none of these": {"ratio": 12.0},
    },
}

TELLING = {
    "02.1": ["root", "quarter", "square root"],
    "02.2": ["curvature is the same", "curvature stays", "three times", "four times"],
}
"""Words that would give the answer away between the question and its outcome."""
