"""Lesson 03: values under which each option of its questions comes true, and none."""

OUTCOMES = {
    "03.1": {
        "about as stale": {"four": 1.4, "eight": 1.5},
        "about twice as stale": {"four": 1.4, "eight": 3.2},
        "more than 3.5 times as stale": {"four": 1.4, "eight": 6.9},
        "none of these": {"four": 0.0, "eight": 3.2},
    },
    "03.2": {
        "not at all: every bit is the same": {"least": 0.0, "most": 0.0},
        "by rounding: less than a hundred-thousandth of the largest parameter": {"least": 1e-8, "most": 1e-7},
        "by more than rounding, in each of five pairs": {"least": 0.01, "most": 0.03},
        "none of these": {"least": 0.0, "most": 0.03},
    },
}

TELLING = {
    "03.1": ["n − 1", "2.3 times"],
    "03.2": ["more than rounding", "operating system decides", "depends on the order of arrival"],
}
"""Words that would give the answer away between the question and its outcome."""
