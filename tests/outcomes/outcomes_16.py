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
        "after x, only slower": {"near": 1.0, "far": 900.0},
        "to 1.1 and no further": {"near": 1.0, "far": 1.1},
        "nowhere: it stays at 1.0": {"near": 1.0, "far": 1.0},
        "none of these": {"near": 1.1, "far": 1.2},
    },
    "16.3": {
        "the mean": {"mean": 0.9, "median": 0.5, "trimmed": 0.5, "krum": 0.1},
        "the trimmed mean, trim = 1": {"mean": 0.2, "median": 0.5, "trimmed": 0.9, "krum": 0.1},
        "Krum, bad = 1": {"mean": 0.2, "median": 0.5, "trimmed": 0.5, "krum": 0.9},
        "the median": {"mean": 0.2, "median": 0.9, "trimmed": 0.5, "krum": 0.1},
        "none of these": {"mean": 0.2, "median": 0.9, "trimmed": 0.9, "krum": 0.1},
    },
}

TELLING = {
    "16.1": ["a fifth of 100", "follow the noise", "cannot make up"],
    "16.2": ["becomes the third", "1.1 and no"],
    "16.3": ["the middle value lies among the honest"],
}
"""Words that would give the answer away between the question and its outcome."""
