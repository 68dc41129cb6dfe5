"""Lesson 01: a mean that leaves the last worker out."""

MUTANT = (
    "the mean adds all gradients but the last",
    "minips/stages/aggregators/base.py",
    "for piece in pieces[2:]:",
    "for piece in pieces[2:-1]:",
)
