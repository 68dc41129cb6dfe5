"""Lesson 19: the ring's formula with one latency, as a lecture has it."""

MUTANT = (
    "the ring's formula pays one latency, however many hops there are",
    "minips/cost/formulas.py",
    "return 2 * (workers - 1) * latency + 2 * (workers - 1) / workers * nbytes / bytes_per_s",
    "return latency + 2 * (workers - 1) / workers * nbytes / bytes_per_s",
)
