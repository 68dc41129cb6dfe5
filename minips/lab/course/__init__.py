"""The machinery of courses, and the names with which authors write one. A course is a separate package, see `courses`.

`question`, `asks` and the like add entries to tables by key. The tables are filled when one is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from minips.lab.course.courses import Course, installed
from minips.lab.course.exercises import (
    Refused,
    asks,
    case,
    conforms,
    distance,
    drawn_seed,
    equals,
    is_own,
    keeps,
    number,
    raising,
    refuse_if,
    unaided,
)
from minips.lab.course.questions import Expected, Item, Option, estimate, prompt, question, quiz, sentence

if TYPE_CHECKING:
    from minips.lab.course.exercises import EXERCISES as EXERCISES
    from minips.lab.course.questions import PROMPTS as PROMPTS
    from minips.lab.course.questions import QUESTIONS as QUESTIONS
    from minips.lab.course.questions import QUIZZES as QUIZZES
    from minips.lab.course.questions import SENTENCES as SENTENCES
else:

    def __getattr__(name):
        if name in ("EXERCISES", "PROMPTS", "QUESTIONS", "QUIZZES", "SENTENCES"):
            installed()
            kept = import_module(f"{__name__}.{'exercises' if name == 'EXERCISES' else 'questions'}")
            return getattr(kept, name)
        raise AttributeError(f"minips.lab.course has no {name!r}")

    def __dir__():
        return sorted(__all__)


__all__ = ["Course", "Expected", "Item", "Option", "Refused", "asks", "case", "conforms", "distance", "drawn_seed"]
__all__ += ["equals", "estimate", "is_own", "keeps", "number", "prompt", "question", "quiz", "raising", "refuse_if"]
__all__ += ["sentence", "unaided"]
