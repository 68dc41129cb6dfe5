"""Lesson 07: a Blosc that does not shuffle."""

MUTANT = (
    "Blosc does not shuffle",
    "minips/stages/compressors/libraries.py",
    "blosc2.Filter.SHUFFLE",
    "blosc2.Filter.NOFILTER",
)
