"""Lesson 03: values under which each option of its questions comes true, and none."""

OUTCOMES = {
    "03.1": {
        "about as stale": {"four": 1.4, "eight": 1.5},
        "about twice as stale": {"four": 1.4, "eight": 3.2},
        "more than 3.5 times as stale": {"four": 1.4, "eight": 6.9},
        "none of these": {"four": 0.0, "eight": 3.2},
    },
    "03.2": {
        "the server's parameters alone": {"stopped": False, "server": 1.0, "worker": 0.0},
        "the worker's parameters alone": {"stopped": False, "server": 0.0, "worker": 1.0},
        "the parameters of both": {"stopped": False, "server": 1.0, "worker": 1.0},
        "no parameters: the call ends with an error": {"stopped": True, "server": 0.0, "worker": 0.0},
        "none of these": {"stopped": False, "server": 0.0, "worker": 0.0},
    },
    "03.3": {
        "nearly as long as A": {"share": 0.95},
        "clearly less, and more than half as long": {"share": 0.66},
        "half as long, or less": {"share": 0.5},
        "none of these": {"share": 3.0},
    },
}

TELLING = {
    "03.1": ["n − 1", "2.3 times"],
    "03.2": ["copy", "copies", "copied", "never hears"],
    "03.3": ["header of its own", "half of the values"],
}
"""Words that would give the answer away between the question and its outcome."""
