"""Lesson 06: a reader that raises another error than the contract says."""

MUTANT = (
    "frames that cannot be read raise TypeError",
    "minips/stages/serializers/wellformed.py",
    'raise ValueError(f"The frames are not a packet',
    'raise TypeError(f"The frames are not a packet',
)
