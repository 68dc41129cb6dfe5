"""Lesson 16: values under which each option of its questions comes true, and none."""

from math import nan

OUTCOMES = {
    "16.1": {
        "nearly as many": {"share": 0.9},
        "about half as many": {"share": 0.5},
        "at most a third of them": {"share": 0.21},
        "none of these": {"share": nan},
    },
    "16.2": {
        "the mean": {"Mean": 0.5, "Median": 0.9, "TrimmedMean": 0.9, "Krum": 0.9},
        "the median": {"Mean": 0.9, "Median": 0.4, "TrimmedMean": 0.9, "Krum": 0.9},
        "the trimmed mean, trim = 1": {"Mean": 0.9, "Median": 0.9, "TrimmedMean": 0.3, "Krum": 0.9},
        "Krum, bad = 1": {"Mean": 0.9, "Median": 0.9, "TrimmedMean": 0.9, "Krum": 0.2},
        "no rule: they differ by less than 10 percentage points": {
            "Mean": 0.9,
            "Median": 0.9,
            "TrimmedMean": 0.9,
            "Krum": 0.9,
        },
        "none of these": {"Mean": nan, "Median": 0.9, "TrimmedMean": 0.9, "Krum": 0.9},
    },
}

TELLING = {
    "16.1": ["a fifth of 100", "follow the noise", "cannot make up"],
    "16.2": ["nearer to them", "takes the zeros", "chooses the zeros", "one whole gradient"],
}
"""Words that would give the answer away between the question and its outcome."""
