"""The exercises, a file for each lesson: ``lesson_07.py`` is found by its name. What they share is in ``base``."""

from importlib import import_module
from pkgutil import iter_modules

from minips.lab.exercises.base import EXERCISES, check, hint

for _module in sorted(module.name for module in iter_modules(__path__) if module.name.startswith("lesson_")):
    import_module(f"{__name__}.{_module}")  # each adds its exercises

__all__ = ["EXERCISES", "check", "hint"]
