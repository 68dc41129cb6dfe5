"""Test cases for "Send fewer bits": for its questions, its exercises and a claim."""

from math import nan

OUTCOMES = {
    "bits.1": {"expected": {"ratio": 9.04}, "otherwise": {"ratio": 26.9}},
    "bits.2": {
        "fewer than half as many": {"times": 0.4},
        "no more: half as many to as many": {"times": 0.73},
        "more: up to ten times as many": {"times": 1.44},
        "about 32 times as many, or it never gets there": {"times": 32.0},
        "none of these": {"times": nan},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "bits.1": ["9 times", "nine times", "ten times", "10 times"],
    "bits.2": ["no more steps", "as many steps", "as soon"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "bits.1": {
        "the values alone": ("(4 + place)", "4"),
        "places of four bytes": ("1 if size <= 256 else 2 if size <= 65536 else 4", "4"),
        "a byte holds 255 places": ("size <= 256", "size < 256"),
        "two bytes hold 65535": ("65536", "65535"),
        "all the places": ("k * (4 + place)", "4 * k + place * size"),
    },
    "bits.2": {
        "two bytes a value": ('astype("i1")', 'astype("i2")'),
        "128 steps do not fit": ("/ 127", "/ 128"),
        "too few steps": ("/ 127", "/ 50"),
        "cut towards zero": ("np.rint(x / step)", "(x / step)"),
        "zeros have no step": (", 1e-30)", ", 0.0)"),
        "one step for all tensors": ("np.abs(x).max(initial=0)", "max(np.abs(y).max() for y in tensors.values())"),
        "codes that are never multiplied": ('* parts[f"{name} step"]', ""),
        "always float32": ("astype(x.dtype)", 'astype("f4")'),
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it."""

MUTANT = (
    "the scale of the signs is half of the mean magnitude",
    "minips/stages/quantizers/signs.py",
    "scale = total / max(x.size, 1)",
    "scale = total / max(x.size, 1) / 2",
)
"""A sign quantizer with half the right scale."""
