"""The learner's work so far as one description, from which `lab.report` makes its page and its JSON.

The JSON, `Portfolio.to_dict`, has these fields. A text is empty, and ``quiz`` is null, where there is nothing yet:

    {"format": 1, "name": "Student A", "date": "2026-11-28", "minips": "0.2.0",
     "courses": [
       {"name": "minips", "title": "A parameter server, taken apart", "lessons": [
         {"word": "bits", "number": "08", "title": "Send fewer bits",
          "predictions": [
            {"key": "bits.1", "question": "…", "predicted": "…", "unit": "", "measured": "…",
             "verdict": "right, near, wrong, or open if it cannot be compared",
             "values": {"ratio": {"value": 9.04, "half": 0.0}}}],
          "answers": [{"key": "bits.1", "task": "…", "evidence": "the table beside the answer", "text": "…"}],
          "exercises": {"done": ["bits.2"], "open": ["bits.3"]},
          "quiz": {"right": 4, "of": 5}}]}],
     "milestones": ["ps"],
     "left_out": 0,
     "incomplete": ["The exercise bits.3 is not done."]}

``courses`` has the lessons that were begun, and ``incomplete`` says what they still lack. ``half`` is half of a 95 %
interval; a number that is not finite is a text. ``left_out`` counts notes on lessons that are not installed.
"""

import datetime
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import minips
from minips.lab.course import state
from minips.lab.course.courses import lesson_of
from minips.lab.course.lessons import Lesson, lessons
from minips.lab.course.milestones import passed
from minips.lab.course.questions import QUESTIONS, Estimate, Question
from minips.lab.course.verdicts import Measured, from_note

FORMAT = 1
"""The version of the JSON. It is raised whenever an older reader would misread it."""

Notes = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Maps each kind of note to its notes by key."""


@dataclass(frozen=True)
class Predicted:
    """A prediction, what was measured, and the verdict in one word; empty if nothing was measured yet."""

    key: str
    question: str
    predicted: str
    unit: str
    measured: str
    verdict: str
    values: Mapping[str, Measured]

    @property
    def asked(self) -> Question | Estimate:
        """The question."""
        return QUESTIONS[self.key]

    def to_dict(self) -> dict[str, Any]:
        """Return the prediction as JSON has it."""
        values = {name: {"value": _plain(one.value), "half": _plain(one.half)} for name, one in self.values.items()}
        return asdict(self) | {"values": values}


@dataclass(frozen=True)
class Answered:
    """An answer in words, its task, and the table beside it."""

    key: str
    task: str
    evidence: str
    text: str


class Score(NamedTuple):
    """The questions of a quiz whose first answer was right, and their number."""

    right: int
    of: int


@dataclass(frozen=True)
class LessonWork:
    """The work on one lesson. ``done`` and ``open`` are the keys of its exercises."""

    word: str
    number: str
    title: str
    predictions: list[Predicted]
    answers: list[Answered]
    done: list[str]
    open: list[str]
    quiz: Score | None

    def to_dict(self) -> dict[str, Any]:
        """Return the lesson as JSON has it."""
        return {
            "word": self.word,
            "number": self.number,
            "title": self.title,
            "predictions": [one.to_dict() for one in self.predictions],
            "answers": [asdict(one) for one in self.answers],
            "exercises": {"done": self.done, "open": self.open},
            "quiz": self.quiz and self.quiz._asdict(),
        }


@dataclass(frozen=True)
class CourseWork:
    """The lessons of a course that were begun."""

    name: str
    title: str
    lessons: list[LessonWork]


@dataclass(frozen=True)
class Portfolio:
    """The learner's work in all courses; see the module for its JSON."""

    name: str
    date: datetime.date
    courses: list[CourseWork]
    milestones: list[str]
    left_out: int
    incomplete: list[str]

    @classmethod
    def of_notes(cls, name: str = "") -> "Portfolio":
        """Return the work that the learner's notes show. ``name`` is the learner's."""
        kinds = {kind: state.noted(kind) for kind in state.KINDS}
        courses, incomplete = [], [] if name.strip() else ["The name is missing: lab.report(name=…) adds it."]
        for course in state.begun() if any(kinds.values()) else []:
            begun = []
            for lesson in lessons(course):
                own = {kind: _of_lesson(lesson, noted) for kind, noted in kinds.items()}
                if any(own.values()):
                    begun.append(_work(lesson, own))
                    incomplete += _missing(lesson, begun[-1])
            courses.append(CourseWork(course.name, course.title, begun))
        return cls(_text(name), datetime.date.today(), courses, passed(), state.set_aside(), incomplete)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "format": FORMAT,
            "name": self.name,
            "date": self.date.isoformat(),
            "minips": minips.__version__,
            "courses": [
                {"name": one.name, "title": one.title, "lessons": [lesson.to_dict() for lesson in one.lessons]}
                for one in self.courses
            ],
            "milestones": self.milestones,
            "left_out": self.left_out,
            "incomplete": self.incomplete,
        }


def _of_lesson(lesson: Lesson, noted: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {key: note for key, note in noted.items() if lesson_of(key) == lesson.word}


def _work(lesson: Lesson, own: Notes) -> LessonWork:
    """Return the work that a lesson's notes show. Predictions of questions that no longer exist are left out."""
    score = next((re.fullmatch(r"(\d+) of (\d+)", _text(note.get("right"))) for note in own["quiz"].values()), None)
    return LessonWork(
        lesson.word,
        lesson.number,
        lesson.title,
        [_predicted(QUESTIONS[key], note) for key, note in own["question"].items() if key in QUESTIONS],
        [
            Answered(key, *(_text(note.get(field)) for field in ("task", "table", "text")))
            for key, note in own["answer"].items()
        ],
        [key for key in lesson.exercises if key in own["exercise"]],
        [key for key in lesson.exercises if key not in own["exercise"]],
        score and Score(int(score[1]), int(score[2])),
    )


def _predicted(asked: Question | Estimate, note: Mapping[str, Any]) -> Predicted:
    predicted, measured = _text(note.get("predicted")), _text(note.get("measured"))
    verdict = asked.judge(predicted, measured) if measured else ""
    values = from_note(_text(note.get("values")))
    return Predicted(asked.key, asked.text, predicted, asked.unit, measured, verdict, values)


def _missing(lesson: Lesson, work: LessonWork) -> Iterator[str]:
    """Yield a sentence for each task of a lesson that is not done, in the order of its cells."""
    guesses = {one.key: one for one in work.predictions if one.predicted}
    answered = {one.key for one in work.answers if one.text.strip()}
    for kind, key in lesson.tasks:
        aside = ", which is homework," if (kind, key) in lesson.homework else ""
        if kind == "question" and key not in guesses:
            yield f"The prediction {key}{aside} was not made."
        elif kind == "question" and not guesses[key].measured:
            yield f"The prediction {key}{aside} was not compared with a measurement."
        elif kind == "answer" and key not in answered:
            yield f"The answer {key}{aside} is empty."
        elif kind == "exercise" and key not in work.done:
            yield f"The exercise {key}{aside} is not done."
        elif kind == "quiz" and not work.quiz:
            yield f"The quiz of {key}{aside} is not finished."


def _text(value: Any) -> str:
    """Return a note's value as a text that UTF-8 can encode; an empty text for None."""
    return "" if value is None else str(value).encode("utf-8", "replace").decode()


def _plain(value: Any) -> Any:
    """Return a value as JSON has it, which has no number that is not finite."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
