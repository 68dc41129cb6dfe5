"""Lesson 18: a step whose way back is as short as its push."""

MUTANT = (
    "the parameters on their way back have the bytes of a push",
    "minips/cost/formulas.py",
    "pulled = nbytes if pulled_nbytes is None else pulled_nbytes",
    "pulled = nbytes",
)
