"""Lesson 19: values under which each option of its questions comes true, and none."""

from math import nan

OUTCOMES = {
    "19.1": {
        "clearly less": {"share": 0.4},
        "about the same": {"share": 1.0},
        "clearly more": {"share": 2.0},
        "none of these": {"share": nan},
    },
    "19.2": {
        "the way over a server": {"server": 0.2, "tree": 0.08, "ring": 0.12},
        "the way up and down the tree": {"server": 0.04, "tree": 0.15, "ring": 0.12},
        "the way round the ring": {"server": 0.04, "tree": 0.08, "ring": 0.12},
        "none of these": {"server": 0.04, "tree": 0.12, "ring": 0.12},
    },
}

TELLING = {
    "19.1": ["1.5 gradients", "all links work"],
    "19.2": ["only the latencies count", "six latencies"],
}
"""Words that would give the answer away between the question and its outcome."""
