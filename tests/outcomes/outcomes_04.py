"""Lesson 04: values under which each option of its questions comes true, and none."""

OUTCOMES = {
    "04.1": {
        "the server's parameters alone": {"stopped": False, "server": 1.0, "worker": 0.0},
        "the worker's parameters alone": {"stopped": False, "server": 0.0, "worker": 1.0},
        "the parameters of both": {"stopped": False, "server": 1.0, "worker": 1.0},
        "no parameters: the call ends with an error": {"stopped": True, "server": 0.0, "worker": 0.0},
        "none of these": {"stopped": False, "server": 0.0, "worker": 0.0},
    },
    "04.2": {
        "at most two thirds as long": {"ratio": 0.4},
        "about as long, within a factor of 1.5": {"ratio": 1.1},
        "more than 1.5 times as long": {"ratio": 2.6},
        "none of these": {"ratio": 0.0},
    },
}

TELLING = {
    "04.1": ["copy", "copies", "copied", "never hears"],
    "04.2": ["2.6 times", "any method of any object"],
}
"""Words that would give the answer away between the question and its outcome."""
