"""Lesson 00: values under which each option of its questions comes true, and none."""

OUTCOMES = {
    "00.1": {
        "about one in ten": {"accuracy": 0.1},
        "about half": {"accuracy": 0.5},
        "more than nine in ten": {"accuracy": 0.96},
        "none of these": {"accuracy": 0.8},
    },
    "00.2": {
        "it falls below 50 %": {"accuracy": 12.0, "change": -84.0},
        "it falls by 10 to 40 percentage points": {"accuracy": 76.0, "change": -20.0},
        "it stays within 3 percentage points": {"accuracy": 96.0, "change": 0.1},
        "none of these": {"accuracy": 90.0, "change": -6.0},
    },
}

TELLING = {
    "00.1": ["a weight for each pixel", "most of them apart"],
    "00.2": ["is not dropped", "some steps late", "does not mind"],
}
"""Words that would give the answer away between the question and its outcome."""
