"""Test cases for "A small batch is an estimate": for its questions, its exercises and a claim."""

OUTCOMES = {
    "batch.1": {
        "sixteen times smaller": {"ratio": 16.0},
        "about four times smaller": {"ratio": 4.3},
        "less than two times smaller": {"ratio": 1.1},
        "none of these": {"ratio": 2.5},
    },
    "batch.2": {
        "eight times as long": {"ratio": 8.0},
        "longer, but clearly less than eight times": {"ratio": 4.4},
        "no longer": {"ratio": 1.0},
        "none of these": {"ratio": 12.0},
    },
}
"""Maps a question and one of its options to values for which that option is the right answer."""

TELLING = {
    "batch.1": ["root", "quarter", "square root"],
    "batch.2": ["curvature is the same", "curvature stays", "three times", "four times"],
}
"""Maps a question to words that may not appear before its outcome, since they would give the answer away."""

BROKEN = {
    "batch.1": {
        "the one that ends badly": ("return low", "return high"),
        "a middle that was never tried": ("return low", "return (low * high) ** 0.5"),
        "too early": ("1.02", "1.1"),
        "the other way round": ("if ends_well(middle)", "if not ends_well(middle)"),
        "the middle by difference": ("(low * high) ** 0.5", "(low + high) / 2"),
        "small steps": ("(low * high) ** 0.5", "low * 1.02"),
        "nothing is tried": ("while high / low > 1.02", "while False"),
    },
    "batch.2": {
        "distances to the mean": ("(len(each) - 1)", "len(each)"),
        "a worker's variance": ("rows * one_worker", "one_worker"),
        "divided by the rows": ("rows * one_worker", "one_worker / rows"),
        "a length that is too long": (" - one_worker / len(each)", ""),
        "one worker's share": (" - one_worker / len(each)", " - one_worker"),
        "one tensor": ("for x in g.values()", "for x in [g['w']]"),
    },
}
"""Maps an exercise and an error to a piece of the solution and the wrong piece that replaces it."""

MUTANT = (
    "the gradients of accumulated batches are added up and not averaged",
    "minips/engines/worker.py",
    "as_dtype(total / count, ",
    "as_dtype(total, ",
)
"""Accumulation that adds gradients up instead of averaging them."""
