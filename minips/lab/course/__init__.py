"""The machinery of courses: predictions, exercises, sentences and quizzes by key, the learner's progress and copies.

A course is a package of its own, see `courses`. Its tables are filled when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from minips.lab.course.courses import installed
from minips.lab.course.exercises import check, hint

if TYPE_CHECKING:
    from minips.lab.course.exercises import EXERCISES
    from minips.lab.course.questions import PROMPTS, QUESTIONS, QUIZZES, SENTENCES
else:

    def __getattr__(name):
        if name in __all__:
            installed()
            kept = import_module(f"{__name__}.{'exercises' if name == 'EXERCISES' else 'questions'}")
            return getattr(kept, name)
        raise AttributeError(f"minips.lab.course has no {name!r}")


__all__ = ["EXERCISES", "PROMPTS", "QUESTIONS", "QUIZZES", "SENTENCES", "check", "hint"]
