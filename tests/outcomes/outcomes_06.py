"""Lesson 06: values under which each option of its questions comes true, and none."""

OUTCOMES = {
    "06.1": {
        "the message is dropped, and no command has run": {"accepted": False, "ran": False},
        "the message is dropped, but the command has run": {"accepted": False, "ran": True},
        "the message is accepted, and the command has run": {"accepted": True, "ran": True},
        "none of these": {"accepted": True, "ran": False},
    },
    "06.2": {
        "no command runs, and an array is accepted": {"honest": True, "ran": 0},
        "a command runs, and an array is accepted": {"honest": True, "ran": 1},
        "no command runs, but an array is dropped, too": {"honest": False, "ran": 0},
        "none of these": {"honest": False, "ran": 2},
    },
}

TELLING = {
    "06.1": ["too late", "comes after"],
    "06.2": ["any text", "is large"],
}
"""Words that would give the answer away between the question and its outcome."""
