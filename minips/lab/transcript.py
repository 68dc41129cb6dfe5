"""The learner's progress through the lessons, as a table."""

from typing import NamedTuple

from minips.core.tables import aligned, html_rows
from minips.lab import state
from minips.lab.course import QUESTIONS
from minips.lab.course.questions import NONE
from minips.lab.lessons import Lesson, lessons


class Row(NamedTuple):
    """The progress through one lesson."""

    lesson: Lesson
    passed: list[str]
    predictions: int
    right: int


class Transcript:
    """A table by lesson: exercises passed, predictions made and how many came true."""

    def __init__(self) -> None:
        passed, guessed = state.noted("exercise"), state.noted("question")
        self.set_aside = state.set_aside()
        self.rows = []
        for lesson in lessons():
            guesses = [guessed[question] for question in lesson.questions if question in guessed]
            right = sum(came_true(guess) for guess in guesses)
            done = [key for key in lesson.exercises if key in passed]
            self.rows.append(Row(lesson, done, len(guesses), right))

    def table(self) -> list[tuple[str, str, str]]:
        """The rows as text, under their headings."""
        rows = [("lesson", "exercises", "predictions")]
        for lesson, passed, predictions, right in self.rows:
            done = f"{len(passed)} of {len(lesson.exercises)}"
            named = f" ({', '.join(passed)})" if passed else ""
            came_true = f", {right} came true" if predictions else ""
            predictions_words = f"{predictions} of {len(lesson.questions)}{came_true}"
            rows.append((f"{lesson.number} {lesson.title}", done + named, predictions_words))
        return rows

    def __repr__(self) -> str:
        return "\n".join([*aligned(self.table(), "<"), *self.aside()])

    def aside(self) -> list[str]:
        """A sentence on the notes that belong to no lesson, if there are any."""
        words = "belong to no lesson that there is: an earlier edition's. They are set aside."
        return [f"{self.set_aside} older notes {words}"] if self.set_aside else []

    def _repr_html_(self) -> str:
        (head, *body), left = self.table(), "text-align:left"
        aside = "".join(f"<p>{words}</p>" for words in self.aside())
        return f"<table>{html_rows([head], 3, left)}{html_rows(body, 0, left)}</table>{aside}"


def came_true(guess: dict[str, str]) -> bool:
    """True where what was noted of a prediction says that it came true."""
    asked = QUESTIONS.get(guess["question"])
    return asked is not None and asked.agrees(guess.get("predicted", ""), guess.get("measured", NONE))


def progress() -> Transcript:
    """The progress through each lesson."""
    return Transcript()
