"""Lesson 02: accumulation that adds up where it should average."""

MUTANT = (
    "the gradients of accumulated batches are added up and not averaged",
    "minips/engines/worker.py",
    "as_dtype(total / count, ",
    "as_dtype(total, ",
)
