"""Lesson 03: a bounded staleness that waits for nobody."""

MUTANT = (
    "SSP answers every pull at once",
    "minips/stages/consistency.py",
    "return slowest >= clock - self.staleness",
    "return True",
)
