"""Lesson 05: values under which each option of its questions comes true, and none."""

OUTCOMES = {
    "05.1": {
        "about 40 000 bytes": {"ratio": 1.0},
        "about 80 000 bytes": {"ratio": 2.1},
        "more than 160 000 bytes": {"ratio": 5.9},
        "none of these": {"ratio": 3.3},
    },
    "05.2": {
        "A and B": {"honest": True, "ran_a": 0, "ran_b": 0},
        "A alone": {"honest": True, "ran_a": 0, "ran_b": 1},
        "B alone": {"honest": True, "ran_a": 2, "ran_b": 0},
        "neither A nor B": {"honest": True, "ran_a": 2, "ran_b": 1},
        "none of these": {"honest": False, "ran_a": 2, "ran_b": 0},
    },
}

TELLING = {
    "05.1": ["17", "six times"],
    "05.2": ["too late", "done its work", "any text"],
}
"""Words that would give the answer away between the question and its outcome."""
