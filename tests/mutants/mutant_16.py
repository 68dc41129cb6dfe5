"""Lesson 16: a median that takes the largest value."""

MUTANT = (
    "the median takes the largest value of each coordinate",
    "minips/stages/aggregators/robust.py",
    "np.median(pieces, axis=0)",
    "np.max(pieces, axis=0)",
)
