"""Lesson 09: a dither that is no longer symmetric."""

MUTANT = (
    "random rounding goes up too often",
    "minips/stages/quantizers/integers.py",
    "noise += wide.type(0.5)",
    "noise += wide.type(2.0**13)",
)
