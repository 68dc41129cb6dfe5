"""Lesson 01: values under which each option of its questions comes true, and none."""

OUTCOMES = {
    "01.1": {
        "some percent: each worker saw other images": {"mean": 0.05},
        "nothing but the last digits of float64": {"mean": 9e-15},
        "nothing at all: every bit is the same": {"mean": 0.0},
        "none of these": {"mean": 1e-5},
    },
    "01.2": {
        "yes, but for the last digits": {"off": 1e-15, "large": 1.0, "small": 1.0},
        "no: the images of the large shard count too much": {"off": 0.2, "large": 1.2, "small": 0.3},
        "no: the images of the small shards count too much": {"off": 0.2, "large": 0.3, "small": 3.5},
        "none of these": {"off": 0.2, "large": 1.0, "small": 1.0},
    },
}

TELLING = {
    "01.1": ["brackets", "rounding", "rounded"],
    "01.2": ["share that quarter", "eleven hundred"],
}
"""Words that would give the answer away between the question and its outcome."""
