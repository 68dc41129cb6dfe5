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
    "14.3": {
        "nearly all of them": {"nines": 0.9},
        "about half of them": {"nines": 0.5},
        "none of them": {"nines": 0.0},
        "none of these": {"nines": 0.1},
    },
    "14.4": {
        "2, as with fresh ones": {"fresh": 2.0, "old": 1.95},
        "about half of that": {"fresh": 2.0, "old": 1.0},
        "less than a quarter of that": {"fresh": 2.0, "old": 0.45},
        "none of these": {"fresh": 2.0, "old": 0.6},
    },
    "14.5": {
        "against time only": {"in_time": 2.3, "in_bytes": 1.1},
        "against bytes only": {"in_time": 1.1, "in_bytes": 2.0},
        "against both": {"in_time": 2.3, "in_bytes": 2.0},
        "none of these": {"in_time": 1.1, "in_bytes": 1.1},
    },
    "14.6": {"expected": {"percent": 69.0}, "otherwise": {"percent": 15.0}},
}

TELLING = {
    "14.1": ["use up their lead", "head start"],
    "14.2": ["a single long step", "2.08"],
    "14.3": ["each of its pushes is dropped", "never sees"],
    "14.4": ["turns back too late", "2\\sin"],
    "14.5": ["few versions old helps"],
    "14.6": ["most of what was missing", "stays missing"],
}
"""Words that would give the answer away between the question and its outcome."""
