"""Lesson 10: values under which each option of its questions comes true, and none."""

from math import nan

OUTCOMES = {
    "10.1": {
        "fewer: the memory repeats itself": {"times": 0.5},
        "about as many: each push moves one": {"times": 1.05},
        "about twice as many": {"times": 2.2},
        "many times as many": {"times": 6.0},
        "none of these": {"times": nan},
    },
    "10.2": {
        "up to about t, with error feedback and without": {"plain": 0.98, "fed": 0.95},
        "up to about t without a memory, up to about lr · t with it": {"plain": 0.98, "fed": 0.08},
        "up to about t without a memory, ever further with it": {"plain": 0.98, "fed": 40.0},
        "no distance: with both, w comes to the minimum exactly": {"plain": 0.0, "fed": 0.0},
        "none of these": {"plain": 9.0, "fed": 0.08},
    },
}

TELLING = {
    "10.1": ["win again and again", "turn comes", "twice as many"],
    "10.2": ["hops", "w stops", "within lr", "never sent", "add up until"],
}
"""Words that would give the answer away between the question and its outcome."""
