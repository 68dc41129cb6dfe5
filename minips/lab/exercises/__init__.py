"""The exercises, a file for each lesson; what they share is in ``base``."""

from minips.lab.exercises import lesson_00, lesson_02  # noqa: F401, each adds its exercises
from minips.lab.exercises.base import EXERCISES, check, hint

__all__ = ["EXERCISES", "check", "hint"]
