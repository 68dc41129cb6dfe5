"""Lesson 15: pushes under ASP that move the parameters as far as a whole round does."""

MUTANT = (
    "a push of one worker counts as much as a round of all",
    "minips/core/shard.py",
    "1.0 if rounds else 1 / self.workers",
    "1.0 if rounds else 1.0",
)
