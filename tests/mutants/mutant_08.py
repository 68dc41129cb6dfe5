"""Lesson 08: signs of the wrong size."""

MUTANT = (
    "the scale of the signs is half of the mean magnitude",
    "minips/stages/quantizers/signs.py",
    "scale = total / max(x.size, 1)",
    "scale = total / max(x.size, 1) / 2",
)
