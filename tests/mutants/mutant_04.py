"""Lesson 04: an optimizer that goes uphill."""

MUTANT = (
    "SGD adds the gradient",
    "minips/stages/optimizers/base.py",
    "p -= lr * g",
    "p += lr * g",
)
