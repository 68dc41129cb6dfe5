"""Lesson 14: values under which each option of its questions comes true, and none."""

from math import nan

OUTCOMES = {
    "14.1": {
        "BSP with one backup worker": {"backup": 1.1, "ssp": 0.9, "asp": 0.3},
        "SSP, two clocks ahead": {"backup": 0.36, "ssp": 0.9, "asp": 0.3},
        "ASP, which never waits": {"backup": 0.36, "ssp": 0.9, "asp": 1.2},
        "none of these": {"backup": 0.36, "ssp": nan, "asp": 0.3},
    },
    "14.2": {
        "about 1 mean time": {"ratio": 1.01},
        "about 2 mean times": {"ratio": 2.08},
        "about 4 mean times": {"ratio": 3.9},
        "none of these": {"ratio": 0.5},
    },
}

TELLING = {
    "14.1": ["use up their lead", "head start"],
    "14.2": ["a single long step", "2.08", "25/12"],
}
"""Words that would give the answer away between the question and its outcome."""
