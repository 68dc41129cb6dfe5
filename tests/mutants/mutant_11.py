"""Lesson 11: a codec's patterns that match every name."""

MUTANT = (
    "a codec gives every tensor its first quantizer, whatever the pattern is",
    "minips/core/codec.py",
    "if fnmatchcase(name, pattern):",
    "if pattern:",
)
