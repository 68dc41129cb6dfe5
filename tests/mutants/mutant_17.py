"""Lesson 17: a prediction of the bytes that counts a step too many."""

MUTANT = (
    "the predicted bytes are those of one step more",
    "minips/cost/traffic.py",
    "whole = first + (config.steps - 1) * step",
    "whole = first + config.steps * step",
)
