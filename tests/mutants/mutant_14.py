"""Lesson 14: an SSP that bounds nothing."""

MUTANT = (
    "SSP waits for nobody",
    "minips/stages/consistency.py",
    "return slowest >= clock - self.staleness",
    "return True",
)
