"""Lesson 07: values under which each option of its questions comes true, and none."""

OUTCOMES = {
    "07.1": {
        "about half": {"left": 0.5},
        "about nine tenths": {"left": 0.93},
        "all of them": {"left": 1.004},
        "none of these": {"left": 0.1},
    },
    "07.2": {"expected": {"best": 370.0}, "otherwise": {"best": 17.0}},
    "07.3": {
        "both of them": {"dense": 0.4, "yes": 0.4},
        "only yes or no": {"dense": 1.01, "yes": 0.6},
        "only dense": {"dense": 0.6, "yes": 1.01},
        "neither of them": {"dense": 1.01, "yes": 1.0},
        "none of these": {"dense": -1.0, "yes": 0.6},
    },
}

TELLING = {
    "07.1": ["as good as random", "mantissas", "nothing to gain"],
    "07.3": ["runs of zeros", "hardly any value is zero", "zeros"],
}
"""Words that would give the answer away between the question and its outcome."""
