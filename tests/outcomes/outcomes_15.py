"""Lesson 15: values under which each option of its questions comes true, and none."""

from math import nan

OUTCOMES = {
    "15.1": {
        "with one backup, not under ASP": {"backup": 0.0, "asp": 0.85},
        "under ASP, not with one backup": {"backup": 0.9, "asp": 0.2},
        "under both": {"backup": 0.0, "asp": 0.2},
        "under neither": {"backup": 0.9, "asp": 0.85},
        "none of these": {"backup": nan, "asp": nan},
    },
    "15.2": {
        "higher than BSP": {"ratio": 1.3},
        "a little lower, as without momentum": {"ratio": 0.9},
        "about half of it": {"ratio": 0.5},
        "less than a tenth of it": {"ratio": 0.04},
        "none of these": {"ratio": 0.2},
    },
}

TELLING = {
    "15.1": ["each of its pushes is dropped", "all pushes of worker 3 are late", "as much as under BSP"],
    "15.2": ["past the minimum for some ten", "only where gradients are fresh", "nearly all that momentum"],
}
"""Words that would give the answer away between the question and its outcome."""
