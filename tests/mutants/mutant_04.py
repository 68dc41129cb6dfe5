"""Lesson 04: an optimizer that goes uphill."""

MUTANT = (
    "SGD adds the gradient",
    "minips/stages/optimizers/base.py",
    "np.subtract(p, np.multiply(",
    "np.add(p, np.multiply(",
)
