"""The course: what each lesson asks, says and checks, a file for each, which is found by its name (``lesson_14.py``).

What they share is in ``questions`` and ``exercises``.
"""

from importlib import import_module
from pkgutil import iter_modules

from minips.lab.course.exercises import EXERCISES, check, hint
from minips.lab.course.questions import PROMPTS, QUESTIONS, QUIZZES, SENTENCES

for _module in sorted(module.name for module in iter_modules(__path__) if module.name.startswith("lesson_")):
    import_module(f"{__name__}.{_module}")  # each adds what is its own

__all__ = ["EXERCISES", "PROMPTS", "QUESTIONS", "QUIZZES", "SENTENCES", "check", "hint"]
